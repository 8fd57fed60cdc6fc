//! What was typed about which entries, as the reader takes it.

use logkit::{Level, Timestamp, query::Filter};

use crate::{args::FilterArgs, time};

/// Turns what was typed into what is asked.
pub(crate) fn filter(args: &FilterArgs) -> Filter {
    let micros = |at: i64| Timestamp::from_micros(at);
    let last = args.last.map(|last| time::Moment::Ago(last).unix_micros());
    let since = args.since.map(time::Moment::unix_micros);
    Filter {
        level: args.level.as_deref().map(Level::parse),
        errors: args.errors,
        since: last.max(since).map(micros),
        until: args.until.map(|until| micros(until.unix_micros())),
        function: args.function.clone(),
        environment: args.env.clone(),
        trace_id: args.trace.clone(),
        search: args.grep.clone(),
        words: args
            .search
            .iter()
            .flat_map(|words| words.split_whitespace())
            .map(str::to_owned)
            .collect(),
        slow_ms: args.slow,
        ..Filter::default()
    }
}

/// Turns a count into what the reader takes.
pub(crate) fn limit(typed: u64) -> usize {
    usize::try_from(typed)
        .unwrap_or(usize::MAX)
        .min(i64::MAX as usize)
}

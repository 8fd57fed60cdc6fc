//! What was typed about which entries, as the reader takes it.

use logkit::{
    Level, Timestamp,
    query::{BadSearch, Filter, search_text, search_words},
};

use crate::{args::FilterArgs, failure::Failure, time};

/// Turns what was typed into what is asked.
pub(crate) fn filter(args: &FilterArgs) -> Result<Filter, Failure> {
    let micros = |at: i64| Timestamp::from_micros(at);
    let last = args.last.map(|last| time::Moment::Ago(last).unix_micros());
    let since = args.since.map(time::Moment::unix_micros);
    let text = |option: &str, typed: &Option<String>| {
        let read = typed.as_deref().map(search_text).transpose();
        read.map_err(|why| unsearchable(option, why))
    };
    Ok(Filter {
        level: args.level.as_deref().map(Level::parse),
        errors: args.errors,
        since: last.max(since).map(micros),
        until: args.until.map(|until| micros(until.unix_micros())),
        function: text("--function", &args.function)?,
        environment: args.env.clone(),
        trace_id: args.trace.clone(),
        search: text("--grep", &args.grep)?,
        words: search_words(args.search.as_deref().unwrap_or_default())
            .map_err(|why| unsearchable("--search", why))?,
        slow_ms: args.slow,
        ..Filter::default()
    })
}

fn unsearchable(option: &str, why: BadSearch) -> Failure {
    Failure::Usage(format!("{option}: {why}"))
}

/// Turns a count into what the reader takes.
pub(crate) fn limit(typed: u64) -> usize {
    usize::try_from(typed)
        .unwrap_or(usize::MAX)
        .min(i64::MAX as usize)
}

//! Messages to entries and back.

use logkit::{
    Entry, Level, Redactor, Timestamp,
    query::{Filter, Row, search_text, search_words},
};
use logkit_proto::v1::{LogEntry, LogRequest, QueryRequest, Record};
use serde_json::{Map, Value};

use crate::call::{Call, args_of, cut, moment, output_of};

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 1000;
/// Bytes of a text of an answer, at most.
const TEXT_BYTES: usize = 2 << 20;

/// The entry of a call (`docs/contracts/logkit.md` 8), or what is wrong with the request.
pub(super) fn entry_of(request: LogRequest, redactor: Option<&Redactor>) -> Result<Entry, String> {
    if let Some(record) = request.record {
        return of_record(record).map_err(|why| format!("record.{why}"));
    }
    if request.cmd.is_empty() {
        return Err("cmd must not be empty".into());
    }
    let timestamp = if request.timestamp.is_empty() {
        None
    } else {
        let stamp = moment(&request.timestamp);
        Some(stamp.ok_or("timestamp must be a time such as 2026-11-20T19:54:48+00:00")?)
    };
    let or_unknown = |text: String| {
        if text.is_empty() {
            "unknown".to_owned()
        } else {
            text
        }
    };
    let level = match request.level.trim() {
        "" if request.error.is_empty() => Level::Info,
        "" => Level::Error,
        level => Level::parse(level),
    };
    let mut call = Call {
        cmd: request.cmd,
        args: request.args.into_iter().map(Value::from).collect(),
        language: or_unknown(request.language),
        env: or_unknown(request.env),
        level,
        duration_ms: request.duration_ms,
        output: Some(request.output).filter(|output| !output.is_empty()),
        error: request.error,
        trace_id: request.trace_id,
        version: request.version,
        timestamp,
        function_name: None,
        module: Some(request.module).filter(|module| !module.is_empty()),
        extra: {
            let mut pairs: Vec<_> = request.extra.into_iter().collect();
            pairs.sort();
            pairs
                .into_iter()
                .map(|(key, value)| (key, value.into()))
                .collect()
        },
    };
    call.blank(redactor);
    Ok(call.into_entry_with_extra())
}

/// An entry as a logger made it.
fn of_record(record: Record) -> Result<Entry, String> {
    let extra = match record.extra.as_str() {
        "" => Map::new(),
        text => serde_json::from_str(text).map_err(|_| "extra must be a JSON object")?,
    };
    let id = |text: String, name: &str| match text.as_str() {
        "" => Ok(None),
        id => id
            .parse()
            .map(Some)
            .map_err(|()| format!("{name} must be 16 hexadecimal digits, not all of them 0")),
    };
    let or = |text: String, empty: &'static str| {
        if text.is_empty() {
            empty.into()
        } else {
            text.into()
        }
    };
    Ok(Entry {
        timestamp: match record.timestamp_us {
            0 => Timestamp::now(),
            micros => Timestamp::from_micros(micros),
        },
        level: match record.level.trim() {
            "" => Level::Info,
            level => Level::parse(level),
        },
        function_name: record.function_name.into(),
        module: record.module.into(),
        args: or(record.args, "()"),
        kwargs: or(record.kwargs, "{}"),
        arg_types: record.arg_types.into(),
        kwarg_types: or(record.kwarg_types, "{}"),
        return_value: or(record.return_value, "None"),
        return_type: record.return_type.into(),
        exception: cut(record.exception).into(),
        exception_type: record.exception_type.into(),
        traceback: record.traceback.into(),
        duration_ms: record.duration_ms.filter(|ms| ms.is_finite()),
        environment: record.environment.into(),
        trace_id: record.trace_id.into(),
        version: record.version.into(),
        llm_analysis: record.llm_analysis.into(),
        span_id: id(record.span_id, "span_id")?,
        parent_id: id(record.parent_id, "parent_id")?,
        extra,
    })
}

pub(super) fn filter_of(request: QueryRequest) -> Result<Filter, String> {
    let at = |text: &str, name: &str| match text {
        "" => Ok(None),
        text => moment(text)
            .map(Some)
            .ok_or_else(|| format!("{name} must be a time such as 2026-11-20T19:54:48+00:00")),
    };
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    Ok(Filter {
        since: at(&request.since, "since")?,
        until: at(&request.until, "until")?,
        level: text(request.level).map(|level| Level::parse(&level)),
        module: text(request.language),
        environment: text(request.env),
        function: text(request.function)
            .map(|name| search_text(&name).map_err(|why| format!("function: {why}")))
            .transpose()?,
        trace_id: text(request.trace_id),
        words: search_words(&request.search).map_err(|why| format!("search: {why}"))?,
        page_after: match request.cursor.as_str() {
            "" => None,
            cursor => Some(
                cursor
                    .parse()
                    .map_err(|_| "cursor must be the id of an entry".to_owned())?,
            ),
        },
        limit: Some(match usize::try_from(request.limit) {
            Ok(0) | Err(_) => DEFAULT_LIMIT,
            Ok(limit) => limit.min(MAX_LIMIT),
        }),
        ..Filter::default()
    })
}

pub(super) fn log_entry(row: Row) -> LogEntry {
    let mut entry = row.entry;
    // Other programs write to the database as well: what no message can hold is cut.
    for text in [
        &mut entry.return_value,
        &mut entry.traceback,
        &mut entry.args,
        &mut entry.exception,
        &mut entry.llm_analysis,
    ] {
        if text.len() > TEXT_BYTES {
            let mut cut = text[..text.floor_char_boundary(TEXT_BYTES)].to_owned();
            cut.push_str("... [truncated]");
            *text = cut.into();
        }
    }
    let extra = entry
        .full_extra()
        .into_iter()
        .map(|(key, value)| match value {
            Value::String(text) => (key, text),
            other => (key, other.to_string()),
        });
    LogEntry {
        id: row.id.to_string(),
        timestamp: entry.timestamp.to_string(),
        level: entry.level.to_string(),
        args: args_of(&entry),
        success: !entry.level.is_error(),
        duration_ms: entry.duration_ms.unwrap_or_default(),
        output: output_of(&entry),
        extra: extra.collect(),
        cmd: entry.function_name.into_owned(),
        language: entry.module.into_owned(),
        env: entry.environment.into_owned(),
        error: entry.exception.into_owned(),
        trace_id: entry.trace_id.into_owned(),
        version: entry.version.into_owned(),
        exception_type: entry.exception_type.into_owned(),
        traceback: entry.traceback.into_owned(),
        llm_analysis: entry.llm_analysis.into_owned(),
    }
}

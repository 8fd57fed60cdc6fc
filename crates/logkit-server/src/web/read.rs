//! Finding entries.

use axum::{
    extract::{Path, RawQuery, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use logkit::{
    Level,
    query::{BadSearch, Filter, Row, search_text, search_words},
};
use serde_json::{Value, json};

use super::App;
use crate::{
    call::{moment, row_json},
    refusal::{Detail, Refusal, json_answer},
};

const DEFAULT_LIMIT: i64 = 50;
const MAX_LIMIT: i64 = 1000;

/// What a query asks for.
pub(super) struct Wanted {
    pub(super) filter: Filter,
    ndjson: bool,
}

/// `GET /logs`
pub(super) async fn logs(
    State(app): State<App>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let query = query.unwrap_or_default();
    let mut wanted = parse(&query)?;
    wanted.ndjson |= headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept.as_bytes().starts_with(b"application/x-ndjson"));
    let limit = wanted.filter.limit.unwrap_or_default();
    let (filter, ndjson) = (wanted.filter, wanted.ndjson);
    let page = app.store.read(move |reader| {
        if !filter.words.is_empty() {
            reader.use_words();
        }
        let mut page = Page::new(ndjson);
        reader.each_newest(&filter, |row| page.push(&row))?;
        Ok(page)
    });
    let page = page.await?;
    let next = page.last.filter(|_| page.is_full || page.n_rows == limit);
    let kind = if ndjson {
        "application/x-ndjson"
    } else {
        "application/json"
    };
    let mut response = ([(header::CONTENT_TYPE, kind)], page.finish()).into_response();
    if let Some(next) = next {
        let headers = response.headers_mut();
        headers.insert("x-next-cursor", HeaderValue::from(next));
        let cursor = format!("cursor={next}");
        let kept: Vec<&str> = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="))
            .chain([cursor.as_str()])
            .collect();
        let link = format!("</logs?{}>; rel=\"next\"", kept.join("&"));
        if let Ok(link) = HeaderValue::from_str(&link) {
            headers.insert(header::LINK, link);
        }
    }
    Ok(response)
}

/// Rows of an answer, written as they are read: never more of them than an answer may have.
struct Page {
    body: Vec<u8>,
    ndjson: bool,
    n_rows: usize,
    /// Id of the last row.
    last: Option<i64>,
    /// There was no room for another row.
    is_full: bool,
}

/// Bytes of an answer after which the rest is for the next page.
const PAGE_BYTES: usize = 16 << 20;

impl Page {
    fn new(ndjson: bool) -> Page {
        Page {
            body: if ndjson { Vec::new() } else { vec![b'['] },
            ndjson,
            n_rows: 0,
            last: None,
            is_full: false,
        }
    }

    /// Adds a row; false if there is no room for it. The first one always finds room.
    fn push(&mut self, row: &Row) -> bool {
        let before = self.body.len();
        if self.n_rows > 0 && !self.ndjson {
            self.body.push(b',');
        }
        let _ = serde_json::to_writer(&mut self.body, &row_json(row));
        if self.ndjson {
            self.body.push(b'\n');
        }
        if self.n_rows > 0 && self.body.len() > PAGE_BYTES {
            self.body.truncate(before);
            self.is_full = true;
            return false;
        }
        self.n_rows += 1;
        self.last = Some(row.id);
        true
    }

    fn finish(mut self) -> Vec<u8> {
        if !self.ndjson {
            self.body.push(b']');
        }
        self.body
    }
}

/// `GET /logs/{id}`
pub(super) async fn one(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let not_found = || Refusal::new(StatusCode::NOT_FOUND, "Not Found");
    let id: i64 = id.parse().map_err(|_| not_found())?;
    let row = app.store.read(move |reader| reader.row(id)).await?;
    row.map(|row| json_answer(&row_json(&row)))
        .ok_or_else(not_found)
}

/// Reads the parameters; those nobody knows do no harm.
pub(super) fn parse(query: &str) -> Result<Wanted, Refusal> {
    let mut filter = Filter {
        limit: Some(DEFAULT_LIMIT as usize),
        ..Filter::default()
    };
    let mut ndjson = false;
    let mut wrong = Vec::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if value.is_empty() {
            continue;
        }
        let text = || Some(value.to_string());
        // What any text can be.
        match &*name {
            "level" => filter.level = Some(Level::parse(&value)),
            "language" | "module" => filter.module = text(),
            "env" | "environment" => filter.environment = text(),
            "trace_id" => filter.trace_id = text(),
            "version" => filter.version = text(),
            "errors" => filter.errors = value == "1" || value == "true",
            _ => {}
        }
        let outcome = match &*name {
            "q" => search_words(&value)
                .map(|words| filter.words = words)
                .map_err(unsearchable),
            "function" => search_text(&value)
                .map(|name| filter.function = Some(name))
                .map_err(unsearchable),
            "slow_ms" => value
                .parse()
                .map(|ms| filter.slow_ms = Some(ms))
                .map_err(|_| {
                    (
                        "float_parsing",
                        "Input should be a valid number, unable to parse string as a number".into(),
                        Value::Null,
                    )
                }),
            "limit" => int(&value, 1, MAX_LIMIT).map(|n| filter.limit = Some(n as usize)),
            "cursor" => int(&value, 0, i64::MAX).map(|id| filter.page_after = Some(id)),
            "since" => at(&value).map(|moment| filter.since = Some(moment)),
            "until" => at(&value).map(|moment| filter.until = Some(moment)),
            "format" => match &*value {
                "json" => Ok(()),
                "ndjson" => {
                    ndjson = true;
                    Ok(())
                }
                _ => Err((
                    "literal_error",
                    "Input should be 'json' or 'ndjson'".into(),
                    json!({"expected": "'json' or 'ndjson'"}),
                )),
            },
            _ => Ok(()),
        };
        if let Err((kind, message, context)) = outcome {
            wrong.push(Detail {
                kind,
                place: vec![json!("query"), json!(name)],
                message,
                input: json!(value),
                context,
            });
        }
    }
    if wrong.is_empty() {
        Ok(Wanted { filter, ndjson })
    } else {
        Err(Refusal::invalid(wrong))
    }
}

type Wrong = (&'static str, String, Value);

fn unsearchable(why: BadSearch) -> Wrong {
    ("value_error", why.to_string(), Value::Null)
}

fn at(text: &str) -> Result<logkit::Timestamp, Wrong> {
    moment(text).ok_or((
        "datetime_parsing",
        "Input should be a valid datetime such as 2026-11-20T19:54:48Z".into(),
        Value::Null,
    ))
}

fn int(text: &str, least: i64, most: i64) -> Result<i64, Wrong> {
    let number: i64 = text.trim().parse().map_err(|_| {
        (
            "int_parsing",
            "Input should be a valid integer, unable to parse string as an integer".into(),
            Value::Null,
        )
    })?;
    if number < least {
        let message = format!("Input should be greater than or equal to {least}");
        return Err(("greater_than_equal", message, json!({ "ge": least })));
    }
    if number > most {
        let message = format!("Input should be less than or equal to {most}");
        return Err(("less_than_equal", message, json!({ "le": most })));
    }
    Ok(number)
}

//! `logkit stats`: calls, errors and times of each function.

use std::cmp::Reverse;

use logkit::query::{Filter, FunctionStats, Reader};
use serde_json::json;

use crate::{
    args::{SortArg, StatsArgs},
    failure::Failure,
    filter::filter,
    render::{self, Milliseconds},
    settings::Database,
};

/// Does `stats`.
pub(crate) fn run(args: &StatsArgs) -> Result<(), Failure> {
    let filter = filter(&args.filter)?;
    let reader = Database::find(&args.database)?.reader_for(&args.filter)?;
    show(&reader, &filter, args.sort, args.limit, args.json)
}

/// Shows the counts of the entries that match.
pub(crate) fn show(
    reader: &Reader,
    filter: &Filter,
    sort: SortArg,
    limit: usize,
    as_json: bool,
) -> Result<(), Failure> {
    let mut stats = reader.stats(filter)?;
    let order = |ms: Option<f64>| Reverse(ms.map_or(-1, |ms| (ms * 1e3) as i64));
    match sort {
        SortArg::Count => stats.sort_by_key(|row| Reverse(row.calls)),
        SortArg::Errors => stats.sort_by_key(|row| Reverse(row.errors)),
        SortArg::P95 => stats.sort_by_key(|row| order(row.p95_ms)),
        SortArg::Total => stats.sort_by_key(|row| order(Some(row.total_ms))),
    }
    let n_functions = stats.len();
    let calls: u64 = stats.iter().map(|row| row.calls).sum();
    let errors: u64 = stats.iter().map(|row| row.errors).sum();
    stats.truncate(limit);
    render::results(|out| {
        if as_json {
            for row in &stats {
                writeln!(out, "{}", json(row))?;
            }
            return Ok(());
        }
        if stats.is_empty() {
            writeln!(out, "No logs found.")?;
            return Ok(());
        }
        let header = [
            "FUNCTION", "CALLS", "ERRORS", "RATE", "P50", "P95", "P99", "TOTAL",
        ];
        let rows: Vec<Vec<String>> = stats.iter().map(cells).collect();
        writeln!(out, "{}", render::table(&header.map(str::to_owned), &rows))?;
        writeln!(
            out,
            "\n({calls} calls of {n_functions} functions, {errors} errors, {})",
            rate(errors, calls)
        )?;
        Ok(())
    })
}

fn cells(row: &FunctionStats) -> Vec<String> {
    let ms = |ms| Milliseconds(ms).to_string();
    vec![
        render::one_line(&row.function_name).into_owned(),
        row.calls.to_string(),
        row.errors.to_string(),
        rate(row.errors, row.calls),
        ms(row.p50_ms),
        ms(row.p95_ms),
        ms(row.p99_ms),
        ms(Some(row.total_ms)),
    ]
}

fn json(row: &FunctionStats) -> serde_json::Value {
    json!({
        "function": row.function_name,
        "calls": row.calls,
        "errors": row.errors,
        "error_rate": row.errors as f64 / row.calls.max(1) as f64,
        "p50_ms": row.p50_ms,
        "p95_ms": row.p95_ms,
        "p99_ms": row.p99_ms,
        "total_ms": row.total_ms,
    })
}

fn rate(errors: u64, calls: u64) -> String {
    format!("{:.1}%", errors as f64 * 100.0 / calls.max(1) as f64)
}

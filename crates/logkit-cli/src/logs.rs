//! `logkit logs` and `logkit tail`: entries as lines, JSON or CSV.

use std::{io::Write, thread, time::Duration};

use logkit::{
    Entry,
    query::{Filter, Reader, Row},
};
use serde_json::{Map, Value};

use crate::{
    args::{FormArgs, LogsArgs, SortArg, TailArgs},
    failure::Failure,
    filter::{filter, limit},
    render::{self, LogLine},
    settings::Database,
    stats,
};

/// How often a database is asked for what is new.
const POLL: Duration = Duration::from_millis(200);
/// Rows taken at once when following.
const PAGE: usize = 1000;

/// Does `logs`.
pub(crate) fn run(args: &LogsArgs) -> Result<(), Failure> {
    let filter = filter(&args.filter)?;
    let database = Database::find(&args.database)?;
    if args.follow {
        // What comes in is in no index yet.
        let reader = database.reader()?;
        return follow(&reader, filter, args.limit, args.form);
    }
    let reader = database.reader_for(&args.filter)?;
    if let Some(query) = &args.sql {
        return sql(&reader, query, args.form);
    }
    if args.stats {
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        return stats::show(&reader, &filter, SortArg::Count, limit, args.form.json);
    }
    let rows = reader.rows(&Filter {
        limit: Some(limit(args.limit)),
        ..filter
    })?;
    if args.form.is_data() {
        return show(&rows, args.form, true);
    }
    if rows.is_empty() {
        render::line("No logs found.")?;
        return Ok(());
    }
    render::results(|out| {
        write(out, &rows, args.form, true)?;
        writeln!(
            out,
            "\n({} entries from {})",
            rows.len(),
            database.path.display()
        )?;
        Ok(())
    })
}

/// Does `tail`.
pub(crate) fn tail(args: &TailArgs) -> Result<(), Failure> {
    let filter = filter(&args.filter)?;
    let reader = Database::find(&args.database)?.reader()?;
    follow(&reader, filter, args.limit, args.form)
}

/// The columns and `id`, as JSON.
pub(crate) fn as_json(row: &Row) -> Value {
    let mut map = Map::new();
    map.insert("id".into(), row.id.into());
    map.extend(row.entry.as_json());
    Value::Object(map)
}

/// Shows the last entries, oldest first, and then what comes in, until nobody reads or an
/// interrupt.
fn follow(reader: &Reader, filter: Filter, first: u64, form: FormArgs) -> Result<(), Failure> {
    let mut last_id = reader.last_id()?;
    let mut rows = reader.rows(&Filter {
        limit: Some(limit(first)),
        ..filter.clone()
    })?;
    rows.reverse();
    // What was committed between the two questions comes once.
    last_id = rows
        .iter()
        .map(|row| row.id)
        .max()
        .unwrap_or(0)
        .max(last_id);
    show(&rows, form, true)?;
    loop {
        let newest = reader.last_id()?;
        if newest <= last_id {
            thread::sleep(POLL);
            continue;
        }
        let page = Filter {
            after_id: Some(last_id),
            before_id: newest.checked_add(1),
            limit: Some(PAGE),
            ..filter.clone()
        };
        let mut rows = Vec::new();
        reader.for_each(&page, |row| {
            rows.push(row);
            true
        })?;
        last_id = match rows.last() {
            Some(last) if rows.len() == PAGE => last.id,
            _ => newest,
        };
        show(&rows, form, false)?;
    }
}

fn show(rows: &[Row], form: FormArgs, header: bool) -> Result<(), Failure> {
    if form.is_data() {
        render::data(|out| write(out, rows, form, header))
    } else {
        render::results(|out| write(out, rows, form, header))
    }
}

fn write(out: &mut dyn Write, rows: &[Row], form: FormArgs, header: bool) -> Result<(), Failure> {
    if form.csv {
        return csv(out, rows, header);
    }
    for row in rows {
        if form.json {
            writeln!(out, "{}", as_json(row))?;
        } else {
            writeln!(out, "{}", LogLine(&row.entry))?;
        }
    }
    Ok(())
}

fn csv(out: &mut dyn Write, rows: &[Row], header: bool) -> Result<(), Failure> {
    let mut writer = csv_writer(out);
    if header {
        writer.write_record(["id"].into_iter().chain(Entry::COLUMNS).chain(["extra"]))?;
    }
    for row in rows {
        let mut record = vec![row.id.to_string()];
        let columns = row.entry.columns();
        record.extend(columns.map(|(_, value)| value.text().into_owned()));
        record.push(if row.entry.has_extra() {
            Value::Object(row.entry.full_extra()).to_string()
        } else {
            String::new()
        });
        writer.write_record(&record)?;
    }
    writer.flush()?;
    Ok(())
}

fn csv_writer(out: &mut dyn Write) -> csv::Writer<&mut dyn Write> {
    csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .from_writer(out)
}

/// Statements that read. A database opened for reading refuses the rest, but for those that write
/// elsewhere, such as `VACUUM INTO`.
const READING: [&str; 5] = ["SELECT", "WITH", "VALUES", "EXPLAIN", "PRAGMA"];

fn sql(reader: &Reader, query: &str, form: FormArgs) -> Result<(), Failure> {
    let first: String = query
        .trim_start_matches(|c: char| c.is_whitespace() || c == '(')
        .chars()
        .take_while(char::is_ascii_alphabetic)
        .collect();
    if !READING.iter().any(|word| word.eq_ignore_ascii_case(&first)) {
        return Err(Failure::Other(format!(
            "--sql answers one query that begins with {}",
            READING.join(", ")
        )));
    }
    let (names, rows) = reader.sql(query)?;
    render::data(|out| {
        if form.csv {
            let mut writer = csv_writer(out);
            writer.write_record(&names)?;
            for row in &rows {
                writer.write_record(row)?;
            }
            writer.flush()?;
        } else if form.json {
            for row in rows {
                let object: Map<String, Value> = names
                    .iter()
                    .cloned()
                    .zip(row.into_iter().map(Value::from))
                    .collect();
                writeln!(out, "{}", Value::Object(object))?;
            }
        } else if !names.is_empty() {
            let rows: Vec<Vec<String>> = rows
                .into_iter()
                .map(|row| {
                    row.iter()
                        .map(|cell| render::one_line(cell).into_owned())
                        .collect()
                })
                .collect();
            writeln!(out, "{}", render::table(&names, &rows))?;
        }
        Ok(())
    })
}

//! Files of entries: their form to the byte, any text in them, rotation.

use std::{fs, path::Path, time::Duration};

use logkit::{CsvSink, Entry, JsonForm, JsonSink, Level, MarkdownSink, Rotation, Sink};
use proptest::prelude::*;

fn sample() -> Entry {
    let mut entry = Entry {
        timestamp: "2026-11-20T19:54:48.596202Z".parse().unwrap(),
        level: Level::Error,
        function_name: "Cart::pay".into(),
        module: "shop".into(),
        args: "(3, \"a, b\")".into(),
        kwargs: "{}".into(),
        arg_types: "u8, &str".into(),
        return_type: "Result<(), E>".into(),
        exception: "no\nmoney".into(),
        exception_type: "E".into(),
        traceback: "at `x`\n```\nend".into(),
        duration_ms: Some(1.25),
        environment: "prod".into(),
        trace_id: "t1".into(),
        version: "2".into(),
        llm_analysis: "Fill the account.".into(),
        ..Entry::default()
    };
    entry.extra.insert("returncode".into(), 3.into());
    entry
}

fn written(open: impl Fn(&Path) -> Box<dyn Sink>, entries: &[Entry]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut sink = open(&path);
    sink.write_batch(entries).unwrap();
    drop(sink);
    fs::read_to_string(path).unwrap()
}

fn csv(path: &Path) -> Box<dyn Sink> {
    Box::new(CsvSink::open(path, Rotation::default()).unwrap())
}

fn json(path: &Path) -> Box<dyn Sink> {
    Box::new(JsonSink::open(path, JsonForm::Lines, Rotation::default()).unwrap())
}

fn markdown(path: &Path) -> Box<dyn Sink> {
    Box::new(MarkdownSink::open(path, Rotation::default()).unwrap())
}

#[test]
fn csv_looks_like_this() {
    assert_eq!(
        written(
            csv,
            &[
                sample(),
                Entry {
                    level: Level::Info,
                    ..sample_short()
                }
            ]
        ),
        "timestamp,level,function_name,module,args,kwargs,arg_types,kwarg_types,return_value,\
         return_type,exception,exception_type,traceback,duration_ms,environment,trace_id,version,\
         llm_analysis,extra\r\n\
         2026-11-20T19:54:48.596202+00:00,ERROR,Cart::pay,shop,\"(3, \"\"a, b\"\")\",{},\"u8, &str\",{},None,\
         \"Result<(), E>\",\"no\nmoney\",E,\"at `x`\n```\nend\",1.25,prod,t1,2,\
         Fill the account.,\"{\"\"returncode\"\":3}\"\r\n\
         2026-11-20T19:54:48.596202+00:00,INFO,f,,(),{},,{},None,,,,,,,,,,\r\n"
    );
}

fn sample_short() -> Entry {
    Entry {
        timestamp: sample().timestamp,
        function_name: "f".into(),
        ..Entry::default()
    }
}

#[test]
fn json_looks_like_this() {
    let text = written(json, &[sample(), sample_short()]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "{\"timestamp\":\"2026-11-20T19:54:48.596202+00:00\",\"level\":\"ERROR\",\
         \"function_name\":\"Cart::pay\",\"module\":\"shop\",\"args\":\"(3, \\\"a, b\\\")\",\
         \"kwargs\":\"{}\",\"arg_types\":\"u8, &str\",\"kwarg_types\":\"{}\",\"return_value\":\"None\",\
         \"return_type\":\"Result<(), E>\",\"exception\":\"no\\nmoney\",\"exception_type\":\"E\",\
         \"traceback\":\"at `x`\\n```\\nend\",\"duration_ms\":1.25,\"environment\":\"prod\",\
         \"trace_id\":\"t1\",\"version\":\"2\",\"llm_analysis\":\"Fill the account.\",\
         \"extra\":{\"returncode\":3}}"
    );
    for (line, entry) in lines.iter().zip([sample(), sample_short()]) {
        assert_eq!(*line, serde_json::to_string(&entry.as_json()).unwrap());
    }
    assert!(lines[1].contains("\"duration_ms\":null") && !lines[1].contains("extra"));
}

#[test]
fn markdown_looks_like_this() {
    assert_eq!(
        written(markdown, &[sample(), sample_short()]),
        "# Logs\n\n\
         ## 2026-11-20T19:54:48.596202+00:00 | ERROR | `Cart::pay`\n\n\
         - **Module:** shop\n\
         - **Args:** `(3, \"a, b\")`\n\
         - **Kwargs:** `{}`\n\
         - **Arg types:** u8, &str\n\
         - **Duration:** 1.25 ms\n\
         - **Return:** `None` (Result<(), E>)\n\
         - **Exception:** `E`: no money\n\n\
         ````\nat `x`\n```\nend\n````\n\
         - **Environment:** prod\n\
         - **Trace ID:** `t1`\n\
         - **Version:** 2\n\
         - **LLM Analysis:** Fill the account.\n\
         - **Extra:** `{\"returncode\":3}`\n\
         \n---\n\n\
         ## 2026-11-20T19:54:48.596202+00:00 | INFO | `f`\n\n\
         - **Module:** \n\
         - **Args:** `()`\n\
         - **Kwargs:** `{}`\n\
         - **Arg types:** \n\
         - **Duration:** - ms\n\
         \n---\n\n"
    );
}

#[test]
fn appending_follows_the_header_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.csv");
    fs::write(&path, "level,timestamp,other\r\n").unwrap();
    csv(&path).write_batch(&[sample()]).unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "level,timestamp,other\r\nERROR,2026-11-20T19:54:48.596202+00:00,\r\n"
    );
    fs::write(&path, "a,b\r\n1,2\r\n").unwrap();
    let error = CsvSink::open(&path, Rotation::default()).unwrap_err();
    assert!(error.to_string().contains("not a header"), "{error}");
    let safe = written(
        |path| {
            Box::new(
                CsvSink::open(path, Rotation::default())
                    .unwrap()
                    .safe_formulas(true),
            )
        },
        &[Entry {
            function_name: "=1+1".into(),
            ..sample_short()
        }],
    );
    assert!(safe.contains(",'=1+1,"), "{safe}");
}

#[test]
fn files_are_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.csv");
    let rotation = Rotation {
        max_bytes: Some(1000),
        backups: 2,
        compress: true,
        ..Rotation::default()
    };
    let mut sink = CsvSink::open(&path, rotation).unwrap();
    for n in 0..20 {
        let entry = Entry {
            function_name: format!("f{n}").into(),
            ..sample()
        };
        sink.write_batch(&[entry]).unwrap();
    }
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["logs.csv", "logs.csv.1.zst", "logs.csv.2.zst"]);
    let newest = zstd::decode_all(&*fs::read(folder.path().join("logs.csv.1.zst")).unwrap());
    let text = String::from_utf8(newest.unwrap()).unwrap() + &fs::read_to_string(&path).unwrap();
    assert!(text.len() > 1000 && text.contains("f19") && text.contains("f18"));
    assert!(text.starts_with("timestamp,"));
    assert!(fs::metadata(&path).unwrap().len() <= 1000);

    // A new day.
    let daily = Rotation {
        daily: true,
        ..Rotation::default()
    };
    let path = folder.path().join("day.jsonl");
    fs::write(&path, "{}\n").unwrap();
    let yesterday = std::time::SystemTime::now() - Duration::from_hours(25);
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(yesterday)
        .unwrap();
    let mut sink = JsonSink::open(&path, JsonForm::Compact, daily).unwrap();
    sink.write_batch(&[sample()]).unwrap();
    assert_eq!(
        fs::read_to_string(folder.path().join("day.jsonl.1")).unwrap(),
        "{}\n"
    );
    let compact: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(compact["fn"], "Cart::pay");
}

/// Links stay where they are, and so does what is no file: a log may go to a device of the system.
#[test]
fn only_files_are_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    let (device, null) = (folder.path().join("device"), Path::new("/dev/null"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    std::os::unix::fs::symlink(null, &device).unwrap();
    for path in [&link, &device] {
        let rotation = Rotation {
            max_bytes: Some(1000),
            backups: 1,
            ..Rotation::default()
        };
        let mut sink = JsonSink::open(path, JsonForm::Compact, rotation).unwrap();
        for _ in 0..20 {
            sink.write_batch(&[sample()]).unwrap();
        }
    }
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["device", "link", "target", "target.1"]);
    assert!(link.is_symlink() && device.is_symlink());
}

fn named(name: String) -> Entry {
    Entry {
        function_name: name.into(),
        ..sample()
    }
}

/// The texts of a file and of what was put aside of it.
fn texts(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap();
    files
        .map(|file| {
            let path = file.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            let is_packed = path.extension().is_some_and(|end| end == "zst");
            let bytes = if is_packed {
                zstd::decode_all(&*bytes).unwrap()
            } else {
                bytes
            };
            String::from_utf8(bytes).unwrap()
        })
        .collect()
}

/// As processes that log into one file: each has it open on its own.
#[test]
fn writers_of_one_file_lose_nothing_while_it_is_put_aside() {
    const N_WRITERS: usize = 4;
    const N_ENTRIES: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation {
        max_bytes: Some(4_000),
        backups: 1_000,
        compress: true,
        ..Rotation::default()
    };
    std::thread::scope(|scope| {
        for writer in 0..N_WRITERS {
            let path = folder.path().join("logs.csv");
            scope.spawn(move || {
                let mut sink = CsvSink::open(path, rotation).unwrap();
                for n in 0..N_ENTRIES {
                    sink.write_batch(&[named(format!("{writer} {n}"))]).unwrap();
                }
            });
        }
    });
    let mut found = Vec::new();
    for text in texts(folder.path()) {
        assert!(text.starts_with("timestamp,"), "{text}");
        assert_eq!(text.matches("timestamp,").count(), 1, "{text}");
        for row in csv::Reader::from_reader(text.as_bytes()).records() {
            found.push(row.unwrap()[2].to_owned());
        }
    }
    found.sort();
    let mut expected: Vec<String> = (0..N_WRITERS)
        .flat_map(|writer| (0..N_ENTRIES).map(move |n| format!("{writer} {n}")))
        .collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_file_that_another_writer_removed_gets_no_more_entries() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.jsonl");
    let rotation = Rotation {
        max_bytes: Some(1_000),
        backups: 0,
        ..Rotation::default()
    };
    let open = || JsonSink::open(&path, JsonForm::Lines, rotation).unwrap();
    let (mut one, mut other) = (open(), open());
    one.write_batch(&[named("first".into())]).unwrap();
    other.write_batch(&[named("second".into())]).unwrap();
    one.write_batch(&[named("third".into())]).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 1 && lines[0].contains("third"), "{text}");
    other.write_batch(&[named("fourth".into())]).unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("fourth"));
}

#[test]
fn writers_of_an_empty_file_write_one_head() {
    for (open, head) in [
        (csv as fn(&Path) -> Box<dyn Sink>, "timestamp,"),
        (markdown, "# Logs\n"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut writers = [open(&path), open(&path)];
        for writer in &mut writers {
            writer.write_batch(&[sample()]).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(head).count(), 1, "{text}");
        // What cuts files, as `logrotate` with `copytruncate`, cuts the head, too.
        fs::write(&path, "").unwrap();
        writers[0].write_batch(&[sample()]).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with(head));
    }
}

#[test]
fn rows_follow_the_header_of_the_file_that_took_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.csv");
    let mut sink = csv(&path);
    sink.write_batch(&[sample()]).unwrap();
    fs::rename(&path, folder.path().join("old.csv")).unwrap();
    fs::write(&path, "level,timestamp\r\n").unwrap();
    sink.write_batch(&[sample()]).unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "level,timestamp\r\nERROR,2026-11-20T19:54:48.596202+00:00\r\n"
    );
}

#[test]
fn a_file_that_is_gone_is_made_again() {
    let rotations = [
        Rotation::default(),
        Rotation {
            max_bytes: Some(1_000),
            ..Rotation::default()
        },
    ];
    for rotation in rotations {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let path = inner.join("logs.jsonl");
        let mut sink = JsonSink::open(&path, JsonForm::Lines, rotation).unwrap();
        let mut write = |name: &str| {
            sink.write_batch(&[named(name.into())])?;
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.lines().count() == 1 && text.contains(name), "{text}");
            Ok::<(), logkit::SinkError>(())
        };
        write("first").unwrap();
        fs::remove_file(&path).unwrap();
        write("removed").unwrap();
        fs::rename(&path, inner.join("away")).unwrap();
        write("renamed").unwrap();
        fs::remove_dir_all(&inner).unwrap();
        write("no folder").unwrap_err();
        fs::create_dir(&inner).unwrap();
        write("with a folder").unwrap();
    }
}

prop_compose! {
    /// Entries with anything in their texts.
    pub(crate) fn any_entry()(
        texts in proptest::collection::vec("(?s)(.|[\\x00-\\x1f\"'`,|=]){0,12}", 16),
        micros in -62_135_596_800_000_000_i64..253_402_300_799_999_999,
        ms in proptest::option::of((0..u32::MAX).prop_map(|micros| f64::from(micros) / 1000.0)),
        span in proptest::option::of(1..u64::MAX),
        key in "[a-z]{1,5}",
    ) -> Entry {
        let mut entry = Entry {
            timestamp: logkit::Timestamp::from_micros(micros),
            level: Level::Warning,
            duration_ms: ms,
            span_id: span.and_then(logkit::SpanId::new),
            ..Entry::default()
        };
        let columns = Entry::COLUMNS;
        let mut texts = texts.into_iter();
        entry.extra.insert(key, texts.next().unwrap().into());
        for column in columns {
            if let Some(text) = entry.text_mut(column) {
                *text = texts.next().unwrap().into();
            }
        }
        entry
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_survives_csv(entries in proptest::collection::vec(any_entry(), 1..4)) {
        let text = written(csv, &entries);
        let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let read: Vec<Entry> = reader.records().map(|record| {
            let record = record.unwrap();
            let map = header.iter().zip(record.iter()).filter_map(|(name, cell)| {
                let value = match (name, cell) {
                    ("duration_ms" | "extra", "") => return None,
                    ("duration_ms" | "extra", cell) => serde_json::from_str(cell).unwrap(),
                    (_, cell) => cell.into(),
                };
                Some((name.to_owned(), value))
            });
            Entry::from_json(map.collect())
        }).collect();
        prop_assert_eq!(read, entries);
    }

    #[test]
    fn any_text_survives_json(entries in proptest::collection::vec(any_entry(), 1..4)) {
        let text = written(json, &entries);
        let read: Vec<Entry> = text
            .lines()
            .map(|line| Entry::from_json(serde_json::from_str(line).unwrap()))
            .collect();
        prop_assert_eq!(read, entries);
    }

    #[test]
    fn no_text_breaks_markdown(entries in proptest::collection::vec(any_entry(), 1..4)) {
        let text = written(markdown, &entries);
        // Outside of fences each entry has one heading and one rule, and a fence holds the
        // traceback as it is.
        let mut fence: Option<(String, String)> = None;
        let mut found = Vec::new();
        let mut n_headings = 0;
        for line in text.split_inclusive('\n') {
            match &mut fence {
                Some((mark, _)) if line.trim_end_matches('\n') == mark => {
                    found.push(fence.take().unwrap().1);
                }
                Some((_, held)) => held.push_str(line),
                None if line.starts_with("```") => {
                    fence = Some((line.trim_end().to_owned(), String::new()));
                }
                None => {
                    n_headings += usize::from(line.starts_with("## "));
                    prop_assert!(["## ", "# Logs", "- **", "---", "\n"].iter().any(|start| line.starts_with(start)), "{:?}", line);
                }
            }
        }
        prop_assert_eq!(n_headings, entries.len());
        let expected: Vec<String> = entries
            .iter()
            .filter(|entry| !entry.exception.is_empty() || !entry.exception_type.is_empty())
            .map(|entry| {
                let end = if entry.traceback.ends_with('\n') { "" } else { "\n" };
                format!("{}{end}", entry.traceback)
            })
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[cfg(feature = "db")]
    #[test]
    fn any_text_survives_the_database(entries in proptest::collection::vec(any_entry(), 1..4)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs.db");
        let mut sink =
            logkit::DbSink::open(&path, "logs", logkit::Durability::Buffered).unwrap();
        sink.write_batch(&entries).unwrap();
        let rows = logkit::query::Reader::open(&path, "logs").unwrap().after(0, 100).unwrap();
        let read: Vec<Entry> = rows.into_iter().map(|row| row.entry).collect();
        prop_assert_eq!(read, entries);
    }

    #[test]
    fn console_lines_are_lines(entry in any_entry()) {
        let line = logkit::console_line(&entry, "logkit", logkit::ConsoleTime::default());
        prop_assert!(!line.chars().any(char::is_control), "{:?}", line);
    }
}

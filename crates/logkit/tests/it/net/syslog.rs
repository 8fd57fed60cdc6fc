use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use logkit::{
    Entry, Level, Logger, Sink, SyslogSink, console_message, log_call,
    spec::{self, Options},
};
use proptest::prelude::*;

use super::eventually;
use crate::files::any_entry;

const LONG: Duration = Duration::from_secs(20);

/// Listens at a path as the log of a system does.
fn listen(path: &Path) -> UnixDatagram {
    let daemon = UnixDatagram::bind(path).unwrap();
    daemon.set_read_timeout(Some(LONG)).unwrap();
    daemon
}

fn receive(daemon: &UnixDatagram) -> String {
    // One more than a message may have.
    let mut message = vec![0; 8193];
    let n_bytes = daemon.recv(&mut message).unwrap();
    message.truncate(n_bytes);
    String::from_utf8(message).unwrap()
}

/// The messages of a few entries, as a daemon receives them.
fn sent(entries: &[Entry]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let daemon = listen(&path);
    let mut sink = SyslogSink::new(&path).unwrap().app_name("shop");
    sink.write_batch(entries).unwrap();
    sink.close().unwrap();
    entries.iter().map(|_| receive(&daemon)).collect()
}

fn named(function: &str) -> Entry {
    Entry {
        timestamp: "2026-11-20T19:54:48.596202Z".parse().unwrap(),
        function_name: function.to_owned().into(),
        ..Entry::default()
    }
}

/// The numbers of functions called `f0`, `f1` …, from the texts of messages.
fn number(message: &str) -> usize {
    let text = message.rsplit(' ').next().unwrap();
    let digits = text.trim_start_matches('f').trim_end_matches("()");
    digits.parse().unwrap()
}

#[test]
fn messages_look_like_this() {
    let process = std::process::id();
    let failed = Entry {
        level: Level::Error,
        module: "sh\"o\\p]".into(),
        args: "(3, \"a, b\")".into(),
        exception: "no\nmoney \u{1b}[2J".into(),
        exception_type: "E".into(),
        duration_ms: Some(1.25),
        ..named("Cart::pay")
    };
    let nothing = Entry {
        level: Level::Critical,
        ..named("")
    };
    assert_eq!(
        sent(&[failed, named("żółw\n"), nothing]),
        [
            format!(
                "<11>1 2026-11-20T19:54:48.596202+00:00 - shop {process} - \
                 [logkit@32473 function=\"Cart::pay\" module=\"sh\\\"o\\\\p\\]\" duration_ms=\"1.25\"] \
                 Cart::pay() | args=(3, \"a, b\") | EXCEPTION E: no\\nmoney \\x1b[2J | [1.25ms]"
            ),
            format!(
                "<14>1 2026-11-20T19:54:48.596202+00:00 - shop {process} - \
                 [logkit@32473 function=\"żółw\\\\n\"] żółw\\n()"
            ),
            format!("<10>1 2026-11-20T19:54:48.596202+00:00 - shop {process} - - ()"),
        ]
    );
}

#[test]
fn specifications_name_a_socket_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let daemon = listen(&path);
    let spec = format!(" Syslog: {} ", path.display());
    let mut sink = spec::open(&spec, &Options::default()).unwrap();
    assert_eq!(sink.name(), "syslog");
    sink.write_batch(&[named("f")]).unwrap();
    sink.close().unwrap();
    // The name of this program stands for that of the logger.
    let program = std::env::args().next().unwrap();
    let program = Path::new(&program).file_name().unwrap().to_str().unwrap();
    let message = receive(&daemon);
    assert!(message.contains(&format!(" - {program} ")), "{message}");

    assert_eq!(SyslogSink::PATH, "/dev/log");
    for spec in ["syslog", "syslog:", " SYSLOG "] {
        let sink = spec::open(spec, &Options::default()).unwrap();
        assert_eq!(sink.name(), "syslog", "{spec}");
    }
    let long = format!("syslog:/{}", "x".repeat(200));
    let told = spec::open(&long, &Options::default())
        .map(|_| ())
        .unwrap_err();
    assert!(told.to_string().contains("SUN_LEN"), "{told}");
}

/// A message as RFC 5424 takes it apart.
#[derive(Debug, PartialEq)]
struct Message {
    priority: u8,
    header: Vec<String>,
    data: Vec<(String, String)>,
    text: String,
}

fn parse(message: &str) -> Message {
    let (priority, rest) = message
        .strip_prefix('<')
        .unwrap()
        .split_once(">1 ")
        .unwrap();
    // TIMESTAMP, HOSTNAME, APP-NAME, PROCID, MSGID.
    let mut fields = rest.splitn(6, ' ');
    let header: Vec<String> = fields.by_ref().take(5).map(str::to_owned).collect();
    assert!(header.iter().all(|field| !field.is_empty()
        && field.chars().all(|c| c.is_ascii_graphic())
        && field.len() <= 48));
    let (data, text) = parse_data(fields.next().unwrap());
    Message {
        priority: priority.parse().unwrap(),
        header,
        data,
        text: text.strip_prefix(' ').unwrap().to_owned(),
    }
}

/// Names and values of the structured data, and what follows it.
fn parse_data(message: &str) -> (Vec<(String, String)>, &str) {
    let mut data = Vec::new();
    if let Some(rest) = message.strip_prefix('-') {
        return (data, rest);
    }
    let mut rest = message.strip_prefix("[logkit@32473").unwrap();
    while let Some(param) = rest.strip_prefix(' ') {
        let (name, value) = param.split_once("=\"").unwrap();
        let mut unescaped = String::new();
        let mut chars = value.chars();
        loop {
            match chars.next().unwrap() {
                '"' => break,
                ']' => panic!("a bracket is not escaped: {message:?}"),
                '\\' => {
                    let c = chars.next().unwrap();
                    assert!(matches!(c, '"' | '\\' | ']'), "{message:?}");
                    unescaped.push(c);
                }
                c => unescaped.push(c),
            }
        }
        data.push((name.to_owned(), unescaped));
        rest = chars.as_str();
    }
    (data, rest.strip_prefix(']').unwrap())
}

/// The text as it stands in a line.
fn in_line(text: &str) -> String {
    let line = console_message(&named(text));
    line.strip_suffix("()").unwrap().to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_survives_the_log_of_the_system(
        entries in proptest::collection::vec(any_entry(), 1..4),
    ) {
        for (message, entry) in sent(&entries).iter().zip(&entries) {
            prop_assert!(!message.chars().any(char::is_control), "{:?}", message);
            let duration = entry.duration_ms.map(|ms| ms.to_string()).unwrap_or_default();
            let data: Vec<(String, String)> = [
                ("function", in_line(&entry.function_name)),
                ("module", in_line(&entry.module)),
                ("duration_ms", duration),
            ]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
            let process = std::process::id().to_string();
            let header = [&*entry.timestamp.to_string(), "-", "shop", &process, "-"];
            prop_assert_eq!(parse(message), Message {
                priority: 12,
                header: header.map(str::to_owned).into(),
                data,
                text: console_message(entry),
            });
        }
    }

    #[test]
    fn long_texts_are_cut_to_what_receivers_take(
        c in prop::sample::select(vec!['x', '"', ']', '\\', 'ż', '中', '😀', '\n', '\u{1b}']),
        shift in "[a-z]{0,5}",
        n_chars in 0..12_000_usize,
    ) {
        let long = shift + &c.to_string().repeat(n_chars);
        let entry = Entry { args: long.clone().into(), module: long.clone().into(), ..named("f") };
        let message = sent(std::slice::from_ref(&entry)).remove(0);
        prop_assert!(message.len() <= 8192, "{} bytes", message.len());
        let parsed = parse(&message);
        let whole = console_message(&entry);
        if parsed.text != whole {
            prop_assert!(message.len() > 8192 - 42, "{} bytes", message.len());
            check_cut(&parsed.text, &whole);
        }
        let module = parsed.data.iter().find(|(name, _)| name == "module");
        match module {
            None => prop_assert!(long.is_empty()),
            Some((_, shown)) if *shown == in_line(&long) => prop_assert!(shown.len() <= 256),
            Some((_, shown)) => check_cut(shown, &in_line(&long)),
        }
    }
}

/// What is shown is the beginning of the whole, and how many characters are missing.
#[track_caller]
fn check_cut(shown: &str, whole: &str) {
    let (kept, mark) = shown.rsplit_once("... [truncated ").unwrap();
    let n_cut: usize = mark.strip_suffix(" chars]").unwrap().parse().unwrap();
    assert!(whole.starts_with(kept));
    assert_eq!(kept.chars().count() + n_cut, whole.chars().count());
}

#[log_call]
fn square(n: u64) -> u64 {
    n * n
}

#[test]
#[ignore = "runs as the child of another test"]
fn logs_where_nobody_listens() {
    let folder = std::env::var("LOGKIT_TEST_FOLDER").unwrap();
    let sink = spec::open(&format!("syslog:{folder}/log"), &Options::default()).unwrap();
    let logger = Logger::builder().sink(sink).build();
    logkit::set_default_logger(logger.clone());
    let start = Instant::now();
    for n in 0..1_000 {
        assert_eq!(square(n), n * n);
    }
    // Neither a flush nor the end waits for it.
    assert!(!logger.flush(LONG));
    logger.close();
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_daemon_that_is_absent_is_told_once_and_holds_up_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "net::syslog::logs_where_nobody_listens",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env("LOGKIT_TEST_FOLDER", folder.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let notices: Vec<&str> = stderr
        .lines()
        .filter(|line| line.starts_with("logkit: "))
        .collect();
    let path = folder.path().join("log");
    assert_eq!(
        notices,
        [format!(
            "logkit: syslog: {}: No such file or directory (os error 2)",
            path.display()
        )]
    );
}

#[test]
fn a_daemon_that_reads_nothing_holds_up_nothing_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let daemon = listen(&path);
    let sink = SyslogSink::new(&path).unwrap();
    let counts = sink.counts();
    let logger = Logger::builder().sink(sink).build();
    let start = Instant::now();
    for n in 0..2_000 {
        logger.emit(named(&format!("f{n}")));
    }
    let emitting = start.elapsed();
    assert!(emitting < Duration::from_secs(3), "{emitting:?}");
    eventually("written", || logger.stats().written == 2_000);
    // The queue of the socket is full, which is an error after a while.
    eventually("told", || logger.stats().sink_errors > 0);
    let held = counts.get();
    assert!(held.delivered > 0 && held.waiting > 0, "{held:?}");
    assert_eq!(held.delivered as usize + held.waiting, 2_000);
    // Then it reads: what waited comes, each once and in order.
    let found: Vec<usize> = (0..2_000).map(|_| number(&receive(&daemon))).collect();
    assert_eq!(found, (0..2_000).collect::<Vec<_>>());
    assert!(logger.close());
    assert_eq!((counts.get().delivered, counts.get().dropped), (2_000, 0));
}

#[test]
fn a_daemon_that_reads_nothing_delays_the_end_by_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let _daemon = listen(&path);
    let sink = SyslogSink::new(&path).unwrap();
    let counts = sink.counts();
    let logger = Logger::builder().sink(sink).build();
    for n in 0..2_000 {
        logger.emit(named(&format!("f{n}")));
    }
    let start = Instant::now();
    logger.close();
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    let end = counts.get();
    assert!(end.delivered > 0 && end.dropped > 0, "{end:?}");
    assert_eq!(end.delivered + end.dropped, 2_000);
}

#[test]
fn a_daemon_that_is_started_anew_gets_what_was_logged_meanwhile() {
    // A daemon may leave its socket behind, or not.
    for is_left in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let daemon = listen(&path);
        let sink = SyslogSink::new(&path).unwrap();
        let counts = sink.counts();
        let logger = Logger::builder().sink(sink).build();
        logger.emit(named("f0"));
        assert_eq!(number(&receive(&daemon)), 0);
        drop(daemon);
        if !is_left {
            fs::remove_file(&path).unwrap();
        }
        logger.emit(named("f1"));
        logger.emit(named("f2"));
        eventually("told", || logger.stats().sink_errors > 0);
        if is_left {
            fs::remove_file(&path).unwrap();
        }
        let daemon = listen(&path);
        logger.emit(named("f3"));
        for n in 1..=3 {
            assert_eq!(number(&receive(&daemon)), n);
        }
        logger.close();
        assert_eq!((counts.get().delivered, counts.get().dropped), (4, 0));
        daemon.set_nonblocking(true).unwrap();
        assert!(
            daemon.recv(&mut [0; 1]).is_err(),
            "a message was sent twice"
        );
    }
}

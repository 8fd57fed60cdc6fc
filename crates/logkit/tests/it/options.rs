//! Options of loggers and sinks that are asked for rarely.

use std::{fs, process::Command, time::Duration};

use logkit::{
    CallByHand, DbSink, Durability, DynamicRouter, Entry, Level, Logger, RingBufferSink, Sink as _,
    Tags, Which, log_call,
    query::Reader,
    spec::{Options, open},
};
use serde_json::{Value, json};

use crate::sinks::Memory;

const LONG: Duration = Duration::from_secs(20);

fn named(level: Level, name: &str) -> Entry {
    Entry {
        level,
        function_name: name.to_owned().into(),
        ..Entry::default()
    }
}

fn names(memory: &Memory) -> Vec<String> {
    memory
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|entry| entry.function_name.to_string())
        .collect()
}

#[test]
fn json_may_be_typed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.jsonl");
    let write = |form: &str| -> Value {
        let spec = format!("json:{}?form={form}", path.display());
        let mut sink = open(&spec, &Options::default()).unwrap();
        sink.write_batch(&[Entry {
            args: "(3, 'x', [None, True])".into(),
            kwargs: "{'deep': {'k': 1.5}}".into(),
            return_value: "Point { x: 1 }".into(),
            duration_ms: Some(0.5),
            ..Entry::default()
        }])
        .unwrap();
        sink.close().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let typed = write("typed");
    assert_eq!(typed["args"], json!([3, "x", [null, true]]));
    assert_eq!(typed["kwargs"], json!({"deep": {"k": 1.5}}));
    assert_eq!(typed["return_value"], "Point { x: 1 }");
    assert_eq!(typed["duration_ms"], 0.5);
    assert_eq!(write("lines")["args"], "(3, 'x', [None, True])");
    assert_eq!(write("pretty")["args"], "(3, 'x', [None, True])");
    assert_eq!(write("compact")["a"], "(3, 'x', [None, True])");
    for (spec, part) in [
        (
            "json:x.jsonl?form=xml",
            "'xml' is no value of the option 'form'",
        ),
        (
            "csv:x.csv?form=typed",
            "'typed' is no value of the option 'form'",
        ),
    ] {
        let told = open(spec, &Options::default()).err().unwrap().to_string();
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn a_version_may_come_from_git() {
    let head = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .output()
        .unwrap();
    let head = String::from_utf8(head.stdout).unwrap();
    let version = |tags: Tags| {
        let mut entry = Entry::default();
        tags.fill(&mut entry);
        entry.version.into_owned()
    };
    let found = version(Tags::new("", "", "").git());
    if head.trim().is_empty() {
        assert_eq!(found, "", "no repository");
    } else {
        assert!(found.len() >= 12 && head.starts_with(&found), "{found}");
    }
    assert_eq!(version(Tags::new("", "", "1.0").git()), "1.0");
}

#[test]
fn a_level_and_a_sink_for_a_while() {
    let (always, meanwhile) = (Memory::default(), Memory::default());
    let logger = Logger::builder()
        .level(Level::Warning)
        .sink(always.clone())
        .build();
    logger.emit(named(Level::Info, "a"));
    {
        let _level = logger.temp_level(&Level::Debug);
        let _sink = logger.temp_sink(Box::new(meanwhile.clone()));
        logger.emit(named(Level::Info, "b"));
        let _stricter = logger.temp_level(&Level::Error);
        logger.emit(named(Level::Warning, "c"));
    }
    logger.emit(named(Level::Info, "d"));
    logger.emit(named(Level::Error, "e"));
    assert!(logger.flush(LONG));
    assert_eq!(names(&always), ["b", "e"]);
    assert_eq!(names(&meanwhile), ["b"]);
}

#[test]
fn rows_are_still_known_after_a_sink_left() {
    let folder = tempfile::tempdir().unwrap();
    let db = |name: &str| {
        let path = folder.path().join(name);
        DbSink::open(path, "logs", Durability::Buffered).unwrap()
    };
    let logger = Logger::builder().sink(db("a.db")).build();
    {
        let _sink = logger.temp_sink(Box::new(db("b.db")));
        logger.emit(Entry::default());
    }
    let ack = logger.emit_acked(Entry::default()).wait(LONG).unwrap();
    logger.update(
        ack.first_id.unwrap(),
        logkit::Update {
            llm_analysis: Some("because".into()),
            ..logkit::Update::default()
        },
    );
    assert!(logger.flush(LONG));
    let rows = |name: &str| {
        let reader = Reader::open(folder.path().join(name), "logs").unwrap();
        reader.after(0, 10).unwrap()
    };
    let kept = rows("a.db");
    assert_eq!((kept.len(), rows("b.db").len()), (2, 1));
    assert_eq!(kept[1].entry.llm_analysis, "because");
}

fn memory() -> &'static (Memory, Logger) {
    static MADE: std::sync::OnceLock<(Memory, Logger)> = std::sync::OnceLock::new();
    MADE.get_or_init(|| {
        let memory = Memory::default();
        let logger = Logger::builder().sink(memory.clone()).build();
        (memory, logger)
    })
}

#[log_call(logger = memory().1, slow_ms = 30)]
fn waits(ms: u64) -> Result<u64, String> {
    std::thread::sleep(Duration::from_millis(ms));
    if ms == 1 { Err("no".into()) } else { Ok(ms) }
}

#[log_call(logger = memory().1, slow_ms = 30.0)]
async fn waits_too(ms: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(ms));
    ms
}

#[test]
fn quick_calls_that_go_well_may_be_left_out() {
    for ms in [0, 1, 40] {
        let _ = waits(ms);
        let mut future = std::pin::pin!(waits_too(ms));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_ready());
    }
    assert!(memory().1.flush(LONG));
    let kept: Vec<(String, String)> = memory()
        .0
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|entry| (entry.function_name.to_string(), entry.args.to_string()))
        .collect();
    let expected = [
        ("waits", "(1,)"),
        ("waits", "(40,)"),
        ("waits_too", "(40,)"),
    ];
    assert_eq!(
        kept,
        expected.map(|(name, args)| (name.to_owned(), args.to_owned()))
    );
}

#[log_call(logger = memory_of_hand().1)]
fn inner() {}

fn memory_of_hand() -> &'static (Memory, Logger) {
    static MADE: std::sync::OnceLock<(Memory, Logger)> = std::sync::OnceLock::new();
    MADE.get_or_init(|| {
        let memory = Memory::default();
        let logger = Logger::builder()
            .level(Level::Info)
            .sink(memory.clone())
            .build();
        (memory, logger)
    })
}

#[test]
fn calls_may_be_described_by_hand() {
    let (memory, logger) = memory_of_hand();
    let _all = logger.temp_level(&Level::Debug);
    let mut call = CallByHand::begin(logger, Level::Info).unwrap();
    call.entry().function_name = "outer".into();
    call.entry().args = "('token=hunter2',)".into();
    {
        let _inside = call.enter();
        inner();
        // What renders values is not logged, whatever it calls.
        assert_eq!(
            logkit::rendering(|| {
                inner();
                CallByHand::begin(logger, Level::Error).is_none()
            }),
            Some(true)
        );
        assert_eq!(
            logkit::rendering(|| -> u8 { panic!("in a __repr__") }),
            None
        );
    }
    inner();
    call.failed("ValueError", "no", "here");
    call.finish(logger);
    assert!(logger.flush(LONG));
    let kept = memory.0.lock().unwrap();
    let outer = kept.iter().find(|entry| entry.function_name == "outer");
    let outer = outer.unwrap();
    let parents: Vec<_> = kept
        .iter()
        .filter(|entry| entry.function_name == "inner")
        .map(|entry| entry.parent_id)
        .collect();
    assert_eq!(parents, [outer.span_id, None]);
    assert_eq!((&outer.level, &*outer.exception), (&Level::Error, "no"));
    assert_eq!(outer.args, "('token=***REDACTED***',)");
    assert!(outer.duration_ms.is_some() && outer.span_id.is_some());
    drop(kept);
    logger.disable();
    assert!(CallByHand::begin(logger, Level::Info).is_none());
}

/// What a sink that cannot change its rows gets of entries that wait for an analysis.
#[test]
fn routers_and_rings_take_held_entries_when_they_are_complete() {
    let entries = [
        named(Level::Info, "context"),
        named(Level::Error, "held"),
        named(Level::Info, "later"),
    ];
    let analysed = Entry {
        llm_analysis: "because".into(),
        ..entries[1].clone()
    };

    let memory = Memory::default();
    let mut ring = RingBufferSink::new(Box::new(memory.clone()), 10);
    ring.write_which(&entries, Which::Unless(&[false, true, false]))
        .unwrap();
    assert!(names(&memory).is_empty(), "nothing went wrong yet");
    ring.write_which(std::slice::from_ref(&analysed), Which::Held)
        .unwrap();
    assert_eq!(names(&memory), ["context", "later", "held"]);
    assert_eq!(memory.0.lock().unwrap()[2].llm_analysis, "because");

    let (errors, rest) = (Memory::default(), Memory::default());
    let mut router = DynamicRouter::new();
    let to_errors = router.add_sink(Box::new(errors.clone()));
    let to_rest = router.add_sink(Box::new(rest.clone()));
    let mut router = router
        .rule(|entry| entry.level.is_error(), to_errors)
        .otherwise(to_rest);
    router
        .write_which(&entries, Which::Unless(&[false, true, false]))
        .unwrap();
    assert_eq!(names(&rest), ["context", "later"]);
    assert!(names(&errors).is_empty());
    router.write_which(&[analysed], Which::Held).unwrap();
    assert_eq!(names(&errors), ["held"]);
    assert_eq!(errors.0.lock().unwrap()[0].llm_analysis, "because");
}

#[cfg(feature = "opentelemetry")]
#[test]
fn the_active_span_of_opentelemetry_names_the_trace() {
    use opentelemetry::{
        Context,
        trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState},
    };

    static KEPT: std::sync::OnceLock<(Memory, Logger)> = std::sync::OnceLock::new();
    fn logger() -> &'static Logger {
        let (_, logger) = KEPT.get_or_init(|| {
            let memory = Memory::default();
            let logger = Logger::builder()
                .sink(memory.clone())
                .tags(Tags::new("", "generated", ""))
                .build();
            (memory, logger)
        });
        logger
    }
    #[log_call(logger = logger())]
    fn outer() {
        inner();
    }
    #[log_call(logger = logger())]
    fn inner() {}

    outer();
    let context = SpanContext::new(
        TraceId::from(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128),
        SpanId::from(0x00f0_67aa_0ba9_02b7_u64),
        TraceFlags::SAMPLED,
        true,
        TraceState::default(),
    );
    let guard = Context::current()
        .with_remote_span_context(context)
        .attach();
    outer();
    {
        let _scope = logkit::Scope::default().trace_id("own").enter();
        outer();
    }
    drop(guard);
    assert!(logger().flush(LONG));
    let kept = KEPT.get().unwrap().0.0.lock().unwrap();
    let traces: Vec<&str> = kept.iter().map(|entry| &*entry.trace_id).collect();
    let of_span = "4bf92f3577b34da6a3ce929d0e0e4736";
    assert_eq!(
        traces,
        ["generated", "generated", of_span, of_span, "own", "own"]
    );
    // The innermost call is written first.
    let parent = kept[3].parent_id.unwrap().to_string();
    assert_eq!(parent, "00f067aa0ba902b7");
    assert_eq!(kept[2].parent_id, kept[3].span_id);
}

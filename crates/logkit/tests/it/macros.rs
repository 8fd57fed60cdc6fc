//! The attributes: what they log, and that they change nothing.

use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use logkit::{Entry, Level, Logger, Scope, auto_log, catch, log_call, logged};

use crate::sinks::Memory;

thread_local! {
    static LOGGER: (Logger, Memory) = {
        let memory = Memory::default();
        (Logger::builder().sink(memory.clone()).build(), memory)
    };
}

/// Each test has a thread, and so a logger.
pub(crate) fn logger() -> Logger {
    LOGGER.with(|(logger, _)| logger.clone())
}

pub(crate) fn entries() -> Vec<Entry> {
    LOGGER.with(|(logger, memory)| {
        assert!(logger.flush(Duration::from_secs(20)));
        std::mem::take(&mut *memory.0.lock().unwrap())
    })
}

fn only() -> Entry {
    let mut entries = entries();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

/// Pending once.
#[derive(Default)]
struct Later(bool);

impl Future for Later {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut self.0, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

#[derive(Debug)]
struct Failure(u8);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failure number {}", self.0)
    }
}

impl std::error::Error for Failure {}

struct Plain;

#[log_call(level = "info", logger = logger())]
fn add(a: i32, text: &str) -> usize {
    a as usize + text.len()
}

#[test]
fn a_call_becomes_an_entry() {
    assert_eq!(add(3, "żó\n"), 8);
    let entry = only();
    assert_eq!(entry.level, Level::Info);
    assert_eq!(entry.function_name, "add");
    assert_eq!(entry.module, module_path!());
    assert_eq!(entry.args, "(3, \"żó\\n\")");
    assert_eq!(entry.arg_types, "i32, &str");
    assert_eq!((&*entry.kwargs, &*entry.kwarg_types), ("{}", "{}"));
    assert_eq!((&*entry.return_value, &*entry.return_type), ("8", "usize"));
    assert!(entry.duration_ms.unwrap() < 1000.0);
    assert!(entry.exception_type.is_empty());
    assert!(entry.span_id.is_some() && entry.parent_id.is_none());
}

#[log_call(logger = logger())]
fn reads(text: &str) -> Result<u32, Box<dyn std::error::Error>> {
    let number: u32 = text.parse()?;
    if number > 10 {
        return Err(Failure(number as u8).into());
    }
    Ok(number)
}

#[log_call(logger = logger(), err = Debug)]
fn fails_plainly() -> Result<(), Failure> {
    Err(Failure(1))
}

#[log_call(logger = logger())]
fn fails_silently() -> Result<(), Plain> {
    Err(Plain)
}

#[test]
fn errors_are_logged_and_given_back() {
    assert_eq!(reads("7").unwrap(), 7);
    let entry = only();
    assert_eq!(entry.return_value, "Ok(7)");
    assert_eq!(entry.return_type, "Result<u32, Box<dyn std::error::Error>>");
    assert_eq!(reads("70").unwrap_err().to_string(), "failure number 70");
    let entry = only();
    assert_eq!(entry.level, Level::Error);
    assert_eq!(entry.exception, "failure number 70");
    assert_eq!(entry.exception_type, "Box<dyn Error>");
    assert_eq!((&*entry.return_value, &*entry.return_type), ("None", ""));
    assert!(reads("x").is_err());
    assert_eq!(only().exception, "invalid digit found in string");
    assert!(fails_plainly().is_err());
    assert_eq!(only().exception, "Failure(1)");
    assert!(fails_silently().is_err());
    assert_eq!(only().exception, "<Plain>");
}

#[log_call(logger = logger())]
fn breaks(number: u32) -> u32 {
    assert!(number < 5, "too large: {number}");
    number
}

#[test]
fn panics_are_logged_and_go_on() {
    let panic = std::panic::catch_unwind(|| breaks(9)).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), "too large: 9");
    let entry = only();
    assert_eq!(entry.level, Level::Error);
    assert_eq!(
        (&*entry.exception, &*entry.exception_type),
        ("too large: 9", "panic")
    );
    assert!(
        entry.traceback.contains("macros.rs:"),
        "{}",
        entry.traceback
    );
    assert_eq!(entry.args, "(9)".replace(')', ",)"));
}

#[catch(default = 7, logger = logger())]
fn caught(number: u32) -> u32 {
    assert!(number < 5, "too large");
    number
}

#[catch(logger = logger())]
fn caught_result(text: &str) -> Result<u32, std::num::ParseIntError> {
    text.parse()
}

#[catch(default = 3, logger = logger())]
async fn caught_later(text: &str) -> Result<u32, std::num::ParseIntError> {
    Later::default().await;
    text.parse()
}

#[test]
fn caught_failures_become_the_default() {
    assert_eq!((caught(1), caught(9)), (1, 7));
    assert_eq!((caught_result("4"), caught_result("x")), (Ok(4), Ok(0)));
    assert_eq!(block_on(caught_later("x")), Ok(3));
    let levels: Vec<Level> = entries().into_iter().map(|entry| entry.level).collect();
    let (fine, bad) = (Level::Debug, Level::Error);
    assert_eq!(levels, [fine.clone(), bad.clone(), fine, bad.clone(), bad]);
}

#[log_call(logger = logger(), skip(hidden), redact(pin), fields(size = list.len(), kind = "x"))]
fn many(
    hidden: Plain,
    password: &str,
    pin: u32,
    list: &[u8],
    (a, mut b): (u8, u8),
    _: Plain,
) -> u8 {
    let _ = (hidden, password, pin, list);
    b += a;
    b
}

#[log_call(logger = logger(), skip_all, ret = false, name = "shown", max_repr_length = 4)]
fn quiet(secret: &str) -> &str {
    secret
}

#[log_call(logger = logger(), max_repr_length = 6)]
fn long(text: String) -> String {
    text
}

#[test]
fn what_is_rendered_can_be_chosen() {
    assert_eq!(many(Plain, "hunter2", 1234, &[1, 2], (3, 4), Plain), 7);
    let entry = only();
    assert_eq!(
        entry.args,
        "(***REDACTED***, ***REDACTED***, [1, 2], (3, 4), <Plain>)"
    );
    assert_eq!(entry.arg_types, "&str, u32, &[u8], (u8, u8), Plain");
    assert_eq!(
        serde_json::to_string(&entry.extra).unwrap(),
        r#"{"size":2,"kind":"x"}"#
    );
    quiet("x");
    let entry = only();
    assert_eq!(
        (
            &*entry.function_name,
            &*entry.args,
            &*entry.return_value,
            &*entry.return_type
        ),
        ("shown", "()", "None", "&str")
    );
    long("żółćżółć".into());
    let entry = only();
    assert_eq!(entry.args, "(\"żółć... [truncated 7 chars]");
    assert_eq!(entry.return_value, "\"żółćż... [truncated 4 chars]");
}

pub(crate) struct Counter<T> {
    count: u32,
    last: Option<T>,
}

#[expect(
    unreachable_pub,
    clippy::unused_self,
    reason = "what is logged depends on how it is declared"
)]
#[logged(logger = logger())]
impl<T: Clone> Counter<T> {
    pub fn new() -> Self {
        Counter {
            count: 0,
            last: None,
        }
    }

    pub fn push(&mut self, value: T) -> &mut T {
        self.count += 1;
        self.last.insert(value)
    }

    pub fn into_last(self) -> Option<T> {
        self.last
    }

    pub fn pinned(self: Pin<&mut Self>) -> u32 {
        self.count
    }

    pub async fn peek(&self) -> Option<&T> {
        Later::default().await;
        self.last.as_ref()
    }

    pub fn numbers<const N: usize>(&self, array: [u8; N]) -> impl Iterator<Item = u8> + use<T, N> {
        array.into_iter()
    }

    pub const fn constant(&self) -> u32 {
        self.count
    }

    #[skip]
    pub fn skipped(&self) {}

    pub fn _hidden(&self) {
        self.private();
    }

    fn private(&self) {}
}

trait Speak {
    fn speak(&self) -> String;
}

#[logged(logger = logger(), level = "warning")]
impl<T> Speak for Counter<T> {
    fn speak(&self) -> String {
        self.count.to_string()
    }
}

#[expect(clippy::used_underscore_items, reason = "such methods are not logged")]
#[test]
fn methods_of_all_kinds() {
    let mut counter = Counter::<Plain2>::new();
    let _: &mut Plain2 = counter.push(Plain2);
    assert_eq!(Pin::new(&mut counter).pinned(), 1);
    assert!(block_on(counter.peek()).is_some());
    assert_eq!(counter.numbers([1, 2]).sum::<u8>(), 3);
    assert_eq!(counter.constant(), 1);
    counter.skipped();
    counter._hidden();
    assert_eq!(counter.speak(), "1");
    assert!(counter.into_last().is_some());
    let names: Vec<String> = entries()
        .iter()
        .map(|entry| format!("{} {}", entry.function_name, entry.args))
        .collect();
    assert_eq!(
        names,
        [
            "Counter::new ()",
            "Counter::push (<Plain2>,)",
            "Counter::pinned ()",
            "Counter::peek ()",
            "Counter::numbers ([1, 2],)",
            "Counter::speak ()",
            "Counter::into_last ()",
        ]
    );
}

#[derive(Clone)]
struct Plain2;

#[expect(unreachable_pub, reason = "public functions are what is logged")]
#[auto_log(logger = crate::macros::logger(), catch, default = 5, recursive)]
mod inner {
    pub(crate) fn not_public() {}

    pub fn divides(a: u8, b: u8) -> u8 {
        a / b
    }

    #[logkit::skip]
    pub fn skipped() {}

    pub mod deeper {
        pub fn one() -> u8 {
            1
        }
    }
}

#[test]
fn modules() {
    inner::not_public();
    inner::skipped();
    assert_eq!(inner::divides(1, 0), 5);
    assert_eq!(inner::deeper::one(), 1);
    let names: Vec<String> = entries()
        .iter()
        .map(|entry| format!("{} {}", entry.module, entry.function_name))
        .collect();
    let here = module_path!();
    assert_eq!(
        names,
        [
            format!("{here}::inner divides"),
            format!("{here}::inner::deeper one")
        ]
    );
}

#[log_call(logger = logger())]
async fn outer(n: u32) -> u32 {
    Later::default().await;
    inner_of(n).await + 1
}

#[log_call(logger = logger())]
async fn inner_of(n: u32) -> u32 {
    Later::default().await;
    n
}

#[test]
fn calls_know_the_call_around_them() {
    let scope = Scope::default().trace_id("t").field("user", 3);
    assert_eq!(block_on(scope.around(outer(1))), 2);
    let entries = entries();
    let [inner, outer] = &entries[..] else {
        panic!("{entries:?}")
    };
    assert_eq!(inner.function_name, "inner_of");
    assert!(inner.span_id.is_some() && inner.parent_id == outer.span_id);
    assert_eq!(outer.parent_id, None);
    assert_eq!((&*inner.trace_id, &inner.extra["user"]), ("t", &3.into()));
    drop(outer_is_send());
}

fn outer_is_send() -> impl Future<Output = u32> + Send {
    outer(1)
}

#[test]
fn a_future_that_is_dropped_was_cancelled() {
    let mut future = Box::pin(outer(1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
    drop(future);
    let entry = only();
    assert_eq!(
        (entry.level, &*entry.exception_type),
        (Level::Debug, "Cancelled")
    );
}

struct Loud;

impl fmt::Debug for Loud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", add(1, ""))
    }
}

struct Broken;

impl fmt::Debug for Broken {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no form")
    }
}

#[log_call(logger = logger())]
fn takes(_loud: Loud, _broken: Broken, _n: u8) {}

#[test]
fn rendering_is_not_logged_and_may_fail() {
    takes(Loud, Broken, 5);
    let entry = only();
    assert_eq!(entry.args, "(1, <repr failed: panic: no form>, 5)");
    assert_eq!((&*entry.return_value, &*entry.return_type), ("None", "()"));
}

#[log_call(logger = logger(), sample = 0.1)]
fn sampled(ok: bool) -> Result<(), Failure> {
    ok.then_some(()).ok_or(Failure(0))
}

#[test]
fn levels_and_samples_keep_errors() {
    logger().set_level(&Level::Warning);
    add(1, "");
    assert!(reads("x").is_err());
    let entry = only();
    assert_eq!((&*entry.args, entry.duration_ms), ("<not rendered>", None));
    logger().disable();
    assert!(reads("x").is_err());
    assert!(entries().is_empty());
    logger().set_level(&Level::Debug);
    for _ in 0..2_000 {
        sampled(true).unwrap();
    }
    let n_sampled = entries().len();
    assert!((100..350).contains(&n_sampled), "{n_sampled}");
    for _ in 0..100 {
        sampled(false).unwrap_err();
    }
    assert_eq!(entries().len(), 100);
}

#[expect(unsafe_code, reason = "such functions are logged too")]
#[log_call(logger = logger())]
unsafe fn raw(pointer: *const u8) -> u8 {
    // SAFETY: the caller promises that the pointer is valid.
    unsafe { *pointer }
}

#[log_call(logger = logger())]
extern "C" fn foreign(n: u8) -> u8 {
    n
}

#[log_call(logger = logger())]
fn longest<'a, T>(a: &'a T, b: &'a T) -> &'a str
where
    T: AsRef<str> + ?Sized,
{
    if a.as_ref().len() > b.as_ref().len() {
        return a.as_ref();
    }
    b.as_ref()
}

static SEVEN: u8 = 7;

#[expect(unsafe_code, reason = "such functions are logged too")]
#[test]
fn functions_of_all_kinds() {
    // SAFETY: the byte lives long enough.
    assert_eq!(unsafe { raw(&raw const SEVEN) }, 7);
    assert_eq!(foreign(3), 3);
    assert_eq!(longest("ab", "c"), "ab");
    assert_eq!(entries().len(), 3);
}

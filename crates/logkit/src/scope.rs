//! What belongs to the code that runs now: its span, its trace, and fields of its entries.

use std::{
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use serde_json::{Map, Value};

use crate::{Entry, tags::random_u64, writer::on_writer_thread};

thread_local! {
    /// The innermost logged call; 0 = none.
    static SPAN: Cell<u64> = const { Cell::new(0) };
    /// State of the generator of ids; 0 = not seeded.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    /// Somebody asked for silence.
    static SILENT: Cell<bool> = const { Cell::new(false) };
    /// A value is being rendered: what that calls is not logged.
    static RENDERING: Cell<bool> = const { Cell::new(false) };
    /// A trace id or fields are set: looking at them costs more than looking at this.
    static HAS_SCOPE: Cell<bool> = const { Cell::new(false) };
    static SCOPE: RefCell<Scope> = const { RefCell::new(Scope::EMPTY) };
}

/// A trace id and fields that all entries get which are made within.
///
/// ```
/// use logkit::{Scope, log_context};
///
/// let request = Scope::default().trace_id("4bf92f3577b34da6");
/// let _request = request.clone().enter();
/// {
///     let _user = log_context("user", "ann"); // and the trace id of before
///     assert_eq!(Scope::current(), request.clone().field("user", "ann"));
/// }
/// assert_eq!(Scope::current(), request);
/// ```
///
/// A future that moves between threads takes its scope along with [`Scope::around`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    trace_id: String,
    fields: Vec<(String, Value)>,
}

impl Scope {
    const EMPTY: Scope = Scope {
        trace_id: String::new(),
        fields: Vec::new(),
    };

    /// What is set now.
    pub fn current() -> Scope {
        SCOPE.with_borrow(Scope::clone)
    }

    /// With that trace id.
    pub fn trace_id(mut self, id: impl Into<String>) -> Scope {
        self.trace_id = id.into();
        self
    }

    /// With that field; it goes to `extra`.
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Scope {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Holds on this thread as long as the guard lives.
    pub fn enter(self) -> ScopeGuard {
        let had = HAS_SCOPE.replace(self != Scope::EMPTY);
        ScopeGuard {
            before: SCOPE.replace(self),
            had,
        }
    }

    /// Holds while that future runs, on whatever thread.
    pub fn around<F: Future>(self, future: F) -> InScope<F> {
        InScope {
            scope: self,
            future: Box::pin(future),
        }
    }
}

/// Adds a field to all entries made on this thread as long as the guard lives.
pub fn log_context(name: impl Into<String>, value: impl Into<Value>) -> ScopeGuard {
    Scope::current().field(name, value).enter()
}

/// Nothing is logged on this thread as long as the guard lives.
pub fn silence() -> SilenceGuard {
    SilenceGuard {
        before: SILENT.replace(true),
    }
}

/// The scope before comes back when this is dropped.
#[derive(Debug)]
pub struct ScopeGuard {
    before: Scope,
    had: bool,
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        SCOPE.replace(std::mem::take(&mut self.before));
        HAS_SCOPE.set(self.had);
    }
}

/// Nothing is logged on its thread until this is dropped; see [`silence`].
#[derive(Debug)]
pub struct SilenceGuard {
    before: bool,
}

impl Drop for SilenceGuard {
    fn drop(&mut self) {
        SILENT.set(self.before);
    }
}

/// A future with a scope of its own.
#[derive(Debug)]
pub struct InScope<F> {
    scope: Scope,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for InScope<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _scope = self.scope.clone().enter();
        self.future.as_mut().poll(context)
    }
}

/// Sets the span until it is dropped.
#[derive(Debug)]
pub(crate) struct SpanGuard {
    before: u64,
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        SPAN.set(self.before);
    }
}

pub(crate) fn enter_span(span: u64) -> SpanGuard {
    SpanGuard {
        before: SPAN.replace(span),
    }
}

pub(crate) fn restore_span(span: u64) {
    SPAN.set(span);
}

pub(crate) fn current_span() -> u64 {
    SPAN.get()
}

/// A new id, never 0.
pub(crate) fn new_span() -> u64 {
    random() | 1
}

/// The next number of this thread's generator. Algorithm: SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) fn random() -> u64 {
    let mut state = RANDOM.get();
    if state == 0 {
        state = random_u64();
    }
    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    RANDOM.set(state);
    let mut mixed = state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// True where nothing is logged.
pub(crate) fn is_silent() -> bool {
    SILENT.get() || RENDERING.get() || on_writer_thread()
}

/// Renders; functions called meanwhile are not logged.
pub(crate) fn silently(render: impl FnOnce()) {
    let before = RENDERING.replace(true);
    // A panic while rendering is caught here at the latest.
    let _ = catch_unwind(AssertUnwindSafe(render));
    RENDERING.set(before);
}

/// Adds what the scope says, and what OpenTelemetry says where the scope is silent.
pub(crate) fn fill(entry: &mut Entry) {
    if HAS_SCOPE.get() {
        SCOPE.with_borrow(|scope| {
            if entry.trace_id.is_empty() {
                entry.trace_id = scope.trace_id.clone().into();
            }
            if !scope.fields.is_empty() {
                let own = std::mem::take(&mut entry.extra);
                let mut extra: Map<String, Value> = scope.fields.iter().cloned().collect();
                extra.extend(own);
                entry.extra = extra;
            }
        });
    }
    #[cfg(feature = "opentelemetry")]
    fill_from_span(entry);
}

/// The span of OpenTelemetry that is active here says which trace this is, and is the parent of what
/// has no other.
#[cfg(feature = "opentelemetry")]
fn fill_from_span(entry: &mut Entry) {
    use opentelemetry::{Context, trace::TraceContextExt as _};

    if !entry.trace_id.is_empty() {
        return;
    }
    Context::map_current(|context| {
        let span = context.span();
        let span = span.span_context();
        if span.is_valid() {
            entry.trace_id = span.trace_id().to_string().into();
            let parent = u64::from_be_bytes(span.span_id().to_bytes());
            entry.parent_id = entry.parent_id.or(crate::SpanId::new(parent));
        }
    });
}

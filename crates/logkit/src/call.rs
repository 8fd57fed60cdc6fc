//! What the attribute macros expand to: one entry for each call of a function.

use std::{
    any::Any,
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::OnceLock,
    task::{Context, Poll},
    time::Instant,
};

use serde_json::Value;

use crate::{
    Entry, Level, Logger, REDACTED, SpanId, Text, Timestamp,
    capture::{Gate, milliseconds},
    fanout::panic_text,
    logger::default::{default_level, with_default_logger},
    panics,
    render::{Bounded, short_type},
    repr,
    scope::{self, silently},
};

/// What is known of a logged function before it runs; one static for each.
#[derive(Debug)]
pub struct Site {
    /// Path of the module that the function is in.
    pub module: &'static str,
    /// A name given by hand; empty = its own.
    pub name: &'static str,
    /// Names of the parameters that are rendered.
    pub params: &'static [&'static str],
    /// Names of parameters that are blanked whatever they are called.
    pub redacted: &'static [&'static str],
    /// Types of those parameters, joined by `, `.
    pub arg_types: &'static str,
    /// The declared type of the result.
    pub return_type: &'static str,
    /// Level of calls that go well.
    pub level: Level,
    /// Characters kept of each rendered field; 0 = all.
    pub max_repr_length: usize,
    /// A call is logged if a random number is not above this; errors always are.
    pub sample: u64,
    /// A call that goes well is logged if it takes that long, in milliseconds.
    pub slow_ms: f64,
    /// Whether the result is rendered.
    pub render_result: bool,
    /// Computed at the first call.
    pub resolved: OnceLock<Resolved>,
}

/// What the first call finds out.
#[derive(Debug)]
pub struct Resolved {
    name: &'static str,
    /// One bit for each parameter that is blanked.
    sensitive: u64,
}

/// A call that runs.
#[derive(Debug)]
pub struct Call {
    site: &'static Site,
    name: &'static str,
    logger: Option<Logger>,
    gate: Gate,
    /// `None` if only failures are logged: looking at the clock takes longer than the rest.
    started: Option<(Timestamp, Instant)>,
    args: Text,
    fields: Vec<(&'static str, String)>,
    span: u64,
    parent: u64,
    done: bool,
}

impl Site {
    #[cold]
    fn resolve(&self, type_name: &'static str) -> Resolved {
        let mut sensitive = 0;
        for (idx, param) in self.params.iter().enumerate().take(64) {
            if self.redacted.contains(param) || crate::is_sensitive_key(param) {
                sensitive |= 1 << idx;
            }
        }
        let name = if self.name.is_empty() {
            Box::leak(function_name(type_name, self.module).into_boxed_str())
        } else {
            self.name
        };
        Resolved { name, sensitive }
    }
}

impl Call {
    /// True if nothing of a call is logged whose site has the level `rank`, not even that it fails; `logger` is one named
    /// in the attribute.
    #[inline]
    pub fn is_off(rank: u8, logger: Option<&Logger>) -> bool {
        rank.max(Level::Error.number()) < lowest_level(logger)
    }

    /// Begins a call; `None` if nothing of it is logged, as it is part of logging another. `here` is the type name of an
    /// item within the function, and `render` writes the arguments.
    #[inline(never)]
    pub fn start(
        site: &'static Site,
        rank: u8,
        here: fn() -> &'static str,
        logger: Option<&Logger>,
        render: &dyn Fn(&mut Args<'_>),
    ) -> Option<Call> {
        if scope::is_silent() {
            return None;
        }
        let gate = Gate::of(rank, lowest_level(logger)).sampled(site.sample);
        let resolved = site.resolved.get_or_init(|| site.resolve(here()));
        let mut call = Call {
            site,
            name: resolved.name,
            logger: logger.cloned(),
            gate,
            started: None,
            args: Text::Borrowed("()"),
            fields: Vec::new(),
            span: 0,
            parent: scope::current_span(),
            done: false,
        };
        if gate == Gate::Full {
            let mut args = Args {
                out: Bounded::new(site.max_repr_length),
                n_seen: 0,
                sensitive: resolved.sensitive,
                site,
                logger,
                fields: &mut call.fields,
            };
            silently(|| {
                args.out.push_str("(");
                render(&mut args);
                args.out.push_str(if args.n_seen == 1 { ",)" } else { ")" });
            });
            if args.n_seen > 0 {
                call.args = args.out.finish().into();
            }
            call.span = scope::new_span();
            call.started = Some((Timestamp::now(), Instant::now()));
        }
        Some(call)
    }

    /// Runs the body.
    ///
    /// # Errors
    ///
    /// The payload of the panic, if the body panics.
    #[inline(never)]
    pub fn run<R>(&self, body: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
        if self.gate == Gate::Full {
            let _span = scope::enter_span(self.span);
            panics::watched(body)
        } else {
            panics::watched(body)
        }
    }

    /// Runs a body that takes the arguments.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    #[inline]
    pub fn run_with<A, R>(
        &self,
        args: A,
        body: impl FnOnce(A) -> R,
    ) -> Result<R, Box<dyn Any + Send>> {
        self.run(move || body(args))
    }

    /// Runs the body of an async function.
    ///
    /// # Errors
    ///
    /// The payload of the panic, if the body panics at one of its polls.
    pub async fn run_async<F: Future>(
        &self,
        body: Pin<&mut F>,
    ) -> Result<F::Output, Box<dyn Any + Send>> {
        Watched { body, of: self }.await
    }

    /// The call went well.
    #[inline(never)] // Out of the way of calls that are not logged.
    pub fn returned(mut self, render: impl FnOnce(&mut Bounded)) {
        self.done = true;
        if self.gate == Gate::Full && !self.is_quick() {
            let mut value = Text::Borrowed("None");
            if self.site.render_result && self.site.return_type != "()" {
                let mut out = Bounded::new(self.site.max_repr_length);
                silently(|| render(&mut out));
                value = out.finish().into();
            }
            let mut entry = self.entry(self.site.level.clone());
            entry.return_value = value;
            entry.return_type = self.site.return_type.into();
            self.emit(entry);
        }
    }

    /// The call returned an error.
    #[inline(never)]
    pub fn failed(mut self, kind: &'static str, render: impl FnOnce(&mut Bounded)) {
        self.done = true;
        let mut out = Bounded::new(MAX_EXCEPTION);
        silently(|| render(&mut out));
        let mut entry = self.entry(Level::Error);
        entry.exception = out.finish().into();
        entry.exception_type = short_type(kind).into();
        self.emit(entry);
    }

    /// The call panicked; `panic` is the payload that [`Call::run`] gave.
    #[inline(never)]
    pub fn panicked(mut self, panic: &(dyn Any + Send)) {
        self.done = true;
        let mut entry = self.entry(Level::Error);
        entry.exception = repr::truncate(panic_text(panic), MAX_EXCEPTION).into();
        entry.exception_type = "panic".into();
        entry.traceback = panics::take_traceback().into();
        self.emit(entry);
    }

    /// Not worth an entry: only slow calls are wanted.
    fn is_quick(&self) -> bool {
        self.site.slow_ms > 0.0
            && self.started.is_some_and(|(_, started)| {
                started.elapsed().as_secs_f64() * 1e3 < self.site.slow_ms
            })
    }

    fn entry(&mut self, level: Level) -> Entry {
        let (timestamp, duration_ms) = match self.started {
            Some((timestamp, started)) => (timestamp, Some(milliseconds(started.elapsed()))),
            None => (Timestamp::now(), None),
        };
        let mut entry = Entry {
            timestamp,
            level,
            function_name: self.name.into(),
            module: self.site.module.into(),
            args: std::mem::replace(&mut self.args, Text::Borrowed("()")),
            arg_types: self.site.arg_types.into(),
            duration_ms,
            span_id: SpanId::new(self.span),
            parent_id: SpanId::new(self.parent),
            ..Entry::blank()
        };
        if self.gate == Gate::ErrorsOnly {
            // The arguments belong to the function by now.
            entry.args = Text::Borrowed("<not rendered>");
        }
        for (name, text) in self.fields.drain(..) {
            let value = serde_json::from_str::<Value>(&text)
                .ok()
                .filter(|value| value.is_number() || value.is_boolean())
                .unwrap_or(Value::String(text));
            entry.extra.insert(name.into(), value);
        }
        entry
    }

    fn emit(&mut self, entry: Entry) {
        match &self.logger {
            Some(logger) => send(logger, entry),
            None => with_default_logger(|logger| send(logger, entry)),
        }
    }
}

fn send(logger: &Logger, mut entry: Entry) {
    if let Some(redactor) = logger.redactor() {
        for text in [
            &mut entry.args,
            &mut entry.return_value,
            &mut entry.exception,
            &mut entry.traceback,
        ] {
            redactor.redact_text(text);
        }
    }
    scope::fill(&mut entry);
    logger.emit(entry);
}

impl Drop for Call {
    /// A future that nobody polls any more was cancelled: that is no error.
    fn drop(&mut self) {
        if !self.done && self.gate == Gate::Full {
            let mut entry = self.entry(self.site.level.clone());
            entry.exception_type = "Cancelled".into();
            entry.extra.insert("cancelled".into(), true.into());
            self.emit(entry);
        }
    }
}

/// Characters kept of an error's message.
const MAX_EXCEPTION: usize = 64 << 10;

#[inline]
fn lowest_level(logger: Option<&Logger>) -> u8 {
    match logger {
        Some(logger) => logger.level_number(),
        None => default_level(),
    }
}

struct Watched<'a, F> {
    body: Pin<&'a mut F>,
    of: &'a Call,
}

impl<F: Future> Future for Watched<'_, F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let body = this.body.as_mut();
        match this.of.run(|| body.poll(context)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

/// Writes the arguments of a call.
pub struct Args<'a> {
    out: Bounded,
    n_seen: usize,
    sensitive: u64,
    site: &'static Site,
    logger: Option<&'a Logger>,
    fields: &'a mut Vec<(&'static str, String)>,
}

impl Args<'_> {
    /// Writes the next argument, or the mark of a secret if the parameter's name is that of one.
    #[inline]
    pub fn arg(&mut self, render: impl FnOnce(&mut Bounded)) {
        if self.n_seen > 0 {
            self.out.push_str(", ");
        }
        let idx = self.n_seen;
        self.n_seen += 1;
        let switched_off = self
            .logger
            .is_some_and(|logger| logger.redactor().is_none());
        let is_secret = idx < 64 && self.sensitive & (1 << idx) != 0;
        let by_hand = || self.site.redacted.contains(&self.site.params[idx]);
        if is_secret && (!switched_off || by_hand()) {
            self.out.push_str(REDACTED);
        } else {
            guarded(&mut self.out, render);
        }
    }

    /// Writes a member of `extra`: the words `fields(name = value)` of an attribute.
    pub fn field(&mut self, name: &'static str, render: impl FnOnce(&mut Bounded)) {
        let mut out = Bounded::new(self.site.max_repr_length);
        guarded(&mut out, render);
        let mut text = out.finish();
        if crate::is_sensitive_key(name) {
            REDACTED.clone_into(&mut text);
        } else if let Some(plain) = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
            .filter(|text| !text.contains('\\'))
        {
            text = String::from(plain);
        }
        self.fields.push((name, text));
    }
}

/// Takes a closure for one that is called once, so that it may give away what it holds.
#[inline]
pub fn once<R, F: FnOnce() -> R>(body: F) -> F {
    body
}

/// Gives both back: the closure's parameter has the type of `args`, which the compiler knows before it reads the body.
#[inline]
pub fn body_of<A, R, F: FnOnce(A) -> R>(args: A, body: F) -> (A, F) {
    (args, body)
}

/// Calls it with a stack frame of its own, which a caller that does not come here does without.
#[inline(never)]
pub fn out_of_line<R>(rest: impl FnOnce() -> R) -> R {
    rest()
}

/// Name of the type of a value.
pub fn type_name_of<T: ?Sized>(_: &T) -> &'static str {
    std::any::type_name::<T>()
}

/// Renders one value; a panic becomes its text.
fn guarded(out: &mut Bounded, render: impl FnOnce(&mut Bounded)) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| render(out))) {
        let _ = write!(out, "<repr failed: panic: {}>", panic_text(&*panic));
    }
}

/// The qualified name in the type name of an item within the function: `Type::method`.
fn function_name(type_name: &str, module: &str) -> String {
    let path = type_name.strip_suffix("::here").unwrap_or(type_name);
    let path = path
        .rsplit_once("::__logkit_here")
        .map_or(path, |(path, _)| path);
    let path = path.replace("::{{closure}}", "");
    let path = path
        .strip_prefix(module)
        .and_then(|path| path.strip_prefix("::"))
        .unwrap_or(&path);
    // Generic arguments are no part of the name; `<a::Type as b::Trait>` and `<impl a::Type>` are
    // `Type`.
    if let Some(rest) = path.strip_prefix('<') {
        let mut depth = 1;
        let end = rest.char_indices().find_map(|(at, c)| {
            depth += match c {
                '<' => 1,
                '>' => -1,
                _ => 0,
            };
            (depth == 0).then_some(at)
        });
        if let Some(end) = end {
            let inner = &rest[..end];
            let inner = inner.strip_prefix("impl ").unwrap_or(inner);
            let depth_zero = without_generics(inner);
            let of_type = depth_zero.split(" as ").next().unwrap_or_default();
            let of_type = of_type.split(" for ").last().unwrap_or_default();
            let method = without_generics(&rest[end + 1..]);
            return format!("{}{method}", short_type(of_type));
        }
    }
    without_generics(path)
}

fn without_generics(path: &str) -> String {
    let mut depth = 0_usize;
    path.chars()
        .filter(|c| match c {
            '<' => {
                depth += 1;
                false
            }
            '>' => {
                depth = depth.saturating_sub(1);
                false
            }
            _ => depth == 0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions() {
        for (type_name, expected) in [
            ("app::work::run::__logkit_here", "run"),
            ("app::work::outer::inner::__logkit_here", "outer::inner"),
            ("app::work::Type::method::__logkit_here", "Type::method"),
            ("app::work::Type<T>::method::__logkit_here", "Type::method"),
            (
                "<app::work::Type<a::B> as x::Tr<u8>>::m::__logkit_here",
                "Type::m",
            ),
            (
                "app::work::<impl app::other::Type>::m::__logkit_here",
                "Type::m",
            ),
            ("app::work::run::{{closure}}::__logkit_here", "run"),
        ] {
            assert_eq!(function_name(type_name, "app::work"), expected);
        }
        assert_eq!(
            short_type("core::result::Result<alloc::string::String, &dyn a::B>"),
            "Result<String, &dyn B>"
        );
    }
}

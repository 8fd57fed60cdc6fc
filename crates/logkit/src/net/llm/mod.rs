//! A model explains errors.

mod client;
mod pool;
mod prompt;

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    Entry, Level, Redactor, Sink, SinkError, Text, Update, Which, net::fingerprint,
    wrappers::scan::marked,
};
use client::{Client, LlmError, Question};
use pool::Pool;

pub use client::LlmServers;

/// Hands entries on at once, and adds later what a model says about their errors.
///
/// An entry whose level is looked at and that has an exception is written without delay; when the
/// model has answered its row gets the analysis. Sinks that cannot change what they wrote receive
/// such an entry with its analysis, or without it after the time-out. Two threads ask, 256
/// questions may wait, and equal errors share one answer for ten minutes. Prompts hold no secrets;
/// an entry in which a prompt injection was found is not sent.
pub struct LlmSink {
    options: LlmOptions,
    sink: Box<dyn Sink>,
    pool: Pool,
    redactor: Arc<Redactor>,
    asked: HashMap<u128, Asked>,
    n_waiting: usize,
}

/// Called with an entry and what the model said about it, on the logger's thread.
pub type OnAnalysis = Box<dyn FnMut(&Entry, &str) + Send>;

/// How an [`LlmSink`] works.
pub struct LlmOptions {
    /// `llmsrv/NAME` or `ollama/NAME`, `anthropic/NAME`, `openai/NAME` or `NAME`.
    pub model: String,
    /// Addresses of the services, and the keys to them.
    pub servers: LlmServers,
    /// What the model is told first; `None` = to name cause and remedy briefly.
    pub system_prompt: Option<String>,
    /// Levels that are looked at: ERROR unless set.
    pub analyze_levels: Vec<Level>,
    /// Told of each analysis; its panics are ignored.
    pub on_analysis: Option<OnAnalysis>,
    /// Do not make the writer wait for the model: on unless unset.
    pub is_async: bool,
    /// Look for prompt injections in all entries: on unless unset.
    pub detect_injection: bool,
    /// Send entries with a prompt injection too, marked as data: off unless set.
    pub analyze_injected: bool,
    /// How long an answer may take: 30 s unless set.
    pub timeout: Duration,
    /// Tokens of an answer: 200 unless set.
    pub max_tokens: u32,
    /// Temperature: 0.3 unless set.
    pub temperature: f64,
}

impl LlmOptions {
    /// That model at those servers; everything else as the fields say "unless set".
    pub fn new(model: impl Into<String>, servers: LlmServers) -> LlmOptions {
        LlmOptions {
            model: model.into(),
            servers,
            system_prompt: None,
            analyze_levels: vec![Level::Error],
            on_analysis: None,
            is_async: true,
            detect_injection: true,
            analyze_injected: false,
            timeout: Duration::from_secs(30),
            max_tokens: 200,
            temperature: 0.3,
        }
    }
}

/// An error that the model was asked about.
enum Asked {
    Waits(Vec<Waiter>),
    Answered { analysis: Text, at: Instant },
}

/// An entry that gets the answer.
struct Waiter {
    /// Its row in sinks that can change it.
    id: Option<i64>,
    /// The other sinks do not have it yet.
    held: bool,
    entry: Entry,
    since: Instant,
}

/// How long an answer holds for equal errors.
const SHARED_FOR: Duration = Duration::from_mins(10);
/// Answers kept.
const MAX_ANSWERS: usize = 1000;
/// Entries that wait for an answer; more than that are written and left alone.
const MAX_WAITING: usize = 4096;
/// Answers waited for at the end; the logger itself waits for five seconds.
const DRAIN: Duration = Duration::from_secs(4);

/// Questions answered, failed and not asked, of all sinks of this process.
static REQUESTS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
const ANSWERED: usize = 0;
const FAILED: usize = 1;
const SKIPPED: usize = 2;

/// Questions of this process by their end.
pub(crate) fn requests() -> [(&'static str, u64); 3] {
    let count = |idx: usize| REQUESTS[idx].load(Relaxed);
    [
        ("failed", count(FAILED)),
        ("ok", count(ANSWERED)),
        ("skipped", count(SKIPPED)),
    ]
}

impl LlmSink {
    /// Asks that model about what goes to the sink. Nothing is sent before the first error; a model
    /// that cannot be reached shows in the analysis.
    pub fn new(options: LlmOptions, sink: Box<dyn Sink>) -> LlmSink {
        let client = Client::new(&options.model, &options.servers);
        LlmSink {
            options,
            sink,
            pool: Pool::new(client),
            redactor: Redactor::shared(),
            asked: HashMap::new(),
            n_waiting: 0,
        }
    }

    fn is_asked_about(&self, entry: &Entry) -> bool {
        let injected = entry.extra.contains_key(INJECTION);
        self.options.analyze_levels.contains(&entry.level)
            && (!entry.exception.is_empty() || !entry.exception_type.is_empty())
            && (!injected || self.options.analyze_injected)
    }

    /// What is known already about an equal error.
    fn known(&self, key: u128) -> Option<Text> {
        match self.asked.get(&key) {
            Some(Asked::Answered { analysis, at }) if at.elapsed() < SHARED_FOR => {
                Some(analysis.clone())
            }
            _ => None,
        }
    }

    /// Puts an entry with those who wait, and asks if it is the first; else says why not.
    fn wait_for(&mut self, key: u128, waiter: Waiter) -> Result<(), (Box<Waiter>, LlmError)> {
        if self.n_waiting >= MAX_WAITING {
            REQUESTS[SKIPPED].fetch_add(1, Relaxed);
            return Err((Box::new(waiter), LlmError::QueueFull(MAX_WAITING)));
        }
        if !matches!(self.asked.get(&key), Some(Asked::Waits(_))) {
            let injected = waiter.entry.extra.contains_key(INJECTION);
            let question = Question {
                system: self
                    .options
                    .system_prompt
                    .clone()
                    .unwrap_or_else(|| prompt::SYSTEM.to_owned()),
                user: prompt::about(&waiter.entry, &self.redactor, injected),
                max_tokens: self.options.max_tokens,
                temperature: self.options.temperature,
                timeout: self.options.timeout,
            };
            if let Err(error) = self.pool.ask(key, question) {
                REQUESTS[SKIPPED].fetch_add(1, Relaxed);
                return Err((Box::new(waiter), error));
            }
            self.asked.insert(key, Asked::Waits(Vec::new()));
        }
        self.n_waiting += 1;
        if let Some(Asked::Waits(waiters)) = self.asked.get_mut(&key) {
            waiters.push(waiter);
        }
        Ok(())
    }

    /// Gives an entry its analysis, wherever it is.
    fn settle(&mut self, mut waiter: Waiter, analysis: Text) -> Result<(), SinkError> {
        let update = Update {
            llm_analysis: Some(analysis.clone()),
            ..Update::default()
        };
        let updated = match waiter.id {
            Some(id) => self.sink.update(id, &update).map(|_| ()),
            None => Ok(()),
        };
        waiter.entry.llm_analysis = analysis;
        if let Some(told) = &mut self.options.on_analysis {
            let entry = &waiter.entry;
            let _ = catch_unwind(AssertUnwindSafe(|| told(entry, &entry.llm_analysis)));
        }
        if waiter.held {
            updated.and(self.sink.write_which(&[waiter.entry], Which::Held))
        } else {
            updated
        }
    }

    /// Settles what was answered.
    fn take_replies(&mut self) -> Result<(), SinkError> {
        let mut outcome = Ok(());
        for (key, reply) in self.pool.replies() {
            let waiters = match self.asked.remove(&key) {
                Some(Asked::Waits(waiters)) => waiters,
                Some(Asked::Answered { .. }) | None => Vec::new(),
            };
            self.n_waiting -= waiters.len();
            let analysis: Text = match reply {
                Ok(text) => {
                    REQUESTS[ANSWERED].fetch_add(1, Relaxed);
                    let analysis: Text = text.into();
                    self.remember(key, analysis.clone());
                    analysis
                }
                Err(text) => {
                    REQUESTS[FAILED].fetch_add(1, Relaxed);
                    text.into()
                }
            };
            for waiter in waiters {
                outcome = outcome.and(self.settle(waiter, analysis.clone()));
            }
        }
        outcome
    }

    fn remember(&mut self, key: u128, analysis: Text) {
        if self.asked.len() >= MAX_ANSWERS {
            self.asked.retain(|_, asked| match asked {
                Asked::Waits(_) => true,
                Asked::Answered { at, .. } => at.elapsed() < SHARED_FOR,
            });
        }
        if self.asked.len() >= MAX_ANSWERS
            && let Some((oldest, _)) = self
                .asked
                .iter()
                .filter_map(|(key, asked)| match asked {
                    Asked::Waits(_) => None,
                    Asked::Answered { at, .. } => Some((*key, *at)),
                })
                .min_by_key(|(_, at)| *at)
        {
            self.asked.remove(&oldest);
        }
        let at = Instant::now();
        self.asked.insert(key, Asked::Answered { analysis, at });
    }

    /// Writes what was held back for too long.
    fn release(&mut self) -> Result<(), SinkError> {
        let timeout = self.options.timeout;
        let mut late = Vec::new();
        for asked in self.asked.values_mut() {
            let Asked::Waits(waiters) = asked else {
                continue;
            };
            for waiter in waiters {
                if waiter.held && waiter.since.elapsed() >= timeout {
                    waiter.held = false;
                    late.push(waiter.entry.clone());
                }
            }
        }
        if late.is_empty() {
            Ok(())
        } else {
            self.sink.write_which(&late, Which::Held)
        }
    }
}

/// Where an entry says that it holds a prompt injection.
const INJECTION: &str = "prompt_injection";

impl Sink for LlmSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        let mut entries = Cow::Borrowed(entries);
        if self.options.detect_injection {
            let found = match marked(&entries) {
                Cow::Owned(marked) => Some(marked),
                Cow::Borrowed(_) => None,
            };
            entries = found.map_or(entries, Cow::Owned);
        }
        let mut keys = vec![None; entries.len()];
        for at in 0..entries.len() {
            if !self.is_asked_about(&entries[at]) {
                continue;
            }
            let key = key_of(&entries[at]);
            match self.known(key) {
                None => keys[at] = Some(key),
                Some(analysis) => {
                    let entry = &mut entries.to_mut()[at];
                    entry.llm_analysis = analysis;
                    if let Some(told) = &mut self.options.on_analysis {
                        let _ = catch_unwind(AssertUnwindSafe(|| told(entry, &entry.llm_analysis)));
                    }
                }
            }
        }
        if keys.iter().all(Option::is_none) {
            return self.sink.write_batch(&entries);
        }
        let holds: Vec<bool> = keys.iter().map(Option::is_some).collect();
        let mut outcome = self.sink.write_which(&entries, Which::Unless(&holds));
        let first_id = self.sink.first_id();
        for (at, key) in keys.iter().enumerate() {
            let Some(key) = *key else { continue };
            let waiter = Waiter {
                id: first_id.map(|first| first + at as i64),
                held: true,
                entry: entries[at].clone(),
                since: Instant::now(),
            };
            if let Err((waiter, error)) = self.wait_for(key, waiter) {
                outcome = outcome.and(self.settle(*waiter, error.to_string().into()));
            }
        }
        if !self.options.is_async {
            let deadline = Instant::now() + self.options.timeout;
            while self.n_waiting > 0 && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
                outcome = outcome.and(self.take_replies());
            }
        }
        outcome
    }

    fn poll(&mut self) -> Result<bool, SinkError> {
        let outcome = self.take_replies().and(self.release());
        let more = self.sink.poll()?;
        outcome.map(|()| more || self.n_waiting > 0)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.take_replies().and(self.sink.flush())
    }

    /// Waits for answers for four seconds; then every entry is written, with or without one.
    fn close(&mut self) -> Result<(), SinkError> {
        let deadline = Instant::now() + DRAIN;
        let mut outcome = self.take_replies();
        while self.n_waiting > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            outcome = outcome.and(self.take_replies());
        }
        let late = std::mem::take(&mut self.asked);
        self.n_waiting = 0;
        for asked in late.into_values() {
            let Asked::Waits(waiters) = asked else {
                continue;
            };
            REQUESTS[SKIPPED].fetch_add(1, Relaxed);
            for waiter in waiters {
                let text = LlmError::Closed.to_string().into();
                outcome = outcome.and(self.settle(waiter, text));
            }
        }
        outcome.and(self.sink.close())
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("llm")
    }

    fn wrapped(&self) -> Option<&dyn Sink> {
        Some(&*self.sink)
    }

    fn wrapped_mut(&mut self) -> Option<&mut dyn Sink> {
        Some(&mut *self.sink)
    }
}

impl fmt::Debug for LlmSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmSink")
            .field("model", &self.options.model)
            .field("n_waiting", &self.n_waiting)
            .finish_non_exhaustive()
    }
}

/// Equal errors: the same function, error, message and end of the traceback.
fn key_of(entry: &Entry) -> u128 {
    let end = entry.traceback.len().saturating_sub(400);
    let end = entry.traceback.ceil_char_boundary(end);
    fingerprint([
        &*entry.function_name,
        &*entry.exception_type,
        &*entry.exception,
        &entry.traceback[end..],
    ])
}

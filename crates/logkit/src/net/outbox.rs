//! What is to be sent: a bounded queue, and the one thread that empties it.
//!
//! Whoever puts something in never waits. When there is no room the oldest go, and that is counted
//! and told. A peer that is away is asked again later; at the end what is left gets a few seconds.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    SinkError,
    lock::{Condvar, Mutex, MutexGuard},
};

/// Brings items to a peer; lives on the outbox's thread.
pub(crate) trait Courier: Send + 'static {
    type Item: Send + 'static;

    /// Delivers the items, all of them, in about that time.
    fn deliver(&mut self, items: &[Self::Item], timeout: Duration) -> Result<(), Failure>;
}

/// Why items were not delivered.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The peer cannot be reached or is busy: worth asking again for as long as it takes.
    Away {
        why: String,
        after: Option<Duration>,
    },
    /// The peer failed over these items: worth a few more times.
    Later {
        why: String,
        after: Option<Duration>,
    },
    /// The peer will never take them.
    Never { why: String },
    /// The peer took all but some, and will never take those.
    #[cfg(any(feature = "otlp", feature = "remote", feature = "grpc"))]
    Refused { n_items: u64, why: String },
}

#[cfg(feature = "net")]
impl Failure {
    /// Judges an HTTP answer: `Ok` if the peer took the items.
    pub(crate) fn of(
        endpoint: &super::http::Endpoint,
        answer: Result<super::http::Answer, super::http::NoAnswer>,
    ) -> Result<super::http::Answer, Failure> {
        let answer = answer.map_err(|error| Failure::Away {
            why: error.to_string(),
            after: None,
        })?;
        if answer.is_success() {
            return Ok(answer);
        }
        let why = format!("{endpoint} answered {}", answer.status);
        let after = answer.retry_after;
        Err(match answer.status {
            408 | 429 | 502 | 503 | 504 => Failure::Away { why, after },
            500.. => Failure::Later { why, after },
            _ => Failure::Never { why },
        })
    }
}

/// Bounds of an outbox.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Items and bytes that may wait, what is on its way included.
    pub(crate) max_items: usize,
    pub(crate) max_bytes: usize,
    /// Items and bytes in a delivery; one item may be larger.
    pub(crate) batch_items: usize,
    pub(crate) batch_bytes: usize,
    /// How long the first item waits for others.
    pub(crate) linger: Duration,
    /// How long one delivery may take.
    pub(crate) timeout: Duration,
    /// Give up a delivery after these waits even if the peer is only away.
    pub(crate) impatient: bool,
    /// The first wait; it doubles three times.
    pub(crate) pace: Duration,
    /// At the end a peer that is away is asked once more; else until the time for the end is over.
    pub(crate) leaves_early: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_items: 20_000,
            max_bytes: 32 << 20,
            batch_items: 512,
            batch_bytes: 4 << 20,
            linger: Duration::from_millis(200),
            timeout: Duration::from_secs(10),
            impatient: false,
            pace: Duration::from_secs(1),
            leaves_early: false,
        }
    }
}

/// Counts of a network sink since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Items taken by the peer.
    pub delivered: u64,
    /// Items lost: no room, refused, or given up.
    pub dropped: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Items that wait or are on their way.
    pub waiting: usize,
}

/// Reads the counts of a sink that a logger owns.
#[derive(Clone)]
pub struct DeliveryCounts(Arc<dyn Fn() -> Delivery + Send + Sync>);

impl DeliveryCounts {
    /// Returns what was counted until now.
    pub fn get(&self) -> Delivery {
        (self.0)()
    }
}

impl std::fmt::Debug for DeliveryCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

/// How long what is left may take at the end; the logger itself waits for five seconds.
pub(crate) const DRAIN: Duration = Duration::from_millis(4500);
/// Waits after a failure, in multiples of [`Limits::pace`]; a peer that is away is asked at the
/// last one for ever.
const WAITS: [u32; 4] = [1, 2, 4, 8];

pub(crate) struct Outbox<C: Courier> {
    shared: Arc<Shared<C::Item>>,
    /// Until the first item there is no thread.
    courier: Option<C>,
}

struct Shared<I> {
    limits: Limits,
    state: Mutex<State<I>>,
    /// The thread waits here.
    work: Condvar,
    /// Who wants everything sent waits here.
    settled: Condvar,
}

struct State<I> {
    items: VecDeque<(I, usize)>,
    n_bytes: usize,
    /// Items on their way.
    n_away: usize,
    counts: Delivery,
    /// What went wrong since somebody was last told, and how many items that cost.
    complaint: Option<String>,
    n_lost: u64,
    /// Do not wait for company.
    hurry: bool,
    /// The peer did not answer last time.
    failing: bool,
    /// At the end: until when to try.
    deadline: Option<Instant>,
}

impl<C: Courier> Outbox<C> {
    pub(crate) fn new(courier: C, limits: Limits) -> Outbox<C> {
        Outbox {
            shared: Arc::new(Shared {
                limits,
                state: Mutex::new(State {
                    items: VecDeque::new(),
                    n_bytes: 0,
                    n_away: 0,
                    counts: Delivery::default(),
                    complaint: None,
                    n_lost: 0,
                    hurry: false,
                    failing: false,
                    deadline: None,
                }),
                work: Condvar::new(),
                settled: Condvar::new(),
            }),
            courier: Some(courier),
        }
    }

    /// Puts items in, with the bytes they take. Starts the thread at the first one.
    pub(crate) fn push(
        &mut self,
        items: impl IntoIterator<Item = (C::Item, usize)>,
    ) -> Result<(), SinkError> {
        let mut items = items.into_iter().peekable();
        if items.peek().is_none() {
            return Ok(());
        }
        if let Some(courier) = self.courier.take() {
            let shared = Arc::clone(&self.shared);
            thread::Builder::new()
                .name("logkit-send".into())
                .spawn(move || shared.run(courier))
                .map_err(|error| SinkError::Other(format!("no thread: {error}")))?;
        }
        let limits = &self.shared.limits;
        let mut state = self.shared.state.lock();
        for (item, n_bytes) in items {
            state.n_bytes += n_bytes;
            state.items.push_back((item, n_bytes));
        }
        let mut n_lost = 0;
        while state.items.len() + state.n_away > limits.max_items
            || state.n_bytes > limits.max_bytes
        {
            let Some((_, n_bytes)) = state.items.pop_front() else {
                break;
            };
            state.n_bytes -= n_bytes;
            n_lost += 1;
        }
        if n_lost > 0 {
            state.lose(n_lost, "too much waits to be sent");
        }
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// True while something waits; an error tells what was lost since the last call.
    pub(crate) fn poll(&self) -> Result<bool, SinkError> {
        let mut state = self.shared.state.lock();
        state.tell()?;
        Ok(!state.is_empty())
    }

    /// Waits until everything is sent, unless the peer is away.
    pub(crate) fn flush(&self) -> Result<(), SinkError> {
        let deadline = Instant::now() + DRAIN;
        let mut state = self.shared.state.lock();
        state.hurry = true;
        self.shared.work.notify_one();
        while !state.is_empty() && !state.failing {
            if self
                .shared
                .settled
                .wait_until(&mut state, deadline)
                .timed_out()
            {
                break;
            }
        }
        state.tell()?;
        if state.is_empty() {
            Ok(())
        } else {
            Err(SinkError::Other(format!(
                "{} entries wait to be sent",
                state.items.len() + state.n_away
            )))
        }
    }

    /// Sends what waits at once, without waiting for that.
    #[cfg(feature = "otlp")]
    pub(crate) fn hurry(&self) {
        self.shared.state.lock().hurry = true;
        self.shared.work.notify_all();
    }

    /// Sends what is left, for a few seconds at most.
    pub(crate) fn close(&self) -> Result<(), SinkError> {
        let deadline = Instant::now() + DRAIN;
        let mut state = self.shared.state.lock();
        state.deadline = Some(deadline);
        // Whoever was away may be back: what counts is the attempt that this wakes the thread for.
        state.failing = false;
        self.shared.work.notify_all();
        while !(state.is_empty() || self.shared.limits.leaves_early && state.failing) {
            if self
                .shared
                .settled
                .wait_until(&mut state, deadline)
                .timed_out()
            {
                break;
            }
        }
        let n_left = (state.items.len() + state.n_away) as u64;
        if n_left > 0 {
            // What the thread does from now on is not counted again.
            let now = Instant::now();
            let why = if now < deadline {
                "the peer was away at the end"
            } else {
                "the time at the end was too short"
            };
            state.deadline = Some(now.min(deadline));
            state.items.clear();
            state.lose(n_left, why);
        }
        state.tell()
    }

    /// Reads the counts from elsewhere.
    pub(crate) fn counts(&self) -> DeliveryCounts {
        let shared = Arc::clone(&self.shared);
        DeliveryCounts(Arc::new(move || {
            let state = shared.state.lock();
            Delivery {
                waiting: state.items.len() + state.n_away,
                ..state.counts
            }
        }))
    }
}

impl<C: Courier> Drop for Outbox<C> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.deadline.get_or_insert_with(Instant::now);
        self.shared.work.notify_all();
    }
}

impl<C: Courier> std::fmt::Debug for Outbox<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Outbox").field(&self.counts()).finish()
    }
}

impl<I> State<I> {
    fn is_empty(&self) -> bool {
        self.items.is_empty() && self.n_away == 0
    }

    fn lose(&mut self, n_items: u64, why: &str) {
        self.counts.dropped += n_items;
        self.n_lost += n_items;
        self.complaint = Some(why.to_owned());
    }

    fn tell(&mut self) -> Result<(), SinkError> {
        let n_lost = std::mem::take(&mut self.n_lost);
        match self.complaint.take() {
            None => Ok(()),
            Some(why) if n_lost == 0 => Err(SinkError::Other(why)),
            Some(why) => Err(SinkError::Other(format!("{n_lost} entries lost: {why}"))),
        }
    }
}

impl<I: Send + 'static> Shared<I> {
    fn run<C: Courier<Item = I>>(&self, mut courier: C) {
        while let Some((batch, n_bytes)) = self.next_batch() {
            self.deliver(&mut courier, &batch);
            let mut state = self.state.lock();
            state.n_away = 0;
            // After the end nobody counts any more.
            state.n_bytes = state.n_bytes.saturating_sub(n_bytes);
            if state.is_empty() {
                state.hurry = false;
            }
            self.settled.notify_all();
        }
    }

    /// Waits for items, and for more of them; `None` at the end.
    fn next_batch(&self) -> Option<(Vec<I>, usize)> {
        let limits = &self.limits;
        let mut state = self.state.lock();
        let mut due = None;
        loop {
            if let Some(deadline) = state.deadline {
                if state.items.is_empty() || Instant::now() >= deadline {
                    return None;
                }
                break;
            }
            if state.items.is_empty() {
                due = None;
                self.work.wait(&mut state);
                continue;
            }
            let due = *due.get_or_insert_with(|| Instant::now() + limits.linger);
            let complete = state.hurry
                || state.items.len() >= limits.batch_items
                || state.n_bytes >= limits.batch_bytes;
            if complete || self.work.wait_until(&mut state, due).timed_out() {
                break;
            }
        }
        let mut batch = Vec::new();
        let mut n_bytes = 0;
        while batch.len() < limits.batch_items {
            let fits = state
                .items
                .front()
                .is_some_and(|(_, size)| batch.is_empty() || n_bytes + size <= limits.batch_bytes);
            let Some((item, size)) = fits.then(|| state.items.pop_front()).flatten() else {
                break;
            };
            n_bytes += size;
            batch.push(item);
        }
        state.n_away = batch.len();
        Some((batch, n_bytes))
    }

    fn deliver<C: Courier<Item = I>>(&self, courier: &mut C, batch: &[I]) {
        let mut attempt = 0;
        loop {
            let Some(timeout) = self.time_left() else {
                return; // whoever closes counts what is left
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| courier.deliver(batch, timeout)))
                .unwrap_or_else(|_| {
                    Err(Failure::Never {
                        why: "the sender panicked".to_owned(),
                    })
                });
            let mut state = self.state.lock();
            let gone = state.deadline.is_some_and(|until| Instant::now() >= until);
            let (why, after, forever) = match outcome {
                Ok(()) => {
                    state.failing = false;
                    if !gone {
                        state.counts.delivered += batch.len() as u64;
                    }
                    return;
                }
                #[cfg(any(feature = "otlp", feature = "remote", feature = "grpc"))]
                Err(Failure::Refused { n_items, why }) => {
                    state.failing = false;
                    if !gone {
                        let n_lost = n_items.min(batch.len() as u64);
                        state.counts.delivered += batch.len() as u64 - n_lost;
                        state.lose(n_lost, &why);
                    }
                    return;
                }
                Err(Failure::Never { why }) => (why, None, None),
                Err(Failure::Later { why, after }) => (why, after, Some(false)),
                Err(Failure::Away { why, after }) => (why, after, Some(!self.limits.impatient)),
            };
            let wait = match (forever, WAITS.get(attempt)) {
                (None, _) | (Some(false), None) => None,
                (Some(_), Some(factor)) => Some(self.limits.pace * *factor),
                (Some(true), None) => Some(self.limits.pace * WAITS[WAITS.len() - 1]),
            };
            let Some(wait) = wait else {
                if !gone {
                    state.lose(batch.len() as u64, &why);
                }
                return;
            };
            if attempt == 0 {
                // Told once for each delivery, though nothing is lost yet.
                state.complaint.get_or_insert(why);
            }
            attempt += 1;
            state.counts.retries += 1;
            state.failing = true;
            self.settled.notify_all();
            self.pause(&mut state, after.unwrap_or(wait));
        }
    }

    /// Time for one delivery; `None` at the end.
    fn time_left(&self) -> Option<Duration> {
        let timeout = self.limits.timeout;
        match self.state.lock().deadline {
            None => Some(timeout),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                (!left.is_zero()).then(|| left.min(timeout))
            }
        }
    }

    /// Waits that long; shorter when the end begins, and then never long.
    fn pause(&self, state: &mut MutexGuard<'_, State<I>>, wait: Duration) {
        let was_open = state.deadline.is_none();
        let wait = if was_open {
            wait
        } else {
            wait.min(self.limits.pace)
        };
        let until = Instant::now() + wait;
        while was_open == state.deadline.is_none()
            && !self.work.wait_until(state, until).timed_out()
        {}
    }
}

/// The methods of a sink with an `outbox` that the outbox does.
macro_rules! hand_on_to_outbox {
    () => {
        fn poll(&mut self) -> Result<bool, SinkError> {
            self.outbox.poll()
        }

        fn flush(&mut self) -> Result<(), SinkError> {
            self.outbox.flush()
        }

        fn close(&mut self) -> Result<(), SinkError> {
            self.outbox.close()
        }
    };
}
pub(crate) use hand_on_to_outbox;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails as told, then takes everything.
    struct Script {
        failures: VecDeque<Failure>,
        taken: Arc<Mutex<Vec<u32>>>,
        delay: Duration,
    }

    impl Courier for Script {
        type Item = u32;

        fn deliver(&mut self, items: &[u32], _: Duration) -> Result<(), Failure> {
            thread::sleep(self.delay);
            if let Some(failure) = self.failures.pop_front() {
                return Err(failure);
            }
            self.taken.lock().extend(items);
            Ok(())
        }
    }

    fn outbox(
        failures: Vec<Failure>,
        delay: Duration,
        limits: Limits,
    ) -> (Outbox<Script>, Arc<Mutex<Vec<u32>>>) {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let script = Script {
            failures: failures.into(),
            taken: Arc::clone(&taken),
            delay,
        };
        (Outbox::new(script, limits), taken)
    }

    fn fast() -> Limits {
        Limits {
            linger: Duration::from_millis(5),
            pace: Duration::from_millis(2),
            ..Limits::default()
        }
    }

    fn later(why: &str) -> Failure {
        Failure::Later {
            why: why.into(),
            after: None,
        }
    }

    #[test]
    fn what_fails_a_few_times_is_delivered_in_order() {
        let (mut outbox, taken) = outbox(
            vec![later("a"), later("b"), later("c"), later("d")],
            Duration::ZERO,
            fast(),
        );
        outbox.push((0..1000).map(|n| (n, 1))).unwrap();
        outbox.close().unwrap_err(); // told of the failure
        assert_eq!(*taken.lock(), (0..1000).collect::<Vec<_>>());
        let counts = outbox.counts().get();
        assert_eq!(
            (counts.delivered, counts.dropped, counts.retries),
            (1000, 0, 4)
        );
    }

    #[test]
    fn what_fails_too_often_or_for_ever_is_counted_and_told() {
        for failures in [
            vec![Failure::Never { why: "no".into() }],
            (0..5).map(|_| later("no")).collect(),
        ] {
            let (mut outbox, taken) = outbox(failures, Duration::ZERO, fast());
            outbox.push([(1, 1)]).unwrap();
            let told = outbox.close().unwrap_err().to_string();
            assert_eq!(told, "1 entries lost: no");
            assert!(taken.lock().is_empty());
            let counts = outbox.counts().get();
            assert_eq!((counts.delivered, counts.dropped), (0, 1));
        }
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_go() {
        let limits = Limits {
            max_items: 10,
            ..fast()
        };
        let (mut outbox, taken) = outbox(Vec::new(), Duration::from_millis(50), limits);
        for n in 0..100 {
            outbox.push([(n, 1)]).unwrap();
        }
        let told = outbox.close().unwrap_err().to_string();
        assert!(told.contains("too much waits"), "{told}");
        let counts = outbox.counts().get();
        assert_eq!(counts.delivered + counts.dropped, 100);
        assert_eq!(counts.delivered as usize, taken.lock().len());
        assert_eq!(taken.lock().last(), Some(&99));
    }

    #[test]
    fn an_absent_peer_is_asked_for_long_and_the_end_is_quick() {
        let away = || Failure::Away {
            why: "away".into(),
            after: None,
        };
        let (mut back, taken) = outbox((0..9).map(|_| away()).collect(), Duration::ZERO, fast());
        back.push([(7, 1)]).unwrap();
        let _ = back.close();
        assert_eq!(*taken.lock(), [7]);

        let (mut gone, _) = outbox(
            (0..100_000).map(|_| away()).collect(),
            Duration::from_millis(1),
            Limits {
                pace: Duration::from_mins(1),
                ..fast()
            },
        );
        gone.push([(7, 1)]).unwrap();
        assert!(gone.flush().is_err(), "a flush does not wait for it");
        let start = Instant::now();
        assert!(gone.close().is_err());
        assert!(start.elapsed() < DRAIN + Duration::from_millis(400));
        assert_eq!(gone.counts().get().dropped, 1);
    }

    #[test]
    fn who_leaves_early_asks_an_absent_peer_once_more_at_the_end() {
        let away = || Failure::Away {
            why: "away".into(),
            after: None,
        };
        let limits = Limits {
            pace: Duration::from_mins(1),
            leaves_early: true,
            ..fast()
        };
        let (mut gone, _) = outbox(
            (0..100_000).map(|_| away()).collect(),
            Duration::ZERO,
            limits.clone(),
        );
        gone.push([(7, 1), (8, 1)]).unwrap();
        assert!(gone.flush().is_err());
        let start = Instant::now();
        let told = gone.close().unwrap_err().to_string();
        assert_eq!(told, "2 entries lost: the peer was away at the end");
        assert!(start.elapsed() < DRAIN / 2, "{:?}", start.elapsed());
        assert_eq!(gone.counts().get().dropped, 2);

        let (mut back, taken) = outbox(vec![away()], Duration::ZERO, limits);
        back.push([(7, 1)]).unwrap();
        assert!(back.flush().is_err());
        back.close().unwrap();
        assert_eq!(*taken.lock(), [7]);
    }
}

//! The bounded queue between callers and the writer's thread.
//!
//! Entries wait in chunks, which the writer takes whole: it becomes one batch. What the writer holds
//! still counts, so the limits are those of all entries in memory.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Entry,
    journal::Segment,
    lock::{Condvar, Mutex, MutexGuard},
    receipt::{Ack, NotWritten, Slot},
};

/// Entries in a batch, at most, unless a caller hands in more at once.
pub(crate) const BATCH: usize = 512;
/// How long an entry waits for company.
const LINGER: Duration = Duration::from_millis(50);
/// How long a caller waits for room.
const TIMEOUT: Duration = Duration::from_millis(100);
/// How long if the sinks have kept up so far: then one slow batch, such as one that waits for the disk, is
/// no reason to drop anything.
const LONG_TIMEOUT: Duration = Duration::from_secs(1);
/// Sinks that take longer for a batch, on average, do not keep up with a burst.
const SLOW_BATCH: Duration = Duration::from_millis(100);

/// There is no room in the queue now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of entries is full")]
pub struct QueueFull;

/// What to do when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// Wait a little, then give up.
    Wait,
    /// As `Wait`, but only for sinks that keep up.
    KeepUp,
    Refuse,
    DropOldest,
}

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// The writer waits here.
    ready: Condvar,
    /// Callers wait here.
    room: Condvar,
    max_entries: usize,
    max_bytes: usize,
    /// How long an entry waits for company.
    linger: Duration,
}

#[derive(Debug, Default)]
struct State {
    chunks: VecDeque<Chunk>,
    n_entries: usize,
    n_bytes: usize,
    /// Emptied vectors, to be filled again.
    spare: Vec<Vec<Entry>>,
    writer: Writer,
    closed: bool,
    /// There is no writer any more.
    ended: bool,
    /// A caller waited in vain and the writer has not moved since: nobody waits again.
    stalled: bool,
    /// When the writer took the batch that it holds.
    taken_at: Option<Instant>,
    /// How long a batch takes, on average of the last ones; `None` before the first.
    pace: Option<Duration>,
    /// Entries pushed out by newer ones.
    n_pushed_out: u64,
    /// Somebody wants the writer to stand still.
    pauses: VecDeque<Arc<Pause>>,
}

/// What the writer's thread is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Writer {
    #[default]
    Busy,
    /// Waits for the first entry.
    Idle,
    /// Waits for more entries.
    Lingers,
}

/// Entries that are written together.
#[derive(Debug)]
pub(crate) struct Chunk {
    entries: Vec<Entry>,
    /// Entries before this one were pushed out.
    start: usize,
    n_bytes: usize,
    /// Which entries somebody waits for.
    tickets: Vec<(Range<usize>, Arc<Slot>)>,
    /// Who waits until everything up to here is with the operating system.
    pub(crate) flushes: Vec<Arc<Slot>>,
    /// What keeps the entries on disk until they are written.
    segments: Vec<Arc<Segment>>,
    first_at: Instant,
    /// Does not wait for company.
    urgent: bool,
}

impl Chunk {
    fn new(entries: Vec<Entry>) -> Chunk {
        Chunk {
            entries,
            start: 0,
            n_bytes: 0,
            tickets: Vec::new(),
            flushes: Vec::new(),
            segments: Vec::new(),
            first_at: Instant::now(),
            urgent: false,
        }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries[self.start..]
    }

    /// The tickets, with the number of the first entry and the number of entries.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = (usize, usize, &Slot)> {
        self.tickets
            .iter()
            .map(|(range, slot)| (range.start - self.start, range.len(), &**slot))
    }
}

impl Drop for Chunk {
    /// Whoever still waits learns that there is nothing to wait for.
    fn drop(&mut self) {
        let tickets = self.tickets.drain(..).map(|(_, slot)| slot);
        for slot in tickets.chain(self.flushes.drain(..)) {
            slot.resolve(Err(NotWritten::Closed));
        }
    }
}

/// A time in which the writer holds nothing and stands still.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    state: Mutex<PauseState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PauseState {
    is_reached: bool,
    is_over: bool,
}

impl Pause {
    /// Waits until the writer stands still.
    pub(crate) fn reached(&self, timeout: Duration) {
        let mut state = self.state.lock();
        let deadline = Instant::now() + timeout;
        while !state.is_reached {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
    }

    /// The writer holds nothing.
    fn reach(&self) {
        self.state.lock().is_reached = true;
        self.changed.notify_all();
    }

    /// Stands still, on the writer's thread.
    pub(crate) fn hold(&self) {
        let mut state = self.state.lock();
        state.is_reached = true;
        self.changed.notify_all();
        while !state.is_over {
            self.changed.wait(&mut state);
        }
    }

    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }
}

/// What the writer shall do next.
#[derive(Debug)]
pub(crate) enum Next {
    Write(Chunk),
    Pause(Arc<Pause>),
    /// Nothing came for a while.
    Tick,
    Closed,
}

impl Queue {
    pub(crate) fn new(max_entries: usize, max_bytes: usize) -> Queue {
        Queue {
            state: Mutex::default(),
            ready: Condvar::new(),
            room: Condvar::new(),
            max_entries: max_entries.max(1),
            max_bytes,
            linger: LINGER,
        }
    }

    /// Adds one entry; `slot` is resolved when it is written. An entry that cannot be added is gone.
    pub(crate) fn push(
        &self,
        entry: Entry,
        full: Full,
        slot: Option<Arc<Slot>>,
        segment: Option<Arc<Segment>>,
    ) -> Result<(), NotWritten> {
        let n_bytes = entry.size_bytes();
        let urgent = entry.level.is_error() || slot.is_some();
        let mut state = self.reserve(1, n_bytes, full)?;
        let state_ref = &mut *state;
        if state_ref
            .chunks
            .back()
            .is_none_or(|chunk| chunk.entries.len() >= BATCH)
        {
            let entries = state_ref.spare.pop().unwrap_or_default();
            state_ref.chunks.push_back(Chunk::new(entries));
        }
        if let Some(chunk) = state_ref.chunks.back_mut() {
            if let Some(slot) = slot {
                let at = chunk.entries.len();
                chunk.tickets.push((at..at + 1, slot));
            }
            if let Some(segment) = segment
                && chunk
                    .segments
                    .last()
                    .is_none_or(|last| !Arc::ptr_eq(last, &segment))
            {
                chunk.segments.push(segment);
            }
            chunk.entries.push(entry);
            chunk.n_bytes += n_bytes;
            chunk.urgent |= urgent;
        }
        self.wake(state);
        Ok(())
    }

    /// True if to add that entry would mean to wait for room.
    pub(crate) fn would_wait(&self, entry: &Entry, full: Full) -> bool {
        let state = self.state.lock();
        !state.closed
            && !state.fits(1, entry.size_bytes(), self)
            && match full {
                Full::Wait => true,
                Full::KeepUp => state.keeps_up() && !state.stalled,
                Full::Refuse | Full::DropOldest => false,
            }
    }

    /// Adds entries that are written together, all or none. Otherwise they are gone.
    pub(crate) fn push_many(
        &self,
        mut entries: Vec<Entry>,
        full: Full,
        slot: Option<Arc<Slot>>,
    ) -> Result<(), NotWritten> {
        let n_bytes = entries.iter().map(Entry::size_bytes).sum();
        let n_entries = entries.len();
        let mut state = self.reserve(n_entries, n_bytes, full)?;
        let fits = |chunk: &Chunk| chunk.entries.len() + n_entries <= BATCH;
        match state.chunks.back_mut() {
            Some(chunk) if fits(chunk) => {
                let at = chunk.entries.len();
                chunk.entries.append(&mut entries);
                chunk
                    .tickets
                    .extend(slot.map(|slot| (at..at + n_entries, slot)));
                chunk.n_bytes += n_bytes;
                chunk.urgent = true;
            }
            _ => {
                let mut chunk = Chunk::new(entries);
                chunk.tickets.extend(slot.map(|slot| (0..n_entries, slot)));
                chunk.n_bytes = n_bytes;
                chunk.urgent = true;
                state.chunks.push_back(chunk);
            }
        }
        self.wake(state);
        Ok(())
    }

    /// Resolves the slot when everything that waits now is written.
    pub(crate) fn flush(&self, slot: Arc<Slot>) {
        let mut state = self.state.lock();
        if state.ended {
            drop(state);
            slot.resolve(Ok(Ack {
                first_id: None,
                n_entries: 0,
            }));
            return;
        }
        if state.chunks.is_empty() {
            state.chunks.push_back(Chunk::new(Vec::new()));
        }
        if let Some(chunk) = state.chunks.back_mut() {
            chunk.urgent = true;
            chunk.flushes.push(slot);
        }
        self.wake(state);
    }

    /// Makes the writer stand still before the next batch.
    pub(crate) fn pause(&self, pause: Arc<Pause>) {
        let mut state = self.state.lock();
        if state.ended {
            pause.reach(); // nobody writes any more
            return;
        }
        state.pauses.push_back(pause);
        drop(state);
        self.ready.notify_all();
    }

    /// Nothing is taken any more; what waits is still written.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.room.notify_all();
        self.ready.notify_all();
    }

    /// The writer goes away. What still waits, because it failed, is lost.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.ended = true;
        let lost = std::mem::take(&mut state.chunks);
        let pauses = std::mem::take(&mut state.pauses);
        drop(state);
        for pause in pauses {
            pause.reach();
        }
        self.room.notify_all();
        drop(lost);
    }

    /// Entries that are not written yet.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().n_entries
    }

    /// Entries pushed out by newer ones since this was last asked.
    pub(crate) fn take_pushed_out(&self) -> u64 {
        std::mem::take(&mut self.state.lock().n_pushed_out)
    }

    /// Waits for work; with `tick` not longer than a batch lingers.
    pub(crate) fn next(&self, tick: bool) -> Next {
        let mut state = self.state.lock();
        let next = loop {
            if let Some(pause) = state.pauses.pop_front() {
                break Next::Pause(pause);
            }
            let Some(front) = state.chunks.front() else {
                if state.closed {
                    break Next::Closed;
                }
                state.writer = Writer::Idle;
                if !tick {
                    self.ready.wait(&mut state);
                } else if self.ready.wait_for(&mut state, self.linger).timed_out()
                    && state.chunks.is_empty()
                    && state.pauses.is_empty()
                {
                    break Next::Tick;
                }
                continue;
            };
            let due = front.first_at + self.linger;
            let complete = front.urgent || front.entries.len() >= BATCH || state.chunks.len() > 1;
            if complete || state.closed || Instant::now() >= due {
                match state.chunks.pop_front() {
                    Some(chunk) => {
                        state.taken_at = Some(Instant::now());
                        break Next::Write(chunk);
                    }
                    None => continue,
                }
            }
            state.writer = Writer::Lingers;
            self.ready.wait_until(&mut state, due);
        };
        state.writer = Writer::Busy;
        next
    }

    /// The chunk is written, or lost.
    pub(crate) fn done(&self, chunk: &mut Chunk) {
        let n_entries = chunk.entries().len();
        chunk.entries.clear();
        // Whoever is told next may want to empty the journal.
        chunk.segments.clear();
        let mut state = self.state.lock();
        state.n_entries -= n_entries;
        state.n_bytes -= chunk.n_bytes;
        state.stalled = false;
        if let Some(taken_at) = state.taken_at.take().filter(|_| n_entries > 0) {
            let took = taken_at.elapsed();
            state.pace = Some(state.pace.map_or(took, |pace| (pace * 7 + took) / 8));
        }
        if state.spare.len() < SPARE && (1..=BATCH).contains(&chunk.entries.capacity()) {
            state.spare.push(std::mem::take(&mut chunk.entries));
        }
        drop(state);
        self.room.notify_all();
    }

    /// Accounts for entries, once there is room.
    fn reserve(
        &self,
        n_entries: usize,
        n_bytes: usize,
        full: Full,
    ) -> Result<MutexGuard<'_, State>, NotWritten> {
        let mut state = self.state.lock();
        let mut deadline = None;
        loop {
            if state.closed {
                return Err(NotWritten::Closed);
            }
            if state.fits(n_entries, n_bytes, self) {
                state.n_entries += n_entries;
                state.n_bytes += n_bytes;
                return Ok(state);
            }
            match full {
                Full::DropOldest if state.drop_oldest() => {}
                Full::Wait | Full::KeepUp
                    if !state.stalled && (full == Full::Wait || state.keeps_up()) =>
                {
                    let deadline =
                        *deadline.get_or_insert_with(|| Instant::now() + state.timeout());
                    if self.room.wait_until(&mut state, deadline).timed_out() {
                        state.stalled = true;
                    }
                }
                Full::Wait | Full::KeepUp | Full::Refuse | Full::DropOldest => {
                    return Err(NotWritten::QueueFull);
                }
            }
        }
    }

    /// Wakes the writer if there is work it does not know of.
    fn wake(&self, state: MutexGuard<'_, State>) {
        let wanted = match state.writer {
            Writer::Busy => false,
            Writer::Idle => true,
            Writer::Lingers => {
                state.chunks.len() > 1
                    || state
                        .chunks
                        .front()
                        .is_some_and(|chunk| chunk.urgent || chunk.entries.len() >= BATCH)
            }
        };
        drop(state);
        if wanted {
            self.ready.notify_one();
        }
    }
}

/// Vectors kept for reuse.
const SPARE: usize = 8;

impl State {
    fn fits(&self, n_entries: usize, n_bytes: usize, queue: &Queue) -> bool {
        // One that is too large for the limits may still go alone.
        self.n_entries == 0
            || (self.n_entries + n_entries <= queue.max_entries
                && self.n_bytes + n_bytes <= queue.max_bytes)
    }

    /// False if the sinks are too slow for callers to wait for them.
    fn keeps_up(&self) -> bool {
        self.pace.is_none_or(|pace| pace <= SLOW_BATCH)
    }

    /// How long a caller waits for room.
    fn timeout(&self) -> Duration {
        if self.pace.is_some_and(|pace| pace <= SLOW_BATCH) {
            LONG_TIMEOUT
        } else {
            TIMEOUT
        }
    }

    /// Makes room; false if the writer holds everything.
    fn drop_oldest(&mut self) -> bool {
        while let Some(chunk) = self.chunks.front_mut() {
            if chunk.start == chunk.entries.len() {
                if !chunk.flushes.is_empty() {
                    return false; // somebody waits for the chunk itself
                }
                self.chunks.pop_front();
                continue;
            }
            let ticket = chunk.tickets.first().map(|(range, _)| range.clone());
            let n_dropped = match ticket {
                Some(range) if range.start == chunk.start => {
                    let (_, slot) = chunk.tickets.remove(0);
                    slot.resolve(Err(NotWritten::QueueFull));
                    range.len()
                }
                _ => 1,
            };
            for entry in &mut chunk.entries[chunk.start..chunk.start + n_dropped] {
                let n_bytes = entry.size_bytes();
                *entry = Entry::default();
                chunk.n_bytes -= n_bytes;
                self.n_bytes -= n_bytes;
            }
            chunk.start += n_dropped;
            self.n_entries -= n_dropped;
            self.n_pushed_out += n_dropped as u64;
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::Level;

    const LONG: Duration = Duration::from_mins(1);

    fn entry(level: Level) -> Entry {
        Entry {
            level,
            ..Entry::default()
        }
    }

    fn levels(chunk: &Chunk) -> Vec<Level> {
        let levels = chunk.entries().iter().map(|entry| entry.level.clone());
        levels.collect()
    }

    /// Pushes an entry that waits for company, then what `hurry` does, and returns the batch.
    fn batch(hurry: impl FnOnce(&Queue)) -> Vec<Level> {
        let queue = Queue {
            linger: LONG * 60,
            ..Queue::new(100, usize::MAX)
        };
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            scope.spawn(|| {
                let sender = sender;
                sender.send(queue.next(false)).unwrap();
            });
            let push = queue.push(entry(Level::Info), Full::Refuse, None, None);
            assert_eq!(push, Ok(()));
            let start = Instant::now();
            while queue.state.lock().writer != Writer::Lingers {
                assert!(start.elapsed() < LONG, "the writer waits for company");
                thread::yield_now();
            }
            assert!(receiver.try_recv().is_err());
            hurry(&queue);
            match receiver.recv_timeout(LONG).unwrap() {
                Next::Write(chunk) => levels(&chunk),
                other => panic!("{other:?}"),
            }
        })
    }

    #[test]
    fn an_error_is_written_at_once_and_takes_along_what_waits() {
        for level in [Level::Error, Level::Critical] {
            let written = batch(|queue| {
                let push = queue.push(entry(Level::Debug), Full::Refuse, None, None);
                assert_eq!(push, Ok(()));
                let push = queue.push(entry(level.clone()), Full::Refuse, None, None);
                assert_eq!(push, Ok(()));
            });
            assert_eq!(written[0], Level::Info);
            assert_eq!(written.last(), Some(&level));
            assert_eq!(written.len(), 3);
        }
    }

    #[test]
    fn what_somebody_waits_for_is_written_at_once() {
        let waited_for = batch(|queue| queue.flush(Arc::default()));
        assert_eq!(waited_for, [Level::Info]);
        let acknowledged = batch(|queue| {
            let slot = Some(Arc::default());
            let push = queue.push(entry(Level::Debug), Full::Refuse, slot, None);
            assert_eq!(push, Ok(()));
        });
        assert_eq!(acknowledged, [Level::Info, Level::Debug]);
        assert_eq!(batch(Queue::close), [Level::Info]);
    }

    #[test]
    fn what_nobody_waits_for_is_written_after_a_while() {
        let queue = Queue::new(100, usize::MAX);
        for level in [Level::Info, Level::Warning] {
            let push = queue.push(entry(level), Full::Refuse, None, None);
            assert_eq!(push, Ok(()));
        }
        let start = queue.state.lock().chunks[0].first_at;
        let Next::Write(chunk) = queue.next(false) else {
            panic!("two entries wait");
        };
        assert!(start.elapsed() >= LINGER);
        assert_eq!(levels(&chunk), [Level::Info, Level::Warning]);
    }
}

//! The threads of the arithmetic, made for thousands of short parallel regions a second.
//!
//! The caller computes too, as the first of the threads. A region is a number of tasks that threads take
//! one by one from a counter, so one that the system has taken off its core holds up a task, not the
//! region. Between regions threads stay awake for a moment, then sleep: an idle pool costs nothing.
//! Where more threads want to run than there are cores, they sleep at once.
#![expect(
    unsafe_code,
    reason = "threads that outlive a region borrow its closure and its slice"
)]

mod parts;
mod sync;
mod wait;

use std::{
    any::Any,
    cell::UnsafeCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    ptr,
    sync::{Arc, PoisonError, TryLockError, atomic::Ordering},
    thread::{Builder, JoinHandle, available_parallelism},
};

pub(crate) use parts::Parts;
use sync::{AtomicBool, AtomicIsize, AtomicUsize, Condvar, Mutex, MutexGuard};
use wait::SpinWait;

/// A fixed number of threads for the parts of one computation at a time.
///
/// A call from within a task, or while another thread's region is under way, is computed by its
/// caller alone: it neither waits nor deadlocks. A panic in a task reaches the caller once all tasks
/// of the region have ended.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts threads so that `n_threads` compute, the caller included; 0 = one for each core the
    /// process may use by its affinity and its control group. Where the system refuses threads, there
    /// are fewer; there are never more than 1024.
    pub fn new(n_threads: usize) -> Pool {
        let n_cores = available_parallelism().map_or(1, usize::from);
        let n_threads = match n_threads {
            0 => n_cores,
            n_threads => n_threads.min(MAX_THREADS),
        };
        let shared = Arc::new(Shared::new(SpinWait::new(n_threads <= n_cores)));
        let workers = (1..n_threads)
            .map_while(|idx| {
                let shared = Arc::clone(&shared);
                let named = Builder::new().name(format!("llmsrv-cpu-{idx}"));
                named.spawn(move || shared.work()).ok()
            })
            .collect();
        Pool { shared, workers }
    }

    /// Returns the number of threads that compute, the caller included.
    pub fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` once with each of `0..n_tasks`, in no certain order, and returns when all calls have
    /// returned.
    ///
    /// # Panics
    ///
    /// With the panic of a task; the others are done by then, or left out where the caller computes
    /// alone.
    pub fn for_each_task(&self, n_tasks: usize, work: impl Fn(usize) + Sync) {
        // Tasks are taken from a signed counter.
        let fits = isize::try_from(n_tasks).is_ok();
        if n_tasks <= 1 || self.workers.is_empty() || !fits {
            return (0..n_tasks).for_each(work);
        }
        match self.shared.turn.try_lock() {
            Ok(turn) => self.shared.region(&turn, n_tasks, &work),
            // A panic left through `region`, which had put everything in order before.
            Err(TryLockError::Poisoned(turn)) => {
                self.shared.region(&turn.into_inner(), n_tasks, &work);
            }
            Err(TryLockError::WouldBlock) => (0..n_tasks).for_each(work),
        }
    }

    /// Calls `work` with the index and content of each stretch of `chunk_len` elements, at the same
    /// time where `parallel` says that it pays. The last stretch may be shorter; a `chunk_len` of 0
    /// counts as 1.
    ///
    /// # Panics
    ///
    /// As [`Pool::for_each_task`].
    pub fn for_each_chunk_mut<T: Send>(
        &self,
        values: &mut [T],
        chunk_len: usize,
        parallel: bool,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let (len, chunk_len) = (values.len(), chunk_len.max(1));
        if !parallel || len <= chunk_len {
            let chunks = values.chunks_mut(chunk_len).enumerate();
            return chunks.for_each(|(index, chunk)| work(index, chunk));
        }
        let parts = Parts::new(values);
        self.for_each_task(len.div_ceil(chunk_len), |index| {
            let at = index * chunk_len;
            // SAFETY: stretches of different tasks do not overlap, and each task is called once.
            let chunk = unsafe { parts.part(at..len.min(at + chunk_len)) };
            work(index, chunk);
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop();
        for worker in self.workers.drain(..) {
            // A worker's panics were caught and handed on.
            let _ = worker.join();
        }
    }
}

/// What the threads share.
struct Shared {
    /// Held by the caller whose region is under way.
    turn: Mutex<()>,
    /// The region: written by the holder of `turn` while none of its tasks is unfinished, read by
    /// threads that have taken a task and not finished it.
    region: UnsafeCell<Region>,
    /// Tasks that nobody has taken. Below 0 when threads asked in vain.
    n_untaken: Line<AtomicIsize>,
    /// Tasks that have not ended, or not been reported so.
    n_unfinished: Line<AtomicUsize>,
    spin_wait: SpinWait,
    /// Guards falling asleep.
    sleep_lock: Mutex<()>,
    /// Wakes workers.
    region_begins: Condvar,
    n_asleep: AtomicUsize,
    /// Wakes the caller.
    region_ends: Condvar,
    is_caller_asleep: AtomicBool,
    is_stopping: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// A closure without its type and lifetime.
#[derive(Clone, Copy)]
struct Region {
    call: unsafe fn(*const (), usize),
    work: *const (),
    n_tasks: usize,
}

// SAFETY: `region` is the only field that is not safe to share by itself, and is read and written as
// its comment says; the closure behind it may be called from any thread, as `Shared::region` demands.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(spin_wait: SpinWait) -> Shared {
        Shared {
            turn: Mutex::new(()),
            region: UnsafeCell::new(Region {
                call: |_, _| {},
                work: ptr::null(),
                n_tasks: 0,
            }),
            n_untaken: Line(AtomicIsize::new(0)),
            n_unfinished: Line(AtomicUsize::new(0)),
            spin_wait,
            sleep_lock: Mutex::new(()),
            region_begins: Condvar::new(),
            n_asleep: AtomicUsize::new(0),
            region_ends: Condvar::new(),
            is_caller_asleep: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            panic: Mutex::new(None),
        }
    }

    /// Computes all tasks together with the workers. The guard shows that it is the caller's turn.
    fn region<F: Fn(usize) + Sync>(&self, _turn: &MutexGuard<'_, ()>, n_tasks: usize, work: &F) {
        // SAFETY (of calling it): `work` points to a living `F`.
        unsafe fn call<F: Fn(usize)>(work: *const (), task: usize) {
            // SAFETY: as the caller promises.
            unsafe { (*work.cast::<F>())(task) };
        }
        let region = Region {
            call: call::<F>,
            work: ptr::from_ref(work).cast(),
            n_tasks,
        };
        // SAFETY: it is the caller's turn, and all tasks of the turn before have ended (it waited
        // for that), so nobody reads the region.
        unsafe { *self.region.get() = region };
        self.n_unfinished.0.store(n_tasks, Ordering::Relaxed);
        // From here on workers take tasks. Sequentially consistent with `n_asleep`: either the
        // worker sees the tasks before it falls asleep, or its sleep is seen here.
        self.n_untaken.0.store(n_tasks as isize, Ordering::SeqCst);
        self.wake(n_tasks - 1);
        self.take_tasks();
        // Borrows end when this returns, so it must not before the last task has.
        self.wait_for_workers();
        let panic = lock(&self.panic).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Works on the region's tasks as long as there are any that nobody has taken.
    fn take_tasks(&self) {
        let mut n_ended = 0;
        loop {
            if self.n_untaken.0.load(Ordering::Relaxed) <= 0 {
                break;
            }
            // Acquires what the caller stored before it gave the tasks out. The one taken here may
            // belong to a later region than the one looked at above, and is as good.
            let n_untaken = self.n_untaken.0.fetch_sub(1, Ordering::AcqRel);
            if n_untaken <= 0 {
                break;
            }
            // SAFETY: the region cannot end, nor change, before this thread says below that the task
            // it just took has ended.
            let region = unsafe { *self.region.get() };
            let task = region.n_tasks - n_untaken as usize;
            // SAFETY: the closure lives as long as the region.
            let ended = catch_unwind(AssertUnwindSafe(|| unsafe {
                (region.call)(region.work, task);
            }));
            if let Err(panic) = ended {
                lock(&self.panic).get_or_insert(panic);
            }
            n_ended += 1;
        }
        if n_ended == 0 {
            return;
        }
        // Releases the results of the tasks to the caller. They are of one region, since none ends
        // before its tasks have been subtracted.
        let n_unfinished = self.n_unfinished.0.fetch_sub(n_ended, Ordering::SeqCst);
        if n_unfinished == n_ended && self.is_caller_asleep.load(Ordering::SeqCst) {
            drop(lock(&self.sleep_lock));
            self.region_ends.notify_one();
        }
    }

    fn wait_for_workers(&self) {
        let has_ended = || self.n_unfinished.0.load(Ordering::Acquire) == 0;
        if self.spin_wait.wait(has_ended) {
            return;
        }
        let mut sleep_lock = lock(&self.sleep_lock);
        self.is_caller_asleep.store(true, Ordering::SeqCst);
        while self.n_unfinished.0.load(Ordering::SeqCst) != 0 {
            let woken = self.region_ends.wait(sleep_lock);
            sleep_lock = woken.unwrap_or_else(PoisonError::into_inner);
        }
        self.is_caller_asleep.store(false, Ordering::SeqCst);
    }

    /// The life of a worker.
    fn work(&self) {
        let is_stopping = || self.is_stopping.load(Ordering::SeqCst);
        let is_wanted = || self.n_untaken.0.load(Ordering::SeqCst) > 0 || is_stopping();
        while !is_stopping() {
            if !self.spin_wait.wait(is_wanted) {
                let mut sleep_lock = lock(&self.sleep_lock);
                self.n_asleep.fetch_add(1, Ordering::SeqCst);
                while !is_wanted() {
                    let woken = self.region_begins.wait(sleep_lock);
                    sleep_lock = woken.unwrap_or_else(PoisonError::into_inner);
                }
                self.n_asleep.fetch_sub(1, Ordering::SeqCst);
            }
            self.take_tasks();
        }
    }

    /// Wakes up to `n_wanted` sleeping workers.
    fn wake(&self, n_wanted: usize) {
        let n_asleep = self.n_asleep.load(Ordering::SeqCst);
        if n_asleep == 0 {
            return;
        }
        // Who counts as asleep without sleeping yet holds this lock.
        drop(lock(&self.sleep_lock));
        if n_wanted < n_asleep {
            (0..n_wanted).for_each(|_| self.region_begins.notify_one());
        } else {
            self.region_begins.notify_all();
        }
    }

    fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.wake(usize::MAX);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// A value on cache lines of its own; two, since processors fetch them in pairs.
#[repr(align(128))]
struct Line<T>(T);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const MAX_THREADS: usize = 1024;

#[cfg(all(test, not(shuttle)))]
mod tests;

#[cfg(all(test, shuttle))]
mod interleavings;

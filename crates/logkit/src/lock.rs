//! Locks without anything that a whole process shares.
//!
//! A fork copies one thread, and all locks as they were: those that other threads held stay locked in the child. A logger
//! makes its own anew there. Locks of `parking_lot` would wait all the same: they keep waiting threads in one table for
//! the whole process, which another thread may have held at the fork. Those of the standard library share nothing. Like
//! `parking_lot`, they are used here whether or not a thread has panicked with them.

use std::{
    ops::{Deref, DerefMut},
    sync::{self, PoisonError, TryLockError},
    time::{Duration, Instant},
};

/// [`std::sync::Mutex`], without poison.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

/// Gives the lock back when it is dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized>(
    /// `None` only within [`Condvar::wait`].
    Option<sync::MutexGuard<'a, T>>,
);

impl<T> Mutex<T> {
    /// A lock around a value.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Waits for the lock, for so long at most: looks again each millisecond.
    pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.0.try_lock() {
                Ok(guard) => return Some(MutexGuard(Some(guard))),
                Err(TryLockError::Poisoned(poisoned)) => {
                    return Some(MutexGuard(Some(poisoned.into_inner())));
                }
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    /// The value, of a lock that nobody else has.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().expect("a guard holds its lock")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("a guard holds its lock")
    }
}

/// [`std::sync::Condvar`], for guards of [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitResult {
    timed_out: bool,
}

impl WaitResult {
    /// The time was over.
    pub fn timed_out(self) -> bool {
        self.timed_out
    }
}

impl Condvar {
    /// One that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    /// Gives the lock back, waits, and takes it again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.0 = guard
            .0
            .take()
            .map(|held| self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Like [`Condvar::wait`], for so long at most.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitResult {
        let mut timed_out = false;
        guard.0 = guard.0.take().map(|held| {
            let waited = self.0.wait_timeout(held, timeout);
            let (held, result) = waited.unwrap_or_else(PoisonError::into_inner);
            timed_out = result.timed_out();
            held
        });
        WaitResult { timed_out }
    }

    /// Like [`Condvar::wait`], until then at most.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> WaitResult {
        self.wait_for(guard, deadline.saturating_duration_since(Instant::now()))
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

//! What the threads of the pool wait and count with.
//!
//! With `--cfg shuttle` every use is a point where the test in `interleavings` lets another thread go
//! on, so that it can try the orders in which things may happen one after another.

#[cfg(all(test, shuttle))]
pub(super) use shuttle::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicIsize, AtomicUsize},
};
#[cfg(not(all(test, shuttle)))]
pub(super) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicIsize, AtomicUsize},
};

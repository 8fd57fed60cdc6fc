//! Work that takes long, such as parsing what strangers sent.

use std::{sync::Arc, thread, time::Duration};

use parking_lot::Mutex;
use rustix::thread::Pid;
use tokio::sync::oneshot;

/// The work panicked, or there is no thread for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a task failed")]
pub struct Failed;

/// Runs work on a thread of its own. If it takes long, that gives way to all others: to those that
/// answer, and to those that compute the next token of somebody else.
///
/// The work goes on when the future is dropped. How many there are at the same time is up to the
/// caller.
///
/// # Errors
/// If the work panics, or the system has no thread for it.
pub async fn run_in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failed> {
    let (done, result) = oneshot::channel();
    let worker = Arc::new(Worker::default());
    let works = worker.clone();
    let started = thread::Builder::new()
        .name("http-background".into())
        .spawn(move || {
            let _works = works.begin();
            let _ = done.send(work());
        });
    started.map_err(|_| Failed)?;
    tokio::spawn(async move {
        tokio::time::sleep(SHORT).await;
        worker.give_way();
    });
    result.await.map_err(|_| Failed)
}

/// The thread that works, while it does.
#[derive(Default)]
struct Worker(Mutex<Option<Pid>>);

impl Worker {
    fn begin(&self) -> Working<'_> {
        self.set(Some(rustix::thread::gettid()));
        Working(self)
    }

    /// Lowers the priority of the thread, for good: only the superuser could raise it again.
    fn give_way(&self) {
        // The thread does not end as long as this is locked, so it is the one that is meant.
        let thread = self.0.lock();
        // Elsewhere this would be the priority of the whole process.
        #[cfg(target_os = "linux")]
        if let Some(thread) = *thread
            && rustix::process::getpriority_process(Some(thread))
                .is_ok_and(|niceness| niceness < NICENESS)
        {
            let _ = rustix::process::setpriority_process(Some(thread), NICENESS);
        }
        drop(thread);
    }

    fn set(&self, thread: Option<Pid>) {
        *self.0.lock() = thread;
    }
}

/// Until it is dropped, also by a panic.
struct Working<'a>(&'a Worker);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// What is done sooner has the priority of everything else.
const SHORT: Duration = Duration::from_millis(200);
/// A thread like this gets a tenth of the time of an ordinary one that wants to run as well.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn niceness() -> i32 {
        rustix::process::getpriority_process(None).unwrap()
    }

    #[tokio::test]
    async fn only_work_that_takes_long_gives_way() {
        let before = niceness();
        assert_eq!(run_in_background(niceness).await, Ok(before));
        let expected = if cfg!(target_os = "linux") {
            before.max(NICENESS)
        } else {
            before
        };
        let long = || {
            let deadline = Instant::now() + Duration::from_mins(1);
            let before = niceness();
            while niceness() == before && before < NICENESS && Instant::now() < deadline {
                thread::yield_now();
            }
            niceness()
        };
        assert_eq!(run_in_background(long).await, Ok(expected));
        assert_eq!(niceness(), before);
        assert_eq!(
            run_in_background(|| panic!("on purpose")).await,
            Err::<(), _>(Failed)
        );
    }
}

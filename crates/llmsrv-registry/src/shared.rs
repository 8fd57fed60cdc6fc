//! Downloads that several pulls wait for: one for each blob, ended when the last one leaves.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use llmsrv_store::Digest;
use parking_lot::Mutex;
use tokio::{sync::watch, task::AbortHandle};

use crate::Error;

/// The downloads that run.
#[derive(Default)]
pub(crate) struct Downloads(Mutex<HashMap<Digest, Weak<Download>>>);

/// A running download. It ends when the last of its owners drops it.
pub(crate) struct Download {
    state: watch::Receiver<State>,
    abort: AbortHandle,
}

/// How far a download is.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Bytes that are there.
    pub(crate) completed: u64,
    /// How it ended.
    pub(crate) result: Option<Result<(), Error>>,
}

/// Lets a download say how far it is.
pub(crate) type Report = watch::Sender<State>;

impl Downloads {
    /// Joins the download of a blob, or starts it.
    pub(crate) fn join<F>(
        &self,
        digest: Digest,
        start: impl FnOnce(Arc<Report>) -> F,
    ) -> Arc<Download>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let mut running = self.0.lock();
        running.retain(|_, download| download.strong_count() > 0);
        if let Some(download) = running.get(&digest).and_then(Weak::upgrade)
            && download.state.borrow().result.is_none()
        {
            return download;
        }
        let (report, state) = watch::channel(State::default());
        let report = Arc::new(report);
        let work = start(report.clone());
        let task = tokio::spawn(async move {
            let result = work.await;
            report.send_modify(|state| state.result = Some(result));
        });
        let download = Arc::new(Download {
            state,
            abort: task.abort_handle(),
        });
        running.insert(digest, Arc::downgrade(&download));
        download
    }
}

impl Download {
    /// Returns where to see how far it is.
    pub(crate) fn watch(&self) -> watch::Receiver<State> {
        self.state.clone()
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use super::*;

    #[tokio::test]
    async fn a_download_is_shared_and_ends_with_its_last_owner() {
        struct Ended(Arc<AtomicUsize>);
        impl Drop for Ended {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let (downloads, ended) = (Downloads::default(), Arc::new(AtomicUsize::new(0)));
        let digest = Digest::of(b"x");
        let start = || {
            let guard = Ended(ended.clone());
            downloads.join(digest, |_| async move {
                let _guard = guard;
                std::future::pending().await
            })
        };
        let (first, second) = (start(), start());
        assert!(Arc::ptr_eq(&first, &second));
        // The closure of the second never ran, so its guard is gone.
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        drop(first);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(ended.load(Ordering::SeqCst), 1, "somebody still waits");
        drop(second);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(ended.load(Ordering::SeqCst), 2);
        assert!(!Arc::ptr_eq(&start(), &start()) || downloads.0.lock().len() == 1);
    }
}

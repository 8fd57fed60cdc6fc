//! What every handler may need.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use crate::{guard::Guard, metrics::Metrics, store::Store};

/// The service as a whole; cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) guard: Arc<Guard>,
    pub(crate) metrics: Arc<Metrics>,
    /// Streams that may run at the same time.
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl App {
    pub(crate) fn new(
        store: Store,
        guard: Arc<Guard>,
        metrics: Arc<Metrics>,
        stopping: watch::Receiver<bool>,
    ) -> App {
        App {
            store,
            guard,
            metrics,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            stopping,
        }
    }
}

/// Streams at the same time.
const MAX_STREAMS: usize = 256;

//! The GPUs that models are loaded to, and when they are given up.

use parking_lot::Mutex;

use crate::settings::{Gpus, Settings};

/// Where a model may be loaded to.
#[derive(Clone)]
pub(super) enum Place {
    /// GPUs, and the CPU for what they have no room or no kernel for.
    Gpus(Gpus),
    /// The CPU alone.
    Cpu {
        /// Why no GPU, where there is one that nobody forbade.
        why: Option<String>,
    },
}

/// The GPUs of a server. Those that nobody asked for are given up when they were lost too often.
pub(super) struct Available {
    gpus: Option<Gpus>,
    losses: Mutex<Losses>,
}

struct Losses {
    /// How often a worker was lost.
    n: usize,
    /// Why GPUs are not used, or not any more.
    given_up: Option<String>,
}

impl Available {
    pub(super) fn new(settings: &Settings) -> Available {
        Available {
            gpus: settings.gpus.clone(),
            losses: Mutex::new(Losses {
                n: 0,
                given_up: settings.without_gpus.clone(),
            }),
        }
    }

    /// Bytes of each that models may take.
    pub(super) fn memory(&self) -> Vec<u64> {
        let gpus = self.gpus.as_ref();
        gpus.map_or_else(Vec::new, |gpus| gpus.memory.clone())
    }

    /// Returns where the next model may be loaded to.
    pub(super) fn place(&self) -> Place {
        let why = self.losses.lock().given_up.clone();
        match &self.gpus {
            Some(gpus) if why.is_none() => Place::Gpus(gpus.clone()),
            _ => Place::Cpu { why },
        }
    }

    /// Counts a worker that was lost.
    pub(super) fn lost(&self, reason: &str) {
        if !self.gpus.as_ref().is_some_and(|gpus| gpus.automatic) {
            return;
        }
        let mut losses = self.losses.lock();
        losses.n += 1;
        if losses.n == MOST_LOSSES {
            let why = format!("the GPU was lost {MOST_LOSSES} times, the last time: {reason}");
            tracing::warn!(
                "from now on models are loaded for the CPU: {why}; LLMSRV_GPU=1 goes on with the GPU"
            );
            losses.given_up = Some(why);
        }
    }
}

/// A laptop that sleeps loses its GPU, too; a driver that crashes does so again and again.
const MOST_LOSSES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn available(automatic: bool) -> Available {
        Available::new(&Settings {
            gpus: Some(Gpus {
                memory: vec![1],
                plan: |_, _, _, _| unreachable!("nothing is planned"),
                automatic,
            }),
            ..Settings::default()
        })
    }

    #[test]
    fn gpus_that_nobody_asked_for_are_given_up_when_they_are_lost_too_often() {
        for automatic in [true, false] {
            let available = available(automatic);
            for n in 1..=2 * MOST_LOSSES {
                assert!(matches!(available.place(), Place::Gpus(_)), "{n}");
                available.lost("no answer");
                if automatic && n == MOST_LOSSES {
                    break;
                }
            }
            let place = available.place();
            let is_given_up =
                matches!(&place, Place::Cpu { why: Some(why) } if why.contains("no answer"));
            assert_eq!(is_given_up, automatic);
        }
    }

    #[test]
    fn why_there_are_none_is_known_from_the_start() {
        let reason = "the driver computes wrongly".to_owned();
        let available = Available::new(&Settings {
            without_gpus: Some(reason.clone()),
            ..Settings::default()
        });
        assert!(available.memory().is_empty());
        assert!(matches!(available.place(), Place::Cpu { why } if why == Some(reason)));
    }
}

//! Takes samples: reads the machine, and joins what GPUs and the server say.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Error,
    feed::{Feed, Tokens},
    nvidia::Nvidia,
    raw::Raw,
    root::Root,
    sample::Sample,
};

/// Takes samples, each from the one before to now.
#[derive(Debug)]
pub struct Sampler {
    root: Root,
    feed: Feed,
    tokens: Tokens,
    nvidia: Option<Nvidia>,
    before: Raw,
    before_at: Instant,
}

impl Sampler {
    /// Reads the machine below `root` for the first time. `interval` says how often samples will be
    /// taken, which programs that write by themselves are told.
    pub fn new(root: &Path, feed: Feed, interval: Duration) -> Result<Sampler, Error> {
        let root = Root::new(root).map_err(|source| Error::Root {
            root: root.to_owned(),
            source,
        })?;
        let before = Raw::read(&root, pid(&feed));
        if before.is_empty() {
            return Err(Error::Nothing);
        }
        // A fixture has no GPUs but those in it.
        let nvidia = root.is_machine().then(|| Nvidia::start(interval)).flatten();
        Ok(Sampler {
            root,
            feed,
            tokens: Tokens::default(),
            nvidia,
            before,
            before_at: Instant::now(),
        })
    }

    /// Takes a sample of the time since the last one.
    pub fn sample(&mut self) -> Sample {
        let now = Raw::read(&self.root, pid(&self.feed));
        let now_at = Instant::now();
        // The clock of `Instant` stands still while the machine sleeps, as its counters do.
        let elapsed = now_at.duration_since(self.before_at);
        let mut sample = Sample::between(&self.before, &now, elapsed);
        (self.before, self.before_at) = (now, now_at);
        if let Some(nvidia) = &self.nvidia {
            sample.accelerators.extend(nvidia.gpus());
        }
        sample.server = self.tokens.add(self.feed.read(), sample.server.take());
        sample
    }

    /// Waits for `interval` and takes a sample of it: the way of those who want one alone.
    pub fn once(&mut self, interval: Duration) -> Sample {
        if let Some(nvidia) = &self.nvidia {
            nvidia.wait(NVIDIA_TIMEOUT);
        }
        let passed = self.before_at.elapsed();
        thread::sleep(interval.saturating_sub(passed));
        self.sample()
    }
}

fn pid(feed: &Feed) -> Option<u32> {
    feed.read()?.1.pid
}

/// How long its driver may take to wake a GPU.
const NVIDIA_TIMEOUT: Duration = Duration::from_secs(3);

//! NVIDIA's GPUs, through their own `nvidia-smi` where it is installed: started once, it writes its
//! figures again and again, which costs far less than starting it each time.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::{
    parse,
    sample::{Accelerator, AcceleratorKind},
};

/// A running `nvidia-smi`; ended when dropped.
#[derive(Debug)]
pub(crate) struct Nvidia {
    child: Child,
    shared: Arc<(Mutex<Figures>, Condvar)>,
}

#[derive(Debug, Default)]
struct Figures {
    /// By their index, with when they were written.
    gpus: BTreeMap<u32, (Instant, Accelerator)>,
    ended: bool,
}

impl Nvidia {
    /// Starts it; `None` where there is none.
    pub(crate) fn start(interval: Duration) -> Option<Nvidia> {
        let interval = interval.clamp(Duration::from_millis(500), Duration::from_secs(5));
        let mut child = Command::new("nvidia-smi")
            .arg("--query-gpu=index,utilization.gpu,memory.used,memory.total,temperature.gpu,clocks.sm,clocks.max.sm,name")
            .arg("--format=csv,noheader,nounits")
            .arg(format!("--loop-ms={}", interval.as_millis()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let stdout = child.stdout.take()?;
        let shared = Arc::new((Mutex::new(Figures::default()), Condvar::new()));
        let written = shared.clone();
        thread::spawn(move || {
            let (figures, changed) = &*written;
            let lock = || figures.lock();
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some((index, gpu)) = read(&line)
                    && index < 256
                {
                    lock().gpus.insert(index, (Instant::now(), gpu));
                    changed.notify_all();
                }
            }
            lock().ended = true;
            changed.notify_all();
        });
        Some(Nvidia { child, shared })
    }

    /// Waits for the first figures.
    pub(crate) fn wait(&self, timeout: Duration) {
        let (figures, changed) = &*self.shared;
        let mut figures = figures.lock();
        let is_silent = |figures: &mut Figures| figures.gpus.is_empty() && !figures.ended;
        changed.wait_while_for(&mut figures, is_silent, timeout);
    }

    /// Returns the figures, those of no GPU that has gone silent.
    pub(crate) fn gpus(&self) -> Vec<Accelerator> {
        let figures = self.shared.0.lock();
        let fresh = figures
            .gpus
            .values()
            .filter(|(written, _)| written.elapsed() < STALE);
        fresh.map(|(_, gpu)| gpu.clone()).collect()
    }
}

impl Drop for Nvidia {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a line of its table; what a GPU does not know is `[N/A]` or `[Not Supported]`.
fn read(line: &str) -> Option<(u32, Accelerator)> {
    let cells: Vec<&str> = line.splitn(8, ',').map(str::trim).collect();
    let number = |idx: usize| cells.get(idx).and_then(|cell| parse::number(cell));
    let index = u32::try_from(number(0)?).ok()?;
    let bytes = |idx| number(idx).map(|mebibytes| mebibytes.saturating_mul(1 << 20));
    Some((
        index,
        Accelerator {
            kind: AcceleratorKind::Gpu,
            id: format!("nvidia{index}"),
            name: parse::clean(cells.get(7)?),
            driver: Some("nvidia".to_owned()),
            percent: number(1).map(|percent| percent.min(100) as f64),
            memory_used_bytes: bytes(2),
            memory_total_bytes: bytes(3),
            frequency_mhz: number(5),
            max_frequency_mhz: number(6),
            celsius: number(4).map(|celsius| celsius as f64),
        },
    ))
}

/// Figures older than this are of a driver that hangs.
const STALE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_of_the_table_is_a_gpu() {
        let (index, gpu) = read("1, 37, 2048, 143771, 41, 345, 1980, NVIDIA H200, 141 GB").unwrap();
        assert_eq!(index, 1);
        assert_eq!(gpu.percent, Some(37.0));
        assert_eq!(gpu.memory_used_bytes, Some(2 << 30));
        assert_eq!(gpu.celsius, Some(41.0));
        assert_eq!(gpu.name, "NVIDIA H200, 141 GB");
        let (_, unknown) = read("0, [N/A], [N/A], 24576, [Not Supported], 1, 2, X").unwrap();
        assert_eq!((unknown.percent, unknown.celsius), (None, None));
        assert_eq!(read("No devices were found"), None);
    }

    proptest! {
        #[test]
        fn no_line_fails(line in "[0-9,\\[\\]NA/ ]{0,60}|\\PC{0,80}") {
            read(&line);
        }
    }
}

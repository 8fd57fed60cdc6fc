//! How much memory loaded models may take, and how much they take.
//!
//! Each model has an [`Account`] from before it is loaded until its memory is really free: its
//! weights, packed or in the mapped file (the same number of bytes up to padding, but for the types of
//! the fewest bits), and its KV cache, which grows. Nothing grows without asking its account, so the sum
//! keeps within the limit.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use llmsrv_engine::{MemoryAccount, PlacedBytes, Plan};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;

/// The memory of all models.
pub(crate) struct Memory {
    /// What was set; `None` = a share of what the machine has.
    limit: Option<u64>,
    /// The memory of each GPU.
    gpus: Vec<u64>,
    taken: Mutex<Taken>,
    /// A model's memory was given back, or can be.
    freed: Notify,
    /// The same, for threads that wait.
    freed_for_threads: Condvar,
    make_room: MakeRoom,
}

/// Asks an idle model to leave; `false` = there is none.
pub(crate) type MakeRoom = Box<dyn Fn() -> bool + Send + Sync>;

#[derive(Clone, Debug, Default)]
struct Taken {
    bytes: PlacedBytes,
    models: usize,
}

/// Bytes that a model takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryEstimate {
    pub(crate) weights: PlacedBytes,
    /// KV cache of one context.
    pub(crate) kv: PlacedBytes,
}

/// What one model holds; its drop gives it back.
pub(crate) struct Account {
    memory: Arc<Memory>,
    /// Bytes promised when the model was let in.
    promised: PlacedBytes,
    weights: PlacedBytes,
    kv: PlacedBytes,
}

impl Memory {
    /// `gpus` is the memory of each GPU; `make_room` is called when the KV cache of a model in use finds none.
    pub(crate) fn new(limit: Option<u64>, gpus: Vec<u64>, make_room: MakeRoom) -> Memory {
        Memory {
            limit,
            gpus,
            taken: Mutex::default(),
            freed: Notify::new(),
            freed_for_threads: Condvar::new(),
            make_room,
        }
    }

    /// Returns how many bytes all models together may take, measured now.
    pub(crate) fn limit(&self) -> PlacedBytes {
        let mut limit = PlacedBytes::host(self.host_limit());
        for (gpu, bytes) in self.gpus.iter().enumerate() {
            *limit.gpu_mut(gpu) = *bytes;
        }
        limit
    }

    /// Returns how many of them may be in the memory of the machine.
    ///
    /// Pages of mapped weights count as available memory, and so do the pages that this process and its workers have
    /// filled themselves: what the models hold is part of the result.
    fn host_limit(&self) -> u64 {
        self.limit.unwrap_or_else(|| {
            let ours = std::iter::once("self".to_owned()).chain(children());
            let ours =
                ours.filter_map(|pid| status_kib(&format!("/proc/{pid}/status"), "RssAnon:"));
            let ours: u64 = ours.sum();
            match available() {
                Some(available) => available.saturating_add(ours) / 10 * 9,
                None => u64::MAX,
            }
        })
    }

    /// Opens an account when there are fewer than `max_models` and the memory is there.
    pub(crate) fn open(
        self: &Arc<Memory>,
        need: &MemoryEstimate,
        max_models: usize,
    ) -> Option<Account> {
        let limit = self.limit();
        let mut taken = self.taken();
        let fits = need.total().fits(&limit.minus(&taken.bytes));
        if taken.models >= max_models || !fits {
            return None;
        }
        taken.models += 1;
        taken.bytes = taken.bytes.plus(&need.total());
        Some(Account {
            memory: self.clone(),
            promised: need.total(),
            weights: need.weights.clone(),
            kv: PlacedBytes::default(),
        })
    }

    /// Takes bytes for a model that has an account.
    fn take(&self, bytes: &PlacedBytes) -> bool {
        let limit = self.limit();
        let mut taken = self.taken();
        let fits = bytes.fits(&limit.minus(&taken.bytes));
        if fits {
            taken.bytes = taken.bytes.plus(bytes);
        }
        fits
    }

    /// Waits on a thread of its own until a model is gone, but not for ever.
    fn wait_for_fewer_than(&self, n_models: usize) {
        let still = |taken: &mut Taken| taken.models >= n_models;
        self.freed_for_threads
            .wait_while_for(&mut self.taken(), still, TIMEOUT);
    }

    /// Returns the bytes that the models hold, promised ones included.
    pub(crate) fn taken_bytes(&self) -> PlacedBytes {
        self.taken().bytes.clone()
    }

    /// Returns how many models hold memory.
    pub(crate) fn n_models(&self) -> usize {
        self.taken().models
    }

    /// Returns what is told when a model's memory was given back, or can be.
    pub(crate) fn freed(&self) -> &Notify {
        &self.freed
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock()
    }
}

impl Account {
    /// Takes over what the loaded model says of itself. It is there already, so it counts even
    /// where it is more than was promised.
    pub(crate) fn correct(&mut self, need: MemoryEstimate) {
        let before = self.bytes();
        self.promised = need.total();
        self.weights = need.weights;
        let after = self.bytes();
        let mut taken = self.memory.taken();
        taken.bytes = taken.bytes.minus(&before).plus(&after);
    }

    /// Returns what all models together may take.
    pub(crate) fn limit(&self) -> PlacedBytes {
        self.memory.limit()
    }

    /// Returns what the KV cache of this model may take as things are: what nobody has taken.
    pub(crate) fn room(&self) -> PlacedBytes {
        let others = self.memory.taken_bytes().minus(&self.bytes());
        let limit = self.memory.limit();
        limit.minus(&others).minus(&self.weights)
    }

    fn bytes(&self) -> PlacedBytes {
        self.promised.max(&self.weights.plus(&self.kv))
    }
}

impl MemoryAccount for Account {
    fn grow(&mut self, bytes: &PlacedBytes) -> bool {
        let before = self.bytes();
        self.kv = self.kv.plus(bytes);
        let more = self.bytes().minus(&before);
        if more.total() == 0 {
            return true;
        }
        for _ in 0..MOST_TO_LEAVE {
            let n_models = self.memory.n_models();
            if self.memory.take(&more) {
                return true;
            }
            if !(self.memory.make_room)() {
                break;
            }
            self.memory.wait_for_fewer_than(n_models);
        }
        self.kv = self.kv.minus(bytes);
        false
    }

    fn shrink(&mut self, bytes: &PlacedBytes) {
        let before = self.bytes();
        self.kv = self.kv.minus(bytes);
        let less = before.minus(&self.bytes());
        let mut taken = self.memory.taken();
        taken.bytes = taken.bytes.minus(&less);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        {
            let mut taken = self.memory.taken();
            taken.bytes = taken.bytes.minus(&self.bytes());
            taken.models -= 1;
        }
        self.memory.freed.notify_waiters();
        self.memory.freed_for_threads.notify_all();
    }
}

impl MemoryEstimate {
    pub(crate) fn total(&self) -> PlacedBytes {
        self.weights.plus(&self.kv)
    }

    /// Returns what two models take together.
    pub(crate) fn and(&self, other: &MemoryEstimate) -> MemoryEstimate {
        MemoryEstimate {
            weights: self.weights.plus(&other.weights),
            kv: self.kv.plus(&other.kv),
        }
    }

    /// Returns what a model takes that lies partly on GPUs, with one context.
    pub(crate) fn planned(plan: &Plan, context: impl Fn(usize) -> usize) -> MemoryEstimate {
        let weights = plan.weights.plus(&plan.activations);
        let needed = plan.needed(context(plan.context_length));
        MemoryEstimate {
            kv: needed.minus(&weights),
            weights,
        }
    }
}

/// Returns the memory that can be had without swapping, in bytes: of the machine, or of the
/// control group this process is in where that is less.
pub(crate) fn available() -> Option<u64> {
    let machine = status_kib("/proc/meminfo", "MemAvailable:");
    match (machine, group_available()) {
        (Some(machine), Some(group)) => Some(machine.min(group)),
        (machine, group) => machine.or(group),
    }
}

/// Returns the memory that this process can ever have, in bytes: that of the machine, or what its
/// control group or its limits allow where that is less.
pub fn total() -> Option<u64> {
    let machine = status_kib("/proc/meminfo", "MemTotal:");
    let group = own_groups(|group| {
        let max = std::fs::read_to_string(group.join("memory.max")).ok()?;
        max.trim().parse().ok()
    });
    let machine = [machine, group].into_iter().flatten();
    machine.chain(own_limits()).min()
}

/// Returns what is allowed to this process alone, by `ulimit` for example.
fn own_limits() -> Vec<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let of = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    ["Max address space", "Max data size"]
        .into_iter()
        .filter_map(of)
        .collect()
}

/// Returns the ids of the processes that threads of this one have started.
fn children() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = tasks.flatten().filter_map(|task| {
        let list = std::fs::read_to_string(task.path().join("children"));
        list.ok()
    });
    let ids = lists.map(|list| {
        let ids = list.split_whitespace().map(str::to_owned);
        ids.collect::<Vec<_>>()
    });
    ids.flatten().collect()
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn resident() -> Option<u64> {
    status_kib("/proc/self/status", "VmRSS:")
}

/// Reads a line such as `VmRSS:   1234 kB`, in bytes.
fn status_kib(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// What the control group (version 2) and those around it leave.
fn group_available() -> Option<u64> {
    own_groups(left_in)
}

/// Returns the least that the control group (version 2) and those around it say.
fn own_groups(say: impl Fn(&Path) -> Option<u64>) -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let own: PathBuf = Path::new(own)
        .components()
        .filter(|part| matches!(part, std::path::Component::Normal(_)))
        .collect();
    own.ancestors()
        .filter_map(|group| say(&root.join(group)))
        .min()
}

/// What one control group leaves; its page cache can be dropped and so is available.
fn left_in(group: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let max: u64 = read("memory.max")?.trim().parse().ok()?;
    let current: u64 = read("memory.current")?.trim().parse().ok()?;
    let cache: u64 = read("memory.stat")?
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| matches!(*name, "active_file" | "inactive_file"))
        .filter_map(|(_, bytes)| bytes.parse::<u64>().ok())
        .sum();
    Some(max.saturating_sub(current.saturating_sub(cache)))
}

/// Waits until a model's memory was given back, but not for ever: other programs free memory, too.
pub(crate) async fn wait_for(freed: impl Future<Output = ()>) {
    let _ = tokio::time::timeout(TIMEOUT, freed).await;
}

/// How long to wait for one model to leave.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Models that are asked to leave before a request is refused.
const MOST_TO_LEAVE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn need(weights: u64, kv: u64) -> MemoryEstimate {
        MemoryEstimate {
            weights: PlacedBytes::host(weights),
            kv: PlacedBytes::host(kv),
        }
    }

    #[test]
    fn accounts_keep_within_the_limit() {
        let memory = Arc::new(Memory::new(Some(100), Vec::new(), Box::new(|| false)));
        let taken = || memory.taken_bytes().total();
        let grow = |account: &mut Account, bytes| account.grow(&PlacedBytes::host(bytes));
        let mut first = memory.open(&need(40, 10), 2).unwrap();
        assert!(grow(&mut first, 10) && taken() == 50, "promised");
        assert!(grow(&mut first, 20) && taken() == 70);
        assert!(!grow(&mut first, 31) && taken() == 70);
        first.shrink(&PlacedBytes::host(15));
        assert_eq!(taken(), 55);
        assert!(memory.open(&need(46, 0), 2).is_none(), "no memory");
        let second = memory.open(&need(45, 0), 2).unwrap();
        assert!(memory.open(&need(0, 0), 2).is_none(), "too many");
        assert_eq!((memory.n_models(), taken()), (2, 100));
        drop(second);
        first.correct(need(80, 0));
        assert_eq!((memory.n_models(), taken()), (1, 95));
        drop(first);
        assert_eq!((memory.n_models(), taken()), (0, 0));
    }

    /// The part in the memory of the machine counts against its limit, the part on a GPU against that of the GPU.
    #[test]
    fn each_place_has_its_limit() {
        let placed = |host, gpu| {
            let mut bytes = PlacedBytes::host(host);
            *bytes.gpu_mut(0) = gpu;
            bytes
        };
        let split = |host, gpu| MemoryEstimate {
            weights: placed(host, gpu),
            kv: PlacedBytes::default(),
        };
        let memory = Arc::new(Memory::new(Some(100), vec![50], Box::new(|| false)));
        assert!(memory.open(&split(0, 51), 9).is_none(), "the GPU is full");
        assert!(memory.open(&split(101, 0), 9).is_none(), "the machine is");
        let mut first = memory.open(&split(60, 30), 9).unwrap();
        assert_eq!(first.room(), placed(40, 20));
        assert!(first.grow(&placed(40, 20)));
        assert!(!first.grow(&placed(0, 1)) && !first.grow(&placed(1, 0)));
        first.shrink(&placed(10, 20));
        assert!(!first.grow(&placed(11, 0)) && first.grow(&placed(10, 20)));
        assert!(memory.open(&need(1, 0), 9).is_none());
        drop(first);
        assert_eq!(memory.taken_bytes().total(), 0);
    }

    #[test]
    fn children_are_found() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let found = children();
        child.kill().unwrap();
        child.wait().unwrap();
        if Path::new("/proc/self/task").exists() {
            assert!(found.contains(&child.id().to_string()), "{found:?}");
        }
    }

    #[test]
    fn the_machine_is_measured() {
        let limit = Memory::new(None, Vec::new(), Box::new(|| false))
            .limit()
            .host;
        assert!(limit > 1 << 20, "{limit}");
        if Path::new("/proc/self/status").exists() {
            assert!(limit < u64::MAX && resident().unwrap() > 1 << 20);
            assert!(total().unwrap() > resident().unwrap());
        }
    }
}

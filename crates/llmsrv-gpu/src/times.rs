//! How long kernels take by the device's own clock. One of the few files with `unsafe`: it calls drivers.
#![expect(
    unsafe_code,
    reason = "calls of a driver; what each needs is said beside it"
)]

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use ash::vk;

use crate::{Error, device::Device, error::failed};

/// What one kernel took, over several calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelTime {
    /// Its name.
    pub kernel: &'static str,
    /// How often it ran.
    pub calls: u64,
    /// How long that took together, by the device's clock.
    pub seconds: f64,
    /// Bytes that it had to read and write together, each operand once a call.
    pub bytes: u64,
}

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static TIMES: RefCell<BTreeMap<&'static str, KernelTime>> = RefCell::default();
}

/// From now on kernels that this thread records are timed, on all devices that have a clock, or not. Timed ones do not
/// run at the same time as others, so a step takes longer than it would.
pub fn time_kernels(is_on: bool) {
    IS_ON.set(is_on);
}

/// Returns what was timed since the last call, the kernel that took longest first.
pub fn take_kernel_times() -> Vec<KernelTime> {
    let mut times: Vec<KernelTime> = TIMES.take().into_values().collect();
    times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    times
}

/// Whether this thread wants times.
pub(crate) fn is_on() -> bool {
    IS_ON.get()
}

/// The timestamps of one device between two waits.
pub(crate) struct Clock {
    pool: vk::QueryPool,
    /// What was timed, with its bytes; each has two timestamps.
    timed: Vec<(&'static str, u64)>,
}

impl Clock {
    /// Makes a clock; `None` of a device whose queue has none.
    pub(crate) fn new(device: &Device) -> Result<Option<Clock>, Error> {
        if device.tick.is_none() {
            return Ok(None);
        }
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(2 * MOST_TIMED);
        // SAFETY: the device lives, and the structure until the call returns.
        let pool = unsafe { device.calls.create_query_pool(&info, None) };
        Ok(Some(Clock {
            pool: pool.map_err(failed("vkCreateQueryPool"))?,
            timed: Vec::new(),
        }))
    }

    /// Whether it has no room until [`Clock::collect`].
    pub(crate) fn is_full(&self) -> bool {
        self.timed.len() >= MOST_TIMED as usize
    }

    /// Records the time before a kernel, which a barrier parts from those before it.
    pub(crate) fn begin(&mut self, device: &Device, commands: vk::CommandBuffer) {
        let first = 2 * self.timed.len() as u32;
        // SAFETY: commands are being recorded, outside of a render pass. The pool has the queries, and none of them is in
        // use: the queue had done all that was recorded when `timed` was emptied.
        unsafe {
            if first == 0 {
                let calls = &device.calls;
                calls.cmd_reset_query_pool(commands, self.pool, 0, 2 * MOST_TIMED);
            }
            self.stamp(device, commands, first);
        }
    }

    /// Records the time after it.
    pub(crate) fn end(
        &mut self,
        device: &Device,
        commands: vk::CommandBuffer,
        (kernel, bytes): (&'static str, u64),
    ) {
        // SAFETY: as in `begin`.
        unsafe { self.stamp(device, commands, 2 * self.timed.len() as u32 + 1) };
        self.timed.push((kernel, bytes));
    }

    /// SAFETY: commands are being recorded, and the query is unused.
    unsafe fn stamp(&self, device: &Device, commands: vk::CommandBuffer, query: u32) {
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: as the caller says.
        unsafe {
            device
                .calls
                .cmd_write_timestamp(commands, stage, self.pool, query);
        };
    }

    /// Adds what was timed to the times of this thread. The queue has done all that was recorded.
    pub(crate) fn collect(&mut self, device: &Device) -> Result<(), vk::Result> {
        let mut stamps = vec![0_u64; 2 * self.timed.len()];
        if stamps.is_empty() {
            return Ok(());
        }
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the pool belongs to the device, and the queries were written by commands that are done.
        unsafe {
            device
                .calls
                .get_query_pool_results(self.pool, 0, &mut stamps, flags)?;
        }
        let tick = device.tick.unwrap_or_default();
        TIMES.with_borrow_mut(|times| {
            let pairs = stamps.as_chunks::<2>().0;
            for ((kernel, bytes), [begin, end]) in self.timed.drain(..).zip(pairs) {
                let time = times.entry(kernel).or_insert(KernelTime {
                    kernel,
                    calls: 0,
                    seconds: 0.0,
                    bytes: 0,
                });
                time.calls += 1;
                time.seconds += tick.seconds(*begin, *end);
                time.bytes += bytes;
            }
        });
        Ok(())
    }

    /// Frees it. Nothing that uses it runs or is recorded.
    pub(crate) fn free(&self, device: &Device) {
        // SAFETY: nothing uses it, as the caller says, and it belongs to the device.
        unsafe { device.calls.destroy_query_pool(self.pool, None) };
    }
}

/// Kernels that are timed between two waits at most.
const MOST_TIMED: u32 = 4096;

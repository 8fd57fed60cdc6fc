//! Commands of a step: recorded one after another, with barriers where [`Hazards`] wants them, submitted together, and
//! waited for with a deadline. It owns all that is made of the device. One of the few files with `unsafe`: it calls
//! drivers.
#![expect(
    unsafe_code,
    reason = "calls of a driver; what each needs is said beside it"
)]

use std::{
    cell::Cell,
    collections::HashMap,
    mem::ManuallyDrop,
    time::{Duration, Instant},
};

use ash::vk;

use crate::{
    Error,
    device::{BINDINGS, Choice, Device},
    error::failed,
    hazards::{Hazards, Span},
    memory::{self, Account, Allocation, Place},
    times::{self, Clock},
};

/// A buffer of a [`Recorder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(u32);

/// A part of a buffer that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte; a multiple of 256 where a kernel binds it.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// What a kernel does with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read(Region),
    /// Writes it, and perhaps reads it.
    Write(Region),
    /// Nothing is bound here.
    None,
}

/// Gives the SPIR-V of a kernel. Its entry point has the kernel's name, but for our products.
pub type Modules = fn(&str) -> Result<Vec<u32>, Error>;

/// Records and submits commands.
pub struct Recorder {
    device: ManuallyDrop<Device>,
    modules: Modules,
    account: Account,
    /// Freed ones leave a hole.
    buffers: Vec<Option<Allocation>>,
    upload: Allocation,
    /// Bytes of it that recorded commands copy.
    uploaded: usize,
    download: Option<Allocation>,
    set_layout: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    pipelines: HashMap<&'static str, vk::Pipeline>,
    set_pools: Vec<vk::DescriptorPool>,
    /// Sets left in the last pool.
    sets_left: u32,
    sets: HashMap<[Option<Region>; BINDINGS as usize], vk::DescriptorSet>,
    pool: vk::CommandPool,
    /// Of `commands`, these are in use: the last one is being recorded if `recording`.
    n_used: usize,
    /// Each with the fence of its submission.
    commands: Vec<(vk::CommandBuffer, vk::Fence)>,
    recording: bool,
    hazards: Hazards,
    /// Whether something was copied since the last barrier.
    copied: bool,
    /// What was recorded since the last submission, in multiplications.
    work: u64,
    /// The kernels recorded since then.
    n_kernels: u32,
    /// Made when kernels are timed for the first time.
    clock: Option<Clock>,
    /// Why nothing works any more.
    lost: Option<String>,
    /// A kernel whose module is changed.
    #[cfg(test)]
    changed: Option<&'static str>,
}

/// What is recorded next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Kernel,
    Copy,
}

/// What a kernel does, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Multiplications.
    pub multiplications: u64,
    /// Bytes that it must read and write, each operand once; `None` = all that it binds.
    pub bytes: Option<u64>,
}

impl Work {
    pub(crate) fn new(multiplications: u64, bytes: u64) -> Work {
        Work {
            multiplications,
            bytes: Some(bytes),
        }
    }
}

impl From<u64> for Work {
    fn from(multiplications: u64) -> Work {
        Work {
            multiplications,
            bytes: None,
        }
    }
}

/// Commands that a thread recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Kernels.
    pub dispatches: u64,
    /// Bytes that they must read and write, each operand of a kernel once.
    pub kernel_bytes: u64,
    /// Barriers between them.
    pub barriers: u64,
    /// Bytes copied to the device.
    pub uploaded_bytes: u64,
    /// Bytes copied from it.
    pub downloaded_bytes: u64,
    /// Times the host waited for the device.
    pub waits: u64,
    /// How long it was in calls that give commands to the device and wait for it.
    pub waited: Duration,
}

thread_local! {
    static COUNTS: Cell<Counts> = Cell::default();
}

/// Returns what this thread recorded so far, on all devices.
pub fn counts() -> Counts {
    COUNTS.get()
}

fn count(add: impl FnOnce(&mut Counts)) {
    let mut counts = COUNTS.get();
    add(&mut counts);
    COUNTS.set(counts);
}

impl Recorder {
    /// Opens a device, as [`Device::open`].
    pub(crate) fn open(choice: &Choice, number: usize) -> Result<Recorder, Error> {
        let account = Account::new(choice.leave_free_bytes, choice.limit_bytes);
        Recorder::of(
            Device::open(choice, number)?,
            account,
            crate::modules::words,
        )
    }

    /// Opens the device with this number among [`devices`](crate::devices), whether or not the kernels of this crate
    /// run on it, for kernels of at most 4 buffers, which every device takes.
    pub fn open_any(number: usize, modules: Modules) -> Result<Recorder, Error> {
        Recorder::of(Device::open_any(number)?, Account::default(), modules)
    }

    fn of(device: Device, account: Account, modules: Modules) -> Result<Recorder, Error> {
        let upload = memory::allocate(&device, &account, UPLOAD_BYTES as u64, Place::Upload)?;
        let mut recorder = Recorder {
            device: ManuallyDrop::new(device),
            modules,
            account,
            buffers: Vec::new(),
            upload,
            uploaded: 0,
            download: None,
            set_layout: vk::DescriptorSetLayout::null(),
            layout: vk::PipelineLayout::null(),
            pipelines: HashMap::new(),
            set_pools: Vec::new(),
            sets_left: 0,
            sets: HashMap::new(),
            pool: vk::CommandPool::null(),
            n_used: 0,
            commands: Vec::new(),
            recording: false,
            hazards: Hazards::default(),
            copied: false,
            work: 0,
            n_kernels: 0,
            clock: None,
            lost: None,
            #[cfg(test)]
            changed: None,
        };
        recorder.prepare()?;
        Ok(recorder)
    }

    /// Makes what all kernels share. What is made before a failure goes with the recorder.
    fn prepare(&mut self) -> Result<(), Error> {
        let bindings: Vec<_> = (0..self.device.n_bindings)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let params = [vk::PushConstantRange {
            stage_flags: vk::ShaderStageFlags::COMPUTE,
            offset: 0,
            size: PARAMS_BYTES,
        }];
        let calls = &self.device.calls;
        // SAFETY: the device lives, and the structures until the calls return.
        unsafe {
            self.set_layout = calls
                .create_descriptor_set_layout(
                    &vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings),
                    None,
                )
                .map_err(failed("vkCreateDescriptorSetLayout"))?;
            self.layout = calls
                .create_pipeline_layout(
                    &vk::PipelineLayoutCreateInfo::default()
                        .set_layouts(&[self.set_layout])
                        .push_constant_ranges(&params),
                    None,
                )
                .map_err(failed("vkCreatePipelineLayout"))?;
            self.pool = calls
                .create_command_pool(
                    &vk::CommandPoolCreateInfo::default().queue_family_index(self.device.family),
                    None,
                )
                .map_err(failed("vkCreateCommandPool"))?;
        }
        Ok(())
    }

    /// Makes a buffer on the device.
    pub fn allocate(&mut self, bytes: u64) -> Result<BufferId, Error> {
        let made = memory::allocate(&self.device, &self.account, bytes, Place::Device)?;
        let id = BufferId(self.buffers.len() as u32);
        self.buffers.push(Some(made));
        Ok(id)
    }

    /// Frees buffers, after all that was recorded is done.
    pub fn free(&mut self, ids: &[BufferId]) -> Result<(), Error> {
        self.finish()?;
        self.forget_sets();
        for id in ids {
            let hole = self.buffers.get_mut(id.0 as usize).and_then(Option::take);
            if let Some(allocation) = hole {
                memory::free(&self.device, &self.account, &allocation);
            }
        }
        Ok(())
    }

    /// Records a kernel. `params` has at most 32 words.
    pub fn dispatch(
        &mut self,
        kernel: &'static str,
        bindings: &[Access],
        params: &[u32],
        groups: [u32; 3],
        work: impl Into<Work>,
    ) -> Result<(), Error> {
        if groups.contains(&0) {
            return Ok(());
        }
        let Work {
            multiplications,
            bytes,
        } = work.into();
        let is_much =
            self.work > 0 && self.work.saturating_add(multiplications) > self.work_limit();
        if is_much || self.n_kernels >= MOST_KERNELS {
            self.end_recording()?;
        }
        let is_timed = times::is_on() && self.has_clock()?;
        let pipeline = self.pipeline(kernel)?;
        let set = self.set(bindings)?;
        let commands = self.recording()?;
        self.order(bindings, commands, Command::Kernel);
        self.work += multiplications;
        self.n_kernels += 1;
        let bound = bindings.iter().map(|access| match access {
            Access::Read(region) | Access::Write(region) => region.bytes,
            Access::None => 0,
        });
        let bytes = bytes.unwrap_or_else(|| bound.sum());
        count(|counts| {
            counts.dispatches += 1;
            counts.kernel_bytes += bytes;
        });
        if is_timed {
            self.barrier(commands, true);
        }
        if let Some(clock) = self.clock.as_mut().filter(|_| is_timed) {
            clock.begin(&self.device, commands);
        }
        let calls = &self.device.calls;
        // SAFETY: commands are being recorded; pipeline, layout and set belong together and to the device; the parameters
        // are no longer than the range of the layout.
        unsafe {
            calls.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, pipeline);
            calls.cmd_bind_descriptor_sets(
                commands,
                vk::PipelineBindPoint::COMPUTE,
                self.layout,
                0,
                &[set],
                &[],
            );
            let params = params
                .get(..params.len().min(PARAMS_BYTES as usize / 4))
                .unwrap_or_default();
            calls.cmd_push_constants(
                commands,
                self.layout,
                vk::ShaderStageFlags::COMPUTE,
                0,
                bytemuck::cast_slice(params),
            );
            let [x, y, z] = groups;
            calls.cmd_dispatch(commands, x, y, z);
        }
        if let Some(clock) = self.clock.as_mut().filter(|_| is_timed) {
            clock.end(&self.device, commands, (kernel, bytes));
        }
        Ok(())
    }

    /// Makes room on the clock of the device; returns whether it has one.
    fn has_clock(&mut self) -> Result<bool, Error> {
        if self.clock.is_none() {
            self.clock = Clock::new(&self.device)?;
        }
        if self.clock.as_ref().is_some_and(Clock::is_full) {
            self.finish()?;
        }
        Ok(self.clock.is_some())
    }

    /// Returns whether the device can time kernels.
    pub(crate) fn times_kernels(&self) -> bool {
        self.device.tick.is_some()
    }

    /// Compiles this kernel to another one, and all others as they are.
    #[cfg(test)]
    pub(crate) fn change(&mut self, kernel: Option<&'static str>) -> Result<(), Error> {
        self.finish()?;
        for changed in [self.changed, kernel].into_iter().flatten() {
            if let Some(pipeline) = self.pipelines.remove(changed) {
                // SAFETY: nothing runs, so nothing uses it.
                unsafe { self.device.calls.destroy_pipeline(pipeline, None) };
            }
        }
        self.changed = kernel;
        Ok(())
    }

    /// Returns the kernels that were used so far.
    #[cfg(test)]
    pub(crate) fn kernels(&self) -> Vec<&'static str> {
        self.pipelines.keys().copied().collect()
    }

    /// Copies bytes to a region, in the order of the recorded commands.
    pub fn upload(&mut self, mut bytes: &[u8], to: Region) -> Result<(), Error> {
        let mut start = to.start;
        if bytes.len() as u64 > to.bytes {
            return Err(Error::Unsupported(
                "more bytes than there is room for".into(),
            ));
        }
        count(|counts| counts.uploaded_bytes += bytes.len() as u64);
        while !bytes.is_empty() {
            if self.uploaded == UPLOAD_BYTES {
                self.finish()?;
            }
            let n = bytes.len().min(UPLOAD_BYTES - self.uploaded);
            let (now, later) = bytes.split_at(n);
            // Copies move whole words.
            let padded = n.next_multiple_of(4).min(UPLOAD_BYTES - self.uploaded);
            memory::mapped(&self.device, &self.upload, self.uploaded, n, |memory| {
                memory.copy_from_slice(now);
            })?;
            let commands = self.recording()?;
            let target = Region {
                start,
                bytes: padded as u64,
                ..to
            };
            self.order(&[Access::Write(target)], commands, Command::Copy);
            let region = [vk::BufferCopy {
                src_offset: self.uploaded as u64,
                dst_offset: start,
                size: padded as u64,
            }];
            let buffer = self.buffer(target)?;
            // SAFETY: commands are being recorded; both buffers live and are as long (see above, and `buffer`).
            unsafe {
                self.device
                    .calls
                    .cmd_copy_buffer(commands, self.upload.buffer, buffer, &region);
            };
            self.uploaded += padded;
            start += n as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Copies a region to another one that does not overlap it.
    pub(crate) fn copy(&mut self, from: Region, to: Region) -> Result<(), Error> {
        let commands = self.recording()?;
        self.order(
            &[Access::Read(from), Access::Write(to)],
            commands,
            Command::Copy,
        );
        let region = [vk::BufferCopy {
            src_offset: from.start,
            dst_offset: to.start,
            size: from.bytes.min(to.bytes),
        }];
        let (from, to) = (self.buffer(from)?, self.buffer(to)?);
        // SAFETY: commands are being recorded, both buffers live and have the regions (see `buffer`).
        unsafe {
            self.device
                .calls
                .cmd_copy_buffer(commands, from, to, &region);
        };
        Ok(())
    }

    /// Sets a region to zeros.
    pub(crate) fn clear(&mut self, region: Region) -> Result<(), Error> {
        let commands = self.recording()?;
        self.order(&[Access::Write(region)], commands, Command::Copy);
        let buffer = self.buffer(region)?;
        // SAFETY: commands are being recorded, the buffer lives and has the region (see `buffer`), which is of whole words.
        unsafe {
            let calls = &self.device.calls;
            calls.cmd_fill_buffer(commands, buffer, region.start, region.bytes, 0);
        };
        Ok(())
    }

    /// Runs what was recorded and copies a region to the host.
    pub fn read(&mut self, from: Region, out: &mut [u8]) -> Result<(), Error> {
        let bytes = from.bytes.min(out.len() as u64);
        count(|counts| counts.downloaded_bytes += bytes);
        let is_short = |download: &Allocation| download.bytes < bytes;
        if self.download.as_ref().is_none_or(is_short) {
            self.finish()?;
            if let Some(old) = self.download.take() {
                memory::free(&self.device, &self.account, &old);
            }
            let made = memory::allocate(&self.device, &self.account, bytes, Place::Download)?;
            self.download = Some(made);
        }
        let commands = self.recording()?;
        self.order(&[Access::Read(from)], commands, Command::Copy);
        let source = self.buffer(from)?;
        let region = [vk::BufferCopy {
            src_offset: from.start,
            dst_offset: 0,
            size: bytes,
        }];
        if let Some(download) = &self.download {
            // SAFETY: commands are being recorded, both buffers live and are long enough (see above, and `buffer`).
            unsafe {
                self.device
                    .calls
                    .cmd_copy_buffer(commands, source, download.buffer, &region);
            };
        }
        self.finish()?;
        if let Some(download) = &self.download {
            let n = bytes as usize;
            memory::mapped(&self.device, download, 0, n, |memory| {
                if let Some(out) = out.get_mut(..n) {
                    out.copy_from_slice(memory);
                }
            })?;
        }
        Ok(())
    }

    /// Runs what was recorded and waits for it.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.check()?;
        if self.n_used == 0 {
            return Ok(());
        }
        let began = Instant::now();
        let done = self.wait();
        count(|counts| {
            counts.waits += 1;
            counts.waited += began.elapsed();
        });
        done
    }

    /// Gives what was recorded to the queue and waits until it has done all.
    fn wait(&mut self) -> Result<(), Error> {
        self.end_recording()?;
        let used = self.commands.get(..self.n_used).unwrap_or_default();
        let fences: Vec<vk::Fence> = used.iter().map(|(_, fence)| *fence).collect();
        // One after another: each has the whole time for itself.
        for fence in &fences {
            let deadline = DEADLINE.as_nanos() as u64;
            // SAFETY: the fence belongs to the device and was given to the queue.
            let waited = unsafe { self.device.calls.wait_for_fences(&[*fence], true, deadline) };
            waited.map_err(|error| self.lose("vkWaitForFences", error))?;
        }
        // SAFETY: the queue has done all, so nothing is in use.
        let reset = unsafe {
            self.device.calls.reset_fences(&fences).and_then(|()| {
                self.device
                    .calls
                    .reset_command_pool(self.pool, vk::CommandPoolResetFlags::empty())
            })
        };
        reset.map_err(|error| self.lose("vkResetCommandPool", error))?;
        if let Some(clock) = &mut self.clock {
            let collected = clock.collect(&self.device);
            collected.map_err(|error| self.lose("vkGetQueryPoolResults", error))?;
        }
        (self.n_used, self.uploaded) = (0, 0);
        if self.sets.len() > MOST_SETS {
            self.forget_sets();
        }
        Ok(())
    }

    /// Bytes that a kernel can bind at most.
    pub fn max_binding(&self) -> u64 {
        self.device.max_binding
    }

    /// Returns how many bytes may still be taken on the device.
    pub(crate) fn free_bytes(&self) -> u64 {
        memory::free_bytes(&self.device, &self.account)
    }

    /// Returns how many bytes are taken on the device.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.account.taken_bytes()
    }

    /// Returns the device as its driver describes it.
    pub(crate) fn device(&self) -> &crate::Found {
        &self.device.found
    }

    fn check(&self) -> Result<(), Error> {
        match &self.lost {
            None => Ok(()),
            Some(reason) => Err(Error::Lost {
                device: self.device.found.name.clone(),
                reason: reason.clone(),
            }),
        }
    }

    /// After a failure of the queue nobody knows what the device does.
    fn lose(&mut self, call: &str, error: vk::Result) -> Error {
        let reason = match error {
            vk::Result::TIMEOUT => format!("no answer within {} seconds", DEADLINE.as_secs()),
            error => format!("{call}: {error}"),
        };
        self.lost = Some(reason.clone());
        Error::Lost {
            device: self.device.found.name.clone(),
            reason,
        }
    }

    /// What may be submitted at once: a fraction of a second of a slow device, because systems reset devices that
    /// do not answer for some.
    fn work_limit(&self) -> u64 {
        match self.device.found.kind {
            crate::Kind::Discrete | crate::Kind::Virtual => 1 << 37,
            crate::Kind::Integrated | crate::Kind::Other | crate::Kind::Software => 1 << 34,
        }
    }

    /// Returns the commands being recorded.
    fn recording(&mut self) -> Result<vk::CommandBuffer, Error> {
        self.check()?;
        if let (true, Some((commands, _))) = (
            self.recording,
            self.commands.get(self.n_used.saturating_sub(1)),
        ) {
            return Ok(*commands);
        }
        let calls = &self.device.calls;
        let commands = if let Some((commands, _)) = self.commands.get(self.n_used) {
            *commands
        } else {
            let info = vk::CommandBufferAllocateInfo::default()
                .command_pool(self.pool)
                .command_buffer_count(1);
            // SAFETY: the pool lives and is used by this thread alone; the structures live until the calls return.
            let (made, fence) = unsafe {
                let made = calls
                    .allocate_command_buffers(&info)
                    .map_err(failed("vkAllocateCommandBuffers"))?;
                let fence = calls
                    .create_fence(&vk::FenceCreateInfo::default(), None)
                    .map_err(failed("vkCreateFence"))?;
                (made.first().copied().unwrap_or_default(), fence)
            };
            self.commands.push((made, fence));
            made
        };
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the commands are not in use: they are new, or the pool was reset after the queue had done them.
        unsafe { calls.begin_command_buffer(commands, &begin) }
            .map_err(failed("vkBeginCommandBuffer"))?;
        (self.recording, self.n_used) = (true, self.n_used + 1);
        (self.work, self.n_kernels) = (0, 0);
        self.hazards.clear();
        self.barrier(commands, true);
        self.copied = false;
        Ok(commands)
    }

    /// Ends the commands being recorded and gives them to the queue.
    fn end_recording(&mut self) -> Result<(), Error> {
        if !self.recording {
            return Ok(());
        }
        let Some((commands, fence)) = self.commands.get(self.n_used.saturating_sub(1)).copied()
        else {
            return Ok(());
        };
        let memory = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ)];
        let buffers = [commands];
        let submit = [vk::SubmitInfo::default().command_buffers(&buffers)];
        // SAFETY: commands are being recorded, and then not any more; the structures live until the calls return.
        let submitted = unsafe {
            self.device.calls.cmd_pipeline_barrier(
                commands,
                vk::PipelineStageFlags::TRANSFER,
                vk::PipelineStageFlags::HOST,
                vk::DependencyFlags::empty(),
                &memory,
                &[],
                &[],
            );
            let calls = &self.device.calls;
            calls
                .end_command_buffer(commands)
                .and_then(|()| calls.queue_submit(self.device.queue, &submit, fence))
        };
        (self.recording, self.work, self.n_kernels) = (false, 0, 0);
        submitted.map_err(|error| self.lose("vkQueueSubmit", error))
    }

    /// Records a barrier if what follows must wait for what was recorded.
    fn order(&mut self, accesses: &[Access], commands: vk::CommandBuffer, next: Command) {
        let span = |region: &Region| Span {
            buffer: u64::from(region.buffer.0),
            bytes: region.start..region.start + region.bytes,
        };
        let reads = accesses.iter().filter_map(|access| match access {
            Access::Read(region) => Some(span(region)),
            Access::Write(_) | Access::None => None,
        });
        let writes = accesses.iter().filter_map(|access| match access {
            Access::Write(region) => Some(span(region)),
            Access::Read(_) | Access::None => None,
        });
        let (reads, writes): (Vec<_>, Vec<_>) = (reads.collect(), writes.collect());
        if self.hazards.next(&reads, &writes) {
            count(|counts| counts.barriers += 1);
            self.barrier(commands, self.copied || next == Command::Copy);
            self.copied = false;
        }
        self.copied |= next == Command::Copy;
    }

    /// Lets what follows wait for, and see, what came before. Most barriers stand between kernels, and devices are done
    /// with these sooner if copies have no part in them.
    fn barrier(&self, commands: vk::CommandBuffer, with_copies: bool) {
        let mut stages = vk::PipelineStageFlags::COMPUTE_SHADER;
        let mut written = vk::AccessFlags::SHADER_WRITE;
        let mut read = vk::AccessFlags::SHADER_READ;
        if with_copies {
            stages |= vk::PipelineStageFlags::TRANSFER;
            written |= vk::AccessFlags::TRANSFER_WRITE;
            read |= vk::AccessFlags::TRANSFER_READ;
        }
        let memory = [vk::MemoryBarrier::default()
            .src_access_mask(written)
            .dst_access_mask(read | written)];
        // SAFETY: commands are being recorded.
        unsafe {
            self.device.calls.cmd_pipeline_barrier(
                commands,
                stages,
                stages,
                vk::DependencyFlags::empty(),
                &memory,
                &[],
                &[],
            );
        }
    }

    /// Returns the buffer of a region, if it has the region.
    fn buffer(&self, region: Region) -> Result<vk::Buffer, Error> {
        let allocation = self
            .buffers
            .get(region.buffer.0 as usize)
            .and_then(Option::as_ref);
        let end = region.start.checked_add(region.bytes);
        match (allocation, end) {
            (Some(allocation), Some(end)) if end <= allocation.bytes => Ok(allocation.buffer),
            _ => Err(Error::Unsupported(
                "a part of a buffer that does not exist".into(),
            )),
        }
    }

    fn pipeline(&mut self, kernel: &'static str) -> Result<vk::Pipeline, Error> {
        if let Some(pipeline) = self.pipelines.get(kernel) {
            return Ok(*pipeline);
        }
        let code = (self.modules)(kernel)?;
        #[cfg(test)]
        let code = if self.changed == Some(kernel) {
            changed(code)
        } else {
            code
        };
        // Modules have one entry point each: for products it is called as in the source.
        let entry = match kernel.rsplit_once('_') {
            Some((name, n)) if name.starts_with("dot_") => match n {
                "1" | "8" => c"dots".to_owned(),
                _ => c"tiles_of_rows".to_owned(),
            },
            Some((name, _)) if name.starts_with("mma_") => c"matrices".to_owned(),
            Some(("f32" | "f16" | "bf16", "1" | "8")) => c"values".to_owned(),
            Some((_, "1" | "8")) => c"blocks".to_owned(),
            _ => std::ffi::CString::new(kernel).unwrap_or_default(),
        };
        let calls = &self.device.calls;
        // SAFETY: the device lives, and the structures until the calls return. The shader is valid SPIR-V: it was checked
        // and written by naga. It is not needed once the pipeline is there.
        let made = unsafe {
            let shader = calls
                .create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&code), None)
                .map_err(failed("vkCreateShaderModule"))?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(shader)
                .name(&entry);
            let info = [vk::ComputePipelineCreateInfo::default()
                .stage(stage)
                .layout(self.layout)];
            let made = calls.create_compute_pipelines(vk::PipelineCache::null(), &info, None);
            calls.destroy_shader_module(shader, None);
            made
        };
        let made = made.map_err(|(_, error)| failed("vkCreateComputePipelines")(error))?;
        let pipeline = made.first().copied().unwrap_or_default();
        self.pipelines.insert(kernel, pipeline);
        Ok(pipeline)
    }

    /// Returns the descriptor set that binds these regions.
    fn set(&mut self, bindings: &[Access]) -> Result<vk::DescriptorSet, Error> {
        let mut key = [None; BINDINGS as usize];
        for (key, access) in key.iter_mut().zip(bindings) {
            *key = match access {
                Access::Read(region) | Access::Write(region) => Some(*region),
                Access::None => None,
            };
        }
        // A kernel may name buffers that it does not read this time: drivers want a buffer there all the same.
        let any = key.iter().flatten().next().copied();
        for region in key.iter_mut().take(self.device.n_bindings as usize) {
            *region = region.or(any);
        }
        if let Some(set) = self.sets.get(&key) {
            return Ok(*set);
        }
        for region in key.iter().flatten() {
            self.buffer(*region)?;
            if region.bytes > self.device.max_binding {
                let message = format!("{} bytes of one operand", region.bytes);
                return Err(Error::Unsupported(message));
            }
        }
        if self.sets_left == 0 {
            let sizes = [vk::DescriptorPoolSize {
                ty: vk::DescriptorType::STORAGE_BUFFER,
                descriptor_count: SETS_OF_A_POOL * BINDINGS,
            }];
            let info = vk::DescriptorPoolCreateInfo::default()
                .max_sets(SETS_OF_A_POOL)
                .pool_sizes(&sizes);
            // SAFETY: the device lives, and the structures until the call returns.
            let made = unsafe { self.device.calls.create_descriptor_pool(&info, None) };
            self.set_pools
                .push(made.map_err(failed("vkCreateDescriptorPool"))?);
            self.sets_left = SETS_OF_A_POOL;
        }
        let layouts = [self.set_layout];
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(self.set_pools.last().copied().unwrap_or_default())
            .set_layouts(&layouts);
        // SAFETY: the pool has room for one more set.
        let made = unsafe { self.device.calls.allocate_descriptor_sets(&info) };
        let made = made.map_err(failed("vkAllocateDescriptorSets"))?;
        let set = made.first().copied().unwrap_or_default();
        self.sets_left -= 1;
        for (binding, region) in key.iter().enumerate() {
            let Some(region) = region else { continue };
            let buffer = [vk::DescriptorBufferInfo::default()
                .buffer(self.buffer(*region)?)
                .offset(region.start)
                .range(region.bytes)];
            let write = [vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(binding as u32)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(&buffer)];
            // SAFETY: the set has this binding and is new, so nothing uses it; the buffer lives and has the region.
            unsafe { self.device.calls.update_descriptor_sets(&write, &[]) };
        }
        self.sets.insert(key, set);
        Ok(set)
    }

    /// Frees all descriptor sets. Nothing that uses them runs or is recorded.
    fn forget_sets(&mut self) {
        self.sets.clear();
        self.sets_left = 0;
        for pool in self.set_pools.drain(..) {
            // SAFETY: nothing uses its sets, as the caller says.
            unsafe { self.device.calls.destroy_descriptor_pool(pool, None) };
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // A device that does not answer may still write to its memory: all of it is left to the end of the process.
        if self.finish().is_err() {
            return;
        }
        self.forget_sets();
        let buffers = std::mem::take(&mut self.buffers);
        for allocation in buffers
            .iter()
            .flatten()
            .chain(&self.download)
            .chain([&self.upload])
        {
            memory::free(&self.device, &self.account, allocation);
        }
        if let Some(clock) = &self.clock {
            clock.free(&self.device);
        }
        let calls = &self.device.calls;
        // SAFETY: nothing runs any more; each thing goes before what it was made of, and the device last and once.
        unsafe {
            for pipeline in self.pipelines.values() {
                calls.destroy_pipeline(*pipeline, None);
            }
            for (_, fence) in &self.commands {
                calls.destroy_fence(*fence, None);
            }
            calls.destroy_command_pool(self.pool, None);
            calls.destroy_pipeline_layout(self.layout, None);
            calls.destroy_descriptor_set_layout(self.set_layout, None);
            ManuallyDrop::drop(&mut self.device);
        }
    }
}

/// What is compiled where a test changes a kernel: products of floats become sums, or where it has none, sums of integers
/// differences.
#[cfg(test)]
fn changed(mut code: Vec<u32>) -> Vec<u32> {
    const HEADER: usize = 5;
    // OpFMul and OpFAdd, OpIAdd and OpISub.
    for (from, to) in [(133, 129), (128, 130)] {
        let mut is_changed = false;
        let mut at = HEADER;
        while let Some(word) = code.get_mut(at) {
            at += (*word >> 16).max(1) as usize;
            if *word & 0xffff == from {
                *word = *word & !0xffff | to;
                is_changed = true;
            }
        }
        if is_changed {
            break;
        }
    }
    code
}

/// Where regions that are bound begin: no device asks for more than this.
pub(crate) const ALIGNMENT: u64 = 256;
/// Bytes of the parameters of a kernel; every device takes as many.
const PARAMS_BYTES: u32 = 128;
/// Kernels that are submitted together at most: the device begins with the first ones while the host records the others.
const MOST_KERNELS: u32 = 64;
/// What is copied to the device passes through as much, in turns.
const UPLOAD_BYTES: usize = 16 << 20;
const SETS_OF_A_POOL: u32 = 1024;
/// Descriptor sets that are kept for later steps.
const MOST_SETS: usize = 8 * SETS_OF_A_POOL as usize;
/// A device that has not done what was submitted after this long is given up.
const DEADLINE: Duration = Duration::from_mins(1);

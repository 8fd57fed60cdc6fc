//! Vulkan compute through the loader of the system. One of the few files with `unsafe`: it calls drivers.
#![expect(
    unsafe_code,
    reason = "calls of a driver; what each needs is said beside it"
)]

use std::{collections::BTreeMap, ffi::CStr};

use ash::vk;

use super::{Api, Buffer, Device, DeviceInfo, DeviceKind, Error, KERNELS, Launch, spirv};

/// Lists the devices that can compute.
pub fn list() -> Result<Vec<DeviceInfo>, Error> {
    let loaded = Loaded::new()?;
    Ok(loaded
        .devices()?
        .iter()
        .enumerate()
        .map(|(index, found)| loaded.info(index, found))
        .collect())
}

/// The loader and an instance made by it.
struct Loaded {
    instance: ash::Instance,
    // Holds the library open; dropped last.
    _entry: ash::Entry,
}

impl Loaded {
    fn new() -> Result<Loaded, Error> {
        // SAFETY: the initialisers of the loader run, as in every program that uses Vulkan.
        let entry = unsafe { ash::Entry::load() }
            .map_err(|error| Error::NoLibrary("the Vulkan loader", error.to_string()))?;
        let application = vk::ApplicationInfo::default()
            .application_name(c"llmsrv")
            .api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: `info` and what it points to live until the call returns; no allocator is given.
        match unsafe { entry.create_instance(&info, None) } {
            Ok(instance) => Ok(Loaded {
                instance,
                _entry: entry,
            }),
            // A loader without drivers.
            Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER) => Err(Error::NoLibrary(
                "a Vulkan driver",
                "the loader found none".into(),
            )),
            Err(error) => Err(Error::driver("vkCreateInstance", error)),
        }
    }

    /// Devices of Vulkan 1.1 or later that have a queue that computes, with its family.
    fn devices(&self) -> Result<Vec<(vk::PhysicalDevice, u32)>, Error> {
        // SAFETY: the instance lives.
        let all = unsafe { self.instance.enumerate_physical_devices() }
            .map_err(failed("vkEnumeratePhysicalDevices"))?;
        let with_queue = |device: vk::PhysicalDevice| {
            // SAFETY: the device belongs to the instance.
            let (properties, families) = unsafe {
                (
                    self.instance.get_physical_device_properties(device),
                    self.instance
                        .get_physical_device_queue_family_properties(device),
                )
            };
            let family = families
                .iter()
                .position(|family| family.queue_flags.contains(vk::QueueFlags::COMPUTE))?;
            (properties.api_version >= vk::API_VERSION_1_1).then_some((device, family as u32))
        };
        Ok(all.into_iter().filter_map(with_queue).collect())
    }

    fn info(&self, index: usize, (device, _): &(vk::PhysicalDevice, u32)) -> DeviceInfo {
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
        // SAFETY: the device belongs to the instance; both are of Vulkan 1.1. A driver that does not know the
        // extension leaves its structure as it is.
        let memory = unsafe {
            self.instance
                .get_physical_device_properties2(*device, &mut properties);
            self.instance.get_physical_device_memory_properties(*device)
        };
        let properties = properties.properties;
        let heaps = memory
            .memory_heaps
            .iter()
            .take(memory.memory_heap_count as usize);
        let local = heaps.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        DeviceInfo {
            api: Api::Vulkan,
            index,
            name: text(properties.device_name_as_c_str().ok()),
            kind: match properties.device_type {
                vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
                vk::PhysicalDeviceType::OTHER => DeviceKind::Other,
                _ => DeviceKind::Gpu,
            },
            driver: format!(
                "{} {}",
                text(driver.driver_name_as_c_str().ok()),
                text(driver.driver_info_as_c_str().ok())
            )
            .trim()
            .to_owned(),
            memory_bytes: local.map(|heap| heap.size).max().unwrap_or_default(),
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: whatever was made of the instance is gone by now.
        unsafe { self.instance.destroy_instance(None) };
    }
}

fn text(name: Option<&CStr>) -> String {
    name.map(|name| name.to_string_lossy().trim().to_owned())
        .unwrap_or_default()
}

/// A device with a queue and a pipeline for each kernel.
pub struct Vulkan {
    device: ash::Device,
    queue: vk::Queue,
    commands: vk::CommandPool,
    sets: vk::DescriptorPool,
    kernels: BTreeMap<&'static str, Kernel>,
    buffers: Vec<Memory>,
    /// Visible to the host; what is copied to and from the device passes through it.
    staging: Option<Memory>,
    memory_types: vk::PhysicalDeviceMemoryProperties,
    max_bytes: u64,
    // Dropped last.
    _loaded: Loaded,
}

struct Kernel {
    shader: vk::ShaderModule,
    set: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
}

struct Memory {
    buffer: vk::Buffer,
    block: vk::DeviceMemory,
    bytes: u64,
}

impl Vulkan {
    /// Makes the pipelines of all kernels.
    pub fn open(index: usize) -> Result<Vulkan, Error> {
        let loaded = Loaded::new()?;
        let (physical, family) = *loaded.devices()?.get(index).ok_or(Error::NoDevice(index))?;
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
        // SAFETY: the physical device belongs to the instance; the structures live until the calls return.
        let (device, memory_types, limits) = unsafe {
            (
                loaded
                    .instance
                    .create_device(physical, &info, None)
                    .map_err(failed("vkCreateDevice"))?,
                loaded
                    .instance
                    .get_physical_device_memory_properties(physical),
                loaded
                    .instance
                    .get_physical_device_properties(physical)
                    .limits,
            )
        };
        // SAFETY: the family is one the device was made with.
        let queue = unsafe { device.get_device_queue(family, 0) };
        let mut vulkan = Vulkan {
            device,
            queue,
            commands: vk::CommandPool::null(),
            sets: vk::DescriptorPool::null(),
            kernels: BTreeMap::new(),
            buffers: Vec::new(),
            staging: None,
            memory_types,
            max_bytes: u64::from(limits.max_storage_buffer_range),
            _loaded: loaded,
        };
        vulkan.prepare(family)?;
        Ok(vulkan)
    }

    fn prepare(&mut self, family: u32) -> Result<(), Error> {
        let commands = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        let sizes = [vk::DescriptorPoolSize {
            ty: vk::DescriptorType::STORAGE_BUFFER,
            descriptor_count: MAX_LAUNCHES * 4,
        }];
        let sets = vk::DescriptorPoolCreateInfo::default()
            .max_sets(MAX_LAUNCHES)
            .pool_sizes(&sizes);
        // SAFETY: the device lives, and the structures until the calls return.
        unsafe {
            self.commands = self
                .device
                .create_command_pool(&commands, None)
                .map_err(failed("vkCreateCommandPool"))?;
            self.sets = self
                .device
                .create_descriptor_pool(&sets, None)
                .map_err(failed("vkCreateDescriptorPool"))?;
        }
        // A test unpacks and compares what is committed: nothing is left to fail here.
        let modules = zstd::decode_all(spirv::PACKED).unwrap_or_default();
        for (name, n_buffers) in KERNELS {
            let module = spirv::MODULES.iter().find(|(found, _)| found == name);
            let code = module.and_then(|(_, place)| modules.get(place.clone()));
            let kernel = self.kernel(code.unwrap_or_default(), name, *n_buffers as u32)?;
            self.kernels.insert(name, kernel);
        }
        Ok(())
    }

    fn kernel(&self, code: &[u8], name: &str, n_buffers: u32) -> Result<Kernel, Error> {
        let words = code.chunks_exact(4);
        let code: Vec<u32> = words
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        let bindings: Vec<_> = (0..n_buffers)
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
            size: 16,
        }];
        let entry = std::ffi::CString::new(name).unwrap_or_default();
        // SAFETY: the device lives, and the structures until the calls return. The shader is valid SPIR-V: it was
        // checked and written by naga. What is made before a later call fails leaks until the process ends, which
        // is at once.
        unsafe {
            let shader = self
                .device
                .create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&code), None)
                .map_err(failed("vkCreateShaderModule"))?;
            let set = self
                .device
                .create_descriptor_set_layout(
                    &vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings),
                    None,
                )
                .map_err(failed("vkCreateDescriptorSetLayout"))?;
            let layout = self
                .device
                .create_pipeline_layout(
                    &vk::PipelineLayoutCreateInfo::default()
                        .set_layouts(&[set])
                        .push_constant_ranges(&params),
                    None,
                )
                .map_err(failed("vkCreatePipelineLayout"))?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(shader)
                .name(&entry);
            let info = [vk::ComputePipelineCreateInfo::default()
                .stage(stage)
                .layout(layout)];
            let pipelines = self
                .device
                .create_compute_pipelines(vk::PipelineCache::null(), &info, None)
                .map_err(|(_, error)| Error::driver("vkCreateComputePipelines", error))?;
            Ok(Kernel {
                shader,
                set,
                layout,
                pipeline: pipelines[0],
            })
        }
    }

    /// Makes a buffer in memory that has the wanted properties; the first wish that the device can grant counts.
    fn memory(&self, bytes: u64, wishes: &[vk::MemoryPropertyFlags]) -> Result<Memory, Error> {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(bytes).usage(usage);
        // SAFETY: the device lives, and the structures until the calls return.
        unsafe {
            let buffer = self
                .device
                .create_buffer(&info, None)
                .map_err(failed("vkCreateBuffer"))?;
            let needs = self.device.get_buffer_memory_requirements(buffer);
            let has = |wish: &vk::MemoryPropertyFlags| {
                let types = self.memory_types.memory_types_as_slice().iter().enumerate();
                types
                    .filter(|(at, _)| needs.memory_type_bits & (1 << at) != 0)
                    .find(|(_, kind)| kind.property_flags.contains(*wish))
                    .map(|(at, _)| at as u32)
            };
            let made = wishes
                .iter()
                .find_map(has)
                .ok_or_else(|| {
                    Error::driver(
                        "vkAllocateMemory",
                        "no memory has the properties that are needed",
                    )
                })
                .and_then(|kind| {
                    let info = vk::MemoryAllocateInfo::default()
                        .allocation_size(needs.size)
                        .memory_type_index(kind);
                    self.device
                        .allocate_memory(&info, None)
                        .map_err(failed("vkAllocateMemory"))
                });
            match made {
                Ok(memory) => {
                    let made = Memory {
                        buffer,
                        block: memory,
                        bytes,
                    };
                    if let Err(error) = self.device.bind_buffer_memory(buffer, memory, 0) {
                        self.free(&made);
                        return Err(Error::driver("vkBindBufferMemory", error));
                    }
                    Ok(made)
                }
                Err(error) => {
                    self.device.destroy_buffer(buffer, None);
                    Err(error)
                }
            }
        }
    }

    fn free(&self, memory: &Memory) {
        // SAFETY: nothing runs any more that uses it: every submission is waited for.
        unsafe {
            self.device.destroy_buffer(memory.buffer, None);
            self.device.free_memory(memory.block, None);
        }
    }

    /// Makes sure that so many bytes can pass to and from the host.
    fn stage(&mut self, bytes: u64) -> Result<(), Error> {
        if self
            .staging
            .as_ref()
            .is_some_and(|staging| staging.bytes >= bytes)
        {
            return Ok(());
        }
        if let Some(old) = self.staging.take() {
            self.free(&old);
        }
        let visible =
            vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        // Reading memory that the CPU does not cache takes long.
        self.staging = Some(self.memory(
            bytes,
            &[visible | vk::MemoryPropertyFlags::HOST_CACHED, visible],
        )?);
        Ok(())
    }

    /// Lets `with` have the memory that passes to and from the host.
    fn mapped(&self, words: usize, with: impl FnOnce(&mut [u32])) -> Result<(), Error> {
        let staging = self
            .staging
            .as_ref()
            .ok_or_else(|| Error::driver("vkMapMemory", "there is no memory"))?;
        // SAFETY: the memory is visible to the host, is not mapped, is at least as long (see `stage`), aligned to far
        // more than words, coherent, and nothing runs on the device.
        unsafe {
            let at = self
                .device
                .map_memory(
                    staging.block,
                    0,
                    vk::WHOLE_SIZE,
                    vk::MemoryMapFlags::empty(),
                )
                .map_err(failed("vkMapMemory"))?;
            with(std::slice::from_raw_parts_mut(at.cast::<u32>(), words));
            self.device.unmap_memory(staging.block);
        }
        Ok(())
    }

    /// Records commands, submits them and waits for them.
    fn submit(
        &self,
        record: impl FnOnce(vk::CommandBuffer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.commands)
            .command_buffer_count(1);
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the pool lives and is used by this thread alone; the structures live until the calls return; the
        // commands are freed after the queue has done them.
        unsafe {
            let commands = self
                .device
                .allocate_command_buffers(&info)
                .map_err(failed("vkAllocateCommandBuffers"))?;
            self.device
                .begin_command_buffer(commands[0], &begin)
                .map_err(failed("vkBeginCommandBuffer"))?;
            record(commands[0])?;
            self.device
                .end_command_buffer(commands[0])
                .map_err(failed("vkEndCommandBuffer"))?;
            let submit = [vk::SubmitInfo::default().command_buffers(&commands)];
            self.device
                .queue_submit(self.queue, &submit, vk::Fence::null())
                .map_err(failed("vkQueueSubmit"))?;
            self.device
                .queue_wait_idle(self.queue)
                .map_err(failed("vkQueueWaitIdle"))?;
            self.device.free_command_buffers(self.commands, &commands);
        }
        Ok(())
    }

    /// Copies between two buffers on the device.
    fn transfer(&self, from: vk::Buffer, to: vk::Buffer, bytes: u64) -> Result<(), Error> {
        let region = [vk::BufferCopy {
            src_offset: 0,
            dst_offset: 0,
            size: bytes,
        }];
        self.submit(|commands| {
            self.barrier(commands);
            // SAFETY: both buffers live and are as long (the callers see to it).
            unsafe { self.device.cmd_copy_buffer(commands, from, to, &region) };
            self.barrier(commands);
            Ok(())
        })
    }

    /// Lets what follows see what came before, also the host.
    fn barrier(&self, commands: vk::CommandBuffer) {
        let all = vk::PipelineStageFlags::ALL_COMMANDS | vk::PipelineStageFlags::HOST;
        let seen = vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE;
        let memory = [vk::MemoryBarrier::default()
            .src_access_mask(seen)
            .dst_access_mask(seen)];
        // SAFETY: commands are being recorded.
        unsafe {
            self.device.cmd_pipeline_barrier(
                commands,
                all,
                all,
                vk::DependencyFlags::empty(),
                &memory,
                &[],
                &[],
            );
        }
    }

    /// Runs at most [`MAX_LAUNCHES`] kernels.
    fn run_some(&self, launches: &[Launch]) -> Result<(), Error> {
        let layouts: Vec<_> = launches
            .iter()
            .map(|launch| self.kernels[launch.kernel].set)
            .collect();
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(self.sets)
            .set_layouts(&layouts);
        // SAFETY: the pool has room for as many sets and buffers; nothing runs that uses them.
        let sets = unsafe {
            self.device
                .reset_descriptor_pool(self.sets, vk::DescriptorPoolResetFlags::empty())
                .map_err(failed("vkResetDescriptorPool"))?;
            self.device
                .allocate_descriptor_sets(&info)
                .map_err(failed("vkAllocateDescriptorSets"))?
        };
        for (launch, set) in launches.iter().zip(&sets) {
            for (binding, buffer) in launch.buffers.iter().enumerate() {
                let buffer = [vk::DescriptorBufferInfo::default()
                    .buffer(self.buffers[buffer.0].buffer)
                    .range(vk::WHOLE_SIZE)];
                let write = [vk::WriteDescriptorSet::default()
                    .dst_set(*set)
                    .dst_binding(binding as u32)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(&buffer)];
                // SAFETY: the set has this binding (see `KERNELS`), and the buffer lives.
                unsafe { self.device.update_descriptor_sets(&write, &[]) };
            }
        }
        self.submit(|commands| {
            for (launch, set) in launches.iter().zip(&sets) {
                let kernel = &self.kernels[launch.kernel];
                let groups = launch.params[0].div_ceil(64);
                // Every device takes 65535 groups in a dimension.
                let (across, down) = (groups.min(32768), groups.div_ceil(32768));
                self.barrier(commands);
                // SAFETY: commands are being recorded; pipeline, layout and set belong together. The kernels compute
                // nothing for items beyond their number; the checks give them buffers as long as their items need.
                unsafe {
                    self.device.cmd_bind_pipeline(
                        commands,
                        vk::PipelineBindPoint::COMPUTE,
                        kernel.pipeline,
                    );
                    self.device.cmd_bind_descriptor_sets(
                        commands,
                        vk::PipelineBindPoint::COMPUTE,
                        kernel.layout,
                        0,
                        &[*set],
                        &[],
                    );
                    self.device.cmd_push_constants(
                        commands,
                        kernel.layout,
                        vk::ShaderStageFlags::COMPUTE,
                        0,
                        bytemuck::cast_slice(&launch.params),
                    );
                    self.device.cmd_dispatch(commands, across, down, 1);
                }
            }
            self.barrier(commands);
            Ok(())
        })
    }
}

impl Device for Vulkan {
    fn allocate(&mut self, words: usize) -> Result<Buffer, Error> {
        let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
        let memory = self.memory(words as u64 * 4, &[local, vk::MemoryPropertyFlags::empty()])?;
        self.buffers.push(memory);
        Ok(Buffer(self.buffers.len() - 1))
    }

    fn clear(&mut self) -> Result<(), Error> {
        for memory in std::mem::take(&mut self.buffers) {
            self.free(&memory);
        }
        Ok(())
    }

    fn write(&mut self, buffer: Buffer, words: &[u32]) -> Result<(), Error> {
        let bytes = words.len() as u64 * 4;
        self.stage(bytes)?;
        self.mapped(words.len(), |staging| staging.copy_from_slice(words))?;
        let to = &self.buffers[buffer.0];
        let from = self
            .staging
            .as_ref()
            .map(|staging| staging.buffer)
            .unwrap_or_default();
        self.transfer(from, to.buffer, bytes.min(to.bytes))
    }

    fn read(&mut self, buffer: Buffer, words: &mut [u32]) -> Result<(), Error> {
        let bytes = words.len() as u64 * 4;
        self.stage(bytes)?;
        let from = &self.buffers[buffer.0];
        let to = self
            .staging
            .as_ref()
            .map(|staging| staging.buffer)
            .unwrap_or_default();
        self.transfer(from.buffer, to, bytes.min(from.bytes))?;
        self.mapped(words.len(), |staging| words.copy_from_slice(staging))
    }

    fn run(&mut self, launches: &[Launch]) -> Result<(), Error> {
        launches
            .chunks(MAX_LAUNCHES as usize)
            .try_for_each(|some| self.run_some(some))
    }

    fn max_words(&self) -> usize {
        usize::try_from(self.max_bytes / 4).unwrap_or(usize::MAX)
    }
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        for memory in std::mem::take(&mut self.buffers)
            .iter()
            .chain(&self.staging.take())
        {
            self.free(memory);
        }
        // SAFETY: nothing runs any more, and each thing goes before what it was made of.
        unsafe {
            for kernel in self.kernels.values() {
                self.device.destroy_pipeline(kernel.pipeline, None);
                self.device.destroy_pipeline_layout(kernel.layout, None);
                self.device.destroy_descriptor_set_layout(kernel.set, None);
                self.device.destroy_shader_module(kernel.shader, None);
            }
            self.device.destroy_descriptor_pool(self.sets, None);
            self.device.destroy_command_pool(self.commands, None);
            self.device.destroy_device(None);
        }
    }
}

/// Kernels in one submission.
const MAX_LAUNCHES: u32 = 256;

fn failed(call: &'static str) -> impl Fn(vk::Result) -> Error {
    move |error| Error::driver(call, error)
}

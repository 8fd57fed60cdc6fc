//! The GPUs of the machine, the choice among them, and an opened one. One of the few files with `unsafe`: it calls
//! drivers.
#![expect(
    unsafe_code,
    reason = "calls of a driver; what each needs is said beside it"
)]

use std::ffi::CStr;

use ash::vk;

use crate::{Error, Refusal, Refused, error::failed};

/// Which devices may be used, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// How rows are multiplied with quantised weights, as [`Gpu::set_arithmetic`](crate::Gpu::set_arithmetic) takes it.
    pub arithmetic: Arithmetic,
    /// Integrated GPUs and those of Intel, too.
    pub vendor: bool,
    /// Devices that compute on the CPU, too: for tests.
    pub software: bool,
    /// Bytes of the device's memory to leave free.
    pub leave_free_bytes: u64,
    /// Bytes of it that may be taken at most.
    pub limit_bytes: Option<u64>,
    /// These alone, in this order; `None` = all. Where software devices may be used, one that is named twice is two.
    pub visible: Option<Vec<DeviceName>>,
    /// Of NVIDIA's these alone; `None` = all.
    pub nvidia: Option<Vec<DeviceName>>,
}

/// How rows are multiplied with quantised weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// Weights are unpacked to f32, and rows stay as they are.
    #[default]
    F32,
    /// Rows are rounded to signed bytes, as on the CPU, and products of blocks are whole numbers.
    Int8,
}

/// A device as users name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// Its number in the order of the Vulkan loader, or among those of its maker.
    Number(usize),
    /// How its UUID begins, in hex digits.
    Uuid(String),
}

impl DeviceName {
    /// Reads a list of names as in `CUDA_VISIBLE_DEVICES`: numbers, and UUIDs that may be cut short, with `GPU-` before
    /// them or not. What follows a name that is neither, such as `-1`, does not count.
    pub fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<DeviceName> {
        names
            .into_iter()
            .map_while(|name| DeviceName::read(name.trim()))
            .collect()
    }

    fn read(name: &str) -> Option<DeviceName> {
        if let Ok(number) = name.parse() {
            return Some(DeviceName::Number(number));
        }
        let digits = name.strip_prefix("GPU-").unwrap_or(name);
        let digits: String = digits.chars().filter(|c| *c != '-').collect();
        let is_uuid = (4..=32).contains(&digits.len())
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_uuid.then(|| DeviceName::Uuid(digits.to_ascii_lowercase()))
    }

    fn is_of(&self, number: usize, device: &Found) -> bool {
        match self {
            DeviceName::Number(own) => *own == number,
            DeviceName::Uuid(digits) => device.uuid.starts_with(digits.as_str()),
        }
    }
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A card with memory of its own.
    Discrete,
    /// A part of a card in a virtual machine.
    Virtual,
    /// A GPU that shares the machine's memory.
    Integrated,
    /// None of these, as its driver says.
    Other,
    /// The CPU.
    Software,
}

impl Kind {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Discrete => "discrete",
            Kind::Virtual => "virtual",
            Kind::Integrated => "integrated",
            Kind::Other => "other",
            Kind::Software => "software",
        }
    }
}

/// A device as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Name of the device.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its number in the order of the Vulkan loader.
    pub number: usize,
    /// Number of the maker in the PCI list.
    pub vendor_id: u32,
    /// The maker's number of the device.
    pub device_id: u32,
    /// Name and version of the driver.
    pub driver: String,
    /// Its version as it counts itself; what the bits mean is the maker's choice.
    pub driver_version: u32,
    /// The version of Vulkan that it has, such as `1.3.230`.
    pub api_version: String,
    /// 32 hex digits.
    pub uuid: String,
    /// Bytes of its largest memory.
    pub memory_bytes: u64,
    /// What the kernels need and it lacks.
    pub lacks: Option<&'static str>,
    /// Whether it multiplies signed bytes four at a time (`VK_KHR_shader_integer_dot_product`).
    pub has_integer_dot: bool,
    /// Whether it multiplies matrices of 16 times 16 f16, with sums in f32, in subgroups of 32
    /// (`VK_KHR_cooperative_matrix`).
    pub has_matrices: bool,
}

/// Lists all devices of Vulkan 1.1 or later that compute, whether or not they may be used.
///
/// # Errors
/// [`Error::NoLoader`] and [`Error::NoDriver`] where there is nothing that could know any.
pub fn devices() -> Result<Vec<Found>, Error> {
    Ok(described(&Loaded::new()?.devices()?))
}

fn described(devices: &[(vk::PhysicalDevice, u32, Found)]) -> Vec<Found> {
    devices.iter().map(|(_, _, found)| found.clone()).collect()
}

impl Found {
    /// Returns why it is left out where nobody allows it.
    fn refusal_unless_allowed(&self) -> Option<Refusal> {
        match self.kind {
            Kind::Software => Some(Refusal::Software),
            Kind::Integrated | Kind::Other => Some(Refusal::Vendor),
            Kind::Discrete | Kind::Virtual if self.vendor_id == INTEL => Some(Refusal::Vendor),
            Kind::Discrete | Kind::Virtual => None,
        }
    }
}

/// Returns which of the devices are used: in the order in which they are named, else discrete before integrated, and
/// those with more memory first.
///
/// # Errors
/// [`Error::NoDevice`], with the reason for each, if none may be used.
pub fn choose(found: &[Found], choice: &Choice) -> Result<Vec<usize>, Error> {
    let number_of_maker = |index: usize, device: &Found| {
        let before = found.iter().take(index);
        before
            .filter(|other| other.vendor_id == device.vendor_id)
            .count()
    };
    let is_hidden = |index: usize, device: &Found| {
        let named = |names: &Option<Vec<DeviceName>>, number: usize| {
            let mut names = names.iter().flatten();
            names.any(|name| name.is_of(number, device))
        };
        let hidden = choice.visible.is_some() && !named(&choice.visible, index);
        let of_maker = choice.nvidia.is_some()
            && device.vendor_id == NVIDIA
            && !named(&choice.nvidia, number_of_maker(index, device));
        hidden || of_maker
    };
    let refusal = |index: usize, device: &Found| {
        if is_hidden(index, device) {
            return Some(Refusal::Hidden);
        }
        match device.refusal_unless_allowed() {
            Some(Refusal::Software) if choice.software => {}
            Some(Refusal::Vendor) if choice.vendor => {}
            Some(refusal) => return Some(refusal),
            None => {}
        }
        device.lacks.map(Refusal::Lacks)
    };
    let usable = found.iter().enumerate();
    let usable = usable.filter(|(index, device)| refusal(*index, device).is_none());
    let mut usable: Vec<usize> = usable.map(|(index, _)| index).collect();
    if usable.is_empty() {
        let refused = found.iter().enumerate().filter_map(|(index, device)| {
            Some(Refused {
                device: device.name.clone(),
                reason: refusal(index, device)?,
            })
        });
        return Err(Error::NoDevice(refused.collect()));
    }
    let Some(names) = &choice.visible else {
        usable.sort_by_key(|index| {
            let device = found.get(*index);
            device.map(|device| (device.kind, u64::MAX - device.memory_bytes))
        });
        return Ok(usable);
    };
    let mut named = Vec::new();
    for name in names {
        let of_name = usable.iter().copied().filter(|index| {
            let device = found.get(*index);
            device.is_some_and(|device| name.is_of(*index, device))
        });
        for index in of_name {
            if choice.software || !named.contains(&index) {
                named.push(index);
            }
        }
    }
    Ok(named)
}

/// An opened device with one queue. What is made of it must be gone before it goes.
pub(crate) struct Device {
    /// What it is.
    pub found: Found,
    /// Its functions.
    pub calls: ash::Device,
    /// Where commands go.
    pub queue: vk::Queue,
    /// The family of the queue.
    pub family: u32,
    /// Kinds of memory.
    pub memory: vk::PhysicalDeviceMemoryProperties,
    /// Bytes that one binding of a buffer may have.
    pub max_binding: u64,
    /// Buffers that a kernel binds at most; [`BINDINGS`] where the kernels of this crate run.
    pub n_bindings: u32,
    /// What its timestamps count, if its queue has any.
    pub tick: Option<Tick>,
    has_budget: bool,
    physical: vk::PhysicalDevice,
    loaded: Loaded,
}

impl Device {
    /// Loads the Vulkan loader and returns how many devices [`choose`] names.
    pub(crate) fn count(choice: &Choice) -> Result<usize, Error> {
        choose(&devices()?, choice).map(|chosen| chosen.len())
    }

    /// Loads the Vulkan loader and opens one of the devices that [`choose`] names.
    pub(crate) fn open(choice: &Choice, number: usize) -> Result<Device, Error> {
        let loaded = Loaded::new()?;
        let all = loaded.devices()?;
        let chosen = choose(&described(&all), choice)?.get(number).copied();
        Device::make(loaded, all, chosen)
    }

    /// Loads the Vulkan loader and opens the device with this number among [`devices`].
    pub(crate) fn open_any(number: usize) -> Result<Device, Error> {
        let loaded = Loaded::new()?;
        let all = loaded.devices()?;
        Device::make(loaded, all, Some(number))
    }

    fn make(
        loaded: Loaded,
        all: Vec<(vk::PhysicalDevice, u32, Found)>,
        chosen: Option<usize>,
    ) -> Result<Device, Error> {
        let chosen = chosen.and_then(|chosen| all.into_iter().nth(chosen));
        let (physical, family, found) = chosen.ok_or_else(|| Error::NoDevice(Vec::new()))?;
        let has_budget = loaded.has_extension(physical, vk::EXT_MEMORY_BUDGET_NAME);
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&[1.0])];
        // A wrong index of a kernel then stays within its buffers.
        let features = vk::PhysicalDeviceFeatures::default().robust_buffer_access(true);
        let mut integer_dot = vk::PhysicalDeviceShaderIntegerDotProductFeatures::default()
            .shader_integer_dot_product(true);
        let mut matrices =
            vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
        let mut memory_model =
            vk::PhysicalDeviceVulkanMemoryModelFeatures::default().vulkan_memory_model(true);
        let mut float16 =
            vk::PhysicalDeviceShaderFloat16Int8Features::default().shader_float16(true);
        let matrix_extensions = MATRIX_EXTENSIONS.map(|name| (found.has_matrices, name));
        let extensions: Vec<_> = [
            (has_budget, vk::EXT_MEMORY_BUDGET_NAME),
            (
                found.has_integer_dot,
                vk::KHR_SHADER_INTEGER_DOT_PRODUCT_NAME,
            ),
        ]
        .into_iter()
        .chain(matrix_extensions)
        .filter_map(|(is_there, name)| is_there.then_some(name.as_ptr()))
        .collect();
        let mut info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_features(&features)
            .enabled_extension_names(&extensions);
        if found.has_integer_dot {
            info = info.push_next(&mut integer_dot);
        }
        if found.has_matrices {
            info = info
                .push_next(&mut matrices)
                .push_next(&mut memory_model)
                .push_next(&mut float16);
        }
        // SAFETY: the physical device belongs to the instance and has the family, the features (every device has the first
        // one) and the extensions; the structures live until the calls return.
        let (calls, memory, limits, families) = unsafe {
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
                loaded
                    .instance
                    .get_physical_device_queue_family_properties(physical),
            )
        };
        let n_bits = families
            .get(family as usize)
            .map_or(0, |family| family.timestamp_valid_bits);
        // SAFETY: the family is one the device was made with.
        let queue = unsafe { calls.get_device_queue(family, 0) };
        Ok(Device {
            found,
            calls,
            queue,
            family,
            memory,
            max_binding: u64::from(limits.max_storage_buffer_range).min(LARGEST_BINDING),
            n_bindings: limits
                .max_per_stage_descriptor_storage_buffers
                .min(BINDINGS),
            tick: Tick::new(limits.timestamp_period, n_bits),
            has_budget,
            physical,
            loaded,
        })
    }

    /// Returns how many bytes of a heap are free, as far as the driver says; else its size.
    pub(crate) fn free_bytes(&self, heap: u32) -> u64 {
        let at = heap as usize;
        let size = self
            .memory
            .memory_heaps_as_slice()
            .get(at)
            .map_or(0, |heap| heap.size);
        if !self.has_budget {
            return size;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the physical device belongs to the instance and has the extension.
        unsafe {
            self.loaded
                .instance
                .get_physical_device_memory_properties2(self.physical, &mut properties);
        }
        let budgets = budget.heap_budget.get(at).zip(budget.heap_usage.get(at));
        // Some drivers say more than there is.
        budgets.map_or(size, |(budget, usage)| {
            (*budget).min(size).saturating_sub(*usage)
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: what was made of the device is gone, and nothing runs on it.
        unsafe { self.calls.destroy_device(None) };
    }
}

/// What a timestamp counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tick {
    /// Of one step of the counter.
    nanoseconds: f64,
    /// Bits of the counter.
    n_bits: u32,
}

impl Tick {
    /// Reads what a driver says: nanoseconds of a step, and how many bits of a timestamp count; 0 = there are none.
    pub(crate) fn new(nanoseconds: f32, n_bits: u32) -> Option<Tick> {
        let nanoseconds = f64::from(nanoseconds);
        (nanoseconds > 0.0 && n_bits > 0).then_some(Tick {
            nanoseconds,
            n_bits,
        })
    }

    /// Returns the time between two timestamps; the counter may have begun anew between them.
    pub(crate) fn seconds(self, begin: u64, end: u64) -> f64 {
        let mask = u64::MAX >> (64 - self.n_bits.clamp(1, 64));
        (end.wrapping_sub(begin) & mask) as f64 * self.nanoseconds / 1e9
    }
}

/// The loader and an instance made by it.
struct Loaded {
    instance: ash::Instance,
    // Holds the library open; dropped last.
    entry: ash::Entry,
}

impl Loaded {
    fn new() -> Result<Loaded, Error> {
        // SAFETY: the initialisers of the loader run, as in every program that uses Vulkan.
        let entry =
            unsafe { ash::Entry::load() }.map_err(|error| Error::NoLoader(error.to_string()))?;
        let application = vk::ApplicationInfo::default()
            .application_name(c"llmsrv")
            .api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: `info` and what it points to live until the call returns; no allocator is given.
        match unsafe { entry.create_instance(&info, None) } {
            Ok(instance) => Ok(Loaded { instance, entry }),
            Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER) => Err(Error::NoDriver),
            Err(error) => Err(failed("vkCreateInstance")(error)),
        }
    }

    /// Devices of Vulkan 1.1 or later that have a queue that computes, with its family.
    fn devices(&self) -> Result<Vec<(vk::PhysicalDevice, u32, Found)>, Error> {
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
            let is_new = properties.api_version >= vk::API_VERSION_1_1;
            is_new.then_some((device, family as u32))
        };
        let usable = all.into_iter().filter_map(with_queue).enumerate();
        Ok(usable
            .map(|(number, (device, family))| (device, family, self.describe(device, number)))
            .collect())
    }

    fn describe(&self, device: vk::PhysicalDevice, number: usize) -> Found {
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut driver)
            .push_next(&mut id);
        // SAFETY: the device belongs to the instance; both are of Vulkan 1.1. A driver that does not know the extension
        // leaves its structure as it is.
        let memory = unsafe {
            self.instance
                .get_physical_device_properties2(device, &mut properties);
            self.instance.get_physical_device_memory_properties(device)
        };
        let properties = properties.properties;
        let heaps = memory.memory_heaps_as_slice().iter();
        let local = heaps.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        let limits = &properties.limits;
        let driver = [driver.driver_name_as_c_str(), driver.driver_info_as_c_str()];
        Found {
            name: text(properties.device_name_as_c_str().ok()),
            kind: match properties.device_type {
                vk::PhysicalDeviceType::DISCRETE_GPU => Kind::Discrete,
                vk::PhysicalDeviceType::VIRTUAL_GPU => Kind::Virtual,
                vk::PhysicalDeviceType::INTEGRATED_GPU => Kind::Integrated,
                vk::PhysicalDeviceType::CPU => Kind::Software,
                _ => Kind::Other,
            },
            number,
            vendor_id: properties.vendor_id,
            device_id: properties.device_id,
            driver_version: properties.driver_version,
            api_version: version(properties.api_version),
            driver: driver
                .map(|part| text(part.ok()))
                .join(" ")
                .trim()
                .to_owned(),
            uuid: hex(&id.device_uuid),
            memory_bytes: local.map(|heap| heap.size).max().unwrap_or_default(),
            lacks: if limits.max_per_stage_descriptor_storage_buffers < BINDINGS {
                Some("8 storage buffers in a kernel")
            } else if limits.max_compute_work_group_invocations < LARGEST_GROUP {
                Some("groups of 128 lanes")
            } else {
                None
            },
            has_integer_dot: self.has_integer_dot(device),
            has_matrices: self.has_matrices(device),
        }
    }

    /// Tells whether a device has an extension; one that does not answer has none.
    fn has_extension(&self, device: vk::PhysicalDevice, name: &CStr) -> bool {
        // SAFETY: the device belongs to the instance.
        let all = unsafe { self.instance.enumerate_device_extension_properties(device) };
        all.unwrap_or_default()
            .iter()
            .any(|one| one.extension_name_as_c_str().is_ok_and(|own| own == name))
    }

    /// Tells whether the kernels for matrix units run on a device.
    fn has_matrices(&self, device: vk::PhysicalDevice) -> bool {
        if !MATRIX_EXTENSIONS
            .iter()
            .all(|name| self.has_extension(device, name))
        {
            return false;
        }
        let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        let mut memory_model = vk::PhysicalDeviceVulkanMemoryModelFeatures::default();
        let mut float16 = vk::PhysicalDeviceShaderFloat16Int8Features::default();
        let mut features = vk::PhysicalDeviceFeatures2::default()
            .push_next(&mut matrices)
            .push_next(&mut memory_model)
            .push_next(&mut float16);
        let mut subgroups = vk::PhysicalDeviceSubgroupProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut subgroups);
        let calls = ash::khr::cooperative_matrix::Instance::new(&self.entry, &self.instance);
        // SAFETY: the device belongs to the instance, is of Vulkan 1.1 and has the extensions.
        let shapes = unsafe {
            self.instance
                .get_physical_device_features2(device, &mut features);
            self.instance
                .get_physical_device_properties2(device, &mut properties);
            calls.get_physical_device_cooperative_matrix_properties(device)
        };
        let is_ours = |shape: &vk::CooperativeMatrixPropertiesKHR<'_>| {
            let (f16, f32) = (vk::ComponentTypeKHR::FLOAT16, vk::ComponentTypeKHR::FLOAT32);
            (shape.m_size, shape.n_size, shape.k_size) == (16, 16, 16)
                && (shape.a_type, shape.b_type) == (f16, f16)
                && (shape.c_type, shape.result_type) == (f32, f32)
                && shape.scope == vk::ScopeKHR::SUBGROUP
        };
        let shared_bytes = properties.properties.limits.max_compute_shared_memory_size;
        matrices.cooperative_matrix != 0
            && shared_bytes >= MATRIX_SHARED_BYTES
            && memory_model.vulkan_memory_model != 0
            && float16.shader_float16 != 0
            && subgroups.subgroup_size == MATRIX_SUBGROUP
            && shapes.is_ok_and(|shapes| shapes.iter().any(is_ours))
    }

    /// Tells whether a device has `OpSDot` of packed bytes.
    fn has_integer_dot(&self, device: vk::PhysicalDevice) -> bool {
        if !self.has_extension(device, vk::KHR_SHADER_INTEGER_DOT_PRODUCT_NAME) {
            return false;
        }
        let mut integer_dot = vk::PhysicalDeviceShaderIntegerDotProductFeatures::default();
        let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut integer_dot);
        // SAFETY: the device belongs to the instance, is of Vulkan 1.1 and has the extension.
        unsafe {
            self.instance
                .get_physical_device_features2(device, &mut features);
        }
        integer_dot.shader_integer_dot_product != 0
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: whatever was made of the instance is gone by now.
        unsafe { self.instance.destroy_instance(None) };
    }
}

fn version(number: u32) -> String {
    let [major, minor, patch] = [
        vk::api_version_major(number),
        vk::api_version_minor(number),
        vk::api_version_patch(number),
    ];
    format!("{major}.{minor}.{patch}")
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16));
    digits.collect()
}

fn text(name: Option<&CStr>) -> String {
    name.map(|name| name.to_string_lossy().trim().to_owned())
        .unwrap_or_default()
}

/// What the kernels for matrix units need.
const MATRIX_EXTENSIONS: [&CStr; 3] = [
    vk::KHR_COOPERATIVE_MATRIX_NAME,
    vk::KHR_VULKAN_MEMORY_MODEL_NAME,
    vk::KHR_SHADER_FLOAT16_INT8_NAME,
];
/// What a workgroup of theirs shares at most.
const MATRIX_SHARED_BYTES: u32 = 48 << 10;
/// Lanes of a subgroup there.
const MATRIX_SUBGROUP: u32 = 32;
/// Buffers that a kernel binds at most.
pub(crate) const BINDINGS: u32 = 8;
/// Lanes of the largest workgroup; every device of Vulkan has as many.
const LARGEST_GROUP: u32 = 128;
/// Kernels count bytes in 32 bits, and some drivers refuse larger pieces of memory.
const LARGEST_BINDING: u64 = 1 << 30;
/// Intel in the list of PCI vendors.
const INTEL: u32 = 0x8086;
/// NVIDIA in it.
const NVIDIA: u32 = 0x10de;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, kind: Kind, vendor_id: u32, gib: u64) -> Found {
        Found {
            name: name.into(),
            kind,
            number: 0,
            vendor_id,
            device_id: 0,
            driver: String::new(),
            driver_version: 0,
            api_version: String::new(),
            uuid: format!("{gib:02x}").repeat(16),
            memory_bytes: gib << 30,
            lacks: None,
            has_integer_dot: false,
            has_matrices: false,
        }
    }

    #[test]
    fn the_largest_card_is_chosen_and_others_only_where_allowed() {
        let machine = [
            found("llvmpipe", Kind::Software, 0x10005, 64),
            found("Arc", Kind::Discrete, INTEL, 32),
            found("Radeon", Kind::Integrated, 0x1002, 16),
            found("small card", Kind::Discrete, 0x10de, 8),
            found("large card", Kind::Discrete, 0x10de, 24),
        ];
        let plain = Choice::default();
        let vendor = Choice {
            vendor: true,
            ..plain.clone()
        };
        let software = Choice {
            software: true,
            ..plain.clone()
        };
        assert_eq!(choose(&machine, &plain).unwrap(), [4, 3]);
        assert_eq!(choose(&machine, &vendor).unwrap(), [1, 4, 3, 2]);
        assert_eq!(choose(&machine[..3], &vendor).unwrap(), [1, 2]);
        assert_eq!(choose(&machine[2..3], &vendor).unwrap(), [0]);
        assert_eq!(choose(&machine[..3], &software).unwrap(), [0]);
        let error = choose(&machine[..3], &plain).unwrap_err().to_string();
        assert_eq!(
            error,
            "no GPU can be used: llvmpipe (a software device, which computes on the CPU), Arc (an integrated GPU \
             or one of Intel), Radeon (an integrated GPU or one of Intel)"
        );
        assert_eq!(
            choose(&[], &plain).unwrap_err().to_string(),
            "no GPU can be used: there is none"
        );
    }

    #[test]
    fn devices_are_named_by_number_and_uuid() {
        let machine = [
            found("llvmpipe", Kind::Software, 0x10005, 64),
            found("first card", Kind::Discrete, 0x10de, 8),
            found("other maker", Kind::Discrete, 0x1002, 12),
            found("second card", Kind::Discrete, 0x10de, 24),
        ];
        let chosen = |visible: Option<&str>, nvidia: Option<&str>| {
            let list = |names: &str| DeviceName::list(names.split(','));
            let choice = Choice {
                visible: visible.map(list),
                nvidia: nvidia.map(list),
                ..Choice::default()
            };
            choose(&machine, &choice).unwrap_or_default()
        };
        assert_eq!(chosen(None, None), [3, 2, 1]);
        assert_eq!(chosen(Some("1,3"), None), [1, 3]);
        assert_eq!(chosen(Some("3, 1,3"), None), [3, 1], "once each");
        assert_eq!(chosen(Some("GPU-18181818-1818,2"), None), [3, 2]);
        assert_eq!(chosen(Some("0C0C0C"), None), [2]);
        assert_eq!(chosen(Some("1,-1,2"), None), [1]);
        assert_eq!(chosen(Some("-1"), None), []);
        assert_eq!(chosen(Some("0"), None), [], "it computes on the CPU");
        assert_eq!(chosen(Some(""), None), []);
        // Numbers of NVIDIA's count their own cards, and say nothing of others.
        assert_eq!(chosen(None, Some("1")), [3, 2]);
        assert_eq!(chosen(None, Some("GPU-08080808")), [2, 1]);
        assert_eq!(chosen(None, Some("-1")), [2]);
        assert_eq!(chosen(Some("1,2"), Some("1")), [2]);
        let twice = Choice {
            software: true,
            visible: Some(DeviceName::list(["0", "0"])),
            ..Choice::default()
        };
        assert_eq!(choose(&machine, &twice).unwrap(), [0, 0], "for tests");
    }

    #[test]
    fn counters_that_begin_anew_are_understood() {
        let tick = Tick::new(10.0, 36).unwrap();
        assert_eq!(tick.seconds(100, 200), 1e-6);
        assert_eq!(tick.seconds((1 << 36) - 50, 50), 1e-6);
        // What lies above the bits that count is of no meaning.
        assert_eq!(tick.seconds((7 << 40) + 1, (9 << 50) + 101), 1e-6);
        assert_eq!(Tick::new(1.0, 64).unwrap().seconds(u64::MAX, 999), 1e-6);
    }

    #[test]
    fn devices_without_a_clock_are_known() {
        assert_eq!(Tick::new(1.0, 0), None);
        assert_eq!(Tick::new(0.0, 64), None);
        assert_eq!(Tick::new(f32::NAN, 64), None);
    }
}

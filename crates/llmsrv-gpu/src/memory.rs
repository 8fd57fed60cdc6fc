//! Buffers with memory of their own. One of the few files with `unsafe`: it calls drivers.
#![expect(
    unsafe_code,
    reason = "calls of a driver; what each needs is said beside it"
)]

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

use ash::vk;

use crate::{Error, device::Device, error::failed};

/// A buffer and its memory.
pub(crate) struct Allocation {
    /// The buffer.
    pub buffer: vk::Buffer,
    /// Its length, a multiple of 4.
    pub bytes: u64,
    memory: vk::DeviceMemory,
    taken: u64,
    place: Place,
}

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the device, in its largest memory.
    Device,
    /// Where the host writes and the device reads.
    Upload,
    /// Where the device writes and the host reads.
    Download,
}

/// What a model has taken of the device, and what it must leave.
#[derive(Debug, Default)]
pub(crate) struct Account {
    taken: AtomicU64,
    leave_free: u64,
    limit: Option<u64>,
}

impl Account {
    pub(crate) fn new(leave_free: u64, limit: Option<u64>) -> Account {
        Account {
            taken: AtomicU64::new(0),
            leave_free,
            limit,
        }
    }

    /// Returns the bytes taken on the device.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

thread_local! {
    static PIECES: Cell<i64> = const { Cell::new(0) };
}

/// Returns how many pieces of memory this thread took of all devices and has not given back.
pub fn pieces_taken() -> i64 {
    PIECES.get()
}

/// Returns how many bytes may still be taken on the device.
pub(crate) fn free_bytes(device: &Device, account: &Account) -> u64 {
    let Some((_, heap)) = memory_type(device, Place::Device, u32::MAX) else {
        return 0;
    };
    let size = device
        .memory
        .memory_heaps_as_slice()
        .get(heap as usize)
        .map_or(0, |heap| heap.size);
    // A driver that says nothing of others at least has what this model took.
    let free = device
        .free_bytes(heap)
        .min(size.saturating_sub(account.taken_bytes()));
    let free = free.saturating_sub(account.leave_free);
    let allowed = account.limit.unwrap_or(u64::MAX);
    free.min(allowed.saturating_sub(account.taken_bytes()))
}

/// Makes a buffer of at least `bytes`, with any content.
pub(crate) fn allocate(
    device: &Device,
    account: &Account,
    bytes: u64,
    place: Place,
) -> Result<Allocation, Error> {
    let bytes = bytes.max(4).next_multiple_of(4);
    let too_little = |free_bytes| Error::OutOfMemory {
        device: device.found.name.clone(),
        needed_bytes: bytes,
        free_bytes,
    };
    if place == Place::Device && bytes > free_bytes(device, account) {
        return Err(too_little(free_bytes(device, account)));
    }
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER
        | vk::BufferUsageFlags::TRANSFER_SRC
        | vk::BufferUsageFlags::TRANSFER_DST;
    let info = vk::BufferCreateInfo::default().size(bytes).usage(usage);
    // SAFETY: the device lives, and the structure until the call returns.
    let buffer =
        unsafe { device.calls.create_buffer(&info, None) }.map_err(failed("vkCreateBuffer"))?;
    // SAFETY: the buffer belongs to the device.
    let needs = unsafe { device.calls.get_buffer_memory_requirements(buffer) };
    let memory = memory_type(device, place, needs.memory_type_bits)
        .ok_or_else(|| Error::Unsupported("no memory of the device holds buffers".into()))
        .and_then(|(kind, _)| {
            let info = vk::MemoryAllocateInfo::default()
                .allocation_size(needs.size)
                .memory_type_index(kind);
            // SAFETY: the device lives and has this type of memory.
            unsafe { device.calls.allocate_memory(&info, None) }.map_err(|error| match error {
                vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => {
                    too_little(free_bytes(device, account))
                }
                error => failed("vkAllocateMemory")(error),
            })
        });
    let memory = match memory {
        Ok(memory) => memory,
        Err(error) => {
            // SAFETY: nothing uses the buffer.
            unsafe { device.calls.destroy_buffer(buffer, None) };
            return Err(error);
        }
    };
    let taken = if place == Place::Device {
        needs.size
    } else {
        0
    };
    account.taken.fetch_add(taken, Ordering::Relaxed);
    PIECES.set(PIECES.get() + 1);
    let made = Allocation {
        buffer,
        bytes,
        memory,
        taken,
        place,
    };
    // SAFETY: both are new, belong to the device, and the memory is of a type and size that the buffer takes.
    if let Err(error) = unsafe { device.calls.bind_buffer_memory(buffer, memory, 0) } {
        free(device, account, &made);
        return Err(failed("vkBindBufferMemory")(error));
    }
    Ok(made)
}

/// Frees a buffer. Nothing that uses it runs on the device.
pub(crate) fn free(device: &Device, account: &Account, allocation: &Allocation) {
    account.taken.fetch_sub(allocation.taken, Ordering::Relaxed);
    PIECES.set(PIECES.get() - 1);
    // SAFETY: nothing uses them any more, as the caller says, and they belong to the device.
    unsafe {
        device.calls.destroy_buffer(allocation.buffer, None);
        device.calls.free_memory(allocation.memory, None);
    }
}

/// Lets `with` have `bytes` of memory that the host sees. Nothing that uses it runs on the device.
pub(crate) fn mapped(
    device: &Device,
    allocation: &Allocation,
    from: usize,
    bytes: usize,
    with: impl FnOnce(&mut [u8]),
) -> Result<(), Error> {
    let end = from.checked_add(bytes);
    let fits = end.is_some_and(|end| end as u64 <= allocation.bytes);
    if !fits || allocation.place == Place::Device {
        return Err(Error::Unsupported(
            "memory that the host does not see".into(),
        ));
    }
    // SAFETY: the memory is visible to the host and coherent (see `memory_type`), is not mapped, is as long as the
    // slice (checked above), and the caller says that nothing on the device uses this part of it.
    unsafe {
        let at = device
            .calls
            .map_memory(
                allocation.memory,
                0,
                vk::WHOLE_SIZE,
                vk::MemoryMapFlags::empty(),
            )
            .map_err(failed("vkMapMemory"))?;
        with(std::slice::from_raw_parts_mut(
            at.cast::<u8>().add(from),
            bytes,
        ));
        device.calls.unmap_memory(allocation.memory);
    }
    Ok(())
}

/// Returns a type of memory among `allowed` (a bit for each), with its heap.
fn memory_type(device: &Device, place: Place, allowed: u32) -> Option<(u32, u32)> {
    let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
    let visible = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
    let types = || {
        let all = device.memory.memory_types_as_slice().iter().enumerate();
        all.filter(|(at, _)| allowed & (1 << at) != 0)
    };
    let first = |flags| types().find(|(_, kind)| kind.property_flags.contains(flags));
    let size = |heap: u32| {
        device
            .memory
            .memory_heaps_as_slice()
            .get(heap as usize)
            .map_or(0, |heap| heap.size)
    };
    let chosen = match place {
        // Drivers list the faster types of a heap first.
        Place::Device => types()
            .filter(|(_, kind)| kind.property_flags.contains(local))
            .min_by_key(|(_, kind)| u64::MAX - size(kind.heap_index)),
        Place::Upload => first(visible),
        // Reading memory that the CPU does not cache takes long.
        Place::Download => {
            first(visible | vk::MemoryPropertyFlags::HOST_CACHED).or_else(|| first(visible))
        }
    };
    chosen.map(|(at, kind)| (at as u32, kind.heap_index))
}

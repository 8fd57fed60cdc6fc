//! OpenCL through the loader of the system. One of the few files with `unsafe`: it calls drivers.
#![expect(
    unsafe_code,
    reason = "calls of a driver; what each needs is said beside it"
)]

use std::{collections::BTreeMap, ptr};

use opencl3::{
    command_queue::CommandQueue,
    context::Context,
    device::{CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, Device as ClDevice},
    error_codes::ClError,
    kernel::{ExecuteKernel, Kernel},
    memory::{Buffer as ClBuffer, CL_MEM_READ_WRITE},
    platform,
    program::Program,
    types::CL_BLOCKING,
};

use super::{Api, Buffer, Device, DeviceInfo, DeviceKind, Error, KERNELS, Launch};

/// The source of all kernels.
const SOURCE: &str = concat!(
    include_str!("../../kernels/opencl.h"),
    include_str!("../../kernels/kernels.c")
);

/// Lists the devices of all platforms.
pub fn list() -> Result<Vec<DeviceInfo>, Error> {
    Ok(devices()?.into_iter().map(|(info, _)| info).collect())
}

fn devices() -> Result<Vec<(DeviceInfo, ClDevice)>, Error> {
    const NOT_FOUND: i32 = -1001; // CL_PLATFORM_NOT_FOUND_KHR: a loader without drivers
    let platforms = match platform::get_platforms() {
        Ok(platforms) => platforms,
        Err(ClError(NOT_FOUND)) => return Ok(Vec::new()),
        // What the binding says when there is no library to load.
        Err(ClError(code)) if code == opencl3::error_codes::DLOPEN_RUNTIME_LOAD_FAILED => {
            return Err(Error::NoLibrary(
                "the OpenCL loader",
                "there is no libOpenCL.so.1".into(),
            ));
        }
        Err(error) => return Err(failed("clGetPlatformIDs")(error)),
    };
    let mut found = Vec::new();
    for platform in platforms {
        let title = platform.name().unwrap_or_default();
        for id in platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default() {
            let device = ClDevice::new(id);
            let kind = match device.dev_type().map_err(failed("clGetDeviceInfo"))? {
                kind if kind & CL_DEVICE_TYPE_GPU != 0 => DeviceKind::Gpu,
                kind if kind & CL_DEVICE_TYPE_CPU != 0 => DeviceKind::Cpu,
                _ => DeviceKind::Other,
            };
            let version = device.driver_version().unwrap_or_default();
            let info = DeviceInfo {
                api: Api::OpenCl,
                index: found.len(),
                name: device.name().unwrap_or_default().trim().to_owned(),
                kind,
                driver: format!("{} {}", title.trim(), version.trim()),
                memory_bytes: device.global_mem_size().unwrap_or_default(),
            };
            found.push((info, device));
        }
    }
    Ok(found)
}

/// A device with its queue and kernels.
pub struct OpenCl {
    // Dropped in this order: what belongs to a context before the context.
    buffers: Vec<ClBuffer<u32>>,
    kernels: BTreeMap<&'static str, Kernel>,
    queue: CommandQueue,
    context: Context,
    max_words: usize,
}

impl OpenCl {
    /// Compiles the kernels for a device.
    pub fn open(index: usize) -> Result<OpenCl, Error> {
        let (_, device) = devices()?
            .into_iter()
            .nth(index)
            .ok_or(Error::NoDevice(index))?;
        let max_bytes = device
            .max_mem_alloc_size()
            .map_err(failed("clGetDeviceInfo"))?;
        let context = Context::from_device(&device).map_err(failed("clCreateContext"))?;
        let queue =
            CommandQueue::create_default(&context, 0).map_err(failed("clCreateCommandQueue"))?;
        let program = Program::create_and_build_from_source(&context, SOURCE, "")
            .map_err(|log| Error::driver("clBuildProgram", log))?;
        let mut kernels = BTreeMap::new();
        for (name, _) in KERNELS {
            kernels.insert(
                *name,
                Kernel::create(&program, name).map_err(failed("clCreateKernel"))?,
            );
        }
        let max_words = usize::try_from(max_bytes / 4).unwrap_or(usize::MAX);
        Ok(OpenCl {
            buffers: Vec::new(),
            kernels,
            queue,
            context,
            max_words,
        })
    }
}

impl Device for OpenCl {
    fn allocate(&mut self, words: usize) -> Result<Buffer, Error> {
        // SAFETY: no host pointer is given.
        let buffer =
            unsafe { ClBuffer::create(&self.context, CL_MEM_READ_WRITE, words, ptr::null_mut()) };
        self.buffers.push(buffer.map_err(failed("clCreateBuffer"))?);
        Ok(Buffer(self.buffers.len() - 1))
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.queue.finish().map_err(failed("clFinish"))?;
        self.buffers.clear();
        Ok(())
    }

    fn write(&mut self, buffer: Buffer, words: &[u32]) -> Result<(), Error> {
        let buffer = &mut self.buffers[buffer.0];
        // SAFETY: the call blocks until `words` has been read; the driver checks the length of the buffer.
        unsafe {
            self.queue
                .enqueue_write_buffer(buffer, CL_BLOCKING, 0, words, &[])
        }
        .map(drop)
        .map_err(failed("clEnqueueWriteBuffer"))
    }

    fn read(&mut self, buffer: Buffer, words: &mut [u32]) -> Result<(), Error> {
        let buffer = &self.buffers[buffer.0];
        // SAFETY: the call blocks until `words` has been written; the driver checks the length of the buffer.
        unsafe {
            self.queue
                .enqueue_read_buffer(buffer, CL_BLOCKING, 0, words, &[])
        }
        .map(drop)
        .map_err(failed("clEnqueueReadBuffer"))
    }

    fn run(&mut self, launches: &[Launch]) -> Result<(), Error> {
        for launch in launches {
            let kernel = &self.kernels[launch.kernel];
            let mut call = ExecuteKernel::new(kernel);
            for buffer in &launch.buffers {
                // SAFETY: the arguments are those the kernel declares, in their order and types; the checks give
                // every kernel buffers as long as its items read and write.
                unsafe { call.set_arg(&self.buffers[buffer.0]) };
            }
            for param in &launch.params {
                // SAFETY: as above; all kernels end with four numbers.
                unsafe { call.set_arg(param) };
            }
            call.set_global_work_size((launch.params[0] as usize).next_multiple_of(GROUP));
            call.set_local_work_size(GROUP);
            // SAFETY: all arguments are set.
            unsafe { call.enqueue_nd_range(&self.queue) }
                .map_err(failed("clEnqueueNDRangeKernel"))?;
        }
        self.queue.finish().map_err(failed("clFinish"))
    }

    fn max_words(&self) -> usize {
        self.max_words
    }
}

/// Items in a work group; every device takes as many.
const GROUP: usize = 64;

fn failed(call: &'static str) -> impl Fn(ClError) -> Error {
    move |error| Error::driver(call, error)
}

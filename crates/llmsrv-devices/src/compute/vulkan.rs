//! Vulkan compute through the recorder of `llmsrv-gpu`, also on devices that its own kernels do not run on.

use llmsrv_gpu::{Access, Found, Kind, Recorder, Region};

use super::{Api, Buffer, Device, DeviceInfo, DeviceKind, Error, Launch, spirv};

/// Lists the devices that can compute.
pub fn list() -> Result<Vec<DeviceInfo>, Error> {
    let info = |found: Found| DeviceInfo {
        api: Api::Vulkan,
        index: found.number,
        name: found.name,
        kind: match found.kind {
            Kind::Discrete | Kind::Virtual | Kind::Integrated => DeviceKind::Gpu,
            Kind::Software => DeviceKind::Cpu,
            Kind::Other => DeviceKind::Other,
        },
        driver: found.driver,
        memory_bytes: found.memory_bytes,
    };
    let found = llmsrv_gpu::devices()?;
    Ok(found.into_iter().map(info).collect())
}

/// A device with its buffers.
pub struct Vulkan {
    recorder: Recorder,
    buffers: Vec<Region>,
}

impl Vulkan {
    /// Opens a device of the list.
    pub fn open(index: usize) -> Result<Vulkan, Error> {
        match Recorder::open_any(index, module) {
            Ok(recorder) => Ok(Vulkan {
                recorder,
                buffers: Vec::new(),
            }),
            Err(llmsrv_gpu::Error::NoDevice(_)) => Err(Error::NoDevice(index)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Device for Vulkan {
    fn allocate(&mut self, words: usize) -> Result<Buffer, Error> {
        let bytes = words as u64 * 4;
        self.buffers.push(Region {
            buffer: self.recorder.allocate(bytes)?,
            start: 0,
            bytes,
        });
        Ok(Buffer(self.buffers.len() - 1))
    }

    fn clear(&mut self) -> Result<(), Error> {
        let buffers: Vec<_> = self.buffers.drain(..).map(|made| made.buffer).collect();
        Ok(self.recorder.free(&buffers)?)
    }

    fn write(&mut self, buffer: Buffer, words: &[u32]) -> Result<(), Error> {
        let to = self.buffers[buffer.0];
        self.recorder.upload(bytemuck::cast_slice(words), to)?;
        Ok(self.recorder.finish()?)
    }

    fn read(&mut self, buffer: Buffer, words: &mut [u32]) -> Result<(), Error> {
        let from = self.buffers[buffer.0];
        Ok(self.recorder.read(from, bytemuck::cast_slice_mut(words))?)
    }

    fn run(&mut self, launches: &[Launch]) -> Result<(), Error> {
        for some in launches.chunks(MAX_LAUNCHES) {
            for launch in some {
                let buffers = launch.buffers.iter().enumerate().map(|(at, buffer)| {
                    let region = self.buffers[buffer.0];
                    if at == 0 {
                        Access::Write(region)
                    } else {
                        Access::Read(region)
                    }
                });
                let buffers: Vec<Access> = buffers.collect();
                let groups = launch.params[0].div_ceil(64);
                // Every device takes 65535 groups in a dimension.
                let groups = [groups.min(32768), groups.div_ceil(32768), 1];
                self.recorder
                    .dispatch(launch.kernel, &buffers, &launch.params, groups, 0)?;
            }
            self.recorder.finish()?;
        }
        Ok(())
    }

    fn max_words(&self) -> usize {
        usize::try_from(self.recorder.max_binding() / 4).unwrap_or(usize::MAX)
    }
}

impl From<llmsrv_gpu::Error> for Error {
    fn from(error: llmsrv_gpu::Error) -> Error {
        match error {
            llmsrv_gpu::Error::NoLoader(why) => Error::NoLibrary("the Vulkan loader", why),
            llmsrv_gpu::Error::NoDriver => {
                Error::NoLibrary("a Vulkan driver", "the loader found none".into())
            }
            llmsrv_gpu::Error::Call { call, result } => Error::driver(call, result),
            error => Error::driver("Vulkan", error),
        }
    }
}

/// Returns the module of a kernel.
fn module(kernel: &str) -> Result<Vec<u32>, llmsrv_gpu::Error> {
    // A test unpacks and compares what is committed: nothing is left to fail here.
    let modules = zstd::decode_all(spirv::PACKED).unwrap_or_default();
    let module = spirv::MODULES.iter().find(|(name, _)| *name == kernel);
    module
        .and_then(|(_, place)| modules.get(place.clone()))
        .map(bytemuck::pod_collect_to_vec)
        .ok_or_else(|| llmsrv_gpu::Error::Unsupported(format!("there is no kernel {kernel}")))
}

/// Kernels in one submission.
const MAX_LAUNCHES: usize = 256;

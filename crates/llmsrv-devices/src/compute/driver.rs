//! CUDA and HIP. The driver interface of AMD was made after NVIDIA's, function by function, so one table of names
//! serves both. One of the few files with `unsafe`: it calls drivers.
#![expect(
    unsafe_code,
    reason = "calls of a driver; what each needs is said beside it"
)]

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    mem::ManuallyDrop,
    ptr,
};

use libloading::Library;

use super::{Api, Buffer, Device, DeviceInfo, DeviceKind, Error, KERNELS, Launch};

/// NVIDIA's driver compiles this text for its GPU; `kernels/make_ptx.py` makes it.
const PTX: &str = include_str!("../../kernels/kernels.ptx");
const HIP: &str = concat!(
    include_str!("../../kernels/hip.h"),
    include_str!("../../kernels/kernels.c")
);

/// Lists the devices of the driver.
pub fn list(api: Api) -> Result<Vec<DeviceInfo>, Error> {
    let functions = Functions::load(api)?;
    functions.init()?;
    (0..functions.count()?)
        .map(|index| functions.info(api, index))
        .collect()
}

/// What is called a status in both interfaces; 0 is success.
type Status = c_int;
/// A pointer of the device, of a module, a function, or a context.
type Handle = *mut c_void;

/// Declares the functions of a driver and how they are found in both libraries.
macro_rules! functions {
    ($($name:ident = $cuda:literal | $hip:literal : fn($($arg:ty),*);)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($arg),*) -> Status,)*
            error_name: Option<unsafe extern "C" fn(Status, *mut *const c_char) -> Status>,
            // What they point into; stays, since drivers have threads of their own in it.
            _library: ManuallyDrop<Library>,
        }

        impl Functions {
            fn from(api: Api, library: Library) -> Result<Functions, Error> {
                let cuda = api == Api::Cuda;
                // SAFETY: these are the types in the headers of CUDA 12 and ROCm 5 to 7; the names with a suffix
                // never change theirs.
                unsafe {
                    Ok(Functions {
                        $($name: *library
                            .get::<unsafe extern "C" fn($($arg),*) -> Status>(if cuda { $cuda } else { $hip })
                            .map_err(|error| Error::driver($cuda, error))?,)*
                        error_name: library
                            .get::<unsafe extern "C" fn(Status, *mut *const c_char) -> Status>(
                                if cuda { "cuGetErrorName" } else { "hipDrvGetErrorName" },
                            )
                            .ok()
                            .map(|found| *found),
                        _library: ManuallyDrop::new(library),
                    })
                }
            }
        }
    };
}

functions! {
    init = "cuInit" | "hipInit": fn(c_uint);
    count = "cuDeviceGetCount" | "hipGetDeviceCount": fn(*mut c_int);
    device = "cuDeviceGet" | "hipDeviceGet": fn(*mut c_int, c_int);
    name = "cuDeviceGetName" | "hipDeviceGetName": fn(*mut c_char, c_int, c_int);
    memory = "cuDeviceTotalMem_v2" | "hipDeviceTotalMem": fn(*mut usize, c_int);
    version = "cuDriverGetVersion" | "hipDriverGetVersion": fn(*mut c_int);
    context = "cuDevicePrimaryCtxRetain" | "hipDevicePrimaryCtxRetain": fn(*mut Handle, c_int);
    set_context = "cuCtxSetCurrent" | "hipCtxSetCurrent": fn(Handle);
    load = "cuModuleLoadData" | "hipModuleLoadData": fn(*mut Handle, *const c_void);
    function = "cuModuleGetFunction" | "hipModuleGetFunction": fn(*mut Handle, Handle, *const c_char);
    allocate = "cuMemAlloc_v2" | "hipMalloc": fn(*mut Handle, usize);
    free = "cuMemFree_v2" | "hipFree": fn(Handle);
    to_device = "cuMemcpyHtoD_v2" | "hipMemcpyHtoD": fn(Handle, *const c_void, usize);
    to_host = "cuMemcpyDtoH_v2" | "hipMemcpyDtoH": fn(*mut c_void, Handle, usize);
    launch = "cuLaunchKernel" | "hipModuleLaunchKernel": fn(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    wait = "cuCtxSynchronize" | "hipDeviceSynchronize": fn();
}

impl Functions {
    fn load(api: Api) -> Result<Functions, Error> {
        let (what, names) = match api {
            Api::Cuda => ("the driver of NVIDIA", CUDA_LIBRARIES),
            _ => ("the HIP runtime", HIP_LIBRARIES),
        };
        Functions::from(api, library(what, names)?)
    }

    fn init(&self) -> Result<(), Error> {
        // SAFETY: the argument must be 0.
        match unsafe { (self.init)(0) } {
            NO_DEVICE => Ok(()),
            status => self.check("initialisation of the driver", status),
        }
    }

    fn count(&self) -> Result<usize, Error> {
        let mut count = 0;
        // SAFETY: writes one number.
        match unsafe { (self.count)(&raw mut count) } {
            // The first call after an initialisation that found nothing says so, too.
            NO_DEVICE | NOT_INITIALISED => Ok(0),
            status => {
                self.check("counting of devices", status)?;
                Ok(usize::try_from(count).unwrap_or(0))
            }
        }
    }

    fn device(&self, index: usize) -> Result<c_int, Error> {
        let mut device = 0;
        // SAFETY: writes one number.
        self.check("cuDeviceGet", unsafe {
            (self.device)(&raw mut device, index as c_int)
        })?;
        Ok(device)
    }

    fn info(&self, api: Api, index: usize) -> Result<DeviceInfo, Error> {
        let device = self.device(index)?;
        let (mut name, mut memory_bytes, mut version) = ([0_u8; 256], 0_usize, 0);
        // SAFETY: each writes one value, the first at most as many bytes as it is told, with a zero at the end.
        unsafe {
            let room = name.len() as c_int - 1;
            self.check(
                "cuDeviceGetName",
                (self.name)(name.as_mut_ptr().cast(), room, device),
            )?;
            self.check(
                "cuDeviceTotalMem",
                (self.memory)(&raw mut memory_bytes, device),
            )?;
            self.check("cuDriverGetVersion", (self.version)(&raw mut version))?;
        }
        let name =
            CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().trim().to_owned());
        Ok(DeviceInfo {
            api,
            index,
            name: name.unwrap_or_default(),
            kind: DeviceKind::Gpu,
            driver: match api {
                Api::Cuda => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
                _ => format!("HIP {}.{}", version / 10_000_000, version / 100_000 % 100),
            },
            memory_bytes: memory_bytes as u64,
        })
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), Error> {
        if status == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        if let Some(error_name) = self.error_name {
            // SAFETY: writes one pointer, to a string that lives as long as the library, or null.
            unsafe { error_name(status, &raw mut name) };
        }
        let name = if name.is_null() {
            String::new()
        } else {
            // SAFETY: see above.
            format!(" ({})", unsafe { CStr::from_ptr(name) }.to_string_lossy())
        };
        Err(Error::driver(call, format!("error {status}{name}")))
    }
}

/// A device with its module loaded.
pub struct Driver {
    functions: Functions,
    kernels: BTreeMap<&'static str, Handle>,
    buffers: Vec<Memory>,
    max_words: usize,
}

struct Memory {
    at: Handle,
    bytes: usize,
}

impl Driver {
    /// Loads the kernels onto a device.
    pub fn open(api: Api, index: usize) -> Result<Driver, Error> {
        let functions = Functions::load(api)?;
        functions.init()?;
        if index >= functions.count()? {
            return Err(Error::NoDevice(index));
        }
        let device = functions.device(index)?;
        let (mut context, mut module) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: each writes one handle; the device is one of the driver's.
        unsafe {
            functions.check(
                "cuDevicePrimaryCtxRetain",
                (functions.context)(&raw mut context, device),
            )?;
            functions.check("cuCtxSetCurrent", (functions.set_context)(context))?;
        }
        let image = match api {
            Api::Cuda => CString::new(PTX).unwrap_or_default().into_bytes_with_nul(),
            _ => hiprtc(HIP)?,
        };
        // SAFETY: the image is text that ends with a zero, or what the compiler of HIP made.
        let loaded = unsafe { (functions.load)(&raw mut module, image.as_ptr().cast()) };
        functions.check("cuModuleLoadData", loaded)?;
        let mut kernels = BTreeMap::new();
        for (name, _) in KERNELS {
            let symbol = CString::new(*name).unwrap_or_default();
            let mut kernel = ptr::null_mut();
            // SAFETY: the module is loaded, and the name ends with a zero.
            let found = unsafe { (functions.function)(&raw mut kernel, module, symbol.as_ptr()) };
            functions.check("cuModuleGetFunction", found)?;
            kernels.insert(*name, kernel);
        }
        let mut bytes = 0_usize;
        // SAFETY: writes one number.
        functions.check("cuDeviceTotalMem", unsafe {
            (functions.memory)(&raw mut bytes, device)
        })?;
        Ok(Driver {
            functions,
            kernels,
            buffers: Vec::new(),
            max_words: bytes / 4,
        })
    }

    /// Returns the buffer, if so many words fit.
    fn buffer(&self, buffer: Buffer, words: usize) -> Result<Handle, Error> {
        let memory = &self.buffers[buffer.0];
        if words * 4 > memory.bytes {
            return Err(Error::driver("memory copy", "more than the buffer holds"));
        }
        Ok(memory.at)
    }
}

impl Device for Driver {
    fn allocate(&mut self, words: usize) -> Result<Buffer, Error> {
        let mut at = ptr::null_mut();
        let bytes = words * 4;
        // SAFETY: writes one pointer.
        self.functions.check("cuMemAlloc", unsafe {
            (self.functions.allocate)(&raw mut at, bytes)
        })?;
        self.buffers.push(Memory { at, bytes });
        Ok(Buffer(self.buffers.len() - 1))
    }

    fn clear(&mut self) -> Result<(), Error> {
        for memory in std::mem::take(&mut self.buffers) {
            // SAFETY: it came from `allocate`, and every run was waited for.
            let freed = unsafe { (self.functions.free)(memory.at) };
            self.functions.check("cuMemFree", freed)?;
        }
        Ok(())
    }

    fn write(&mut self, buffer: Buffer, words: &[u32]) -> Result<(), Error> {
        let to = self.buffer(buffer, words.len())?;
        // SAFETY: both sides are as long; the call returns when `words` has been read.
        let status =
            unsafe { (self.functions.to_device)(to, words.as_ptr().cast(), words.len() * 4) };
        self.functions.check("cuMemcpyHtoD", status)
    }

    fn read(&mut self, buffer: Buffer, words: &mut [u32]) -> Result<(), Error> {
        let from = self.buffer(buffer, words.len())?;
        // SAFETY: both sides are as long; the call returns when `words` has been written.
        let status =
            unsafe { (self.functions.to_host)(words.as_mut_ptr().cast(), from, words.len() * 4) };
        self.functions.check("cuMemcpyDtoH", status)
    }

    fn run(&mut self, launches: &[Launch]) -> Result<(), Error> {
        for launch in launches {
            let mut buffers: Vec<Handle> = launch
                .buffers
                .iter()
                .map(|buffer| self.buffers[buffer.0].at)
                .collect();
            let mut params = launch.params;
            let mut arguments: Vec<*mut c_void> = Vec::new();
            arguments.extend(
                buffers
                    .iter_mut()
                    .map(|buffer| ptr::from_mut(buffer).cast::<c_void>()),
            );
            arguments.extend(
                params
                    .iter_mut()
                    .map(|param| ptr::from_mut(param).cast::<c_void>()),
            );
            let groups = launch.params[0].div_ceil(GROUP);
            // SAFETY: the arguments are those the kernel declares, in their order and types, and are copied before
            // the call returns; the checks give every kernel buffers as long as its items read and write.
            let status = unsafe {
                (self.functions.launch)(
                    self.kernels[launch.kernel],
                    groups,
                    1,
                    1,
                    GROUP,
                    1,
                    1,
                    0,
                    ptr::null_mut(),
                    arguments.as_mut_ptr(),
                    ptr::null_mut(),
                )
            };
            self.functions.check("cuLaunchKernel", status)?;
        }
        // SAFETY: takes nothing.
        self.functions
            .check("cuCtxSynchronize", unsafe { (self.functions.wait)() })
    }

    fn max_words(&self) -> usize {
        self.max_words
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The process ends soon; the driver takes back what is left.
        let _ = self.clear();
    }
}

/// Compiles for the current device of HIP.
fn hiprtc(source: &str) -> Result<Vec<u8>, Error> {
    let library = library("HIP's compiler", HIPRTC_LIBRARIES)?;
    let source = CString::new(source).unwrap_or_default();
    let (mut program, mut size) = (ptr::null_mut::<c_void>(), 0_usize);
    let check = |call, status: Status| match status {
        0 => Ok(()),
        status => Err(Error::driver(call, format!("error {status}"))),
    };
    type Create = unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status;
    type Compile = unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> Status;
    type Size = unsafe extern "C" fn(Handle, *mut usize) -> Status;
    type Text = unsafe extern "C" fn(Handle, *mut c_char) -> Status;
    let missing = |error: libloading::Error| Error::driver("hiprtc", error);
    // SAFETY: these are the types in the headers of ROCm 5 to 7; sources and names end with a zero, and each buffer
    // is as long as the compiler said.
    unsafe {
        let create = library
            .get::<Create>("hiprtcCreateProgram")
            .map_err(missing)?;
        let compile = library
            .get::<Compile>("hiprtcCompileProgram")
            .map_err(missing)?;
        let log_size = library
            .get::<Size>("hiprtcGetProgramLogSize")
            .map_err(missing)?;
        let log = library
            .get::<Text>("hiprtcGetProgramLog")
            .map_err(missing)?;
        let code_size = library.get::<Size>("hiprtcGetCodeSize").map_err(missing)?;
        let code = library.get::<Text>("hiprtcGetCode").map_err(missing)?;
        let created = create(
            &raw mut program,
            source.as_ptr(),
            c"kernels.c".as_ptr(),
            0,
            ptr::null(),
            ptr::null(),
        );
        check("hiprtcCreateProgram", created)?;
        if compile(program, 0, ptr::null()) != 0 {
            let mut text = Vec::new();
            if log_size(program, &raw mut size) == 0 {
                text.resize(size, 0);
                log(program, text.as_mut_ptr().cast());
            }
            return Err(Error::driver(
                "hiprtcCompileProgram",
                String::from_utf8_lossy(&text),
            ));
        }
        check("hiprtcGetCodeSize", code_size(program, &raw mut size))?;
        let mut image = vec![0_u8; size];
        check("hiprtcGetCode", code(program, image.as_mut_ptr().cast()))?;
        Ok(image)
    }
}

/// Opens the first of some libraries that is there.
fn library(what: &'static str, names: &[&str]) -> Result<Library, Error> {
    let mut first = None;
    for name in names {
        // SAFETY: the initialisers of the driver run, as in every program that uses it.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(library),
            Err(error) => first = first.or(Some(reason(&error))),
        }
    }
    Err(Error::NoLibrary(what, first.unwrap_or_default()))
}

/// What the linker said.
fn reason(error: &libloading::Error) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), ToString::to_string)
}

const CUDA_LIBRARIES: &[&str] = &[
    "libcuda.so.1",
    "libcuda.so",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
];
const HIP_LIBRARIES: &[&str] = &[
    "libamdhip64.so",
    "libamdhip64.so.7",
    "libamdhip64.so.6",
    "libamdhip64.so.5",
    "/opt/rocm/lib/libamdhip64.so",
];
const HIPRTC_LIBRARIES: &[&str] = &[
    "libhiprtc.so",
    "libhiprtc.so.7",
    "libhiprtc.so.6",
    "libhiprtc.so.5",
    "/opt/rocm/lib/libhiprtc.so",
];

const NO_DEVICE: Status = 100;
const NOT_INITIALISED: Status = 3;

/// Items in a block.
const GROUP: u32 = 128;

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_ptx_was_made_of_the_sources_beside_it() {
        let digest = hex::encode(Sha256::digest(HIP));
        let first = PTX.lines().next().unwrap();
        assert!(
            first.ends_with(&digest),
            "run kernels/make_ptx.py: {first}, but the sources are {digest}"
        );
        for (name, n_buffers) in KERNELS {
            let (_, rest) = PTX.split_once(&format!(".visible .entry {name}(")).unwrap();
            let (params, _) = rest.split_once(')').unwrap();
            assert_eq!(params.matches(".param .u64").count(), *n_buffers, "{name}");
            assert_eq!(params.matches(".param .u32").count(), 4, "{name}");
        }
    }
}

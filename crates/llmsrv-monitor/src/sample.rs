//! What is shown: the figures of one interval. Their names are those of the JSON output, and stay.

use serde::Serialize;

/// All figures of one interval. What the machine does not have is `null`, or an empty list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// When it was taken, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// Length of the interval.
    pub interval_seconds: f64,
    /// The machine.
    pub host: Host,
    /// Its processors.
    pub cpu: Option<Cpu>,
    /// Its memory.
    pub memory: Option<Memory>,
    /// Its swap space; one of zero bytes says that there is none.
    pub swap: Option<Memory>,
    /// How hot it is.
    pub temperature: Option<Temperature>,
    /// Its disks.
    pub disk: Option<Disk>,
    /// Its network.
    pub network: Option<Network>,
    /// GPUs and NPUs.
    pub accelerators: Vec<Accelerator>,
    /// The language-model server, if it answers or its process is there.
    pub server: Option<Server>,
    /// What could not be read though it is there.
    pub problems: Vec<Problem>,
}

/// The machine as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Host {
    /// Its name.
    pub name: Option<String>,
    /// Seconds since it started.
    pub uptime_seconds: Option<u64>,
    /// Processes that ran or waited for a disk, over 1, 5 and 15 minutes.
    pub load_average: Option<[f64; 3]>,
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// Share of the time in which all together worked.
    pub percent: Option<f64>,
    /// Each.
    pub cores: Vec<Core>,
}

/// One processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Core {
    /// Its number.
    pub core: u32,
    /// Share of the time in which it worked; none in the interval in which it appeared.
    pub percent: Option<f64>,
}

/// A memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// In use: what is not available to programs.
    pub used_bytes: u64,
    /// All of it.
    pub total_bytes: u64,
    /// Share in use; none of nothing.
    pub percent: Option<f64>,
}

/// Sensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Temperature {
    /// The highest.
    pub max_celsius: f64,
    /// Each.
    pub sensors: Vec<Sensor>,
}

/// One sensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sensor {
    /// What it calls itself.
    pub name: String,
    /// Which one it is for the kernel.
    pub source: String,
    /// Its temperature.
    pub celsius: f64,
}

/// Disks, whole ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Disk {
    /// Bytes read from all.
    pub read_bytes_per_second: u64,
    /// Bytes written to all.
    pub write_bytes_per_second: u64,
    /// Each.
    pub devices: Vec<DiskDevice>,
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiskDevice {
    /// Its name.
    pub name: String,
    /// Bytes read.
    pub read_bytes_per_second: u64,
    /// Bytes written.
    pub write_bytes_per_second: u64,
}

/// Network interfaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Network {
    /// Bytes received by those that are devices, or by all if none is.
    pub receive_bytes_per_second: u64,
    /// Bytes sent by the same.
    pub transmit_bytes_per_second: u64,
    /// Each but the loopback.
    pub interfaces: Vec<Interface>,
}

/// One interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub receive_bytes_per_second: u64,
    /// Bytes sent.
    pub transmit_bytes_per_second: u64,
}

/// A GPU or NPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accelerator {
    /// Which of the two.
    pub kind: AcceleratorKind,
    /// Which one it is for the kernel or its driver.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// Its driver.
    pub driver: Option<String>,
    /// Share of the time in which it worked.
    pub percent: Option<f64>,
    /// Its own memory that is in use.
    pub memory_used_bytes: Option<u64>,
    /// Its own memory.
    pub memory_total_bytes: Option<u64>,
    /// Its frequency.
    pub frequency_mhz: Option<u64>,
    /// Its highest frequency.
    pub max_frequency_mhz: Option<u64>,
    /// Its temperature.
    pub celsius: Option<f64>,
}

/// Kinds of accelerators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceleratorKind {
    /// Graphics.
    Gpu,
    /// Neural networks.
    Npu,
}

/// The language-model server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Server {
    /// Where it listens.
    pub url: String,
    /// Its version.
    pub version: Option<String>,
    /// Its process, if it is on this machine.
    pub pid: Option<u32>,
    /// Share of one processor that it uses; more than 100 if it uses several.
    pub cpu_percent: Option<f64>,
    /// Memory of the process, mapped models included as far as they are in memory.
    pub resident_bytes: Option<u64>,
    /// Tokens of answers.
    pub generated_tokens_per_second: Option<f64>,
    /// Tokens of prompts.
    pub prompt_tokens_per_second: Option<f64>,
    /// Requests that are computed.
    pub running: Option<u64>,
    /// Requests that wait.
    pub waiting: Option<u64>,
    /// Models in memory.
    pub models: Vec<Model>,
    /// Why it says no more.
    pub problem: Option<String>,
}

/// A model in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Its memory.
    pub size_bytes: u64,
    /// The part of it on a GPU.
    pub size_vram_bytes: u64,
    /// Tokens of its context.
    pub context_length: u64,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What it would have told about: `disk`, `temperature`.
    pub subject: &'static str,
    /// Its path.
    pub path: String,
    /// Why.
    pub reason: &'static str,
}

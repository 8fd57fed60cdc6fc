//! A GPU: what it can do at most, and what its kernels take.

use llmsrv_engine::ModelSpec;
use llmsrv_gpu::{Arithmetic, Choice, Found, KernelTime, Probe, take_kernel_times, time_kernels};

use crate::{Error, Figure, GpuReport, KernelReport, Limits};

/// Samples of what a GPU can do.
pub(crate) struct GpuProbe {
    probe: Probe,
    arithmetic: Arithmetic,
    read: Vec<f64>,
    float: Vec<f64>,
    /// Empty where the device has no integer dot products.
    int8: Vec<f64>,
    kernel: Vec<f64>,
}

impl GpuProbe {
    /// Opens the GPU.
    pub(crate) fn open(choice: &Choice) -> Result<GpuProbe, Error> {
        Ok(GpuProbe {
            probe: Probe::open(choice)?,
            arithmetic: choice.arithmetic,
            read: Vec::new(),
            float: Vec::new(),
            int8: Vec::new(),
            kernel: Vec::new(),
        })
    }

    pub(crate) fn device(&self) -> &Found {
        self.probe.device()
    }

    pub(crate) fn times_kernels(&self) -> bool {
        self.probe.times_kernels()
    }

    pub(crate) fn sample(&mut self) -> Result<(), Error> {
        self.read.push(self.probe.bytes_per_second()?);
        self.float.push(self.probe.float_ops_per_second()?);
        self.int8.extend(self.probe.int8_ops_per_second()?);
        self.kernel.push(self.probe.kernel_seconds()?);
        Ok(())
    }

    /// Says what the figures of a model leave out.
    pub(crate) fn notes(&self, spec: &ModelSpec) -> Vec<String> {
        let mut notes = Vec::new();
        let (n_on_gpu, n_layers) = (spec.n_gpu_layers(), spec.n_layers);
        if n_on_gpu < n_layers {
            notes.push(format!(
                "{n_on_gpu} of {n_layers} layers are on the GPU; LIMIT is that of all being there"
            ));
        }
        if !self.times_kernels() {
            let name = &self.device().name;
            notes.push(format!("kernels were not timed: {name} has no timestamps"));
        }
        notes
    }

    /// Returns what was found; nothing was sampled yet, then once.
    pub(crate) fn report(mut self) -> Result<(Limits, GpuReport), Error> {
        if self.read.is_empty() {
            self.sample()?;
        }
        let float = Figure::of(self.float);
        let int8_dot = (!self.int8.is_empty()).then(|| Figure::of(self.int8));
        // Else quantised weights are unpacked and multiplied as floats.
        let is_int8 = self.arithmetic == Arithmetic::Int8;
        let (int8, int8_instruction) = match &int8_dot {
            Some(figure) if is_int8 => (figure.clone(), DOT),
            _ => (float.clone(), FMA),
        };
        let limits = Limits {
            read: Figure::of(self.read),
            int8,
            int8_instruction,
            float,
            float_instruction: FMA,
        };
        let device = self.probe.device();
        let report = GpuReport {
            number: device.number,
            name: device.name.clone(),
            kind: device.kind.name(),
            vendor_id: device.vendor_id,
            device_id: device.device_id,
            uuid: device.uuid.clone(),
            driver: device.driver.clone(),
            driver_version: device.driver_version,
            api_version: device.api_version.clone(),
            memory_bytes: device.memory_bytes,
            read_bytes: self.probe.data_bytes(),
            kernel: Figure::of(self.kernel),
            times_kernels: self.probe.times_kernels(),
            arithmetic: if int8_instruction == DOT {
                "int8"
            } else {
                "exact"
            },
            int8_dot,
        };
        Ok((limits, report))
    }
}

/// Runs something once, with its kernels timed.
pub(crate) fn timed<T>(run: impl FnOnce() -> Result<T, Error>) -> Result<Vec<KernelTime>, Error> {
    take_kernel_times();
    time_kernels(true);
    let outcome = run();
    time_kernels(false);
    outcome.map(|_| take_kernel_times())
}

impl KernelReport {
    /// Adds to each its share.
    pub(crate) fn all(times: &[KernelTime]) -> Vec<KernelReport> {
        let total: f64 = times.iter().map(|time| time.seconds).sum();
        let reports = times.iter().map(|time| KernelReport {
            kernel: time.kernel,
            calls: time.calls,
            seconds: time.seconds,
            bytes: time.bytes,
            share: if total > 0.0 {
                time.seconds / total
            } else {
                0.0
            },
        });
        reports.collect()
    }
}

const FMA: &str = "f32 fma";
const DOT: &str = "int8 dot";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_kernels_add_up() {
        let time = |kernel, seconds| KernelTime {
            kernel,
            calls: 2,
            seconds,
            bytes: 8,
        };
        let reports = KernelReport::all(&[time("a", 3.0), time("b", 1.0)]);
        let shares: Vec<f64> = reports.iter().map(|report| report.share).collect();
        assert_eq!(shares, [0.75, 0.25]);
        assert_eq!(KernelReport::all(&[time("a", 0.0)])[0].share, 0.0);
    }
}

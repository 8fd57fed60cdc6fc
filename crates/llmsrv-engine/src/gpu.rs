//! What is known of a GPU before a model is loaded to it.

use std::fmt;

/// A GPU that models may be loaded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsableGpu {
    /// Its name, as its driver says it.
    pub name: String,
    /// Bytes of its memory that models may take.
    pub free_bytes: u64,
    /// What it can do at most; `None` = it could not be measured.
    pub limits: Option<GpuLimits>,
}

/// What a GPU and the CPU beside it can do at most, as it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuLimits {
    /// Bytes of its memory that the GPU reads in a second.
    pub read: u64,
    /// Operations on f32 that it does in a second; a multiplication and a sum are two.
    pub float: u64,
    /// Bytes of memory that all cores of the CPU read in a second.
    pub cpu_read: u64,
    /// From how many rows on it multiplies in tiles, because they are faster, where it multiplies in integers.
    pub tiles_from: Option<u64>,
    /// Whether its matrix units multiply in integers to the last bit as its other kernels do, and faster.
    pub matrices: bool,
}

impl GpuLimits {
    /// Returns whether the GPU reads its memory slower than the CPU reads its own. Making tokens one by one is mostly
    /// reading weights.
    pub fn is_slower(&self) -> bool {
        self.read < self.cpu_read
    }
}

impl fmt::Display for GpuLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let billions = |n: u64| n as f64 / 1e9;
        write!(
            f,
            "memory read {:.1} GB/s, f32 fma {:.1} GFLOP/s; the CPU reads {:.1} GB/s",
            billions(self.read),
            billions(self.float),
            billions(self.cpu_read)
        )?;
        if let Some(n) = self.tiles_from.filter(|n| *n < u64::from(u32::MAX)) {
            write!(f, "; integer products in tiles from {n} rows on")?;
        }
        if self.matrices {
            f.write_str("; integer products of many rows on matrix units")?;
        }
        if self.is_slower() {
            f.write_str(", so tokens may come faster without this GPU (LLMSRV_GPU=0)")?;
        }
        Ok(())
    }
}

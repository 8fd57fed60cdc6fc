//! Mamba 2: selective scans and nothing else (<https://arxiv.org/abs/2405.21060>); and what the scans of
//! other families have in common with its.

use super::{base_with, small_count};
use crate::{
    arch::{ArchConfig, Mixer, ScanConfig},
    rope::RopeStyle,
    source::{Result, Source, invalid},
};

/// Mamba 2. Its layers have one part.
pub(super) fn mamba2(source: &Source) -> Result<ArchConfig> {
    let scan = scan(source)?;
    base_with(source, RopeStyle::HalfSplit, &|_, _| Mixer::Scan(scan))
}

/// Reads the sizes of selective scans.
pub(super) fn scan(source: &Source) -> Result<ScanConfig> {
    let n_heads = small_count(source, "ssm.time_step_rank", 1..=MOST_HEADS)?;
    let width = source.count("ssm.inner_size")?;
    if !width.is_multiple_of(n_heads) || width / n_heads > LARGEST_HEAD {
        let key = source.full("ssm.inner_size");
        return Err(invalid(format!("{key} is {width} for {n_heads} heads")));
    }
    let n_groups = small_count(source, "ssm.group_count", 1..=n_heads)?;
    if !n_heads.is_multiple_of(n_groups) {
        let key = source.full("ssm.group_count");
        return Err(invalid(format!(
            "{key} is {n_groups}, which does not divide {n_heads} heads"
        )));
    }
    Ok(ScanConfig {
        taps: small_count(source, "ssm.conv_kernel", 2..=MOST_TAPS)?,
        n_heads,
        head_dim: width / n_heads,
        state_dim: small_count(source, "ssm.state_size", 1..=LARGEST_HEAD)?,
        n_groups,
    })
}

/// Far above every published model; they bound what a state takes before tensors are checked.
const MOST_TAPS: usize = 64;
const MOST_HEADS: usize = 1 << 10;
const LARGEST_HEAD: usize = 1 << 10;

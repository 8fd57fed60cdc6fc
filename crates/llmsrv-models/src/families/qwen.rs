//! Qwen 2, 2.5 and 3, with and without experts, and the language part of those that see.
//!
//! The rotation of models that see has an angle for time, height and width (M-RoPE,
//! <https://arxiv.org/abs/2409.12191>); for text the three are equal, which makes it the plain one.

use super::{base, set_experts};
use crate::{
    arch::{ArchConfig, QkNorm, SharedExpert},
    rope::RopeStyle,
    source::{Result, Source, invalid},
};

/// Qwen 2 and 2.5. Their biases are found in the file.
pub(super) fn qwen2(source: &Source) -> Result<ArchConfig> {
    base(source, RopeStyle::HalfSplit)
}

/// Qwen 2 and 2.5 VL. Of the pairs of a head the first ones turn by time, those behind by height, the
/// last by width.
pub(super) fn qwen2vl(source: &Source) -> Result<ArchConfig> {
    let mut arch = qwen2(source)?;
    set_axes_behind(&mut arch, source)?;
    Ok(arch)
}

/// As [`set_axes`], where the pairs of a coordinate are behind those of the one before.
pub(super) fn set_axes_behind(arch: &mut ArchConfig, source: &Source) -> Result<()> {
    set_axes(arch, source, None, |pair, [time, height, _]| {
        usize::from(pair >= time) + usize::from(pair >= time + height)
    })
}

/// Qwen 3 VL, dense or with experts. What its encoder saw on the way is added behind the first layers.
pub(super) fn qwen3vl(source: &Source) -> Result<ArchConfig> {
    let mut arch = qwen3(source)?;
    set_turning_axes(&mut arch, source)?;
    let key = "n_deepstack_layers";
    let listed = source.integers("vision.deepstack_visual_indexes");
    arch.deepstack = match (source.optional_count(key)?, listed) {
        (Some(n), _) => n,
        (None, Some(list)) => list.len(),
        (None, None) => 0,
    };
    if arch.deepstack >= arch.layers.len() {
        let (key, n) = (source.full(key), arch.deepstack);
        let n_layers = arch.layers.len();
        return Err(invalid(format!("{key} is {n} of {n_layers} layers")));
    }
    Ok(arch)
}

/// As [`set_axes`], where the pairs of the three coordinates take turns as long as there are some.
pub(super) fn set_turning_axes(arch: &mut ArchConfig, source: &Source) -> Result<()> {
    // The library's Qwen 3 VL leaves them out.
    let n_pairs = arch.ropes.first().map_or(0, |rope| rope.axes.len());
    let usual = (n_pairs == 64).then(|| vec![24, 20, 20]);
    set_axes(arch, source, usual, |pair, [_, height, width]| {
        match pair % 3 {
            1 if pair < 3 * height => 1,
            2 if pair < 3 * width => 2,
            _ => 0,
        }
    })
}

/// Reads how many pairs turn by each coordinate, which are the `usual` numbers where the file does not
/// say; `axis` says which one that is for a pair. Without any number all turn by time, as for text.
fn set_axes(
    arch: &mut ArchConfig,
    source: &Source,
    usual: Option<Vec<i64>>,
    axis: fn(usize, [usize; 3]) -> usize,
) -> Result<()> {
    let key = "rope.dimension_sections";
    let Some(sections) = source.integers(key).or(usual) else {
        return Ok(());
    };
    for rope in &mut arch.ropes {
        let n_pairs = rope.frequencies.len();
        let counts = sections.iter().take(3);
        let counts = counts.map(|n| usize::try_from(*n).ok().filter(|n| *n <= n_pairs));
        let counts: Option<Vec<usize>> = counts.collect();
        let counts: Option<[usize; 3]> = counts.and_then(|list| list.try_into().ok());
        let counts = counts.filter(|counts| counts.iter().sum::<usize>() == n_pairs);
        let Some(counts) = counts else {
            let key = source.full(key);
            return Err(invalid(format!(
                "{key} is {sections:?} for {n_pairs} pairs"
            )));
        };
        rope.axes = (0..n_pairs).map(|pair| axis(pair, counts)).collect();
    }
    Ok(())
}

/// Qwen 2 with experts, one of them shared by all rows.
pub(super) fn qwen2moe(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    let width = match source.optional_count("expert_shared_feed_forward_length")? {
        Some(width) => width,
        None => source.count("feed_forward_length")?,
    };
    set_experts(&mut arch, |experts| {
        experts.normalize = false;
        experts.shared = Some(SharedExpert { width, gated: true });
    });
    Ok(arch)
}

/// Qwen 3, dense or with experts.
pub(super) fn qwen3(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.qk_norm = Some(QkNorm::Head);
    Ok(arch)
}

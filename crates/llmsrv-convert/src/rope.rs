//! The rotation of positions: keys and lists of divisors.

use std::f32::consts::TAU;

use llmsrv_gguf::Metadata;

use crate::{Error, config::Config, families::Family};

/// A list of numbers that becomes a tensor.
pub(crate) type Divisors = (&'static str, Vec<f32>);

/// Sets the keys of the rotation and returns the tensors that belong to it.
pub(crate) fn convert(
    config: &Config,
    family: &Family,
    metadata: &mut Metadata,
) -> Result<Vec<Divisors>, Error> {
    let full = |key: &str| format!("{}.rope.{key}", family.architecture);
    let rope = parameters(config);
    let head_dim = match config.count(&["head_dim"])? {
        Some(head_dim) => head_dim,
        None => {
            config.required_count(&["hidden_size"])?
                / config.required_count(&["num_attention_heads"])?
        }
    };
    if head_dim == 0 || head_dim > LARGEST_HEAD {
        let message = format!("config.json: heads of {head_dim} elements");
        return Err(Error::Invalid(message));
    }
    let share = match rope.number("partial_rotary_factor")? {
        Some(share) => share,
        None => config.number("partial_rotary_factor")?.unwrap_or(1.0),
    };
    if !(0.0..=1.0).contains(&share) {
        let message = "config.json: partial_rotary_factor is not from 0 to 1";
        return Err(Error::Invalid(message.into()));
    }
    let n_rotated = (share * head_dim as f32) as u32;
    metadata.set(full("dimension_count"), n_rotated);
    let base = match rope.number("rope_theta")? {
        Some(base) => base,
        None => config.number("rope_theta")?.unwrap_or(10_000.0),
    };
    if base <= 0.0 {
        let message = "config.json: rope_theta is not above 0";
        return Err(Error::Invalid(message.into()));
    }
    metadata.set(full("freq_base"), base);
    if let Some(sliding) = config
        .object("rope_parameters")
        .and_then(|rope| rope.object("sliding_attention"))
        && let Some(base) = sliding.number("rope_theta")?
    {
        metadata.set(full("freq_base_swa"), base);
    }

    let context = config.required_count(&["max_position_embeddings"])?;
    let original = rope
        .count(&["original_max_position_embeddings"])?
        .or(config.count(&["original_max_position_embeddings"])?);
    let kind = rope
        .text("rope_type")
        .or(rope.text("type"))
        .unwrap_or("default");
    match kind {
        "linear" | "yarn" => {
            let factor = required(&rope, "factor")?;
            metadata.set(full("scaling.type"), kind);
            metadata.set(full("scaling.factor"), factor);
            if kind == "linear" {
                return Ok(Vec::new());
            }
            metadata.set(
                full("scaling.original_context_length"),
                original.unwrap_or(context),
            );
            // The factor is in place of one that programs compute from the stretch, and that files
            // can only multiply.
            if let Some(magnitude) = rope.number("attention_factor")? {
                let usual = 1.0 + 0.1 * factor.max(1.0).ln();
                metadata.set(full("scaling.attn_factor"), magnitude / usual);
            }
            let finer = [
                ("extrapolation_factor", "scaling.yarn_ext_factor"),
                ("beta_fast", "scaling.yarn_beta_fast"),
                ("beta_slow", "scaling.yarn_beta_slow"),
            ];
            for (key, name) in finer {
                if let Some(number) = rope.number(key)? {
                    metadata.set(full(name), number);
                }
            }
            Ok(Vec::new())
        }
        "llama3" => Ok(vec![("rope_freqs.weight", llama3(&rope, base, head_dim)?)]),
        "longrope" | "su" => {
            let original = original.unwrap_or(context).max(2);
            metadata.set(full("scaling.type"), "longrope");
            metadata.set(full("scaling.original_context_length"), original);
            let stretch = context as f32 / original as f32;
            let magnitude = match rope.number("attention_factor")? {
                Some(magnitude) => magnitude,
                None if stretch > 1.0 => (1.0 + stretch.ln() / (original as f32).ln()).sqrt(),
                None => 1.0,
            };
            metadata.set(full("scaling.attn_factor"), magnitude);
            let list = |key: &str| {
                let list = rope.numbers(key)?.unwrap_or_default();
                if list.len() == n_rotated as usize / 2 {
                    Ok(list)
                } else {
                    let message = format!("config.json: {key} needs {} numbers", n_rotated / 2);
                    Err(Error::Invalid(message))
                }
            };
            Ok(vec![
                ("rope_factors_long.weight", list("long_factor")?),
                ("rope_factors_short.weight", list("short_factor")?),
            ])
        }
        // Dynamic scaling only concerns positions beyond the context.
        "default" | "mrope" | "dynamic" => Ok(Vec::new()),
        other => {
            let other: String = other
                .chars()
                .take(40)
                .flat_map(char::escape_debug)
                .collect();
            Err(Error::Unsupported(format!(
                "config.json: rope_type is {other}"
            )))
        }
    }
}

/// The settings of the layers that see the whole context, which have had three places.
fn parameters(config: &Config) -> Config {
    let object = config
        .object("rope_parameters")
        .or_else(|| config.object("rope_scaling"));
    let rope = object.unwrap_or_else(|| Config::new(serde_json::Map::new()));
    rope.object("full_attention").unwrap_or(rope)
}

/// Divisors of the frequencies of Llama 3.1: those of waves longer than the original context are
/// stretched by the factor, short ones are kept, those between are blended.
fn llama3(rope: &Config, base: f32, head_dim: u32) -> Result<Vec<f32>, Error> {
    let factor = required(rope, "factor")?;
    let low = rope.number("low_freq_factor")?.unwrap_or(1.0);
    let high = rope.number("high_freq_factor")?.unwrap_or(4.0);
    let original = rope
        .count(&["original_max_position_embeddings"])?
        .unwrap_or(8192) as f32;
    if factor <= 0.0 || low <= 0.0 || high <= low {
        let message = "config.json: factors of rope_type llama3 contradict each other";
        return Err(Error::Invalid(message.into()));
    }
    let divisor = |pair: u32| {
        let wave = TAU * base.powf(2.0 * pair as f32 / head_dim as f32);
        if wave < original / high {
            1.0
        } else if wave > original / low {
            factor
        } else {
            let blend = (original / wave - low) / (high - low);
            1.0 / ((1.0 - blend) / factor + blend)
        }
    };
    Ok((0..head_dim / 2).map(divisor).collect())
}

fn required(rope: &Config, key: &str) -> Result<f32, Error> {
    let missing = || Error::Invalid(format!("config.json: {key} of the rotation is missing"));
    rope.number(key)?.ok_or_else(missing)
}

/// Far above every published model; bounds the lists that are computed.
const LARGEST_HEAD: u32 = 1 << 14;

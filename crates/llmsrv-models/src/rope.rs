//! Rotary position embedding: every published scaling becomes a list of frequencies and a factor.
//!
//! Pair `i` of a head is rotated by `position * frequencies[i]` and multiplied by `magnitude`.
//! Linear scaling divides frequencies; YaRN (<https://arxiv.org/abs/2309.00071>) divides the slow
//! ones only and raises the magnitude; LongRoPE and Llama 3 bring one divisor for each pair.

use llmsrv_engine::{LoadError, StepPlan};
pub(crate) use llmsrv_kernels::RopeStyle;

use crate::source::{Source, invalid};

/// One rotation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rope {
    /// Which elements form a pair.
    pub style: RopeStyle,
    /// Radians for each position of each pair; twice as many elements of a head are rotated, the
    /// rest stays as it is.
    pub frequencies: Vec<f32>,
    /// Which coordinate of a row turns each pair: time, height or width. For text all three are the
    /// position.
    pub axes: Vec<usize>,
    /// Multiplies the rotated elements.
    pub magnitude: f32,
}

impl Rope {
    /// Returns the angle of each pair of a row, in radians.
    pub(crate) fn angles(&self, place: [u32; 3]) -> impl Iterator<Item = f64> {
        let pairs = self.frequencies.iter().zip(&self.axes);
        pairs.map(move |(frequency, axis)| {
            let coordinate = place.get(*axis).copied().unwrap_or_default();
            // In f64, because at position 100 000 an f32 angle is off by a hundredth.
            f64::from(coordinate) * f64::from(*frequency)
        })
    }
}

/// Where the rows of a step are: in time, height and width.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    plan: &'a StepPlan,
}

impl<'a> Places<'a> {
    /// Returns the places of all rows of a plan.
    pub(crate) fn of(plan: &'a StepPlan) -> Places<'a> {
        Places { plan }
    }

    /// Number of rows.
    pub(crate) fn len(self) -> usize {
        self.plan.positions.len()
    }

    /// Returns the place of each row.
    pub(crate) fn iter(self) -> impl Iterator<Item = [u32; 3]> + use<'a> {
        (0..self.len()).map(move |row| self.plan.coordinate(row))
    }
}

/// What is common to the rotations of one model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RopeSettings {
    /// Which elements form a pair.
    pub style: RopeStyle,
    /// Elements of a head that are rotated; even.
    pub n_rotated: usize,
    /// The slowest pair turns about `base` times slower than the first.
    pub base: f32,
    /// How the model was stretched to longer contexts.
    pub scaling: Scaling,
    /// A divisor for the frequency of each pair.
    pub divisors: Option<Vec<f32>>,
    /// Multiplies the magnitude.
    pub magnitude: f32,
}

/// How a model was stretched beyond the context it was first trained for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scaling {
    /// All frequencies are divided by a factor; 1 = not stretched.
    Linear(f32),
    /// Slow frequencies are divided, fast ones are not.
    Yarn(Yarn),
}

/// The parameters of YaRN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Yarn {
    /// How many times longer the context became.
    pub factor: f32,
    /// Positions of the context before it was stretched.
    pub original_context: usize,
    /// Pairs that turn more often than this within the original context stay as they are.
    pub beta_fast: f32,
    /// Pairs that turn less often are divided by `factor`; between the two, a ramp.
    pub beta_slow: f32,
    /// Strength of the change of fast pairs; 1 by the paper.
    pub extrapolation: f32,
    /// Divides the growth of the magnitude (`mscale_all_dim` of DeepSeek); 0 = does not.
    pub log_multiplier: f32,
}

impl RopeSettings {
    /// Computes the frequencies and the magnitude.
    pub(crate) fn build(&self) -> Rope {
        let n_pairs = self.n_rotated / 2;
        let base = f64::from(self.base);
        let frequency = |pair: usize| {
            let divisor = self.divisors.as_ref().and_then(|list| list.get(pair));
            base.powf(-2.0 * pair as f64 / self.n_rotated as f64)
                / f64::from(*divisor.unwrap_or(&1.0))
        };
        let (frequencies, magnitude) = match self.scaling {
            Scaling::Linear(factor) => {
                let scale = |pair| (frequency(pair) / f64::from(factor)) as f32;
                ((0..n_pairs).map(scale).collect(), 1.0)
            }
            Scaling::Yarn(yarn) => {
                let (low, high) = yarn.ramp(self.n_rotated, base);
                let scale = |pair| {
                    let along = (pair as f64 - low) / (high - low).max(0.001);
                    let keep = (1.0 - along.clamp(0.0, 1.0)) * f64::from(yarn.extrapolation);
                    let slow = frequency(pair) / f64::from(yarn.factor);
                    (slow * (1.0 - keep) + frequency(pair) * keep) as f32
                };
                ((0..n_pairs).map(scale).collect(), yarn.magnitude())
            }
        };
        Rope {
            style: self.style,
            axes: vec![0; n_pairs],
            frequencies,
            magnitude: magnitude * self.magnitude,
        }
    }
}

impl Yarn {
    /// The pairs between which the ramp runs.
    fn ramp(&self, n_rotated: usize, base: f64) -> (f64, f64) {
        let pair_of = |turns: f32| {
            let wavelength =
                self.original_context as f64 / (f64::from(turns) * std::f64::consts::TAU);
            n_rotated as f64 * wavelength.ln() / (2.0 * base.ln())
        };
        let low = pair_of(self.beta_fast).floor().max(0.0);
        let high = pair_of(self.beta_slow).ceil().min(n_rotated as f64 - 1.0);
        (low, high)
    }

    fn magnitude(&self) -> f32 {
        let growth = |multiplier: f32| match self.factor {
            factor if factor > 1.0 => 1.0 + 0.1 * multiplier * factor.ln(),
            _ => 1.0,
        };
        match self.log_multiplier {
            0.0 => growth(1.0),
            multiplier => growth(1.0) / growth(multiplier),
        }
    }
}

/// Reads the rotation of the layers that see the whole context.
pub(crate) fn rope(
    source: &Source,
    style: RopeStyle,
    head_dim: usize,
    context_length: usize,
) -> Result<RopeSettings, LoadError> {
    let n_rotated = source
        .optional_count("rope.dimension_count")?
        .unwrap_or(head_dim);
    if n_rotated > head_dim || !n_rotated.is_multiple_of(2) {
        let key = source.full("rope.dimension_count");
        return Err(invalid(format!(
            "{key} is {n_rotated} in heads of {head_dim}"
        )));
    }
    let original_context = source
        .optional_count("rope.scaling.original_context_length")?
        .unwrap_or(context_length);
    let factor = match source.positive("rope.scaling.factor")? {
        Some(factor) => factor,
        None => source.positive("rope.scale_linear")?.unwrap_or(1.0),
    };
    let scaling = match source.text("rope.scaling.type").unwrap_or("linear") {
        "none" => Scaling::Linear(1.0),
        "" | "linear" | "longrope" => Scaling::Linear(factor),
        "yarn" => Scaling::Yarn(Yarn {
            factor,
            original_context,
            beta_fast: source
                .first_positive(&["rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast"])?
                .unwrap_or(32.0),
            beta_slow: source
                .first_positive(&["rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow"])?
                .unwrap_or(1.0),
            extrapolation: source
                .first_positive(&[
                    "rope.scaling.yarn_ext_factor",
                    "rope.scaling.extrapolation_factor",
                ])?
                .unwrap_or(1.0),
            log_multiplier: source
                .first_positive(&[
                    "rope.scaling.yarn_log_multiplier",
                    "rope.scaling.mscale_all_dim",
                ])?
                .unwrap_or(0.0),
        }),
        other => {
            let key = source.full("rope.scaling.type");
            return Err(LoadError::Unsupported(format!("{key} is {other:?}")));
        }
    };
    // LongRoPE has two lists. Keys stay in the cache as they were rotated, so one list must serve
    // all positions: the one that reaches to the end of the context.
    let list = if context_length > original_context {
        "rope_factors_long.weight"
    } else {
        "rope_factors_short.weight"
    };
    let divisors = match source.optional_vector("rope_freqs.weight", n_rotated / 2)? {
        Some(divisors) => Some(divisors),
        None => source.optional_vector(list, n_rotated / 2)?,
    };
    Ok(RopeSettings {
        style,
        n_rotated,
        base: source.positive("rope.freq_base")?.unwrap_or(10_000.0),
        scaling,
        divisors,
        magnitude: source.positive("rope.scaling.attn_factor")?.unwrap_or(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(scaling: Scaling) -> RopeSettings {
        RopeSettings {
            style: RopeStyle::HalfSplit,
            n_rotated: 8,
            base: 10_000.0,
            scaling,
            divisors: None,
            magnitude: 1.0,
        }
    }

    #[test]
    fn plain_frequencies_are_powers_of_the_base() {
        let rope = settings(Scaling::Linear(1.0)).build();
        assert_eq!(rope.frequencies, [1.0, 0.1, 0.01, 0.001]);
        assert_eq!(rope.magnitude, 1.0);
    }

    #[test]
    fn divisors_and_linear_scaling_both_divide() {
        let mut settings = settings(Scaling::Linear(4.0));
        settings.divisors = Some(vec![1.0, 2.0, 1.0, 5.0]);
        let expected = [0.25, 0.0125, 0.0025, 0.000_05];
        for (found, expected) in settings.build().frequencies.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-8, "{found} {expected}");
        }
    }

    #[test]
    fn yarn_keeps_the_fast_pairs_and_divides_the_slow_ones() {
        let mut settings = settings(Scaling::Yarn(Yarn {
            factor: 4.0,
            original_context: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            extrapolation: 1.0,
            log_multiplier: 0.0,
        }));
        settings.n_rotated = 64;
        let yarn = settings.build();
        settings.scaling = Scaling::Linear(1.0);
        let plain = settings.build();
        assert_eq!(yarn.frequencies[0], plain.frequencies[0]);
        assert!((yarn.frequencies[31] * 4.0 / plain.frequencies[31] - 1.0).abs() < 1e-6);
        assert!((yarn.magnitude - (1.0 + 0.1 * 4f32.ln())).abs() < 1e-6);
        let ratio: Vec<f32> = yarn
            .frequencies
            .iter()
            .zip(&plain.frequencies)
            .map(|(yarn, plain)| yarn / plain)
            .collect();
        assert!(ratio.is_sorted_by(|a, b| a >= b), "{ratio:?}");
    }
}

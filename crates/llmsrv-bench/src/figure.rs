//! One figure, measured several times.

use serde::Serialize;

/// Samples of one figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// All, in the order they were taken.
    pub samples: Vec<f64>,
}

impl Figure {
    /// Looks at samples.
    pub fn of(samples: Vec<f64>) -> Figure {
        Figure {
            median: median(&samples),
            min: samples.iter().copied().reduce(f64::min).unwrap_or(0.0),
            max: samples.iter().copied().reduce(f64::max).unwrap_or(0.0),
            samples,
        }
    }

    /// Tells whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

/// Returns the middle of some numbers; 0 of none.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_middle_of_its_samples() {
        let figure = Figure::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((figure.median, figure.min, figure.max), (2.0, 1.0, 3.0));
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}

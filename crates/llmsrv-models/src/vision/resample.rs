//! Scaling of images as Pillow (up to 12) does it, bit for bit, since encoders were trained on its results:
//! a filter as wide as the larger pixel, sums in fixed point, first along the rows
//! (<https://github.com/python-pillow/Pillow/blob/main/src/libImaging/Resample.c>).

use image::{Rgb, RgbImage};

/// What a pixel counts at a distance in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// Falls to nothing at a distance of one pixel.
    Bilinear,
    /// Cubics with the parameter -0.5.
    Bicubic,
    /// A windowed sine over three pixels.
    Lanczos,
}

impl Filter {
    /// Distance from which on pixels do not count.
    fn reach(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn weight(self, distance: f64) -> f64 {
        const A: f64 = -0.5;
        let x = distance.abs();
        match self {
            Filter::Bilinear => (1.0 - x).max(0.0),
            Filter::Bicubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Filter::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            Filter::Lanczos if x < 3.0 => sinc(x) * sinc(x / 3.0),
            Filter::Bicubic | Filter::Lanczos => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    let x = x * std::f64::consts::PI;
    if x == 0.0 { 1.0 } else { x.sin() / x }
}

/// Scales an image to `width` times `height` pixels, all of them at least 1.
pub(super) fn resample(image: &RgbImage, width: u32, height: u32, filter: Filter) -> RgbImage {
    let columns = taps(image.width(), width, filter);
    let narrow = RgbImage::from_fn(width, image.height(), |x, y| {
        let taps = &columns[x as usize];
        taps.sum(|at| image.get_pixel(at, y))
    });
    let rows = taps(image.height(), height, filter);
    RgbImage::from_fn(width, height, |x, y| {
        let taps = &rows[y as usize];
        taps.sum(|at| narrow.get_pixel(x, at))
    })
}

/// The pixels that make one pixel of the result.
struct Taps {
    first: u32,
    /// In units of 2^-22; their sum is 1.
    weights: Vec<i64>,
}

impl Taps {
    fn sum<'a>(&self, pixel: impl Fn(u32) -> &'a Rgb<u8>) -> Rgb<u8> {
        let mut sums = [1_i64 << (BITS - 1); 3];
        for (at, weight) in (self.first..).zip(&self.weights) {
            for (sum, level) in sums.iter_mut().zip(pixel(at).0) {
                *sum += i64::from(level) * weight;
            }
        }
        Rgb(sums.map(|sum| (sum >> BITS).clamp(0, 255) as u8))
    }
}

/// Returns the taps of each of `to` pixels along a line of `from`.
fn taps(from: u32, to: u32, filter: Filter) -> Vec<Taps> {
    let scale = f64::from(from) / f64::from(to);
    let stretch = scale.max(1.0);
    let reach = filter.reach() * stretch;
    let one = |idx: u32| {
        let centre = (f64::from(idx) + 0.5) * scale;
        let first = (centre - reach + 0.5).max(0.0) as u32;
        let end = ((centre + reach + 0.5) as u32).min(from);
        let weight = |at: u32| filter.weight((f64::from(at) - centre + 0.5) / stretch);
        let sum: f64 = (first..end).map(weight).sum();
        let fixed = |at: u32| {
            let share = weight(at) / sum * f64::from(1 << BITS);
            (share + 0.5_f64.copysign(share)) as i64
        };
        Taps {
            first,
            weights: (first..end).map(fixed).collect(),
        }
    };
    (0..to).map(one).collect()
}

const BITS: u32 = 22;

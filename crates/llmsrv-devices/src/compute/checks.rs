//! What every device must compute, however it is programmed. Results are compared with those of this CPU; most are
//! whole numbers, so that they must be equal.

use std::time::{Duration, Instant};

use super::{Buffer, Device, DeviceInfo, Error, Launch, transformer};

/// A test of a device.
pub struct Test {
    /// Its name.
    pub name: &'static str,
    /// Its category; none = that of the programming interface.
    pub category: Option<&'static str>,
    run: fn(&mut dyn Device, &DeviceInfo) -> Result<Found, Problem>,
}

/// What a test measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// How much, in `unit`.
    pub value: Option<f64>,
    /// The unit of the value.
    pub unit: &'static str,
    /// What was done and compared.
    pub detail: String,
}

/// Why a test failed.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A call failed.
    #[error(transparent)]
    Device(#[from] Error),
    /// The device computed something else than the CPU.
    #[error("wrong result: {0}")]
    Wrong(String),
}

/// All tests.
pub const TESTS: &[Test] = &[
    test("saxpy", None, saxpy),
    test("reduction", None, reduction),
    test("matrix product", None, small_product),
    test("memory copy", Some("bandwidth"), memory_copy),
    test("host to device", Some("bandwidth"), upload),
    test("device to host", Some("bandwidth"), download),
    test("multiply-add", Some("compute"), multiply_add),
    test("large matrix product", Some("compute"), large_product),
    test("image filter", Some("compute"), image_filter),
    test("small transformer", Some("inference"), transformer::check),
];

const fn test(
    name: &'static str,
    category: Option<&'static str>,
    run: fn(&mut dyn Device, &DeviceInfo) -> Result<Found, Problem>,
) -> Test {
    Test {
        name,
        category,
        run,
    }
}

impl Test {
    /// Makes the test and gives the buffers back.
    pub fn run(&self, device: &mut dyn Device, info: &DeviceInfo) -> Result<Found, Problem> {
        let found = (self.run)(device, info);
        let cleared = device.clear();
        let found = found?;
        cleared?;
        Ok(found)
    }
}

fn saxpy(device: &mut dyn Device, _: &DeviceInfo) -> Result<Found, Problem> {
    let n = 1 << 20;
    let (x, y) = (whole_numbers(1, n, 100), whole_numbers(2, n, 100));
    let out = device.allocate(n)?;
    let buffers = vec![out, filled(device, &x)?, filled(device, &y)?];
    device.run(&[Launch {
        kernel: "saxpy",
        buffers,
        params: [n as u32, 640, 0, 0],
    }])?;
    let wanted: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 2.5 * x + y).collect();
    equal(&floats(device, out, n)?, &wanted)?;
    Ok(checked(format!("{n} values equal to the CPU's")))
}

fn reduction(device: &mut dyn Device, _: &DeviceInfo) -> Result<Found, Problem> {
    let (n, parts) = (1 << 20, 1 << 12);
    let x = whole_numbers(3, n, 8);
    let (from, partial, out) = (
        filled(device, &x)?,
        device.allocate(parts)?,
        device.allocate(1)?,
    );
    device.run(&[
        Launch {
            kernel: "sum",
            buffers: vec![partial, from],
            params: [parts as u32, n as u32, 0, 0],
        },
        Launch {
            kernel: "sum",
            buffers: vec![out, partial],
            params: [1, parts as u32, 0, 0],
        },
    ])?;
    equal(&floats(device, out, 1)?, &[x.iter().sum()])?;
    Ok(checked(format!("sum of {n} values equal to the CPU's")))
}

fn small_product(device: &mut dyn Device, _: &DeviceInfo) -> Result<Found, Problem> {
    let n = 128;
    let (a, b) = (whole_numbers(4, n * n, 8), whole_numbers(5, n * n, 8));
    let out = device.allocate(n * n)?;
    let buffers = vec![out, filled(device, &a)?, filled(device, &b)?];
    device.run(&[product(buffers, n)])?;
    let mut wanted = vec![0.0; n * n];
    for (row, line) in wanted.chunks_mut(n).enumerate() {
        for (k, b) in b.chunks(n).enumerate() {
            line.iter_mut()
                .zip(b)
                .for_each(|(out, b)| *out += a[row * n + k] * b);
        }
    }
    equal(&floats(device, out, n * n)?, &wanted)?;
    Ok(checked(format!("{n} x {n}, all values equal to the CPU's")))
}

fn memory_copy(device: &mut dyn Device, info: &DeviceInfo) -> Result<Found, Problem> {
    let (words, pattern) = large_buffer(device, info);
    let (out, from) = (device.allocate(words)?, device.allocate(words)?);
    device.write(from, &pattern)?;
    let launch = Launch {
        kernel: "copy",
        buffers: vec![out, from],
        params: [words as u32 / 4, 0, 0, 0],
    };
    let speed = speed(device, &launch)?;
    let mut copied = vec![0; words];
    device.read(out, &mut copied)?;
    same_words(&copied, &pattern)?;
    let bytes = 2.0 * 4.0 * words as f64;
    Ok(Found {
        value: Some(bytes * speed.per_second / 1e9),
        unit: "GB/s",
        detail: format!("{} MiB read and written, {speed}", words >> 18),
    })
}

fn upload(device: &mut dyn Device, info: &DeviceInfo) -> Result<Found, Problem> {
    let (words, pattern) = large_buffer(device, info);
    let buffer = device.allocate(words)?;
    let seconds = median(|| device.write(buffer, &pattern))?;
    let mut back = vec![0; words];
    device.read(buffer, &mut back)?;
    same_words(&back, &pattern)?;
    Ok(transferred(words, seconds))
}

fn download(device: &mut dyn Device, info: &DeviceInfo) -> Result<Found, Problem> {
    let (words, pattern) = large_buffer(device, info);
    let buffer = filled_words(device, &pattern)?;
    let mut back = vec![0; words];
    let seconds = median(|| device.read(buffer, &mut back))?;
    same_words(&back, &pattern)?;
    Ok(transferred(words, seconds))
}

fn transferred(words: usize, seconds: f64) -> Found {
    Found {
        value: Some(4.0 * words as f64 / seconds / 1e9),
        unit: "GB/s",
        detail: format!("{} MiB of pageable memory, median of {ROUNDS}", words >> 18),
    }
}

fn multiply_add(device: &mut dyn Device, info: &DeviceInfo) -> Result<Found, Problem> {
    let n = info.sized(1 << 14, 1 << 20);
    // Odd, so that every chain ends at 3 - its start.
    let steps = 513;
    let x = whole_numbers(6, n, 100);
    let out = device.allocate(n)?;
    let buffers = vec![out, filled(device, &x)?, filled(device, &[-1.0, 3.0])?];
    let launch = Launch {
        kernel: "fma_chain",
        buffers,
        params: [n as u32, steps, 0, 0],
    };
    let speed = speed(device, &launch)?;
    let wanted: Vec<f32> = x
        .iter()
        .map(|x| (0..8).map(|j| 3.0 - (x + j as f32)).sum())
        .collect();
    equal(&floats(device, out, n)?, &wanted)?;
    let operations = 2.0 * 8.0 * f64::from(steps) * n as f64;
    Ok(Found {
        value: Some(operations * speed.per_second / 1e9),
        unit: "GFLOP/s",
        detail: format!("32-bit floats, {n} items of 8 chains, {speed}"),
    })
}

fn large_product(device: &mut dyn Device, info: &DeviceInfo) -> Result<Found, Problem> {
    let largest = info.sized(512, 4096);
    let mut n = 256;
    loop {
        let (a, b) = (whole_numbers(7, n * n, 2), whole_numbers(8, n * n, 2));
        let out = device.allocate(n * n)?;
        let buffers = vec![out, filled(device, &a)?, filled(device, &b)?];
        let launch = product(buffers, n);
        device.run(std::slice::from_ref(&launch))?;
        let took = timed(|| device.run(std::slice::from_ref(&launch)))?;
        if n < largest && took < Duration::from_millis(20) {
            device.clear()?;
            n *= 2;
            continue;
        }
        let speed = speed(device, &launch)?;
        is_product(&floats(device, out, n * n)?, &a, &b, n)?;
        return Ok(Found {
            value: Some(2.0 * (n as f64).powi(3) * speed.per_second / 1e9),
            unit: "GFLOP/s",
            detail: format!(
                "{n} x {n}, 32-bit floats, a plain kernel without matrix units, {speed}"
            ),
        });
    }
}

/// Freivalds' test: compares c r with a (b r) for a vector of random numbers, all of them whole.
fn is_product(c: &[f32], a: &[f32], b: &[f32], n: usize) -> Result<(), Problem> {
    let random: Vec<f64> = whole_numbers(9, n, 1000)
        .into_iter()
        .map(f64::from)
        .collect();
    let times = |matrix: &[f32], vector: &[f64]| -> Vec<f64> {
        let rows = matrix.chunks(n);
        rows.map(|row| row.iter().zip(vector).map(|(m, v)| f64::from(*m) * v).sum())
            .collect()
    };
    let (left, right) = (times(c, &random), times(a, &times(b, &random)));
    match left
        .iter()
        .zip(&right)
        .position(|(left, right)| left != right)
    {
        None => Ok(()),
        Some(row) => Err(Problem::Wrong(format!(
            "row {row} of the product is not that of the CPU"
        ))),
    }
}

fn image_filter(device: &mut dyn Device, info: &DeviceInfo) -> Result<Found, Problem> {
    let side = info.sized(1024, 2048);
    let (width, height) = (side, side - 64);
    let image: Vec<u32> = noise(10).take(width * height).collect();
    let (out, from) = (device.allocate(image.len())?, filled_words(device, &image)?);
    let params = [image.len() as u32, width as u32, height as u32, 0];
    let launch = Launch {
        kernel: "blur",
        buffers: vec![out, from],
        params,
    };
    let speed = speed(device, &launch)?;
    let mut blurred = vec![0; image.len()];
    device.read(out, &mut blurred)?;
    same_words(&blurred, &blur(&image, width, height))?;
    Ok(Found {
        value: Some(image.len() as f64 * speed.per_second / 1e6),
        unit: "Mpixel/s",
        detail: format!(
            "3 x 3 filter over {width} x {height} pixels, all equal to the CPU's, {speed}"
        ),
    })
}

fn blur(image: &[u32], width: usize, height: usize) -> Vec<u32> {
    let at = |x: isize, y: isize| {
        let (x, y) = (
            x.clamp(0, width as isize - 1),
            y.clamp(0, height as isize - 1),
        );
        image[y as usize * width + x as usize].to_le_bytes()
    };
    let pixel = |i: usize| {
        let (x, y) = ((i % width) as isize, (i / width) as isize);
        let mut sums = [0_u32; 4];
        for (dy, down) in [(-1, 1), (0, 2), (1, 1)] {
            for (dx, across) in [(-1, 1), (0, 2), (1, 1)] {
                let channels = at(x + dx, y + dy);
                sums.iter_mut()
                    .zip(channels)
                    .for_each(|(sum, c)| *sum += u32::from(c) * down * across);
            }
        }
        u32::from_le_bytes(sums.map(|sum| (sum / 16) as u8))
    };
    (0..image.len()).map(pixel).collect()
}

fn product(buffers: Vec<Buffer>, n: usize) -> Launch {
    Launch {
        kernel: "matmul",
        buffers,
        params: [(n * n / 16) as u32, n as u32, 0, 0],
    }
}

/// A buffer that no cache holds, if the device has the memory, and what to fill it with.
fn large_buffer(device: &dyn Device, info: &DeviceInfo) -> (usize, Vec<u32>) {
    let wanted = info.sized(16 << 20, 64 << 20);
    let words = wanted
        .min(device.max_words())
        .min((info.memory_bytes / 32) as usize)
        .max(1 << 16)
        / 4
        * 4;
    (words, noise(11).take(words).collect())
}

/// Makes a buffer that holds these values.
pub(super) fn filled(device: &mut dyn Device, values: &[f32]) -> Result<Buffer, Error> {
    filled_words(device, bytemuck::cast_slice(values))
}

pub(super) fn filled_words(device: &mut dyn Device, words: &[u32]) -> Result<Buffer, Error> {
    let buffer = device.allocate(words.len())?;
    device.write(buffer, words)?;
    Ok(buffer)
}

/// Reads so many values.
pub(super) fn floats(device: &mut dyn Device, buffer: Buffer, n: usize) -> Result<Vec<f32>, Error> {
    let mut values = vec![0.0_f32; n];
    device.read(buffer, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

fn equal(found: &[f32], wanted: &[f32]) -> Result<(), Problem> {
    match found
        .iter()
        .zip(wanted)
        .position(|(found, wanted)| found != wanted)
    {
        None => Ok(()),
        Some(at) => Err(Problem::Wrong(format!(
            "value {at} is {}, on the CPU it is {}",
            found[at], wanted[at]
        ))),
    }
}

fn same_words(found: &[u32], wanted: &[u32]) -> Result<(), Problem> {
    match found
        .iter()
        .zip(wanted)
        .position(|(found, wanted)| found != wanted)
    {
        None => Ok(()),
        Some(at) => Err(Problem::Wrong(format!(
            "word {at} is {:#x}, not {:#x}",
            found[at], wanted[at]
        ))),
    }
}

fn checked(detail: String) -> Found {
    Found {
        value: None,
        unit: "",
        detail,
    }
}

/// How often a kernel runs in a second.
struct Speed {
    per_second: f64,
    launches: usize,
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "median of {ROUNDS} x {}", self.launches)
    }
}

/// Measures a kernel, without the time of its first run.
fn speed(device: &mut dyn Device, launch: &Launch) -> Result<Speed, Error> {
    device.run(std::slice::from_ref(launch))?;
    let once = timed(|| device.run(std::slice::from_ref(launch)))?;
    let launches = (ROUND.as_secs_f64() / once.as_secs_f64()).clamp(1.0, 200.0) as usize;
    let several = vec![launch.clone(); launches];
    let seconds = median(|| device.run(&several))?;
    Ok(Speed {
        per_second: launches as f64 / seconds,
        launches,
    })
}

fn timed(mut work: impl FnMut() -> Result<(), Error>) -> Result<Duration, Error> {
    let begun = Instant::now();
    work()?;
    // A clock may stand still for work that is done at once.
    Ok(begun.elapsed().max(Duration::from_nanos(100)))
}

/// The median of the seconds that it takes.
fn median(mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(timed(&mut work)?);
    }
    rounds.sort();
    Ok(rounds[ROUNDS / 2].as_secs_f64())
}

const ROUNDS: usize = 3;
/// About how long a round takes.
const ROUND: Duration = Duration::from_millis(100);

/// Whole numbers from `-limit` to `limit`, the same at every run.
fn whole_numbers(seed: u64, n: usize, limit: i32) -> Vec<f32> {
    let span = (2 * limit + 1) as u32;
    noise(seed)
        .take(n)
        .map(|word| ((word % span) as i32 - limit) as f32)
        .collect()
}

/// Words without a pattern (SplitMix64 of Steele, Lea and Flood).
pub(super) fn noise(seed: u64) -> impl Iterator<Item = u32> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 32) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_keeps_what_is_even_and_sums_to_one() {
        assert_eq!(blur(&[0x8040_20ff; 12], 4, 3), [0x8040_20ff; 12]);
        let mut dot = vec![0_u32; 25];
        dot[12] = 0x10;
        let blurred = blur(&dot, 5, 5);
        assert_eq!(&blurred[6..9], [1, 2, 1]);
        assert_eq!((blurred[12], blurred.iter().sum()), (4, 16));
    }

    #[test]
    fn one_wrong_value_of_a_product_is_found() {
        let n = 8;
        let identity: Vec<f32> = (0..n * n)
            .map(|i| f32::from(u8::from(i % n == i / n)))
            .collect();
        let b = whole_numbers(1, n * n, 9);
        is_product(&b, &identity, &b, n).unwrap();
        let mut wrong = b.clone();
        wrong[11] += 1.0;
        assert!(is_product(&wrong, &identity, &b, n).is_err());
    }
}

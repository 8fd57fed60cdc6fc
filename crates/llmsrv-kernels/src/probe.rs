//! What this machine can do at most, measured: the bounds that figures of an engine are held against.
//!
//! Decoding one sequence reads every weight once for each token, so it cannot be faster than memory;
//! reading a prompt multiplies every weight with every token, so it cannot be faster than the
//! multipliers. Both bounds are measured with nothing else in the loop.
#![expect(
    unsafe_code,
    reason = "instructions are chosen at run time; the system is asked for large pages"
)]

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    hint::black_box,
    ptr::NonNull,
    sync::Barrier,
    time::{Duration, Instant},
};

/// Memory that is read to measure bandwidth: far larger than the caches, in large pages where the
/// system has them.
pub struct BandwidthProbe {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is a plain buffer; it is written while it is made and only read after that.
unsafe impl Send for BandwidthProbe {}
// SAFETY: as above.
unsafe impl Sync for BandwidthProbe {}

impl BandwidthProbe {
    /// Takes 512 MiB and writes to all of it. Without that memory the process ends.
    pub fn new() -> BandwidthProbe {
        BandwidthProbe::with_bytes(512 << 20)
    }

    /// As [`BandwidthProbe::new`], with so many bytes, in whole large pages.
    pub fn with_bytes(n_bytes: usize) -> BandwidthProbe {
        let n_bytes = n_bytes.next_multiple_of(LARGE_PAGE);
        let Ok(layout) = Layout::from_size_align(n_bytes, LARGE_PAGE) else {
            unreachable!("a power of two, and a multiple of it")
        };
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(memory) else {
            handle_alloc_error(layout)
        };
        #[cfg(target_os = "linux")]
        // SAFETY: the range is ours, and the advice changes no content.
        unsafe {
            // Without large pages it is slower, and that is then the truth.
            let _ = rustix::mm::madvise(
                start.as_ptr().cast(),
                n_bytes,
                rustix::mm::Advice::LinuxHugepage,
            );
        }
        // Only now, so that the pages are large.
        // SAFETY: the range is ours, and nobody else knows it yet.
        unsafe { start.as_ptr().write_bytes(1, n_bytes) };
        BandwidthProbe { start, layout }
    }

    /// Reads all of it with `n_threads` threads. Returns bytes per second: the best of the patterns
    /// known to be good. 0 threads count as 1.
    ///
    /// # Panics
    ///
    /// If the system refuses a thread.
    pub fn bytes_per_second(&self, n_threads: usize) -> f64 {
        let n_threads = n_threads.max(1);
        let part = self.layout.size() / n_threads / (1 << 16) * (1 << 16);
        if part == 0 {
            return 0.0;
        }
        // SAFETY: the buffer lives as long as `self`, is wholly written, and is not written any more.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) };
        let parts: Vec<&[u8]> = bytes.chunks_exact(part).take(n_threads).collect();
        let speed = |streams: usize| {
            let time = together(n_threads, |thread| {
                black_box(read(parts[thread], streams));
            });
            (part * n_threads) as f64 / time.as_secs_f64()
        };
        [1, 4].map(speed).into_iter().fold(0.0, f64::max)
    }
}

impl Default for BandwidthProbe {
    fn default() -> Self {
        BandwidthProbe::new()
    }
}

impl Drop for BandwidthProbe {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Operations per second of the multipliers, and the instruction that gives them. A multiplication and
/// an addition are two operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeakThroughput {
    /// Operations per second of all threads together.
    pub ops_per_second: f64,
    /// Name of the instruction.
    pub instruction: &'static str,
}

/// Measures products of 8-bit integers, summed in 32 bits, on `n_threads` threads; 0 counts as 1.
///
/// # Panics
///
/// If the system refuses a thread.
pub fn int8_peak(n_threads: usize) -> PeakThroughput {
    let kernel = *INT8
        .iter()
        .find(|kernel| (kernel.available)())
        .unwrap_or(&PLAIN);
    kernel.peak(n_threads)
}

/// Measures products of floats: bfloat16 where the processor has them, else f32. On `n_threads`
/// threads; 0 counts as 1.
///
/// # Panics
///
/// If the system refuses a thread.
pub fn float_peak(n_threads: usize) -> PeakThroughput {
    let kernel = *FLOAT
        .iter()
        .find(|kernel| (kernel.available)())
        .unwrap_or(&PLAIN);
    kernel.peak(n_threads)
}

/// A loop of one instruction.
#[derive(Clone, Copy)]
struct Kernel {
    instruction: &'static str,
    available: fn() -> bool,
    /// Runs so many rounds.
    run: fn(u64),
    /// Operations of a round.
    ops: u64,
}

impl Kernel {
    fn peak(self, n_threads: usize) -> PeakThroughput {
        const ROUNDS: u64 = 1_000_000;
        let n_threads = n_threads.max(1);
        // Some milliseconds before the clock of the processor has risen.
        (self.run)(ROUNDS);
        let time = together(n_threads, |_| (self.run)(ROUNDS));
        PeakThroughput {
            ops_per_second: (ROUNDS * self.ops * n_threads as u64) as f64 / time.as_secs_f64(),
            instruction: self.instruction,
        }
    }
}

/// Lets threads begin at the same time. Returns how long the slowest took.
fn together(n_threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let (barrier, work) = (&Barrier::new(n_threads), &work);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads)
            .map(|thread| {
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    work(thread);
                    start.elapsed()
                })
            })
            .collect();
        let times = threads.into_iter().filter_map(|thread| thread.join().ok());
        times.max().unwrap_or_default().max(Duration::from_nanos(1))
    })
}

/// Reads all of `bytes` as so many streams side by side; returns something that depends on all of it.
fn read(bytes: &[u8], streams: usize) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the instructions, as just asked.
            return unsafe { read_avx512(bytes, streams) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { read_avx2(bytes, streams) };
        }
    }
    read_streams(bytes, streams)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn read_avx512(bytes: &[u8], streams: usize) -> u64 {
    read_streams(bytes, streams)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn read_avx2(bytes: &[u8], streams: usize) -> u64 {
    read_streams(bytes, streams)
}

#[inline(always)]
fn read_streams(bytes: &[u8], streams: usize) -> u64 {
    let stream_len = bytes.len() / streams.max(1) / LINES * LINES;
    let mut sums = [[0_u64; WORDS]; 4];
    let mut add = |lane: usize, line: &[u8]| {
        for (sum, word) in sums[lane].iter_mut().zip(line.as_chunks::<8>().0) {
            *sum ^= u64::from_ne_bytes(*word);
        }
    };
    if streams == 1 {
        let (lines, _) = bytes.as_chunks::<LINES>();
        for (index, line) in lines.iter().enumerate() {
            prefetch(lines, index + 32);
            add(index % 4, line);
        }
    } else {
        for at in (0..stream_len).step_by(LINES) {
            for stream in 0..streams {
                let from = stream * stream_len + at;
                add(stream % 4, &bytes[from..from + LINES]);
            }
        }
    }
    sums.iter().flatten().fold(0, |sum, word| sum ^ word)
}

/// Asks for two cache lines ahead of their use.
#[inline(always)]
fn prefetch(lines: &[[u8; LINES]], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(line) = lines.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = line.as_ptr().cast::<i8>();
        // SAFETY: every x86-64 processor has the instruction, and it only hints.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(at);
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(64));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (lines, index);
}

/// Bytes read at a time from one stream, and 8-byte words in them.
const LINES: usize = 128;
const WORDS: usize = LINES / 8;
const LARGE_PAGE: usize = 2 << 20;

/// Independent sums: enough of them to hide how long one instruction takes.
const SUMS: usize = 16;

/// What any processor can do.
const PLAIN: Kernel = Kernel {
    instruction: "f32 multiply and add",
    available: || true,
    run: |rounds| {
        let (x, y) = (black_box(1e-9_f32), black_box(1.0_f32));
        let mut sums = [0.0_f32; 4 * SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum += x * black_box(y);
            }
        }
        black_box(sums);
    },
    ops: 2 * 4 * SUMS as u64,
};

#[cfg(not(target_arch = "x86_64"))]
const INT8: &[Kernel] = &[];
#[cfg(not(target_arch = "x86_64"))]
const FLOAT: &[Kernel] = &[];

#[cfg(target_arch = "x86_64")]
const INT8: &[Kernel] = &[
    Kernel {
        instruction: "AVX-512 VNNI vpdpbusd",
        available: || is_x86_feature_detected!("avx512vnni"),
        // SAFETY: it runs only where the processor has the instructions.
        run: |rounds| unsafe { x86::vnni_512(rounds) },
        ops: 2 * 64 * SUMS as u64,
    },
    Kernel {
        instruction: "AVX-VNNI vpdpbusd",
        available: || is_x86_feature_detected!("avxvnni"),
        // SAFETY: as above.
        run: |rounds| unsafe { x86::vnni_256(rounds) },
        ops: 2 * 32 * x86::SUMS_256 as u64,
    },
    Kernel {
        instruction: "AVX2 vpmaddubsw",
        available: || is_x86_feature_detected!("avx2"),
        // SAFETY: as above.
        run: |rounds| unsafe { x86::madd_256(rounds) },
        ops: 2 * 32 * x86::SUMS_256 as u64,
    },
];

#[cfg(target_arch = "x86_64")]
const FLOAT: &[Kernel] = &[
    Kernel {
        instruction: "AVX-512 BF16 vdpbf16ps",
        available: || is_x86_feature_detected!("avx512bf16"),
        // SAFETY: as above.
        run: |rounds| unsafe { x86::bf16_512(rounds) },
        ops: 2 * 32 * SUMS as u64,
    },
    Kernel {
        instruction: "AVX-512 vfmadd",
        available: || is_x86_feature_detected!("avx512f"),
        // SAFETY: as above.
        run: |rounds| unsafe { x86::fma_512(rounds) },
        ops: 2 * 16 * SUMS as u64,
    },
    Kernel {
        instruction: "AVX2 vfmadd",
        available: || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
        // SAFETY: as above.
        run: |rounds| unsafe { x86::fma_256(rounds) },
        ops: 2 * 8 * x86::SUMS_256 as u64,
    },
];

#[cfg(target_arch = "x86_64")]
mod x86 {
    #[allow(
        clippy::wildcard_imports,
        reason = "names of instructions, each of which says what it is"
    )]
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::SUMS;

    /// There are half as many registers of 256 bits.
    pub(super) const SUMS_256: usize = 12;

    /// Makes a function that repeats one step on all sums. The operands are hidden from the compiler
    /// once in a round, so that it keeps the sums in registers and cannot work anything out.
    macro_rules! repeat {
        ($name:ident, $features:literal, $sums:expr, $zero:expr, $operand:expr, |$sum:ident, $x:ident| $step:expr) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name(rounds: u64) {
                let mut sums = [$zero; $sums];
                let $x = black_box($operand);
                for _ in 0..rounds {
                    for sum in &mut sums {
                        let $sum = *sum;
                        *sum = $step;
                    }
                }
                black_box(sums);
            }
        };
    }

    repeat!(
        vnni_512,
        "avx512f,avx512vnni",
        SUMS,
        _mm512_setzero_si512(),
        _mm512_set1_epi8(3),
        |sum, x| _mm512_dpbusd_epi32(sum, x, x)
    );
    repeat!(
        vnni_256,
        "avx2,avxvnni",
        SUMS_256,
        _mm256_setzero_si256(),
        _mm256_set1_epi8(3),
        |sum, x| _mm256_dpbusd_avx_epi32(sum, x, x)
    );
    repeat!(
        madd_256,
        "avx2",
        SUMS_256,
        _mm256_setzero_si256(),
        _mm256_set1_epi8(3),
        |sum, x| {
            let pairs = _mm256_maddubs_epi16(x, _mm256_xor_si256(x, sum));
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, x))
        }
    );
    repeat!(
        bf16_512,
        "avx512f,avx512bf16",
        SUMS,
        _mm512_setzero_ps(),
        _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-9), _mm512_set1_ps(1e-9)),
        |sum, x| _mm512_dpbf16_ps(sum, x, x)
    );
    repeat!(
        fma_512,
        "avx512f",
        SUMS,
        _mm512_setzero_ps(),
        _mm512_set1_ps(1e-9),
        |sum, x| _mm512_fmadd_ps(x, x, sum)
    );
    repeat!(
        fma_256,
        "avx2,fma",
        SUMS_256,
        _mm256_setzero_ps(),
        _mm256_set1_ps(1e-9),
        |sum, x| _mm256_fmadd_ps(x, x, sum)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_whatever_the_pattern() {
        let mut bytes = vec![0_u8; 1 << 16];
        for (at, streams) in [(0, 1), (77, 1), (65_535, 4), (40_000, 4), (16_384, 4)] {
            bytes[at] = 9;
            assert_ne!(read(&bytes, streams), 0, "byte {at}");
            bytes[at] = 0;
        }
        assert_eq!(read(&bytes, 4), 0);
    }

    #[test]
    fn figures_are_of_this_world() {
        // A processor with fewer than 10^8 or more than 10^16 of anything a second is no such.
        let sane = 1e8..1e16;
        let read = BandwidthProbe::with_bytes(8 << 20).bytes_per_second(2);
        assert!(sane.contains(&read), "{read}");
        for peak in [int8_peak(1), float_peak(1)] {
            assert!(sane.contains(&peak.ops_per_second), "{peak:?}");
        }
    }

    #[test]
    fn every_kernel_of_this_processor_runs() {
        let kernels = INT8.iter().chain(FLOAT).chain([&PLAIN]);
        for kernel in kernels.filter(|kernel| (kernel.available)()) {
            (kernel.run)(3);
        }
    }
}

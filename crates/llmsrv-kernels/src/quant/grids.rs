//! The points of the codebooks of the IQ1, IQ2 and IQ3 types.
//!
//! A file stores an index for eight (or four) elements; the grid's point with this index has a level for
//! each. Which points a grid has is part of the format: they were found by its authors, and cannot be
//! computed. `grids.bin` holds them as sets. A point is a number whose digits are its levels, the first
//! element's the lowest, in base 3 (IQ1, IQ2) or 8 (IQ3); bit `n` of a set says whether the point `n` is
//! in the grid, and the index of a point is how many are before it:
//!
//! ```text
//! number     0 1 2 3 4 5 6 7 8 ...
//! bit        1 0 1 0 1 0 1 0 1 ...        of IQ2_XXS
//! index      0   1   2   3   4
//! levels     index 3 = number 6 = 0 + 2 * 3: level 0, level 2, and six times level 0
//! ```
//!
//! `tests/fixtures/make_grids.py` writes the file from the Python package of the format.

static SETS: &[u8; 4308] = include_bytes!("grids.bin");
/// Bytes of the set of a grid of eight elements with three levels, and of one of four with eight.
const THREE: usize = 3_usize.pow(8).div_ceil(8);
const EIGHT: usize = 8_usize.pow(4).div_ceil(8);

pub(super) static IQ1: [[u8; 8]; 2048] = points(0, 3);
pub(super) static IQ2_XXS: [[u8; 8]; 256] = points(THREE, 3);
pub(super) static IQ2_XS: [[u8; 8]; 512] = points(2 * THREE, 3);
pub(super) static IQ2_S: [[u8; 8]; 1024] = points(3 * THREE, 3);
pub(super) static IQ3_XXS: [[u8; 4]; 256] = points(4 * THREE, 8);
pub(super) static IQ3_S: [[u8; 4]; 512] = points(4 * THREE + EIGHT, 8);

/// Reads `N` points of `LEN` elements from the set that begins at a byte. The compiler does it, and
/// complains of a set with too few.
const fn points<const LEN: usize, const N: usize>(first: usize, n_levels: usize) -> [[u8; LEN]; N] {
    let mut points = [[0; LEN]; N];
    let (mut idx, mut number) = (0, 0);
    while idx < N {
        if SETS[first + number / 8] >> (number % 8) & 1 == 1 {
            let (mut digits, mut element) = (number, 0);
            while element < LEN {
                points[idx][element] = (digits % n_levels) as u8;
                digits /= n_levels;
                element += 1;
            }
            idx += 1;
        }
        number += 1;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wrong points would make a model worse, not useless: nobody would see it.
    #[test]
    fn the_points_are_those_of_the_format() {
        let digest = SETS.iter().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
            (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        assert_eq!(digest, 0x8477_da62_7667_88cd, "FNV-1a");
        let in_set = |from: usize, len: usize| -> u32 {
            SETS[from..][..len]
                .iter()
                .map(|byte| byte.count_ones())
                .sum()
        };
        let sizes = [0, 1, 2, 3].map(|idx| in_set(idx * THREE, THREE));
        assert_eq!(sizes, [2048, 256, 512, 1024]);
        let sizes = [0, 1].map(|idx| in_set(4 * THREE + idx * EIGHT, EIGHT));
        assert_eq!(sizes, [256, 512]);
        assert_eq!(IQ2_XXS[3], [0, 2, 0, 0, 0, 0, 0, 0]);
    }
}

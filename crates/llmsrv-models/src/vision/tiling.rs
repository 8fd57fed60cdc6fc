//! How an image is cut into patches, and in which order they are computed.
//!
//! Where squares of `merge` times `merge` patches become one row of the result, the patches of a square
//! follow each other, and the squares of a window do. Four by two squares with windows of two squares a
//! side are computed in the order on the left; the right shows the patches of square 0.
//!
//! ```text
//! 0 1 | 4 5      0 1
//! 2 3 | 6 7      2 3
//! ```

use std::ops::Range;

use llmsrv_engine::Grid;

/// A way to cut an image.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    /// Line and column of each patch, in the order in which they are computed.
    pub patches: Vec<(usize, usize)>,
    /// Patches beside and above each other.
    pub sides: Grid,
    /// Stretches of that order that see each other where layers have windows.
    pub windows: Vec<Range<usize>>,
    /// For each row of the result, line by line, which square of that order it is; none where the order
    /// is that of lines.
    pub order: Vec<u32>,
    /// Rows of the result, where the decoder wants to know.
    pub grid: Option<Grid>,
}

impl Tiling {
    /// Line by line, without windows.
    pub(super) fn in_lines(width: usize, height: usize) -> Tiling {
        let lines = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
        Tiling {
            patches: lines.collect(),
            sides: Grid { width, height },
            windows: Vec::new(),
            order: Vec::new(),
            grid: None,
        }
    }

    /// `width` times `height` squares of `merge` times `merge` patches, in windows of `side` times `side`
    /// squares; those at the right and the bottom may be smaller. `None` = one window.
    pub(super) fn in_windows(
        width: usize,
        height: usize,
        merge: usize,
        side: Option<usize>,
    ) -> Tiling {
        let side = side.unwrap_or(width.max(height)).max(1);
        let mut patches = Vec::with_capacity(width * height * merge * merge);
        let mut windows = Vec::new();
        let mut order = vec![0; width * height];
        let mut n_squares = 0;
        for top in (0..height).step_by(side) {
            for left in (0..width).step_by(side) {
                let first = patches.len();
                for y in top..height.min(top + side) {
                    for x in left..width.min(left + side) {
                        order[y * width + x] = n_squares;
                        n_squares += 1;
                        let lines = y * merge..(y + 1) * merge;
                        let columns = x * merge..(x + 1) * merge;
                        patches.extend(lines.flat_map(|y| columns.clone().map(move |x| (y, x))));
                    }
                }
                windows.push(first..patches.len());
            }
        }
        Tiling {
            patches,
            sides: Grid {
                width: width * merge,
                height: height * merge,
            },
            windows,
            order,
            grid: Some(Grid { width, height }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_squares_of_patches() {
        // Three squares beside each other: a window of two, and what is left.
        let tiling = Tiling::in_windows(3, 2, 2, Some(2));
        assert_eq!(tiling.windows, [0..16, 16..24]);
        assert_eq!(tiling.order, [0, 1, 4, 2, 3, 5]);
        assert_eq!(
            tiling.patches[..5],
            [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]
        );
        assert_eq!(tiling.patches[16..18], [(0, 4), (0, 5)]);
        let mut all = tiling.patches;
        all.sort_unstable();
        assert_eq!(all, Tiling::in_lines(6, 4).patches);
    }

    #[test]
    fn without_windows_all_squares_are_in_one() {
        let tiling = Tiling::in_windows(2, 3, 2, None);
        assert_eq!(tiling.windows.len(), 1);
        assert_eq!(tiling.windows[0], 0..24);
        assert_eq!(tiling.order, [0, 1, 2, 3, 4, 5]);
    }
}

//! An image seen twice: as a whole in a square, and larger in tiles of that size. The rows of the tiles
//! are put together to those of one large image, without those that show nothing of it, and each line
//! ends in a row of its own (LLaVA 1.6, <https://llava-vl.github.io/blog/2024-01-30-llava-next/>).

use std::ops::Range;

use llmsrv_engine::LoadError;

use crate::source::{Source, invalid};

/// How images may be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    /// Width and height in tiles; at least one.
    choices: Vec<(usize, usize)>,
    /// Pixels of a side of a tile; those behind its last whole patch are not seen.
    side: usize,
    /// Rows of a side of a tile.
    n_rows: usize,
}

/// How one image is cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Pixels of a side of a tile.
    pub side: u32,
    /// Tiles beside and above each other.
    pub tiles: (usize, usize),
    /// Pixels that the image has in them, in the middle.
    pub scaled: (u32, u32),
    /// Lines of rows that show something of it.
    pub lines: Range<usize>,
    /// Rows of a line that do.
    pub columns: Range<usize>,
}

impl Tiles {
    /// Reads what the file says about tiles of `side` times `side` pixels, `n_rows` rows on a side.
    pub(super) fn read(
        source: &Source,
        side: usize,
        n_rows: usize,
    ) -> Result<Option<Tiles>, LoadError> {
        let key = "vision.image_grid_pinpoints";
        let Some(pixels) = source.integers(key).filter(|list| !list.is_empty()) else {
            return Ok(None);
        };
        let whole = |pixels: i64| {
            let pixels = usize::try_from(pixels).ok()?;
            (pixels.is_multiple_of(side) && (1..=MOST_TILES).contains(&(pixels / side)))
                .then_some(pixels / side)
        };
        let pairs = pixels.chunks(2).map(|pair| match pair {
            [width, height] => whole(*width).zip(whole(*height)),
            _ => None,
        });
        let choices: Option<Vec<(usize, usize)>> = pairs.collect();
        let few = |(width, height): &(usize, usize)| {
            let n_tiles = width * height;
            n_tiles <= MOST_TILES && n_tiles.saturating_mul(side * side) <= MOST_PIXELS
        };
        let choices = choices.filter(|list| list.len() <= MOST_CHOICES && list.iter().all(few));
        let choices = choices.ok_or_else(|| {
            let key = source.full(key);
            invalid(format!(
                "{key} is not up to {MOST_CHOICES} sizes of up to {MOST_TILES} tiles of {side} pixels"
            ))
        })?;
        Ok(Some(Tiles {
            choices,
            side,
            n_rows,
        }))
    }

    /// Returns how an image of that size is cut: the choice that keeps most of its pixels, and of those
    /// the smallest.
    pub(super) fn cut(&self, (width, height): (u32, u32)) -> Cut {
        let [width, height] = [width, height].map(|side| f64::from(side.max(1)));
        let pixels = |n: usize| (n * self.side) as f64;
        let kept = |(across, down): (usize, usize)| {
            let scale = (pixels(across) / width).min(pixels(down) / height);
            let kept = (width * scale).trunc() * (height * scale).trunc();
            (kept.min(width * height), across * down)
        };
        let mut tiles = *self.choices.first().unwrap_or(&(1, 1));
        for choice in &self.choices {
            let ((best, n), (kept, n_here)) = (kept(tiles), kept(*choice));
            if kept > best || (kept == best && n_here < n) {
                tiles = *choice;
            }
        }
        let (across, down) = tiles;
        let (scale_x, scale_y) = (pixels(across) / width, pixels(down) / height);
        let scaled = if scale_x < scale_y {
            let lines = (height * scale_x).ceil().min(pixels(down));
            (pixels(across), lines)
        } else {
            let columns = (width * scale_y).ceil().min(pixels(across));
            (columns, pixels(down))
        };
        let (n_columns, n_lines) = (across * self.n_rows, down * self.n_rows);
        // What is filled is on both sides equally; a row that shows something is kept.
        let within = |n: usize, shown: f64| {
            let shown = (shown * 1e7).round_ties_even() / 1e7;
            let filled = n.saturating_sub(shown as usize) / 2;
            filled..n - filled
        };
        let is_wide = width / height > n_columns as f64 / n_lines as f64;
        let (lines, columns) = if is_wide {
            let shown = height * (n_columns as f64 / width);
            (within(n_lines, shown), 0..n_columns)
        } else {
            let shown = width * (n_lines as f64 / height);
            (0..n_lines, within(n_columns, shown))
        };
        Cut {
            side: self.side as u32,
            tiles,
            scaled: (scaled.0 as u32, scaled.1 as u32),
            lines,
            columns,
        }
    }

    /// Puts the rows of the whole image and of its tiles, line by line, in the order in which the decoder
    /// reads them; a row has as many elements as `newline`, which ends each line of the tiles.
    pub(super) fn arrange(&self, cut: &Cut, views: &[Vec<f32>], newline: &[f32]) -> Vec<f32> {
        let Some((whole, tiles)) = views.split_first() else {
            return Vec::new();
        };
        let width = newline.len();
        let mut all = whole.clone();
        for line in cut.lines.clone() {
            for column in cut.columns.clone() {
                let tile = line / self.n_rows * cut.tiles.0 + column / self.n_rows;
                let row = line % self.n_rows * self.n_rows + column % self.n_rows;
                let rows = tiles.get(tile).map_or(&[][..], Vec::as_slice);
                all.extend(rows.iter().skip(row * width).take(width));
            }
            all.extend(newline);
        }
        all
    }
}

impl Cut {
    /// Returns how many rows the tiles become.
    pub(super) fn n_rows(&self) -> usize {
        self.lines.len() * (self.columns.len() + 1)
    }
}

/// Published models have up to four tiles.
const MOST_TILES: usize = 16;
const MOST_CHOICES: usize = 64;
const MOST_PIXELS: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn tiles() -> Tiles {
        Tiles {
            choices: vec![(1, 2), (2, 1), (2, 2), (3, 1), (1, 3)],
            side: 336,
            n_rows: 24,
        }
    }

    /// By `select_best_resolution`, `get_patch_output_size` and `unpad_image` of transformers.
    #[test]
    fn images_are_cut_as_the_published_code_does() {
        for (size, tiles_of_it, scaled, lines, columns) in [
            ((336, 336), (1, 2), (336, 336), 12..36, 0..24),
            ((1000, 500), (2, 1), (672, 336), 0..24, 0..48),
            ((4000, 3000), (2, 2), (672, 505), 6..42, 0..48),
            ((3000, 4000), (2, 2), (505, 672), 0..48, 6..42),
            ((2000, 500), (3, 1), (1008, 252), 3..21, 0..72),
            ((500, 2000), (1, 3), (252, 1008), 0..72, 3..21),
            // A line shows in no row.
            ((60_000, 1), (1, 2), (336, 1), 24..24, 0..24),
        ] {
            let expected = Cut {
                side: 336,
                tiles: tiles_of_it,
                scaled,
                lines,
                columns,
            };
            assert_eq!(tiles().cut(size), expected, "{size:?}");
        }
    }

    #[test]
    fn rows_are_those_of_one_image() {
        let tiles = Tiles {
            n_rows: 2,
            ..tiles()
        };
        let cut = Cut {
            side: 0,
            tiles: (2, 1),
            scaled: (0, 0),
            lines: 1..2,
            columns: 0..3,
        };
        let views = [
            vec![0.0, 1.0, 2.0, 3.0],
            vec![10.0, 11.0, 12.0, 13.0],
            vec![20.0, 21.0, 22.0, 23.0],
        ];
        let rows = tiles.arrange(&cut, &views, &[9.0]);
        assert_eq!(rows, [0.0, 1.0, 2.0, 3.0, 12.0, 13.0, 22.0, 9.0]);
        assert_eq!(rows.len(), 4 + cut.n_rows());
    }
}

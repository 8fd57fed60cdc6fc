//! An image seen several times: as a whole, and larger in tiles. Each rule is that of the published code of
//! its models, to the pixel.

use std::ops::Range;

use super::resample::Filter;
use crate::source::{Result, Source, invalid};

/// How images may be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    /// How many tiles an image gets, and of what size.
    pub rule: Rule,
    /// Pixels of a side of a tile, or about that; those behind its last whole patch are not seen.
    pub side: usize,
    /// Pixels of a side of a patch.
    pub patch_size: usize,
}

/// What decides how an image is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The choice that keeps most of its pixels, of those the smallest. The rows of the tiles are put
    /// together to those of one large image, without those that show nothing of it, and each line ends in a
    /// row of its own (LLaVA 1.6, <https://llava-vl.github.io/blog/2024-01-30-llava-next/>).
    Kept {
        /// Width and height in tiles; at least one.
        choices: Vec<(usize, usize)>,
        /// Rows of a side of a tile.
        n_rows: usize,
    },
    /// As many tiles as the image is larger than one, up to nine, in about its shape; all views are as many
    /// pixels in the shape of what they show (MiniCPM-V, <https://arxiv.org/abs/2408.01800>).
    Slices {
        /// All tiles stand within one pair of marks (MiniCPM-V 2.5), not each in its own.
        nested: bool,
    },
    /// The tiles that an image fills whose longer side has been brought to `longest` pixels (Idefics 3,
    /// <https://arxiv.org/abs/2408.12637>). `None`: the whole image alone.
    Longest {
        /// Pixels.
        longest: Option<usize>,
    },
    /// Of all grids of `least` to `most` tiles the one whose shape is nearest (InternVL 1.5,
    /// <https://arxiv.org/abs/2404.16821>).
    Shape {
        /// Tiles at least.
        least: usize,
        /// Tiles at most.
        most: usize,
    },
    /// Of all grids of up to `most` tiles the smallest one that the image fits as it is; what it leaves is
    /// black (Llama 4).
    Canvas {
        /// Tiles at most.
        most: usize,
    },
}

/// How one image is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Tiles beside and above each other; none where the whole image says it all.
    pub tiles: (usize, usize),
    /// Width and height of a tile in pixels.
    pub tile: (u32, u32),
    /// What the image is scaled to for them, one after the other.
    pub scaled: Vec<(u32, u32)>,
    /// Where it lies in the tiles, from the left and the top; what is beside it is black.
    pub offset: (u32, u32),
    /// What the whole image is stretched to, where the tiles do not say it all.
    pub whole: Option<(u32, u32)>,
    /// Lines of rows of all tiles that show something of the image, and the rows of a line that do.
    pub shown: [Range<usize>; 2],
}

impl Rule {
    /// Reads which sizes LLaVA 1.6 has, in tiles of `side` times `side` pixels, `n_rows` rows on a side.
    pub(super) fn kept(source: &Source, side: usize, n_rows: usize) -> Result<Option<Rule>> {
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
        Ok(Some(Rule::Kept { choices, n_rows }))
    }

    /// Reads how long the longer side of an image for Idefics 3 is, in tiles of `side` pixels.
    pub(super) fn longest(source: &Source, side: usize) -> Result<Rule> {
        let key = "vision.preproc_image_size";
        let longest = source.optional_count(key)?;
        if let Some(longest) = longest.filter(|longest| longest.div_ceil(side) > MOST_BESIDE) {
            let key = source.full(key);
            return Err(invalid(format!(
                "{key} is {longest}, more than {MOST_BESIDE} tiles of {side} pixels"
            )));
        }
        Ok(Rule::Longest { longest })
    }

    /// Reads how many tiles an image for InternVL has.
    pub(super) fn shape(source: &Source) -> Result<Rule> {
        let least = source.optional_count("vision.preproc_min_tiles")?;
        let most = source.optional_count("vision.preproc_max_tiles")?;
        let (least, most) = (least.unwrap_or(1), most.unwrap_or(TILES_OF_INTERNVL));
        if least > most || most > MOST_TILES {
            return Err(invalid(format!(
                "images have {least} to {most} tiles, not 1 to {MOST_TILES}"
            )));
        }
        Ok(Rule::Shape { least, most })
    }

    /// How images are scaled.
    pub(super) fn filter(&self) -> Filter {
        match self {
            Rule::Kept { .. } | Rule::Slices { .. } | Rule::Shape { .. } => Filter::Bicubic,
            Rule::Longest { .. } => Filter::Lanczos,
            Rule::Canvas { .. } => Filter::Bilinear,
        }
    }

    /// Whether the whole image comes before its tiles, or behind.
    pub(super) fn begins_with_whole(&self) -> bool {
        matches!(self, Rule::Kept { .. } | Rule::Slices { .. })
    }

    /// Whether the whole image is made smaller from what the tiles show, not from the image itself.
    pub(super) fn scales_whole_again(&self) -> bool {
        matches!(self, Rule::Longest { .. })
    }
}

impl Tiles {
    /// Returns how many tiles an image has at most.
    pub(super) fn most(&self) -> usize {
        match &self.rule {
            Rule::Kept { choices, .. } => {
                let counts = choices.iter().map(|(across, down)| across * down);
                counts.max().unwrap_or(1)
            }
            Rule::Slices { .. } => MOST_SLICES,
            Rule::Shape { most, .. } | Rule::Canvas { most } => *most,
            Rule::Longest { longest } => {
                longest.map_or(1, |longest| longest.div_ceil(self.side).pow(2))
            }
        }
    }

    /// Returns how an image of that size is cut.
    pub(super) fn cut(&self, (width, height): (u32, u32)) -> Cut {
        let size = [width, height].map(|side| f64::from(side.max(1)));
        match &self.rule {
            Rule::Kept { choices, n_rows } => self.kept(size, choices, *n_rows),
            Rule::Slices { .. } => self.slices(size),
            Rule::Longest { longest } => self.longest(size, *longest),
            Rule::Shape { least, most } => self.grid(self.nearest(size, *least..*most + 1)),
            Rule::Canvas { most } => self.canvas(size, *most),
        }
    }

    /// An image stretched over a grid of square tiles, and over one tile as a whole.
    fn grid(&self, tiles: (usize, usize)) -> Cut {
        let side = self.side as u32;
        let (across, down) = tiles;
        Cut {
            tiles: if across * down > 1 { tiles } else { (0, 0) },
            tile: (side, side),
            scaled: vec![(across as u32 * side, down as u32 * side)],
            offset: (0, 0),
            whole: Some((side, side)),
            shown: [0..0, 0..0],
        }
    }

    fn kept(&self, size: [f64; 2], choices: &[(usize, usize)], n_rows: usize) -> Cut {
        let [width, height] = size;
        let pixels = |n: usize| (n * self.side) as f64;
        let kept = |(across, down): (usize, usize)| {
            let scale = (pixels(across) / width).min(pixels(down) / height);
            let kept = (width * scale).trunc() * (height * scale).trunc();
            (kept.min(width * height), across * down)
        };
        let mut tiles = *choices.first().unwrap_or(&(1, 1));
        for choice in choices {
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
        let (n_columns, n_lines) = (across * n_rows, down * n_rows);
        // What is filled is on both sides equally; a row that shows something is kept.
        let within = |n: usize, shown: f64| {
            let shown = (shown * 1e7).round_ties_even() / 1e7;
            let filled = n.saturating_sub(shown as usize) / 2;
            filled..n - filled
        };
        let is_wide = width / height > n_columns as f64 / n_lines as f64;
        let shown = if is_wide {
            let shown = height * (n_columns as f64 / width);
            [within(n_lines, shown), 0..n_columns]
        } else {
            let shown = width * (n_lines as f64 / height);
            [0..n_lines, within(n_columns, shown)]
        };
        let side = self.side as u32;
        let scaled = (scaled.0 as u32, scaled.1 as u32);
        let offset = |n: usize, scaled: u32| (n as u32 * side).saturating_sub(scaled) / 2;
        Cut {
            tiles,
            tile: (side, side),
            scaled: vec![scaled],
            offset: (offset(across, scaled.0), offset(down, scaled.1)),
            whole: Some((side, side)),
            shown,
        }
    }

    fn slices(&self, size: [f64; 2]) -> Cut {
        let [width, height] = size;
        let ratio = width * height / (self.side * self.side) as f64;
        let multiple = ratio.ceil().min(MOST_SLICES as f64) as usize;
        if multiple <= 1 {
            return Cut {
                whole: Some(self.resized(size, true)),
                ..self.grid((1, 1))
            };
        }
        let (mut best, mut least_off) = ((1, 1), f64::INFINITY);
        let counts = (multiple - 1..=multiple + 1).filter(|n| (2..=MOST_SLICES).contains(n));
        for (n, across) in counts.flat_map(|n| (1..=n).map(move |across| (n, across))) {
            let down = n / across;
            let off = ((width / height).ln() - (across as f64 / down as f64).ln()).abs();
            if across * down == n && off < least_off {
                (best, least_off) = ((across, down), off);
            }
        }
        // The part of the image for each tile, with sides of whole pixels.
        let part = |side: f64, n: usize| whole_steps(side, n) / n as f64;
        let tile = self.resized([part(width, best.0), part(height, best.1)], true);
        Cut {
            tiles: best,
            tile,
            scaled: vec![(tile.0 * best.0 as u32, tile.1 * best.1 as u32)],
            whole: Some(self.resized(size, false)),
            ..self.grid((1, 1))
        }
    }

    /// Brings an image to as many pixels as a tile has and to sides of whole patches; smaller ones only if
    /// they are enlarged.
    fn resized(&self, [mut width, mut height]: [f64; 2], enlarged: bool) -> (u32, u32) {
        let side = self.side as f64;
        if enlarged || width * height > side * side {
            let ratio = width / height;
            height = (side / ratio.sqrt()).trunc();
            width = (height * ratio).trunc();
        }
        let whole = |side: f64| whole_steps(side, self.patch_size) as u32;
        (whole(width), whole(height))
    }

    fn longest(&self, [width, height]: [f64; 2], longest: Option<usize>) -> Cut {
        let Some(longest) = longest else {
            return self.grid((1, 1));
        };
        let longest = longest as f64;
        let ratio = width / height;
        let even = |side: f64| {
            let side = side.trunc();
            (side + side % 2.0).max(1.0)
        };
        let first = if width >= height {
            [longest, even(longest / ratio)]
        } else {
            [even(longest * ratio), longest]
        };
        let ratio = first[0] / first[1];
        let tiles = |pixels: f64| (pixels / self.side as f64).ceil();
        let pixels = |tiles: f64| tiles * self.side as f64;
        let (across, down) = if first[0] >= first[1] {
            let across = tiles(first[0]);
            (across, tiles((pixels(across) / ratio).trunc()))
        } else {
            let down = tiles(first[1]);
            (tiles((pixels(down) * ratio).trunc()), down)
        };
        let mut cut = self.grid((across as usize, down as usize));
        cut.scaled.insert(0, (first[0] as u32, first[1] as u32));
        cut
    }

    fn nearest(&self, [width, height]: [f64; 2], counts: Range<usize>) -> (usize, usize) {
        let most = counts.end;
        let all = (1..most).flat_map(|across| (1..most).map(move |down| (across, down)));
        let mut grids: Vec<(usize, usize)> = all
            .filter(|(across, down)| counts.contains(&(across * down)))
            .collect();
        grids.sort_by_key(|(across, down)| across * down);
        let (mut best, mut least_off) = ((1, 1), f64::INFINITY);
        for (across, down) in grids {
            let off = (width / height - across as f64 / down as f64).abs();
            let half = 0.5 * (self.side * self.side * across * down) as f64;
            if off < least_off || (off == least_off && width * height > half) {
                (best, least_off) = ((across, down), off);
            }
        }
        best
    }

    fn canvas(&self, size: [f64; 2], most: usize) -> Cut {
        let [width, height] = size.map(|side| side as f32);
        let pixels = |n: usize| (n * self.side) as f32;
        let scale =
            |(across, down): &(usize, usize)| (pixels(*across) / width).min(pixels(*down) / height);
        let all = (1..=most).flat_map(|down| (1..=most / down).map(move |across| (across, down)));
        let grids: Vec<(usize, usize)> = all.collect();
        let enlarging = grids.iter().map(scale).filter(|scale| *scale >= 1.0);
        let shrinking = grids.iter().map(scale).filter(|scale| *scale < 1.0);
        let scale_of_all = enlarging
            .min_by(f32::total_cmp)
            .or_else(|| shrinking.max_by(f32::total_cmp));
        let fits = grids
            .iter()
            .filter(|grid| Some(scale(grid)) == scale_of_all);
        let best = fits.min_by_key(|(across, down)| across * down);
        let best = *best.unwrap_or(&(1, 1));
        let mut cut = self.grid(best);
        if best == (1, 1) {
            (cut.tiles, cut.whole) = (best, None);
        }
        // A small image is enlarged to one tile and no further.
        let within = |side: f64, n: usize| side.max(self.side as f64).min((n * self.side) as f64);
        let [width, height] = size;
        let (most_x, most_y) = (within(width, best.0), within(height, best.1));
        let (scale_x, scale_y) = (most_x / width, most_y / height);
        let (x, y) = if scale_x < scale_y {
            (most_x, (height * scale_x).floor().min(most_y))
        } else {
            ((width * scale_y).floor().min(most_x), most_y)
        };
        cut.scaled = vec![(x.max(1.0) as u32, y.max(1.0) as u32)];
        cut
    }

    /// Puts the rows of the whole image and of its tiles, line by line, in the order in which the decoder
    /// of LLaVA reads them, `n_rows` on a side of a tile; a row has as many elements as `newline`, which
    /// ends each line of the tiles.
    pub(super) fn arrange(
        cut: &Cut,
        n_rows: usize,
        views: &[Vec<f32>],
        newline: &[f32],
    ) -> Vec<f32> {
        let Some((whole, tiles)) = views.split_first() else {
            return Vec::new();
        };
        let width = newline.len();
        let mut all = whole.clone();
        let [lines, columns] = &cut.shown;
        for line in lines.clone() {
            for column in columns.clone() {
                let tile = line / n_rows * cut.tiles.0 + column / n_rows;
                let row = line % n_rows * n_rows + column % n_rows;
                let rows = tiles.get(tile).map_or(&[][..], Vec::as_slice);
                all.extend(rows.iter().skip(row * width).take(width));
            }
            all.extend(newline);
        }
        all
    }
}

/// The nearest whole number of steps, at least one.
fn whole_steps(length: f64, step: usize) -> f64 {
    let step = step as f64;
    ((length / step).round_ties_even() * step).max(step)
}

impl Cut {
    /// Returns how many rows the tiles of LLaVA become.
    pub(super) fn n_shown(&self) -> usize {
        let [lines, columns] = &self.shown;
        lines.len() * (columns.len() + 1)
    }
}

/// Published models have up to 16 tiles.
const MOST_TILES: usize = 16;
const MOST_CHOICES: usize = 64;
const MOST_PIXELS: usize = 16 << 20;
/// What the models of the family were trained with.
const MOST_SLICES: usize = 9;
/// Tiles on a side of an image; published models have four.
const MOST_BESIDE: usize = 6;
/// What the models read unless they are told otherwise.
const TILES_OF_INTERNVL: usize = 12;
/// And Llama 4.
pub(super) const TILES_OF_LLAMA4: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn tiles(rule: Rule, side: usize) -> Tiles {
        Tiles {
            rule,
            side,
            patch_size: 14,
        }
    }

    /// By `select_best_resolution`, `get_patch_output_size` and `unpad_image` of transformers.
    #[test]
    fn llava_keeps_most_pixels() {
        let choices = vec![(1, 2), (2, 1), (2, 2), (3, 1), (1, 3)];
        let tiles = tiles(
            Rule::Kept {
                choices,
                n_rows: 24,
            },
            336,
        );
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
            let (width, height) = (tiles_of_it.0 as u32 * 336, tiles_of_it.1 as u32 * 336);
            let expected = Cut {
                tiles: tiles_of_it,
                tile: (336, 336),
                scaled: vec![scaled],
                offset: ((width - scaled.0) / 2, (height - scaled.1) / 2),
                whole: Some((336, 336)),
                shown: [lines, columns],
            };
            assert_eq!(tiles.cut(size), expected, "{size:?}");
        }
    }

    /// By the functions of transformers' image processor for MiniCPM-V.
    #[test]
    fn minicpm_gets_as_many_slices_as_the_image_is_larger() {
        let tiles = tiles(Rule::Slices { nested: false }, 448);
        for (size, tiles_of_it, whole, scaled) in [
            ((448, 448), (0, 0), (448, 448), None),
            ((30, 20), (0, 0), (546, 364), None),
            ((200, 300), (0, 0), (364, 546), None),
            ((1000, 500), (2, 1), (630, 322), Some((896, 448))),
            ((1152, 896), (3, 2), (504, 392), Some((1260, 952))),
            ((4000, 3000), (3, 3), (518, 392), Some((1554, 1176))),
            ((500, 2000), (1, 4), (224, 896), Some((448, 1792))),
            ((3000, 300), (6, 1), (1414, 140), Some((3444, 350))),
        ] {
            let cut = tiles.cut(size);
            assert_eq!(
                (cut.tiles, cut.whole),
                (tiles_of_it, Some(whole)),
                "{size:?}"
            );
            if let Some((width, height)) = scaled {
                assert_eq!(cut.scaled, [(width, height)], "{size:?}");
                let (across, down) = (tiles_of_it.0 as u32, tiles_of_it.1 as u32);
                assert_eq!(cut.tile, (width / across, height / down), "{size:?}");
            }
        }
    }

    /// By the functions of transformers' image processor for Idefics 3.
    #[test]
    fn idefics_fills_tiles() {
        let tiles = tiles(
            Rule::Longest {
                longest: Some(2048),
            },
            512,
        );
        for (size, first, second) in [
            ((448, 448), (2048, 2048), (2048, 2048)),
            ((2048, 1000), (2048, 1000), (2048, 1024)),
            ((1152, 896), (2048, 1592), (2048, 2048)),
            ((300, 2000), (308, 2048), (512, 2048)),
            ((3000, 10), (2048, 6), (2048, 512)),
            ((513, 512), (2048, 2044), (2048, 2048)),
        ] {
            let cut = tiles.cut(size);
            assert_eq!(cut.scaled, [first, second], "{size:?}");
            let (width, height) = (second.0 as usize, second.1 as usize);
            assert_eq!(cut.tiles, (width / 512, height / 512), "{size:?}");
        }
    }

    /// By the functions of transformers' image processor for InternVL.
    #[test]
    fn internvl_keeps_the_shape() {
        let (least, most) = (1, 12);
        let tiles = tiles(Rule::Shape { least, most }, 448);
        for (size, grid) in [
            ((448, 448), (1, 1)),
            ((896, 448), (2, 1)),
            ((1000, 500), (2, 1)),
            ((1152, 896), (4, 3)),
            ((300, 2000), (1, 7)),
            ((640, 640), (2, 2)),
            ((600, 450), (4, 3)),
            ((900, 300), (3, 1)),
        ] {
            let cut = tiles.cut(size);
            let shown = if grid == (1, 1) { (0, 0) } else { grid };
            assert_eq!(cut.tiles, shown, "{size:?}");
            let scaled = (448 * grid.0 as u32, 448 * grid.1 as u32);
            assert_eq!(
                (cut.scaled, cut.whole),
                (vec![scaled], Some((448, 448))),
                "{size:?}"
            );
        }
    }

    /// By the functions of transformers' image processor for Llama 4.
    #[test]
    fn llama4_has_room_for_the_image() {
        let tiles = tiles(Rule::Canvas { most: 16 }, 336);
        for (size, grid, scaled) in [
            ((336, 336), (1, 1), (336, 336)),
            ((100, 50), (1, 1), (336, 168)),
            ((1000, 500), (3, 2), (1000, 500)),
            ((1152, 896), (4, 3), (1152, 896)),
            ((4000, 3000), (4, 3), (1344, 1008)),
            ((300, 2000), (1, 6), (300, 2000)),
            ((640, 640), (2, 2), (640, 640)),
            ((5000, 200), (15, 1), (5000, 200)),
            ((1, 3000), (1, 9), (1, 3000)),
        ] {
            let cut = tiles.cut(size);
            assert_eq!((cut.tiles, cut.scaled), (grid, vec![scaled]), "{size:?}");
            assert_eq!(cut.whole.is_none(), grid == (1, 1), "{size:?}");
        }
    }

    #[test]
    fn rows_are_those_of_one_image() {
        let cut = Cut {
            tiles: (2, 1),
            tile: (0, 0),
            scaled: Vec::new(),
            offset: (0, 0),
            whole: None,
            shown: [1..2, 0..3],
        };
        let views = [
            vec![0.0, 1.0, 2.0, 3.0],
            vec![10.0, 11.0, 12.0, 13.0],
            vec![20.0, 21.0, 22.0, 23.0],
        ];
        let rows = Tiles::arrange(&cut, 2, &views, &[9.0]);
        assert_eq!(rows, [0.0, 1.0, 2.0, 3.0, 12.0, 13.0, 22.0, 9.0]);
        assert_eq!(rows.len(), 4 + cut.n_shown());
    }
}

//! Images in a prompt: rows of embeddings that stand in for tokens.
//!
//! An image is encoded beside the engine ([`Vision`]), because that takes as long as many steps and
//! running answers shall not wait for it. The engine sees finished rows: it places them, keeps them
//! whole where cutting would matter, and tells them apart in the prefix cache by their digest.

use std::{borrow::Cow, ops::Range, sync::Arc};

use crate::TokenId;

/// Reads images for one model. Shared by all requests.
pub trait Vision: Send + Sync {
    /// Decodes and encodes the bytes of an image file. Takes up to seconds, so it is called where
    /// waiting is allowed.
    ///
    /// # Errors
    ///
    /// [`ImageError::Invalid`] if the bytes are no image that can be read; [`ImageError::Compute`] if
    /// the device fails.
    fn encode(&self, bytes: &[u8]) -> Result<Arc<Image>, ImageError>;

    /// Returns what stands in the prompt in the place of an image, from the head of its file: nothing is
    /// decoded.
    ///
    /// # Errors
    ///
    /// [`ImageError::Invalid`] if that depends on the size of the image, and the bytes do not tell it.
    fn layout(&self, bytes: &[u8]) -> Result<Vec<Part>, ImageError>;
}

/// A part of what stands in the prompt in the place of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text before, between or after rows, as in training: tokens with a meaning of their own.
    Text(Cow<'static, str>),
    /// So many of the rows that [`Vision::encode`] gives, behind those of the parts before.
    Rows(usize),
}

impl Part {
    /// Makes a part of a text that is always the same.
    pub fn text(text: &'static str) -> Part {
        Part::Text(text.into())
    }
}

/// An image as the model reads it.
#[derive(Debug)]
pub struct Image {
    /// Identifies the content; equal digests mean equal embeddings.
    pub digest: [u8; 32],
    /// Rows, i.e. positions in the prompt.
    pub rows: usize,
    /// The rows, `[rows * width]` row-major, as wide as a token's embedding, or a whole number of times
    /// as wide where further parts are for later layers.
    pub embedding: Vec<f32>,
    /// Every row sees all others of its span, so all of these are computed in the same step.
    pub whole: bool,
    /// How the rows lie in the image, line by line, for models that rotate them by height and width. Such
    /// an image has one span.
    pub grid: Option<Grid>,
}

/// Lines of rows: `width * height` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Rows beside each other.
    pub width: usize,
    /// Rows above each other.
    pub height: usize,
}

impl Image {
    /// Returns row number `row`, from 0; nothing if the image has no such row.
    pub fn row(&self, row: usize) -> &[f32] {
        let width = self.embedding.len() / self.rows.max(1);
        let range = row.saturating_mul(width)..(row + 1).saturating_mul(width);
        self.embedding.get(range).unwrap_or_default()
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Image {}

/// An image that was not encoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The bytes are damaged, too large, or in a format nobody here reads.
    #[error("{0}")]
    Invalid(String),
    /// The device or tensor library failed.
    #[error("computation failed: {0}")]
    Compute(String),
}

/// The place in a prompt of an image, or of some of its rows where text stands between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSpan {
    /// Index of the first token that it stands in for. These tokens have any valid id.
    pub at: usize,
    /// The rows of the image that stand there. Spans of one image follow each other, the first of them
    /// from row 0 on.
    pub rows: Range<usize>,
    /// The image whose rows are computed in their place.
    pub image: Arc<Image>,
}

impl ImageSpan {
    /// Places all rows of an image.
    pub fn all(at: usize, image: Arc<Image>) -> ImageSpan {
        let rows = 0..image.rows;
        ImageSpan { at, rows, image }
    }

    /// Returns the index after the last token that it stands in for.
    pub fn end(&self) -> usize {
        self.at + self.rows.len()
    }

    /// Returns how many positions fewer than rows the image takes for what comes after it: it goes on
    /// after the larger side of the grid.
    fn lag(&self) -> usize {
        let n_rows = self.rows.len();
        let side = self.image.grid.map(|grid| grid.width.max(grid.height));
        n_rows.saturating_sub(side.unwrap_or(n_rows))
    }

    /// Returns whether it has the rows that follow those of the span before, if it does not begin an image.
    fn follows(&self, before: Option<&ImageSpan>) -> bool {
        let follows =
            |before: &ImageSpan| before.image == self.image && before.rows.end == self.rows.start;
        self.rows.start == 0 || before.is_some_and(follows)
    }

    fn fits_its_image(&self) -> bool {
        let fills = |grid: Grid| {
            let n_rows = grid.width.checked_mul(grid.height);
            n_rows == Some(self.image.rows) && self.rows == (0..self.image.rows)
        };
        self.rows.end <= self.image.rows && self.image.grid.is_none_or(fills)
    }
}

/// The rows of an image that lie in one KV block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImagePart {
    digest: [u8; 32],
    slot: usize,
    row: usize,
    rows: usize,
}

/// Returns whether spans ascend, do not overlap and lie within `n_tokens` tokens, and have rows of their
/// images in order.
pub fn are_sound(images: &[ImageSpan], n_tokens: usize) -> bool {
    let mut free_from = 0;
    let mut before = None;
    images.iter().all(|span| {
        let end = span.at.saturating_add(span.rows.len());
        let sound = !span.rows.is_empty() && span.at >= free_from && end <= n_tokens;
        let follows = span.follows(before);
        (free_from, before) = (end, Some(span));
        sound && follows && span.fits_its_image()
    })
}

/// Returns the span that a cut before token `index` would go through.
pub fn across(images: &[ImageSpan], index: usize) -> Option<&ImageSpan> {
    let after = images.partition_point(|span| span.at < index);
    let span = images.get(after.checked_sub(1)?)?;
    (index < span.end()).then_some(span)
}

/// Returns the tokens of the image, with the text between its rows, that a cut before token `index` would
/// go through.
fn image_across(images: &[ImageSpan], index: usize) -> Option<Range<usize>> {
    let after = images.partition_point(|span| span.at < index);
    let is_first = |span: &ImageSpan| span.rows.start == 0;
    let first = images.get(..after)?.iter().rfind(|span| is_first(span))?;
    let rest = images.get(after..)?.iter();
    let last = rest.take_while(|span| !is_first(span)).last();
    let last = last.or(images.get(after.checked_sub(1)?))?;
    (index < last.end()).then_some(first.at..last.end())
}

/// Widens a range of tokens so that each image is wholly in it or wholly out of it, with the text between
/// its rows.
pub fn widened(images: &[ImageSpan], range: Range<usize>) -> Range<usize> {
    let start = image_across(images, range.start).map_or(range.start, |image| image.start);
    let end = image_across(images, range.end).map_or(range.end, |image| image.end);
    start..end
}

/// Removes the images of a range of tokens that is removed, and moves those after it. An image is
/// wholly in the range or wholly out of it: see [`widened`].
pub fn remove(images: &mut Vec<ImageSpan>, range: Range<usize>) {
    images.retain(|span| span.end() <= range.start || span.at >= range.end);
    for span in images {
        if span.at >= range.end {
            span.at -= range.len();
        }
    }
}

/// Returns the tokens that are text; those in the places of images are left out, and so is the text
/// between the rows of one.
pub fn text_tokens(tokens: &[TokenId], images: &[ImageSpan]) -> Vec<TokenId> {
    let mut text = Vec::with_capacity(tokens.len());
    let mut from = 0;
    for span in images {
        if span.rows.start == 0 {
            text.extend_from_slice(tokens.get(from..span.at).unwrap_or_default());
        }
        from = span.end();
    }
    text.extend_from_slice(tokens.get(from..).unwrap_or_default());
    text
}

/// Returns where each token of a range is in time, height and width: three times its position for
/// text. The rows of an image with a grid share the time of the first one, and text goes on after the
/// larger side of the grid, so it falls behind its index.
///
/// An image of 2 x 2 rows between tokens 0 and 5 gives `000 | 111 112 121 122 | 333`.
pub fn coordinates(images: &[ImageSpan], range: Range<usize>) -> impl Iterator<Item = [u32; 3]> {
    let mut spans = images.iter().peekable();
    let mut lag = 0;
    range.map(move |index| {
        while let Some(span) = spans.next_if(|span| span.end() <= index) {
            lag += span.lag();
        }
        let inside = spans.peek().filter(|span| span.at <= index);
        let place = match inside.and_then(|span| Some((span, span.image.grid?))) {
            None => [index - lag; 3],
            Some((span, grid)) => {
                let (first, row) = (span.at - lag, index - span.at);
                [first, first + row / grid.width, first + row % grid.width]
            }
        };
        place.map(|coordinate| coordinate as u32)
    })
}

/// Returns what lies of images in a range of tokens, which is a KV block.
pub(crate) fn parts(images: &[ImageSpan], block: Range<usize>) -> Vec<ImagePart> {
    let first = images.partition_point(|span| span.end() <= block.start);
    let inside = images[first..]
        .iter()
        .take_while(|span| span.at < block.end);
    inside
        .map(|span| {
            let (start, end) = (span.at.max(block.start), span.end().min(block.end));
            ImagePart {
                digest: span.image.digest,
                slot: start - block.start,
                row: span.rows.start + start - span.at,
                rows: end - start,
            }
        })
        .collect()
}

/// Returns how many of the first `n` slots of two blocks have the same of images.
pub(crate) fn common(one: &[ImagePart], other: &[ImagePart], n: usize) -> usize {
    if one == other {
        return n;
    }
    let at = |parts: &[ImagePart], slot: usize| {
        let part = parts
            .iter()
            .find(|part| (part.slot..part.slot + part.rows).contains(&slot))?;
        Some((part.digest, part.row + slot - part.slot))
    };
    let same = |slot: &usize| at(one, *slot) == at(other, *slot);
    (0..n).take_while(same).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Spans behind each other, each after a gap.
    fn spans(gaps_and_rows: &[(usize, usize)]) -> Vec<ImageSpan> {
        let mut at = 0;
        let mut spans = Vec::new();
        for (idx, &(gap, rows)) in gaps_and_rows.iter().enumerate() {
            at += gap;
            let image = Image {
                digest: [idx as u8; 32],
                rows,
                embedding: Vec::new(),
                whole: true,
                grid: None,
            };
            spans.push(ImageSpan::all(at, Arc::new(image)));
            at += rows;
        }
        spans
    }

    #[test]
    fn spans_that_do_not_fit_are_noticed() {
        let two = spans(&[(1, 3), (0, 2)]);
        assert!(are_sound(&two, 6) && are_sound(&[], 0));
        assert!(!are_sound(&two, 5));
        assert!(!are_sound(&spans(&[(0, 0)]), 5));
        let mut far = spans(&[(1, 3)]);
        far[0].at = usize::MAX;
        assert!(!are_sound(&far, 6));
        let reversed: Vec<ImageSpan> = two.into_iter().rev().collect();
        assert!(!are_sound(&reversed, 6));
    }

    #[test]
    fn a_grid_that_is_not_filled_is_noticed() {
        for (width, height, sound) in [
            (2, 3, true),
            (2, 2, false),
            (0, 6, false),
            (usize::MAX, 2, false),
        ] {
            let mut one = spans(&[(1, 6)]);
            Arc::get_mut(&mut one[0].image).unwrap().grid = Some(Grid { width, height });
            assert_eq!(are_sound(&one, 9), sound, "{width} x {height}");
        }
    }

    /// `[image 0: rows 0..2] text [rows 2..5] text [image 1]`
    fn parted() -> Vec<ImageSpan> {
        let mut two = spans(&[(1, 5), (3, 2)]);
        let last = two.remove(1);
        let part = |at, rows| ImageSpan {
            at,
            rows,
            image: two[0].image.clone(),
        };
        vec![part(1, 0..2), part(4, 2..5), last]
    }

    #[test]
    fn rows_of_an_image_in_another_order_are_noticed() {
        assert!(are_sound(&parted(), 11));
        for rows in [1..4, 2..6, 3..5, 2..2] {
            let mut wrong = parted();
            wrong[1].rows = rows;
            assert!(!are_sound(&wrong, 11));
        }
        assert!(!are_sound(&parted()[1..], 11), "the first rows are missing");
        let mut other = parted();
        other[1].image = other[2].image.clone();
        assert!(!are_sound(&other, 11));
    }

    #[test]
    fn an_image_in_parts_is_never_cut() {
        let images = parted();
        for index in 0..=11 {
            let expected = match index {
                2..7 => Some(1..7),
                10 => Some(9..11),
                _ => None,
            };
            assert_eq!(image_across(&images, index), expected, "{index}");
        }
        assert_eq!(widened(&images, 3..10), 1..11);
        let tokens: Vec<TokenId> = (0..12).collect();
        assert_eq!(text_tokens(&tokens, &images), [0, 7, 8, 11]);
        let mut left = images.clone();
        remove(&mut left, 1..7);
        assert_eq!(left, [ImageSpan::all(3, images[2].image.clone())]);
        let rows: Vec<(usize, usize)> = parts(&images, 2..6)
            .iter()
            .map(|part| (part.row, part.rows))
            .collect();
        assert_eq!(rows, [(1, 1), (2, 2)]);
    }

    #[test]
    fn text_goes_on_after_the_larger_side_of_an_image() {
        let mut two = spans(&[(2, 6), (1, 3)]);
        Arc::get_mut(&mut two[0].image).unwrap().grid = Some(Grid {
            width: 3,
            height: 2,
        });
        let all: Vec<[u32; 3]> = coordinates(&two, 0..13).collect();
        let expected = [
            [0; 3],
            [1; 3],
            [2, 2, 2],
            [2, 2, 3],
            [2, 2, 4],
            [2, 3, 2],
            [2, 3, 3],
            [2, 3, 4],
            [5; 3],
            // An image without a grid is like text.
            [6; 3],
            [7; 3],
            [8; 3],
            [9; 3],
        ];
        assert_eq!(all, expected);
        // Where a step begins does not matter.
        for start in 0..13 {
            let rest: Vec<[u32; 3]> = coordinates(&two, start..13).collect();
            assert_eq!(rest, all[start..], "{start}");
        }
    }

    proptest! {
        /// What each token is, as (image, row), says what all functions must do.
        #[test]
        fn images_are_never_cut(
            layout in prop::collection::vec((0usize..4, 1usize..6), 0..5),
            tail in 0usize..5,
            start in 0usize..40,
            len in 0usize..40,
            block_size in 1usize..7,
        ) {
            let mut images = spans(&layout);
            let n_tokens = images.last().map_or(0, ImageSpan::end) + tail;
            prop_assert!(are_sound(&images, n_tokens));
            let of = |images: &[ImageSpan], n: usize| -> Vec<Option<(u8, usize)>> {
                (0..n)
                    .map(|at| {
                        let span = images.iter().find(|span| span.at <= at && at < span.end())?;
                        Some((span.image.digest[0], at - span.at))
                    })
                    .collect()
            };
            let kinds = of(&images, n_tokens);

            let tokens: Vec<TokenId> = (0..n_tokens as TokenId).collect();
            let text: Vec<TokenId> = tokens.iter().copied().filter(|at| kinds[*at as usize].is_none()).collect();
            prop_assert_eq!(text_tokens(&tokens, &images), text);

            // Blocks have equal parts when they hold the same.
            for block in (0..n_tokens).step_by(block_size) {
                let block = block..(block + block_size).min(n_tokens);
                let mut found = vec![None; block.len()];
                for part in parts(&images, block.clone()) {
                    for i in 0..part.rows {
                        found[part.slot + i] = Some((part.digest[0], part.row + i));
                    }
                }
                prop_assert_eq!(&found[..], &kinds[block]);
            }

            let (start, end) = (start.min(n_tokens), (start + len).min(n_tokens));
            let wide = widened(&images, start..end);
            prop_assert!(wide.start <= start && wide.end >= end);
            let mut kept = kinds.clone();
            kept.drain(wide.clone());
            remove(&mut images, wide);
            prop_assert!(are_sound(&images, kept.len()));
            prop_assert_eq!(of(&images, kept.len()), kept);
        }
    }
}

//! Images of a request: from base64 to their places in the prompt.
//!
//! A rendered prompt has a tag `[img-N]` for each image. Here the tags become positions and the text that
//! the model wants around and between them; the heads of the image files say how many. Once it is known that all of it
//! fits the context, the images are encoded: a request with a thousand images is refused before the first one costs
//! anything. All of this happens where threads may compute.

use std::{borrow::Cow, ops::Range};

use base64::Engine as _;
use llmsrv_engine::{ImageError, ImageSpan, Part, Vision, image};
use llmsrv_tokenizer::{Special, Tokenizer};

use crate::error::ApiError;

/// The tokens of a prompt and where its images are.
pub(crate) struct Layout {
    pub(crate) tokens: Vec<u32>,
    /// Where the images are, ascending.
    places: Vec<Place>,
    /// The files of the images.
    files: Vec<Vec<u8>>,
}

/// The place of an image, or of those of its rows that have no text between them.
struct Place {
    /// Index of its first token.
    at: usize,
    /// The rows of the image, one for each token.
    rows: Range<usize>,
    /// Which image it is.
    number: usize,
}

/// Decodes the base64 of an image, with or without `data:` before it. Line breaks do not count: `base64`
/// writes some.
pub(crate) fn decode(image: &str) -> Result<Vec<u8>, ApiError> {
    let data = match image
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(','))
    {
        Some((_, data)) => data,
        None => image,
    };
    let unbroken = if LINE_BREAKS.iter().any(|end| data.contains(*end)) {
        Cow::Owned(data.replace(LINE_BREAKS, ""))
    } else {
        Cow::Borrowed(data)
    };
    let decoded = base64::engine::general_purpose::STANDARD.decode(&*unbroken);
    decoded.map_err(|error| {
        let nth = match error {
            base64::DecodeError::InvalidByte(nth, _)
            | base64::DecodeError::InvalidLastSymbol(nth, _) => nth,
            _ => unbroken.len(),
        };
        let mut counted = data.match_indices(|c: char| !LINE_BREAKS.contains(&c));
        let at = counted.nth(nth).map_or(data.len(), |(at, _)| at);
        ApiError::bad_request(format!("illegal base64 data at input byte {at}"))
    })
}

/// Counts the tokens that an image (base64) takes in a prompt. One that cannot be read takes none: it is refused
/// where it is used.
pub(crate) fn n_tokens(image: &str, tokenizer: &Tokenizer, vision: &dyn Vision) -> usize {
    let parts = decode(image).and_then(|file| vision.layout(&file).map_err(refused));
    let n_tokens = |part: &Part| match part {
        Part::Text(text) => tokenizer.encode(text, Special::Parse).len(),
        Part::Rows(n_rows) => *n_rows,
    };
    let parts = parts.unwrap_or_default();
    parts.iter().map(n_tokens).fold(0, usize::saturating_add)
}

impl Layout {
    /// Takes tokens as they are.
    pub(crate) fn of(tokens: Vec<u32>) -> Layout {
        Layout {
            tokens,
            places: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Puts the tokens of a text behind those of the `context`.
    pub(crate) fn text(tokenizer: &Tokenizer, context: Vec<u32>, text: &str) -> Layout {
        let mut tokens = context;
        let special = special(tokens.is_empty());
        tokens.extend(tokenizer.encode(text, special));
        Layout::of(tokens)
    }

    /// As [`Layout::text`], with images (base64): each in the place of its first tag, or before the
    /// text when it has none. A tag that comes again is text.
    ///
    /// # Errors
    /// If an image cannot be read, or the images alone do not fit `n_ctx` tokens.
    pub(crate) fn with_images(
        tokenizer: &Tokenizer,
        context: Vec<u32>,
        text: &str,
        images: Vec<String>,
        vision: &dyn Vision,
        n_ctx: usize,
    ) -> Result<Layout, ApiError> {
        let n_images = images.len();
        let (mut layouts, mut files, mut n_rows) = (Vec::new(), Vec::new(), 0_usize);
        for image in images {
            let file = decode(&image)?;
            let layout = vision.layout(&file).map_err(refused)?;
            files.push(file);
            for part in &layout {
                if let Part::Rows(n) = part {
                    n_rows = n_rows.saturating_add(*n);
                }
            }
            layouts.push(layout);
            if n_rows >= n_ctx {
                return Err(ApiError::prompt_too_long(n_rows, n_ctx));
            }
        }
        let mut tags: Vec<(usize, usize, usize)> = (0..n_images)
            .map(|number| {
                let tag = format!("[img-{number}]");
                text.find(&tag)
                    .map_or((0, 0, number), |at| (at, at + tag.len(), number))
            })
            .collect();
        tags.sort_unstable();
        let (mut tokens, mut places) = (context, Vec::new());
        let (mut piece, mut from) = (String::new(), 0);
        for (start, end, number) in tags {
            piece.push_str(&text[from..start]);
            let mut n_before = 0;
            for part in layouts.get(number).into_iter().flatten() {
                match part {
                    Part::Text(text) => piece.push_str(text),
                    Part::Rows(n) => {
                        let special = special(tokens.is_empty());
                        tokens.extend(tokenizer.encode(&piece, special));
                        piece.clear();
                        let (at, rows) = (tokens.len(), n_before..n_before + n);
                        n_before = rows.end;
                        places.push(Place { at, rows, number });
                        tokens.resize(at + n, PLACEHOLDER);
                    }
                }
            }
            from = end;
        }
        piece.push_str(&text[from..]);
        let special = special(tokens.is_empty());
        tokens.extend(tokenizer.encode(&piece, special));
        Ok(Layout {
            tokens,
            places,
            files,
        })
    }

    /// Removes tokens.
    ///
    /// # Errors
    /// If an image would be lost: what is asked about it makes no sense then.
    pub(crate) fn remove(&mut self, range: Range<usize>, n_ctx: usize) -> Result<(), ApiError> {
        let n_tokens = self.tokens.len();
        // What is between the rows of an image belongs to it.
        for image in self
            .places
            .chunk_by_mut(|one, other| one.number == other.number)
        {
            let at = image.first().map_or(0, |place| place.at);
            let end = image.last().map_or(0, |place| place.at + place.rows.len());
            if at < range.end && end > range.start {
                return Err(ApiError::prompt_too_long(n_tokens, n_ctx));
            }
            for place in image.iter_mut().filter(|_| at >= range.end) {
                place.at -= range.len();
            }
        }
        self.tokens.drain(range);
        Ok(())
    }

    /// Encodes the images.
    pub(crate) fn spans(&self, vision: Option<&dyn Vision>) -> Result<Vec<ImageSpan>, ApiError> {
        let Some(vision) = vision else {
            return Ok(Vec::new());
        };
        let spans = self.places.iter().map(|place| {
            let file = self.files.get(place.number).map_or(&[][..], Vec::as_slice);
            let image = vision.encode(file).map_err(refused)?;
            Ok(ImageSpan {
                at: place.at,
                rows: place.rows.clone(),
                image,
            })
        });
        let spans: Vec<ImageSpan> = spans.collect::<Result<_, ApiError>>()?;
        debug_assert!(image::are_sound(&spans, self.tokens.len()));
        Ok(spans)
    }
}

fn refused(error: ImageError) -> ApiError {
    match error {
        ImageError::Invalid(reason) => ApiError::bad_request(format!("invalid image: {reason}")),
        error => {
            tracing::error!(%error, "an image was not encoded");
            ApiError::internal("the image could not be encoded")
        }
    }
}

/// What marks mean at the start of a prompt and later.
fn special(at_start: bool) -> Special {
    if at_start {
        Special::ParseAndAdd
    } else {
        Special::Parse
    }
}

/// Lines of base64 end so.
const LINE_BREAKS: [char; 2] = ['\r', '\n'];
/// Stands where an image is; the model does not look at it.
const PLACEHOLDER: u32 = 0;

#[cfg(test)]
mod tests {
    use llmsrv_engine::fake::{self, FakeOptions};
    use proptest::prelude::*;

    use super::*;

    fn base64(text: &str) -> String {
        base64::engine::general_purpose::STANDARD.encode(text)
    }

    proptest! {
        /// Whatever the text holds, each image has one place, and the text around stays.
        #[test]
        fn every_image_has_one_place(
            pieces in prop::collection::vec(
                prop_oneof![
                    "[a-z ]{0,4}", Just("[img-0]".into()), Just("[img-1]".into()), Just("[img-7]".into()),
                    Just("[img-".into()), Just("é[img]".into()),
                ],
                0..8,
            ),
            n_images in 0usize..3,
            cut in 0usize..40,
        ) {
            let text: String = pieces.concat();
            let options = FakeOptions { image_rows: 3, ..FakeOptions::default() };
            let loaded = fake::loaded(options);
            let vision = loaded.vision.unwrap();
            // The second one has more rows, with text between.
            let images = [base64("image"), base64("image+/")];
            let images = &images[..n_images];
            let shown = |number: usize| match number {
                0 => "<\u{1}\u{1}\u{1}>".to_owned(),
                _ => format!("<{rows}/{rows}>", rows = "\u{1}".repeat(6)),
            };
            let n_rows = |number: usize| shown(number).matches('\u{1}').count();
            let n_rows: usize = (0..n_images).map(n_rows).sum();
            let layout = |n_ctx| Layout::with_images(&loaded.tokenizer, Vec::new(), &text, images.to_vec(), &*vision, n_ctx);
            prop_assert_eq!(layout(n_rows).is_err(), n_images > 0);
            let mut layout = layout(1000).unwrap();

            // The fake tokenizer has a token for each byte, the fake vision marks of one.
            let mut expected = text.clone();
            for number in 0..n_images {
                let tag = format!("[img-{number}]");
                if expected.contains(&tag) {
                    expected = expected.replacen(&tag, &shown(number), 1);
                }
            }
            // Those without a place come first, in their order.
            for number in (0..n_images).rev().filter(|number| !text.contains(&format!("[img-{number}]"))) {
                expected.insert_str(0, &shown(number));
            }
            prop_assert_eq!(layout.tokens.len(), expected.len());
            let mut found = Vec::new();
            for place in &layout.places {
                let range = place.at..place.at + place.rows.len();
                prop_assert!(layout.tokens[range.clone()].iter().all(|token| *token == PLACEHOLDER));
                prop_assert!(expected[range].bytes().all(|byte| byte == 1));
                found.push((place.number, place.rows.clone()));
            }
            found.sort_unstable_by_key(|(number, rows)| (*number, rows.start));
            prop_assert_eq!(&found[..], &[(0, 0..3), (1, 0..6), (1, 6..12)][..found.len()]);
            prop_assert_eq!(found.len(), [0, 1, 3][n_images]);

            let range = cut.min(layout.tokens.len())..(cut + 2).min(layout.tokens.len());
            // The second one with the text between its rows.
            let hit = layout.places.iter().any(|place| {
                let (start, end) = match (place.number, place.rows.start) {
                    (1, 0) => (place.at, place.at + 13),
                    (1, _) => (place.at - 7, place.at + 6),
                    _ => (place.at, place.at + 3),
                };
                end > range.start && start < range.end
            });
            let before: Vec<usize> = layout.places.iter().map(|place| place.at).collect();
            prop_assert_eq!(layout.remove(range.clone(), 0).is_err(), hit);
            if !hit {
                let moved = before.iter().map(|at| if *at >= range.end { at - range.len() } else { *at });
                let after = layout.places.iter().map(|place| place.at);
                prop_assert!(after.eq(moved));
            }
        }

        #[test]
        fn lines_of_base64_may_end_anywhere(file in prop::collection::vec(any::<u8>(), 0..200), width in 1usize..80) {
            let whole = base64::engine::general_purpose::STANDARD.encode(&file);
            for end in ["\n", "\r\n"] {
                let lines: Vec<String> = whole.as_bytes().chunks(width)
                    .map(|line| format!("{}{end}", String::from_utf8_lossy(line)))
                    .collect();
                prop_assert_eq!(&decode(&lines.concat()).unwrap(), &file);
                prop_assert_eq!(&decode(&format!("data:image/png;base64,{}", lines.concat())).unwrap(), &file);
            }
        }

        #[test]
        fn base64_never_panics(image in ".{0,40}") {
            let _ = decode(&image);
        }
    }
}

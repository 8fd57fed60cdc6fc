//! From the bytes of an image file to views of it, and from these to normalised patches, in the order of a
//! [`Tiling`].
//!
//! The bytes come from anyone: size and pixels are checked before anything is decoded.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageReader, Limits, Rgb, RgbImage, imageops};
use llmsrv_engine::ImageError;

use super::{
    config::{Config, Kind},
    resample::{Filter, resample},
    tiles::{Cut, Rule},
    tiling::Tiling,
};

/// Returns width and height of an image in pixels; only its head is read.
pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32), ImageError> {
    Ok(open(bytes)?.dimensions())
}

/// Decodes an image and brings it to `size`.
pub(super) fn view(bytes: &[u8], kind: Kind, size: (u32, u32)) -> Result<RgbImage, ImageError> {
    Ok(fitted(decode(bytes)?, kind, size))
}

/// Decodes an image and returns views of it: its tiles, line by line, and all of it before or behind them.
pub(super) fn views(bytes: &[u8], rule: &Rule, cut: &Cut) -> Result<Vec<RgbImage>, ImageError> {
    let mut image = decode(bytes)?;
    let scaled = |image: &RgbImage, (width, height): (u32, u32)| {
        resample(image, width.max(1), height.max(1), rule.filter())
    };
    let whole_of = |image: &RgbImage| cut.whole.map(|size| scaled(image, size));
    let mut whole = None;
    if !rule.scales_whole_again() {
        whole = whole_of(&image);
    }
    let mut views = Vec::new();
    let (across, down) = (cut.tiles.0 as u32, cut.tiles.1 as u32);
    let (width, height) = cut.tile;
    if across * down > 0 || rule.scales_whole_again() {
        for size in &cut.scaled {
            image = scaled(&image, *size);
        }
    }
    if across * down > 0 {
        let mut large = RgbImage::new(across * width, down * height);
        let (left, top) = cut.offset;
        imageops::replace(&mut large, &image, left.into(), top.into());
        let tile = |x, y| imageops::crop_imm(&large, x * width, y * height, width, height);
        let places = (0..down).flat_map(|y| (0..across).map(move |x| (x, y)));
        views.extend(places.map(|(x, y)| tile(x, y).to_image()));
    }
    if rule.scales_whole_again() {
        whole = whole_of(&image);
    }
    let at = if rule.begins_with_whole() {
        0
    } else {
        views.len()
    };
    views.splice(at..at, whole);
    Ok(views)
}

/// Cuts a view into patches: `[patches][channel][y][x]`.
pub(super) fn patches(image: &RgbImage, config: &Config, tiling: &Tiling) -> Vec<f32> {
    let patch = config.patch_size;
    let mut values = Vec::with_capacity(tiling.patches.len() * 3 * patch * patch);
    for &(row, column) in &tiling.patches {
        for channel in 0..3 {
            let (mean, deviation) = (config.mean[channel], config.deviation[channel]);
            for y in row * patch..(row + 1) * patch {
                for x in column * patch..(column + 1) * patch {
                    let level = image.get_pixel(x as u32, y as u32).0[channel];
                    values.push((f32::from(level) / 255.0 - mean) / deviation);
                }
            }
        }
    }
    values
}

/// Reads the head of a file.
fn open(bytes: &[u8]) -> Result<impl ImageDecoder + '_, ImageError> {
    let mut reader = ImageReader::new(Cursor::new(bytes))
        .with_guessed_format()
        .map_err(|error| damaged(error.into()))?;
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    let n_pixels = u64::from(width) * u64::from(height);
    if n_pixels == 0 || n_pixels > MAX_PIXELS || width.max(height) > MAX_SIDE {
        return Err(invalid(format!(
            "the image has {width} x {height} pixels; at most {MAX_PIXELS} in all and \
             {MAX_SIDE} on a side can be read"
        )));
    }
    Ok(decoder)
}

fn damaged(error: image::ImageError) -> ImageError {
    invalid(match error {
        image::ImageError::Unsupported(_) => {
            "the image format is not supported (PNG, JPEG, WebP, GIF and BMP are)".into()
        }
        error => format!("the image cannot be decoded: {error}"),
    })
}

/// Decodes the first picture of a file; what shines through is white.
fn decode(bytes: &[u8]) -> Result<RgbImage, ImageError> {
    let decoder = open(bytes)?;
    let (width, height) = decoder.dimensions();
    let image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    if !image.color().has_alpha() {
        return Ok(image.into_rgb8());
    }
    let image = image.into_rgba8();
    Ok(RgbImage::from_fn(width, height, |x, y| {
        let [r, g, b, alpha] = image.get_pixel(x, y).0.map(u32::from);
        let over_white = |level: u32| ((level * alpha + 255 * (255 - alpha) + 127) / 255) as u8;
        Rgb([r, g, b].map(over_white))
    }))
}

/// Brings an image to a size: stretched, or to a square, scaled as a whole, centred, the rest in one
/// colour.
fn fitted(image: RgbImage, kind: Kind, (width, height): (u32, u32)) -> RgbImage {
    if image.dimensions() == (width, height) {
        return image;
    }
    let size = width;
    let (filter, around) = match kind {
        Kind::Qwen2
        | Kind::Qwen25
        | Kind::Qwen3
        | Kind::Gemma4
        | Kind::Gemma4Unified
        | Kind::Pixtral
        | Kind::Glm => {
            return resample(&image, width, height, Filter::Bicubic);
        }
        // The others see views, not squares.
        Kind::Mlp | Kind::MiniCpm | Kind::Idefics3 | Kind::InternVl | Kind::Llama4 => {
            (Filter::Bicubic, Rgb([122, 116, 104]))
        }
        Kind::Gemma3 => (Filter::Bilinear, Rgb([0, 0, 0])),
    };
    let (width, height) = image.dimensions();
    let scale = (size as f32 / width as f32).min(size as f32 / height as f32);
    let scaled = |side: u32| ((side as f32 * scale).ceil() as u32).clamp(1, size);
    let image = resample(&image, scaled(width), scaled(height), filter);
    let mut square = RgbImage::from_pixel(size, size, around);
    let offset = |side: u32| i64::from((size - side) / 2);
    let (width, height) = image.dimensions();
    imageops::replace(&mut square, &image, offset(width), offset(height));
    square
}

fn invalid(message: String) -> ImageError {
    ImageError::Invalid(message)
}

/// A photograph of 64 megapixels is 256 MiB in memory at the most.
const MAX_PIXELS: u64 = 64 << 20;
/// Resizing keeps a row for each line of the image.
const MAX_SIDE: u32 = 1 << 16;
/// Memory that a decoder may ask for.
const MAX_DECODED_BYTES: u64 = 768 << 20;

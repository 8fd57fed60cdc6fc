//! Encoders for images, read from a projector file (architecture `clip`) or from the file of the
//! decoder itself.
//!
//! Read in this order: `config` (what the file says), `tiling` (how an image is cut into patches), `tiles`
//! (how one is cut into several), `pixels` (bytes to normalised patches, scaled by `resample`),
//! `weights` and `forward` (the transformer and the projector). The arithmetic runs on candle's
//! tensors on every device: an image is one large batch, which its matrix product is made for, and no
//! other request shares its rows. Weights stay in the mapped file on the CPU and are unpacked one
//! matrix at a time.

mod config;
mod forward;
mod pixels;
mod resample;
mod tiles;
mod tiling;
mod weights;

use std::sync::{Arc, Mutex, PoisonError};

use llmsrv_engine::{Image, ImageError, LoadError, Vision};
use llmsrv_gguf::GgufFile;
use rayon::ThreadPoolBuilder;
use sha2::{Digest as _, Sha256};

pub(crate) use self::config::{Location, is_within};
use self::{config::Config, forward::Encoder, tiles::Cut};
use crate::{arch::ArchConfig, ops::candle::Device, source::Source};

/// Reads the encoder of a decoder; `architecture` is that of its own file.
///
/// # Errors
/// [`LoadError::Invalid`] if the file contradicts itself or does not fit the decoder;
/// [`LoadError::Unsupported`] if it is sound, but of a kind that is not known here.
pub(crate) fn load(
    file: Arc<GgufFile>,
    (location, architecture): (Location, &str),
    arch: &ArchConfig,
    device: Device,
    n_threads: usize,
) -> Result<Arc<dyn Vision>, LoadError> {
    let prefix = match location {
        Location::Mmproj => "clip",
        Location::Decoder => architecture,
    };
    let source = Source::new(file, prefix);
    let config = Config::read(&source, location)?;
    if config.kind.has_grid() && !arch.rotates_by_place() {
        let message =
            "an encoder whose rows have lines and columns, which the decoder does not know";
        return Err(LoadError::Unsupported(message.into()));
    }
    let n_further = config.deepstack.len();
    if n_further != arch.deepstack {
        let n = arch.deepstack;
        return Err(crate::source::invalid(format!(
            "an encoder whose rows have {n_further} further parts, for a decoder that reads {n}"
        )));
    }
    let weights = weights::Weights::load(&source, &config, arch.width, &device)?;
    let newline = match &config.tiles {
        Some(_) => source.vector(config::NEWLINE, arch.width)?,
        None => Vec::new(),
    };
    let named = |idx| format!("llmsrv-image-{idx}");
    let pool = ThreadPoolBuilder::new()
        .num_threads(n_threads)
        .thread_name(named)
        .build()
        .map_err(std::io::Error::other)?;
    Ok(Arc::new(Reader {
        encoder: Mutex::new(Encoder {
            config: config.clone(),
            weights,
            device,
            pool,
        }),
        config,
        whole: arch.sees_whole_images(),
        newline,
        known: Mutex::default(),
    }))
}

/// What the server asks for embeddings.
struct Reader {
    config: Config,
    /// The decoder lets all rows of an image see each other in some layers.
    whole: bool,
    /// Ends lines of rows of tiles.
    newline: Vec<f32>,
    /// One image at a time, which bounds memory.
    encoder: Mutex<Encoder>,
    /// Images of the last requests, the newest last: each turn of a conversation sends them again.
    known: Mutex<Vec<Arc<Image>>>,
}

impl Vision for Reader {
    fn encode(&self, bytes: &[u8]) -> Result<Arc<Image>, ImageError> {
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        if let Some(image) = self.find(&digest) {
            return Ok(image);
        }
        let encoder = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        // Another request may have sent the same image.
        if let Some(image) = self.find(&digest) {
            return Ok(image);
        }
        let size = self.fitted(bytes)?;
        let tiling = self.config.tiling(size);
        let cut = self.cut(bytes)?;
        let views = match &cut {
            Some(cut) => pixels::views(bytes, &self.config, cut, &tiling)?,
            None => vec![pixels::patches(bytes, &self.config, size, &tiling)?],
        };
        let started = std::time::Instant::now();
        let views = views
            .into_iter()
            .map(|patches| encoder.encode(patches, &tiling))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| ImageError::Compute(error.to_string()))?;
        drop(encoder);
        let embedding = match (&self.config.tiles, &cut) {
            (Some(tiles), Some(cut)) => tiles.arrange(cut, &views, &self.newline),
            _ => views.concat(),
        };
        tracing::debug!(encode_ms = started.elapsed().as_millis() as u64, "image");
        let image = Arc::new(Image {
            digest,
            rows: self.config.n_rows(size) + cut.map_or(0, |cut| cut.n_rows()),
            embedding,
            whole: self.whole,
            grid: tiling.grid,
        });
        self.keep(image.clone());
        Ok(image)
    }

    fn rows(&self, bytes: &[u8]) -> Result<usize, ImageError> {
        let n_rows = self.config.n_rows(self.fitted(bytes)?);
        Ok(n_rows + self.cut(bytes)?.map_or(0, |cut| cut.n_rows()))
    }

    fn marks(&self) -> (&str, &str) {
        self.config.kind.marks()
    }
}

impl Reader {
    /// Returns the size that an image is brought to.
    fn fitted(&self, bytes: &[u8]) -> Result<(u32, u32), ImageError> {
        self.config.fitted(|| pixels::size(bytes))
    }

    /// Returns how an image is cut into tiles, if it is.
    fn cut(&self, bytes: &[u8]) -> Result<Option<Cut>, ImageError> {
        let Some(tiles) = &self.config.tiles else {
            return Ok(None);
        };
        Ok(Some(tiles.cut(pixels::size(bytes)?)))
    }

    fn find(&self, digest: &[u8; 32]) -> Option<Arc<Image>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let idx = known.iter().position(|image| image.digest == *digest)?;
        let image = known.remove(idx);
        known.push(image.clone());
        Some(image)
    }

    fn keep(&self, image: Arc<Image>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.push(image);
        let mut bytes = 0;
        let mut fits = |image: &Arc<Image>| {
            bytes += size_of_val(&*image.embedding);
            bytes <= KNOWN_BYTES
        };
        let n_kept = known.iter().rev().take_while(|image| fits(image)).count();
        let n_dropped = known.len() - n_kept;
        known.drain(..n_dropped);
    }
}

/// Memory for embeddings of images that may come again.
const KNOWN_BYTES: usize = 64 << 20;

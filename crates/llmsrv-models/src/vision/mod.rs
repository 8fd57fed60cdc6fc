//! Encoders for images, read from a projector file (architecture `clip`) or from the file of the
//! decoder itself.
//!
//! Read in this order: `config` (what the file says), `tiles` (how an image is cut into several views),
//! `tiling` (how a view is cut into patches), `layout` (what stands in the prompt), `pixels` (bytes to views
//! and normalised patches, scaled by `resample`), `weights` and `forward` (the transformer and the projector,
//! over the operations of decoders).

mod config;
mod forward;
mod layout;
mod pixels;
mod resample;
mod tiles;
mod tiling;
mod weights;

use std::sync::Arc;

use llmsrv_engine::{Image, ImageError, LoadError, Part, Vision};
use llmsrv_gguf::GgufFile;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

pub(crate) use self::config::{Location, is_within};
use self::{
    config::Config,
    forward::Encoder,
    tiles::{Cut, Rule, Tiles},
};
use crate::{arch::ArchConfig, ops::Ops, source::Source};

/// Reads the encoder of a decoder; `architecture` is that of its own file.
///
/// # Errors
/// [`LoadError::Invalid`] if the file contradicts itself or does not fit the decoder;
/// [`LoadError::Unsupported`] if it is sound, but of a kind that is not known here.
pub(crate) fn load<O>(
    file: Arc<GgufFile>,
    (location, architecture): (Location, &str),
    arch: &ArchConfig,
    ops: O,
) -> Result<Arc<dyn Vision>, LoadError>
where
    O: Ops + 'static,
    O::Matrix: Send,
    O::Vector: Send,
{
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
    let newline = match config.rule() {
        Some(Rule::Kept { .. }) => source.vector(config::NEWLINE, arch.width)?,
        _ => Vec::new(),
    };
    Ok(Arc::new(Reader {
        encoder: Mutex::new(Encoder::new(source, config.clone(), arch.width, ops)?),
        config,
        whole: arch.sees_whole_images(),
        newline,
        known: Mutex::default(),
    }))
}

/// What the server asks for embeddings.
struct Reader<O: Ops> {
    config: Config,
    /// The decoder lets all rows of an image see each other in some layers.
    whole: bool,
    /// Ends lines of rows of tiles.
    newline: Vec<f32>,
    /// One image at a time, which bounds memory.
    encoder: Mutex<Encoder<O>>,
    /// Images of the last requests, the newest last: each turn of a conversation sends them again.
    known: Mutex<Vec<Arc<Image>>>,
}

impl<O> Vision for Reader<O>
where
    O: Ops,
    O::Matrix: Send,
    O::Vector: Send,
{
    fn encode(&self, bytes: &[u8]) -> Result<Arc<Image>, ImageError> {
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        if let Some(image) = self.find(&digest) {
            return Ok(image);
        }
        let mut encoder = self.encoder.lock();
        // Another request may have sent the same image.
        if let Some(image) = self.find(&digest) {
            return Ok(image);
        }
        let cut = self.cut(bytes)?;
        let views = match self.config.rule().zip(cut.as_ref()) {
            Some((rule, cut)) => pixels::views(bytes, rule, cut)?,
            None => vec![pixels::view(bytes, self.config.kind, self.fitted(bytes)?)?],
        };
        let started = std::time::Instant::now();
        let mut grid = None;
        let views = views
            .into_iter()
            .map(|view| {
                let tiling = self.config.tiling(view.dimensions());
                grid = tiling.grid;
                encoder.encode(&pixels::patches(&view, &self.config, &tiling), &tiling)
            })
            .collect::<Result<Vec<_>, _>>();
        // The next image may come in an hour.
        encoder.release_memory();
        drop(encoder);
        let views = views.map_err(|error| ImageError::Compute(error.to_string()))?;
        let embedding = match (self.config.rule(), &cut) {
            (Some(Rule::Kept { n_rows, .. }), Some(cut)) => {
                Tiles::arrange(cut, *n_rows, &views, &self.newline)
            }
            _ => views.concat(),
        };
        let parts = self.layout_of(bytes, cut.as_ref())?;
        tracing::debug!(encode_ms = started.elapsed().as_millis() as u64, "image");
        let image = Arc::new(Image {
            digest,
            rows: n_rows(&parts),
            embedding,
            whole: self.whole,
            grid,
        });
        self.keep(image.clone());
        Ok(image)
    }

    fn layout(&self, bytes: &[u8]) -> Result<Vec<Part>, ImageError> {
        self.layout_of(bytes, self.cut(bytes)?.as_ref())
    }
}

impl<O: Ops> Reader<O> {
    /// Returns the size that an image is brought to.
    fn fitted(&self, bytes: &[u8]) -> Result<(u32, u32), ImageError> {
        self.config.fitted(|| pixels::size(bytes))
    }

    /// Returns how an image is cut into views, if it is.
    fn cut(&self, bytes: &[u8]) -> Result<Option<Cut>, ImageError> {
        let Some(tiles) = &self.config.tiles else {
            return Ok(None);
        };
        let size = pixels::size(bytes)?;
        if matches!(tiles.rule, Rule::Slices { .. }) {
            config::check_stretch(size)?;
        }
        Ok(Some(tiles.cut(size)))
    }

    fn layout_of(&self, bytes: &[u8], cut: Option<&Cut>) -> Result<Vec<Part>, ImageError> {
        let config = &self.config;
        Ok(match config.rule().zip(cut) {
            Some((rule, cut)) => layout::of_views(rule, cut, config.n_rows_of_view()),
            None => layout::of_one(config.kind, config.n_rows(self.fitted(bytes)?)),
        })
    }

    fn find(&self, digest: &[u8; 32]) -> Option<Arc<Image>> {
        let mut known = self.known.lock();
        let idx = known.iter().position(|image| image.digest == *digest)?;
        let image = known.remove(idx);
        known.push(image.clone());
        Some(image)
    }

    fn keep(&self, image: Arc<Image>) {
        let mut known = self.known.lock();
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

fn n_rows(parts: &[Part]) -> usize {
    let rows = parts.iter().map(|part| match part {
        Part::Rows(n) => *n,
        Part::Text(_) => 0,
    });
    rows.sum()
}

/// Memory for embeddings of images that may come again.
const KNOWN_BYTES: usize = 64 << 20;

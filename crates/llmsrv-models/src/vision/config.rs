//! What a projector file says about its encoder.

use llmsrv_engine::LoadError;

use crate::source::{Source, invalid};

/// Where an encoder is stored, which decides the names of its keys and tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In a projector file.
    Mmproj,
    /// In the file of a decoder of this architecture.
    Gemma3,
}

/// The hyperparameters of an encoder.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Config {
    /// Where the weights are.
    pub location: Location,
    /// What comes after the transformer.
    pub kind: Kind,
    /// Pixels of a side of the square that every image is brought to.
    pub image_size: usize,
    /// Pixels of a side of a patch.
    pub patch_size: usize,
    /// Elements of a row.
    pub width: usize,
    /// Heads of each layer.
    pub n_heads: usize,
    /// Elements of the hidden layer of a feed-forward network.
    pub hidden: usize,
    /// Layers that are computed.
    pub n_layers: usize,
    /// Added to the variance in every norm.
    pub eps: f32,
    /// Between the two matrices of a feed-forward network.
    pub activation: Activation,
    /// Subtracted from red, green and blue in 0..1.
    pub mean: [f32; 3],
    /// Divides what is left of red, green and blue.
    pub deviation: [f32; 3],
    /// Patches of a side that become one row.
    pub merge: usize,
}

/// The kinds of projectors, by `clip.projector_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Two matrices: LLaVA 1.5 (<https://arxiv.org/abs/2310.03744>).
    Mlp,
    /// Averages of patches, a norm and a matrix: Gemma 3 (<https://arxiv.org/abs/2503.19786>).
    Gemma3,
}

/// A non-linear function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    /// The tanh approximation of GELU.
    Gelu,
    /// `x * sigmoid(1.702 x)`.
    QuickGelu,
    /// `x * sigmoid(x)`.
    Silu,
}

const KINDS: [(&str, Kind); 2] = [("mlp", Kind::Mlp), ("gemma3", Kind::Gemma3)];

impl Kind {
    /// Whether the decoder lets all rows of an image see each other.
    pub(super) fn is_whole(self) -> bool {
        self == Kind::Gemma3
    }

    /// Text around an image in the prompt, as in training.
    pub(super) fn marks(self) -> (&'static str, &'static str) {
        match self {
            Kind::Mlp => ("", ""),
            Kind::Gemma3 => ("\n\n<start_of_image>", "<end_of_image>\n\n"),
        }
    }
}

impl Config {
    /// Reads the metadata. Every length is bounded here, so that sizes made of them do not overflow.
    pub(super) fn read(source: &Source, location: Location) -> Result<Config, LoadError> {
        let kind = match location {
            Location::Mmproj => kind(source)?,
            Location::Gemma3 => Kind::Gemma3,
        };
        let bounded = |key: &str, most: usize| {
            let count = source.count(key)?;
            if count > most {
                let key = source.full(key);
                return Err(invalid(format!("{key} is {count}, which is too large")));
            }
            Ok(count)
        };
        let image_size = bounded("vision.image_size", LARGEST_IMAGE)?;
        let patch_size = bounded("vision.patch_size", image_size)?;
        let width = bounded("vision.embedding_length", LARGEST_WIDTH)?;
        let n_heads = bounded("vision.attention.head_count", width)?;
        if !width.is_multiple_of(n_heads) {
            return Err(invalid(format!("{width} elements for {n_heads} heads")));
        }
        let n_stored = bounded("vision.block_count", source.n_tensors())?;
        // The list names the layers that the projector reads, counted from the input, which is 0.
        let n_layers = match source.integers("vision.feature_layer").as_deref() {
            None => n_stored,
            Some([layer]) => usize::try_from(*layer)
                .ok()
                .filter(|layer| (1..=n_stored).contains(layer))
                .ok_or_else(|| invalid(format!("clip.vision.feature_layer is {layer}")))?,
            Some(_) => return Err(unsupported("a projector that reads several layers")),
        };
        let side = image_size / patch_size;
        let merge = match (kind, location) {
            (Kind::Mlp, _) => 1,
            (Kind::Gemma3, Location::Mmproj) => source
                .optional_count("vision.projector.scale_factor")?
                .unwrap_or(4),
            (Kind::Gemma3, Location::Gemma3) => {
                let n_rows = source.optional_count("mm.tokens_per_image")?;
                side / n_rows.unwrap_or(256).isqrt()
            }
        };
        if merge == 0 || merge > side {
            return Err(invalid(format!("{merge} of {side} patches become one row")));
        }
        if source.has_key("vision.image_grid_pinpoints") {
            tracing::warn!("images are read in one view, not in tiles");
        }
        let activation = match (source.flag("use_gelu"), source.flag("use_silu")) {
            _ if location == Location::Gemma3 => Activation::Gelu,
            (Some(true), _) => Activation::Gelu,
            (_, Some(true)) => Activation::Silu,
            _ => Activation::QuickGelu,
        };
        let [mean, deviation] = match location {
            Location::Mmproj => [
                colours(source, "vision.image_mean", f32::MIN)?,
                colours(source, "vision.image_std", f32::MIN_POSITIVE)?,
            ],
            Location::Gemma3 => [[0.5; 3]; 2],
        };
        Ok(Config {
            location,
            kind,
            image_size,
            patch_size,
            width,
            n_heads,
            hidden: bounded("vision.feed_forward_length", LARGEST_WIDTH)?,
            n_layers,
            eps: source
                .positive("vision.attention.layer_norm_epsilon")?
                .unwrap_or(1e-5),
            activation,
            mean,
            deviation,
            merge,
        })
    }

    /// Patches of a side.
    pub(super) fn side(&self) -> usize {
        self.image_size / self.patch_size
    }

    /// Rows that an image becomes.
    pub(super) fn n_rows(&self) -> usize {
        (self.side() / self.merge).pow(2)
    }
}

fn kind(source: &Source) -> Result<Kind, LoadError> {
    let name = source
        .text("projector_type")
        .filter(|name| !name.is_empty())
        .or_else(|| source.text("vision.projector_type"))
        .unwrap_or("mlp");
    let found = KINDS.iter().find(|(known, _)| *known == name);
    found.map(|(_, kind)| *kind).ok_or_else(|| {
        let known = KINDS.map(|(known, _)| known).join(", ");
        unsupported(&format!("projector {name:?} (known: {known})"))
    })
}

/// Three numbers of at least `least`.
fn colours(source: &Source, key: &str, least: f32) -> Result<[f32; 3], LoadError> {
    let numbers = source.numbers(key).unwrap_or_default();
    let numbers: Option<[f32; 3]> = numbers.get(..3).and_then(|list| list.try_into().ok());
    numbers
        .filter(|numbers| numbers.iter().all(|x| x.is_finite() && *x >= least))
        .ok_or_else(|| invalid(format!("{} is not three sound numbers", source.full(key))))
}

fn unsupported(message: &str) -> LoadError {
    LoadError::Unsupported(message.into())
}

/// Far above every published encoder.
const LARGEST_IMAGE: usize = 4096;
const LARGEST_WIDTH: usize = 1 << 16;

//! What a projector file says about its encoder.

use llmsrv_engine::{ImageError, LoadError};

use super::{
    tiles::{Rule, TILES_OF_LLAMA4, Tiles},
    tiling::Tiling,
};
use crate::{
    arch::{Activation, NormKind},
    source::{Result, Source, invalid},
};

/// Where an encoder is stored, which decides the names of its keys and tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In a projector file.
    Mmproj,
    /// In the file of its decoder.
    Decoder,
}

/// The hyperparameters of an encoder.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Config {
    /// Where the weights are.
    pub location: Location,
    /// What comes after the transformer.
    pub kind: Kind,
    /// What size images are brought to.
    pub sizing: Sizing,
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
    /// What the norms do.
    pub norm: NormKind,
    /// Added to the variance, or the mean square, in every norm.
    pub eps: f32,
    /// Layers in which patches see those of their window only.
    pub windows: Option<Windows>,
    /// Layers whose output becomes further elements of the rows, in this order.
    pub deepstack: Vec<usize>,
    /// Between the two matrices of a feed-forward network.
    pub activation: Activation,
    /// Subtracted from red, green and blue in 0..1.
    pub mean: [f32; 3],
    /// Divides what is left of red, green and blue.
    pub deviation: [f32; 3],
    /// Patches of a side that become one row.
    pub merge: usize,
    /// How heads turn by the place of their patch, if they do.
    pub turn: Option<Turn>,
    /// Factor of the scores before the softmax.
    pub scale: f64,
    /// The values of each head are divided by their root mean square.
    pub value_norm: bool,
    /// Whether a row of its own ends each line of rows but the last.
    pub has_breaks: bool,
    /// How images are seen in several views.
    pub tiles: Option<Tiles>,
    /// Rows of a view, whatever its size; 0 where that decides.
    pub n_queries: usize,
}

/// The kinds of projectors, by `clip.projector_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Two matrices: LLaVA 1.5 (<https://arxiv.org/abs/2310.03744>).
    Mlp,
    /// Averages of patches, a norm and a matrix: Gemma 3 (<https://arxiv.org/abs/2503.19786>).
    Gemma3,
    /// Squares of patches side by side through two matrices: Qwen2-VL (<https://arxiv.org/abs/2409.12191>).
    Qwen2,
    /// The same behind layers with windows: Qwen2.5-VL (<https://arxiv.org/abs/2502.13923>).
    Qwen25,
    /// The same, and as many again of what layers in between give: Qwen3-VL
    /// (<https://arxiv.org/abs/2511.21631>).
    Qwen3,
    /// Averages of patches, a norm without weights and a matrix: Gemma 4
    /// (<https://ai.google.dev/gemma/docs/core/model_card_4>).
    Gemma4,
    /// Squares of patches through a matrix, then two more, and breaks between lines: Pixtral
    /// (<https://arxiv.org/abs/2410.07073>), Mistral Small 3.1.
    Pixtral,
    /// Squares of patches through a matrix, a norm and a gated network: GLM-OCR
    /// (<https://arxiv.org/abs/2603.10910>).
    Glm,
    /// A number of queries that look at the patches: MiniCPM-V 2.5 to 4.5, MiniCPM-o
    /// (<https://arxiv.org/abs/2408.01800>).
    MiniCpm,
    /// Squares of patches side by side through a matrix: Idefics 3 (<https://arxiv.org/abs/2408.12637>),
    /// SmolVLM 1 and 2.
    Idefics3,
    /// The same through a norm and two matrices: InternVL 2.5, 3 and 3.5
    /// (<https://arxiv.org/abs/2404.16821>).
    InternVl,
    /// The same through three matrices: Llama 4
    /// (<https://ai.meta.com/blog/llama-4-multimodal-intelligence/>).
    Llama4,
    /// Patches between norms, without layers: Gemma 4 12B, whose decoder does the rest
    /// (<https://ai.google.dev/gemma/docs/core/model_card_4>).
    Gemma4Unified,
}

/// What size an image is brought to before it is cut into patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizing {
    /// A square with sides of so many pixels; what is left of it is filled.
    Square(usize),
    /// About its own size, stretched to whole rows.
    Own {
        /// Images with a side of less than a row are first enlarged to one.
        from_row: bool,
        /// Smaller images are enlarged to as many pixels.
        least_pixels: usize,
        /// Larger images are made smaller.
        most_pixels: usize,
    },
    /// Its own size, filled up to whole rows.
    Longest {
        /// Images with longer sides are made smaller.
        side: usize,
        /// And so are those of more pixels.
        most_pixels: usize,
    },
    /// As large as a number of rows allows, smaller images enlarged, stretched to whole rows.
    Filled {
        /// Rows of the result.
        most_rows: usize,
    },
}

/// Which elements of a head turn together, and how fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    /// The slowest pair turns about so many times slower than the first.
    pub base: f64,
    /// Where the elements of a pair lie.
    pub pairs: Pairs,
    /// The first half of the pairs turns by the column, not by the line.
    pub columns_first: bool,
    /// The speeds of the second half of the pairs lie between those of the first; else they are the same.
    pub between: bool,
    /// The first line and the first column have this number.
    pub from: usize,
}

/// Where the two elements lie that turn together. Half of the pairs turn by the line of their patch and half
/// by its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pairs {
    /// Half a head apart.
    HalfApart,
    /// Beside each other.
    Neighbours,
    /// A quarter of a head apart, in halves of the head.
    QuarterApart,
}

/// Windows of patches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    /// Rows of the result on a side of a window.
    pub side: usize,
    /// Whether each layer has them; in others every patch sees all.
    pub layers: Vec<bool>,
}

const KINDS: [(&str, Kind); 13] = [
    ("mlp", Kind::Mlp),
    ("gemma3", Kind::Gemma3),
    ("qwen2vl_merger", Kind::Qwen2),
    ("qwen2.5vl_merger", Kind::Qwen25),
    ("qwen3vl_merger", Kind::Qwen3),
    ("gemma4v", Kind::Gemma4),
    ("pixtral", Kind::Pixtral),
    ("glm4v", Kind::Glm),
    ("resampler", Kind::MiniCpm),
    ("idefics3", Kind::Idefics3),
    ("internvl", Kind::InternVl),
    ("llama4", Kind::Llama4),
    ("gemma4uv", Kind::Gemma4Unified),
];

/// Architectures of decoders whose files may hold an encoder that is known, and a tensor of that.
const WITHIN: [(&str, Kind, &str); 9] = [
    ("gemma4", Kind::Gemma4, "v.blk.0.ln1.weight"),
    ("gemma3", Kind::Gemma3, "v.patch_embedding.weight"),
    ("qwen2vl", Kind::Qwen25, "v.patch_embd.weight"),
    ("qwen3vl", Kind::Qwen3, "v.patch_embed.weight"),
    ("qwen3vlmoe", Kind::Qwen3, "v.patch_embed.weight"),
    ("qwen35", Kind::Qwen3, "v.patch_embed.weight"),
    ("qwen35moe", Kind::Qwen3, "v.patch_embed.weight"),
    ("glm4", Kind::Glm, "v.patch_embd.weight"),
    ("mistral3", Kind::Pixtral, "v.patch_conv.weight"),
];

/// Returns the kind of the encoder in the file of a decoder, if that is known.
fn kind_within(source: &Source) -> Option<Kind> {
    let architecture = source.architecture();
    let mut known = WITHIN.iter();
    let (_, kind, _) =
        known.find(|(name, _, tensor)| *name == architecture && source.has(tensor))?;
    Some(*kind)
}

/// Returns whether the file of a decoder holds an encoder that is known.
pub(crate) fn is_within(source: &Source) -> bool {
    kind_within(source).is_some()
}

impl Kind {
    /// Whether the decoder rotates rows by their place in the image.
    pub(super) fn has_grid(self) -> bool {
        matches!(self, Kind::Qwen2 | Kind::Qwen25 | Kind::Qwen3 | Kind::Glm)
    }

    /// Whether all patches of a square side of an image become rows, `merge` times `merge` of them one.
    fn merges_squares(self) -> bool {
        matches!(self, Kind::Idefics3 | Kind::InternVl | Kind::Llama4)
    }

    /// Whether norms are those by the root mean square, and feed-forward networks have a gate: the encoders that came
    /// after CLIP and SigLIP.
    pub(super) fn is_recent(self) -> bool {
        matches!(
            self,
            Kind::Qwen25 | Kind::Gemma4 | Kind::Pixtral | Kind::Glm
        )
    }

    /// How heads turn by the place of their patch. The converter of projector files brings the pairs of
    /// Pixtral together, that of the library's files does not.
    fn turn(self, location: Location) -> Option<Turn> {
        let by_line = Turn {
            base: 10_000.0,
            pairs: Pairs::HalfApart,
            columns_first: false,
            between: false,
            from: 0,
        };
        match self {
            Kind::Gemma4 => Some(Turn {
                base: 100.0,
                pairs: Pairs::QuarterApart,
                columns_first: true,
                ..by_line
            }),
            Kind::Llama4 => Some(Turn {
                pairs: Pairs::Neighbours,
                columns_first: true,
                from: 1,
                ..by_line
            }),
            Kind::Pixtral => Some(Turn {
                pairs: match location {
                    Location::Mmproj => Pairs::Neighbours,
                    Location::Decoder => Pairs::HalfApart,
                },
                between: true,
                ..by_line
            }),
            _ => self.has_grid().then_some(by_line),
        }
    }
}

impl Config {
    /// Reads the metadata. Every length is bounded here, so that sizes made of them do not overflow.
    pub(super) fn read(source: &Source, location: Location) -> Result<Config> {
        let kind = match location {
            Location::Mmproj => kind(source)?,
            Location::Decoder => {
                kind_within(source).ok_or_else(|| unsupported("an encoder that is not known"))?
            }
        };
        let bounded = |key: &str, most: usize| {
            let count = source.count(key)?;
            if count > most {
                let key = source.full(key);
                return Err(invalid(format!("{key} is {count}, which is too large")));
            }
            Ok(count)
        };
        let is_unified = kind == Kind::Gemma4Unified;
        let image_size = if kind.has_grid() || kind == Kind::Gemma4 || is_unified {
            LARGEST_PATCH
        } else {
            bounded("vision.image_size", LARGEST_IMAGE)?
        };
        let mut patch_size = bounded("vision.patch_size", image_size)?;
        let width = bounded("vision.embedding_length", LARGEST_WIDTH)?;
        let n_heads = if is_unified {
            1
        } else {
            bounded("vision.attention.head_count", width)?
        };
        if !width.is_multiple_of(n_heads) {
            return Err(invalid(format!("{width} elements for {n_heads} heads")));
        }
        // A quarter of each head turns by the line of its patch and a quarter by the column.
        let turn = kind.turn(location);
        if turn.is_some() && !(width / n_heads).is_multiple_of(4) {
            let head_dim = width / n_heads;
            return Err(invalid(format!("heads of {head_dim} elements are rotated")));
        }
        let n_stored = if is_unified {
            0
        } else {
            bounded("vision.block_count", source.n_tensors())?
        };
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
        let (key, without) = match (kind, location) {
            (Kind::Pixtral, Location::Decoder) => ("spatial_merge_size", 2),
            (Kind::Pixtral, Location::Mmproj) => ("vision.spatial_merge_size", 1),
            _ if kind.has_grid() => ("vision.spatial_merge_size", 2),
            (Kind::Gemma3, _) => (SCALE_FACTOR, 4),
            (Kind::Gemma4 | Kind::Gemma4Unified, _) => (SCALE_FACTOR, 3),
            (Kind::Idefics3, _) => (SCALE_FACTOR, 1),
            _ => (SCALE_FACTOR, 2),
        };
        let mut merge = match (kind, location) {
            (Kind::Mlp | Kind::MiniCpm, _) => 1,
            (Kind::Gemma3, Location::Decoder) => {
                let n_rows = source.optional_count("mm.tokens_per_image")?;
                side / n_rows.unwrap_or(256).isqrt()
            }
            _ => source.optional_count(key)?.unwrap_or(without),
        };
        let most = match turn {
            Some(_) => MOST_MERGED,
            None => side,
        };
        if kind.merges_squares() && !side.is_multiple_of(merge) {
            return Err(invalid(format!(
                "{merge} of {side} patches on a side become one row"
            )));
        }
        if !(1..=most).contains(&merge) {
            return Err(invalid(format!("{merge} of {most} patches become one row")));
        }
        if is_unified {
            // Its patches are as large as what others make a row of.
            (patch_size, merge) = (patch_size * merge, 1);
        }
        let sizing = match kind {
            Kind::Mlp
            | Kind::Gemma3
            | Kind::MiniCpm
            | Kind::Idefics3
            | Kind::InternVl
            | Kind::Llama4 => Sizing::Square(image_size),
            Kind::Qwen2 | Kind::Qwen25 | Kind::Qwen3 | Kind::Glm => {
                let (least_pixels, most_pixels) = own_size(source, kind, patch_size * merge)?;
                Sizing::Own {
                    from_row: kind == Kind::Glm,
                    least_pixels,
                    most_pixels,
                }
            }
            Kind::Gemma4 | Kind::Gemma4Unified => filled(source, patch_size * merge)?,
            Kind::Pixtral => Sizing::Longest {
                side: match source.optional_count("vision.longest_edge")? {
                    Some(side) => side.min(image_size),
                    None => image_size,
                },
                most_pixels: own_size(source, kind, patch_size * merge)?.1,
            },
        };
        let windows = match kind {
            Kind::Qwen25 => Some(windows(source, location, n_layers, patch_size * merge)?),
            _ => None,
        };
        let deepstack = match kind {
            Kind::Qwen3 => deepstack(source, location, n_layers)?,
            _ => Vec::new(),
        };
        let merged = source.text("vision.mm_patch_merge_type");
        let has_lines = source.has(NEWLINE) && merged.is_none_or(|how| how == "spatial_unpad");
        let rule = match kind {
            Kind::Mlp if has_lines => Rule::kept(source, image_size, side)?,
            Kind::MiniCpm => Some(slices(source)?),
            Kind::Idefics3 => Some(Rule::longest(source, image_size)?),
            Kind::InternVl => Some(Rule::shape(source)?),
            Kind::Llama4 => Some(Rule::Canvas {
                most: TILES_OF_LLAMA4,
            }),
            _ => None,
        };
        let tiles = rule.map(|rule| Tiles {
            rule,
            side: image_size,
            patch_size,
        });
        if let Some(tiles) = &tiles {
            if side > MOST_PATCHES_BESIDE {
                return Err(invalid(format!("{side} patches on a side of a tile")));
            }
            let n_tiles = tiles.most();
            if n_tiles * image_size.pow(2) > MOST_PIXELS {
                return Err(invalid(format!("{n_tiles} tiles of {image_size} pixels")));
            }
        }
        if tiles.is_none() && source.has_key("vision.image_grid_pinpoints") {
            tracing::warn!("images are read in one view, not in tiles");
        }
        let activation = match (source.flag("use_gelu"), source.flag("use_silu")) {
            _ if matches!(kind, Kind::Qwen25 | Kind::Glm) => Activation::Silu,
            // The projector files of Gemma 4 say nothing; its configuration does.
            _ if matches!(kind, Kind::Qwen3 | Kind::Gemma4) => Activation::Gelu,
            (Some(true), _) if matches!(kind, Kind::Pixtral | Kind::InternVl | Kind::Llama4) => {
                Activation::ExactGelu
            }
            _ if kind == Kind::Pixtral => Activation::Silu,
            _ if location == Location::Decoder => Activation::Gelu,
            (Some(true), _) => Activation::Gelu,
            (_, Some(true)) => Activation::Silu,
            _ => Activation::QuickGelu,
        };
        let [mut mean, mut deviation] = match location {
            // Of those within decoders only the files of these kinds have them.
            Location::Decoder
                if matches!(kind, Kind::Qwen3 | Kind::Glm)
                    && source.has_key("vision.image_mean") =>
            {
                [
                    colours(source, "vision.image_mean", f32::MIN)?,
                    colours(source, "vision.image_std", f32::MIN_POSITIVE)?,
                ]
            }
            Location::Mmproj => [
                colours(source, "vision.image_mean", f32::MIN)?,
                colours(source, "vision.image_std", f32::MIN_POSITIVE)?,
            ],
            Location::Decoder if matches!(kind, Kind::Qwen25 | Kind::Glm | Kind::Pixtral) => {
                CLIP_COLOURS
            }
            Location::Decoder if kind == Kind::Gemma4 => [[0.0; 3], [1.0; 3]],
            Location::Decoder => [[0.5; 3]; 2],
        };
        if kind == Kind::Gemma4 {
            // The encoder itself takes `2 x - 1` of what the file makes of the colours.
            for (mean, deviation) in mean.iter_mut().zip(&mut deviation) {
                *deviation /= 2.0;
                *mean += *deviation;
            }
        }
        let up = match (kind, location) {
            (Kind::Qwen3, Location::Decoder) => "v.blk.0.mlp.linear_fc1.weight",
            _ => "v.blk.0.ffn_up.weight",
        };
        // Files of decoders may leave this out.
        let hidden = match source.n_rows(up) {
            Some(hidden) if !source.has_key("vision.feed_forward_length") => hidden,
            _ if is_unified => 0,
            _ => source.count("vision.feed_forward_length")?,
        };
        if hidden > LARGEST_WIDTH {
            return Err(invalid(format!("hidden layers of {hidden} elements")));
        }
        Ok(Config {
            location,
            kind,
            sizing,
            patch_size,
            width,
            n_heads,
            hidden,
            n_layers,
            norm: match kind {
                // The encoder of the largest InternVL.
                Kind::InternVl if !source.has("v.blk.0.ln1.bias") => NormKind::Rms,
                _ if kind.is_recent() => NormKind::Rms,
                _ => NormKind::Layer,
            },
            eps: source
                .first_positive(&[
                    "vision.attention.layer_norm_epsilon",
                    "vision.attention.layer_norm_rms_epsilon",
                ])?
                .unwrap_or(match kind {
                    Kind::Mlp | Kind::Gemma3 | Kind::Pixtral | Kind::Glm | Kind::Llama4 => 1e-5,
                    _ => 1e-6,
                }),
            windows,
            deepstack,
            activation,
            mean,
            deviation,
            merge,
            turn,
            scale: match kind {
                // Its queries and keys are normed.
                Kind::Gemma4 => 1.0,
                _ => 1.0 / ((width / n_heads) as f64).sqrt(),
            },
            value_norm: kind == Kind::Gemma4,
            has_breaks: kind == Kind::Pixtral
                && match location {
                    Location::Mmproj => source.has(BREAK),
                    Location::Decoder => source.token(BREAK_TOKEN).is_some(),
                },
            tiles,
            n_queries: match kind {
                Kind::MiniCpm => queries(source)?,
                _ => 0,
            },
        })
    }

    /// Returns how images are cut into views, if they are.
    pub(super) fn rule(&self) -> Option<&Rule> {
        self.tiles.as_ref().map(|tiles| &tiles.rule)
    }

    /// Returns how many rows a view becomes.
    pub(super) fn n_rows_of_view(&self) -> usize {
        match (self.n_queries, self.sizing) {
            (0, Sizing::Square(side)) => self.n_rows((side as u32, side as u32)),
            (n_queries, _) => n_queries,
        }
    }

    /// Returns the size that an image of a `size` is brought to, which is asked for only where it matters.
    ///
    /// # Errors
    /// Those of `size`; [`ImageError::Invalid`] if the image is a line.
    pub(super) fn fitted(
        &self,
        size: impl FnOnce() -> Result<(u32, u32), ImageError>,
    ) -> Result<(u32, u32), ImageError> {
        if let Sizing::Square(side) = self.sizing {
            return Ok((side as u32, side as u32));
        }
        let size = size()?;
        check_stretch(size)?;
        let mut sides = [size.0, size.1].map(f64::from);
        let [shorter, longer] = [sides[0].min(sides[1]), sides[0].max(sides[1])];
        let step = (self.patch_size * self.merge) as f64;
        let (mut fitted, least, most) = match self.sizing {
            Sizing::Filled { most_rows } => {
                let factor = (most_rows as f64 * step * step / (sides[0] * sides[1])).sqrt();
                let rows = sides.map(|side| (factor * side / step).floor());
                let along = (longer / shorter).floor().min(most_rows as f64);
                let rows = match rows {
                    [_, 0.0] => [along, 1.0],
                    [0.0, _] => [1.0, along],
                    rows => rows,
                };
                (rows.map(|rows| rows * step), 0, usize::MAX)
            }
            Sizing::Square(side) => ([side as f64; 2], 0, usize::MAX),
            Sizing::Own {
                from_row,
                least_pixels,
                most_pixels,
            } => {
                if from_row && shorter < step {
                    sides = sides.map(|side| (side * (step / shorter)).floor());
                }
                let fitted = sides.map(|side| (side / step).round_ties_even() * step);
                (fitted, least_pixels, most_pixels)
            }
            Sizing::Longest { side, most_pixels } => {
                let shrink = (longer / side as f64).max(1.0);
                let within = sides.map(|side| (side / shrink).floor());
                let fitted = within.map(|side| (side / step).ceil().max(1.0) * step);
                (fitted, 0, most_pixels)
            }
        };
        let (least, most) = (least as f64, most as f64);
        let area = sides[0] * sides[1];
        if fitted[0] * fitted[1] > most {
            let shrink = (area / most).sqrt();
            fitted = sides.map(|side| ((side / shrink / step).floor() * step).max(step));
        } else if fitted[0] * fitted[1] < least {
            let grow = (least / area).sqrt();
            fitted = sides.map(|side| (side * grow / step).ceil() * step);
        }
        Ok((fitted[0] as u32, fitted[1] as u32))
    }

    /// Returns how an image of a size that [`Config::fitted`] gave is cut into patches.
    pub(super) fn tiling(&self, (width, height): (u32, u32)) -> Tiling {
        let [width, height] = [width, height].map(|side| side as usize / self.patch_size);
        if self.turn.is_none() && !self.kind.merges_squares() {
            return Tiling::in_lines(width, height);
        }
        let (width, height) = (width / self.merge, height / self.merge);
        let side = self.windows.as_ref().map(|windows| windows.side);
        let mut tiling = Tiling::in_windows(width, height, self.merge, side);
        if !self.kind.has_grid() {
            tiling.grid = None;
        }
        tiling
    }

    /// Returns how many rows an image of that size becomes.
    pub(super) fn n_rows(&self, (width, height): (u32, u32)) -> usize {
        let side = self.patch_size * self.merge;
        let (width, height) = (width as usize / side, height as usize / side);
        let n_breaks = if self.has_breaks {
            height.saturating_sub(1)
        } else {
            0
        };
        width * height + n_breaks
    }
}

/// Refuses what is a line more than an image.
pub(super) fn check_stretch((width, height): (u32, u32)) -> Result<(), ImageError> {
    let [shorter, longer] = [width.min(height), width.max(height)].map(f64::from);
    if longer > MOST_STRETCHED * shorter {
        return Err(ImageError::Invalid(format!(
            "the image has {width} x {height} pixels: one side may be {MOST_STRETCHED} times the other"
        )));
    }
    Ok(())
}

/// Reads how MiniCPM-V cuts images, which its version says.
fn slices(source: &Source) -> Result<Rule> {
    match source.optional_count("minicpmv_version")?.unwrap_or(2) {
        2 => Ok(Rule::Slices { nested: true }),
        3..=6 | 100_045 => Ok(Rule::Slices { nested: false }),
        version => Err(unsupported(&format!("MiniCPM-V of version {version}"))),
    }
}

/// Returns how many queries look at a view.
fn queries(source: &Source) -> Result<usize> {
    let n_queries = source.n_rows(QUERIES).unwrap_or(0);
    if !(1..=MOST_QUERIES).contains(&n_queries) {
        return Err(invalid(format!("tensor {QUERIES} has {n_queries} rows")));
    }
    Ok(n_queries)
}

/// Reads how many pixels images may have, at least and at most, in rows of `row` times `row` pixels.
fn own_size(source: &Source, kind: Kind, row: usize) -> Result<(usize, usize)> {
    let limit = |keys: [&str; 2]| -> Result<Option<usize>> {
        for key in keys {
            if let Some(pixels) = source.optional_count(key)? {
                return Ok(Some(pixels));
            }
        }
        Ok(None)
    };
    let least = limit(["vision.image_min_pixels", "vision.shortest_edge"])?;
    let most = match kind {
        // The longest edge is one of the image, not a number of pixels.
        Kind::Pixtral => source.optional_count("vision.image_max_pixels")?,
        _ => limit(["vision.image_max_pixels", "vision.longest_edge"])?,
    };
    // These count both frames of a still image.
    let [both_least, both_most] = match kind {
        Kind::Glm => [
            source.optional_count("vision.min_pixels")?,
            source.optional_count("vision.max_pixels")?,
        ],
        _ => [None, None],
    };
    let least = least.or(both_least.map(|pixels| pixels / 2));
    let most = most.or(both_most.map(|pixels| pixels / 2));
    let least_rows = match kind {
        Kind::Glm => 2 * LEAST_ROWS,
        _ => LEAST_ROWS,
    };
    let largest = (MOST_ROWS * row * row).min(MOST_PIXELS);
    let most_pixels = most.unwrap_or(largest).min(largest);
    let least_pixels = least.unwrap_or(least_rows * row * row).min(most_pixels);
    Ok((least_pixels, most_pixels))
}

/// Reads how many rows an image has, each of `row` times `row` pixels.
fn filled(source: &Source, row: usize) -> Result<Sizing> {
    let most = source.optional_count("vision.image_max_pixels")?;
    let most_rows = most.map_or(ROWS_OF_GEMMA4, |pixels| pixels / (row * row));
    Ok(Sizing::Filled {
        most_rows: most_rows.clamp(1, MOST_ROWS),
    })
}

/// Reads which layers have windows, and how large they are; a row of the result has `row` pixels on a
/// side.
fn windows(source: &Source, location: Location, n_layers: usize, row: usize) -> Result<Windows> {
    let pixels = source.optional_count("vision.window_size")?.unwrap_or(112);
    if pixels < row {
        let key = source.full("vision.window_size");
        return Err(invalid(format!("{key} is {pixels}, less than a row")));
    }
    let layers = match location {
        Location::Mmproj => {
            let period = source.count("vision.n_wa_pattern")?;
            let has_windows = |idx: usize| !(idx + 1).is_multiple_of(period);
            (0..n_layers).map(has_windows).collect()
        }
        Location::Decoder => {
            let listed = source.integers("vision.fullatt_block_indexes");
            let whole = listed.unwrap_or_else(|| vec![7, 15, 23, 31]);
            let has_windows = |idx: usize| !whole.contains(&(idx as i64));
            (0..n_layers).map(has_windows).collect()
        }
    };
    Ok(Windows {
        side: pixels / row,
        layers,
    })
}

/// Reads which layers give further elements of the rows.
fn deepstack(source: &Source, location: Location, n_layers: usize) -> Result<Vec<usize>> {
    let key = match location {
        Location::Mmproj => "vision.is_deepstack_layers",
        Location::Decoder => "vision.deepstack_visual_indexes",
    };
    let layers: Vec<i64> = match location {
        Location::Mmproj => {
            let flags = source.flags(key).unwrap_or_default();
            let listed = (0..).zip(flags).filter(|(_, is_one)| *is_one);
            listed.map(|(layer, _)| layer).collect()
        }
        Location::Decoder => source.integers(key).unwrap_or_default(),
    };
    let known = |layer: &i64| usize::try_from(*layer).ok().filter(|idx| *idx < n_layers);
    let known: Option<Vec<usize>> = layers.iter().map(known).collect();
    let known = known.filter(|list| list.is_sorted_by(|a, b| a < b));
    known.ok_or_else(|| {
        let key = source.full(key);
        invalid(format!(
            "{key} names layers that are not there, or not in order"
        ))
    })
}

fn kind(source: &Source) -> Result<Kind> {
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
fn colours(source: &Source, key: &str, least: f32) -> Result<[f32; 3]> {
    let numbers = source.numbers(key).unwrap_or_default();
    let numbers: Option<[f32; 3]> = numbers.get(..3).and_then(|list| list.try_into().ok());
    numbers
        .filter(|numbers| numbers.iter().all(|x| x.is_finite() && *x >= least))
        .ok_or_else(|| invalid(format!("{} is not three sound numbers", source.full(key))))
}

fn unsupported(message: &str) -> LoadError {
    LoadError::Unsupported(message.into())
}

/// Tensor of the row that ends a line of rows of tiles.
pub(super) const NEWLINE: &str = "model.image_newline";
/// Tensor of the queries that look at patches.
pub(super) const QUERIES: &str = "resampler.query";
/// Tensor of the row between lines.
pub(super) const BREAK: &str = "v.token_embd.img_break";
/// The token whose embedding it is.
pub(super) const BREAK_TOKEN: &str = "[IMG_BREAK]";

/// The key that says how many patches of a side become one row, in most projectors.
const SCALE_FACTOR: &str = "vision.projector.scale_factor";

/// Far above every published encoder.
const LARGEST_IMAGE: usize = 4096;
const LARGEST_PATCH: usize = 64;
const MOST_MERGED: usize = 8;
const MOST_PATCHES_BESIDE: usize = 64;
const MOST_QUERIES: usize = 1024;
const LARGEST_WIDTH: usize = 1 << 16;

/// Rows that an image of its own size has, unless the file says otherwise. The models could read more,
/// but 1024 rows, which are 4096 patches, are seconds of work for a CPU, and leave room in the context.
const LEAST_ROWS: usize = 4;
const MOST_ROWS: usize = 1024;
const MOST_PIXELS: usize = 16 << 20;
/// What the model reads unless it is told otherwise, of 70, 140, 280, 560 and 1,120.
const ROWS_OF_GEMMA4: usize = 280;
/// The models were not trained for longer images.
const MOST_STRETCHED: f64 = 200.0;
/// Mean and deviation of the images that CLIP was trained on.
const CLIP_COLOURS: [[f32; 3]; 2] = [
    [0.481_454_66, 0.457_827_5, 0.408_210_73],
    [0.268_629_54, 0.261_302_6, 0.275_777_1],
];

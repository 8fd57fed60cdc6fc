//! Tiny encoders for images with random weights, one for each kind of projector, and tiny images.

use llmsrv_gguf::{Metadata, TensorType};

use crate::tiny::{CASES, Case, File, FileTensor, Random, encode};

/// A tiny encoder and the tiny decoder it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Eyes {
    /// Name of the test and of the files.
    pub(crate) name: &'static str,
    /// Name of the decoder.
    pub(crate) decoder: &'static str,
    /// `clip.projector_type`.
    pub(crate) projector: &'static str,
    /// A row for the class goes before the patches, and a norm before the layers.
    pub(crate) class: bool,
    /// Names of the feed-forward matrices as the first converters wrote them.
    pub(crate) exchanged: bool,
    /// Type of the matrices.
    pub(crate) dtype: TensorType,
    /// How large it is.
    pub(crate) dims: Dims,
}

pub(crate) const EYES: &[Eyes] = &[
    Eyes {
        name: "mlp_plain",
        decoder: "llama",
        projector: "mlp",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "mlp_class",
        decoder: "llama",
        projector: "mlp",
        class: true,
        exchanged: true,
        dtype: TensorType::F16,
        dims: TINY,
    },
    Eyes {
        name: "gemma3_eyes",
        decoder: "gemma3",
        projector: "gemma3",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "qwen2vl_eyes",
        decoder: "qwen2vl",
        projector: "qwen2vl_merger",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "qwen25vl_eyes",
        decoder: "qwen2vl",
        projector: "qwen2.5vl_merger",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "qwen3vl_eyes",
        decoder: "qwen3vl",
        projector: "qwen3vl_merger",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "qwen35_eyes",
        decoder: "qwen35",
        projector: "qwen3vl_merger",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "pixtral_eyes",
        decoder: "llama",
        projector: "pixtral",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "gemma4_eyes",
        decoder: "gemma4",
        projector: "gemma4v",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "mistral3_eyes",
        decoder: "mistral3",
        projector: "pixtral",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "llava16_eyes",
        decoder: "llama",
        projector: "mlp",
        class: true,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "glmocr_eyes",
        decoder: "glm4_sections",
        projector: "glm4v",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "gemma4_whole_eyes",
        decoder: "gemma4_experts",
        projector: "gemma4v",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "minicpm_eyes",
        decoder: "qwen2",
        projector: "resampler",
        class: false,
        exchanged: true,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "idefics3_eyes",
        decoder: "llama",
        projector: "idefics3",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "internvl_eyes",
        decoder: "qwen2",
        projector: "internvl",
        class: true,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "internvl_large_eyes",
        decoder: "qwen2",
        projector: "internvl",
        class: true,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "llama4_eyes",
        decoder: "llama",
        projector: "llama4",
        class: true,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
    Eyes {
        name: "gemma4_unified_eyes",
        decoder: "gemma4_experts",
        projector: "gemma4uv",
        class: false,
        exchanged: false,
        dtype: TensorType::F32,
        dims: TINY,
    },
];

/// How large an encoder is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Dims {
    /// Pixels of a side of an image.
    pub(crate) image: usize,
    /// Pixels of a side of a patch.
    pub(crate) patch: usize,
    pub(crate) width: usize,
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// Elements of an embedding of the decoder.
    pub(crate) out: usize,
    /// Patches on a side of a row, where rows are squares.
    pub(crate) squares: usize,
    /// The same for Gemma 4, and the rows that an image for it has at the most.
    pub(crate) merge: usize,
    pub(crate) rows: usize,
    /// The longest side of an image for a pixtral projector.
    pub(crate) longest: usize,
    /// Positions on a side of the grid, and rows of a view, of a resampler.
    pub(crate) grid: usize,
    pub(crate) queries: usize,
    /// Tiles on a side, or in all.
    pub(crate) tiles: usize,
}

pub(crate) const TINY: Dims = Dims {
    image: 28,
    patch: 7,
    width: 32,
    hidden: 48,
    layers: 3,
    heads: 4,
    out: 64,
    squares: 2,
    merge: 3,
    rows: 12,
    longest: 42,
    grid: 6,
    queries: 3,
    tiles: 3,
};

/// The token whose embedding ends a line of rows.
const BREAK: usize = 12;
/// Elements of an embedding of most tiny decoders.
pub(crate) const OUT: usize = TINY.out;
const IMAGE: usize = TINY.image;

impl Eyes {
    fn is_tiny(&self) -> bool {
        self.dims == TINY
    }

    /// Patches on a side of a row.
    pub(crate) fn merge(&self) -> usize {
        if self.is_gemma4() {
            self.dims.merge
        } else {
            self.dims.squares
        }
    }

    /// Elements of all patches of a row.
    fn merged(&self) -> usize {
        self.dims.squares.pow(2) * self.dims.width
    }

    /// It reads images in their own size.
    pub(crate) fn is_qwen(&self) -> bool {
        self.projector.starts_with("qwen")
    }

    /// It fills a number of rows.
    fn is_gemma4(&self) -> bool {
        self.projector == "gemma4v" || self.is_unified()
    }

    /// It has no layers.
    fn is_unified(&self) -> bool {
        self.projector == "gemma4uv"
    }

    /// Its rows are moved to a standard, and what its matrices take and give is bounded.
    fn is_bounded(&self) -> bool {
        self.name == "gemma4_eyes"
    }

    /// It has windows, and norms without biases.
    fn is_qwen25(&self) -> bool {
        self.projector == "qwen2.5vl_merger"
    }

    /// It sees images in tiles with labels.
    fn is_idefics3(&self) -> bool {
        self.projector == "idefics3"
    }

    /// It sees images in tiles and behind them as a whole, between one pair of marks.
    fn is_internvl(&self) -> bool {
        self.projector == "internvl"
    }

    /// It sees images in tiles as they are, and its class comes last.
    fn is_llama4(&self) -> bool {
        self.projector == "llama4"
    }

    /// Its norms have no biases, and it norms queries and keys.
    fn is_large(&self) -> bool {
        self.name == "internvl_large_eyes"
    }

    /// It sees images in slices, each in a number of rows.
    fn is_minicpm(&self) -> bool {
        self.projector == "resampler"
    }

    pub(crate) fn decoder(&self) -> Case {
        let known = CASES.iter().find(|case| case.name == self.decoder);
        let mut case = *known.unwrap();
        case.parts.width = self.out();
        if self.is_unified() {
            // Gemma 4 12B has no experts.
            (case.parts.n_experts, case.parts.hidden) = (0, case.parts.beside);
        }
        case
    }

    /// Elements of an embedding of its decoder. A resampler has a head for every 128 of them.
    pub(crate) fn out(&self) -> usize {
        if self.is_minicpm() && self.is_tiny() {
            4 * self.dims.out
        } else {
            self.dims.out
        }
    }

    pub(crate) fn decoder_file(&self) -> File {
        let mut file = self.decoder().file();
        if self.has_deepstack() {
            file.metadata.set("qwen3vl.n_deepstack_layers", 2u32);
        }
        if self.is_glm() {
            // The language part of GLM-OCR has none.
            let biases = ["attn_q.bias", "attn_k.bias", "attn_v.bias"];
            let is_bias = |name: &str| biases.iter().any(|bias| name.ends_with(bias));
            file.tensors.retain(|tensor| !is_bias(&tensor.name));
        }
        file
    }

    /// Parts of a row, each as wide as an embedding.
    pub(crate) fn n_parts(&self) -> usize {
        if self.has_deepstack() { 3 } else { 1 }
    }

    /// Its rows are lines with breaks between.
    pub(crate) fn is_pixtral(&self) -> bool {
        self.projector == "pixtral"
    }

    /// It sees images in tiles, too, as LLaVA 1.6.
    fn has_tiles(&self) -> bool {
        self.name == "llava16_eyes"
    }

    /// It is one of GLM-OCR.
    fn is_glm(&self) -> bool {
        self.projector == "glm4v"
    }

    /// Squares of patches become a row of its pixtral projector, as in Mistral Small 3.1.
    fn merges(&self) -> bool {
        self.is_pixtral() && self.decoder == "mistral3"
    }

    /// It has norms with biases, and a grid of positions.
    fn is_qwen3(&self) -> bool {
        self.projector == "qwen3vl_merger"
    }

    /// Layers on the way give parts of the rows, too.
    fn has_deepstack(&self) -> bool {
        self.name == "qwen3vl_eyes"
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.file().bytes()
    }

    pub(crate) fn file(&self) -> File {
        let tensors = self.tensors().into_iter().map(|(name, shape)| {
            let dtype = match shape[..] {
                // Rows that are no whole blocks stay in half precision, as everywhere.
                [width, _] if width % self.dtype.block_len() as u64 != 0 => TensorType::F16,
                [_, _] => self.dtype,
                _ => TensorType::F32,
            };
            FileTensor {
                bytes: encode(dtype, &self.values(&name, &shape)),
                name,
                shape,
                dtype,
            }
        });
        File {
            metadata: self.metadata(),
            tensors: tensors.collect(),
        }
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", "clip");
        metadata.set("general.name", "tiny");
        metadata.set("clip.has_vision_encoder", true);
        metadata.set("clip.projector_type", self.projector);
        if self.merges() || self.is_glm() {
            metadata.set("clip.use_silu", true);
        } else if !self.is_qwen() && !self.is_gemma4() {
            let gelu = !self.class || self.is_internvl() || self.is_llama4();
            metadata.set("clip.use_gelu", gelu);
        }
        if self.is_minicpm() {
            metadata.set("clip.minicpmv_version", 3i32);
        }
        if self.is_idefics3() {
            let longest = self.dims.tiles * self.dims.image;
            metadata.set("clip.vision.preproc_image_size", longest as u32);
        }
        if self.is_gemma4() {
            let pixels = self.dims.rows * (self.dims.merge * self.dims.patch).pow(2);
            metadata.set("clip.vision.image_max_pixels", pixels as u32);
        }
        if self.is_qwen25() {
            metadata.set("clip.use_silu", true);
            let period = if self.is_tiny() { 2u32 } else { 8 };
            metadata.set("clip.vision.n_wa_pattern", period);
            // Three rows of 14 pixels, four of 28.
            let window = if self.is_tiny() { 42u32 } else { 112 };
            metadata.set("clip.vision.window_size", window);
        }
        if self.is_qwen3() {
            metadata.set("clip.use_gelu", true);
            let is_one = self.has_deepstack();
            let layers = vec![is_one, is_one, false];
            metadata.set("clip.vision.is_deepstack_layers", layers);
        }
        for (key, value) in [
            ("image_size", self.dims.image),
            ("patch_size", self.dims.patch),
            ("embedding_length", self.dims.width),
            ("feed_forward_length", self.dims.hidden),
            (
                "block_count",
                if self.is_unified() {
                    0
                } else {
                    self.dims.layers
                },
            ),
            ("projection_dim", self.dims.out),
            ("attention.head_count", self.dims.heads),
            ("projector.scale_factor", self.merge()),
        ] {
            metadata.set(format!("clip.vision.{key}"), value as u32);
        }
        if self.has_tiles() {
            let sizes = [(1, 2), (2, 1), (2, 2), (3, 1), (1, 3)];
            let pixels =
                sizes.map(|(width, height)| [width, height].map(|n| n * self.dims.image as i32));
            let key = "clip.vision.image_grid_pinpoints";
            metadata.set(key, pixels.concat());
        }
        if self.is_pixtral() {
            metadata.set("clip.vision.image_size", self.dims.longest as u32);
        }
        if self.merges() {
            metadata.set("clip.vision.spatial_merge_size", 2u32);
        }
        if self.is_internvl() {
            metadata.set(
                "clip.vision.preproc_max_tiles",
                (self.dims.tiles + 1) as u32,
            );
        }
        let own_size =
            self.is_qwen() || self.is_gemma4() || self.is_minicpm() || self.is_internvl();
        let eps = if own_size { 1e-6f32 } else { 1e-5 };
        metadata.set("clip.vision.attention.layer_norm_epsilon", eps);
        let (mean, deviation) = if self.is_gemma4() {
            ([0.0; 3], [1.0; 3])
        } else {
            ([0.48f32, 0.46, 0.41], [0.27f32, 0.26, 0.28])
        };
        metadata.set("clip.vision.image_mean", mean.to_vec());
        metadata.set("clip.vision.image_std", deviation.to_vec());
        if self.projector == "mlp" {
            metadata.set("clip.vision.feature_layer", vec![self.dims.layers as i32]);
        }
        metadata
    }

    /// Names and shapes, row length first.
    fn tensors(&self) -> Vec<(String, Vec<u64>)> {
        let mut list: Vec<(String, Vec<usize>)> = Vec::new();
        let mut add = |name: &str, shape: &[usize]| list.push((name.to_owned(), shape.to_vec()));
        let n_patches = (self.dims.image / self.dims.patch).pow(2);
        if self.is_llama4() {
            add(
                "v.patch_embd.weight",
                &[3 * self.dims.patch * self.dims.patch, self.dims.width],
            );
        } else if self.is_unified() {
            add(
                "v.patch_embd.weight",
                &[
                    3 * (self.dims.patch * self.dims.merge).pow(2),
                    self.dims.width,
                ],
            );
        } else {
            add(
                "v.patch_embd.weight",
                &[self.dims.patch, self.dims.patch, 3, self.dims.width],
            );
        }
        if self.is_qwen() || self.is_gemma4() {
            if self.is_unified() {
                self.add_unified(&mut add);
            } else if self.is_gemma4() {
                self.add_gemma4(&mut add);
            } else {
                self.add_qwen(&mut add);
            }
            let as_u64 = |(name, shape): (String, Vec<usize>)| {
                (name, shape.into_iter().map(|dim| dim as u64).collect())
            };
            return list.into_iter().map(as_u64).collect();
        }
        if self.is_pixtral() || self.is_glm() {
            if self.is_glm() {
                self.add_glm(&mut add);
            } else {
                self.add_pixtral(&mut add);
            }
            let as_u64 = |(name, shape): (String, Vec<usize>)| {
                (name, shape.into_iter().map(|dim| dim as u64).collect())
            };
            return list.into_iter().map(as_u64).collect();
        }
        let n_positions = if self.is_minicpm() {
            self.dims.grid * self.dims.grid
        } else {
            n_patches + usize::from(self.class)
        };
        add("v.position_embd.weight", &[self.dims.width, n_positions]);
        if self.class {
            add("v.class_embd", &[self.dims.width]);
        }
        if self.is_internvl() {
            add("v.patch_embd.bias", &[self.dims.width]);
        } else if self.class {
            add("v.pre_ln.weight", &[self.dims.width]);
            add("v.pre_ln.bias", &[self.dims.width]);
        } else {
            add("v.patch_embd.bias", &[self.dims.width]);
        }
        for layer in 0..self.dims.layers {
            let has_bias = |name: &str| !self.is_large() || !name.starts_with("ln");
            let mut add = |name: &str, rows: usize, cols: Option<usize>| {
                let bias = has_bias(name);
                let name = format!("v.blk.{layer}.{name}");
                match cols {
                    Some(cols) => add(&format!("{name}.weight"), &[cols, rows]),
                    None => add(&format!("{name}.weight"), &[rows]),
                }
                if bias {
                    add(&format!("{name}.bias"), &[rows]);
                }
            };
            add("ln1", self.dims.width, None);
            for name in ["attn_q", "attn_k", "attn_v", "attn_out"] {
                add(name, self.dims.width, Some(self.dims.width));
            }
            add("ln2", self.dims.width, None);
            let (up, down) = if self.exchanged {
                ("ffn_down", "ffn_up")
            } else {
                ("ffn_up", "ffn_down")
            };
            add(up, self.dims.hidden, Some(self.dims.width));
            add(down, self.dims.width, Some(self.dims.hidden));
        }
        for layer in (0..self.dims.layers).filter(|_| self.is_internvl()) {
            for name in ["ls1", "ls2"] {
                add(&format!("v.blk.{layer}.{name}.weight"), &[self.dims.width]);
            }
            for name in ["attn_q_norm", "attn_k_norm"]
                .into_iter()
                .filter(|_| self.is_large())
            {
                add(&format!("v.blk.{layer}.{name}.weight"), &[self.dims.width]);
            }
        }
        if self.is_minicpm() {
            self.add_resampler(&mut add);
        } else if self.is_llama4() {
            add("v.post_ln.weight", &[self.dims.width]);
            add("v.post_ln.bias", &[self.dims.width]);
            add("mm.model.mlp.1.weight", &[self.merged(), self.dims.hidden]);
            add(
                "mm.model.mlp.2.weight",
                &[self.dims.hidden, self.dims.hidden],
            );
            add("mm.model.fc.weight", &[self.dims.hidden, self.dims.out]);
        } else if self.is_internvl() {
            for (name, shape) in [
                ("mm.0.weight", &[self.merged()][..]),
                ("mm.0.bias", &[self.merged()]),
                ("mm.1.weight", &[self.merged(), self.dims.out]),
                ("mm.1.bias", &[self.dims.out]),
                ("mm.3.weight", &[self.dims.out, self.dims.out]),
                ("mm.3.bias", &[self.dims.out]),
            ] {
                add(name, shape);
            }
        } else if self.is_idefics3() {
            add("v.post_ln.weight", &[self.dims.width]);
            add("v.post_ln.bias", &[self.dims.width]);
            add("mm.model.fc.weight", &[self.merged(), self.dims.out]);
        } else if self.projector == "gemma3" {
            add("v.post_ln.weight", &[self.dims.width]);
            add("v.post_ln.bias", &[self.dims.width]);
            add("mm.soft_emb_norm.weight", &[self.dims.width]);
            add(
                "mm.input_projection.weight",
                &[self.dims.out, self.dims.width],
            );
        } else {
            add("mm.0.weight", &[self.dims.width, self.dims.out]);
            add("mm.0.bias", &[self.dims.out]);
            add("mm.2.weight", &[self.dims.out, self.dims.out]);
            add("mm.2.bias", &[self.dims.out]);
        }
        if self.has_tiles() {
            add("model.image_newline", &[self.dims.out]);
        }
        let as_u64 = |(name, shape): (String, Vec<usize>)| {
            (name, shape.into_iter().map(|dim| dim as u64).collect())
        };
        list.into_iter().map(as_u64).collect()
    }

    /// Adds the tensors of an encoder of Gemma 4 behind the first one.
    fn add_gemma4(&self, add: &mut dyn FnMut(&str, &[usize])) {
        add(
            "v.position_embd.weight",
            &[self.dims.width, self.dims.rows * self.dims.merge + 4, 2],
        );
        let bounds = ["input_min", "input_max", "output_min", "output_max"];
        let mut matrices = vec![(
            "mm.input_projection".to_owned(),
            self.dims.out,
            self.dims.width,
        )];
        for layer in 0..self.dims.layers {
            let name = |part: &str| format!("v.blk.{layer}.{part}");
            for norm in ["ln1", "ln2", "attn_post_norm", "ffn_post_norm"] {
                add(&format!("{}.weight", name(norm)), &[self.dims.width]);
            }
            for norm in ["attn_q_norm", "attn_k_norm"] {
                add(
                    &format!("{}.weight", name(norm)),
                    &[self.dims.width / self.dims.heads],
                );
            }
            for part in ["attn_q", "attn_k", "attn_v", "attn_out"] {
                matrices.push((name(part), self.dims.width, self.dims.width));
            }
            matrices.push((name("ffn_gate"), self.dims.hidden, self.dims.width));
            matrices.push((name("ffn_up"), self.dims.hidden, self.dims.width));
            matrices.push((name("ffn_down"), self.dims.width, self.dims.hidden));
        }
        for (name, n_rows, n_cols) in matrices {
            add(&format!("{name}.weight"), &[n_cols, n_rows]);
            // transformers bounds nothing at the projector.
            let is_bounded = self.is_bounded() && name.starts_with("v.");
            for bound in bounds.iter().filter(|_| is_bounded) {
                add(&format!("{name}.{bound}"), &[1]);
            }
        }
        if self.is_bounded() {
            add("v.std_bias", &[self.dims.width]);
            add("v.std_scale", &[self.dims.width]);
        }
    }

    /// Adds the tensors of an encoder of Gemma 4 12B behind the first one.
    fn add_unified(&self, add: &mut dyn FnMut(&str, &[usize])) {
        add("v.patch_embd.bias", &[self.dims.width]);
        let n_pixels = 3 * (self.dims.patch * self.dims.merge).pow(2);
        for (name, width) in [
            ("1", n_pixels),
            ("2", self.dims.width),
            ("3", self.dims.width),
        ] {
            add(&format!("v.patch_norm.{name}.weight"), &[width]);
            add(&format!("v.patch_norm.{name}.bias"), &[width]);
        }
        add(
            "v.position_embd.weight",
            &[self.dims.width, self.dims.rows + 4, 2],
        );
        add(
            "mm.input_projection.weight",
            &[self.dims.width, self.dims.out],
        );
    }

    /// Adds the tensors of an encoder of the Qwen family behind the first one.
    fn add_qwen(&self, add: &mut dyn FnMut(&str, &[usize])) {
        add(
            "v.patch_embd.weight.1",
            &[self.dims.patch, self.dims.patch, 3, self.dims.width],
        );
        for layer in 0..self.dims.layers {
            let name = |part: &str, end: &str| format!("v.blk.{layer}.{part}.{end}");
            for norm in ["ln1", "ln2"] {
                add(&name(norm, "weight"), &[self.dims.width]);
                if !self.is_qwen25() {
                    add(&name(norm, "bias"), &[self.dims.width]);
                }
            }
            let mut matrices = if self.is_qwen3() {
                vec![("attn_qkv", 3 * self.dims.width, self.dims.width)]
            } else {
                let parts = ["attn_q", "attn_k", "attn_v"];
                parts
                    .map(|part| (part, self.dims.width, self.dims.width))
                    .to_vec()
            };
            matrices.extend([
                ("attn_out", self.dims.width, self.dims.width),
                ("ffn_up", self.dims.hidden, self.dims.width),
                ("ffn_down", self.dims.width, self.dims.hidden),
            ]);
            if self.is_qwen25() {
                matrices.push(("ffn_gate", self.dims.hidden, self.dims.width));
            }
            for (part, n_rows, n_cols) in matrices {
                add(&name(part, "weight"), &[n_cols, n_rows]);
                add(&name(part, "bias"), &[n_rows]);
            }
        }
        add("v.post_ln.weight", &[self.dims.width]);
        if !self.is_qwen25() {
            add("v.post_ln.bias", &[self.dims.width]);
        }
        let merged = self.merged();
        if self.is_qwen3() {
            add("v.patch_embd.bias", &[self.dims.width]);
            add(
                "v.position_embd.weight",
                &[self.dims.width, (self.dims.image / self.dims.patch).pow(2)],
            );
            for layer in (0..2).filter(|_| self.has_deepstack()) {
                let name = |part: &str| format!("v.deepstack.{layer}.{part}");
                add(&name("norm.weight"), &[merged]);
                add(&name("norm.bias"), &[merged]);
                add(&name("fc1.weight"), &[merged, merged]);
                add(&name("fc1.bias"), &[merged]);
                add(&name("fc2.weight"), &[merged, self.dims.out]);
                add(&name("fc2.bias"), &[self.dims.out]);
            }
        }
        for (name, n_rows) in [("mm.0", merged), ("mm.2", self.dims.out)] {
            add(&format!("{name}.weight"), &[merged, n_rows]);
            add(&format!("{name}.bias"), &[n_rows]);
        }
    }

    /// Adds the tensors of a pixtral encoder behind the first one.
    fn add_pixtral(&self, add: &mut dyn FnMut(&str, &[usize])) {
        add("v.pre_ln.weight", &[self.dims.width]);
        for layer in 0..self.dims.layers {
            let name = |part: &str| format!("v.blk.{layer}.{part}.weight");
            add(&name("ln1"), &[self.dims.width]);
            add(&name("ln2"), &[self.dims.width]);
            for part in ["attn_q", "attn_k", "attn_v", "attn_out"] {
                add(&name(part), &[self.dims.width, self.dims.width]);
            }
            add(&name("ffn_gate"), &[self.dims.width, self.dims.hidden]);
            add(&name("ffn_up"), &[self.dims.width, self.dims.hidden]);
            add(&name("ffn_down"), &[self.dims.hidden, self.dims.width]);
        }
        add("mm.1.weight", &[self.dims.width, self.dims.out]);
        add("mm.2.weight", &[self.dims.out, self.dims.out]);
        if self.merges() {
            add("mm.input_norm.weight", &[self.dims.width]);
            add("mm.patch_merger.weight", &[self.merged(), self.dims.width]);
        } else {
            add("mm.1.bias", &[self.dims.out]);
            add("mm.2.bias", &[self.dims.out]);
        }
        add("v.token_embd.img_break", &[self.dims.out]);
    }

    /// Adds the tensors behind the layers of an encoder of MiniCPM-V.
    fn add_resampler(&self, add: &mut dyn FnMut(&str, &[usize])) {
        let out = self.out();
        add("v.post_ln.weight", &[self.dims.width]);
        add("v.post_ln.bias", &[self.dims.width]);
        add("resampler.query", &[out, self.dims.queries]);
        add("resampler.kv.weight", &[self.dims.width, out]);
        for norm in ["ln_q", "ln_kv", "ln_post"] {
            add(&format!("resampler.{norm}.weight"), &[out]);
            add(&format!("resampler.{norm}.bias"), &[out]);
        }
        for part in ["q", "k", "v", "out"] {
            add(&format!("resampler.attn.{part}.weight"), &[out, out]);
            add(&format!("resampler.attn.{part}.bias"), &[out]);
        }
        add("resampler.proj.weight", &[out, out]);
    }

    /// Adds the tensors of an encoder of GLM-OCR behind the first one.
    fn add_glm(&self, add: &mut dyn FnMut(&str, &[usize])) {
        add(
            "v.patch_embd.weight.1",
            &[self.dims.patch, self.dims.patch, 3, self.dims.width],
        );
        add("v.patch_embd.bias", &[self.dims.width]);
        for layer in 0..self.dims.layers {
            let name = |part: &str, end: &str| format!("v.blk.{layer}.{part}.{end}");
            for (norm, width) in [
                ("ln1", self.dims.width),
                ("ln2", self.dims.width),
                ("attn_q_norm", self.dims.width / self.dims.heads),
                ("attn_k_norm", self.dims.width / self.dims.heads),
            ] {
                add(&name(norm, "weight"), &[width]);
            }
            for (part, n_rows, n_cols) in [
                ("attn_qkv", 3 * self.dims.width, self.dims.width),
                ("attn_out", self.dims.width, self.dims.width),
                ("ffn_gate", self.dims.hidden, self.dims.width),
                ("ffn_up", self.dims.hidden, self.dims.width),
                ("ffn_down", self.dims.width, self.dims.hidden),
            ] {
                add(&name(part, "weight"), &[n_cols, n_rows]);
                add(&name(part, "bias"), &[n_rows]);
            }
        }
        add("v.post_ln.weight", &[self.dims.width]);
        add(
            "mm.patch_merger.weight",
            &[2, 2, self.dims.width, self.dims.out],
        );
        add("mm.patch_merger.bias", &[self.dims.out]);
        add("mm.model.fc.weight", &[self.dims.out, self.dims.out]);
        add("mm.post_norm.weight", &[self.dims.out]);
        add("mm.post_norm.bias", &[self.dims.out]);
        add("mm.gate.weight", &[self.dims.out, 3 * self.dims.out]);
        add("mm.up.weight", &[self.dims.out, 3 * self.dims.out]);
        add("mm.down.weight", &[3 * self.dims.out, self.dims.out]);
    }

    /// Random values of a size that keeps activations near one.
    pub(crate) fn values(&self, name: &str, shape: &[u64]) -> Vec<f32> {
        if name == "v.token_embd.img_break" {
            let mut decoder = self.decoder_file();
            let embeddings = decoder.tensor("token_embd.weight").bytes.chunks_exact(4);
            let row = embeddings.skip(BREAK * self.dims.out).take(self.dims.out);
            return row
                .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
                .collect();
        }
        let len: u64 = shape.iter().product();
        if !self.is_tiny() {
            // Nobody looks at what comes out, but it shall be finite.
            return (0..len).map(|idx| (idx % 7) as f32 * 0.01 - 0.03).collect();
        }
        let mut random = Random::new(&format!("{} {name}", self.name));
        let (middle, spread) = match name {
            "v.position_embd.weight" | "v.class_embd" | "model.image_newline" => (0.0, 1.0),
            "v.patch_embd.weight" | "v.patch_embd.weight.1" if !self.is_unified() => (0.0, 0.2),
            "mm.patch_merger.weight" if shape.len() == 4 => (0.0, 0.15),
            // Some elements are beyond them.
            name if name.ends_with("_min") => (-1.2, 0.2),
            name if name.ends_with("_max") => (1.2, 0.2),
            name if name.ends_with("bias") => (0.0, 0.3),
            name if shape.len() == 1 => (
                1.0,
                if name.contains("ln") || name.starts_with("v.deepstack") {
                    0.4
                } else {
                    0.2
                },
            ),
            "resampler.attn.q.weight" | "resampler.attn.k.weight" => (0.0, 0.25),
            name if name.contains("attn_q") || name.contains("attn_k") => (0.0, 0.6),
            _ => (0.0, 1.7 / (shape[0] as f32).sqrt()),
        };
        (0..len).map(|_| middle + spread * random.unit()).collect()
    }
}

/// A tiny image: a few overlapping gradients, as PNG and as pixels.
pub(crate) struct Picture {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) pixels: Vec<u8>,
}

impl Picture {
    pub(crate) fn new(name: &str, width: u32, height: u32) -> Picture {
        let mut random = Random::new(name);
        let waves: Vec<[f32; 3]> = (0..9)
            .map(|_| {
                [
                    random.unit() * 0.4,
                    random.unit() * 0.4,
                    random.unit() * 3.0,
                ]
            })
            .collect();
        let level = |x: u32, y: u32, channel: usize| {
            let sum: f32 = waves[channel * 3..channel * 3 + 3]
                .iter()
                .map(|[a, b, c]| (a * x as f32 + b * y as f32 + c).sin())
                .sum();
            (127.5 + 42.0 * sum) as u8
        };
        let mut pixels = Vec::new();
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            pixels.extend((0..3).map(|channel| level(x, y, channel)));
        }
        Picture {
            width,
            height,
            pixels,
        }
    }

    /// Encodes the picture in a format that loses nothing.
    pub(crate) fn file(&self, format: image::ImageFormat) -> Vec<u8> {
        let mut bytes = std::io::Cursor::new(Vec::new());
        let image =
            image::RgbImage::from_raw(self.width, self.height, self.pixels.clone()).unwrap();
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    pub(crate) fn png(&self) -> Vec<u8> {
        self.file(image::ImageFormat::Png)
    }
}

/// The pictures of the fixtures: as large as an encoder wants it, wide, tall.
pub(crate) fn pictures() -> [Picture; 3] {
    [
        Picture::new("square", IMAGE as u32, IMAGE as u32),
        Picture::new("wide", 50, 33),
        Picture::new("tall", 11, 61),
    ]
}

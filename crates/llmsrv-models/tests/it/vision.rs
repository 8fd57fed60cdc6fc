//! Encoders for images against other implementations, with their decoders, and against bad images.

use std::{fs, path::Path, sync::Arc};

use llmsrv_engine::{
    ActivationPrecision, BlockId, EngineOptions, Event, Finish, GenRequest, Grid, Image,
    ImageError, ImageRows, ImageSpan, LoadError, LoadOptions, Loaded, Model, Part, SamplingParams,
    Span, SpanState, StateId, StepPlan, Vision,
};
use llmsrv_gguf::TensorType;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    equivalence::SOFTWARE,
    tiny::{difference, fingerprint, plan},
    vision_files::{EYES, Eyes, OUT, Picture, pictures},
};

/// What `fixtures/make_vision.py` writes, and the scripts for other kinds beside it.
#[derive(Deserialize)]
struct Expected {
    fingerprint: String,
    pictures: Vec<ExpectedPicture>,
}

#[derive(Deserialize)]
struct ExpectedPicture {
    /// Rows of the image, by numpy or transformers.
    embedding: Vec<f32>,
    /// Logits after the prompt, by llama.cpp or transformers from these rows.
    logits: Vec<f32>,
}

/// What `fixtures/make_vision.py` reads.
#[derive(Serialize)]
struct Inputs {
    before: Vec<u32>,
    after: Vec<u32>,
    pictures: Vec<InputPicture>,
}

#[derive(Serialize)]
struct InputPicture {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
    /// `IMAGE` for each row, and the text between them.
    tokens: Vec<u32>,
}

const BEFORE: [u32; 5] = [7, 30, 2, 61, 18];
const AFTER: [u32; 4] = [44, 3, 70, 9];
/// Stands where rows of an image are.
const IMAGE: u32 = 95;
/// Blocks that hold these and an image.
const N_BLOCKS: usize = 8;
/// Against numpy (or transformers) in f64, with Pillow's pixels.
const TOLERANCE: f32 = 1e-5;
/// Rows and logits, where numbers meet in BF16. The tiny models attend sharply, which magnifies rounding.
const BF16_TOLERANCES: [f32; 2] = [5e-2, 1e-1];
/// Against llama.cpp, which reads GELU from a table of f16 values.
const LOGIT_TOLERANCE: f32 = 1e-3;

fn load(eyes: &Eyes, device: &str) -> Loaded {
    load_bytes(&eyes.decoder_file().bytes(), &eyes.bytes(), device).unwrap()
}

fn load_bytes(weights: &[u8], projector: &[u8], device: &str) -> Result<Loaded, LoadError> {
    load_with(weights, projector, device, "f32")
}

fn load_with(
    weights: &[u8],
    projector: &[u8],
    device: &str,
    kv_cache_type: &str,
) -> Result<Loaded, LoadError> {
    let precision = ActivationPrecision::Auto;
    load_at(weights, projector, device, kv_cache_type, precision)
}

fn load_at(
    weights: &[u8],
    projector: &[u8],
    device: &str,
    kv_cache_type: &str,
    activation_precision: ActivationPrecision,
) -> Result<Loaded, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let path = write("model.gguf", weights);
    let options = LoadOptions {
        kv_cache_type: kv_cache_type.into(),
        n_threads: 2,
        device: device.into(),
        gpu: SOFTWARE,
        projector: Some(write("mmproj.gguf", projector)),
        activation_precision,
        ..LoadOptions::default()
    };
    llmsrv_models::load(&path, &options)
}

fn vision(eyes: &Eyes) -> Arc<dyn Vision> {
    load(eyes, "cpu").vision.unwrap()
}

fn named(name: &str) -> &'static Eyes {
    EYES.iter().find(|eyes| eyes.name == name).unwrap()
}

/// Positions that an image takes, without the text around and between them.
fn n_rows(vision: &dyn Vision, bytes: &[u8]) -> Result<usize, ImageError> {
    let parts = vision.layout(bytes)?.into_iter();
    let rows = parts.map(|part| match part {
        Part::Rows(n) => n,
        Part::Text(_) => 0,
    });
    Ok(rows.sum())
}

/// The text around and between the rows of an image.
fn texts(vision: &dyn Vision, bytes: &[u8]) -> Vec<String> {
    let parts = vision.layout(bytes).unwrap().into_iter();
    let text = |part| match part {
        Part::Text(text) => Some(text.into_owned()),
        Part::Rows(_) => None,
    };
    parts.filter_map(text).collect()
}

/// `BEFORE`, an image and `AFTER`.
struct Prompt {
    tokens: Vec<u32>,
    spans: Vec<ImageSpan>,
    image: Arc<Image>,
}

impl Prompt {
    /// The text between rows of the image is one token each, by its length.
    fn about(vision: &dyn Vision, picture: &Picture) -> Prompt {
        let png = picture.png();
        let image = vision.encode(&png).unwrap();
        let (mut tokens, mut spans, mut n_seen) = (BEFORE.to_vec(), Vec::<ImageSpan>::new(), 0);
        let mut between = 0;
        for part in vision.layout(&png).unwrap() {
            match part {
                Part::Text(text) => between += text.len() as u32,
                Part::Rows(n) => {
                    if n_seen > 0 && between > 0 {
                        tokens.push(1 + between % 90);
                    }
                    between = 0;
                    spans.push(ImageSpan {
                        at: tokens.len(),
                        rows: n_seen..n_seen + n,
                        image: image.clone(),
                    });
                    tokens.resize(tokens.len() + n, IMAGE);
                    n_seen += n;
                }
            }
        }
        assert_eq!(n_seen, image.rows);
        tokens.extend(AFTER);
        Prompt {
            tokens,
            spans,
            image,
        }
    }

    /// The tokens of the image.
    fn of_image(&self) -> &[u32] {
        &self.tokens[BEFORE.len()..self.tokens.len() - AFTER.len()]
    }

    /// The step that computes tokens `start..stop` in the first blocks.
    fn plan(&self, start: usize, stop: usize) -> StepPlan {
        let blocks: Vec<BlockId> = (0..N_BLOCKS as u32).map(BlockId).collect();
        let mut plan = plan(&self.tokens[start..stop], start, &blocks, false);
        if self.image.grid.is_some() {
            let coordinates = llmsrv_engine::image::coordinates(&self.spans, start..stop);
            plan.coordinates = coordinates.collect();
        }
        for span in &self.spans {
            let (from, to) = (span.at.max(start), span.end().min(stop));
            if from < to {
                let rows = from - start..to - start;
                if self.image.whole {
                    plan.ends[rows.clone()].fill(span.end() as u32);
                }
                plan.images.push(ImageRows {
                    rows,
                    first: span.rows.start + from - span.at,
                    image: self.image.clone(),
                });
            }
        }
        plan
    }
}

/// Logits after a prompt, computed in steps of these lengths.
fn logits(loaded: &mut Loaded, prompt: &Prompt, steps: &[usize]) -> Vec<f32> {
    let model = &mut *loaded.model;
    model.reserve_blocks(N_BLOCKS).unwrap();
    let n_tokens = prompt.tokens.len();
    let mut logits = vec![0.0; model.spec().vocab_size];
    reserve_states(model, 1);
    let mut start: usize = 0;
    for n in steps.iter().copied().chain([usize::MAX]) {
        let stop = n_tokens.min(start.saturating_add(n));
        let plan = in_state(model, prompt.plan(start, stop), 0);
        model.forward(&plan, &mut logits).unwrap();
        start = stop;
        if start == n_tokens {
            break;
        }
    }
    logits
}

fn reserve_states(model: &mut dyn Model, n: usize) {
    if model.spec().state_bytes > 0 {
        model.reserve_states(n).unwrap();
    }
}

/// Gives the only sequence of a plan a recurrent state, if the model keeps one.
fn in_state(model: &dyn Model, mut plan: StepPlan, slot: u32) -> StepPlan {
    if model.spec().state_bytes > 0 {
        plan.spans[0].state = Some(SpanState::new(StateId(slot)));
    }
    plan
}

#[test]
fn encoders_and_decoders_agree_with_other_implementations() {
    for eyes in EYES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/vision")
            .join(format!("{}.json", eyes.name));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let expected: Expected = serde_json::from_str(&text).unwrap();
        let both = [eyes.decoder_file().bytes(), eyes.bytes()].concat();
        assert_eq!(
            format!("{:016x}", fingerprint(&both)),
            expected.fingerprint,
            "{}: run make_vision.py again",
            eyes.name
        );
        for (device, precision, tolerances) in [
            (
                "cpu",
                ActivationPrecision::F32,
                [TOLERANCE, LOGIT_TOLERANCE],
            ),
            (
                "cpu",
                ActivationPrecision::Int16,
                [TOLERANCE, LOGIT_TOLERANCE],
            ),
            ("cpu", ActivationPrecision::Auto, BF16_TOLERANCES),
            (
                "candle",
                ActivationPrecision::Auto,
                [TOLERANCE, LOGIT_TOLERANCE],
            ),
        ] {
            let decoder = eyes.decoder_file().bytes();
            let mut loaded = load_at(&decoder, &eyes.bytes(), device, "f32", precision).unwrap();
            let vision = loaded.vision.clone().unwrap();
            for (idx, (picture, expected)) in pictures().iter().zip(&expected.pictures).enumerate()
            {
                let prompt = Prompt::about(&*vision, picture);
                let image = &prompt.image;
                assert_eq!(image.rows, n_rows(&*vision, &picture.png()).unwrap());
                let width = eyes.n_parts() * eyes.out();
                assert_eq!(image.embedding.len(), image.rows * width);
                let rows = difference(&image.embedding, &expected.embedding);
                assert!(rows <= tolerances[0], "{} {idx}: {rows}", eyes.name);
                let ours = logits(&mut loaded, &prompt, &[]);
                let last = difference(&ours, &expected.logits);
                println!(
                    "{} {device} {precision:?} {idx}: embedding {rows:.1e}, logits {last:.1e}",
                    eyes.name
                );
                assert!(last <= tolerances[1], "{} {idx}: logits {last}", eyes.name);
            }
        }
    }
}

/// Weights of 16 bits meet activations of 16 bits unless all is to be fine.
#[test]
fn weights_of_16_bits_are_computed_in_bf16_by_default() {
    let png = Picture::new("coarse", 50, 33).png();
    for dtype in [TensorType::F16, TensorType::BF16] {
        for eyes in EYES {
            let eyes = Eyes { dtype, ..*eyes };
            let rows = |device, precision| {
                let decoder = eyes.decoder_file().bytes();
                let loaded = load_at(&decoder, &eyes.bytes(), device, "f32", precision);
                let image = loaded.unwrap().vision.unwrap().encode(&png).unwrap();
                image.embedding.clone()
            };
            let exact = rows("candle", ActivationPrecision::Auto);
            let fine = difference(&rows("cpu", ActivationPrecision::Int16), &exact);
            let usual = difference(&rows("cpu", ActivationPrecision::Auto), &exact);
            println!("{} {dtype}: fine {fine:.1e}, usual {usual:.1e}", eyes.name);
            assert!(fine <= 1e-4 && usual > fine && usual <= BF16_TOLERANCES[0]);
        }
    }
}

/// The rows are made on the CPU and put in place on the GPU, whose KV cache is of f16.
#[test]
fn a_gpu_takes_the_rows_of_images() {
    for eyes in EYES {
        let load =
            |device| load_with(&eyes.decoder_file().bytes(), &eyes.bytes(), device, "f16").unwrap();
        let mut cpu = load("cpu");
        if cpu.model.spec().state_bytes > 0 {
            // On GPUs such models are refused.
            continue;
        }
        let mut gpu = load("vulkan");
        for picture in pictures() {
            let prompt = Prompt::about(&*gpu.vision.clone().unwrap(), &picture);
            let expected = logits(&mut cpu, &prompt, &[]);
            let off = difference(&logits(&mut gpu, &prompt, &[]), &expected);
            assert!(off <= LOGIT_TOLERANCE, "{}: {off}", eyes.name);
        }
    }
}

/// However the prompt is cut (never through an image whose rows see each other), the logits are the
/// same bit for bit; and they depend on the image.
#[test]
fn steps_do_not_change_the_logits_and_images_do() {
    for eyes in EYES {
        let mut loaded = load(eyes, "cpu");
        let vision = loaded.vision.clone().unwrap();
        let [one, two] =
            ["one", "two"].map(|name| Prompt::about(&*vision, &Picture::new(name, 40, 40)));
        let expected = logits(&mut loaded, &one, &[]);
        assert_ne!(expected, logits(&mut loaded, &two, &[]), "{}", eyes.name);
        let rows = one.of_image().len();
        let mut cuts = vec![vec![5, rows], vec![2, 3, rows, 2], vec![1, rows + 4]];
        if !one.image.whole {
            cuts.push(vec![7, 3, 1, 2]);
            cuts.push(vec![1; rows + 8]);
        }
        for steps in cuts {
            let found = logits(&mut loaded, &one, &steps);
            assert_eq!(found, expected, "{} {steps:?}", eyes.name);
        }
    }
}

/// A text beside it in the step, before or behind, changes no bit of the logits after an image, and the
/// image none of those after the text.
#[test]
fn what_is_computed_beside_an_image_does_not_matter() {
    for eyes in EYES {
        let mut loaded = load(eyes, "cpu");
        let picture = Picture::new("beside", 50, 33);
        let prompt = Prompt::about(&*loaded.vision.clone().unwrap(), &picture);
        let model = &mut *loaded.model;
        model.reserve_blocks(N_BLOCKS + 2).unwrap();
        let n_vocab = model.spec().vocab_size;
        reserve_states(model, 2);
        let seen = in_state(model, prompt.plan(0, prompt.tokens.len()), 0);
        let text = plan(
            &[3, 1, 4, 1, 5, 9, 2, 6],
            0,
            &[BlockId(N_BLOCKS as u32), BlockId(N_BLOCKS as u32 + 1)],
            false,
        );
        let text = in_state(model, text, 1);
        let mut compute = |plan: &StepPlan| {
            let mut logits = vec![0.0; plan.logit_rows.len() * n_vocab];
            model.forward(plan, &mut logits).unwrap();
            logits
        };
        let alone = [compute(&seen), compute(&text)];
        assert_eq!(
            compute(&both(&seen, &text)),
            alone.concat(),
            "{}",
            eyes.name
        );
        assert_eq!(
            compute(&both(&text, &seen)),
            [&alone[1][..], &alone[0]].concat(),
            "{}",
            eyes.name
        );
    }
}

/// The rows of two steps in one.
fn both(first: &StepPlan, second: &StepPlan) -> StepPlan {
    let n = first.tokens.len();
    let mut plan = first.clone();
    if !first.coordinates.is_empty() || !second.coordinates.is_empty() {
        let all = |plan: &StepPlan| {
            (0..plan.tokens.len())
                .map(|row| plan.coordinate(row))
                .collect()
        };
        let coordinates: [Vec<[u32; 3]>; 2] = [all(first), all(second)];
        plan.coordinates = coordinates.concat();
    }
    plan.tokens.extend(&second.tokens);
    plan.positions.extend(&second.positions);
    plan.ends.extend(&second.ends);
    plan.images
        .extend(second.images.iter().map(|image| ImageRows {
            rows: image.rows.start + n..image.rows.end + n,
            ..image.clone()
        }));
    plan.spans.extend(second.spans.iter().map(|span| Span {
        rows: span.rows.start + n..span.rows.end + n,
        ..span.clone()
    }));
    let rows = second.logit_rows.iter().map(|row| row + n as u32);
    plan.logit_rows.extend(rows);
    plan
}

/// Over the engine: other images give other texts, the same image comes from the prefix cache.
#[test]
fn the_same_image_is_computed_once() {
    for eyes in EYES {
        let loaded = load(eyes, "cpu");
        if loaded.model.spec().state_bytes > 0 {
            // What it finds again is where a copy of its state was kept.
            continue;
        }
        let vision = loaded.vision.clone().unwrap();
        let handle = llmsrv_engine::spawn(
            loaded,
            EngineOptions {
                step_tokens: 8,
                ..EngineOptions::default()
            },
        );
        let ask = |picture: &Picture| -> (Vec<f32>, Box<Finish>) {
            let image = vision.encode(&picture.png()).unwrap();
            let tokens = [&[5; 20][..], &vec![0; image.rows], &[9; 30]].concat();
            let request = GenRequest {
                tokens,
                images: vec![ImageSpan::all(20, image)],
                params: SamplingParams {
                    temperature: 0.0,
                    ..SamplingParams::default()
                },
                num_ctx: 512,
                max_tokens: Some(4),
                stop: Vec::new(),
                num_keep: 0,
                shift: true,
                grammar: None,
                grammar_after: None,
                grammar_unless: None,
                logprobs: Some(5),
            };
            let mut generation = handle.submit(request).unwrap();
            let mut probabilities = Vec::new();
            loop {
                match generation.blocking_next() {
                    Some(Event::Text { tokens, .. }) => {
                        let top = tokens.iter().flat_map(|token| &token.top);
                        probabilities.extend(top.map(|(_, logprob, _)| *logprob));
                    }
                    Some(Event::Done(finish)) => return (probabilities, finish),
                    other => panic!("{other:?}"),
                }
            }
        };
        let (one, two) = (Picture::new("one", 28, 28), Picture::new("two", 28, 28));
        let first = ask(&one);
        assert_eq!(first.1.cached_tokens, 0);
        let other = ask(&two);
        assert_eq!(other.1.cached_tokens, 20, "what is before the picture");
        assert_ne!(first.0, other.0, "{}", eyes.name);
        let again = ask(&one);
        let rows = n_rows(&*vision, &one.png()).unwrap();
        assert_eq!(again.1.cached_tokens, 20 + rows + 29);
        assert_eq!(again.0, first.0, "{}", eyes.name);
    }
}

#[test]
fn all_common_formats_are_read() {
    use image::ImageFormat::{Bmp, Gif, Jpeg, Png, WebP};
    let vision = vision(named("mlp_plain"));
    let picture = Picture::new("formats", 28, 28);
    let expected = vision.encode(&picture.png()).unwrap();
    for (format, tolerance) in [(Png, 0.0), (Bmp, 0.0), (WebP, 0.0), (Jpeg, 0.5), (Gif, 0.5)] {
        let image = vision.encode(&picture.file(format)).unwrap();
        let difference = difference(&image.embedding, &expected.embedding);
        assert!(difference <= tolerance, "{format:?}: {difference}");
    }
    // What shines through is white.
    let encode = |image: image::DynamicImage| {
        let mut bytes = std::io::Cursor::new(Vec::new());
        image.write_to(&mut bytes, Png).unwrap();
        vision.encode(&bytes.into_inner()).unwrap()
    };
    let clear = encode(image::RgbaImage::from_pixel(28, 28, image::Rgba([9, 9, 9, 0])).into());
    let white = encode(image::GrayImage::from_pixel(28, 28, image::Luma([255])).into());
    assert_eq!(clear.embedding, white.embedding);
}

/// The registry's Gemma 3 has its encoder in the file of the decoder, under other names.
#[test]
fn an_encoder_within_the_decoders_file_is_the_same() {
    let eyes = named("gemma3_eyes");
    let (mut file, encoder) = (eyes.decoder_file(), eyes.file());
    for (key, value) in encoder.metadata.iter() {
        if let Some(key) = key.strip_prefix("clip.vision.")
            && !matches!(key, "image_mean" | "image_std" | "projector.scale_factor")
        {
            let key = format!("gemma3.vision.{key}");
            file.metadata.set(key, value.clone());
        }
    }
    file.metadata.set("gemma3.mm.tokens_per_image", 4u32);
    for mut tensor in encoder.tensors {
        for (from, to) in [
            ("patch_embd", "patch_embedding"),
            ("position_embd", "position_embedding"),
            ("post_ln", "post_layernorm"),
            ("ln1", "layer_norm1"),
            ("attn_out", "attn_output"),
            ("ln2", "layer_norm2"),
            ("ffn_up", "mlp.fc1"),
            ("ffn_down", "mlp.fc2"),
            ("mm.", "mm.mm_"),
        ] {
            tensor.name = tensor.name.replace(from, to);
        }
        file.tensors.push(tensor);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, file.bytes()).unwrap();
    let within = llmsrv_models::load(&path, &LoadOptions::default()).unwrap();

    // Its colours are not in the file but always these.
    let mut apart = eyes.file();
    for key in ["clip.vision.image_mean", "clip.vision.image_std"] {
        apart.metadata.set(key, vec![0.5f32; 3]);
    }
    let apart = load_bytes(&eyes.decoder_file().bytes(), &apart.bytes(), "cpu").unwrap();
    let png = Picture::new("within", 30, 20).png();
    let encode = |loaded: Loaded| loaded.vision.unwrap().encode(&png).unwrap();
    let (within, apart) = (encode(within), encode(apart));
    assert_eq!(within.embedding, apart.embedding);
    assert!(within.whole && within.rows == 4);
}

/// As the image processor of transformers: sides of whole rows, within the least and most pixels. A row
/// has 14 pixels a side, an image 4 to 1024 of them.
#[test]
fn images_keep_about_their_size() {
    let vision = vision(named("qwen25vl_eyes"));
    for (width, height, columns, lines) in [
        (28, 28, 2, 2),
        (50, 33, 4, 2),
        (11, 61, 1, 4),
        // Halves go to the even number: 1.5 and 2.5 rows.
        (21, 35, 2, 2),
        // Enlarged.
        (1, 1, 2, 2),
        (5, 40, 1, 6),
        // Made smaller.
        (1400, 700, 45, 22),
        (3000, 20, 214, 1),
        (4000, 400, 101, 10),
    ] {
        let png = Picture::new("size", width, height).png();
        let rows = n_rows(&*vision, &png).unwrap();
        assert_eq!(rows, columns * lines, "{width} x {height}");
        if rows < 100 {
            let grid = Grid {
                width: columns,
                height: lines,
            };
            assert_eq!(vision.encode(&png).unwrap().grid, Some(grid));
        }
    }
    let line = Picture::new("line", 401, 2).png();
    let found = refused(&*vision, &line);
    assert!(found.starts_with("the image has 401 x 2 pixels"), "{found}");
    assert!(n_rows(&*vision, &line).is_err() && n_rows(&*vision, b"hello").is_err());
}

/// As the image processor of transformers: as large as twelve rows allow, of 21 pixels a side, sides down to
/// whole rows.
#[test]
fn images_fill_their_rows() {
    let vision = vision(named("gemma4_eyes"));
    for (width, height, rows) in [
        (28, 28, 9),
        (50, 33, 8),
        (11, 61, 8),
        // 3.46 and 3.46, 4.9 and 2.4.
        (1, 1, 9),
        (2000, 1000, 8),
        // A side that would be less than a row has one; the other is the ratio, and no more than fits.
        (700, 20, 12),
        (20, 500, 12),
        (130, 20, 8),
    ] {
        let png = Picture::new("size", width, height).png();
        assert_eq!(n_rows(&*vision, &png).unwrap(), rows, "{width} x {height}");
        let image = vision.encode(&png).unwrap();
        assert_eq!((image.rows, image.grid), (rows, None));
        assert_eq!(image.embedding.len(), rows * OUT);
    }
    let line = Picture::new("line", 401, 2).png();
    let found = refused(&*vision, &line);
    assert!(found.starts_with("the image has 401 x 2 pixels"), "{found}");
}

/// The registry's Gemma 4 has its encoder in the file of the decoder, and all bounds in one tensor.
#[test]
fn an_encoder_within_the_file_of_gemma4_is_the_same() {
    let eyes = named("gemma4_eyes");
    let (mut file, encoder) = (eyes.decoder_file(), eyes.file());
    for (key, value) in encoder.metadata.iter() {
        if let Some(key) = key.strip_prefix("clip.vision.")
            && !matches!(key, "image_mean" | "image_std" | "image_size")
        {
            file.metadata
                .set(format!("gemma4.vision.{key}"), value.clone());
        }
    }
    let mut packed = Vec::new();
    for tensor in encoder.tensors {
        if tensor.name.ends_with("_min") || tensor.name.ends_with("_max") {
            let part = tensor.name.rsplit_once('.').unwrap().1.to_owned();
            packed.push((tensor.name, part, tensor.bytes));
        } else {
            file.tensors.push(tensor);
        }
    }
    let infinite = [-f32::INFINITY, f32::INFINITY].map(f32::to_le_bytes);
    let mut bytes = Vec::new();
    for layer in 0..3 {
        for matrix in "attn_q attn_k attn_v attn_out ffn_gate ffn_up ffn_down".split(' ') {
            for part in ["input_min", "input_max", "output_min", "output_max"] {
                let name = format!("v.blk.{layer}.{matrix}.{part}");
                let (_, _, value) = packed.iter().find(|(found, ..)| *found == name).unwrap();
                bytes.extend(value);
            }
        }
    }
    // The projector has none.
    bytes.extend(infinite.concat().repeat(2));
    file.tensors.push(crate::tiny::FileTensor {
        shape: vec![bytes.len() as u64 / 4],
        name: "v.clamp_data".into(),
        dtype: llmsrv_gguf::TensorType::F32,
        bytes,
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, file.bytes()).unwrap();
    let within = llmsrv_models::load(&path, &LoadOptions::default()).unwrap();
    let apart = load(eyes, "cpu");
    let png = Picture::new("within", 60, 45).png();
    let encode = |loaded: Loaded| loaded.vision.unwrap().encode(&png).unwrap();
    assert_eq!(encode(within).embedding, encode(apart).embedding);
}

#[test]
fn lies_of_a_projector_of_gemma4_are_named() {
    let load_error = |change: &dyn Fn(&mut crate::tiny::File)| load_error("gemma4_eyes", change);
    assert_eq!(load_error(&|_| {}), "none");
    let found = load_error(&|file| {
        file.tensor("v.position_embd.weight").shape = vec![32, 20, 4];
    });
    assert!(
        found.contains("20 rows, and an image may have 36"),
        "{found}"
    );
    let found = load_error(&|file| {
        file.tensor("v.position_embd.weight").shape = vec![32, 80];
    });
    assert!(found.contains("v.position_embd.weight"), "{found}");
    let found = load_error(&|file| {
        file.tensor("v.blk.1.attn_k.input_min").bytes = 9f32.to_le_bytes().to_vec();
    });
    assert!(found.contains("v.blk.1.attn_k takes 9 to"), "{found}");
    let found = load_error(&|file| {
        file.tensor("v.blk.1.ffn_down.output_max").bytes = f32::NAN.to_le_bytes().to_vec();
    });
    assert!(found.contains("v.blk.1.ffn_down takes"), "{found}");
    let found = load_error(&|file| {
        file.tensor("v.blk.2.attn_q_norm.weight").shape = vec![4, 2];
    });
    assert!(found.contains("v.blk.2.attn_q_norm.weight"), "{found}");
    let found = load_error(&|file| {
        file.metadata
            .set("clip.vision.projector.scale_factor", 9u32);
    });
    assert!(found.contains("9 of 8 patches become one row"), "{found}");
    // More rows than an image may ever have: the table is too short for them.
    let found = load_error(&|file| {
        file.metadata
            .set("clip.vision.image_max_pixels", 1u32 << 24);
    });
    assert!(found.contains("an image may have 3072"), "{found}");
}

/// The registry's Qwen2.5-VL has its encoder in the file of the decoder, under names of its own.
#[test]
fn an_encoder_within_the_file_of_qwen25vl_is_the_same() {
    let eyes = named("qwen25vl_eyes");
    let (mut file, encoder) = (eyes.decoder_file(), eyes.file());
    let keys: Vec<(String, llmsrv_gguf::Value)> = file
        .metadata
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("qwen2vl.")?.to_owned(), value.clone())))
        .collect();
    for (key, value) in keys {
        let key = key.replace("dimension_sections", "mrope_section");
        file.metadata.set(format!("qwen25vl.{key}"), value);
    }
    file.metadata.set("general.architecture", "qwen25vl");
    for key in [
        "patch_size",
        "embedding_length",
        "block_count",
        "window_size",
        "attention.head_count",
        "attention.layer_norm_epsilon",
    ] {
        let value = encoder.metadata.get(&format!("clip.vision.{key}")).unwrap();
        file.metadata
            .set(format!("qwen25vl.vision.{key}"), value.clone());
    }
    file.metadata
        .set("qwen25vl.vision.fullatt_block_indexes", vec![1i32]);
    for mut tensor in encoder.tensors {
        for (from, to) in [
            ("v.patch_embd.weight.1", "v.patch_embd_1.weight"),
            ("v.patch_embd.weight", "v.patch_embd_0.weight"),
            ("v.post_ln", "v.merger.ln_q"),
            ("mm.", "v.merger.mlp."),
        ] {
            if let Some(rest) = tensor.name.strip_prefix(from) {
                tensor.name = format!("{to}{rest}");
                break;
            }
        }
        file.tensors.push(tensor);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, file.bytes()).unwrap();
    let within = llmsrv_models::load(&path, &LoadOptions::default()).unwrap();

    // Its colours are not in the file but always these.
    let mut apart = eyes.file();
    let mean = vec![0.481_454_66f32, 0.457_827_5, 0.408_210_73];
    apart.metadata.set("clip.vision.image_mean", mean);
    let std = vec![0.268_629_54f32, 0.261_302_6, 0.275_777_1];
    apart.metadata.set("clip.vision.image_std", std);
    let apart = load_bytes(&eyes.decoder_file().bytes(), &apart.bytes(), "cpu").unwrap();
    let png = Picture::new("within", 60, 45).png();
    let encode = |loaded: Loaded| loaded.vision.unwrap().encode(&png).unwrap();
    let (within, apart) = (encode(within), encode(apart));
    assert_eq!(within.embedding, apart.embedding);
    assert_eq!(within.grid, apart.grid);
}

fn refused(vision: &dyn Vision, bytes: &[u8]) -> String {
    match vision.encode(bytes) {
        Err(ImageError::Invalid(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hostile_images_are_refused_before_they_cost_anything() {
    let vision = vision(named("mlp_plain"));
    let started = std::time::Instant::now();
    for (bytes, reason) in [
        (&b""[..], "not supported"),
        (b"hello", "not supported"),
        (b"\x89PNG\r\n\x1a\n", "cannot be decoded"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not supported"),
        // A header that claims 2^31 - 1 pixels on each side.
        (
            b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x02\0\0\0\x87\xbd\x5a\x10",
            "",
        ),
        (b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0", ""),
        (b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\xff\xff\xff\x7f\xff\xff\xff\x7f\x01\0\x18\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", ""),
    ] {
        let found = refused(&*vision, bytes);
        assert!(found.contains(reason), "{found}");
        assert!(!found.contains('\n'), "{found:?}");
    }
    // A bomb: a hundred million pixels of one colour in a few hundred kilobytes.
    let bomb = {
        let mut bytes = std::io::Cursor::new(Vec::new());
        let image = image::GrayImage::new(12_000, 9_000);
        image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        bytes.into_inner()
    };
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    let made = started.elapsed();
    let found = refused(&*vision, &bomb);
    assert!(
        found.starts_with("the image has 12000 x 9000 pixels"),
        "{found}"
    );
    assert!(started.elapsed() < made + std::time::Duration::from_secs(5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Damaged files give an image or a reason, in any case soon and without a panic.
    #[test]
    fn damaged_images_do_no_harm(
        format in 0usize..5,
        at in 0.0f64..1.0,
        flips in prop::collection::vec((0.0f64..1.0, any::<u8>()), 0..6),
    ) {
        use image::ImageFormat::{Bmp, Gif, Jpeg, Png, WebP};
        let mut bytes = Picture::new("damaged", 20, 30).file([Png, Jpeg, WebP, Gif, Bmp][format]);
        for (place, value) in flips {
            let place = (place * bytes.len() as f64) as usize;
            bytes[place] ^= value;
        }
        bytes.truncate((at * 1.3 * bytes.len() as f64) as usize);
        VISION.with(|vision| {
            if let Ok(image) = vision.encode(&bytes) {
                assert!(image.embedding.iter().all(|x| x.is_finite()));
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A projector of any kind with one number or one shape that is wrong: refused, or good enough to read an
    /// image, in any case soon and without a panic.
    #[test]
    fn wrong_numbers_of_a_projector_do_no_harm(
        which in 0..EYES.len(),
        (is_shape, place, dim) in (any::<bool>(), any::<prop::sample::Index>(), 0_usize..4),
        value in prop::sample::select(vec![
            0_u32, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 64, 65, 1000, 4096, 65_536, 1 << 24, 1 << 31, u32::MAX,
        ]),
    ) {
        let eyes = &EYES[which];
        let mut file = eyes.file();
        if is_shape {
            let n = file.tensors.len();
            let tensor = &mut file.tensors[place.index(n)];
            let (n_dims, before) = (tensor.shape.len(), tensor.shape.iter().product::<u64>());
            tensor.shape[dim % n_dims] = u64::from(value.clamp(1, 65));
            // As many elements as the shape says: else the file itself is refused.
            let bytes = tensor.bytes.len() as u64 / before * tensor.shape.iter().product::<u64>();
            tensor.bytes.resize(bytes as usize, 0);
        } else {
            let keys = file.metadata.iter().map(|(key, _)| key.to_owned());
            let is_number = |key: &String| file.metadata.u64(key).is_some();
            let keys: Vec<String> = keys.filter(is_number).collect();
            file.metadata.set(place.get(&keys).clone(), value);
        }
        // A version that is not known leaves the model good for text.
        if let Ok(loaded) = load_bytes(&eyes.decoder_file().bytes(), &file.bytes(), "cpu")
            && let Some(vision) = loaded.vision
        {
            let picture = Picture::new("wrong", 20, 30).png();
            // Tiles and enlarged images may have many rows; that they are bounded is enough.
            if n_rows(&*vision, &picture).is_ok_and(|rows| rows <= 300) {
                let image = vision.encode(&picture);
                prop_assert!(image.is_ok(), "{}: {:?}", eyes.name, image.err());
            }
        }
    }
}

thread_local! {
    static VISION: Arc<dyn Vision> = vision(named("mlp_plain"));
}

#[test]
fn lies_of_a_projector_file_are_named() {
    let error = |change: &dyn Fn(&mut crate::tiny::File)| load_error("mlp_plain", change);
    let set = |key: &'static str, value: u32| {
        move |file: &mut crate::tiny::File| file.metadata.set(key, value)
    };
    assert_eq!(error(&|_| {}), "none");
    for (key, value, words) in [
        (
            "clip.vision.image_size",
            0,
            "clip.vision.image_size is missing",
        ),
        ("clip.vision.image_size", 1 << 20, "too large"),
        (
            "clip.vision.image_size",
            56,
            "v.position_embd.weight has shape",
        ),
        ("clip.vision.patch_size", 29, "too large"),
        (
            "clip.vision.patch_size",
            14,
            "v.patch_embd.weight has shape",
        ),
        ("clip.vision.attention.head_count", 5, "5 heads"),
        ("clip.vision.block_count", 1 << 30, "too large"),
        ("clip.vision.block_count", 4, "v.blk.3"),
        ("clip.vision.embedding_length", 31, "31 elements"),
        ("clip.vision.feed_forward_length", 47, "v.blk.0.ffn_"),
    ] {
        let found = error(&|file| {
            if key == "clip.vision.block_count" {
                file.metadata.set("clip.vision.feature_layer", value);
            }
            set(key, value)(file);
        });
        assert!(found.contains(words), "{key} {value}: {found}");
        assert!(found.starts_with("invalid model file: "), "{found}");
    }
    let found = error(&|file| file.metadata.set("clip.vision.image_std", vec![0.0f32; 3]));
    assert!(found.contains("clip.vision.image_std"), "{found}");
    let found = error(&|file| file.tensors.retain(|tensor| tensor.name != "mm.2.bias"));
    assert_eq!(found, "none");
    let found = error(&|file| file.tensors.retain(|tensor| tensor.name != "mm.0.weight"));
    assert!(found.contains("mm.0.weight"), "{found}");
    // An unknown kind leaves the model good for text.
    let found = error(&|file| file.metadata.set("clip.projector_type", "adapter"));
    assert_eq!(found, "no vision");
}

/// What loading says of a projector file with a change.
fn load_error(eyes: &str, change: &dyn Fn(&mut crate::tiny::File)) -> String {
    let eyes = named(eyes);
    let mut file = eyes.file();
    change(&mut file);
    match load_bytes(&eyes.decoder_file().bytes(), &file.bytes(), "cpu") {
        Ok(loaded) if loaded.vision.is_none() => "no vision".into(),
        Ok(_) => "none".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn lies_of_a_projector_with_windows_are_named() {
    for (key, value, words) in [
        ("patch_size", 65, "too large"),
        ("patch_size", 14, "v.patch_embd.weight has shape"),
        ("spatial_merge_size", 9, "9 of 8 patches"),
        ("spatial_merge_size", 3, "mm.0.weight has shape"),
        ("window_size", 13, "clip.vision.window_size is 13"),
        ("n_wa_pattern", 0, "clip.vision.n_wa_pattern is missing"),
        ("attention.head_count", 16, "heads of 2 elements"),
        ("feed_forward_length", 47, "v.blk.0.ffn_"),
        ("feed_forward_length", 1 << 20, "hidden layers of 1048576"),
    ] {
        let found = load_error("qwen25vl_eyes", &|file| {
            file.metadata
                .set(format!("clip.vision.{key}"), value as u32);
        });
        assert!(found.contains(words), "{key} {value}: {found}");
        assert!(found.starts_with("invalid model file: "), "{found}");
        assert!(!found.contains('\n'), "{found:?}");
    }
    // A decoder that does not say which pairs turn by lines and columns reads no such rows.
    let eyes = named("qwen25vl_eyes");
    let mut decoder = eyes.decoder_file();
    let sections = |file: &mut crate::tiny::File, sections: &[i32]| {
        file.metadata
            .set("qwen2vl.rope.dimension_sections", sections.to_vec());
    };
    sections(&mut decoder, &[8, 0, 0, 0]);
    let loaded = load_bytes(&decoder.bytes(), &eyes.bytes(), "cpu").unwrap();
    assert!(loaded.vision.is_none());
    for wrong in [&[2, 3][..], &[2, 3, 4, 0], &[-1, 5, 4, 0], &[i32::MAX; 3]] {
        let mut decoder = eyes.decoder_file();
        sections(&mut decoder, wrong);
        let error = load_bytes(&decoder.bytes(), &eyes.bytes(), "cpu")
            .err()
            .unwrap();
        let error = error.to_string();
        let words = "qwen2vl.rope.dimension_sections is [";
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
}

/// The whole image is one tile, and the lines of rows that show something of it in tiles end in a row that
/// is always the same.
#[test]
fn images_are_seen_in_tiles_too() {
    let vision = vision(named("llava16_eyes"));
    for (width, height, lines, columns) in [
        (28, 28, 4, 4),
        (100, 50, 4, 8),
        (90, 90, 8, 8),
        (200, 30, 2, 12),
        // A line shows in no row.
        (600, 1, 0, 4),
    ] {
        let png = Picture::new("size", width, height).png();
        let rows = 16 + lines * (columns + 1);
        assert_eq!(n_rows(&*vision, &png).unwrap(), rows, "{width} x {height}");
        let image = vision.encode(&png).unwrap();
        assert_eq!((image.rows, image.grid, image.whole), (rows, None, false));
        assert_eq!(image.embedding.len(), rows * OUT);
        let newline = |line: usize| image.row(16 + line * (columns + 1) + columns);
        assert!((1..lines).all(|line| newline(line) == newline(0)));
    }
    assert!(n_rows(&*vision, b"hello").is_err() && vision.encode(b"hello").is_err());

    // Without that row, or with another way to put tiles together, the image is seen once.
    let eyes = named("llava16_eyes");
    let png = Picture::new("size", 28, 28).png();
    let twice = vision.encode(&png).unwrap();
    let [mut without, mut flat] = [eyes.file(), eyes.file()];
    without
        .tensors
        .retain(|tensor| tensor.name != "model.image_newline");
    flat.metadata.set("clip.vision.mm_patch_merge_type", "flat");
    for file in [without, flat] {
        let once = load_bytes(&eyes.decoder_file().bytes(), &file.bytes(), "cpu").unwrap();
        let once = once.vision.unwrap().encode(&png).unwrap();
        assert_eq!(once.rows, 16);
        assert_eq!(once.embedding, twice.embedding[..16 * OUT]);
    }
}

/// Each view has as many rows as there are queries; the views stand between marks, lines of slices end.
#[test]
fn images_are_seen_in_slices() {
    let vision = vision(named("minicpm_eyes"));
    // A view is about 28 x 28 pixels.
    for (width, height, across, down) in [
        (28, 28, 0, 0),
        (10, 90, 1, 3),
        (50, 33, 2, 1),
        (56, 56, 2, 2),
        (600, 300, 4, 2),
        (3000, 20, 9, 1),
    ] {
        let png = Picture::new("size", width, height).png();
        let image = vision.encode(&png).unwrap();
        let rows = 3 * (1 + across * down);
        assert_eq!(image.rows, rows, "{width} x {height}");
        assert_eq!((image.grid, image.whole), (None, false));
        assert_eq!(image.embedding.len(), rows * 4 * OUT);
        let slices = vec!["<slice>*</slice>".repeat(across); down].join("\n");
        let expected = format!("<image>*</image>{slices}\n");
        let layout = vision.layout(&png).unwrap().into_iter();
        let shown = layout.map(|part| match part {
            Part::Text(text) => text.into_owned(),
            Part::Rows(n) => "*".repeat(n / 3),
        });
        assert_eq!(shown.collect::<String>(), expected);
    }
    let line = Picture::new("line", 401, 2).png();
    let found = refused(&*vision, &line);
    assert!(found.starts_with("the image has 401 x 2 pixels"), "{found}");
    assert!(vision.layout(&line).is_err() && vision.layout(b"hello").is_err());
}

#[test]
fn lies_of_a_resampler_are_named() {
    assert_eq!(load_error("minicpm_eyes", &|_| {}), "none");
    let found = load_error("minicpm_eyes", &|file| {
        file.metadata.set("clip.minicpmv_version", 7u32);
    });
    assert_eq!(found, "no vision");
    for (key, value, words) in [
        ("image_size", 1 << 20, "too large"),
        ("image_size", 65 * 7, "65 patches on a side of a tile"),
        ("patch_size", 14, "v.patch_embd.weight has shape"),
        ("attention.head_count", 5, "5 heads"),
        ("feed_forward_length", 47, "v.blk.0.ffn_"),
        ("block_count", 4, "v.blk.3"),
    ] {
        let found = load_error("minicpm_eyes", &|file| {
            let key = format!("clip.vision.{key}");
            file.metadata.set(key, value as u32);
        });
        assert!(found.contains(words), "{key} {value}: {found}");
        assert!(found.starts_with("invalid model file: "), "{found}");
        assert!(!found.contains('\n'), "{found:?}");
    }
    for (name, shape, words) in [
        (
            "v.position_embd.weight",
            [32, 35],
            "no square grid: 35 rows",
        ),
        (
            "resampler.query",
            [256, 1025],
            "resampler.query has 1025 rows",
        ),
        ("resampler.query", [128, 3], "resampler.query has shape"),
        (
            "resampler.kv.weight",
            [64, 128],
            "resampler.kv.weight has shape",
        ),
        (
            "resampler.attn.k.bias",
            [128, 1],
            "resampler.attn.k.bias has shape",
        ),
        (
            "resampler.proj.weight",
            [256, 128],
            "resampler.proj.weight has shape",
        ),
    ] {
        let found = load_error("minicpm_eyes", &|file| {
            let tensor = file.tensor(name);
            tensor.shape = shape.to_vec();
            let n_elements: u64 = shape.iter().product();
            tensor.bytes.resize(4 * n_elements as usize, 0);
        });
        assert!(found.contains(words), "{name}: {found}");
    }
    for name in [
        "resampler.query",
        "resampler.ln_kv.weight",
        "resampler.attn.out.weight",
    ] {
        let found = load_error("minicpm_eyes", &|file| {
            file.tensors.retain(|tensor| tensor.name != name);
        });
        assert!(found.contains(name), "{name}: {found}");
    }
    // The heads of a resampler have 128 elements.
    let eyes = named("minicpm_eyes");
    let decoder = named("mlp_plain").decoder_file();
    let error = load_bytes(&decoder.bytes(), &eyes.bytes(), "cpu").err();
    let error = error.unwrap().to_string();
    assert!(error.contains("a resampler of 64 elements"), "{error}");
}

#[test]
fn lies_of_an_idefics_projector_are_named() {
    assert_eq!(load_error("idefics3_eyes", &|_| {}), "none");
    for (key, value, words) in [
        ("image_size", 0, "clip.vision.image_size is missing"),
        ("image_size", 66 * 7, "66 patches on a side of a tile"),
        ("image_size", 35, "2 of 5 patches on a side become one row"),
        ("image_size", 14, "v.position_embd.weight has shape"),
        ("patch_size", 14, "v.patch_embd.weight has shape"),
        ("projector.scale_factor", 4, "mm.model.fc.weight has shape"),
        (
            "projector.scale_factor",
            5,
            "5 of 4 patches on a side become one row",
        ),
        (
            "preproc_image_size",
            6 * 28 + 1,
            "more than 6 tiles of 28 pixels",
        ),
        (
            "preproc_image_size",
            1 << 30,
            "more than 6 tiles of 28 pixels",
        ),
        ("feed_forward_length", 47, "v.blk.0.ffn_"),
    ] {
        let found = load_error("idefics3_eyes", &|file| {
            let key = format!("clip.vision.{key}");
            file.metadata.set(key, value as u32);
        });
        assert!(found.contains(words), "{key} {value}: {found}");
        assert!(found.starts_with("invalid model file: "), "{found}");
        assert!(!found.contains('\n'), "{found:?}");
    }
    // A file that does not say how large images become has no tiles.
    let eyes = named("idefics3_eyes");
    let mut file = eyes.file();
    file.metadata.set("clip.vision.preproc_image_size", 0u32);
    let loaded = load_bytes(&eyes.decoder_file().bytes(), &file.bytes(), "cpu").unwrap();
    let png = Picture::new("alone", 90, 40).png();
    assert_eq!(n_rows(&*loaded.vision.unwrap(), &png).unwrap(), 4);
}

#[test]
fn lies_of_an_internvl_projector_are_named() {
    assert_eq!(load_error("internvl_eyes", &|_| {}), "none");
    for (key, value, words) in [
        ("image_size", 35, "2 of 5 patches on a side become one row"),
        ("image_size", 14, "v.position_embd.weight has shape"),
        ("projector.scale_factor", 4, "mm.1.weight has shape"),
        ("preproc_max_tiles", 17, "images have 1 to 17 tiles"),
        ("preproc_max_tiles", 1 << 31, "too large"),
        ("preproc_min_tiles", 5, "images have 5 to 4 tiles"),
        ("attention.head_count", 5, "5 heads"),
    ] {
        let found = load_error("internvl_eyes", &|file| {
            let key = format!("clip.vision.{key}");
            file.metadata.set(key, value as u32);
        });
        assert!(found.contains(words), "{key} {value}: {found}");
        assert!(found.starts_with("invalid model file: "), "{found}");
        assert!(!found.contains('\n'), "{found:?}");
    }
    for (name, words) in [
        ("v.blk.1.ls1.weight", "v.blk.1.ls1.weight has shape"),
        (
            "v.blk.2.attn_q_norm.weight",
            "v.blk.2.attn_q_norm.weight has shape",
        ),
        ("mm.0.weight", "mm.0.weight has shape"),
        ("v.class_embd", "v.class_embd has shape"),
    ] {
        let found = load_error("internvl_large_eyes", &|file| {
            let tensor = file.tensor(name);
            tensor.shape[0] /= 2;
            tensor.bytes.truncate(4 * tensor.shape[0] as usize);
        });
        assert!(found.contains(words), "{name}: {found}");
    }
}

#[test]
fn lies_of_a_llama4_projector_are_named() {
    assert_eq!(load_error("llama4_eyes", &|_| {}), "none");
    for (key, value, words) in [
        ("image_size", 35, "2 of 5 patches on a side become one row"),
        ("image_size", 14, "v.position_embd.weight has shape"),
        ("patch_size", 14, "v.patch_embd.weight has shape"),
        (
            "projector.scale_factor",
            4,
            "mm.model.mlp.1.weight has shape",
        ),
        (
            "projector.scale_factor",
            9,
            "9 of 4 patches on a side become one row",
        ),
        ("attention.head_count", 16, "heads of 2 elements"),
    ] {
        let found = load_error("llama4_eyes", &|file| {
            let key = format!("clip.vision.{key}");
            file.metadata.set(key, value as u32);
        });
        assert!(found.contains(words), "{key} {value}: {found}");
        assert!(found.starts_with("invalid model file: "), "{found}");
        assert!(!found.contains('\n'), "{found:?}");
    }
    for name in [
        "mm.model.mlp.2.weight",
        "mm.model.fc.weight",
        "v.position_embd.weight",
    ] {
        let found = load_error("llama4_eyes", &|file| {
            file.tensors.retain(|tensor| tensor.name != name);
        });
        assert!(found.contains(name), "{name}: {found}");
    }
}

#[test]
fn lies_of_an_encoder_without_layers_are_named() {
    assert_eq!(load_error("gemma4_unified_eyes", &|_| {}), "none");
    for (key, value, words) in [
        ("patch_size", 65, "too large"),
        ("patch_size", 14, "v.patch_embd.weight has shape"),
        ("projector.scale_factor", 2, "v.patch_embd.weight has shape"),
        (
            "projector.scale_factor",
            65,
            "65 of 9 patches become one row",
        ),
        ("embedding_length", 31, "v.patch_embd.weight has shape"),
        ("image_max_pixels", 1 << 24, "an image may have 1024"),
    ] {
        let found = load_error("gemma4_unified_eyes", &|file| {
            let key = format!("clip.vision.{key}");
            file.metadata.set(key, value as u32);
        });
        assert!(found.contains(words), "{key} {value}: {found}");
        assert!(found.starts_with("invalid model file: "), "{found}");
        assert!(!found.contains('\n'), "{found:?}");
    }
    for name in [
        "v.patch_norm.1.weight",
        "v.patch_norm.3.weight",
        "mm.input_projection.weight",
    ] {
        let found = load_error("gemma4_unified_eyes", &|file| {
            file.tensors.retain(|tensor| tensor.name != name);
        });
        assert!(found.contains(name), "{name}: {found}");
    }
}

/// A tile gives the rows that it would give as an image; here its sides are no whole number of patches.
#[test]
fn tiles_are_images_of_their_own() {
    let eyes = named("llava16_eyes");
    let mut file = eyes.file();
    file.metadata.set("clip.vision.image_size", 31u32);
    let sizes = vec![31, 62, 62, 31];
    file.metadata.set("clip.vision.image_grid_pinpoints", sizes);
    let loaded = load_bytes(&eyes.decoder_file().bytes(), &file.bytes(), "cpu").unwrap();
    let vision = loaded.vision.unwrap();
    let both = Picture::new("both", 31, 62);
    let halves: Vec<_> = both
        .pixels
        .chunks(31 * 31 * 3)
        .map(|pixels| {
            let (width, height, pixels) = (31, 31, pixels.to_vec());
            let half = Picture {
                width,
                height,
                pixels,
            };
            vision.encode(&half.png()).unwrap()
        })
        .collect();
    let both = vision.encode(&both.png()).unwrap();
    assert_eq!(both.rows, 16 + 8 * 5);
    for line in 0..8 {
        for column in 0..4 {
            let row = both.row(16 + line * 5 + column);
            assert_eq!(row, halves[line / 4].row(line % 4 * 4 + column));
        }
    }
}

#[test]
fn lies_about_tiles_are_named() {
    let sizes = |sizes: &[i32]| {
        let sizes = sizes.to_vec();
        load_error("llava16_eyes", &move |file| {
            let key = "clip.vision.image_grid_pinpoints";
            file.metadata.set(key, sizes.clone());
        })
    };
    assert_eq!(sizes(&[28, 56]), "none");
    assert_eq!(sizes(&[]), "none");
    for wrong in [
        &[28][..],
        &[28, 56, 28],
        &[28, 57],
        &[0, 28],
        &[-28, 28],
        &[28 * 17, 28],
        &[28 * 5, 28 * 4],
        &[i32::MAX, i32::MIN],
        &[28; 1000],
    ] {
        let found = sizes(wrong);
        assert!(
            found.contains("clip.vision.image_grid_pinpoints is not up to 64 sizes"),
            "{found}"
        );
        assert!(found.starts_with("invalid model file: "), "{found}");
        assert!(!found.contains('\n'), "{found:?}");
    }
    let found = load_error("llava16_eyes", &|file| {
        file.tensor("model.image_newline").shape = vec![8, 8];
    });
    assert!(found.contains("model.image_newline has shape"), "{found}");
}

/// Sides are filled up to whole rows, a longest side and a number of rows are not exceeded, and each line
/// of rows but the last ends in a break, if the file has one.
#[test]
fn lines_of_rows_end_in_breaks() {
    let loaded = |change: &dyn Fn(&mut crate::tiny::File)| {
        let eyes = named("mistral3_eyes");
        let mut file = eyes.file();
        change(&mut file);
        let loaded = load_bytes(&eyes.decoder_file().bytes(), &file.bytes(), "cpu").unwrap();
        loaded.vision.unwrap()
    };
    let larger = |file: &mut crate::tiny::File| {
        file.metadata.set("clip.vision.image_size", 1540u32);
    };
    let vision = loaded(&larger);
    let png = Picture::new("marks", 28, 28).png();
    assert_eq!(texts(&*vision, &png), ["", "[IMG_END]"]);
    for (width, height, columns, lines) in [
        (28, 28, 2, 2),
        (29, 28, 3, 2),
        (1, 1, 1, 1),
        (60, 6000, 2, 110),
        // A row is 14 pixels wide: of 110 x 110 rows no more than 1024 are made.
        (1540, 1540, 32, 32),
        (3000, 1500, 45, 22),
    ] {
        let png = Picture::new("size", width, height).png();
        let rows = n_rows(&*vision, &png).unwrap();
        assert_eq!(rows, (columns + 1) * lines - 1, "{width} x {height}");
        if rows < 300 {
            let image = vision.encode(&png).unwrap();
            assert_eq!((image.rows, image.grid), (rows, None));
            assert_eq!(image.embedding.len(), rows * OUT);
        }
    }
    let png = Picture::new("lines", 42, 40).png();
    let with = vision.encode(&png).unwrap();
    let without = loaded(&|file| {
        larger(file);
        let name = "v.token_embd.img_break";
        file.tensors.retain(|tensor| tensor.name != name);
    });
    let without = without.encode(&png).unwrap();
    assert_eq!((with.rows, without.rows), (11, 9));
    let lines: Vec<&[f32]> = [0, 1, 2, 4, 5, 6, 8, 9, 10].map(|row| with.row(row)).into();
    assert_eq!(lines.concat(), without.embedding);
    assert_eq!(with.row(3), with.row(7));
    // Fewer pixels, if the file wants it.
    let fewer = loaded(&|file| {
        larger(file);
        file.metadata
            .set("clip.vision.image_max_pixels", 14u32 * 14 * 4);
    });
    let png = Picture::new("fewer", 45, 45).png();
    assert_eq!(n_rows(&*fewer, &png).unwrap(), 2 * 2 + 1);
    let line = Picture::new("line", 401, 2).png();
    let found = refused(&*vision, &line);
    assert!(found.starts_with("the image has 401 x 2 pixels"), "{found}");
}

#[test]
fn lies_of_a_pixtral_projector_are_named() {
    let key = |eyes: &str, key: &str, value: u32| {
        let key = format!("clip.vision.{key}");
        load_error(eyes, &|file| file.metadata.set(key.clone(), value))
    };
    assert_eq!(load_error("mistral3_eyes", &|_| {}), "none");
    for (name, value, words) in [
        ("image_size", 0, "clip.vision.image_size is missing"),
        ("image_size", 1 << 20, "too large"),
        ("patch_size", 43, "too large"),
        ("patch_size", 14, "v.patch_embd.weight has shape"),
        ("spatial_merge_size", 9, "9 of 8 patches"),
        // Nothing is merged, as if the key were not there.
        ("spatial_merge_size", 0, "mm.patch_merger.weight has shape"),
        ("spatial_merge_size", 1, "mm.patch_merger.weight has shape"),
        ("attention.head_count", 16, "heads of 2 elements"),
        ("feed_forward_length", 47, "v.blk.0.ffn_"),
        ("block_count", 4, "v.blk.3"),
    ] {
        let found = key("mistral3_eyes", name, value);
        assert!(found.contains(words), "{name} {value}: {found}");
        assert!(found.starts_with("invalid model file: "), "{found}");
        assert!(!found.contains('\n'), "{found:?}");
    }
    let found = key("pixtral_eyes", "spatial_merge_size", 2);
    assert!(found.contains("mm.patch_merger.weight"), "{found}");
    for name in [
        "v.pre_ln.weight",
        "mm.1.weight",
        "mm.2.weight",
        "mm.input_norm.weight",
        "mm.patch_merger.weight",
        "v.blk.2.ffn_gate.weight",
        "v.blk.1.ln2.weight",
    ] {
        let found = load_error("mistral3_eyes", &|file| {
            file.tensors.retain(|tensor| tensor.name != name);
        });
        let missing = format!("tensor {name} is missing");
        assert!(found.contains(&missing), "{name}: {found}");
    }
    let found = load_error("mistral3_eyes", &|file| {
        file.tensor("v.token_embd.img_break").shape = vec![16, 4];
    });
    assert!(
        found.contains("v.token_embd.img_break has shape"),
        "{found}"
    );
}

/// An image with a side of less than a row is enlarged before anything else, and has at least eight rows.
#[test]
fn small_images_are_enlarged_for_glm_ocr() {
    let vision = vision(named("glmocr_eyes"));
    for (width, height, columns, lines) in [
        (28, 42, 3, 4),
        (56, 28, 4, 2),
        // 14 x 98 after the first step.
        (3, 21, 2, 8),
        (1, 1, 3, 3),
        // Made smaller.
        (1400, 700, 45, 22),
    ] {
        let png = Picture::new("size", width, height).png();
        assert_eq!(
            n_rows(&*vision, &png).unwrap(),
            columns * lines,
            "{width} x {height}"
        );
        if columns * lines < 100 {
            let grid = Grid {
                width: columns,
                height: lines,
            };
            assert_eq!(vision.encode(&png).unwrap().grid, Some(grid));
        }
    }
}

#[test]
fn lies_of_a_glm_projector_are_named() {
    let none = load_error("glmocr_eyes", &|_| {});
    assert_eq!(none, "none");
    for (key, value, words) in [
        ("patch_size", 65, "too large"),
        ("patch_size", 14, "v.patch_embd.weight has shape"),
        ("spatial_merge_size", 9, "9 of 8 patches"),
        ("spatial_merge_size", 3, "mm.patch_merger.weight has shape"),
        ("attention.head_count", 16, "heads of 2 elements"),
        ("attention.head_count", 2, "attn_q_norm.weight has shape"),
        ("feed_forward_length", 47, "v.blk.0.ffn_"),
        ("block_count", 4, "v.blk.3"),
    ] {
        let found = load_error("glmocr_eyes", &|file| {
            file.metadata
                .set(format!("clip.vision.{key}"), value as u32);
        });
        assert!(found.contains(words), "{key} {value}: {found}");
        assert!(found.starts_with("invalid model file: "), "{found}");
        assert!(!found.contains('\n'), "{found:?}");
    }
    for name in [
        "v.patch_embd.weight.1",
        "v.blk.1.attn_k_norm.weight",
        "v.post_ln.weight",
        "mm.patch_merger.weight",
        "mm.model.fc.weight",
        "mm.post_norm.weight",
        "mm.gate.weight",
    ] {
        let found = load_error("glmocr_eyes", &|file| {
            file.tensors.retain(|tensor| tensor.name != name);
        });
        let missing = format!("tensor {name} is missing");
        assert!(found.contains(&missing), "{name}: {found}");
    }
    let found = load_error("glmocr_eyes", &|file| {
        file.tensor("mm.up.weight").shape = vec![96, 128];
    });
    assert!(found.contains("mm.up.weight has shape"), "{found}");
    // The encoder of GLM 4.1V has a grid of positions, too: it leaves the model good for text.
    let found = load_error("glmocr_eyes", &|file| {
        let mut table = file.tensor("v.blk.0.attn_out.weight").clone();
        table.name = "v.position_embd.weight".into();
        file.tensors.push(table);
    });
    assert_eq!(found, "no vision");
    // A decoder whose pairs are not told apart reads no such rows, and one of other sizes nothing.
    let eyes = named("glmocr_eyes");
    let with = |sections: &[i32]| {
        let mut decoder = eyes.decoder_file();
        let key = "glm4.rope.dimension_sections";
        decoder.metadata.set(key, sections.to_vec());
        load_bytes(&decoder.bytes(), &eyes.bytes(), "cpu")
    };
    assert!(with(&[8, 0, 0, 0]).unwrap().vision.is_none());
    for wrong in [&[2, 3][..], &[2, 3, 4, 0], &[-1, 5, 4, 0], &[i32::MAX; 3]] {
        let error = with(wrong).err().unwrap().to_string();
        let words = "glm4.rope.dimension_sections is [";
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn lies_about_layers_on_the_way_are_named() {
    let flags = |flags: &[bool]| -> String {
        let flags = flags.to_vec();
        load_error("qwen3vl_eyes", &move |file| {
            file.metadata
                .set("clip.vision.is_deepstack_layers", flags.clone());
        })
    };
    assert_eq!(flags(&[true, true, false]), "none");
    let found = flags(&[true, false, false]);
    assert!(found.contains("1 further parts"), "{found}");
    let found = flags(&[true, false, true]);
    assert!(found.contains("v.deepstack.2"), "{found}");
    let found = flags(&[false, true, false, true]);
    assert!(
        found.contains("is_deepstack_layers names layers"),
        "{found}"
    );
    let found = load_error("qwen3vl_eyes", &|file| {
        file.tensor("v.position_embd.weight").shape = vec![16, 32];
    });
    assert!(found.contains("no square grid: 32 rows"), "{found}");
    // The decoder has three layers.
    let eyes = named("qwen3vl_eyes");
    let mut decoder = eyes.decoder_file();
    decoder.metadata.set("qwen3vl.n_deepstack_layers", 3u32);
    let error = load_bytes(&decoder.bytes(), &eyes.bytes(), "cpu").err();
    let error = error.unwrap().to_string();
    assert!(error.contains("n_deepstack_layers is 3 of 3"), "{error}");
}

/// The registry's Mistral Small 3.1 and Ministral 3 have their encoder in the file of the decoder, under
/// names of its own, with the pairs of queries and keys apart; lines end in the embedding of a token.
#[test]
fn an_encoder_within_the_file_of_mistral3_is_the_same() {
    let eyes = named("mistral3_eyes");
    let mut apart = eyes.file();
    let mean = vec![0.481_454_66f32, 0.457_827_5, 0.408_210_73];
    apart.metadata.set("clip.vision.image_mean", mean);
    let std = vec![0.268_629_54f32, 0.261_302_6, 0.275_777_1];
    apart.metadata.set("clip.vision.image_std", std);
    let (mut file, encoder) = (eyes.decoder_file(), eyes.file());
    for key in [
        "image_size",
        "patch_size",
        "embedding_length",
        "feed_forward_length",
        "block_count",
        "attention.head_count",
    ] {
        let value = encoder.metadata.get(&format!("clip.vision.{key}")).unwrap();
        let key = format!("mistral3.vision.{key}");
        file.metadata.set(key, value.clone());
    }
    let mut tokens: Vec<String> = ('!'..='~').map(|letter| letter.to_string()).collect();
    tokens.extend(["ab".into(), "<end>".into()]);
    tokens[12] = "[IMG_BREAK]".into();
    file.metadata.set("tokenizer.ggml.tokens", tokens);
    for mut tensor in encoder.tensors {
        if tensor.name == "v.token_embd.img_break" {
            continue;
        }
        if tensor.name.contains("attn_q") || tensor.name.contains("attn_k") {
            tensor.bytes = pairs_apart(&tensor.bytes, 4 * tensor.shape[0] as usize);
        }
        for (from, to) in [
            ("v.patch_embd", "v.patch_conv"),
            ("v.pre_ln", "v.encoder_norm"),
            ("attn_out", "attn_output"),
            ("ln1", "attn_norm"),
            ("ln2", "ffn_norm"),
            ("mm.1", "mm.linear_1"),
            ("mm.2", "mm.linear_2"),
            ("mm.input_norm", "mm.norm"),
            ("mm.patch_merger", "mm.patch_merger.merging_layer"),
        ] {
            tensor.name = tensor.name.replace(from, to);
        }
        file.tensors.push(tensor);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut load_within = |key: &str, value: u32| {
        file.metadata.set(format!("mistral3.{key}"), value);
        let file = crate::tiny::File {
            metadata: file.metadata.clone(),
            tensors: file.tensors.clone(),
        };
        fs::write(&path, file.bytes()).unwrap();
        llmsrv_models::load(&path, &LoadOptions::default())
    };
    let within = load_within("spatial_merge_size", 2).unwrap();
    let apart = load_bytes(&eyes.decoder_file().bytes(), &apart.bytes(), "cpu").unwrap();
    let png = Picture::new("within", 60, 45).png();
    let encode = |loaded: Loaded| loaded.vision.unwrap().encode(&png).unwrap();
    let (within, apart) = (encode(within), encode(apart));
    assert_eq!((within.rows, apart.rows), (3 * 3 + 2, 3 * 3 + 2));
    let off = difference(&within.embedding, &apart.embedding);
    assert!(off <= TOLERANCE, "{off}");

    // The longest edge is a side, not a number of pixels.
    let smaller = load_within("vision.longest_edge", 28).unwrap();
    assert_eq!(n_rows(&*smaller.vision.unwrap(), &png).unwrap(), 2 * 2 + 1);
    for (size, words) in [(3, "merging_layer.weight has shape"), (9, "9 of 8 patches")] {
        let error = load_within("spatial_merge_size", size).err().unwrap();
        let error = error.to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
}

/// Rows of a matrix for four heads, `row` bytes each, with the pairs that were neighbours half a head
/// apart.
fn pairs_apart(bytes: &[u8], row: usize) -> Vec<u8> {
    let head = bytes.len() / 4;
    let heads = bytes.chunks(head).flat_map(|head| {
        let rows: Vec<&[u8]> = head.chunks(row).collect();
        let firsts = rows.iter().step_by(2);
        let seconds = rows.iter().skip(1).step_by(2);
        firsts.chain(seconds).copied().collect::<Vec<&[u8]>>()
    });
    heads.collect::<Vec<&[u8]>>().concat()
}

/// The registry's GLM-OCR has its encoder in the file of the decoder, almost under the usual names; its
/// limits count the pixels of both frames.
#[test]
fn an_encoder_within_the_file_of_glmocr_is_the_same() {
    let eyes = named("glmocr_eyes");
    let (mut file, encoder) = (eyes.decoder_file(), eyes.file());
    let keys: Vec<(String, llmsrv_gguf::Value)> = file
        .metadata
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("glm4.")?.to_owned(), value.clone())))
        .collect();
    for (key, value) in keys {
        let key = key.replace("dimension_sections", "mrope_section");
        file.metadata.set(format!("glmocr.{key}"), value);
    }
    file.metadata.set("general.architecture", "glmocr");
    for (theirs, ours) in [
        ("patch_size", "patch_size"),
        ("embedding_length", "embedding_length"),
        ("block_count", "block_count"),
        ("intermediate_size", "feed_forward_length"),
        ("attention.head_count", "attention.head_count"),
        (
            "attention.layer_norm_rms_epsilon",
            "attention.layer_norm_epsilon",
        ),
        ("image_mean", "image_mean"),
        ("image_std", "image_std"),
    ] {
        let value = encoder.metadata.get(&format!("clip.vision.{ours}"));
        let value = value.unwrap().clone();
        file.metadata.set(format!("glmocr.vision.{theirs}"), value);
    }
    for mut tensor in encoder.tensors {
        for (from, to) in [
            ("v.patch_embd.weight.1", "v.patch_embd_1.weight"),
            ("v.patch_embd.weight", "v.patch_embd_0.weight"),
        ] {
            if tensor.name == from {
                tensor.name = to.into();
            }
        }
        file.tensors.push(tensor);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let load_within = |file: &crate::tiny::File| {
        let file = crate::tiny::File {
            metadata: file.metadata.clone(),
            tensors: file.tensors.clone(),
        };
        fs::write(&path, file.bytes()).unwrap();
        let loaded = llmsrv_models::load(&path, &LoadOptions::default()).unwrap();
        loaded.vision.unwrap()
    };
    let within = load_within(&file);
    let apart = vision(eyes);
    let png = Picture::new("within", 60, 45).png();
    let found = within.encode(&png).unwrap();
    let expected = apart.encode(&png).unwrap();
    assert_eq!(found.embedding, expected.embedding);
    assert_eq!(found.grid, expected.grid);
    let marks = ["<|begin_of_image|>", "<|end_of_image|>"];
    assert_eq!(texts(&*within, &png), marks);

    let row = 14 * 14;
    for (key, n, expected) in [
        ("min_pixels", 20, 24),
        ("min_pixels", 1, 12),
        ("max_pixels", 6, 4),
    ] {
        let key = format!("glmocr.vision.{key}");
        file.metadata.set(key, 2 * n * row as u32);
        assert_eq!(n_rows(&*load_within(&file), &png).unwrap(), expected);
    }
}

/// The registry's Qwen3-VL has its encoder in the file of the decoder, under names of its own.
#[test]
fn an_encoder_within_the_file_of_qwen3vl_is_the_same() {
    let eyes = named("qwen3vl_eyes");
    let (mut file, encoder) = (eyes.decoder().file(), eyes.file());
    for key in [
        "patch_size",
        "embedding_length",
        "block_count",
        "attention.head_count",
        "attention.layer_norm_epsilon",
        "image_mean",
        "image_std",
    ] {
        let value = encoder.metadata.get(&format!("clip.vision.{key}")).unwrap();
        file.metadata
            .set(format!("qwen3vl.vision.{key}"), value.clone());
    }
    let key = "qwen3vl.vision.deepstack_visual_indexes";
    file.metadata.set(key, vec![0i32, 1]);
    // Both frames lie in one tensor, those of each colour beside each other.
    let frame = |name: &str| {
        let mut tensors = encoder.tensors.iter();
        tensors.find(|tensor| tensor.name == name).unwrap()
    };
    let frames = [frame("v.patch_embd.weight"), frame("v.patch_embd.weight.1")];
    let mut both = frames[0].clone();
    both.name = "v.patch_embed.weight".into();
    both.shape = vec![both.shape[0], both.shape[1], 2, 3 * both.shape[3]];
    let colour = (4 * both.shape[0] * both.shape[1]) as usize;
    let colours = frames[0]
        .bytes
        .chunks(colour)
        .zip(frames[1].bytes.chunks(colour));
    both.bytes = colours.flat_map(|(one, two)| [one, two].concat()).collect();
    file.tensors.push(both);
    for tensor in &encoder.tensors {
        if tensor.name.starts_with("v.patch_embd.weight") {
            continue;
        }
        let mut tensor = tensor.clone();
        for (from, to) in [
            ("v.patch_embd", "v.patch_embed"),
            ("v.position_embd", "v.pos_embed"),
            ("v.post_ln", "v.merger.norm"),
            ("mm.0", "v.merger.linear_fc1"),
            ("mm.2", "v.merger.linear_fc2"),
            (".fc1", ".linear_fc1"),
            (".fc2", ".linear_fc2"),
            ("v.deepstack", "v.deepstack_merger"),
            ("ln1", "norm1"),
            ("ln2", "norm2"),
            ("ffn_up", "mlp.linear_fc1"),
            ("ffn_down", "mlp.linear_fc2"),
        ] {
            tensor.name = tensor.name.replace(from, to);
        }
        file.tensors.push(tensor);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, file.bytes()).unwrap();
    let within = llmsrv_models::load(&path, &LoadOptions::default()).unwrap();
    let png = Picture::new("within", 60, 45).png();
    let encode = |loaded: Loaded| loaded.vision.unwrap().encode(&png).unwrap();
    let (within, apart) = (encode(within), encode(load(eyes, "cpu")));
    assert_eq!(within.embedding, apart.embedding);
}

#[test]
#[ignore = "writes the input of fixtures/make_vision.py"]
fn write_eyes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny-eyes");
    fs::create_dir_all(&folder).unwrap();
    for eyes in EYES {
        let write = |end: &str, bytes: &[u8]| {
            fs::write(folder.join(format!("{}.{end}", eyes.name)), bytes).unwrap();
        };
        write("gguf", &eyes.decoder_file().bytes());
        write("mmproj", &eyes.bytes());
        let vision = vision(eyes);
        let pictures = pictures().into_iter().map(|picture| InputPicture {
            tokens: Prompt::about(&*vision, &picture).of_image().to_vec(),
            width: picture.width,
            height: picture.height,
            pixels: picture.pixels,
        });
        let inputs = Inputs {
            before: BEFORE.to_vec(),
            after: AFTER.to_vec(),
            pictures: pictures.collect(),
        };
        write("json", &serde_json::to_vec(&inputs).unwrap());
    }
    println!("{}", folder.display());
}

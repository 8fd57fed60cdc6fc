//! How long encoders of published sizes take for an image of a megapixel.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use llmsrv_engine::{ActivationPrecision, LoadOptions, Vision};
use llmsrv_gguf::TensorType;

use crate::tiny::encode;
use crate::vision_files::{Dims, EYES, Eyes, Picture, TINY};

/// A published model, the tiny one that stands for its kind, and its sizes.
type Published = (&'static str, &'static str, Dims);

const CLIP: Dims = Dims {
    image: 336,
    patch: 14,
    width: 1024,
    hidden: 4096,
    layers: 23,
    heads: 16,
    out: 4096,
    ..TINY
};
const SIGLIP: Dims = Dims {
    width: 1152,
    hidden: 4304,
    layers: 27,
    ..CLIP
};

const PUBLISHED: [Published; 11] = [
    ("LLaVA 1.5 7B", "mlp_class", CLIP),
    (
        "Gemma 3 4B",
        "gemma3_eyes",
        Dims {
            image: 896,
            out: 2560,
            squares: 4,
            ..SIGLIP
        },
    ),
    (
        "Qwen2.5-VL 7B",
        "qwen25vl_eyes",
        Dims {
            width: 1280,
            hidden: 3420,
            layers: 32,
            out: 3584,
            ..CLIP
        },
    ),
    (
        "Qwen3-VL 4B",
        "qwen3vl_eyes",
        Dims {
            // A grid of 48 x 48 positions.
            image: 768,
            patch: 16,
            layers: 24,
            out: 2560,
            ..CLIP
        },
    ),
    (
        "Mistral Small 3.1",
        "mistral3_eyes",
        Dims {
            layers: 24,
            out: 5120,
            longest: 1540,
            ..CLIP
        },
    ),
    (
        "GLM-OCR",
        "glmocr_eyes",
        Dims {
            layers: 24,
            out: 1536,
            ..CLIP
        },
    ),
    (
        "Gemma 4 E4B",
        "gemma4_eyes",
        Dims {
            patch: 16,
            width: 768,
            hidden: 3072,
            layers: 16,
            heads: 12,
            out: 2560,
            rows: 280,
            ..CLIP
        },
    ),
    (
        "MiniCPM-V 2.6",
        "minicpm_eyes",
        Dims {
            image: 448,
            out: 3584,
            grid: 70,
            queries: 64,
            ..SIGLIP
        },
    ),
    (
        "SmolVLM 500M",
        "idefics3_eyes",
        Dims {
            image: 512,
            patch: 16,
            width: 768,
            hidden: 3072,
            layers: 12,
            heads: 12,
            out: 960,
            squares: 4,
            tiles: 4,
            ..CLIP
        },
    ),
    (
        "InternVL 3 2B",
        "internvl_eyes",
        Dims {
            image: 448,
            layers: 24,
            out: 1536,
            // And one.
            tiles: 11,
            ..CLIP
        },
    ),
    (
        "Llama 4 Scout",
        "llama4_eyes",
        Dims {
            width: 1408,
            hidden: 5632,
            layers: 34,
            out: 5120,
            ..CLIP
        },
    ),
];

/// Patches of each view of an image that became `rows` rows.
fn views(eyes: &Eyes, rows: usize) -> Vec<usize> {
    let dims = &eyes.dims;
    let side = dims.image / dims.patch;
    let n_class = usize::from(eyes.class);
    match eyes.projector {
        "mlp" | "gemma3" => vec![side * side + n_class],
        // 504 x 392 pixels, and six slices of 420 x 476.
        "resampler" => [&[36 * 28][..], &[30 * 34; 6]].concat(),
        "idefics3" | "internvl" | "llama4" => {
            let rows_of_view = (side / eyes.merge()).pow(2);
            vec![side * side + n_class; rows / rows_of_view]
        }
        // A line of rows in Mistral Small ends in one that is no patch.
        "pixtral" => vec![(1152_usize.div_ceil(28) * 896_usize.div_ceil(28)) * 4],
        _ => vec![rows * eyes.merge().pow(2)],
    }
}

/// Seconds that the threads of this process have computed; 0 where the system does not say.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = behind_name.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// CLIP ViT-L/14-336 and SigLIP so400m/14-896 in files that stay in `target/tmp/eyes`, for other programs.
fn large(idx: usize, dtype: TensorType) -> (&'static str, [PathBuf; 2]) {
    let (name, tiny, dims) = PUBLISHED[idx];
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("eyes");
    fs::create_dir_all(&folder).unwrap();
    let paths = ["gguf", "mmproj"].map(|ending| folder.join(format!("{tiny}-{dtype}.{ending}")));
    if !paths[1].exists() {
        let known = EYES.iter().find(|eyes| eyes.name == tiny).unwrap();
        let eyes = Eyes {
            dims,
            dtype,
            // Published files have the usual names.
            exchanged: false,
            ..*known
        };
        let mut projector = eyes.file();
        // So it is published, and llama.cpp takes no other type.
        let positions = projector.tensor("v.position_embd.weight");
        let values = eyes.values(&positions.name, &positions.shape);
        positions.dtype = TensorType::F32;
        positions.bytes = encode(positions.dtype, &values);
        fs::write(&paths[0], eyes.decoder_file().bytes()).unwrap();
        fs::write(&paths[1], projector.bytes()).unwrap();
    }
    (name, paths)
}

fn encoder([model, projector]: &[PathBuf; 2], precision: ActivationPrecision) -> Arc<dyn Vision> {
    let options = LoadOptions {
        projector: Some(projector.clone()),
        activation_precision: precision,
        ..LoadOptions::default()
    };
    let loaded = llmsrv_models::load(model, &options).unwrap();
    loaded.vision.unwrap()
}

/// Encodes several images with each arithmetic, and reports the times of each.
fn take(idx: usize, report: impl Fn(String)) {
    for dtype in [TensorType::F16, TensorType::Q8_0] {
        let (name, paths) = large(idx, dtype);
        for precision in [
            ActivationPrecision::Auto,
            ActivationPrecision::Int16,
            ActivationPrecision::Int8,
        ] {
            let vision = encoder(&paths, precision);
            for round in 0..3 {
                let png = Picture::new(&format!("round {round}"), 1152, 896).png();
                let (started, cpu) = (Instant::now(), cpu_seconds());
                let image = vision.encode(&png).unwrap();
                report(format!(
                    "{name} {dtype} {precision:?}: {} rows, {:.2} s, {:.2} s of CPUs",
                    image.rows,
                    started.elapsed().as_secs_f64(),
                    cpu_seconds() - cpu
                ));
            }
        }
    }
}

#[test]
#[ignore = "a benchmark for docs/performance/figures.md: prints times, takes minutes, and asserts no time"]
fn clip_takes() {
    take(0, |line| println!("{line}"));
}

#[test]
#[ignore = "a benchmark for docs/performance/figures.md: prints times, takes minutes, and asserts no time"]
fn siglip_takes() {
    take(1, |line| println!("{line}"));
}

/// Cosines between rows, and how far the rows are off, of coarser arithmetic and of the exact one.
#[test]
#[ignore = "a benchmark for docs/performance/figures.md: prints times, takes minutes, and asserts no time"]
fn coarser_arithmetic_changes_rows_by() {
    let picture = Picture::new("precise", 1152, 896);
    for dtype in [TensorType::F16, TensorType::BF16, TensorType::Q8_0] {
        let (name, paths) = large(0, dtype);
        let encode = |precision| encoder(&paths, precision).encode(&picture.png()).unwrap();
        let exact = encode(ActivationPrecision::F32);
        for precision in [
            ActivationPrecision::Int16,
            ActivationPrecision::Auto,
            ActivationPrecision::Int8,
        ] {
            let found = encode(precision);
            let width = exact.embedding.len() / exact.rows;
            let rows = exact
                .embedding
                .chunks(width)
                .zip(found.embedding.chunks(width));
            let (mut least, mut sum, mut off) = (1.0_f64, 0.0, 0.0_f64);
            for (exact, found) in rows {
                let dot = |a: &[f32], b: &[f32]| -> f64 {
                    let pairs = a.iter().zip(b);
                    pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
                };
                let lengths = (dot(exact, exact) * dot(found, found)).sqrt();
                let cosine = dot(exact, found) / lengths;
                (least, sum) = (least.min(cosine), sum + cosine);
                let differences: Vec<f32> = exact.iter().zip(found).map(|(a, b)| a - b).collect();
                off = off.max((dot(&differences, &differences) / dot(exact, exact)).sqrt());
            }
            println!(
                "{name} {dtype} {precision:?}: 1 - cosine {:.1e} in the mean, {:.1e} at most; off by {off:.1e}",
                1.0 - sum / exact.rows as f64,
                1.0 - least
            );
        }
    }
}

#[test]
#[ignore = "a benchmark for docs/performance/figures.md: prints times, takes minutes, and asserts no time"]
fn an_image_of_a_megapixel_takes() {
    let png = Picture::new("megapixel", 1152, 896).png();
    for (name, tiny, dims) in &PUBLISHED {
        let known = EYES.iter().find(|eyes| eyes.name == *tiny).unwrap();
        let eyes = Eyes {
            dims: *dims,
            dtype: TensorType::F16,
            ..*known
        };
        let file = eyes.file();
        let in_layers = file
            .tensors
            .iter()
            .filter(|tensor| tensor.name.starts_with("v.blk.") && tensor.shape.len() == 2);
        let n_weights: u64 = in_layers.map(|t| t.shape.iter().product::<u64>()).sum();
        let folder = tempfile::tempdir().unwrap();
        let [model, projector] = ["model", "mmproj"].map(|name| folder.path().join(name));
        fs::write(&model, eyes.decoder_file().bytes()).unwrap();
        fs::write(&projector, file.bytes()).unwrap();
        let options = LoadOptions {
            n_threads: std::thread::available_parallelism().unwrap().get(),
            projector: Some(projector),
            ..LoadOptions::default()
        };
        let loaded = llmsrv_models::load(&model, &options).unwrap();
        let vision = loaded.vision.unwrap();
        let started = Instant::now();
        let image = vision.encode(&png).unwrap();
        let seconds = started.elapsed().as_secs_f64();
        let views = views(&eyes, image.rows);
        let n_patches: usize = views.iter().sum();
        // Seven of eight layers of Qwen2.5-VL see windows of 64 patches.
        let pairs = views.iter().map(|n| match eyes.projector {
            "qwen2.5vl_merger" => (7 * n * 64 + n * n) / 8,
            _ => n * n,
        });
        let pairs: usize = pairs.sum();
        let products = 2.0 * n_weights as f64 * n_patches as f64;
        let attention = 4.0 * (dims.width * dims.layers) as f64 * pairs as f64;
        println!(
            "{name}: {n_patches} patches, {} rows, {:.0} ms, {:.1} GFLOP/s",
            image.rows,
            1e3 * seconds,
            (products + attention) / seconds / 1e9
        );
    }
}

//! The kernels in WGSL compile to the SPIR-V in `src/spirv`, one module for each.
//!
//! After a change: `GENERATE=1 cargo test -p llmsrv-gpu --test it spirv`

use std::{collections::BTreeMap, error::Error, fs, path::Path, process::Command};

use naga::{
    Module, ShaderStage,
    back::spv,
    compact::{KeepUnused, compact},
    front::wgsl,
    valid,
};

use crate::committed::assert_committed;

/// Formats of blocks: name in the shaders, the function that says which inputs belong to a unit, weights and
/// bytes of a block.
const BLOCKS: [(&str, &str, u32, u32); 25] = [
    ("q4_0", "in_halves", 32, 18),
    ("q4_1", "in_halves", 32, 20),
    ("q5_0", "in_halves", 32, 22),
    ("q5_1", "in_halves", 32, 24),
    ("q8_0", "in_order", 32, 34),
    ("q4_k", "in_pairs_of_32", 256, 144),
    ("q5_k", "in_pairs_of_32", 256, 176),
    ("q6_k", "in_pairs_of_64", 256, 210),
    ("q2_k", "in_pairs_of_32", 256, 84),
    ("q3_k", "in_pairs_of_32", 256, 110),
    ("iq4_nl", "in_halves", 32, 18),
    ("iq4_xs", "in_halves", 256, 136),
    ("mxfp4", "in_halves", 32, 17),
    ("tq2_0", "in_pairs_of_32", 256, 66),
    ("tq1_0", "in_order", 256, 54),
    ("iq1_s", "in_order", 256, 50),
    ("iq1_m", "in_order", 256, 56),
    ("iq2_xxs", "in_order", 256, 66),
    ("iq2_xs", "in_order", 256, 74),
    ("iq2_s", "in_order", 256, 82),
    ("iq3_xxs", "in_order", 256, 98),
    ("iq3_s", "in_order", 256, 110),
    ("q1_0", "in_order", 128, 18),
    ("q2_0", "in_order", 64, 18),
    ("nvfp4", "in_pairs_of_8", 64, 36),
];
/// Formats with integer products: name, weights and bytes of a block, and which marked lines of the kernels are theirs.
const INT8: [(&str, u32, u32, &[&str]); 13] = [
    ("q4_0", 32, 18, &["plain"]),
    ("q4_1", 32, 20, &["plain", "minimum"]),
    ("q5_0", 32, 22, &["plain"]),
    ("q5_1", 32, 24, &["plain", "minimum"]),
    ("q8_0", 32, 34, &["plain"]),
    ("iq4_nl", 32, 18, &["plain"]),
    ("mxfp4", 32, 17, &["plain"]),
    ("q2_k", 256, 84, &["scaled", "minimums"]),
    ("q3_k", 256, 110, &["scaled"]),
    ("q4_k", 256, 144, &["scaled", "minimums"]),
    ("q5_k", 256, 176, &["scaled", "minimums"]),
    ("q6_k", 256, 210, &["scaled"]),
    ("iq4_xs", 256, 136, &["scaled"]),
];
/// Marks of lines that some formats have.
const MARKS: [&str; 4] = ["plain", "scaled", "minimum", "minimums"];
/// Rows of a workgroup of integer products of many rows, and those of them that a lane computes.
const TILE: [u32; 2] = [32, 4];
/// Formats of single values, with their bytes.
const VALUES: [(&str, u32); 3] = [("f32", 4), ("f16", 2), ("bf16", 2)];
/// How keys and values may be kept that attention reads.
const KEPT: [&str; 3] = ["f16", "f32", "q8_0"];
/// Rows of a product that a workgroup computes together. The bits of a row are the same with each.
const ROWS: [u32; 2] = [1, 8];

#[test]
fn committed_modules_are_what_the_shaders_compile_to() {
    let modules = modules().unwrap();
    assert!(modules.len() > 60, "{}", modules.len());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/spirv");
    assert_committed(&folder, "shaders/", "pub(crate)", modules);
}

/// Another program than naga says so.
#[test]
fn modules_are_valid_for_vulkan() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("spirv");
    fs::create_dir_all(&folder).unwrap();
    for (name, words) in modules().unwrap() {
        let path = folder.join(&name);
        fs::write(&path, bytemuck::cast_slice::<u32, u8>(&words)).unwrap();
        let mut command = Command::new("spirv-val");
        let output = command.args(["--target-env", "vulkan1.1"]).arg(path);
        let output = output.output().expect("spirv-val, of spirv-tools");
        assert!(output.status.success(), "{name}: {output:?}");
    }
}

/// Compiles all kernels; returns the words of each.
fn modules() -> Result<BTreeMap<String, Vec<u32>>, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| fs::read_to_string(root.join(format!("shaders/{name}.wgsl")));
    let prelude = read("prelude")?;
    let mut modules = BTreeMap::new();
    for file in [
        "norms",
        "elements",
        "attention",
        "states",
        "experts",
        "quantize",
        "probe",
    ] {
        for kept in KEPT {
            let source = (prelude.clone() + &read(file)?).replace("KEPT", kept);
            let parsed = parse(&source)?;
            for entry in &parsed.entry_points {
                // Whole sequences have rows enough for all workgroups.
                if entry.name != "attend_part_f32" && !modules.contains_key(&entry.name) {
                    modules.insert(entry.name.clone(), compile(&parsed, &entry.name)?);
                }
            }
        }
    }
    let common = prelude + &read("product")? + &read("formats")?;
    let (floats, quants) = (read("matmul")?, read("quants")?);
    let (few, many) = (read("dots")?, read("tiles")?);
    let [tile_rows, of_lane] = TILE;
    for (format, block_len, block_bytes, marks) in INT8 {
        let kinds = [
            (&few, 1, 1, "dots"),
            (&few, 8, 8, "dots"),
            (&many, tile_rows, of_lane, "tiles_of_rows"),
        ];
        for (source, n_rows, n_each, entry) in kinds {
            let source = repeated(&marked(source, marks), n_each);
            let source = format!("{common}{quants}{source}")
                .replace("TOKENS", &format!("{n_rows}u"))
                .replace("SIXTEEN", &format!("{format}_sixteen"))
                .replace("SCALES", &format!("{format}_scales"))
                .replace("BLOCK_LEN", &format!("{block_len}u"))
                .replace("BLOCK_BYTES", &format!("{block_bytes}u"));
            let words = compile(&parse(&source)?, entry)?;
            modules.insert(format!("dot_{format}_{n_rows}"), words);
        }
    }
    let product = common + &floats;
    for n_rows in ROWS {
        let product = repeated(&product, n_rows).replace("TOKENS", &format!("{n_rows}u"));
        for (format, inputs, block_len, block_bytes) in BLOCKS {
            let source = product
                .replace("UNPACK", format)
                .replace("INPUTS", inputs)
                .replace("BLOCK_LEN", &format!("{block_len}u"))
                .replace("BLOCK_BYTES", &format!("{block_bytes}u"));
            let words = compile(&parse(&without(&source, "values"))?, "blocks")?;
            modules.insert(format!("{format}_{n_rows}"), words);
        }
        for (format, bytes) in VALUES {
            let source = product
                .replace("UNPACK", &format!("{format}_value"))
                .replace("BLOCK_LEN", "1u")
                .replace("BLOCK_BYTES", &format!("{bytes}u"));
            let words = compile(&parse(&without(&source, "blocks"))?, "values")?;
            modules.insert(format!("{format}_{n_rows}"), words);
        }
    }
    Ok(modules)
}

/// Leaves out the lines that end in `//` and a mark that is not among `marks`. What else is at the end of a line stays.
fn marked(source: &str, marks: &[&str]) -> String {
    let is_kept = |line: &&str| {
        let ends = line.split(" //").skip(1).map(str::trim);
        ends.filter(|end| MARKS.contains(end))
            .all(|end| marks.contains(&end))
    };
    let lines = source.lines().filter(is_kept).map(|line| {
        MARKS.iter().fold(line.to_owned(), |line, mark| {
            line.replace(&format!(" //{mark} //each"), " //each")
        })
    });
    lines.map(|line| line + "\n").collect()
}

/// Repeats the lines that end in `//each` for rows `0..n`, with the row's number for `$`.
fn repeated(source: &str, n: u32) -> String {
    let mut out = String::new();
    for line in source.lines() {
        match line.strip_suffix("//each") {
            None => out += line,
            Some(line) => (0..n).for_each(|row| out += &line.replace('$', &row.to_string())),
        }
        out.push('\n');
    }
    out
}

/// Returns the source without the entry point `name`, which ends with the first brace at the start of a line.
fn without(source: &str, name: &str) -> String {
    let start = format!("@compute @workgroup_size(32, 4)\nfn {name}(");
    match source.split_once(&start) {
        Some((before, rest)) => {
            let after = rest.split_once("\n}\n").map_or("", |(_, after)| after);
            format!("{before}{after}")
        }
        None => source.to_owned(),
    }
}

fn parse(source: &str) -> Result<Module, Box<dyn Error>> {
    wgsl::parse_str(source).map_err(|error| error.emit_to_string(source).into())
}

/// Compiles one entry point and what it uses.
fn compile(module: &Module, entry: &str) -> Result<Vec<u32>, Box<dyn Error>> {
    let mut module = module.clone();
    module.entry_points.retain(|point| point.name == entry);
    compact(&mut module, KeepUnused::No);
    let mut validator = valid::Validator::new(
        valid::ValidationFlags::all(),
        valid::Capabilities::IMMEDIATES | valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32,
    );
    let info = validator
        .validate(&module)
        .map_err(|error| format!("{entry}: {}", error.emit_to_string("")))?;
    let options = spv::Options {
        // What every driver of Vulkan 1.1 takes.
        lang_version: (1, 3),
        // Names of variables are not needed: they were a tenth of the modules.
        flags: spv::WriterFlags::empty(),
        force_loop_bounding: false,
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        emit_int_div_checks: false,
        ..spv::Options::default()
    };
    let pipeline = spv::PipelineOptions {
        shader_stage: ShaderStage::Compute,
        entry_point: entry.to_owned(),
    };
    let words = spv::write_vec(&module, &info, &options, Some(&pipeline))?;
    Ok(without_contraction(words))
}

/// Forbids drivers to join products and sums to one operation: whether they do would depend on the driver and on the
/// code around.
fn without_contraction(words: Vec<u32>) -> Vec<u32> {
    // Opcodes of the specification of SPIR-V.
    const HEADER: usize = 5;
    const OP_DECORATE: u32 = 71;
    // OpFAdd, OpFSub, OpFMul, OpVectorTimesScalar.
    const SUMS_AND_PRODUCTS: [u32; 4] = [129, 131, 133, 142];
    const NO_CONTRACTION: u32 = 42;
    let mut decorations = Vec::new();
    let mut first_decoration = None;
    let mut at = HEADER;
    while let Some(word) = words.get(at) {
        let (len, opcode) = ((word >> 16) as usize, word & 0xffff);
        if opcode == OP_DECORATE {
            first_decoration.get_or_insert(at);
        }
        if let (true, Some(id)) = (SUMS_AND_PRODUCTS.contains(&opcode), words.get(at + 2)) {
            decorations.extend([3 << 16 | OP_DECORATE, *id, NO_CONTRACTION]);
        }
        at += len.max(1);
    }
    // Every kernel has decorations: those of its buffers.
    let mut out = words;
    let at = first_decoration.unwrap_or(out.len());
    out.splice(at..at, decorations);
    out
}

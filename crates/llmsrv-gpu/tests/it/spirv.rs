//! The kernels in WGSL compile to the SPIR-V in `src/spirv`, one module for each.
//!
//! After a change: `GENERATE=1 cargo test -p llmsrv-gpu --test it spirv`

use std::{collections::BTreeMap, env, error::Error, fs, path::Path, process::Command};

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
    ("q4_k", 256, 144, &["scaled", "minimums", "offsets"]),
    ("q5_k", 256, 176, &["scaled", "minimums"]),
    ("q6_k", 256, 210, &["scaled", "passes"]),
    ("iq4_xs", 256, 136, &["scaled"]),
];
/// Marks of lines that some formats have.
const MARKS: [&str; 6] = [
    "plain", "scaled", "minimum", "minimums", "offsets", "passes",
];
/// Products on matrix units: formats, rows of a workgroup, and the rows and columns of matrices of 16 times 16 of a subgroup.
const MATRICES: [(&str, u32, [u32; 2]); 3] = [
    ("q4_k", 64, [2, 2]),
    ("q4_k", 128, [4, 2]),
    ("q6_k", 64, [2, 2]),
];
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
    validate("vulkan1.1", |name| !name.starts_with(ON_MATRICES));
}

/// `SPIRV_VAL` may name a newer one than that of the system.
#[test]
#[ignore = "needs spirv-val of 2023.4 or later, which knows cooperative matrices: Debian 12 has 2023.1"]
fn modules_for_matrix_units_are_valid_for_vulkan() {
    validate("vulkan1.3", |name| name.starts_with(ON_MATRICES));
}

fn validate(environment: &str, is_asked: impl Fn(&str) -> bool) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("spirv");
    fs::create_dir_all(&folder).unwrap();
    let program = env::var_os("SPIRV_VAL").unwrap_or_else(|| "spirv-val".into());
    let modules = modules().unwrap().into_iter();
    for (name, words) in modules.filter(|(name, _)| is_asked(name)) {
        let path = folder.join(&name);
        fs::write(&path, bytemuck::cast_slice::<u32, u8>(&words)).unwrap();
        let mut command = Command::new(&program);
        let output = command.args(["--target-env", environment]).arg(path);
        let output = output.output().expect("spirv-val, of spirv-tools");
        assert!(output.status.success(), "{name}: {output:?}");
    }
}

/// How the names of kernels for matrix units begin.
const ON_MATRICES: &str = "mma_";

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
        "probe",
    ] {
        for kept in KEPT {
            let n_each = if file == "norms" { 8 } else { 4 };
            let source = repeated(&(prelude.clone() + &read(file)?), n_each);
            let source = source.replace("KEPT", kept);
            let parsed = parse(&source)?;
            for entry in &parsed.entry_points {
                // Whole sequences have rows enough for all workgroups.
                if entry.name != "attend_part_f32" && !modules.contains_key(&entry.name) {
                    modules.insert(entry.name.clone(), compile(&parsed, &entry.name)?);
                }
            }
        }
    }
    let parsed = parse(&repeated(&(prelude.clone() + &read("quantize")?), 4))?;
    for entry in &parsed.entry_points {
        modules.insert(entry.name.clone(), compile(&parsed, &entry.name)?);
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
            // With eight rows so many would take more memory than devices have for a group.
            let rounds = if n_rows == 1 { 4 } else { 1 };
            let (both, scales) = match (format, entry) {
                ("q4_k", "dots") => ("q4_k_thirty_two", "q4_k_aligned"),
                _ => ("thirty_two", format),
            };
            let source = format!("{common}{quants}{source}")
                .replace("ROUNDS", &format!("{rounds}u"))
                .replace("THIRTY_TWO", both)
                .replace("TOKENS", &format!("{n_rows}u"))
                .replace("SIXTEEN", &format!("{format}_sixteen"))
                .replace("SCALES", &format!("{scales}_scales"))
                .replace("BLOCK_LEN", &format!("{block_len}u"))
                .replace("BLOCK_BYTES", &format!("{block_bytes}u"));
            let words = compile(&parse(&source)?, entry)?;
            modules.insert(format!("dot_{format}_{n_rows}"), words);
        }
    }
    let matrices = read("matrices")?;
    for (format, n_rows, [rows, columns]) in MATRICES {
        let (_, block_len, block_bytes, marks) = INT8
            .into_iter()
            .find(|(name, ..)| *name == format)
            .ok_or(format)?;
        let source = tiled(&paired(&marked(&matrices, marks)), n_rows, [rows, columns]);
        let of_format = read(&format!("matrices_{format}"))?;
        let source = format!("{MATRIX_EXTENSIONS}{common}{quants}{of_format}{source}")
            .replace("TOKENS", &format!("{n_rows}u"))
            .replace("ROW_TILES", &format!("{rows}u"))
            .replace("COLUMN_TILES", &format!("{columns}u"))
            .replace("INPUTS(", &format!("{format}_inputs("))
            .replace("READ(", &format!("{format}_read("))
            .replace("PUT(", &format!("{format}_put("))
            .replace("PUT_AGAIN(", &format!("{format}_put_again("))
            .replace("HEAD(", &format!("{format}_head("))
            .replace("BEGIN(", &format!("{format}_begin("))
            .replace("SIXTEEN", &format!("{format}_sixteen"))
            .replace("BLOCK_LEN", &format!("{block_len}u"))
            .replace("BLOCK_BYTES", &format!("{block_bytes}u"));
        let words = with_what_wgsl_lacks(&compile(&parse(&source)?, "matrices")?);
        modules.insert(format!("{ON_MATRICES}{format}_{n_rows}"), words);
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
            line.replace(&format!(" //{mark} //"), " //")
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

/// Repeats stretches of lines that have the mark `//pair`, with 0 and 1 for `%`.
fn paired(source: &str) -> String {
    let mut out = String::new();
    let mut stretch = String::new();
    for line in source.lines().chain([""]) {
        if line.contains(" //pair") {
            stretch = stretch + &line.replace(" //pair", "") + "\n";
            continue;
        }
        for number in ["0", "1"] {
            out += &stretch.replace('%', number);
        }
        stretch.clear();
        out = out + line + "\n";
    }
    out
}

/// Repeats lines by their marks, as `matrices.wgsl` says; `brought` are the rows of a workgroup.
fn tiled(source: &str, brought: u32, [n_rows, n_columns]: [u32; 2]) -> String {
    let mut out = String::new();
    for line in source.lines() {
        let (text, mark) = line.rsplit_once(" //").unwrap_or((line, ""));
        let (rows, columns) = match mark {
            "rows" => (n_rows, 1),
            "columns" => (1, n_columns),
            "tiles" => (n_rows, n_columns),
            "inputs" => (brought / 32, 1),
            "sums" => (brought / 16, 1),
            _ => {
                out = out + line + "\n";
                continue;
            }
        };
        // Sixteen of 64 weights at a time.
        let n_each = if text.contains('~') { 4 } else { 1 };
        for each in 0..n_each {
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |at| (row, at))) {
                let line = text.replace(['#', '@'], &row.to_string());
                let line = line.replace('$', &column.to_string());
                out = out + &line.replace('~', &each.to_string()) + "\n";
            }
        }
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

/// Words before the first instruction.
const HEADER: usize = 5;

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
        valid::Capabilities::IMMEDIATES
            | valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32
            | valid::Capabilities::SHADER_FLOAT16
            | valid::Capabilities::COOPERATIVE_MATRIX
            | valid::Capabilities::SUBGROUP,
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

/// What is written before shaders that use matrix units.
const MATRIX_EXTENSIONS: &str = "enable f16;\nenable wgpu_cooperative_matrix;\n";

/// Writes what WGSL has no words for: differences of cooperative matrices become products of their elements, those that are
/// multiplied with each other are of f16, and two f16 of a word are taken as they are, where they would become f32 and f16
/// again. What lanes share is marked as shared, as the memory model wants it that matrices come with, and capabilities that
/// nothing needs are left out.
fn with_what_wgsl_lacks(words: &[u32]) -> Vec<u32> {
    // Numbers of the specification of SPIR-V, and of SPV_KHR_cooperative_matrix.
    const OP_EXT_INST: u32 = 12;
    const PACK_HALF_2X16: u32 = 58;
    const UNPACK_HALF_2X16: u32 = 62;
    const OP_CAPABILITY: u32 = 17;
    // For f16 in buffers and between stages.
    const NEEDLESS: [u32; 3] = [4433, 4434, 4436];
    const OP_TYPE_FLOAT: u32 = 22;
    const OP_TYPE_POINTER: u32 = 32;
    const OP_CONSTANT: u32 = 43;
    const OP_FUNCTION: u32 = 54;
    const SHARED: [u32; 2] = [4, 12];
    const OP_VARIABLE: u32 = 59;
    const OP_LOAD: u32 = 61;
    const OP_STORE: u32 = 62;
    const OP_ACCESS_CHAIN: u32 = 65;
    const OP_F_CONVERT: u32 = 115;
    const OP_BITCAST: u32 = 124;
    const OP_F_SUB: u32 = 131;
    const OP_F_MUL: u32 = 133;
    const OP_TYPE_COOPERATIVE_MATRIX: u32 = 4456;
    const OP_COOPERATIVE_MATRIX_LOAD: u32 = 4457;
    const OP_COOPERATIVE_MATRIX_STORE: u32 = 4458;
    const NON_PRIVATE_POINTER: u32 = 0x20;
    let (mut matrices, mut unpacked) = (Vec::new(), BTreeMap::new());
    let (mut converted, mut constants) = (BTreeMap::new(), BTreeMap::new());
    // The type of f16, and those of the matrices that are of it: they are named behind it.
    let (mut half, mut of_half) = (None, Vec::new());
    let (mut pointer_types, mut pointers) = (Vec::new(), Vec::new());
    let (header, mut rest) = words.split_at(HEADER);
    let mut out = header.to_vec();
    while let Some(first) = rest.first() {
        let (instruction, after) = rest.split_at((first >> 16).max(1) as usize);
        rest = after;
        let mut opcode = first & 0xffff;
        let mut operands = instruction[1..].to_vec();
        match (opcode, &mut operands[..]) {
            (OP_CAPABILITY, [capability]) if NEEDLESS.contains(capability) => continue,
            (OP_TYPE_FLOAT, [id, 16]) => half = Some(*id),
            (OP_CONSTANT, [_, id, value]) => {
                constants.insert(*id, *value);
            }
            (OP_TYPE_COOPERATIVE_MATRIX, [id, .., role]) => {
                if constants.get(role).is_some_and(|role| *role < 2) {
                    of_half.push(operands);
                    continue;
                }
                matrices.push(*id);
            }
            (OP_FUNCTION, _) => {
                for mut operands in std::mem::take(&mut of_half) {
                    operands[1] = half.expect("a shader with f16");
                    out.push((operands.len() as u32 + 1) << 16 | OP_TYPE_COOPERATIVE_MATRIX);
                    out.append(&mut operands);
                }
            }
            (OP_TYPE_POINTER, [id, class, _]) if SHARED.contains(class) => pointer_types.push(*id),
            (OP_VARIABLE | OP_ACCESS_CHAIN, [of, id, ..]) if pointer_types.contains(of) => {
                pointers.push(*id);
            }
            (OP_F_SUB, [of, ..]) if matrices.contains(of) => opcode = OP_F_MUL,
            (OP_EXT_INST, [_, id, _, UNPACK_HALF_2X16, from]) => {
                unpacked.insert(*id, *from);
            }
            (OP_EXT_INST, [of, id, _, PACK_HALF_2X16, value]) if converted.contains_key(value) => {
                (opcode, operands) = (OP_BITCAST, vec![*of, *id, converted[value]]);
            }
            (OP_F_CONVERT, [_, id, value]) => {
                converted.insert(*id, *value);
                if let Some(from) = unpacked.get(value) {
                    (opcode, *value) = (OP_BITCAST, *from);
                }
            }
            (OP_LOAD, [_, _, pointer]) | (OP_STORE, [pointer, _]) if pointers.contains(pointer) => {
                operands.push(NON_PRIVATE_POINTER);
            }
            (OP_COOPERATIVE_MATRIX_LOAD | OP_COOPERATIVE_MATRIX_STORE, _) => {
                operands.push(NON_PRIVATE_POINTER);
            }
            _ => {}
        }
        out.push((operands.len() as u32 + 1) << 16 | opcode);
        out.append(&mut operands);
    }
    out
}

/// Forbids drivers to join products and sums to one operation: whether they do would depend on the driver and on the
/// code around.
fn without_contraction(words: Vec<u32>) -> Vec<u32> {
    // Opcodes of the specification of SPIR-V.
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

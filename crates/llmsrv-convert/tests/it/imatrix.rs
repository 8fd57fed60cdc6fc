//! Importance matrices: files of both formats, hostile ones, and quantising with them.

use std::{fs, ops::ControlFlow, path::PathBuf};

use llmsrv_convert::{Error, Imatrix, Target, quantize};
use llmsrv_gguf::{GgufFile, Metadata, TensorType, Writer};
use proptest::prelude::*;

use crate::support::{llama, unpacked};

/// One with the matrices of a model of [`llama`], whose columns differ by orders of magnitude.
fn imatrix(n_layers: usize, width: usize, hidden: usize) -> Imatrix {
    let mut imatrix = Imatrix::new(vec!["text.txt".into()], 3, 128);
    for layer in 0..n_layers {
        for part in [
            "attn_q",
            "attn_k",
            "attn_v",
            "attn_output",
            "ffn_gate",
            "ffn_up",
            "ffn_down",
        ] {
            let n = if part == "ffn_down" { hidden } else { width };
            let squares: Vec<f64> = (0..n).map(|idx| 10_f64.powi(idx as i32 % 7 - 3)).collect();
            imatrix
                .add(&format!("blk.{layer}.{part}.weight"), &squares, &[384])
                .unwrap();
        }
    }
    imatrix
}

fn run(source: &[u8], target: Target, imatrix: Option<&Imatrix>) -> Result<GgufFile, Error> {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, source).unwrap();
    let mut go_on = |_, _| ControlFlow::Continue(());
    let result = quantize(&from, &to, target, imatrix, &mut go_on);
    if result.is_err() {
        assert!(!to.exists(), "nothing is left of a failure");
    }
    result.map(|()| GgufFile::open(&to).unwrap())
}

fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn a_file_that_was_written_is_read_again() {
    let made = imatrix(2, 256, 512);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("imatrix.gguf");
    made.write(&path).unwrap();
    assert_eq!(Imatrix::read(&path).unwrap(), made);
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(file.metadata().str("general.type"), Some("imatrix"));
    assert_eq!(file.metadata().u32("imatrix.chunk_count"), Some(3));
    assert_eq!(file.metadata().u32("imatrix.chunk_size"), Some(128));
    let sums = file.tensor("blk.1.ffn_down.weight.in_sum2").unwrap();
    assert_eq!(
        (sums.dtype, &sums.shape[..]),
        (TensorType::F32, &[512, 1][..])
    );
    let counts = file.tensor("blk.1.ffn_down.weight.counts").unwrap();
    assert_eq!(&counts.shape[..], [1, 1]);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "no part is left"
    );
}

/// The older format: a name, calls, and mean squares times the calls.
#[test]
fn files_of_the_older_format_say_the_same() {
    let mut old = 1_i32.to_le_bytes().to_vec();
    let name = b"blk.0.ffn_down.weight";
    old.extend((name.len() as i32).to_le_bytes());
    old.extend(name);
    old.extend(4_i32.to_le_bytes());
    old.extend(256_i32.to_le_bytes());
    for idx in 0..256 {
        old.extend((4.0 * (1 + idx % 5) as f32).to_le_bytes());
    }
    let whole = old.len();
    old.extend(4_i32.to_le_bytes());
    old.extend(5_i32.to_le_bytes());
    old.extend(b"a.txt");
    let (_folder, path) = written(&old);
    let read = Imatrix::read(&path).unwrap();
    assert_eq!(
        (read.n_chunks, &read.datasets[..]),
        (4, &["a.txt".to_owned()][..])
    );
    let mut same = Imatrix::new(vec!["a.txt".into()], 4, 0);
    let squares: Vec<f64> = (0..256).map(|idx| f64::from(4 * (1 + idx % 5))).collect();
    same.add("blk.0.ffn_down.weight", &squares, &[4]).unwrap();
    assert_eq!(read, same);
    for len in (0..whole).step_by(7) {
        let error = Imatrix::parse(&old[..len]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the file is no importance matrix",
            "{len}"
        );
    }
}

#[test]
fn what_contradicts_itself_is_refused_in_one_line() {
    let file = |kind: &str, tensors: &[(&str, &[u64], &[f32])]| {
        let mut metadata = Metadata::new();
        metadata.set("general.type", kind);
        let mut writer = Writer::new(metadata);
        for (name, shape, values) in tensors {
            let bytes = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            writer.tensor(name, shape, TensorType::F32, bytes).unwrap();
        }
        Imatrix::parse(&writer.to_bytes().unwrap())
            .unwrap_err()
            .to_string()
    };
    let sums = ("a.in_sum2", &[2, 1][..], &[1.0, 2.0][..]);
    for (text, expected) in [
        (file("model", &[sums]), "the file is no importance matrix"),
        (file("imatrix", &[]), "the importance matrix has no tensors"),
        (file("imatrix", &[sums]), "has sums and no counts"),
        (
            file("imatrix", &[sums, ("a.counts", &[1, 3], &[1.0; 3])]),
            "has 2 sums for 3 counts",
        ),
        (
            file(
                "imatrix",
                &[
                    ("a.in_sum2", &[1, 1], &[f32::NAN]),
                    ("a.counts", &[1, 1], &[1.0]),
                ],
            ),
            "no such numbers",
        ),
        (
            file(
                "imatrix",
                &[
                    ("a.in_sum2", &[1, 1], &[-1.0]),
                    ("a.counts", &[1, 1], &[1.0]),
                ],
            ),
            "no such numbers",
        ),
        (
            file(
                "imatrix",
                &[
                    ("a.in_sum2", &[1, 1], &[1.0]),
                    ("a.counts", &[1, 1], &[f32::INFINITY]),
                ],
            ),
            "no such numbers",
        ),
    ] {
        assert!(text.contains(expected) && !text.contains('\n'), "{text}");
    }
}

#[test]
fn errors_move_to_the_columns_that_matter_least() {
    let source = llama(2, 256, 256, TensorType::F32);
    let (_folder, path) = written(&source);
    let original = GgufFile::open(&path).unwrap();
    let imatrix = imatrix(2, 256, 256);
    for target in [
        Target::Q4_K_S,
        Target::IQ4_XS,
        Target::Q3_K_S,
        Target::IQ3_M,
        Target::Q4_0,
    ] {
        let with = run(&source, target, Some(&imatrix)).unwrap();
        let without = run(&source, target, None).unwrap();
        assert_eq!(
            with.metadata().u32("quantize.imatrix.entries_count"),
            Some(14)
        );
        assert_eq!(
            without.metadata().u32("quantize.imatrix.entries_count"),
            None
        );
        let name = "blk.1.attn_q.weight";
        let lost = |file: &GgufFile| {
            let tensor = original.tensor(name).unwrap();
            let before = unpacked(tensor.dtype, original.data(tensor));
            let tensor = file.tensor(name).unwrap();
            let after = unpacked(tensor.dtype, file.data(tensor));
            let pairs = before.iter().zip(&after).enumerate();
            pairs
                .map(|(at, (a, b))| 10_f64.powi(at as i32 % 256 % 7 - 3) * f64::from(a - b).powi(2))
                .sum::<f64>()
        };
        assert!(lost(&with) < lost(&without) * 0.9, "{target}");
    }
}

#[test]
fn types_of_few_bits_need_one_that_knows_their_tensors() {
    let source = llama(2, 256, 256, TensorType::F16);
    let known = imatrix(2, 256, 256);
    for target in [
        Target::IQ2_XXS,
        Target::IQ2_XS,
        Target::IQ2_S,
        Target::IQ2_M,
        Target::IQ3_XXS,
        Target::Q2_K_S,
    ] {
        run(&source, target, Some(&known)).unwrap();
        let error = run(&source, target, None).unwrap_err().to_string();
        let text = format!("{target} needs an importance matrix (`llmsrv imatrix` makes one)");
        assert_eq!(error, text);
        let error = run(&source, target, Some(&imatrix(1, 256, 256)))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("this one does not have tensor blk.1."),
            "{error}"
        );
    }
    let error = run(&source, Target::Q4_K_M, Some(&imatrix(2, 128, 256))).unwrap_err();
    assert!(
        error.to_string().contains("of another model: tensor"),
        "{error}"
    );
    let mut other = Imatrix::new(Vec::new(), 0, 0);
    other.add("blk.9.attn_q.weight", &[1.0], &[1]).unwrap();
    let error = run(&source, Target::Q4_K_M, Some(&other)).unwrap_err();
    assert!(
        error.to_string().contains("none of this one's tensors"),
        "{error}"
    );
}

/// What nothing is known of is quantised as without one: nothing known, all zero, or never met.
#[test]
fn a_matrix_that_no_row_has_met_counts_all_columns_alike() {
    let source = llama(1, 256, 256, TensorType::F16);
    let name = "blk.0.attn_q.weight";
    let bytes = |squares: [f64; 256], rows: u64| {
        let mut imatrix = Imatrix::new(Vec::new(), 0, 0);
        imatrix.add(name, &squares, &[rows]).unwrap();
        let file = run(&source, Target::Q4_K_S, Some(&imatrix)).unwrap();
        file.data(file.tensor(name).unwrap()).to_vec()
    };
    let alike = bytes([5.0; 256], 7);
    assert_eq!(bytes([0.0; 256], 7), alike);
    assert_eq!(bytes(std::array::from_fn(|idx| idx as f64), 0), alike);
    assert_ne!(bytes(std::array::from_fn(|idx| idx as f64), 7), alike);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_bytes_are_read_or_refused(at in 0_usize..4000, byte in any::<u8>(), cut in 0_usize..4000) {
        let mut bytes = imatrix(1, 32, 32).to_bytes().unwrap();
        let len = bytes.len();
        bytes[at % len] = byte;
        bytes.truncate(len.saturating_sub(cut / 8));
        if let Err(error) = Imatrix::parse(&bytes) {
            prop_assert!(!error.to_string().contains('\n'), "{error}");
        }
        // Without its magic number it is taken for the older format.
        let _ = Imatrix::parse(bytes.get(1..).unwrap_or_default());
    }
}

//! Quantising whole model files.

use std::{collections::BTreeMap, fs, ops::ControlFlow};

use llmsrv_convert::{Error, Target, quantize};
use llmsrv_gguf::{GgufFile, TensorType};
use proptest::prelude::*;

use crate::support::{llama, unpacked};

fn run(source: &[u8], target: Target) -> Result<GgufFile, Error> {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, source).unwrap();
    let mut last = (0, 1);
    let mut progress = |done, total| {
        assert!(done >= last.0 && done <= total);
        last = (done, total);
        ControlFlow::Continue(())
    };
    let result = quantize(&from, &to, target, None, &mut progress);
    match result {
        Ok(()) => {
            assert_eq!(last.0, last.1, "progress ends at the total");
            Ok(GgufFile::open(&to).unwrap())
        }
        Err(error) => {
            assert!(!to.exists(), "nothing is left of a failure");
            Err(error)
        }
    }
}

/// How many matrices of each type a file has, vectors apart.
fn types(file: &GgufFile) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for tensor in &file.header().tensors {
        if tensor.shape.len() > 1 {
            *counts.entry(tensor.dtype.name()).or_insert(0) += 1;
        } else {
            assert_eq!(tensor.dtype, TensorType::F32);
        }
    }
    counts
}

#[test]
fn every_target_keeps_the_values() {
    let source = llama(2, 256, 512, TensorType::F32);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source");
    fs::write(&path, &source).unwrap();
    let original = GgufFile::open(&path).unwrap();
    for target in Target::ALL {
        let file = match run(&source, *target) {
            Err(Error::NeedsImatrix { .. }) => continue,
            made => made.unwrap(),
        };
        let metadata = file.metadata();
        assert_eq!(metadata.u32("general.file_type"), Some(target.file_type()));
        assert_eq!(metadata.u32("general.quantization_version"), Some(2));
        assert_eq!(metadata.u32("llama.block_count"), Some(2));
        assert!(metadata.get("split.no").is_none());
        assert_eq!(file.header().file_type_name(), target.name());
        // Of numbers spread evenly, 4 bits lose 1 part in 12 or so, each bit more halves that.
        let worst_share = match target.main_type() {
            TensorType::F32 => 0.0,
            TensorType::F16 => 3e-4,
            TensorType::BF16 => 3e-3,
            TensorType::Q8_0 => 6e-3,
            TensorType::Q6_K => 0.025,
            TensorType::Q5_K | TensorType::Q5_0 | TensorType::Q5_1 => 0.045,
            TensorType::Q3_K | TensorType::IQ3_S => 0.18,
            TensorType::Q2_K => 0.36,
            _ => 0.09,
        };
        for tensor in &original.header().tensors {
            let found = file.tensor(&tensor.name).unwrap();
            assert_eq!(found.shape, tensor.shape);
            let before = unpacked(tensor.dtype, original.data(tensor));
            let after = unpacked(found.dtype, file.data(found));
            let squares =
                |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>();
            let lost = squares(&mut before.iter().zip(&after).map(|(a, b)| a - b));
            let share = (lost / squares(&mut before.iter().copied())).sqrt();
            assert!(share <= worst_share, "{target} {}: {share}", tensor.name);
        }
    }
}

#[test]
fn mixtures_give_more_bits_to_what_matters() {
    let source = llama(16, 256, 256, TensorType::F16);
    let counts = |target| types(&run(&source, target).unwrap());
    // 16 layers of 7 matrices, the embedding and the logits.
    let medium = [("Q4_K", 114 - 17), ("Q6_K", 17)];
    assert_eq!(counts(Target::Q4_K_M), medium.into());
    assert_eq!(counts(Target::Q5_K_M), [("Q5_K", 97), ("Q6_K", 17)].into());
    let small = [("Q4_K", 114 - 7), ("Q5_K", 6), ("Q6_K", 1)];
    assert_eq!(counts(Target::Q4_K_S), small.into());
    assert_eq!(counts(Target::Q6_K), [("Q6_K", 114)].into());
    // Of each kind of matrix there are 16; the embedding has the main type.
    let three = |low, five| {
        [
            ("Q3_K", 113 - low - five),
            ("Q4_K", low),
            ("Q5_K", five),
            ("Q6_K", 1),
        ]
    };
    assert_eq!(counts(Target::Q3_K_M), three(16 + 14 + 15, 2 + 1).into());
    assert_eq!(
        counts(Target::Q3_K_L),
        [("Q3_K", 113 - 48), ("Q5_K", 48), ("Q6_K", 1)].into()
    );
    assert_eq!(counts(Target::Q3_K_S), [("Q3_K", 113), ("Q6_K", 1)].into());
    let two = [("Q2_K", 113 - 48), ("Q3_K", 48), ("Q6_K", 1)];
    assert_eq!(counts(Target::Q2_K), two.into());
    let wide = [("IQ4_XS", 113 - 2), ("Q5_K", 2), ("Q6_K", 1)];
    assert_eq!(counts(Target::IQ4_XS), wide.into());
    assert_eq!(counts(Target::Q4_0), [("Q4_0", 113), ("Q6_K", 1)].into());
    assert_eq!(counts(Target::Q8_0), [("Q8_0", 114)].into());
    assert_eq!(counts(Target::Bf16), [("BF16", 114)].into());
}

#[test]
fn rows_that_blocks_do_not_fill_get_another_type() {
    let counts =
        |width, target| types(&run(&llama(8, width, 256, TensorType::BF16), target).unwrap());
    // Rows of 96: only ffn_down has rows of 256.
    let expected = [("Q5_0", 45), ("Q8_0", 5), ("Q4_K", 4), ("Q6_K", 4)];
    assert_eq!(counts(96, Target::Q4_K_M), expected.into());
    // Rows of 40 do not even fill blocks of 32.
    let expected = [("F16", 50), ("Q4_K", 4), ("Q6_K", 4)];
    assert_eq!(counts(40, Target::Q4_K_M), expected.into());
    let expected = [("IQ4_NL", 49), ("Q8_0", 1), ("Q3_K", 8)];
    assert_eq!(counts(96, Target::Q3_K_S), expected.into());
}

#[test]
fn quantized_models_are_refused() {
    let source = llama(1, 256, 256, TensorType::Q8_0);
    let error = run(&source, Target::Q4_0).unwrap_err();
    assert!(matches!(error, Error::AlreadyQuantized(TensorType::Q8_0)));
    let text = "quantization is only supported for F16, BF16 and F32 models, and this one has tensors of type Q8_0";
    assert_eq!(error.to_string(), text);
    assert!(matches!(run(b"GGML", Target::F16), Err(Error::Gguf(_))));
}

#[test]
fn values_that_are_not_finite_are_named() {
    let mut source = llama(1, 256, 256, TensorType::F32);
    let at = source.len() - 4;
    source[at..].copy_from_slice(&f32::NAN.to_le_bytes());
    let error = run(&source, Target::Q4_K_M).unwrap_err();
    let text =
        "tensor blk.0.ffn_down.weight has values that are not finite or too large for the type";
    assert_eq!(error.to_string(), text);
}

#[test]
fn cancelling_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, llama(2, 256, 256, TensorType::F16)).unwrap();
    let mut n_calls = 0;
    let mut stop = |_, _| {
        n_calls += 1;
        if n_calls == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let result = quantize(&from, &to, Target::Q8_0, None, &mut stop);
    assert!(matches!(result, Err(Error::Cancelled)));
    assert_eq!(n_calls, 3);
    assert!(!to.exists());
}

#[test]
fn names_of_targets_are_read_in_any_case() {
    for target in Target::ALL {
        assert_eq!(target.name().parse::<Target>().unwrap(), *target);
        assert_eq!(
            target.to_string().to_lowercase().parse::<Target>().unwrap(),
            *target
        );
    }
    let error = "Q9_K".parse::<Target>().unwrap_err().to_string();
    assert!(error.starts_with("unsupported quantization type Q9_K - supported types are F32, F16"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn damaged_files_never_panic(at in 0_usize..2000, byte in any::<u8>(), cut in 0_usize..40_000) {
        let mut source = llama(1, 32, 32, TensorType::F32);
        let len = source.len();
        source[at % len] = byte;
        source.truncate(len.saturating_sub(cut / 20));
        let _ = run(&source, Target::Q4_K_M);
    }
}

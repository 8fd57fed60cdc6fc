//! What only a card can say: `cargo test -p llmsrv-gpu --test it -- --ignored --nocapture card`

use llmsrv_gguf::TensorType;
use llmsrv_gpu::{Arithmetic, take_kernel_times, time_kernels};

use crate::kernels::{gpu, numbers, read};

/// Products on matrix units have the bits of the others, for sums as large as they can be, too.
#[test]
#[ignore = "needs a device with matrix units of 16 times 16: lavapipe has none"]
fn matrix_units_change_no_bit() {
    let gpu = &mut *gpu();
    assert!(gpu.device().has_matrices, "{:?}", gpu.device());
    let before = gpu.arithmetic();
    gpu.set_arithmetic(Arithmetic::Int8);
    for (dtype, n_out, n_in, n_rows) in [
        (TensorType::Q4_K, 64, 256, 64),
        (TensorType::Q4_K, 100, 1024, 9),
        (TensorType::Q4_K, 130, 2048, 70),
        (TensorType::Q4_K, 64, 2048, 300),
        (TensorType::Q6_K, 64, 256, 64),
        (TensorType::Q6_K, 1, 2048, 33),
        (TensorType::Q6_K, 200, 4096, 130),
    ] {
        let bytes = random_weights(dtype, n_out * n_in);
        let matrix = gpu.matrix(dtype, n_out, n_in, &bytes, &[]).unwrap();
        let any = numbers(1, n_rows * n_in);
        let extreme = any
            .iter()
            .map(|x| if x.abs() > 0.3 { x.signum() } else { *x });
        for x in [any.clone(), extreme.collect(), vec![1.0; n_rows * n_in]] {
            let x = gpu.rows(&x, n_in).unwrap();
            let [with, without] = [true, false].map(|uses_matrices| {
                gpu.set_matrices(uses_matrices);
                let out = gpu.linear(&x, &matrix, None).unwrap();
                read(gpu, &out, n_rows * n_out)
            });
            let same = with
                .iter()
                .zip(&without)
                .all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(
                same,
                "{dtype}, {n_rows} rows, {n_out} outputs of {n_in} inputs"
            );
        }
    }
    gpu.set_arithmetic(before);
}

/// Prints which part of memory and arithmetic each kernel of products uses, with more weights than caches hold.
#[test]
#[ignore = "a benchmark for cards: prints times, and asserts no time"]
fn products_take() {
    let gpu = &mut *gpu();
    println!("{:?}", gpu.device());
    let before = gpu.arithmetic();
    let (n_out, n_in) = (8192, 4096);
    for dtype in [TensorType::Q4_K, TensorType::Q6_K, TensorType::Q8_0] {
        let bytes = random_weights(dtype, n_out * n_in);
        for arithmetic in [Arithmetic::F32, Arithmetic::Int8] {
            gpu.set_arithmetic(arithmetic);
            let matrices = [(); 8].map(|()| gpu.matrix(dtype, n_out, n_in, &bytes, &[]).unwrap());
            for (n_rows, uses_matrices) in [
                (1, false),
                (8, false),
                (16, false),
                (16, true),
                (64, false),
                (64, true),
                (512, false),
                (512, true),
            ] {
                gpu.set_matrices(uses_matrices);
                let x = gpu.rows(&numbers(9, n_rows * n_in), n_in).unwrap();
                // First the clock of the device rises.
                for (is_timed, rounds) in [(false, 8), (true, 2)] {
                    time_kernels(is_timed);
                    for matrix in matrices.iter().cycle().take(rounds * matrices.len()) {
                        gpu.linear(&x, matrix, None).unwrap();
                    }
                    gpu.finish().unwrap();
                }
                time_kernels(false);
                for time in take_kernel_times() {
                    let each = time.seconds / time.calls as f64;
                    let ops = 2.0 * (n_rows * n_out * n_in) as f64;
                    println!(
                        "{dtype} {arithmetic:?} {n_rows:4} rows {:16} {:8.1} us {:7.1} GB/s {:6.1} TFLOP/s",
                        time.kernel,
                        each * 1e6,
                        time.bytes as f64 / time.seconds / 1e9,
                        ops / each / 1e12
                    );
                }
            }
        }
    }
    gpu.set_arithmetic(before);
}

/// Weights without a pattern, with scales that keep products finite.
fn random_weights(dtype: TensorType, n: usize) -> Vec<u8> {
    let n_bytes = n / dtype.block_len() * dtype.block_bytes();
    let mut bytes: Vec<u8> = numbers(7, n_bytes.div_ceil(2))
        .into_iter()
        .flat_map(|x| ((x * 32_767.0) as i16).to_le_bytes())
        .take(n_bytes)
        .collect();
    let scales: &[usize] = match dtype {
        TensorType::Q4_K => &[0, 2],
        TensorType::Q6_K => &[208],
        _ => &[0],
    };
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        for at in scales {
            // An f16 below one.
            block[at + 1] = block[at + 1] & 0x87 | 0x20;
        }
    }
    bytes
}

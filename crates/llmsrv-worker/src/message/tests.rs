use proptest::{collection::vec, option, prelude::*};

use super::*;

fn spans() -> impl Strategy<Value = Vec<Span>> {
    let id = || any::<u32>();
    let state = (
        id(),
        option::of(id()),
        vec((any::<usize>(), id().prop_map(StateId)), 0..3),
    );
    let state = state.prop_map(|(slot, from, saves)| SpanState {
        slot: StateId(slot),
        from: from.map(StateId),
        saves,
    });
    let span = (
        any::<std::ops::Range<usize>>(),
        id(),
        vec(id().prop_map(BlockId), 0..5),
        option::of(id().prop_map(BlockId)),
        option::of(state),
    );
    let span = span.prop_map(|(rows, start, blocks, tail, state)| Span {
        rows,
        start,
        blocks,
        tail,
        state,
    });
    vec(span, 0..4)
}

proptest! {
    #[test]
    fn plans_arrive_as_they_were_sent(
        tokens in vec(any::<u32>(), 0..40),
        positions in vec(any::<u32>(), 0..40),
        ends in vec(any::<u32>(), 0..40),
        logit_rows in vec(any::<u32>(), 0..40),
        coordinates in vec(any::<[u32; 3]>(), 0..40),
        spans in spans(),
        embed in any::<bool>(),
    ) {
        let plan = StepPlan {
            tokens,
            positions,
            ends,
            coordinates,
            logit_rows,
            spans,
            images: Vec::new(),
        };
        let mut frame = Vec::new();
        Request::write_step(&mut frame, &plan, embed);
        let expected = if embed { Request::Embed(plan) } else { Request::Forward(plan) };
        prop_assert_eq!(Request::read(&frame).unwrap(), expected);
        // No part of a message is one.
        for n in 0..frame.len() {
            prop_assert_eq!(Request::read(&frame[..n]), Err(Malformed));
        }
    }

    #[test]
    fn of_an_image_the_rows_of_the_step_travel(first in 0_usize..4, n in 1_usize..4, width in 1_usize..5) {
        let image = Image {
            digest: [7; 32],
            rows: 8,
            embedding: (0..8 * width).map(|i| i as f32 - 3.5).collect(),
            whole: true,
            grid: None,
        };
        let sent = ImageRows { rows: 5..5 + n, first, image: Arc::new(image) };
        let plan = StepPlan { images: vec![sent.clone()], ..StepPlan::default() };
        let mut frame = Vec::new();
        Request::write_step(&mut frame, &plan, false);
        let Request::Forward(read) = Request::read(&frame).unwrap() else {
            return Err(TestCaseError::fail("another request"));
        };
        let found = &read.images[0];
        prop_assert_eq!((&found.rows, found.image.rows, found.image.whole), (&sent.rows, n, true));
        for i in 0..n {
            prop_assert_eq!(found.image.row(found.first + i), sent.image.row(first + i));
        }
    }

    /// Whatever arrives, it is read or refused.
    #[test]
    fn garbage_is_refused(mut bytes in vec(any::<u8>(), 0..300), kind in 0_u8..7) {
        let mut rows = [0.0; 8];
        for first in [None, Some(kind)] {
            if let (Some(first), Some(byte)) = (first, bytes.first_mut()) {
                *byte = first;
            }
            let _ = Request::read(&bytes);
            let _ = Reply::read(&bytes);
            let _ = Reply::read_rows(&bytes, &mut rows);
        }
    }
}

#[test]
fn everything_else_arrives_as_it_was_sent() {
    let options = LoadOptions {
        kv_cache_type: "f16".into(),
        n_threads: 3,
        device: "vulkan".into(),
        gpu: GpuOptions {
            arithmetic: GpuArithmetic::Int8,
            vendor: true,
            software: false,
            leave_free_bytes: 1 << 40,
            limit_bytes: Some(1 << 33),
            visible: Some(vec!["0".into(), "GPU-1234".into()]),
            nvidia: Some(Vec::new()),
            checked: Some("/home/a b/.cache/llmsrv/gpu-drivers".into()),
        },
        offload: Offload {
            n_layers: Some(20),
            n_cpu_moe: 3,
            main_gpu: 1,
            spread: true,
            split: Some(vec![12, 8]),
        },
        npu: Some(NpuOptions {
            runtime: "/lib/o.so".into(),
            provider: "openvino".into(),
            cache: Some("c".into()),
        }),
        activation_precision: ActivationPrecision::F32,
        projector: None,
        adapters: vec![Adapter {
            path: "a/b".into(),
            scale: 0.5,
        }],
    };
    let mut frame = Vec::new();
    for request in [
        Request::Gpus(options.gpu.clone()),
        Request::Load("/models/\u{e4}".into(), Box::new(options)),
        Request::ReserveBlocks(9),
        Request::ReserveStates(1),
    ] {
        request.write(&mut frame);
        assert_eq!(Request::read(&frame).unwrap(), request);
    }
    let spec = ModelSpec {
        vocab_size: 5,
        block_size: 32,
        context_length: 2048,
        kv_block_bytes: 99,
        state_bytes: 7,
        weight_bytes: 1 << 35,
        embedding: Some(EmbeddingSpec {
            width: 8,
            pooling: Pooling::Last,
            bidirectional: false,
        }),
        n_layers: 33,
        gpus: vec![
            GpuShare {
                n_layers: 20,
                weight_bytes: 1 << 34,
                kv_block_bytes: 60,
                state_bytes: 5,
            },
            GpuShare::default(),
        ],
        npu: true,
    };
    let limits = GpuLimits {
        read: 1 << 39,
        float: 1 << 43,
        cpu_read: 77,
        tiles_from: Some(9),
        matrices: true,
    };
    let gpu = |limits| UsableGpu {
        name: "card \u{e4}".into(),
        free_bytes: 1 << 34,
        limits,
    };
    let long = "\u{e4}".repeat(LONGEST_TEXT);
    for reply in [
        Reply::Gpus(vec![gpu(None), gpu(Some(limits))]),
        Reply::Loaded(spec),
        Reply::NotLoaded(LoadError::Gpu("no".into())),
        Reply::NotLoaded(LoadError::GpuNotAllowed("no".into())),
        Reply::Done,
        Reply::Failed(ModelError::OutOfMemory(12)),
        Reply::Failed(ModelError::DeviceLost("gone".into())),
    ] {
        reply.write(&mut frame);
        assert_eq!(
            format!("{:?}", Reply::read(&frame).unwrap()),
            format!("{reply:?}")
        );
    }
    Reply::Failed(ModelError::Compute(long)).write(&mut frame);
    assert!(frame.len() as u64 <= MOST_BESIDE_ROWS);
    assert!(
        matches!(Reply::read(&frame), Ok(Reply::Failed(ModelError::Compute(text))) if text.len() == LONGEST_TEXT)
    );

    let mut rows = [0.0; 3];
    Reply::write_rows(&mut frame, &[1.5, f32::MIN, -0.0]);
    assert!(matches!(
        Reply::read_rows(&frame, &mut rows),
        Ok(Reply::Done)
    ));
    assert_eq!(
        rows.map(f32::to_bits),
        [1.5, f32::MIN, -0.0].map(f32::to_bits)
    );
    assert!(Reply::read_rows(&frame, &mut rows[..2]).is_err());
}

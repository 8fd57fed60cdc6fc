//! Converting adapters, and applying them.

use std::ops::ControlFlow;

use llmsrv_convert::{Error, Target, convert_adapter, convert_model, quantize};
use llmsrv_engine::{Adapter, GpuArithmetic, GpuOptions, LoadOptions};
use serde_json::{Value, json};

use crate::published::{
    Case, Fixture, Upload, difference, fixture, logits, options, safetensors, upload, weights,
};

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The upload of the adapter in the fixture.
fn adapter(fixture: &Fixture, case: &Case) -> Upload {
    let rank = fixture.lora["r"].as_u64().unwrap() as usize;
    let targets = fixture.lora["targets"].as_array().unwrap();
    let mut tensors = Vec::new();
    for (name, shape, _) in &case.tensors {
        let Some(stem) = name.strip_suffix(".weight") else {
            continue;
        };
        if !targets
            .iter()
            .any(|target| stem.ends_with(target.as_str().unwrap()))
        {
            continue;
        }
        for (mark, shape) in [("A", vec![rank, shape[1]]), ("B", vec![shape[0], rank])] {
            let data = weights("lora", &format!("{stem}.lora_{mark}"), &shape, 0.0);
            tensors.push((
                format!("base_model.model.{stem}.lora_{mark}.weight"),
                shape,
                data,
            ));
        }
    }
    let mut upload = Upload::new();
    upload.add("adapter_model.safetensors", safetensors(&tensors));
    upload.add("adapter_config.json", settings(fixture).to_string());
    upload
}

fn settings(fixture: &Fixture) -> Value {
    json!({"peft_type": "LORA", "r": fixture.lora["r"], "lora_alpha": fixture.lora["lora_alpha"], "use_dora": false})
}

#[test]
fn a_converted_adapter_changes_the_model_as_trained() {
    let fixture = fixture();
    let case = &fixture.cases["llama"];
    let base = upload("llama", case);
    convert_model(&base.files, &base.destination(), None, &mut go_on).unwrap();
    let made = adapter(&fixture, case);
    convert_adapter(
        &made.files,
        Some(&base.destination()),
        &made.destination(),
        &mut go_on,
    )
    .unwrap();

    let with_cache = |scales: &[f32], device: &str, kv_cache_type: &str| {
        let adapters = scales.iter().map(|scale| Adapter {
            path: made.destination(),
            scale: *scale,
        });
        let options = LoadOptions {
            adapters: adapters.collect(),
            device: device.into(),
            kv_cache_type: kv_cache_type.into(),
            // Whatever there is, also a driver that computes on the CPU.
            gpu: GpuOptions {
                arithmetic: GpuArithmetic::Exact,
                vendor: true,
                software: true,
                leave_free_bytes: 0,
                limit_bytes: None,
                visible: None,
                nvidia: None,
                checked: None,
            },
            ..options()
        };
        let mut loaded = llmsrv_models::load(&base.destination(), &options).unwrap();
        logits(&mut loaded, &fixture.prompt)
    };
    let with = |scales: &[f32], device: &str| with_cache(scales, device, "f32");
    let expected = case.logits_with_lora.as_ref().unwrap();
    assert!(
        difference(expected, &case.logits) > 0.1,
        "the adapter matters"
    );
    for device in ["cpu", "candle"] {
        assert!(difference(&with(&[1.0], device), expected) < 5e-5);
        assert!(difference(&with(&[0.0], device), &case.logits) < 5e-5);
        // Two halves are a whole.
        assert!(difference(&with(&[0.25, 0.75], device), expected) < 5e-5);
    }
    // The KV cache of a GPU is of f16.
    let on_gpu = with_cache(&[0.25, 0.75], "vulkan", "f16");
    let off = difference(&on_gpu, &with_cache(&[0.25, 0.75], "cpu", "f16"));
    assert!(off < 1e-3, "{off}");

    // Beside quantised weights it does the same, as far as they do.
    let small = base.folder.path().join("small");
    quantize(&base.destination(), &small, Target::Q8_0, None, &mut go_on).unwrap();
    let adapters = vec![Adapter {
        path: made.destination(),
        scale: 1.0,
    }];
    let options = LoadOptions {
        adapters,
        ..options()
    };
    let mut loaded = llmsrv_models::load(&small, &options).unwrap();
    let lost = difference(&logits(&mut loaded, &fixture.prompt), expected);
    let mut loaded = llmsrv_models::load(&small, &self::options()).unwrap();
    let lost_before = difference(&logits(&mut loaded, &fixture.prompt), &case.logits);
    println!("Q8_0 loses {lost_before:.3} without and {lost:.3} with the adapter");
    assert!(lost < 0.1);
}

#[test]
fn the_base_may_be_given_by_its_configuration() {
    let fixture = fixture();
    let case = &fixture.cases["llama"];
    let mut made = adapter(&fixture, case);
    let result = convert_adapter(&made.files, None, &made.destination(), &mut go_on);
    assert!(matches!(result, Err(Error::MissingFile(_))));
    made.add(
        "config.json",
        Value::Object(case.config.clone()).to_string(),
    );
    convert_adapter(&made.files, None, &made.destination(), &mut go_on).unwrap();
}

#[test]
fn adapters_that_do_more_are_refused() {
    let fixture = fixture();
    let case = &fixture.cases["llama"];
    let fails = |change: &dyn Fn(&mut Upload), expected: &str| {
        let mut made = adapter(&fixture, case);
        made.add(
            "config.json",
            Value::Object(case.config.clone()).to_string(),
        );
        change(&mut made);
        let error =
            convert_adapter(&made.files, None, &made.destination(), &mut go_on).unwrap_err();
        assert!(
            error.to_string().contains(expected),
            "{error} does not say {expected}"
        );
        assert!(!made.destination().exists());
    };
    let set = |key: &'static str, value: Value| {
        let mut settings = settings(&fixture);
        settings[key] = value;
        move |made: &mut Upload| made.add("adapter_config.json", settings.to_string())
    };
    fails(&set("use_dora", json!(true)), "adapters with use_dora");
    fails(
        &set("peft_type", json!("LOHA")),
        "adapters of the kind LOHA",
    );
    fails(&set("lora_alpha", Value::Null), "lora_alpha is missing");
    let tensor = |name: &'static str, shape: Vec<usize>| {
        move |made: &mut Upload| {
            let data = vec![0; 2 * shape.iter().product::<usize>()];
            made.add(
                "more.safetensors",
                safetensors(&[(name.to_owned(), shape.clone(), data)]),
            );
        }
    };
    fails(
        &tensor("base_model.model.lm_head.weight", vec![2, 2]),
        "is not part of a low-rank product",
    );
    fails(
        &tensor("base_model.model.lm_head.lora_A.weight", vec![2, 2]),
        "one of the two factors",
    );
}

#[test]
fn adapters_for_other_models_are_refused() {
    let fixture = fixture();
    let case = &fixture.cases["llama"];
    let mut made = adapter(&fixture, case);
    made.add(
        "config.json",
        Value::Object(case.config.clone()).to_string(),
    );
    convert_adapter(&made.files, None, &made.destination(), &mut go_on).unwrap();
    for (name, expected) in [
        ("qwen3", "not for qwen3 models"),
        ("mistral", "blk.0.attn_k.weight.lora_b has shape"),
    ] {
        let base = upload(name, &fixture.cases[name]);
        convert_model(&base.files, &base.destination(), None, &mut go_on).unwrap();
        let options = LoadOptions {
            adapters: vec![Adapter {
                path: made.destination(),
                scale: 1.0,
            }],
            ..options()
        };
        let error = llmsrv_models::load(&base.destination(), &options)
            .err()
            .unwrap();
        assert!(error.to_string().contains(expected), "{error}");
        let model_as_adapter = LoadOptions {
            adapters: vec![Adapter {
                path: base.destination(),
                scale: 1.0,
            }],
            ..options
        };
        let error = llmsrv_models::load(&base.destination(), &model_as_adapter)
            .err()
            .unwrap();
        assert!(
            error
                .to_string()
                .contains("general.type of the adapter is not adapter"),
            "{error}"
        );
    }
}

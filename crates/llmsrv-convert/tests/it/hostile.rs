//! Uploads of strangers: whatever is in them, a conversion ends, with a result or one line.

use std::ops::ControlFlow;

use llmsrv_convert::{convert_adapter, convert_model};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::published::{Upload, definition, fixture, safetensors, sentencepiece, upload};

fn convert(upload: &Upload) -> Result<(), String> {
    let mut go_on = |_, _| ControlFlow::Continue(());
    let _ = std::fs::remove_file(upload.destination());
    let result = convert_model(&upload.files, &upload.destination(), None, &mut go_on);
    let result = result.map_err(|error| error.to_string());
    if let Err(error) = &result {
        assert!(!error.contains('\n'), "{error}");
        assert!(!upload.destination().exists());
    }
    result
}

/// Values that JSON may hold where a number, a text or a list is expected.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u64..100).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        prop::collection::vec(any::<u32>(), 0..4).prop_map(Value::from),
        Just(json!({"rope_type": "llama3", "factor": 0.0, "type": 7})),
        Just(json!({"rope_type": "longrope", "long_factor": [1, 2], "short_factor": "x"})),
        Just(json!({"rope_type": "yarn", "factor": -1e300})),
    ]
}

#[test]
fn headers_and_definitions_have_upper_bounds() {
    let mut files = Upload::new();
    let config = Value::Object(fixture().cases["llama"].config.clone()).to_string();
    files.add("config.json", &config);
    files.add("tokenizer.model", sentencepiece());
    let refused = |files: &mut Upload, name: &str, content: Vec<u8>, says: &str| {
        files.add(name, content);
        let error = convert(files).unwrap_err();
        assert!(error.contains(says), "{says}: {error}");
    };
    let framed = |header: String| {
        let len = header.len() as u64;
        [&len.to_le_bytes()[..], header.as_bytes()].concat()
    };
    let tensor =
        |index: usize| format!(r#""t{index}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#);
    let tensors: Vec<String> = (0..=65_536).map(tensor).collect();
    let weights = "model.safetensors";
    refused(
        &mut files,
        weights,
        framed(format!("{{{}}}", tensors.join(","))),
        "65,536 tensors",
    );
    refused(
        &mut files,
        weights,
        framed(" ".repeat((16 << 20) + 1)),
        "larger than 16 MiB",
    );
    let deep = format!("{{\"t\":{}{}}}", "[".repeat(64), "]".repeat(64));
    refused(
        &mut files,
        weights,
        framed(deep),
        "nests more than 64 levels",
    );
    refused(
        &mut files,
        weights,
        framed(format!("[{}]", "[0],".repeat(2_000_001))),
        "more than 4000000 values",
    );
    let sound = [(
        "model.embed_tokens.weight".into(),
        vec![300, 32],
        vec![0; 300 * 64],
    )];
    files.add(weights, safetensors(&sound));
    let many = format!("{{\"a\":[{}0]}}", "[0],".repeat(2_000_001));
    refused(
        &mut files,
        "config.json",
        many.into_bytes(),
        "config.json: it has more than 4000000 values",
    );
    files.add("config.json", config);
    let empty = [0x0a, 0].repeat(8 << 20);
    refused(
        &mut files,
        "tokenizer.model",
        [&empty[..], &[0]].concat(),
        "tokenizer.model is larger than 16 MiB",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn headers_may_say_anything(header in any::<Vec<u8>>(), len in any::<u64>(), at in 0_usize..4000, byte in any::<u8>()) {
        let mut files = Upload::new();
        files.add("config.json", Value::Object(fixture().cases["llama"].config.clone()).to_string());
        files.add("tokenizer.model", sentencepiece());
        files.add("model.safetensors", [&len.to_le_bytes()[..], &header].concat());
        prop_assert!(convert(&files).is_err());
        files.add("model.safetensors", [&(header.len() as u64).to_le_bytes()[..], &header].concat());
        prop_assert!(convert(&files).is_err());
        let mut sound = safetensors(&[("model.embed_tokens.weight".into(), vec![300, 32], vec![0; 300 * 64])]);
        let at = at % sound.len();
        sound[at] = byte;
        files.add("model.safetensors", sound);
        let _ = convert(&files);
    }

    #[test]
    fn configurations_may_say_anything(changes in prop::collection::vec((any::<prop::sample::Index>(), value()), 1..4)) {
        let fixture = fixture();
        for name in ["llama3", "gemma3"] {
            let case = &fixture.cases[name];
            let mut upload = upload(name, case);
            let mut config = case.config.clone();
            let keys: Vec<String> = config.keys().cloned().chain(["rope_scaling".into(), "layer_types".into()]).collect();
            for (index, value) in &changes {
                config.insert(index.get(&keys).clone(), value.clone());
            }
            upload.add("config.json", Value::Object(config).to_string());
            let _ = convert(&upload);
        }
    }

    #[test]
    fn tokenizers_may_say_anything(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let fixture = fixture();
        let mut upload = upload("llama", &fixture.cases["llama"]);
        let mut model = sentencepiece();
        let at_model = at.index(model.len());
        model[at_model] = byte;
        upload.add("tokenizer.model", &model);
        let _ = convert(&upload);
        upload.add("tokenizer.model", &model[..cut.index(model.len())]);
        let _ = convert(&upload);
        upload.files.retain(|(name, _)| name != "tokenizer.model");
        let mut text = definition().to_string().into_bytes();
        let at_text = at.index(text.len());
        text[at_text] = byte;
        upload.add("tokenizer.json", text);
        let _ = convert(&upload);
    }

    #[test]
    fn adapters_may_say_anything(key in 0_usize..4, value in value(), shape in prop::collection::vec(0_usize..5, 0..4)) {
        let keys = ["peft_type", "lora_alpha", "use_rslora", "alpha_pattern"];
        let mut settings = json!({"peft_type": "LORA", "lora_alpha": 8, "use_rslora": true});
        settings[keys[key]] = value;
        let mut files = Upload::new();
        files.add("adapter_config.json", settings.to_string());
        files.add("config.json", Value::Object(fixture().cases["llama"].config.clone()).to_string());
        let data = vec![0; 2 * shape.iter().product::<usize>()];
        let tensors = ["A", "B"].map(|mark| {
            let name = format!("base_model.model.model.layers.0.self_attn.q_proj.lora_{mark}.weight");
            (name, shape.clone(), data.clone())
        });
        files.add("adapter_model.safetensors", safetensors(&tensors));
        let mut go_on = |_, _| ControlFlow::Continue(());
        let _ = convert_adapter(&files.files, None, &files.destination(), &mut go_on);
    }
}

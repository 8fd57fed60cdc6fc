//! Converting published models: the result says what the published model says.

use std::ops::ControlFlow;

use llmsrv_convert::{Error, Target, convert_model};
use llmsrv_gguf::{GgufFile, TensorType};
use llmsrv_tokenizer::Special;
use safetensors::Dtype;
use serde_json::{Value, json};

use crate::published::{
    Upload, definition, difference, fixture, logits, options, safetensors, safetensors_of, upload,
    weights,
};

fn convert(upload: &Upload) -> Result<(), Error> {
    let mut last = (0, 1);
    let mut progress = |done, total| {
        last = (done, total);
        ControlFlow::Continue(())
    };
    convert_model(&upload.files, &upload.destination(), None, &mut progress)?;
    assert_eq!(last.0, last.1);
    Ok(())
}

#[test]
fn converted_models_say_what_the_published_ones_say() {
    let fixture = fixture();
    assert_eq!(fixture.cases.len(), 10);
    for (name, case) in &fixture.cases {
        let upload = upload(name, case);
        convert(&upload).unwrap_or_else(|error| panic!("{name}: {error}"));
        let path = upload.destination();
        let mut loaded = llmsrv_models::load(&path, &options())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = logits(&mut loaded, &fixture.prompt);
        let difference = difference(&found, &case.logits);
        println!("{name}: {difference:.1e}");
        assert!(difference < 2e-5, "{name}: {difference}");

        let file = GgufFile::open(&path).unwrap();
        for tensor in &file.header().tensors {
            let is_small = tensor.shape.len() == 1 || tensor.name.contains("gate_inp");
            let expected = if is_small {
                TensorType::F32
            } else {
                TensorType::BF16
            };
            assert_eq!(tensor.dtype, expected, "{name} {}", tensor.name);
        }
        assert_eq!(file.header().file_type_name(), "BF16");
    }
}

#[test]
fn matrices_keep_every_bit() {
    let fixture = fixture();
    let case = &fixture.cases["qwen2"];
    let mut upload = upload("qwen2", case);
    let (name, shape, _) = case
        .tensors
        .iter()
        .find(|row| row.0.contains("down_proj"))
        .unwrap();
    // Zeros of both signs, subnormal and large numbers.
    let bits = [0_u16, 0x8000, 1, 0x8001, 0x7f7f, 0x3f80, 0xbf81, 0xff7f];
    let n_values: usize = shape.iter().product();
    let data: Vec<u8> = bits
        .iter()
        .flat_map(|bits| bits.to_le_bytes())
        .cycle()
        .take(2 * n_values)
        .collect();
    let tensors: Vec<_> = case
        .tensors
        .iter()
        .map(|(other, shape, middle)| {
            let data = if other == name {
                data.clone()
            } else {
                weights("qwen2", other, shape, *middle)
            };
            (other.clone(), shape.clone(), data)
        })
        .collect();
    upload
        .files
        .retain(|(name, _)| !name.contains("safetensors"));
    upload.add("model.safetensors", safetensors(&tensors));
    convert(&upload).unwrap();
    let file = GgufFile::open(&upload.destination()).unwrap();
    let tensor = file.tensor("blk.0.ffn_down.weight").unwrap();
    assert!(file.data(tensor) == data);
}

#[test]
fn single_precision_is_kept_for_what_is_quantised_next() {
    let fixture = fixture();
    let case = &fixture.cases["qwen2"];
    let mut upload = upload("qwen2", case);
    // More digits than half precision has, and more than it can count.
    let values = |shape: &[usize]| -> Vec<f32> {
        let one = |at| {
            if at == 5 {
                100_000.0
            } else {
                0.1 + at as f32 / 1000.0
            }
        };
        (0..shape.iter().product()).map(one).collect()
    };
    let tensors: Vec<_> = case
        .tensors
        .iter()
        .map(|(name, shape, _)| {
            let bytes = values(shape).into_iter().flat_map(f32::to_le_bytes);
            (name.clone(), shape.clone(), bytes.collect())
        })
        .collect();
    upload
        .files
        .retain(|(name, _)| !name.contains("safetensors"));
    upload.add("model.safetensors", safetensors_of(Dtype::F32, &tensors));
    let convert = |target| {
        let go_on = &mut |_, _| ControlFlow::Continue(());
        convert_model(&upload.files, &upload.destination(), target, go_on)
    };
    for target in [None, Some(Target::F16)] {
        let error = convert(target).unwrap_err().to_string();
        assert!(error.contains("too large for the type"), "{error}");
    }
    for target in [Target::F32, Target::Q8_0] {
        convert(Some(target)).unwrap();
        let file = GgufFile::open(&upload.destination()).unwrap();
        assert_eq!(file.header().file_type_name(), "F32");
        let tensor = file.tensor("blk.0.ffn_down.weight").unwrap();
        let shape: Vec<usize> = tensor.shape.iter().map(|size| *size as usize).collect();
        let expected: Vec<u8> = values(&shape)
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect();
        assert!(file.data(tensor) == expected);
    }
}

#[test]
fn texts_end_with_what_the_definition_puts_there() {
    let fixture = fixture();
    let end = json!({"SpecialToken": {"id": "<tool>", "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    // Another than the end of an answer, as in Qwen3-Embedding; the same; one that is turned off; none.
    for (eos_token, stated, ends, eos, eot, adds) in [
        ("<|end|>", None, true, 297, Some(298), true),
        ("<tool>", None, true, 297, None, true),
        ("<|end|>", Some(false), true, 298, None, false),
        ("<|end|>", None, false, 298, None, false),
    ] {
        let mut definition = definition();
        let pieces = if ends {
            json!([text, end])
        } else {
            json!([text])
        };
        definition["post_processor"] = json!({"type": "Sequence", "processors": [
            {"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": pieces}]});
        let mut upload = upload("qwen3", &fixture.cases["qwen3"]);
        upload.add("tokenizer.json", definition.to_string());
        let mut settings = json!({"bos_token": null, "eos_token": eos_token});
        if let Some(stated) = stated {
            settings["add_eos_token"] = json!(stated);
        }
        upload.add("tokenizer_config.json", settings.to_string());
        upload
            .files
            .retain(|(name, _)| name != "generation_config.json");
        convert(&upload).unwrap();
        let file = GgufFile::open(&upload.destination()).unwrap();
        let id = |role: &str| {
            file.metadata()
                .u32(&format!("tokenizer.ggml.{role}_token_id"))
        };
        assert_eq!((id("eos"), id("eot")), (Some(eos), eot));
        let loaded = llmsrv_models::load(&upload.destination(), &options()).unwrap();
        let tokenizer = &loaded.tokenizer;
        assert_eq!((tokenizer.adds_eos(), tokenizer.adds_bos()), (adds, false));
        let ends = eot.unwrap_or(eos);
        assert!(tokenizer.is_end_of_generation(ends), "{ends}");
    }
}

#[test]
fn tokenizers_of_both_kinds_are_converted() {
    let fixture = fixture();
    for (name, bos, eos, template) in [
        ("llama", 1, vec![2, 299], "{{ messages[0].content }}"),
        ("qwen3", 298, vec![298, 299], "D"),
    ] {
        let upload = upload(name, &fixture.cases[name]);
        convert(&upload).unwrap();
        let loaded = llmsrv_models::load(&upload.destination(), &options()).unwrap();
        let tokenizer = &loaded.tokenizer;
        let text = "hello hello, wörld 123 <|im_end|>";
        let ids = tokenizer.encode(text, Special::Parse);
        assert!(tokenizer.adds_bos());
        assert_eq!(tokenizer.bos(), Some(bos), "{name}");
        let file = GgufFile::open(&upload.destination()).unwrap();
        let spelled = |text: &str| {
            let tokens = file.metadata().strings("tokenizer.ggml.tokens").unwrap();
            tokens
                .iter()
                .position(|token| token == text.as_bytes())
                .unwrap() as u32
        };
        let hello = if name == "llama" {
            "▁hello"
        } else {
            "Ġhello"
        };
        assert_eq!(
            ids.iter().filter(|id| **id == spelled(hello)).count(),
            if name == "llama" { 2 } else { 1 }
        );
        assert_eq!(
            file.metadata().str("tokenizer.chat_template"),
            Some(template)
        );
        let tokens = file.metadata().strings("tokenizer.ggml.tokens").unwrap();
        assert_eq!(tokens.len(), 300, "as many as embeddings");
        for id in eos {
            assert!(tokenizer.is_end_of_generation(id), "{name}: {id}");
        }
    }
}

#[test]
fn merges_of_characters_become_scores() {
    let mut definition = definition();
    let mut vocab = serde_json::Map::new();
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let texts = [
        "▁", "h", "e", "l", "o", "he", "ll", "hell", "hello", "▁hello",
    ]
    .map(str::to_owned);
    for (id, text) in bytes.chain(texts).enumerate() {
        vocab.insert(text, json!(id));
    }
    definition["model"]["vocab"] = Value::Object(vocab);
    definition["model"]["byte_fallback"] = json!(true);
    definition["model"]["merges"] = json!(["h e", "l l", "he ll", "hell o", "▁ hello"]);
    definition["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
    definition["pre_tokenizer"] = Value::Null;
    let fixture = fixture();
    let mut upload = upload("mistral", &fixture.cases["mistral"]);
    upload.add("tokenizer.json", definition.to_string());
    convert(&upload).unwrap();
    let loaded = llmsrv_models::load(&upload.destination(), &options()).unwrap();
    let ids = loaded.tokenizer.encode("hello hell", Special::Parse);
    // "▁hello", "▁", "hell".
    assert_eq!(ids, [265, 256, 263]);
}

#[test]
fn what_is_missing_or_unknown_is_named() {
    let fixture = fixture();
    let case = &fixture.cases["llama"];
    let fails = |change: &dyn Fn(&mut Upload), expected: &str| {
        let mut upload = upload("llama", case);
        change(&mut upload);
        let error = convert(&upload).unwrap_err().to_string();
        assert!(
            error.contains(expected),
            "{error:?} does not say {expected:?}"
        );
        assert!(!error.contains('\n') && !error.contains(upload.folder.path().to_str().unwrap()));
        assert!(!upload.destination().exists());
    };
    let config = |key: &'static str, value: Value| {
        move |upload: &mut Upload| {
            let mut config = case.config.clone();
            config.insert(key.into(), value.clone());
            upload.add("config.json", Value::Object(config).to_string());
        }
    };
    let without = |name: &'static str| {
        move |upload: &mut Upload| upload.files.retain(|(other, _)| other != name)
    };
    fails(&without("config.json"), "config.json is missing");
    fails(
        &without("tokenizer.model"),
        "tokenizer.model or tokenizer.json is missing",
    );
    fails(
        &without("model-00002-of-00002.safetensors"),
        "is in none of the files",
    );
    fails(
        &|upload| {
            upload
                .files
                .retain(|(name, _)| !name.contains("safetensors"));
        },
        "weights is missing",
    );
    fails(
        &config("architectures", json!(["XForCausalLM"])),
        "class XForCausalLM cannot be converted (known: Llama",
    );
    fails(
        &config("architectures", json!(7)),
        "architectures is missing",
    );
    fails(
        &config("num_attention_heads", json!(3)),
        "does not have 3 heads",
    );
    fails(
        &config("num_attention_heads", json!(-1)),
        "num_attention_heads is not a sensible number",
    );
    fails(
        &config("num_hidden_layers", json!(0)),
        "num_hidden_layers is missing",
    );
    fails(
        &config("rope_scaling", json!({"rope_type": "spiral"})),
        "rope_type is spiral",
    );
    fails(
        &|upload| upload.add("tokenizer.model", "not a model"),
        "tokenizer.model",
    );
    fails(&|upload| upload.add("config.json", "[]"), "config.json: ");
    let extra = |name: &'static str, data: Vec<u8>| {
        move |upload: &mut Upload| {
            let tensors = [(name.to_owned(), vec![data.len() / 2], data.clone())];
            upload.add("extra.safetensors", safetensors(&tensors));
        }
    };
    fails(
        &extra("model.layers.0.self_attn.q_proj.qweight", vec![0; 4]),
        "has no meaning in a LlamaForCausalLM",
    );
    fails(
        &extra("model.norm.weight", vec![0; 64]),
        "tensor model.norm.weight is in two files",
    );
    let nan = weights("x", "x", &[32], f32::NAN);
    fails(
        &extra("model.layers.0.mlp.up_proj.bias", nan),
        "values that are not finite",
    );
    fails(
        &|upload| {
            let mut changed = definition();
            changed["pre_tokenizer"] = json!({"type": "Whitespace"});
            upload.files.retain(|(name, _)| name != "tokenizer.model");
            upload.add("tokenizer.json", changed.to_string());
        },
        "cuts text into words in a way that is not known",
    );
}

//! Every keyword and every format: what the grammar lets a random model write satisfies the schema
//! for an independent validator, or the schema is refused with the keyword and its place.

mod cases;

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use cases::{Row, closed, enforced, open, refused};

use super::{
    formats::{FORMATS, Rule as FormatRule},
    *,
};
use crate::{
    GrammarSpec, fake,
    grammar::tests::{accepted, compile},
};

#[test]
fn what_is_generated_satisfies_the_schema() {
    let mut wrong = Vec::new();
    for Row(keyword, schema, right, bad) in enforced() {
        let spec = GrammarSpec::JsonSchema(schema.clone());
        if let Err(error) = compile(spec.clone()) {
            wrong.push(format!("{keyword}: {schema} is refused: {error}"));
            continue;
        }
        let validator = validator(&schema);
        assert!(
            validator.is_valid(&right),
            "{keyword}: {right} is no example of {schema}"
        );
        assert!(
            !validator.is_valid(&bad),
            "{keyword}: {bad} is an example of {schema}"
        );
        let text = right.to_string();
        if accepted(&spec, &text) != (text.len(), true) {
            wrong.push(format!("{keyword}: {schema} does not let {text} through"));
        }
        let text = bad.to_string();
        if accepted(&spec, &text) == (text.len(), true) {
            wrong.push(format!("{keyword}: {schema} lets {text} through"));
        }
        wrong.extend(
            counterexample(&spec, &validator)
                .map(|text| format!("{keyword}: {schema} lets {text} through")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn formats_are_kept() {
    let mut wrong = Vec::new();
    for format in FORMATS {
        let kind = if format
            .applies
            .to(&Map::from_iter([("type".into(), json!("string"))]))
        {
            "string"
        } else {
            "integer"
        };
        let schema = json!({"type": kind, "format": format.name});
        let spec = GrammarSpec::JsonSchema(schema.clone());
        if let Err(error) = compile(spec.clone()) {
            wrong.push(format!("{schema} is refused: {error}"));
            continue;
        }
        if let FormatRule::Range(minimum, maximum) = format.rule {
            for (number, fits) in [
                (minimum, true),
                (maximum, true),
                (minimum - 4096.0, false),
                (maximum + 4096.0, false),
            ] {
                let text = (number as i128).to_string();
                assert_eq!(
                    accepted(&spec, &text) == (text.len(), true),
                    fits,
                    "{schema} {text}"
                );
            }
        }
        wrong.extend(
            counterexample(&spec, &validator(&schema))
                .map(|text| format!("{} lets {text} through", format.name)),
        );
    }
    let cases = [
        ("date", "2023-02-29", false),
        ("date", "2000-02-29", true),
        ("date", "1900-02-29", false),
        ("date-time", "2024-01-31T23:59:59.5+01:00", true),
        ("time", "24:00:00Z", false),
        ("email", "a.b@example.org", true),
        ("hostname", "a-b.example", true),
        ("uri", "https://example.org:80/a%20b?q=1#f", true),
        ("uri", "mailto:me@example.org", true),
        ("uri-reference", "../a/b?c", true),
        ("json-pointer", "/a~1b", true),
        ("byte", "YWI=", true),
        ("byte", "YWI", false),
        ("duration", "P1DT2H", true),
    ];
    for (format, text, fits) in cases {
        let spec = GrammarSpec::JsonSchema(json!({"type": "string", "format": format}));
        let text = format!("{text:?}");
        assert_eq!(
            accepted(&spec, &text) == (text.len(), true),
            fits,
            "{format} {text}"
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_cannot_be_enforced_is_refused_by_name_and_place() {
    let mut wrong = Vec::new();
    for (keyword, schema, at) in refused() {
        let error = compile(GrammarSpec::StrictJsonSchema(schema.clone())).err();
        let start = format!("invalid format: {keyword:?} (at {at}) ");
        if !error
            .as_ref()
            .is_some_and(|error| error.starts_with(&start) && error.len() < 500)
        {
            wrong.push(format!("{schema}: {error:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_keyword_has_its_test() {
    let mut tested: BTreeSet<&str> = enforced().iter().map(|row| row.0).collect();
    tested.extend(refused().iter().map(|row| row.0));
    let known: BTreeSet<&str> = KEYWORDS.iter().map(|row| row.name).collect();
    assert_eq!(tested, known);
}

/// What is refused only where a client is strict is left out and named by the same words.
#[test]
fn what_is_left_out_is_named() {
    let mut n_left_out = 0;
    for (keyword, schema, at) in refused() {
        let name = format!("{keyword:?} (at {at}) ");
        match compile(GrammarSpec::JsonSchema(schema.clone())) {
            Ok(constraint) => {
                n_left_out += 1;
                let unenforced = constraint.unenforced();
                assert_eq!(unenforced.len(), 1, "{schema}: {unenforced:?}");
                assert!(unenforced[0].starts_with(&name), "{schema}: {unenforced:?}");
            }
            Err(error) => {
                let start = format!("invalid format: {name}");
                assert!(error.starts_with(&start), "{schema}: {error}");
                assert!(!SOUND.contains(&keyword), "{schema}: {error}");
            }
        }
    }
    assert!(n_left_out >= SOUND.len());
    for Row(_, schema, _, _) in enforced() {
        let constraint = compile(GrammarSpec::JsonSchema(schema.clone())).unwrap();
        assert_eq!(constraint.unenforced().len(), 0, "{schema}");
    }
}

/// Keywords whose rows of [`refused`] are sound schemas.
const SOUND: [&str; 15] = [
    "$dynamicRef",
    "$recursiveRef",
    "oneOf",
    "not",
    "if",
    "pattern",
    "format",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "contains",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "patternProperties",
];

#[test]
fn objects_that_list_their_properties_have_no_others() {
    for (schema, right, bad) in closed() {
        let spec = GrammarSpec::JsonSchema(schema.clone());
        let fits = |text: &str| accepted(&spec, text) == (text.len(), true);
        assert!(fits(right), "{schema} does not let {right} through");
        assert!(!fits(bad), "{schema} lets {bad} through");
        let found = counterexample(&spec, &validator(&schema));
        assert_eq!(found, None, "{schema}");
    }
    for (schema, right) in open() {
        let spec = GrammarSpec::JsonSchema(schema.clone());
        assert_eq!(accepted(&spec, right), (right.len(), true), "{schema}");
    }
}

/// Schemas as libraries write them.
#[test]
fn schemas_of_libraries_are_satisfied() {
    let text = include_str!("../../../../../tests/clients/schemas.json");
    let rows: Vec<Value> = serde_json::from_str(text).unwrap();
    for row in rows {
        let schema = &row["schema"];
        let spec = GrammarSpec::JsonSchema(schema.clone());
        let unenforced = compile(spec.clone()).unwrap().unenforced();
        let expected = row["unenforced"].as_array().cloned().unwrap_or_default();
        assert_eq!(unenforced.len(), expected.len(), "{schema}: {unenforced:?}");
        for (text, keyword) in unenforced.iter().zip(&expected) {
            assert!(text.starts_with(&keyword.to_string()), "{text}");
        }
        let mut promised = schema.clone();
        if expected.contains(&json!("uniqueItems")) {
            promised = without(&promised, "uniqueItems");
        }
        if expected.contains(&json!("pattern")) {
            promised = without(&promised, "pattern");
        }
        let found = counterexample(&spec, &validator(&promised));
        assert_eq!(found, None, "{schema}");
    }
}

/// A schema without a keyword.
fn without(schema: &Value, keyword: &str) -> Value {
    match schema {
        Value::Array(items) => items.iter().map(|item| without(item, keyword)).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != keyword);
            kept.map(|(name, field)| (name.clone(), without(field, keyword)))
                .collect()
        }
        other => other.clone(),
    }
}

/// For schemas made at random: what a document of the schema says is let through, and nothing that
/// is no such document.
#[test]
fn random_schemas_are_satisfied() {
    let mut n_documents = 0;
    for seed in 0..150 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (schema, document) = random_schema(&mut random, 3);
        let spec = GrammarSpec::JsonSchema(schema.clone());
        let validator = validator(&schema);
        let text = document.to_string();
        assert!(validator.is_valid(&document), "{schema}: {document}");
        assert_eq!(
            accepted(&spec, &text),
            (text.len(), true),
            "{schema}: {text}"
        );
        for attempt in 0..8 {
            let text = write(&spec, seed * 8 + attempt);
            if is_huge(&text) {
                continue;
            }
            n_documents += 1;
            let value: Option<Value> = serde_json::from_str(&text).ok();
            assert!(
                value.is_some_and(|value| validator.is_valid(&value)),
                "{schema} lets {text} through"
            );
        }
    }
    assert!(n_documents > 500, "{n_documents}");
}

/// A schema and a document that satisfies it and lists what it may in the order of the schema.
fn random_schema(random: &mut ChaCha8Rng, depth: usize) -> (Value, Value) {
    let n_kinds = if depth == 0 { 6 } else { 11 };
    match random.random_range(0..n_kinds) {
        0 => (json!({"type": "null"}), Value::Null),
        1 => (
            json!({"type": "boolean", "title": "T"}),
            json!(random.random_bool(0.5)),
        ),
        2 => {
            let least = random.random_range(-50..50_i64);
            let most = least + random.random_range(0..1000_i64);
            let value = random.random_range(least..=most);
            (
                json!({"type": "integer", "minimum": least, "maximum": most}),
                json!(value),
            )
        }
        3 => {
            let value = f64::from(random.random_range(-400..400_i32)) / 8.0;
            (
                json!({"type": "number", "minimum": -50, "exclusiveMaximum": 50.5}),
                json!(value),
            )
        }
        4 => {
            let n = random.random_range(0..6_usize);
            let text: String = "a\u{e9}\"\\\u{1f600}b".chars().take(n).collect();
            (
                json!({"type": "string", "maxLength": n + 2, "minLength": n.min(2)}),
                json!(text),
            )
        }
        5 => {
            let values = json!(["x", 1, null, true]);
            let value = values[random.random_range(0..4_usize)].clone();
            (
                json!({"enum": ["x", 1, null, true, 2.5], "default": "x"}),
                value,
            )
        }
        6 | 7 => random_object(random, depth - 1),
        8 => {
            let (items, item) = random_schema(random, depth - 1);
            let n = random.random_range(0..3_usize);
            let schema =
                json!({"type": "array", "items": items, "maxItems": n + 1, "minItems": n.min(1)});
            (schema, vec![item; n].into())
        }
        9 => {
            let (first, value) = random_schema(random, depth - 1);
            let (second, other) = random_schema(random, depth - 1);
            let value = if random.random_bool(0.5) {
                value
            } else {
                other
            };
            (json!({"anyOf": [first, second]}), value)
        }
        _ => {
            let (first, value) = random_schema(random, depth - 1);
            let (second, other) = random_object(random, depth - 1);
            let document = json!([value, other]);
            let schema = json!({"type": "array", "prefixItems": [first, second], "minItems": 2, "items": false});
            (schema, document)
        }
    }
}

fn random_object(random: &mut ChaCha8Rng, depth: usize) -> (Value, Value) {
    let (mut properties, mut required, mut document) = (Map::new(), Vec::new(), Map::new());
    for name in ["a", "b c", "\u{e9}\"", "a.b"] {
        if random.random_bool(0.4) {
            continue;
        }
        let (schema, value) = random_schema(random, depth);
        properties.insert(name.into(), schema);
        let is_required = random.random_bool(0.5);
        if is_required {
            required.push(name);
        }
        if is_required || random.random_bool(0.5) {
            document.insert(name.into(), value);
        }
    }
    let mut schema = json!({"type": "object", "properties": properties, "required": required});
    match random.random_range(0..5_usize) {
        0 => schema["additionalProperties"] = false.into(),
        1 => {
            schema["additionalProperties"] = json!({"type": "integer"});
            document.insert("other".into(), 7.into());
        }
        2 => {
            schema["patternProperties"] = json!({"^x_": {"type": "boolean"}});
            schema["additionalProperties"] = false.into();
            document.insert("x_1".into(), true.into());
        }
        3 => {
            let whole = json!({"properties": {"z": {"const": 1}}, "required": ["z"]});
            document.insert("z".into(), 1.into());
            schema = json!({"allOf": [schema, whole]});
        }
        _ => {}
    }
    (schema, document.into())
}

/// A tool's schema is enforced as far as it goes.
#[test]
fn a_lenient_schema_leaves_out_what_cannot_be_enforced() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true, "items": {"type": "integer"}}, "b": {"oneOf": [{"minimum": 1, "type": "number"}, {"type": "integer"}]}}, "required": ["a"]});
    let lark = "start: \"call \" schema_0".to_owned();
    let schemas = vec![schema];
    let spec = GrammarSpec::Calls {
        lark,
        schemas,
        answer: None,
    };
    for (text, fits) in [
        ("call {\"a\": [1,1], \"b\": 2}", true),
        ("call {\"a\": [\"x\"]}", false),
        ("call {}", false),
    ] {
        assert_eq!(accepted(&spec, text) == (text.len(), true), fits, "{text}");
    }
    let schemas = vec![json!({"type": "object", "patternProperties": {"a": {}, "b": {}}})];
    let lark = "start: schema_0".to_owned();
    let spec = GrammarSpec::Calls {
        lark,
        schemas,
        answer: None,
    };
    assert_eq!(accepted(&spec, "{\"ab\":1}"), (8, true));
}

fn validator(schema: &Value) -> jsonschema::Validator {
    jsonschema::options()
        .should_validate_formats(true)
        .build(schema)
        .unwrap()
}

/// Lets a random model write under the grammar; returns what is not JSON that satisfies the schema.
fn counterexample(spec: &GrammarSpec, validator: &jsonschema::Validator) -> Option<String> {
    (0..40).find_map(|seed| {
        let text = write(spec, seed);
        if is_huge(&text) {
            return None;
        }
        let value: Option<Value> = serde_json::from_str(&text).ok();
        let is_valid = value.is_some_and(|value| validator.is_valid(&value));
        (!is_valid).then_some(text)
    })
}

/// Whether a text has a number that only some parsers of JSON take: the validator computes with
/// doubles.
fn is_huge(text: &str) -> bool {
    let bytes = text.as_bytes();
    let n_digits = |bytes: &[u8]| {
        bytes
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    (0..bytes.len()).any(|at| match bytes[at] {
        b'e' | b'E' => {
            let sign = usize::from(bytes.get(at + 1).is_some_and(|byte| b"+-".contains(byte)));
            n_digits(&bytes[at + 1 + sign..]) > 2
        }
        _ => n_digits(&bytes[at..]) > 15,
    })
}

/// What a model with random logits writes; after a while it likes to come to an end.
fn write(spec: &GrammarSpec, seed: u64) -> String {
    let tokenizer = fake::tokenizer();
    let mut constraint = compile(spec.clone()).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut bytes = Vec::new();
    for step in 0..4000 {
        let allowed = constraint.mask().unwrap().unwrap().to_list();
        let ends = |token: &&u32| tokenizer.is_end_of_generation(**token);
        let closing = || {
            ["\"", "}", "]"]
                .iter()
                .map(|text| u32::from(text.as_bytes()[0]))
                .find(|token| allowed.contains(token))
        };
        let end = allowed.iter().find(ends).copied().or_else(closing);
        let token = match end {
            Some(token) if step > 120 || random.random_bool(0.15) => token,
            _ => allowed[random.random_range(0..allowed.len())],
        };
        let settled = constraint.settle(token, usize::MAX, &tokenizer, |_| Ok::<_, ()>(None));
        let token = settled.unwrap();
        if tokenizer.is_end_of_generation(token) {
            break;
        }
        bytes.push(token as u8);
        if constraint.accept(token, &tokenizer).unwrap() {
            break;
        }
    }
    String::from_utf8(bytes).unwrap()
}

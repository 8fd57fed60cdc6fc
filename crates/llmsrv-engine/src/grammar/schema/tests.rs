//! Every keyword and every format: what the grammar lets a random model write satisfies the schema
//! for an independent validator, or the schema is refused with the keyword and its place.

mod cases;

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use cases::{Row, enforced, refused};

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
        let error = compile(GrammarSpec::JsonSchema(schema.clone())).err();
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

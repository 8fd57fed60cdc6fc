//! A model that chooses at random, and one that likes to repeat itself, under random schemas: every
//! answer is whole, satisfies its schema and has no name twice, however few tokens it may have.

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
};

use llmsrv_tokenizer::{Algorithm, TokenKind, Tokenizer, Vocab};
use proptest::prelude::*;
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

use super::*;
use crate::{
    GenRequest, GrammarSpec, SamplingParams,
    detok::output_bytes,
    fake,
    grammar::{Constraint, Grammars},
};

/// Bytes, and tokens of several that end one thing and begin another.
fn tokenizer() -> Arc<Tokenizer> {
    static TOKENIZER: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    let make = || {
        let mut tokens: Vec<String> = (0..=u8::MAX)
            .map(|byte| fake::byte_letter(byte).to_string())
            .collect();
        let more = [
            "\",\"", "\":", "\":\"", "{\"", "\"}", "}}", "],", "[[", "},{\"", "x_", "\"x_", "x_1",
            "x_0\":", "ab", "abc", "00", "true", "null", "\"a\":", ",\"a", "1,", "0}",
        ];
        tokens.extend(more.map(str::to_owned));
        let mut kinds = vec![TokenKind::Normal; tokens.len()];
        tokens.push("<end>".into());
        kinds.push(TokenKind::Control);
        let end = tokens.len() as u32 - 1;
        Arc::new(
            Tokenizer::new(Vocab {
                algorithm: Algorithm::Bpe,
                tokens,
                kinds,
                pre: "gpt-2".into(),
                eos: Some(end),
                eot: Some(end),
                ..Vocab::default()
            })
            .unwrap(),
        )
    };
    TOKENIZER.get_or_init(make).clone()
}

fn constraint(schema: &Value) -> Constraint {
    static GRAMMARS: OnceLock<Grammars> = OnceLock::new();
    let request = GenRequest {
        tokens: vec![1],
        images: Vec::new(),
        params: SamplingParams::default(),
        num_ctx: 1000,
        max_tokens: None,
        stop: Vec::new(),
        num_keep: 0,
        shift: true,
        grammar: None,
        grammar_after: None,
        grammar_unless: None,
        logprobs: None,
    };
    let spec = GrammarSpec::JsonSchema(schema.clone());
    let grammars = GRAMMARS.get_or_init(|| Grammars::new(tokenizer()));
    grammars.constraint(&spec, &request).unwrap()
}

/// How a model without weights chooses.
#[derive(Clone, Copy, Debug)]
enum Taste {
    /// Any token.
    Any,
    /// The same tokens whenever they are allowed, often.
    Same,
    /// Never an end, if there is a way around it.
    Endless,
}

/// Writes an answer of up to `most` tokens; returns its text and whether it is whole.
fn write(constraint: &mut Constraint, taste: Taste, most: usize, seed: u64) -> (String, bool) {
    let tokenizer = tokenizer();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut liked: Vec<TokenId> = (0..tokenizer.vocab_size() as TokenId).collect();
    liked.shuffle(&mut random);
    let mut bytes = Vec::new();
    for n_before in 0..most {
        let mut allowed = constraint.mask().unwrap().unwrap().to_list();
        let mut choose = |allowed: &[TokenId]| {
            let is_end = |token: &TokenId| {
                let bytes = output_bytes(&tokenizer, *token);
                bytes.is_empty() || bytes.iter().any(|byte| b"}]\"".contains(byte))
            };
            let likes = |list: &[TokenId]| {
                let first = liked.iter().find(|token| list.contains(token));
                first.copied()
            };
            let others: Vec<TokenId> = allowed
                .iter()
                .copied()
                .filter(|token| !is_end(token))
                .collect();
            match taste {
                Taste::Same if random.random_bool(0.8) => likes(allowed),
                Taste::Endless if !others.is_empty() => {
                    Some(others[random.random_range(0..others.len())])
                }
                _ if allowed.is_empty() => None,
                _ => Some(allowed[random.random_range(0..allowed.len())]),
            }
        };
        let picked = choose(&allowed).unwrap();
        let token = constraint
            .settle(picked, most - n_before, &tokenizer, |refused| {
                allowed.retain(|token| *token != refused);
                Ok::<_, ()>(choose(&allowed))
            })
            .unwrap();
        bytes.extend_from_slice(&output_bytes(&tokenizer, token));
        let is_whole = constraint.accept(token, &tokenizer).unwrap();
        if is_whole || tokenizer.is_end_of_generation(token) {
            return (String::from_utf8(bytes).unwrap(), true);
        }
    }
    (String::from_utf8_lossy(&bytes).into_owned(), false)
}

/// Reads JSON, without names that come twice.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Unique;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("JSON")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Unique, E> {
                Ok(Unique(value.into()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Unique, E> {
                Ok(Unique(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Unique, E> {
                Ok(Unique(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Unique, E> {
                Ok(Unique(value.into()))
            }
            fn visit_str<E>(self, value: &str) -> Result<Unique, E> {
                Ok(Unique(value.into()))
            }
            fn visit_unit<E>(self) -> Result<Unique, E> {
                Ok(Unique(Value::Null))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
                let mut list = Vec::new();
                while let Some(Unique(item)) = items.next_element()? {
                    list.push(item);
                }
                Ok(Unique(list.into()))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Unique, A::Error> {
                let mut object = Map::new();
                while let Some((name, Unique(member))) = members.next_entry::<String, _>()? {
                    if object.insert(name.clone(), member).is_some() {
                        return Err(A::Error::custom(format!("{name:?} comes twice")));
                    }
                }
                Ok(Unique(object.into()))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

fn fault(text: &str, schema: &Value) -> Option<String> {
    let value = match serde_json::from_str(text) {
        Ok(Unique(value)) => value,
        Err(error) => return Some(error.to_string()),
    };
    let validator = jsonschema::options().build(schema).unwrap();
    let error = validator.iter_errors(&value).next();
    error.map(|error| error.to_string())
}

/// Tokens of the way that is found from the start.
fn least(constraint: &mut Constraint, schema: &Value) -> usize {
    let watch = constraint.watch.as_mut().unwrap();
    let Way::Found(way) = watch.ahead.way(&[], &Position::new(16), Goal::End) else {
        panic!("no answer to {schema} is found");
    };
    let text = String::from_utf8(way.clone()).unwrap();
    assert_eq!(fault(&text, schema), None, "{schema}: {text}");
    watch.ahead.tokens(&way).unwrap().len()
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "boolean"})),
        Just(json!({"type": ["null", "string"]})),
        (0..200_u32).prop_map(|most| json!({"type": "integer", "minimum": 0, "maximum": most})),
        Just(json!({"type": "number", "exclusiveMinimum": 0.5})),
        Just(json!({"enum": ["a", "ab", "abc", "b"]})),
        // One byte more makes the way to the end of the text much longer.
        Just(json!({"enum": ["a", format!("ab{}", "cd".repeat(30))]})),
        (0..6_u32).prop_map(|n| json!({"type": "string", "minLength": n, "maxLength": n + 3})),
        Just(json!({"type": "string", "pattern": "^[a-c]{2,4}-(x|yy)$"})),
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "format": "date"})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let lists = (inner.clone(), 0..3_u32)
            .prop_map(|(items, least)| json!({"type": "array", "items": items, "minItems": least}));
        prop_oneof![lists, object(inner)]
    })
}

/// Objects most of whose names are free, few of them or many.
fn object(member: impl Strategy<Value = Value> + Clone + 'static) -> impl Strategy<Value = Value> {
    let names = prop_oneof![
        (1..4_u32).prop_map(|n| json!({"maxLength": n})),
        Just(json!({"maxLength": 0})),
        Just(json!({"enum": ["a", "ab", "abc"]})),
        Just(json!({"pattern": "^x_[0-2]$"})),
        Just(json!({"pattern": "^(a|ab|abc)$"})),
    ];
    let listed =
        proptest::collection::vec((member.clone(), any::<bool>()), 0..4).prop_map(|members| {
            let mut properties = Map::new();
            let mut required = Vec::new();
            for (idx, (member, is_required)) in members.into_iter().enumerate() {
                let name = ["a", "x_0", "x_11", "abc"][idx];
                properties.insert(name.into(), member);
                if is_required {
                    required.push(name);
                }
            }
            json!({"type": "object", "properties": properties, "required": required})
        });
    let patterns = (member.clone(), member.clone(), 0..4_u32, any::<bool>()).prop_map(
        |(first, second, most, is_unit)| {
            let first_pattern = format!("^x_[0-{most}]$");
            let mut schema = json!({
                "type": "object", "patternProperties": {first_pattern: first, "^y$": second},
                "additionalProperties": false,
            });
            if is_unit {
                schema["properties"] = json!({"a": {"const": 1}});
                schema["required"] = json!(["a"]);
            }
            schema
        },
    );
    let free = (member.clone(), names).prop_map(|(member, names)| {
        json!({"type": "object", "propertyNames": names, "additionalProperties": member})
    });
    let open = (member, listed.clone()).prop_map(|(member, mut schema)| {
        schema["additionalProperties"] = member;
        schema
    });
    prop_oneof![listed, patterns, free, open]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn every_answer_is_whole(
        schema in object(value().boxed()),
        taste in prop_oneof![Just(Taste::Any), Just(Taste::Same), Just(Taste::Endless)],
        room in 0..150_usize,
        seed in any::<u64>(),
    ) {
        let mut constraint = constraint(&schema);
        let most = least(&mut constraint, &schema) + room;
        let (text, is_whole) = write(&mut constraint, taste, most, seed);
        prop_assert!(is_whole, "{schema}: {text}");
        let fault = fault(&text, &schema);
        prop_assert!(fault.is_none(), "{schema}: {text}: {fault:?}");
    }
}

/// What an output that is cut at any place goes on with.
#[test]
fn what_is_open_is_closed() {
    let deep = json!({"type": "object", "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "string", "minLength": 3}}, "required": ["c"]},
        "n": {"type": "integer", "minimum": 100, "maximum": 999},
    }, "required": ["a", "n"]});
    let free = json!({"type": "object", "additionalProperties": {"type": "number"}});
    let few = json!({"type": "object", "patternProperties": {"^x_[0-2]$": {"type": "null"}}, "additionalProperties": false});
    let cases = [
        (&deep, "", r#"{"a":{"c":"   "},"n":100}"#),
        (&deep, r#"{"a": {"b": "x"#, r#"","c":"   "},"n":100}"#),
        (&deep, r#"{"a": {"b": "x\"#, r#"""#),
        (&deep, r#"{"a": {"c": "xyzz"},"n": 1"#, "00}"),
        (&free, r#"{"a": 1."#, "0}"),
        (&free, r#"{"a": -"#, "0}"),
        (&free, r#"{"a": 1e"#, "0}"),
        (&free, r#"{"a": 1,"#, r#""":0}"#),
        (&free, r#"{"": 1,"#, r#"" ":0}"#),
        (&free, r#"{"a": 1, "a"#, r#" ":0}"#),
        (&few, r#"{"x_0": null, "x_"#, r#"1":null}"#),
    ];
    for (schema, text, rest) in cases {
        let mut constraint = constraint(schema);
        let mut at = Position::new(16);
        for byte in text.bytes() {
            constraint.accept(u32::from(byte), &tokenizer()).unwrap();
            let _ = at.push(byte);
        }
        let ahead = &mut constraint.watch.as_mut().unwrap().ahead;
        let Way::Found(way) = ahead.way(&[], &at, Goal::End) else {
            panic!("{text}: nothing is found");
        };
        let way = String::from_utf8(way).unwrap();
        assert!(way.starts_with(rest), "{text}: {way}");
        let whole = format!("{text}{way}");
        assert_eq!(fault(&whole, schema), None, "{whole}");
    }
}

/// No name is begun that cannot become a new one, nor a member for which no name is left.
#[test]
fn names_are_looked_ahead_for() {
    let few = json!({"type": "object", "patternProperties": {"^(ab|ac)$": {"const": 0}}, "additionalProperties": false});
    let short = json!({"type": "object", "propertyNames": {"maxLength": 2}, "additionalProperties": {"const": 0}});
    let tokenizer = tokenizer();
    for (schema, text, next, is_refused) in [
        (&few, r#"{"ab":0"#, b',', false),
        (&few, r#"{"ab":0,"ac":0"#, b',', true),
        (&few, r#"{"ab":0,"a"#, b'b', true),
        (&few, r#"{"ab":0,"a"#, b'c', false),
        (&short, r#"{"zz":0,""#, b'z', false),
        (&short, r#"{"zz":0,"z"#, b'z', true),
        (&short, r#"{"zz":0,"z"#, b'"', false),
    ] {
        let mut constraint = constraint(schema);
        for byte in text.bytes() {
            constraint.accept(u32::from(byte), &tokenizer).unwrap();
        }
        let (token, mut refused) = (u32::from(next), Vec::new());
        let settled = constraint.settle(token, usize::MAX, &tokenizer, |token| {
            refused.push(token);
            Ok::<_, ()>(None)
        });
        assert_eq!(!refused.is_empty(), is_refused, "{text}");
        assert_eq!(settled != Ok(token), is_refused, "{text}");
    }
}

/// An answer that ends by itself is the one without a bound.
#[test]
fn room_changes_nothing_where_there_is_enough() {
    let schema = json!({"type": "object", "propertyNames": {"maxLength": 3}, "additionalProperties": {"type": "integer"}});
    let mut seen = HashSet::new();
    for seed in 0..20 {
        let (text, is_whole) = write(&mut constraint(&schema), Taste::Any, 4000, seed);
        assert!(is_whole);
        let mut again = constraint(&schema);
        let (same, _) = write(&mut again, Taste::Any, text.len() + 50, seed);
        assert_eq!(text, same);
        assert!(!again.was_end_brought_about());
        seen.insert(text);
    }
    assert!(seen.len() > 10);
}

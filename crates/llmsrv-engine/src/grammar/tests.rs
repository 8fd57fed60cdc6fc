//! Grammars that are right, wrong, or meant to do harm.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::*;
use crate::{SamplingParams, fake};

fn request(after: Option<&str>, unless: Option<&str>) -> GenRequest {
    GenRequest {
        tokens: vec![1],
        images: Vec::new(),
        params: SamplingParams::default(),
        num_ctx: 1000,
        max_tokens: None,
        stop: Vec::new(),
        num_keep: 0,
        shift: true,
        grammar: None,
        grammar_after: after.map(str::to_owned),
        grammar_unless: unless.map(str::to_owned),
        logprobs: None,
    }
}

pub(super) fn compile(spec: GrammarSpec) -> Result<Constraint, String> {
    static GRAMMARS: OnceLock<Grammars> = OnceLock::new();
    let grammars = GRAMMARS.get_or_init(|| Grammars::new(Arc::new(fake::tokenizer())));
    grammars
        .constraint(&spec, &request(None, None))
        .map_err(|error| error.to_string())
}

fn schema(schema: Value) -> GrammarSpec {
    GrammarSpec::JsonSchema(schema)
}

fn strict(schema: Value) -> GrammarSpec {
    GrammarSpec::StrictJsonSchema(schema)
}

/// A call, or an answer in a format.
fn call_or(answer: GrammarSpec) -> GrammarSpec {
    GrammarSpec::Calls {
        lark: "start: \"<c>\" schema_0 | answer".into(),
        schemas: vec![json!({"type": "integer", "minimum": 0, "maximum": 9})],
        answer: Some(Box::new(answer)),
    }
}

/// Returns how many bytes of `text` the grammar lets through, and whether it may end there.
pub(super) fn accepted(spec: &GrammarSpec, text: &str) -> (usize, bool) {
    let tokenizer = fake::tokenizer();
    let mut constraint = compile(spec.clone()).unwrap();
    for (idx, byte) in text.bytes().enumerate() {
        let mask = constraint.mask().unwrap().unwrap();
        let token = u32::from(byte);
        let settled = constraint.settle(token, usize::MAX, &tokenizer, |_| Ok::<_, ()>(None));
        if !mask.is_allowed(token) || settled != Ok(token) {
            return (idx, mask.is_allowed(tokenizer.eos().unwrap()));
        }
        if constraint.accept(u32::from(byte), &tokenizer).unwrap() {
            return (idx + 1, true);
        }
    }
    (
        text.len(),
        constraint
            .mask()
            .unwrap()
            .unwrap()
            .is_allowed(tokenizer.eos().unwrap()),
    )
}

#[test]
fn what_a_schema_leaves_no_choice_about_is_known() {
    let spec = schema(json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "kind": {"const": "caf\u{e9}"}},
        "required": ["name", "kind"],
        "additionalProperties": false,
    }));
    let tokenizer = fake::tokenizer();
    let forced = |text: &str| {
        let mut constraint = compile(spec.clone()).unwrap();
        for byte in text.bytes() {
            constraint.mask().unwrap();
            constraint.accept(u32::from(byte), &tokenizer).unwrap();
        }
        let tokens = constraint.forced_tokens(&tokenizer);
        let bytes = tokens.iter().map(|token| *token as u8).collect();
        // Nothing else changes by asking.
        assert_eq!(tokens, constraint.forced_tokens(&tokenizer));
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(forced(r#"{"n"#), "ame", "blanks may come behind the name");
    assert_eq!(forced(r#"{"name": "x"#), "", "a text may go on");
    assert_eq!(forced(r#"{"name":"x","kind":"c"#), "af\u{e9}");
    assert_eq!(forced(""), "", "a longer token may begin with a brace");
    let mut regex = compile(GrammarSpec::Regex("abc".into())).unwrap();
    assert!(
        regex.forced_tokens(&tokenizer).is_empty(),
        "only JSON is followed"
    );
}

/// A schema that leaves no choice about twenty thousand bytes.
#[test]
fn what_is_forced_is_bounded() {
    let long = "x".repeat(20_000);
    let tokenizer = fake::tokenizer();
    let mut constraint = compile(schema(json!({"const": long}))).unwrap();
    let forced = constraint.forced_tokens(&tokenizer);
    assert_eq!(forced.len(), MAX_FORCED_BYTES - 1);
    for token in forced {
        assert!(constraint.mask().unwrap().unwrap().is_allowed(token));
        constraint.accept(token, &tokenizer).unwrap();
    }
}

#[test]
fn grammars_let_through_what_they_describe() {
    let array =
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2});
    let reference =
        json!({"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [{"const": 5}, {"type": "null"}]}}});
    let pattern = json!({"type": "string", "pattern": "^[a-c]{2}$"});
    let cases = [
        (GrammarSpec::Json, "{\"a\": [1, {}]}", 14, true),
        (GrammarSpec::Json, "{\"a\": [1, {}", 12, false),
        (GrammarSpec::Json, "[1]", 0, false),
        (GrammarSpec::Json, "{\n  \"a\": 1\n}", 12, true),
        (schema(array.clone()), "[1, 2]", 6, true),
        (schema(array.clone()), "[]", 1, false),
        (schema(array), "[1, 2, 3]", 5, false),
        (schema(reference.clone()), "5", 1, true),
        (schema(reference), "null", 4, true),
        (schema(pattern.clone()), "\"abx", 3, false),
        (schema(pattern), "\"ab\"", 4, true),
        (
            schema(json!({"multipleOf": 5, "type": "integer", "minimum": 0})),
            "15",
            2,
            true,
        ),
        (
            schema(json!({"multipleOf": 5, "type": "integer", "minimum": 0})),
            "12",
            2,
            false,
        ),
        (schema(json!({"type": "string"})), "\"\u{20ac}\"", 5, true),
        (schema(json!(true)), "[null]", 6, true),
        (GrammarSpec::Regex("a+b?".into()), "aab", 3, true),
        (GrammarSpec::Regex("a+b?".into()), "ba", 0, false),
        (
            GrammarSpec::Lark("start: \"x\" start | \"y\"".into()),
            "xxy",
            3,
            true,
        ),
        (call_or(GrammarSpec::Json), "{ \"a\": 1 }", 10, true),
        (call_or(GrammarSpec::Json), "<c>7", 4, true),
        (call_or(GrammarSpec::Regex("a/b".into())), "a/b", 3, true),
        (call_or(GrammarSpec::Regex("a/b".into())), "7", 0, false),
        (call_or(GrammarSpec::Regex(r"a\/b".into())), "a/b", 3, true),
        (
            call_or(GrammarSpec::Regex(r"a\\/b".into())),
            r"a\/b",
            4,
            true,
        ),
    ];
    for (spec, text, n_bytes, may_end) in cases {
        assert_eq!(
            accepted(&spec, text),
            (n_bytes, may_end),
            "{text:?} with {spec:?}"
        );
    }
}

#[test]
fn control_tokens_cannot_be_spelled() {
    let tokenizer = fake::tokenizer();
    let mut constraint = compile(GrammarSpec::Regex("(.|\n)*".into())).unwrap();
    let mask = constraint.mask().unwrap().unwrap();
    for text in ["<|im_start|>", "<|im_end|>", "<|endoftext|>"] {
        let id = tokenizer.find(text).unwrap();
        assert_eq!(
            mask.is_allowed(id),
            tokenizer.is_end_of_generation(id),
            "{text}"
        );
    }
    assert!(mask.is_allowed(u32::from(b'<')));
}

#[test]
fn wrong_grammars_are_one_line_errors() {
    let cases = [
        (schema(json!({"type": "nonsense"})), "nonsense"),
        (schema(json!([1])), "a JSON schema is an object"),
        (strict(json!({"not": {"type": "string"}})), "not"),
        (
            strict(json!({"type": "array", "uniqueItems": true})),
            "uniqueItems",
        ),
        (
            strict(json!({"x-guidance": {"lenient": true}, "type": "array", "uniqueItems": true})),
            "uniqueItems",
        ),
        (schema(json!({"$ref": "#"})), "no output can match it"),
        (schema(json!({"$ref": "https://example.org/schema"})), ""),
        (
            strict(json!({"type": "string", "pattern": "(?=a)b"})),
            "look-around",
        ),
        (
            schema(json!({"type": "integer", "minimum": 3, "maximum": 2})),
            "",
        ),
        (GrammarSpec::Regex("a(".into()), "unclosed"),
        (GrammarSpec::Lark("begin: \"a\"".into()), "no start rule"),
        (GrammarSpec::Lark(String::new()), "no start rule"),
        (GrammarSpec::Lark("start: %json {}".into()), "%json"),
    ];
    for (spec, words) in cases {
        let Err(error) = compile(spec.clone()) else {
            panic!("compiled: {spec:?}")
        };
        assert!(
            error.starts_with("invalid format: ") && error.contains(words),
            "{spec:?}: {error}"
        );
        assert!(!error.contains('\n') && error.len() < 500, "{error}");
    }
}

/// Each of these would take minutes, gigabytes or the whole stack without a limit.
#[test]
fn hostile_grammars_end_soon() {
    let chain = |n: usize, link: &dyn Fn(String) -> Value| {
        let mut defs: Map<String, Value> = (0..n)
            .map(|idx| (format!("d{idx}"), link(format!("#/$defs/d{}", idx + 1))))
            .collect();
        defs.insert(format!("d{n}"), json!({"type": "string"}));
        schema(json!({"$ref": "#/$defs/d0", "$defs": defs}))
    };
    let deep = (0..200).fold(json!({}), |inner, _| json!({"items": inner}));
    let either = |idx: usize| {
        let object = |name: String| json!({"type": "object", "properties": {name.clone(): {}}, "required": [name]});
        json!({"anyOf": [object(format!("a{idx}")), object(format!("b{idx}"))]})
    };
    let properties: Map<String, Value> = (0..3000)
        .map(|idx| (format!("p{idx}"), json!({})))
        .collect();
    let rules: Vec<String> = (0..8000)
        .map(|idx| format!("r{idx}: r{0} | \"y\" r{0}", idx + 1))
        .collect();
    let doubling: Vec<String> = (0..30)
        .map(|idx| format!("T{idx}: T{0} T{0}", idx + 1))
        .collect();
    let cases = [
        schema(deep),
        schema(json!({"allOf": (0..16).map(either).collect::<Vec<_>>()})),
        schema(json!({"type": "object", "properties": properties})),
        schema(json!({"enum": (0..20_000).collect::<Vec<_>>()})),
        schema(json!({"type": "integer", "multipleOf": 1_000_003})),
        schema(json!({"allOf": [{"type": "integer", "multipleOf": 9973}, {"multipleOf": 9967}]})),
        schema(json!({"type": "number", "multipleOf": 1e300})),
        schema(json!({"type": "number", "minimum": 1e-300, "maximum": 1e300})),
        schema(json!({"type": "array", "minItems": 1_000_000_000, "items": {"type": "object"}})),
        schema(json!({"type": "string", "pattern": "(.{0,1000}){0,1000}", "minLength": 1_000_000})),
        chain(4000, &|next| json!({"$ref": next})),
        chain(
            2000,
            &|next| json!({"allOf": [{"$ref": next}, {"type": "string"}]}),
        ),
        chain(
            30,
            &|next| json!({"allOf": [{"$ref": next.clone()}, {"$ref": next}]}),
        ),
        GrammarSpec::Regex("(a{1000}){1000}".into()),
        GrammarSpec::Regex("(".repeat(100_000)),
        GrammarSpec::Regex("a".to_string() + &"?".repeat(200_000)),
        GrammarSpec::Regex("a|".repeat(1 << 20)),
        GrammarSpec::Lark(format!(
            "start: {}\"a\"{}",
            "(".repeat(10_000),
            ")".repeat(10_000)
        )),
        GrammarSpec::Lark("start: start start | \"a\"?".into()),
        GrammarSpec::Lark(format!("start: r0\n{}\nr8000: \"x\"", rules.join("\n"))),
        GrammarSpec::Lark(format!("start: T0\n{}\nT30: \"x\"", doubling.join("\n"))),
    ];
    let tokenizer = fake::tokenizer();
    for spec in cases {
        let started = Instant::now();
        if let Ok(mut constraint) = compile(spec.clone()) {
            for step in 0..50 {
                let allowed = constraint.mask().unwrap().unwrap().to_list();
                let token = allowed[step * 7 % allowed.len()];
                if tokenizer.is_end_of_generation(token)
                    || constraint.accept(token, &tokenizer).unwrap()
                {
                    break;
                }
            }
        }
        let name: String = format!("{spec:?}").chars().take(100).collect();
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{name} took {:?}",
            started.elapsed()
        );
    }
}

/// What would cost seconds is refused before anything is compiled.
#[test]
fn what_grows_is_refused_by_its_size() {
    let object =
        |name: &str| json!({"type": "object", "properties": {name: {}}, "required": [name]});
    let either =
        |idx: usize| json!({"anyOf": [object(&format!("a{idx}")), object(&format!("b{idx}"))]});
    let chain = |link: &dyn Fn(Value) -> Value| {
        let mut defs: Map<String, Value> = (0..16)
            .map(|idx| {
                (
                    format!("d{idx}"),
                    link(json!({"$ref": format!("#/$defs/d{}", idx + 1)})),
                )
            })
            .collect();
        defs.insert("d16".into(), object("a"));
        schema(json!({"$ref": "#/$defs/d0", "type": "object", "$defs": defs}))
    };
    let nested = (0..14).fold(object("a"), |inner, idx| {
        json!({"type": "object", "anyOf": [inner, object(&format!("b{idx}"))], "allOf": [either(idx)]})
    });
    let combinations = "too many combinations";
    let cases = [
        (
            schema(json!({"type": "string", "pattern": "a?".repeat(500_000)})),
            "the patterns of the schema are longer",
        ),
        (
            schema(json!({"type": "object", "patternProperties": {"a".repeat(100_000): {}}})),
            "the patterns of the schema are longer",
        ),
        (
            strict(
                json!({"anyOf": [{"type": "string", "pattern": "(a|b)".repeat(10_000)}, {"pattern": "x"}]}),
            ),
            "the patterns of the schema are longer",
        ),
        (GrammarSpec::Regex("a|".repeat(50_000)), "too large"),
        (GrammarSpec::Lark("// a\n".repeat(50_000)), "too large"),
        (
            schema(json!({"allOf": (0..16).map(either).collect::<Vec<_>>()})),
            combinations,
        ),
        (
            chain(&|next| json!({"anyOf": [next.clone(), next], "type": "object"})),
            combinations,
        ),
        (
            chain(
                &|next| json!({"anyOf": [{"allOf": [next.clone()]}, {"allOf": [next]}], "minProperties": 1}),
            ),
            combinations,
        ),
        (schema(nested), combinations),
    ];
    for (spec, words) in cases {
        let name: String = format!("{spec:?}").chars().take(100).collect();
        let Err(error) = compile(spec) else {
            panic!("compiled: {name}")
        };
        assert!(error.contains(words), "{name}: {error}");
    }
}

/// A schema whose time is over is refused wherever its compiling is, at once.
#[test]
fn compiling_ends_when_its_time_is_over() {
    let compiler = Compiler::new(&fake::tokenizer()).unwrap();
    let spec = schema(json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    assert!(compiler.compile(&spec, Deadline::new()).is_ok());
    for mode in [schema, strict] {
        let late = compiler.compile(
            &mode(json!({"type": "string"})),
            Deadline::at(Instant::now()),
        );
        let error = late.err().unwrap();
        assert_eq!(error, "compiling it takes longer than 2 seconds");
    }

    let wide = (0..9000).map(|idx| (format!("p{idx}"), json!({})));
    let wide = json!({"properties": wide.collect::<Map<String, Value>>()});
    let late = Deadline::at(Instant::now());
    let error = schema::prepare(&wide, "", schema::Mode::Named, late).unwrap_err();
    assert!(error.to_string().contains("takes too long"), "{error}");
}

/// Alternatives that are not multiplied may be many.
#[test]
fn large_schemas_of_every_day_are_accepted() {
    let fields = (0..100).map(|idx| {
        let field = json!({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "description": "x"});
        (format!("field_{idx}"), field)
    });
    let fields: Map<String, Value> = fields.collect();
    let kinds = (0..30).map(|idx| {
        json!({"type": "object", "properties": {"kind": {"const": format!("k{idx}")}, "value": {"anyOf": [{"type": "number"}, {"type": "null"}]}}, "required": ["kind"]})
    });
    let kinds: Vec<Value> = kinds.collect();
    let wide = json!({"type": "object", "properties": fields});
    let union = json!({"type": "array", "items": {"oneOf": kinds}});
    for spec in [strict(wide), strict(union)] {
        if let Err(error) = compile(spec) {
            panic!("{error}");
        }
    }
}

#[test]
fn blanks_between_tokens_are_bounded() {
    let list = || json!({"type": "array", "items": {"enum": [1, 2]}});
    let call = |lark: &str| GrammarSpec::Calls {
        lark: lark.into(),
        schemas: vec![list()],
        answer: None,
    };
    let specs = [
        (schema(list()), ""),
        (call("start: \"<c>\" schema_0"), "<c>"),
    ];
    for (spec, before) in specs {
        for (text, fits) in [
            ("[1,2]", true),
            ("[ 1, 2 ]", true),
            ("[\n  1,\n  2\n]", true),
            ("[\n\t\t1\n]", true),
            ("[  1]", false),
            ("[1,  2]", false),
            ("[\n\n1]", false),
            ("[ \n1]", false),
            ("[\r1]", false),
            ("[1, 2]  ", false),
        ] {
            let text = format!("{before}{text}");
            assert_eq!(
                accepted(&spec, &text) == (text.len(), true),
                fits,
                "{text:?}"
            );
        }
        let deep = |n: usize| format!("{before}[\n{}1]", " ".repeat(n));
        assert!(accepted(&spec, &deep(20)).1);
        assert!(!accepted(&spec, &deep(21)).1);
    }
    let text = "{\"a\":  1}";
    assert_eq!(accepted(&GrammarSpec::Json, text).0, 6);
}

#[test]
fn no_name_comes_twice() {
    let numbers = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": {"type": "integer"}});
    let nested = json!({"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"type": "string"}}});
    let call = GrammarSpec::Calls {
        lark: "start: \"<c>\" schema_0".into(),
        schemas: vec![numbers.clone()],
        answer: None,
    };
    let cases = [
        (schema(numbers.clone()), "{\"n\":1,\"a\":1,\"b\":2}", None),
        (
            schema(numbers.clone()),
            "{\"n\":1,\"a\":1,\"a\":2}",
            Some(15),
        ),
        (
            schema(numbers.clone()),
            "{\"a\":1,\"ab\":2,\"a\":2}",
            Some(16),
        ),
        (
            schema(numbers),
            "{\"a\\\"\":1,\"b\":2,\"a\\\"\":2}",
            Some(19),
        ),
        (
            schema(nested.clone()),
            "{\"a\":{\"x\":\"a\"},\"x\":{\"x\":\"\",\"a\":\"\"}}",
            None,
        ),
        (schema(nested), "{\"a\":{\"x\":\"\",\"x\":\"\"}}", Some(15)),
        (
            GrammarSpec::Json,
            "{\"a\":[{\"a\":\"a\"},{\"a\":1}],\"b\":1}",
            None,
        ),
        (GrammarSpec::Json, "{\"a\":{},\"a\":1}", Some(10)),
        (call, "<c>{\"a\":1,\"a\":2}", Some(12)),
    ];
    for (spec, text, wrong_at) in cases {
        let (n_bytes, may_end) = accepted(&spec, text);
        let found = (!(n_bytes == text.len() && may_end)).then_some(n_bytes);
        assert_eq!(found, wrong_at, "{text}");
    }
}

/// What a schema leaves without a bound has one; what it asks for is possible all the same.
#[test]
fn free_json_comes_to_an_end() {
    let number = schema(json!({"type": "array", "items": {"type": "number"}}));
    let integer = schema(json!({"type": "array", "items": {"type": "integer"}}));
    let large = schema(json!({"type": "integer", "minimum": 1e17, "maximum": 2e17}));
    let digits = |n: usize| "7".repeat(n);
    let numbers = [
        (&number, format!("[{}]", digits(16)), true),
        (&number, format!("[{}]", digits(17)), false),
        (&number, format!("[-1.{}]", digits(16)), true),
        (&number, format!("[-1.{}]", digits(17)), false),
        (&number, "[6.02e23,1E-99]".into(), true),
        (&number, "[1e100]".into(), false),
        (&integer, format!("[{},1]", digits(16)), true),
        (&integer, format!("[{}]", digits(17)), false),
        (&large, "123456789012345678".into(), true),
        (
            &GrammarSpec::Json,
            format!("{{\"a\":{}}}", digits(17)),
            false,
        ),
        (
            &GrammarSpec::Json,
            format!("{{\"a\":\"{}\"}}", digits(17)),
            true,
        ),
    ];
    for (spec, text, fits) in numbers {
        assert_eq!(accepted(spec, &text) == (text.len(), true), fits, "{text}");
    }

    let object = |n: usize| {
        let members: Vec<String> = (0..n).map(|idx| format!("\"k{idx}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    let list = |n: usize| {
        let items: Vec<String> = (0..n).map(|idx| idx.to_string()).collect();
        format!("[{}]", items.join(","))
    };
    let nested = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
    let integers = json!({"type": "array", "items": {"type": "integer"}});
    let many = json!({"type": "array", "items": {"type": "integer"}, "minItems": 1030});
    let members =
        json!({"type": "object", "additionalProperties": {"const": 0}, "minProperties": 1});
    let listed: Map<String, Value> = (0..200)
        .map(|idx| (format!("k{idx}"), json!({"const": 0})))
        .collect();
    let names: Vec<&String> = listed.keys().collect();
    let listed = json!({"type": "object", "properties": listed, "required": names});
    let cases = [
        (GrammarSpec::Json, object(128), true),
        (GrammarSpec::Json, object(129), false),
        (schema(members.clone()), object(128), true),
        (schema(members), object(129), false),
        (schema(listed), object(200), true),
        (schema(integers.clone()), list(1024), true),
        (schema(integers), list(1025), false),
        (schema(many), list(1030), true),
        (GrammarSpec::Json, nested(31), true),
        (GrammarSpec::Json, nested(32), false),
    ];
    for (spec, text, fits) in cases {
        assert_eq!(
            accepted(&spec, &text) == (text.len(), true),
            fits,
            "{} bytes",
            text.len()
        );
    }
}

/// Of a finite number of names none comes twice either, and there is always a way on.
#[test]
fn names_that_are_all_taken_are_not_begun() {
    let names = schema(
        json!({"type": "object", "patternProperties": {"^x_[0-3]$": {"const": 0}}, "additionalProperties": false}),
    );
    for (text, wrong_at) in [
        ("{\"x_1\":0,\"x_2\":0,\"x_0\":0,\"x_3\":0}", None),
        ("{\"x_1\":0,\"x_1\":0}", Some(12)),
        ("{\"x_1\":0,\"x_2\":0,\"x_1\":0}", Some(20)),
    ] {
        let (n_bytes, may_end) = accepted(&names, text);
        let found = (!(n_bytes == text.len() && may_end)).then_some(n_bytes);
        assert_eq!(found, wrong_at, "{text}");
    }
}

/// A model that repeats itself comes out of a text, a name and a list, and is not disturbed before.
#[test]
fn loops_are_left() {
    let object = schema(json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    let pattern = schema(json!({"type": "string", "pattern": "^a*$", "minLength": 300}));
    let list = schema(json!({"type": "array", "items": {"type": "integer"}}));
    let many = schema(json!({"type": "array", "items": {"const": 0}, "minItems": 200}));
    let text = |unit: &str, n: usize| format!("{{\"a\":\"{}\"}}", unit.repeat(n));
    let cases = [
        (&object, text("-", 24), true),
        (&object, text("-", 40), false),
        (&object, text("ab", 23), true),
        (&object, text("ab", 40), false),
        (&object, text("one two ", 7), true),
        (&object, text("one two ", 12), false),
        (&object, text("one two three four five ", 3), true),
        (
            &GrammarSpec::Json,
            format!("{{\"{}\":1}}", "k".repeat(40)),
            false,
        ),
        (&pattern, format!("\"{}\"", "a".repeat(300)), true),
        (&list, format!("[{}]", ["0"; 60].join(",")), true),
        (&list, format!("[{}]", ["0"; 100].join(",")), false),
        (&list, format!("[{}]", ["1,2,3"; 12].join(",")), true),
        (&list, format!("[{}]", ["1,2,3"; 40].join(",")), false),
        (&many, format!("[{}]", ["0"; 200].join(",")), true),
    ];
    for (spec, text, fits) in cases {
        assert_eq!(accepted(spec, &text) == (text.len(), true), fits, "{text}");
    }
}

/// An output may begin with thinking or not; what follows is in the grammar in both cases.
#[test]
fn a_grammar_begins_after_thinking_if_there_is_any() {
    let tokenizer = fake::tokenizer();
    let grammars = Grammars::new(Arc::new(fake::tokenizer()));
    let json = GrammarSpec::JsonSchema(json!({"type": "array", "items": {"type": "integer"}}));
    let tagged = GrammarSpec::Lark("start: \"<tool>\" /[a-z]/".into());
    let cases = [
        (&json, None, "free text</think>[1]", None),
        (&json, None, "</think>x", Some(8)),
        (&json, Some("<think>"), "<think>[ \u{20ac}</think>[1]", None),
        (&json, Some("<think>"), "[1]", None),
        (&json, Some("<think>"), "text", Some(0)),
        (&json, Some("<think>"), "<thing>", Some(5)),
        (&json, Some("<think>"), "<[1]", Some(1)),
        (&tagged, Some("<think>"), "<tool>a", None),
        (&tagged, Some("<think>"), "<think>x</think><tool>a", None),
        (&tagged, Some("<think>"), "<thinker", Some(6)),
    ];
    for (spec, unless, text, wrong_at) in cases {
        let request = request(Some("</think>"), unless);
        let mut constraint = grammars.constraint(spec, &request).unwrap();
        let refused = text.bytes().position(|byte| {
            let token = u32::from(byte);
            let mask = constraint.mask().unwrap();
            mask.is_some_and(|mask| !mask.is_allowed(token))
                || constraint.accept(token, &tokenizer).is_err()
        });
        assert_eq!(refused, wrong_at, "{text:?}");
    }
}

#[test]
fn a_known_grammar_is_not_compiled_again() {
    let grammars = Grammars::new(Arc::new(fake::tokenizer()));
    let spec = |idx: usize| schema(json!({"const": format!("value {idx}")}));
    for idx in 0..100 {
        grammars
            .constraint(&spec(idx), &request(None, None))
            .unwrap();
    }
    // The copy in the cache stays as it was when a sequence moves on.
    let tokenizer = fake::tokenizer();
    for _ in 0..2 {
        let mut constraint = grammars
            .constraint(&spec(99), &request(None, None))
            .unwrap();
        for byte in "\"value 99\"".bytes() {
            assert!(
                constraint
                    .mask()
                    .unwrap()
                    .unwrap()
                    .is_allowed(u32::from(byte))
            );
            constraint.accept(u32::from(byte), &tokenizer).unwrap();
        }
    }
    // While another grammar is compiled, a known one does not wait.
    let _compiling = grammars.compiling.lock();
    grammars
        .constraint(&spec(99), &request(None, None))
        .unwrap();
    let cache = grammars.compiled.lock();
    assert_eq!(cache.len(), 32);
}

/// A grammar of calls names control tokens by their ids, which no text can spell.
#[test]
fn control_tokens_have_their_place_in_a_grammar() {
    let tokenizer = fake::tokenizer();
    let id = tokenizer.find("<|im_start|>").unwrap();
    let lark = format!("start: <[{id}]> \"[\" schema_0 \"]\"");
    let schemas = vec![json!({"type": "integer", "maximum": 9, "minimum": 0})];
    let mut constraint = compile(GrammarSpec::Calls {
        lark,
        schemas,
        answer: None,
    })
    .unwrap();
    for token in [id, u32::from(b'['), u32::from(b'7'), u32::from(b']')] {
        let mask = constraint.mask().unwrap().unwrap();
        assert!(mask.is_allowed(token), "{token}");
        if token == id {
            assert_eq!(mask.num_set(), 1);
        }
        constraint.accept(token, &tokenizer).unwrap();
    }
}

/// `a?` ten thousand times, then `a` as often, took more than a gigabyte.
#[test]
fn patterns_with_many_optional_parts_are_refused() {
    let pattern = |n: usize| "a?".repeat(n) + &"a".repeat(n) + "(?:b|c)";
    for optional in ["a?", "a*", "a{0,1}", "a{,1}", "(a|)", "(|a)"] {
        assert!(super::limits::check_text(&optional.repeat(2001)).is_err());
        assert!(super::limits::check_text(&optional.repeat(500)).is_ok());
    }
    assert!(super::limits::check_text(&"(?:a)".repeat(5000)).is_ok());
    let many = json!({"type": "string", "pattern": pattern(3000)});
    assert!(super::limits::check_schema(&many).is_err());
    let names = json!({"patternProperties": {pattern(1500): {}, pattern(1501): {}}});
    assert!(super::limits::check_schema(&names).is_err());
    let few = json!({"type": "string", "pattern": pattern(500)});
    assert_eq!(super::limits::check_schema(&few), Ok(()));
}

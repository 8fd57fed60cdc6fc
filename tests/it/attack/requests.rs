//! What strangers may send to the server of models.

use llmsrv_gguf::{Header, Writer};
use serde_json::{Value, json};

use super::arms::{Attack, FINE, REFUSED, lists, nested, objects};

/// The model that is built in.
pub const MODEL: &str = "llmsrv-tiny-code";
/// Its file.
pub const FILE: &[u8] = include_bytes!("../../../assets/embedded/model.gguf");

/// Everything that is one request.
pub fn all() -> Vec<Attack> {
    let mut all = Vec::new();
    all.extend(templates());
    all.extend(formats());
    all.extend(values());
    all.extend(bombs());
    all.extend(prompts());
    all.extend(models());
    all.extend(pages());
    all
}

/// A request for one token, with one member more.
fn ask(member: &str, value: &str) -> Vec<u8> {
    format!(
        r#"{{"model":"{MODEL}","prompt":"x","stream":false,"max_tokens":1,"options":{{"num_predict":1}},"{member}":{value}}}"#
    )
    .into_bytes()
}

fn generate(name: &str, allowed: &'static [u16], member: &'static str, value: String) -> Attack {
    Attack::new(name, "/api/generate", allowed, move || ask(member, &value))
}

/// Go templates, which a request may bring with it.
fn templates() -> Vec<Attack> {
    let doubled = r#"{{$x := "aaaaaaaaaaaaaaaa"}}"#.to_owned() + &"{{$x = print $x $x}}".repeat(21);
    let compared = format!(
        r#"{doubled}{{{{$y := print $x "b"}}}}{{{{$z := print $x "c"}}}}{{{{range 900000}}}}{{{{if lt $y $z}}}}{{{{end}}}}{{{{end}}}}"#
    );
    let cases: Vec<(&str, &'static [u16], String)> = vec![
        ("else if", REFUSED, nested("{{if 0}}", &"{{else if 0}}".repeat(50_000), "{{end}}", 1)),
        ("else with", REFUSED, nested("{{with 0}}", &"{{else with 0}}".repeat(50_000), "{{end}}", 1)),
        ("blocks", REFUSED, nested("{{range .Messages}}", "x", "{{end}}", 20_000)),
        ("parentheses", REFUSED, nested("{{", &nested("(", "1", ")", 50_000), "}}", 1)),
        ("not", FINE, format!("{{{{{} 1}}}}", "not ".repeat(50_000))),
        ("pipes", FINE, format!("{{{{1{}}}}}", "|print".repeat(50_000))),
        ("arguments", FINE, format!("{{{{and{}}}}}", " 1".repeat(100_000))),
        ("attributes", FINE, format!("{{{{${}}}}}", ".a".repeat(50_000))),
        ("actions", FINE, "{{1}}".repeat(30_000)),
        (
            "templates that call each other",
            REFUSED,
            r#"{{define "a"}}{{template "b"}}{{end}}{{define "b"}}{{template "a"}}{{end}}{{template "a"}}"#.into(),
        ),
        ("texts that double", FINE, doubled.repeat(3)),
        ("comparisons of long texts", REFUSED, compared),
        (
            "loops over loops",
            REFUSED,
            "{{range 1000000}}{{range 1000000}}x{{end}}{{end}}".into(),
        ),
        ("a long loop", FINE, "{{range 9223372036854775807}}{{end}}".into()),
        ("a width", FINE, r#"{{printf "%999999999d" 1}}"#.into()),
        ("a large template", FINE, "a".repeat(4 << 20)),
    ];
    let cases = cases.into_iter().map(|(name, allowed, template)| {
        generate(
            &format!("Go template: {name}"),
            allowed,
            "template",
            json!(template).to_string(),
        )
    });
    cases.collect()
}

/// Jinja templates, which come in models.
pub fn jinja() -> Vec<(&'static str, String)> {
    let chain = |piece: &str| format!("{{{{ {}1 }}}}", piece.repeat(100_000));
    let after = |piece: &str| format!("{{{{ a{} }}}}", piece.repeat(100_000));
    vec![
        ("minus", chain("-")),
        ("not", chain("not ")),
        ("and", chain("1 and ")),
        ("ternary", chain("1 if 0 else ")),
        ("concat", after("~'a'")),
        ("filters", after("|upper")),
        ("attributes", after(".b")),
        ("calls", after("()")),
        ("items", after("[0]")),
        ("parentheses", format!("{{{{ {} }}}}", nested("(", "1", ")", 100_000))),
        ("elif", format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(50_000))),
        ("blocks", nested("{% if 1 %}", "x", "{% endif %}", 20_000)),
        ("multiplied", "{{ 'a' * 1000000000 }}{{ [0] * 1000000000 }}".into()),
        (
            "loops",
            "{% for a in range(90000) %}{% for b in range(90000) %}x{% endfor %}{% endfor %}".into(),
        ),
        (
            "comparisons",
            "{% set a='a'*30000000 %}{% set b='a'*29999999+'b' %}{% for i in range(90000) %}{% if a == b %}{% endif %}{% endfor %}"
                .into(),
        ),
        ("searches", "{% set a='a'*30000000 %}{% for i in range(90000) %}{{ 'b' in a }}{% endfor %}".into()),
        ("recursion", "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}".into()),
        (
            "lists that double",
            "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}".into(),
        ),
    ]
}

/// The built-in model with a template of somebody else.
pub fn with_template(template: &str) -> Vec<u8> {
    let header = Header::parse(FILE, FILE.len() as u64).unwrap();
    let mut metadata = header.metadata.clone();
    metadata.set("tokenizer.chat_template", template);
    let mut writer = Writer::new(metadata);
    for tensor in &header.tensors {
        let data = &FILE[tensor.offset as usize..][..tensor.bytes as usize];
        writer
            .tensor(&tensor.name, &tensor.shape, tensor.dtype, data.to_vec())
            .unwrap();
    }
    writer.to_bytes().unwrap()
}

/// Schemas, patterns and grammars.
fn formats() -> Vec<Attack> {
    let deep = |levels| nested(r#"{"properties":{"a":"#, "{}", "}}", levels);
    let mut alternatives = json!({"type": "string"});
    for n in 0..16 {
        let title = n.to_string();
        alternatives = json!({"allOf": [{"anyOf": [{"title": title}, alternatives.clone()]}, {"anyOf": [{}, {"maxLength": n}]}]});
    }
    let doubled: Value = (0..40)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            let members = json!({"type": "object", "properties": {"a": next, "b": next}});
            (format!("d{n}"), members)
        })
        .chain([("d40".to_owned(), json!({}))])
        .collect::<serde_json::Map<_, _>>()
        .into();
    let names: serde_json::Map<_, _> = (0..100_000)
        .map(|n| (format!("name{n}"), json!({})))
        .collect();
    let numbers: Vec<usize> = (0..100_000).collect();
    let regex = |pattern: String| json!({"type": "regex", "pattern": pattern}).to_string();
    let lark = |grammar: String| json!({"type": "lark", "grammar": grammar}).to_string();
    let gbnf = |grammar: String| json!({"type": "gbnf", "grammar": grammar}).to_string();
    let rules: Vec<String> = (0..40)
        .map(|n| format!("a{n}: a{0} a{0} | a{0}\n", n + 1))
        .collect();
    let rules = rules.concat();
    let cases = [
        ("schema: deep", deep(100_000)),
        ("schema: just as deep as JSON may be", deep(60)),
        ("schema: alternatives", alternatives.to_string()),
        (
            "schema: references that double",
            json!({"$defs": doubled, "$ref": "#/$defs/d0"}).to_string(),
        ),
        (
            "schema: a reference to itself",
            json!({"$ref": "#"}).to_string(),
        ),
        ("schema: wide", json!({"properties": names}).to_string()),
        (
            "schema: many constants",
            json!({"enum": numbers}).to_string(),
        ),
        (
            "schema: a long list",
            json!({"type": "array", "minItems": 1_000_000_000}).to_string(),
        ),
        (
            "schema: a long text",
            json!({"type": "string", "minLength": 1_000_000_000}).to_string(),
        ),
        (
            "schema: a large pattern",
            json!({"type": "string", "pattern": "a|b".repeat(300_000)}).to_string(),
        ),
        (
            "schema: a pattern",
            json!({"type": "string", "pattern": "^((a{1000}){1000}){1000}$"}).to_string(),
        ),
        ("regex: counts", regex("(.{1,9999}){1,9999}".into())),
        ("regex: choices", regex("(a|b|ab)*c.{500}".repeat(40))),
        (
            "regex: optional",
            regex(format!("{}{}", "a?".repeat(9999), "a".repeat(9999))),
        ),
        ("regex: deep", regex(nested("(", "a", ")*", 100_000))),
        (
            "regex: Unicode",
            regex(r"[\p{L}--\p{Lu}]{1000}\w{1000}".into()),
        ),
        (
            "Lark: deep",
            lark(format!("start: {}", nested("(", "\"a\"", ")", 100_000))),
        ),
        (
            "Lark: rules that double",
            lark(format!("start: a0\n{rules}a40: \"a\"\n")),
        ),
        (
            "Lark: ambiguous",
            lark("start: start start start | \"a\" | \"\"".into()),
        ),
        (
            "Lark: large",
            lark(format!("start: {}", "\"a\" | ".repeat(200_000) + "\"b\"")),
        ),
        (
            "GBNF: deep",
            gbnf(format!("root ::= {}", nested("(", "\"a\"", ")", 100_000))),
        ),
        (
            "GBNF: counts",
            gbnf("root ::= (((\"a\"){1000}){1000}){1000}".into()),
        ),
        (
            "GBNF: without end",
            gbnf("root ::= root | root root".into()),
        ),
    ];
    let cases = cases.into_iter();
    cases
        .map(|(name, format)| generate(name, FINE, "format", format))
        .collect()
}

/// Paths of each dialect.
const TEXT: &[&str] = &[
    "/api/generate",
    "/api/chat",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/api/embed",
    "/v1/embeddings",
    "/api/rerank",
    "/api/tokenize",
    "/api/detokenize",
];

/// Members with many or deep values, known and unknown ones.
fn values() -> Vec<Attack> {
    let members = [
        "junk",
        "messages",
        "tools",
        "options",
        "format",
        "response_format",
        "input",
        "images",
        "context",
        "tokens",
        "documents",
        "logit_bias",
        "prompt",
        "stop",
        "keep_alive",
        "metadata",
    ];
    let mut attacks = Vec::new();
    for (n, member) in members.into_iter().enumerate() {
        let path = TEXT[n % TEXT.len()];
        for (kind, make) in [
            ("lists", lists as fn(usize) -> String),
            ("objects", objects as fn(usize) -> String),
        ] {
            let name = format!("JSON: {kind} in {member}");
            // A model that does not embed says so first.
            attacks.push(Attack::new(name, path, FINE, move || {
                ask(member, &make(1 << 20))
            }));
        }
    }
    for n in 0..4 {
        attacks.push(Attack::new(
            format!("JSON: 6 MiB, {n}"),
            "/api/chat",
            FINE,
            || ask("junk", &lists(6 << 20)),
        ));
    }
    attacks.push(Attack::new("JSON: deep", "/api/chat", REFUSED, || {
        format!(r#"{{"model":"{MODEL}","messages":{}"#, "[".repeat(1 << 20)).into_bytes()
    }));
    attacks.push(Attack::new("JSON: arguments", "/v1/chat/completions", FINE, || {
        let arguments = json!(format!("{{\"a\":{}}}", lists(4 << 20)));
        let call = format!(r#"[{{"role":"assistant","tool_calls":[{{"function":{{"name":"f","arguments":{arguments}}}}}]}}]"#);
        ask("messages", &call)
    }));
    attacks
}

/// Bodies that are small until they are decompressed.
fn bombs() -> Vec<Attack> {
    let mut attacks = Vec::new();
    for encoding in ["gzip", "zstd", "gzip, zstd", "zstd, gzip", "gzip, gzip"] {
        let blanks = Attack::new("bomb: blanks", "/api/chat", &[400, 413, 415], || {
            b" ".repeat(100 << 20)
        });
        attacks.push(blanks.packed(encoding));
        let values = Attack::new(
            "bomb: values",
            "/api/generate",
            &[200, 400, 413, 415],
            || ask("junk", &lists(6 << 20)),
        );
        attacks.push(values.packed(encoding));
    }
    attacks
}

/// Texts that are hard to cut into tokens.
fn prompts() -> Vec<Attack> {
    type Text = fn() -> String;
    let texts: [(&str, Text); 4] = [
        ("blanks", || " ".repeat(8 << 20)),
        ("one letter", || "a".repeat(8 << 20)),
        ("marks", || "\u{301}".repeat(2 << 20)),
        ("control tokens", || "<|im_start|>".repeat(500_000)),
    ];
    let mut attacks = Vec::new();
    for (name, text) in texts {
        for (path, member) in [
            ("/api/generate", "prompt"),
            ("/v1/completions", "prompt"),
            ("/api/tokenize", "content"),
            ("/api/embed", "input"),
        ] {
            let body = move || json!({"model": MODEL, member: text(), "stream": false, "max_tokens": 1, "options": {"num_predict": 1}});
            let name = format!("tokens: {name} to {path}");
            attacks.push(Attack::new(name, path, FINE, move || {
                body().to_string().into_bytes()
            }));
        }
        let name = format!("tokens: {name} in a message");
        attacks.push(Attack::new(name, "/api/chat", FINE, move || {
            let messages = json!([{"role": "user", "content": text()}]);
            ask("messages", &messages.to_string())
        }));
    }
    attacks
}

/// Models made from the built-in one, and Modelfiles.
fn models() -> Vec<Attack> {
    let create = |name: &str, member: &'static str, value: fn() -> Value| {
        Attack::new(format!("create: {name}"), "/api/create", FINE, move || {
            let model = format!("made-{member}");
            json!({"model": model, "from": MODEL, "stream": false, member: value()})
                .to_string()
                .into_bytes()
        })
    };
    vec![
        create("a deep template", "template", || {
            json!(nested("{{if 1}}", "x", "{{end}}", 100_000))
        }),
        create("many parameters", "parameters", || {
            let many = (0..100_000).map(|n| (format!("p{n}"), json!(0)));
            Value::Object(many.collect())
        }),
        create(
            "many stops",
            "parameters",
            || json!({"stop": vec![""; 1_000_000]}),
        ),
        create("many messages", "messages", || {
            json!(vec![json!({"role": "user", "content": ""}); 50_000])
        }),
        create("many licenses", "license", || json!(vec!["x"; 1_000_000])),
        create("a Modelfile of messages", "modelfile", || {
            json!("MESSAGE user x\n".repeat(20_000))
        }),
        create("a Modelfile of quotes", "modelfile", || {
            json!(format!(
                "FROM {MODEL}\nTEMPLATE {}",
                "\"\"\"".repeat(3_000_000)
            ))
        }),
        create("a Modelfile of parameters", "modelfile", || {
            json!(format!(
                "FROM {MODEL}\n{}",
                "PARAMETER stop a\n".repeat(20_000)
            ))
        }),
        create("files of nobody", "files", || {
            let files =
                (0..100_000).map(|n| (format!("{n}.gguf"), json!(format!("sha256:{n:064}"))));
            Value::Object(files.collect())
        }),
    ]
}

/// Files that are uploaded and become models: their names, and their bytes.
pub fn files() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let gguf = |n_tensors: u64, n_keys: u64, rest: Vec<u8>| {
        [
            b"GGUF".to_vec(),
            3_u32.to_le_bytes().to_vec(),
            n_tensors.to_le_bytes().to_vec(),
            n_keys.to_le_bytes().to_vec(),
            rest,
        ]
        .concat()
    };
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let key = |n: u32| {
        [
            text(&format!("{n:06}")),
            4_u32.to_le_bytes().to_vec(),
            vec![0; 4],
        ]
        .concat()
    };
    let keys: Vec<u8> = (0..400_000).flat_map(key).collect();
    // Arrays of arrays, each of one element.
    let array = [9_u32.to_le_bytes().to_vec(), 1_u64.to_le_bytes().to_vec()].concat();
    let arrays = [
        text("a"),
        9_u32.to_le_bytes().to_vec(),
        array.repeat(500_000),
    ]
    .concat();
    let tensor = |n: u32| {
        let dims = [1_u32.to_le_bytes().to_vec(), 0_u64.to_le_bytes().to_vec()].concat();
        let kind = [0_u32.to_le_bytes().to_vec(), 0_u64.to_le_bytes().to_vec()].concat();
        [text(&format!("{n:06}")), dims, kind].concat()
    };
    let tensors: Vec<u8> = (0..200_000).flat_map(tensor).collect();
    let safetensors = |header: String| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes
    };
    let entries: Vec<String> = (0..150_000)
        .map(|n| format!(r#""t{n}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}},"#))
        .collect();
    let entries = entries.concat();
    let mut files = vec![
        ("many keys", "model.gguf", gguf(0, 400_000, keys)),
        (
            "as many keys as it likes",
            "model.gguf",
            gguf(0, u64::MAX, Vec::new()),
        ),
        (
            "as many tensors as it likes",
            "model.gguf",
            gguf(u64::MAX, 0, Vec::new()),
        ),
        ("many tensors", "model.gguf", gguf(200_000, 0, tensors)),
        ("arrays within arrays", "model.gguf", gguf(0, 1, arrays)),
        (
            "a long name",
            "model.gguf",
            gguf(0, 1, u64::MAX.to_le_bytes().to_vec()),
        ),
        (
            "half of a model",
            "model.gguf",
            FILE[..FILE.len() / 2].to_vec(),
        ),
        (
            "a deep header",
            "model.safetensors",
            safetensors("[".repeat(8 << 20)),
        ),
        (
            "many small values",
            "model.safetensors",
            safetensors(objects(8 << 20)),
        ),
        (
            "many tensors",
            "model.safetensors",
            safetensors(format!("{{{entries}\"x\":0}}")),
        ),
        (
            "a long header",
            "model.safetensors",
            [vec![0xff; 8], vec![b' '; 100]].concat(),
        ),
    ];
    files.extend(
        jinja()
            .into_iter()
            .map(|(name, template)| (name, "model.gguf", with_template(&template))),
    );
    files
}

/// What web pages of anybody may try.
fn pages() -> Vec<Attack> {
    let copy = || {
        json!({"source": MODEL, "destination": "victim"})
            .to_string()
            .into_bytes()
    };
    let page = |origin, path| {
        Attack::new(format!("page of {origin} to {path}"), path, &[403], copy)
            .with("origin", origin)
            .with("content-type", "text/plain")
    };
    vec![
        page("https://evil.example", "/api/copy"),
        page("null", "/api/copy"),
        page("http://evil.example", "/api/show").with("host", "evil.example"),
    ]
}

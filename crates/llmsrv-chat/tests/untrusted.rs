//! Any template and any conversation: an answer or an error, never a panic, and soon.

use jiff::Zoned;
use llmsrv_api::native::{Message, Tool, ToolCall, ToolCallFunction, ToolFunction};
use llmsrv_chat::{Fill, Prompt, Template, Think};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Texts made of pieces of both dialects, nearly right.
fn templates() -> impl Strategy<Value = String> {
    let parts = [
        "{{",
        "}}",
        "{{-",
        "-}}",
        "{%",
        "%}",
        "{%-",
        "-%}",
        "{#",
        "#}",
        " ",
        "\n",
        "text",
        "(",
        ")",
        "|",
        ".",
        "$",
        "$x",
        ":=",
        "=",
        ",",
        "[",
        "]",
        "\"a\"",
        "'a'",
        "`a`",
        "1",
        "-1",
        "99",
        "1.5",
        "~",
        "+",
        "*",
        ".Messages",
        ".Content",
        ".Role",
        ".System",
        ".Prompt",
        ".Response",
        ".Tools",
        ".ToolCalls",
        ".Function",
        ".Thinking",
        "range",
        "if",
        "else",
        "end",
        "with",
        "define",
        "template",
        "block",
        "break",
        "continue",
        "eq",
        "and",
        "or",
        "not",
        "len",
        "index",
        "slice",
        "json",
        "printf",
        "print",
        "currentDate",
        "toTypeScriptType",
        "for",
        "in",
        "endfor",
        "endif",
        "set",
        "macro",
        "endmacro",
        "messages",
        "tools",
        "content",
        "loop",
        "tojson",
        "raise_exception",
        "namespace",
        "generation",
        "endgeneration",
        "is",
        "defined",
        "trim",
        "split",
        "/*",
        "*/",
        "é",
        "\u{0}",
        "{{ range .Messages }}",
        "{{ end }}",
        "{{ .Content }}",
        "{{ if .Tools }}",
        "{{ template \"a\" . }}",
        "{{ define \"a\" }}",
        "{% for m in messages %}",
        "{% endfor %}",
        "{{ m.content }}",
        "{{ messages | tojson }}",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..40)
        .prop_map(|parts| parts.concat())
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(
                "[a-z]{1,6}|type|properties|enum|required|anyOf",
                inner,
                0..4
            )
            .prop_map(|map| Value::from(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let role = prop::sample::select(vec!["user", "assistant", "system", "tool", "other", ""]);
    let text = "(\\PC|\\[img\\]|<think>|</think>|\n){0,6}";
    let message = (
        role,
        text,
        text,
        0usize..3,
        prop::option::of(values()),
        "[a-z]{0,3}",
    )
        .prop_map(
            |(role, content, thinking, n_images, arguments, name)| Message {
                role: role.into(),
                content,
                thinking,
                images: vec![String::new(); n_images],
                tool_calls: arguments
                    .map(|value| ToolCall {
                        id: name.clone(),
                        function: ToolCallFunction {
                            index: 0,
                            name: name.clone(),
                            arguments: value.as_object().cloned().unwrap_or_default(),
                        },
                    })
                    .into_iter()
                    .collect(),
                tool_name: name.clone(),
                tool_call_id: name,
            },
        );
    prop::collection::vec(message, 0..6)
}

fn tools() -> impl Strategy<Value = Vec<Tool>> {
    let tool = ("[a-z_]{0,5}", values()).prop_map(|(name, parameters)| Tool {
        kind: "function".into(),
        function: ToolFunction {
            name,
            description: String::new(),
            parameters,
            ..ToolFunction::default()
        },
    });
    prop::collection::vec(tool, 0..3)
}

/// Templates that use all the data they are given.
fn good_templates() -> Result<Vec<Template>, llmsrv_chat::Error> {
    let go = "{{ .System }}{{ range .Messages }}{{ . }}{{ .Content }}{{ .Thinking }}{{ range .ToolCalls }}{{ .Function.Arguments }}{{ end }}{{ end }}{{ json .Tools }}{{ range .Tools }}{{ range $k, $v := .Function.Parameters.Properties }}{{ $k }}{{ $v }}{{ toTypeScriptType $v }}{{ end }}{{ end }}";
    let old = "{{ .System }}{{ .Prompt }}{{ .Response }}{{ .Suffix }}";
    let jinja = "{% for m in messages %}{{ m.role }}{{ m.content }}{{ m | tojson }}{% endfor %}{{ tools | default([]) | tojson(indent=2) }}";
    Ok(vec![
        Template::go(go)?,
        Template::go(old)?,
        Template::jinja(jinja, "<s>", "</s>")?,
    ])
}

proptest! {
    #[test]
    fn any_template_renders_or_fails(source in templates()) {
        let messages = [Message { role: "user".into(), content: "hello".into(), ..Message::default() }];
        let tools = [Tool { function: ToolFunction { parameters: json!({"properties": {"a": {}}}), ..ToolFunction::default() }, ..Tool::default() }];
        let mut prompt = Prompt::new(&messages, Zoned::default());
        prompt.tools = &tools;
        let parsed = [Template::go(&source), Template::jinja(&source, "<s>", "</s>")];
        for template in parsed.into_iter().flatten() {
            let _ = template.render(&prompt);
            let _ = (template.capabilities(), template.thinking_tags(), template.tool_tag());
        }
    }

    #[test]
    fn any_text_parses_or_fails(source in "\\PC{0,80}") {
        let _ = Template::go(&source);
        let _ = Template::jinja(&source, "", "");
    }

    #[test]
    fn any_conversation_renders(
        messages in messages(),
        tools in tools(),
        think in prop::sample::select(vec![None, Some(Think::Off), Some(Think::High)]),
        fill in any::<bool>(),
    ) {
        for template in good_templates().unwrap() {
            let mut prompt = Prompt::new(&messages, Zoned::default());
            prompt.tools = &tools;
            prompt.think = think;
            prompt.fill = fill.then_some(Fill { prompt: "a", suffix: "b" });
            let text = template.render(&prompt).unwrap();
            prop_assert!(!text.contains("<no value>") && !text.contains("map["));
        }
    }
}

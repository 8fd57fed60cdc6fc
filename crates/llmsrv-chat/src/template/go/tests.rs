use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use llmsrv_api::native::{Tool, ToolCall, ToolCallFunction, ToolFunction};
use serde_json::{Value as Json, json};

use super::*;
use crate::limits::Stop;
use crate::prompt::Fill;

fn message(role: &str, content: &str) -> Message {
    Message {
        role: role.into(),
        content: content.into(),
        ..Message::default()
    }
}

/// A conversation from one line per message: `u text`, `a text`, `s text`, `t text`.
fn conversation(lines: &str) -> Vec<Message> {
    let line = |line: &str| {
        let (role, content) = line.split_once(' ').unwrap_or((line, ""));
        let role = match role {
            "u" => "user",
            "a" => "assistant",
            "s" => "system",
            _ => "tool",
        };
        message(role, content)
    };
    lines.lines().map(line).collect()
}

/// A prompt whose clock stands still.
fn prompt(messages: &[Message]) -> Prompt<'_> {
    Prompt {
        stop: Stop::with_clock(|| Duration::ZERO),
        ..Prompt::new(messages, "2026-03-01T00:30:00+00:00[UTC]".parse().unwrap())
    }
}

fn weather() -> Tool {
    Tool {
        kind: "function".into(),
        function: ToolFunction {
            name: "get_weather".into(),
            description: "Now & <later>".into(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "unit": {"enum": ["c", "f"], "type": "string", "default": "c"},
                    "city": {"description": "Where", "type": ["string", "null"]},
                },
                "required": ["city"],
            }),
            ..ToolFunction::default()
        },
    }
}

fn called(arguments: &Json) -> Message {
    Message {
        tool_calls: vec![ToolCall {
            id: "call_1".into(),
            function: ToolCallFunction {
                index: 0,
                name: "get_weather".into(),
                arguments: arguments.as_object().unwrap().clone(),
            },
        }],
        ..message("assistant", "")
    }
}

fn render(template: &str, lines: &str) -> String {
    let messages = conversation(lines);
    GoTemplate::parse(template)
        .unwrap()
        .render(&prompt(&messages))
        .unwrap()
}

#[track_caller]
fn check(template: &str, lines: &str, expected: &str) {
    assert_eq!(render(template, lines), expected, "{template}");
}

/// Checks the text after a loop that prints nothing, so that the template is one that knows messages.
#[track_caller]
fn expr(template: &str, expected: &str) {
    let whole = format!("{{{{ range .Messages }}}}{{{{ end }}}}{template}");
    check(&whole, "u one\na two\nu three", expected);
}

#[test]
fn syntax() {
    // Trim markers take all whitespace, comments print nothing.
    expr("a  {{- 1 -}}  b {{ 2 }} c", "a1b 2 c");
    expr("a\n\n{{- /* gone */ -}}\n\nb", "ab");
    expr("a{{/* x */}}b", "ab");
    expr("a {{- \"\" }} b", "a b");
    // Literals.
    expr(
        "{{ \"q\\\"\\n\" }}{{ `r\\n` }}{{ 'a' }}{{ 0x10 }}{{ 1_000 }}{{ 1.5 }}{{ true }}",
        "q\"\nr\\n971610001.5true",
    );
    // Branches.
    expr(
        "{{ if eq 1 2 }}a{{ else if eq 1 1 }}b{{ else }}c{{ end }}",
        "b",
    );
    expr("{{ if \"\" }}a{{ else if 0 }}b{{ else }}c{{ end }}", "c");
    expr("{{ with .System }}s{{ else }}none{{ end }}", "none");
    expr("{{ with $x := \"v\" }}{{ $x }}{{ . }}{{ end }}", "vv");
    expr(
        "{{ with .Nope }}a{{ else with \"b\" }}{{ . }}{{ end }}",
        "b",
    );
    // Loops.
    expr(
        "{{ range .Messages }}{{ .Content }},{{ end }}",
        "one,two,three,",
    );
    expr(
        "{{ range $i, $m := .Messages }}{{ $i }}{{ $m.Role }} {{ end }}",
        "0user 1assistant 2user ",
    );
    expr(
        "{{ range $m := .Messages }}{{ if eq $m.Content \"two\" }}{{ continue }}{{ end }}{{ .Content }}{{ end }}",
        "onethree",
    );
    expr(
        "{{ range .Messages }}{{ if eq .Content \"two\" }}{{ break }}{{ end }}{{ .Content }}{{ end }}",
        "one",
    );
    expr("{{ range .Tools }}x{{ else }}none{{ end }}", "none");
    expr("{{ range 3 }}{{ . }}{{ end }}", "012");
    // Variables.
    expr(
        "{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}",
        "2",
    );
    expr(
        "{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}",
        "21",
    );
    expr("{{ range .Messages }}{{ len $.Messages }}{{ end }}", "333");
    // Pipelines and parentheses.
    expr("{{ \"a\" | printf \"%s-%s\" \"b\" }}", "b-a");
    expr("{{ (index .Messages 0).Content }}", "one");
    expr("{{ len (slice .Messages 1) }}", "2");
    // Templates.
    expr(
        "{{ define \"t\" }}<{{ .Role }}>{{ end }}{{ range .Messages }}{{ template \"t\" . }}{{ end }}",
        "<user><assistant><user>",
    );
    expr("{{ block \"b\" .Messages }}{{ len . }}{{ end }}", "3");
    expr(
        "{{ $x := 1 }}{{ define \"t\" }}{{ $.Role }}{{ end }}{{ template \"t\" (index .Messages 1) }}",
        "assistant",
    );
}

#[test]
fn functions() {
    expr(
        "{{ eq 1 1 }} {{ eq 1 2 1 }} {{ ne 1 2 }} {{ lt 1 2 }} {{ le 2 2 }} {{ gt 1 2 }} {{ ge 2 2 }}",
        "true true true true true false true",
    );
    expr(
        "{{ eq \"a\" \"a\" }} {{ lt \"a\" \"b\" }} {{ eq true false }}",
        "true true false",
    );
    expr(
        "{{ and 1 0 2 }} {{ and 1 2 }} {{ or 0 \"\" 3 }} {{ or 0 \"\" }} {{ not 0 }}",
        "0 2 3  true",
    );
    // The second operand is not evaluated when the first decides.
    expr("{{ or true (index .Messages 99) }}", "true");
    expr("{{ len \"häh\" }} {{ len .Messages }}", "4 3");
    expr("{{ index .Messages 1 | json | len | lt 5 }}", "true");
    expr("{{ slice \"abcdef\" 1 3 }} {{ slice \"abc\" 1 }}", "bc bc");
    expr(
        "{{ print 1 2 \"a\" 3 }} {{ println \"x\" 1 }}|",
        "1 2a3 x 1\n|",
    );
    expr(
        "{{ printf \"%d %s %q %v %5.2f %x %t %%\" 7 \"s\" \"q\" 1 2.5 255 true }}",
        "7 s \"q\" 1  2.50 ff true %",
    );
    expr(
        "{{ printf \"%-4s|%4s|%04d\" \"a\" \"b\" 7 }}",
        "a   |   b|0007",
    );
    expr(
        "{{ html \"<a>\" }} {{ js \"'\" }} {{ urlquery \"a b\" }}",
        "&lt;a&gt; \\' a+b",
    );
    expr(
        "{{ currentDate }} {{ yesterdayDate }} {{ currentDate \"x\" }}",
        "2026-03-01 2026-02-28 2026-03-01",
    );
    expr(
        "{{ json \"a<b>\\n\" }} {{ json 1 }} {{ json true }} {{ json .Nope }}",
        "\"a<b>\\n\" 1 true null",
    );
    expr("{{ toTypeScriptType 1 }}", "any");
}

#[test]
fn missing_keys_print_nothing() {
    expr(
        "[{{ .Nope }}{{ .Nope.Deeper }}{{ .Suffix }}{{ (index .Messages 0).Nope }}]",
        "[]",
    );
    expr(
        "{{ if .Nope }}a{{ else }}b{{ end }}{{ range .Nope }}c{{ end }}",
        "b",
    );
    expr("{{ printf \"[%s]\" .Nope }}", "[]");
}

#[test]
fn maps_print_as_json_in_their_own_order() {
    let messages = [
        message("user", "?"),
        called(&json!({"b": "<x>", "a": {"z": 1.0, "y": [null, true]}})),
    ];
    let template = "{{ range .Messages }}{{ range .ToolCalls }}{{ .Function.Name }}{{ .Function.Index }} \
        {{ .Function.Arguments }} {{ json .Function.Arguments }} {{ printf \"%s\" .Function.Arguments }} \
        {{ range $k, $v := .Function.Arguments }}{{ $k }}={{ $v }};{{ end }} {{ .Function }} {{ .ID }}{{ end }}{{ end }}";
    let json = r#"{"b":"<x>","a":{"z":1,"y":[null,true]}}"#;
    let expected = format!(
        "get_weather0 {json} {json} {json} a={{\"z\":1,\"y\":[null,true]}};b=<x>; \
         {{\"name\":\"get_weather\",\"arguments\":{json}}} call_1"
    );
    let rendered = GoTemplate::parse(template)
        .unwrap()
        .render(&prompt(&messages))
        .unwrap();
    assert_eq!(rendered, expected);
}

#[test]
fn tools_print_as_json_and_as_types() {
    let messages = conversation("u ?");
    let tools = [weather()];
    let mut prompt = prompt(&messages);
    prompt.tools = &tools;
    let json = r#"{"type":"function","function":{"name":"get_weather","description":"Now & <later>","parameters":{"type":"object","required":["city"],"properties":{"unit":{"type":"string","enum":["c","f"],"default":"c"},"city":{"type":["string","null"],"description":"Where"}}}}}"#;
    let function = &json[r#"{"type":"function","function":"#.len()..json.len() - 1];
    let cases = [
        ("{{ .Tools }}", format!("[{json}]")),
        ("{{ json .Tools }}", format!("[{json}]")),
        ("{{ range .Tools }}{{ . }}{{ end }}", json.to_owned()),
        (
            "{{ range .Tools }}{{ json .Function }}{{ end }}",
            function.to_owned(),
        ),
        (
            "{{ range .Tools }}{{ .Type }} {{ .Function.Name }}: {{ .Function.Description }}{{ end }}",
            "function get_weather: Now & <later>".into(),
        ),
        (
            "{{ range .Tools }}{{ range $name, $p := .Function.Parameters.Properties }}{{ $name }}: {{ toTypeScriptType $p }} {{ $p.Description }},{{ end }}{{ end }}",
            "city: string | null Where,unit: string ,".into(),
        ),
        (
            "{{ range .Tools }}{{ .Function.Parameters.Required }}{{ len .Function.Parameters.Properties }}{{ end }}",
            r#"["city"]2"#.into(),
        ),
        (
            "{{ range .Tools }}{{ range .Function.Parameters.Properties }}{{ len .Enum }} {{ .Type }};{{ end }}{{ end }}",
            r#"0 ["string","null"];2 string;"#.into(),
        ),
    ];
    for (template, expected) in cases {
        let template = format!("{{{{ range .Messages }}}}{{{{ end }}}}{template}");
        let rendered = GoTemplate::parse(&template)
            .unwrap()
            .render(&prompt)
            .unwrap();
        assert_eq!(rendered, expected, "{template}");
    }
}

#[test]
fn typescript_types() {
    let cases = [
        (json!({"type": "string"}), "string"),
        (json!({"type": "integer"}), "number"),
        (json!({"type": ["array", "null"]}), "any[] | null"),
        (json!({"type": "object"}), "Record<string, any>"),
        (
            json!({"anyOf": [{"type": "boolean"}, {"type": "number"}, 1]}),
            "boolean | number | any",
        ),
        (json!({}), "any"),
    ];
    let messages = conversation("u ?");
    for (schema, expected) in cases {
        let mut tool = weather();
        tool.function.parameters = json!({"properties": {"p": schema}});
        let tools = [tool];
        let mut prompt = prompt(&messages);
        prompt.tools = &tools;
        let template = "{{ range .Messages }}{{ end }}{{ range .Tools }}{{ range .Function.Parameters.Properties }}{{ toTypeScriptType . }}{{ end }}{{ end }}";
        assert_eq!(
            GoTemplate::parse(template)
                .unwrap()
                .render(&prompt)
                .unwrap(),
            expected
        );
    }
}

#[test]
fn tools_without_a_schema_have_empty_lists() {
    let mut tool = weather();
    tool.function.parameters = Json::Null;
    let messages = conversation("u ?");
    let tools = [tool];
    let mut prompt = prompt(&messages);
    prompt.tools = &tools;
    let template = "{{ range .Messages }}{{ end }}{{ range .Tools }}{{ json .Function.Parameters }}{{ len .Function.Parameters.Required }}{{ end }}";
    let rendered = GoTemplate::parse(template)
        .unwrap()
        .render(&prompt)
        .unwrap();
    assert_eq!(rendered, r#"{"type":"object","properties":{}}0"#);
}

#[test]
fn system_is_joined_and_stays_among_the_messages() {
    let template = "S={{ .System }};{{ range .Messages }}{{ .Role }}:{{ .Content }};{{ end }}";
    check(
        template,
        "s a\ns b\nu c\nu d\ns e",
        "S=a\n\nb\n\ne;system:a\n\nb;user:c\n\nd;system:e;",
    );
    check(template, "u q\nt 1\nt 2", "S=;user:q;tool:1;tool:2;");
    check(template, "", "S=;");
}

#[test]
fn older_templates_run_once_per_exchange() {
    let template =
        "{{ if .System }}<s>{{ .System }}</s>{{ end }}<u>{{ .Prompt }}</u><a>{{ .Response }}</a>\n";
    check(template, "u one", "<u>one</u><a>");
    check(
        template,
        "s be\nu one\na two\nu three",
        "<s>be</s><u>one</u><a>two</a>\n<u>three</u><a>",
    );
    // An answer that has begun is left open.
    check(template, "u one\na two", "<u>one</u><a>two");
    // A system text in the middle begins an exchange.
    check(
        template,
        "u one\ns be\nu two",
        "<u>one</u><a></a>\n<s>be</s><u>two</u><a>",
    );
    check(template, "", "<u></u><a>");
    // Without a place for the response, it comes last.
    check(
        "[{{ .Prompt }}] ",
        "u one\na two\nu three",
        "[one] two[three] ",
    );
    check(
        "{{ .Prompt }}",
        "s be\nu one\na two\nu three",
        "onetwothree",
    );
    // The cut reaches into branches.
    check(
        "{{ if .Response }}A{{ .Response }}Z{{ else }}none{{ end }}E",
        "u one\na two",
        "Atwo",
    );
    check(
        "{{ if .Prompt }}P{{ end }}{{ if .Response }}A{{ .Response }}Z{{ else }}none{{ end }}E",
        "u one",
        "P",
    );
}

#[test]
fn filling_a_gap() {
    let template = GoTemplate::parse("{{ if .Suffix }}<PRE>{{ .Prompt }}<SUF>{{ .Suffix }}<MID>{{ else }}{{ .Prompt }}{{ end }}{{ .Response }}!").unwrap();
    let messages = conversation("u hello");
    assert_eq!(template.render(&prompt(&messages)).unwrap(), "hello");
    let mut fill = prompt(&[]);
    fill.fill = Some(Fill {
        prompt: "def f(",
        suffix: "return",
    });
    assert_eq!(
        template.render(&fill).unwrap(),
        "<PRE>def f(<SUF>return<MID>!"
    );
    assert!(template.capabilities().insert);
}

#[test]
fn thinking_values() {
    let template = GoTemplate::parse(
        "{{ range .Messages }}{{ end }}{{ .Think }} {{ .ThinkLevel }} {{ .IsThinkSet }}",
    )
    .unwrap();
    for (think, expected) in [
        (None, "false  false"),
        (Some(Think::Off), "false  true"),
        (Some(Think::On), "true medium true"),
        (Some(Think::Low), "true low true"),
        (Some(Think::Max), "true max true"),
    ] {
        let mut prompt = prompt(&[]);
        prompt.think = think;
        assert_eq!(template.render(&prompt).unwrap(), expected);
    }
}

#[test]
fn images_become_tags() {
    let mut one = message("user", "a");
    one.images = vec![String::new(), String::new()];
    let mut two = message("user", "b [img] c");
    two.images = vec![String::new()];
    let messages = [one, message("assistant", "x"), two];
    let template = "{{ range .Messages }}{{ if .Images }}!{{ end }}{{ .Content }};{{ end }}";
    let rendered = GoTemplate::parse(template)
        .unwrap()
        .render(&prompt(&messages))
        .unwrap();
    assert_eq!(rendered, "![img-0][img-1]a;x;!b [img-2] c;");
}

/// Templates in the style of model families.
#[test]
fn whole_templates() {
    let lines = "s Be kind.\nu Hi\na Hello\nu Bye";
    check(
        "{{ range .Messages -}}\n<|head|>{{ .Role }}<|/head|>\n{{ .Content }}<|end|>\n{{- end }}<|head|>assistant<|/head|>\n",
        lines,
        "<|head|>system<|/head|>\nBe kind.<|end|><|head|>user<|/head|>\nHi<|end|><|head|>assistant<|/head|>\nHello<|end|><|head|>user<|/head|>\nBye<|end|><|head|>assistant<|/head|>\n",
    );
    // The system text in the last user turn.
    check(
        "{{ range $n, $m := .Messages }}{{ $rest := slice $.Messages $n }}{{ if eq $m.Role \"user\" }}[INST] {{ with $.System }}{{ if le (len $rest) 1 }}{{ . }} {{ end }}{{ end }}{{ $m.Content }} [/INST]{{ else if eq $m.Role \"assistant\" }}{{ $m.Content }}</s>{{ end }}{{ end }}",
        lines,
        "[INST] Hi [/INST]Hello</s>[INST] Be kind. Bye [/INST]",
    );
    // The system text in the first user turn, the model's role under another name.
    check(
        "{{ $intro := .System }}{{ range .Messages }}{{ if ne .Role \"system\" }}<turn>{{ if eq .Role \"assistant\" }}model{{ else }}{{ .Role }}{{ end }}\n{{ if and $intro (eq .Role \"user\") }}{{ $intro }}\n{{ $intro = \"\" }}{{ end }}{{ .Content }}</turn>\n{{ end }}{{ end }}<turn>model\n",
        lines,
        "<turn>user\nBe kind.\nHi</turn>\n<turn>model\nHello</turn>\n<turn>user\nBye</turn>\n<turn>model\n",
    );
    // An older one with headings.
    check(
        "{{ with .System }}{{ . }}\n\n{{ end }}{{ with .Prompt }}# Question\n{{ . }}\n\n{{ end }}# Answer\n{{ .Response }}\n\n",
        lines,
        "Be kind.\n\n# Question\nHi\n\n# Answer\nHello\n\n# Question\nBye\n\n# Answer\n",
    );
}

#[test]
fn a_whole_template_with_tools_and_thinking() {
    let source = r#"
{{- define "tools" }}{{ range . }}
- {{ .Function }}{{ end }}{{ end -}}
{{- with .System }}<|im_start|>system
{{ . }}
{{- if $.Tools }}
Tools:{{ template "tools" $.Tools }}
{{- end }}<|im_end|>
{{ end -}}
{{- range $n, $m := .Messages -}}
{{- if ne .Role "system" }}<|im_start|>{{ if eq .Role "tool" }}user{{ else }}{{ .Role }}{{ end }}
{{ if .Thinking -}}
<think>
{{ .Thinking }}
</think>
{{ end -}}
{{ if eq .Role "tool" }}<result>{{ end }}{{ .Content }}
{{- if .ToolCalls -}}
<tool_call>
{{- range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}{{ end -}}
</tool_call>
{{- end }}<|im_end|>
{{ end -}}
{{- end }}<|im_start|>assistant
{{ if and .IsThinkSet (not .Think) }}<think></think>{{ end }}"#;
    let template = GoTemplate::parse(source).unwrap();
    assert_eq!(
        template.capabilities(),
        TemplateCapabilities {
            tools: true,
            thinking: true,
            insert: false
        }
    );
    assert_eq!(template.thinking_tags(), Some(("<think>", "</think>")));
    assert_eq!(template.tool_tag(), "<tool_call>");

    let mut call = called(&json!({"city": "Rome"}));
    call.thinking = "hm".into();
    let messages = [
        message("system", "Be kind."),
        message("user", "Weather?"),
        call,
        message("tool", "20"),
    ];
    let tools = [weather()];
    let mut prompt = prompt(&messages);
    prompt.tools = &tools;
    prompt.think = Some(Think::Off);
    let expected = r#"<|im_start|>system
Be kind.
Tools:
- {"name":"get_weather","description":"Now & <later>","parameters":{"type":"object","required":["city"],"properties":{"unit":{"type":"string","enum":["c","f"],"default":"c"},"city":{"type":["string","null"],"description":"Where"}}}}<|im_end|>
<|im_start|>user
Weather?<|im_end|>
<|im_start|>assistant
<think>
hm
</think>
<tool_call>{"name": "get_weather", "arguments": {"city":"Rome"}}</tool_call><|im_end|>
<|im_start|>user
<result>20<|im_end|>
<|im_start|>assistant
<think></think>"#;
    assert_eq!(template.render(&prompt).unwrap(), expected);
}

#[test]
fn abilities_and_tags() {
    let cases = [
        // Template, tools, insert, thinking, thinking tags, tool tag.
        ("{{ .Prompt }}", false, false, false, None, "{"),
        (
            "{{ range .Messages }}{{ end }}{{ if .Tools }}x{{ end }}",
            true,
            false,
            false,
            None,
            "{",
        ),
        (
            "{{ range .Messages }}{{ end }}{{ $.Tools }}",
            true,
            false,
            false,
            None,
            "{",
        ),
        (
            "{{ define \"a\" }}{{ .Suffix }}{{ end }}{{ .Prompt }}",
            false,
            true,
            false,
            None,
            "{",
        ),
        ("{{ .Thinking }}", false, false, false, None, "{"),
        (
            "{{ range .Messages }}{{ if .Thinking }} <t> {{ .Thinking }} </t> {{ end }}{{ end }}",
            false,
            false,
            true,
            Some(("<t>", "</t>")),
            "{",
        ),
        (
            "{{ range $m := .Messages }}<t>{{ $m.Thinking }}</t>{{ end }}",
            false,
            false,
            true,
            Some(("<t>", "</t>")),
            "{",
        ),
        (
            "{{ range .Messages }}{{ range .ToolCalls }}{{ .Thinking }}{{ end }}{{ end }}",
            false,
            false,
            false,
            None,
            "{",
        ),
        (
            "{{ range .Messages }}{{ .Thinking }}{{ end }}",
            false,
            false,
            true,
            None,
            "{",
        ),
        (
            "{{ range .Messages }}{{ if .ToolCalls }}[TOOL_CALLS] [{{ range .ToolCalls }}{\"n\"}{{ end }}]{{ end }}{{ end }}",
            false,
            false,
            false,
            None,
            "[TOOL_CALLS] [",
        ),
        (
            "{{ range .Messages }}{{ if .Content }}c{{ else if .ToolCalls }}\n{{ range .ToolCalls }} <call>{ {{ .Function }}{{ end }}{{ end }}{{ end }}",
            false,
            false,
            false,
            None,
            "<call>",
        ),
        (
            "{{ range .Messages }}{{ if .ToolCalls }}{{ .Content }}<late>{{ end }}{{ end }}",
            false,
            false,
            false,
            None,
            "{",
        ),
        (
            "{{ range .Messages }}{{ if .ToolCalls }}{{ range .ToolCalls }}{\"name\"{{ end }}{{ end }}{{ end }}",
            false,
            false,
            false,
            None,
            "{",
        ),
    ];
    for (source, tools, insert, thinking, tags, tool_tag) in cases {
        let template = GoTemplate::parse(source).unwrap();
        let expected = TemplateCapabilities {
            tools,
            thinking,
            insert,
        };
        assert_eq!(template.capabilities(), expected, "{source}");
        assert_eq!(template.thinking_tags(), tags, "{source}");
        assert_eq!(template.tool_tag(), tool_tag, "{source}");
        assert_eq!(template.source(), source);
    }
}

#[test]
fn syntax_errors() {
    for (source, text) in [
        ("{{ .Prompt ", "unclosed action"),
        ("{{ if .Prompt }}x", "unexpected end of text"),
        ("{{ end }}", "unexpected {{end}}"),
        ("{{ if 1 }}{{ end }}\n{{ end }}x", "2: unexpected {{end}}"),
        ("{{ define \"a\" }}x", "{{end}} is missing"),
        ("{{ if 1 }}{{ else }}{{ else }}{{ end }}", "else"),
        (
            "{{ range .X }}{{ define \"a\" }}{{ break }}{{ end }}{{ end }}",
            "unexpected {{break}}",
        ),
        ("{{ else }}", "unexpected"),
        ("{{ break }}", "break"),
        ("{{ \"open }}", "unterminated"),
        ("{{ nope .Prompt }}", "function \"nope\" not defined"),
        ("{{ if (nope) }}{{ end }}", "function \"nope\" not defined"),
        ("a\nb{{ .Prompt | nope }}", "2: function"),
        ("{{ range }}{{ end }}", "empty command"),
        ("{{ /* open ", "comment"),
        (
            "{{ define \"a\" }}x{{ end }}{{ define \"a\" }}y{{ end }}",
            "multiple definition",
        ),
        ("{{ 1 | 2 ", "unclosed"),
        ("{{ . | | }}", "empty command"),
        (
            "{{ template \"a\" }}{{ define \"a\" }}x{{ end }}",
            "undefined template",
        ),
    ] {
        match GoTemplate::parse(source) {
            Err(Error::Syntax(message)) => {
                assert!(
                    message.to_lowercase().contains(text),
                    "{source:?}: {message}"
                );
            }
            other => panic!("{source:?}: {other:?}"),
        }
    }
    let long = "x".repeat(MAX_SOURCE_BYTES + 1);
    assert!(matches!(GoTemplate::parse(&long), Err(Error::Limit(_))));
}

#[test]
fn run_errors() {
    let messages = conversation("u one");
    for source in [
        "{{ index .Messages 5 }}",
        "{{ index .Messages -1 }}",
        "{{ slice .Messages 2 1 }}",
        "{{ (index .Messages 0).Role.X }}",
        "{{ range .System }}{{ end }}{{ .Messages }}",
        "{{ lt 1 \"a\" }}{{ .Messages }}",
        "{{ eq .Messages .Messages }}",
        "{{ $nope }}{{ .Messages }}",
        "{{ template \"nope\" . }}{{ .Messages }}",
        "{{ json }}{{ .Messages }}",
        "{{ json 1 2 }}{{ .Messages }}",
        "{{ printf 1 }}{{ .Messages }}",
        "{{ len 1 }}{{ .Messages }}",
        "{{ .System 1 }}{{ .Messages }}",
    ] {
        let result =
            GoTemplate::parse(source).and_then(|template| template.render(&prompt(&messages)));
        let failed = matches!(result, Err(Error::Render(_) | Error::Syntax(_)));
        let empty_range = source.contains("range .System") && result.is_ok();
        assert!(failed || empty_range, "{source}: {result:?}");
    }
}

#[test]
fn work_is_bounded() {
    let messages = conversation("u one\na two\nu three");
    let doubling = format!(
        "{{{{ $x := \"xxxxxxxx\" }}}}{}{{{{ .Messages }}}}",
        "{{ $x = print $x $x }}".repeat(60)
    );
    let widths = format!(
        "{{{{ printf \"{}\" }}}}{{{{ .Messages }}}}",
        "%65535d".repeat(20_000)
    );
    let repeats = format!(
        "{{{{ printf \"{}\" \"{}\" }}}}{{{{ .Messages }}}}",
        "%[1]s".repeat(100_000),
        "x".repeat(10_000)
    );
    for (source, limit) in [
        (
            "{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" .Messages }}",
            "nested templates",
        ),
        (
            "{{ define \"a\" }}{{ template \"a\" . }}{{ template \"a\" . }}{{ end }}{{ template \"a\" .Messages }}",
            "nested templates",
        ),
        (
            "{{ range 100000000 }}{{ end }}{{ .Messages }}",
            "loop iterations",
        ),
        (
            "{{ range 1000 }}{{ range 1000 }}{{ range 1000 }}{{ end }}{{ end }}{{ end }}{{ .Messages }}",
            "loop iterations",
        ),
        (doubling.as_str(), "work"),
        (widths.as_str(), "work"),
        (repeats.as_str(), "work"),
    ] {
        let result = GoTemplate::parse(source)
            .unwrap()
            .render(&prompt(&messages));
        match result {
            Err(Error::Limit(text)) => assert_eq!(text, limit, "{}", &source[..80]),
            other => panic!("{}: {:?}", &source[..80], other.map(|text| text.len())),
        }
    }
    // Branching recursion that always ends costs exponentially much: it is stopped by its work.
    let branching = "{{ define \"a\" }}{{ if . }}{{ template \"a\" (slice . 1) }}{{ template \"a\" (slice . 1) }}{{ end }}{{ end }}{{ template \"a\" .System }}{{ .Messages }}";
    let long = [message("system", &"x".repeat(60))];
    let result = GoTemplate::parse(branching).unwrap().render(&prompt(&long));
    assert!(matches!(result, Err(Error::Limit("work"))), "{result:?}");
    // Deep nesting of text is refused, not overflowed.
    let deep = format!("{}x{}", "{{ if 1 }}".repeat(5000), "{{ end }}".repeat(5000));
    assert!(GoTemplate::parse(&deep).is_err());
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
    assert!(GoTemplate::parse(&deep).is_err());
}

/// What nests as deeply as it may is parsed, rendered and dropped on half of the stack that the server's
/// threads have; what nests more deeply is refused before it is parsed.
#[test]
fn depth_is_bounded() {
    for (open, middle, inner, end, close) in [
        ("{{ if 0 }}", "{{ else if 0 }}", "", "", "{{ end }}"),
        ("{{ if 0 }}", "{{else  \n if 0}}", "", "", "{{ end }}"),
        ("{{ if 0 }}", "{{ else with 0 }}", "", "", "{{ end }}"),
        ("{{ with 0 }}", "{{ else with 0 }}", "", "", "{{ end }}"),
        ("{{ range 0 }}", "{{ else if 0 }}", "", "", "{{ end }}"),
        ("", "{{ if 1 }}", "x", "{{ end }}", ""),
        ("", "{{ with 1 }}", "x", "{{ end }}", ""),
        ("", "{{ range 1 }}", "x", "{{ end }}", ""),
        ("", "{{ if 0 }}{{ else }}", "x", "{{ end }}", ""),
        ("{{ ", "(", "1", ")", " }}"),
        ("{{ ", "(print ", "1", ")", " }}"),
        ("{{ ", "(1 | print ", "", ").A", " }}"),
        ("{{ if ", "(not ", "1", ")", " }}{{ end }}"),
    ] {
        let source =
            |n: usize| format!("{open}{}{inner}{}{close}", middle.repeat(n), end.repeat(n));
        for n in [2000, 5000, 20_000] {
            assert!(GoTemplate::parse(&source(n)).is_err(), "{middle}");
        }
        let mut n = 110;
        loop {
            let text = source(n);
            let small = thread::Builder::new().stack_size(1 << 20).spawn(move || {
                let parsed = GoTemplate::parse(&text);
                parsed.is_ok_and(|template| {
                    let _ = template.render(&prompt(&[]));
                    true
                })
            });
            if small.unwrap().join().unwrap() {
                break;
            }
            n -= 1;
            assert!(n > 0, "{middle}");
        }
        assert!(n > 30, "{middle}: only {n}");
    }
    assert!(GoTemplate::parse(&"{{ block \"a\" . }}".repeat(5000)).is_err());
    // Chains that are no nesting.
    for wide in [
        format!("{{{{ 1 {} }}}}", "| print ".repeat(20_000)),
        format!("{{{{ . {} }}}}", ".A".repeat(20_000)),
        "{{ if 1 }}{{ else if 0 }}{{ end }}".repeat(5000),
    ] {
        let text = wide.clone();
        let small = thread::Builder::new()
            .stack_size(1 << 20)
            .spawn(move || GoTemplate::parse(&text).map(drop));
        assert!(small.unwrap().join().unwrap().is_ok(), "{}", &wide[..40]);
    }
}

#[test]
fn comparing_is_work() {
    let doubling = "{{ $x = print $x $x }}".repeat(21);
    for compare in ["eq", "ne", "lt", "le", "gt", "ge"] {
        let source = format!(
            "{{{{ $x := \"aaaaaaaaaaaaaaaa\" }}}}{doubling}{{{{ $y := print $x \"b\" }}}}{{{{ $z := print $x \"c\" }}}}\
             {{{{ range 900000 }}}}{{{{ if {compare} $y $z }}}}{{{{ end }}}}{{{{ end }}}}{{{{ .Messages }}}}"
        );
        let result = GoTemplate::parse(&source).unwrap().render(&prompt(&[]));
        assert!(
            matches!(result, Err(Error::Limit("work"))),
            "{compare}: {result:?}"
        );
    }
    // The results are Go's.
    expr(
        "{{ eq \"a\" \"b\" \"a\" }} {{ eq \"a\" \"b\" }} {{ ne \"a\" \"b\" }} {{ lt \"a\" \"b\" }} {{ le \"b\" \"a\" }} {{ gt \"b\" \"a\" }} {{ ge \"a\" \"a\" }} {{ eq 1 1 }} {{ lt 2 1 }} {{ eq true true }}",
        "true false true true false true true true false true",
    );
}

#[test]
fn a_rendering_ends_at_its_deadline_and_when_nobody_waits() {
    let source = "{{ range 1000 }}{{ range 900 }}{{ end }}{{ end }}{{ .Messages }}";
    let template = GoTemplate::parse(source).unwrap();
    let mut prompt = prompt(&[]);
    // Each look at the clock takes a second.
    let seconds = AtomicU64::new(0);
    prompt.stop =
        Stop::with_clock(move || Duration::from_secs(seconds.fetch_add(1, Ordering::Relaxed)));
    let late = template.render(&prompt);
    assert!(matches!(late, Err(Error::Limit("2 seconds"))), "{late:?}");

    prompt.stop = Stop::with_clock(|| Duration::ZERO);
    prompt.stop.clone().cancel();
    let left = template.render(&prompt);
    assert!(matches!(left, Err(Error::Cancelled)), "{left:?}");
}

#[test]
fn what_a_text_reads_is_told_without_parsing_it() {
    for (source, tools, insert, thinking) in [
        (
            "{{ \"x.Tools\" }}{{ `.Tools` }}{{/* .Tools */}}",
            false,
            false,
            false,
        ),
        ("{{ \"\\\".Tools\" }}{{ '.' }}", false, false, false),
        ("{{ print .Tools.Suffix }}", true, true, false),
        ("{{ (index .Messages 0).Tools }}", true, false, false),
        ("{{- $x.tools -}}", true, false, false),
        (
            "{{ range .Messages }}{{ else }}{{ .Thinking }}{{ end }}",
            false,
            false,
            true,
        ),
        (
            "{{ range .Messages }}{{ end }}{{ .Thinking }}",
            false,
            false,
            false,
        ),
        (
            "{{ range .Messages }}{{ define \"a\" }}{{ .Thinking }}{{ end }}{{ end }}",
            false,
            false,
            false,
        ),
        // Nor need it be one that could be parsed.
        ("{{ if .Tools", true, false, false),
        ("{{ \"open .Tools", false, false, false),
    ] {
        let expected = TemplateCapabilities {
            tools,
            thinking,
            insert,
        };
        assert_eq!(capabilities(source), expected, "{source}");
    }
}

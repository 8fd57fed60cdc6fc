use llmsrv_api::native::{Tool, ToolFunction};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{format::ToolFormat, *};

/// A template whose calls begin with `tag`, and one that knows thinking.
fn template(tag: &str) -> Template {
    let tag = tag.trim_end_matches('{');
    let text = format!(
        "{{{{ range .Messages }}}}{{{{ if .Thinking }}}}<think>{{{{ .Thinking }}}}</think>{{{{ end }}}}\
         {{{{ if .ToolCalls }}}}{tag}{{{{ range .ToolCalls }}}}{{{{ .Function }}}}{{{{ end }}}}{{{{ end }}}}{{{{ end }}}}"
    );
    Template::go(&text).unwrap()
}

fn tools() -> Vec<Tool> {
    let tool = |name: &str, parameters: Value| Tool {
        kind: "function".into(),
        function: ToolFunction {
            name: name.into(),
            description: String::new(),
            parameters,
            ..ToolFunction::default()
        },
    };
    let properties = json!({"properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "wet": {"type": "boolean"},
    }});
    vec![
        tool("get", properties.clone()),
        tool("get_weather", properties),
        tool("say_hello", json!({})),
    ]
}

/// The whole answer in one line: `T` thinking, `C` content, `name{arguments}` calls.
fn show(pieces: &[Piece]) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Thinking(text) => format!("T{text:?}"),
        Piece::Content(text) => format!("C{text:?}"),
        Piece::ToolCall(call) => {
            format!(
                "{}{}",
                call.function.name,
                Value::from(call.function.arguments.clone())
            )
        }
    };
    pieces.iter().map(piece).collect::<Vec<_>>().join(" ")
}

fn split(splitter: &mut OutputSplitter, chunks: &[&str]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for chunk in chunks {
        splitter
            .push(chunk)
            .into_iter()
            .for_each(|piece| append(&mut pieces, piece));
    }
    splitter
        .finish()
        .into_iter()
        .for_each(|piece| append(&mut pieces, piece));
    pieces
}

fn check(tag: &str, answer: &str, expected: &str) {
    check_bound(Bound::Nothing, tag, answer, expected);
}

/// Checks an answer in one piece and cut at every place.
fn check_bound(bound: Bound, tag: &str, answer: &str, expected: &str) {
    for at in (0..answer.len()).filter(|at| answer.is_char_boundary(*at)) {
        let mut splitter = OutputSplitter::new(&template(tag), "", &tools(), None, bound);
        let chunks = [&answer[..at], &answer[at..]];
        assert_eq!(
            show(&split(&mut splitter, &chunks)),
            expected,
            "tag {tag:?}, answer {answer:?}, cut at {at}"
        );
    }
}

#[test]
fn thinking_is_told_from_content() {
    let cases = [
        // Answer, opened by the prompt, expected.
        ("plain", false, r#"C"plain""#),
        ("<think>a b</think>c", false, r#"T"a b" C"c""#),
        (" \n<think>\n a\n</think>\n\n c ", false, r#"T"a\n" C"c ""#),
        (
            "  text <think>x</think>",
            false,
            r#"C"  text <think>x</think>""#,
        ),
        ("<thin", false, r#"C"<thin""#),
        ("<think>cut </thi", false, r#"T"cut </thi""#),
        ("<think></think>c", false, r#"C"c""#),
        ("<think>a</thin</think>c", false, r#"T"a</thin" C"c""#),
        ("<think>a</think>b</think>c", false, r#"T"a" C"b</think>c""#),
        ("\n a</think>\nc", true, r#"T"a" C"c""#),
        ("a", true, r#"T"a""#),
        ("\n<think>\na</think>c", true, r#"T"a" C"c""#),
        ("<think><think>a</think>c", true, r#"T"<think>a" C"c""#),
        ("a <think>b</think>c", true, r#"T"a <think>b" C"c""#),
        ("<think", true, r#"T"<think""#),
        ("", false, ""),
        (" ", false, r#"C" ""#),
    ];
    for (answer, opened, expected) in cases {
        let tail = if opened {
            "assistant\n<think>\n"
        } else {
            "assistant\n"
        };
        let mut splitter =
            OutputSplitter::new(&template("{"), tail, &[], Some(Think::On), Bound::Nothing);
        assert_eq!(
            show(&split(&mut splitter, &[answer])),
            expected,
            "{answer:?}"
        );
    }
}

/// Some models call a tool without an end of their thinking.
#[test]
fn a_call_ends_thinking_that_is_not_closed() {
    let call =
        "<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Rome\"}}\n</tool_call>";
    let called = r#"get_weather{"city":"Rome"}"#;
    let cases = [
        // Answer, expected.
        (
            format!("I will look it up.\n{call}"),
            format!(r#"T"I will look it up.\n" {called}"#),
        ),
        (
            format!("Look it up. {call}\n{call}"),
            format!(r#"T"Look it up. " {called} {called}"#),
        ),
        (call.to_owned(), called.to_owned()),
        // It is closed after all.
        (
            format!("So:\n{call}\nYes.</think>\n{call}"),
            format!("T{:?} {called}", format!("So:\n{call}\nYes.")),
        ),
        // The call is in a block of code, in a sentence or in backticks.
        (
            format!("So:\n```\n{call}\n```\n"),
            format!("T{:?}", format!("So:\n```\n{call}\n```\n")),
        ),
        (
            format!("They use {call}"),
            format!("T{:?}", format!("They use {call}")),
        ),
        (
            format!("They say: `{call}`."),
            format!("T{:?}", format!("They say: `{call}`.")),
        ),
        (
            format!("```\n<x>\n```\n{call}"),
            format!(r#"T"```\n<x>\n```\n" {called}"#),
        ),
        // Words about the tag.
        (
            "<tool_call> is a tag.\n<tool_call> is, too".to_owned(),
            r#"T"<tool_call> is a tag.\n<tool_call> is, too""#.to_owned(),
        ),
        // It was cut.
        (format!("Hm.\n{}", &call[..40]), r#"T"Hm.\n""#.to_owned()),
    ];
    let check = |tail: &str, answer: &str, expected: &str| {
        for at in (0..answer.len()).filter(|at| answer.is_char_boundary(*at)) {
            let template = template("<tool_call>");
            let mut splitter =
                OutputSplitter::new(&template, tail, &tools(), Some(Think::On), Bound::Nothing);
            let pieces = split(&mut splitter, &[&answer[..at], &answer[at..]]);
            assert_eq!(show(&pieces), expected, "{answer:?} cut at {at}");
        }
    };
    for (answer, expected) in cases {
        check("<think>\n", &answer, &expected);
        check("", &format!("<think>{answer}"), &expected);
    }
    // Words about a tag are not held back.
    let template = template("<tool_call>");
    let mut splitter = OutputSplitter::new(
        &template,
        "<think>",
        &tools(),
        Some(Think::On),
        Bound::Nothing,
    );
    assert_eq!(
        show(&splitter.push("<tool_call> is a tag. ")),
        r#"T"<tool_call> is a tag. ""#
    );
    // Nobody can call.
    let mut splitter =
        OutputSplitter::new(&template, "<think>", &[], Some(Think::On), Bound::Nothing);
    assert_eq!(show(&split(&mut splitter, &[call])), format!("T{call:?}"));
}

#[test]
fn thinking_that_is_switched_off_is_content() {
    let mut splitter =
        OutputSplitter::new(&template("{"), "", &[], Some(Think::Off), Bound::Nothing);
    assert_eq!(
        show(&split(&mut splitter, &["<think>a</think>b"])),
        r#"C"<think>a</think>b""#
    );
}

#[test]
fn without_tools_calls_are_content() {
    let mut splitter = OutputSplitter::new(&template("{"), "", &[], None, Bound::Nothing);
    let answer = r#"{"name":"get","arguments":{}}"#;
    assert_eq!(
        split(&mut splitter, &[answer]),
        [Piece::Content(answer.into())]
    );
}

#[test]
fn tagged_calls() {
    let tag = "<tool_call>";
    check(tag, "Hello, you.", r#"C"Hello, you.""#);
    check(
        tag,
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
        r#"get_weather{"city":"Paris"}"#,
    );
    check(
        tag,
        "\n\nSure. <tool_call>{\"name\":\"get\",\"parameters\":{\"b\":1,\"a\":2}}</tool_call>\n<tool_call>{\"name\":\"say_hello\",\"arguments\":{}}</tool_call> Done <b>",
        r#"C"\n\nSure. " get{"b":1,"a":2} say_hello{} C"Done <b>""#,
    );
    // Whitespace before a call at the start, and a call that is not closed.
    check(
        tag,
        " \n<tool_call>{\"name\":\"get\",\"arguments\":{}}",
        "get{}",
    );
    check(
        tag,
        "<tool_call>{\"arguments\":{\"a\":\"}\\\"{\"},\"name\":\"get\"}",
        r#"get{"a":"}\"{"}"#,
    );
    // Arguments as text, line breaks inside strings, a call inside another object, no arguments.
    check(
        tag,
        r#"<tool_call>{"name":"get","arguments":"{\"a\":1}"}"#,
        r#"get{"a":1}"#,
    );
    check(
        tag,
        "<tool_call>{\"name\":\"get\",\"arguments\":{\"a\":\"x\ny\\n\"}}",
        r#"get{"a":"x\ny\n"}"#,
    );
    check(
        tag,
        r#"<tool_call>{"tool_calls":[{"function":{"name":"get","arguments":{}}},{"name":"say_hello"}]}"#,
        "get{} say_hello{}",
    );
    check(
        tag,
        r#"<tool_call>{"get_weather":{"city":"Rome"}}"#,
        r#"get_weather{"city":"Rome"}"#,
    );
    // The longer of two names with one beginning.
    check(
        tag,
        r#"<tool_call>get_weather{"city":"Rome"}"#,
        r#"get_weather{"city":"Rome"}"#,
    );
    // What is about calls is content.
    for text in [
        "<tool_call> is a tag",
        "<tool_call> is a tag before {\"name\": 1}.",
        "a <t",
        "a <table>",
        "[",
    ] {
        check(tag, text, &format!("C{text:?}"));
    }
}

#[test]
fn pieces_of_calls_are_never_content() {
    let whole = r#"<tool_call>{"name":"get","arguments":{"a":1}}</tool_call>"#;
    for (tag, answer, expected) in [
        // Cut by a limit.
        ("<tool_call>", "a <tool_cal", r#"C"a ""#),
        ("<tool_call>", "<tool_call>", ""),
        ("<tool_call>", "<tool_call>\n{\"name\":\"", ""),
        ("<tool_call>", r#"<tool_call>{"name":"get","argum"#, ""),
        (
            "<tool_call>",
            "<tool_call>\n<function=get>\n<parameter=city>\nRo",
            "",
        ),
        ("[TOOL_CALLS]", "[TOOL_CALLS]get_weather[ARGS]{\"ci", ""),
        ("[TOOL_CALLS]", "[TOOL_CALLS] [{\"name\"", ""),
        (
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```js",
            "",
        ),
        ("<|python_tag|>", r#"{"name":"get","arg"#, ""),
        ("<|python_tag|>", "[get(a=1)", ""),
        ("{", r#"{"name": "get_we"#, ""),
        // A tag again, in and after a call that was given up or complete.
        (
            "<tool_call>",
            r#"<tool_call>{"name": "get", <tool_call>{"name":"say_hello","arguments":{}}"#,
            "say_hello{}",
        ),
        (
            "<tool_call>",
            "<tool_call>\n<tool_call>\n{\"name\":\"say_hello\",\"arguments\":{}}",
            "say_hello{}",
        ),
        (
            "<tool_call>",
            "<tool_call>\n{\"name\": \"get\",\"arguments\": \"Paris\"},\n<tool_call>\n",
            "get{}",
        ),
        // No call at all.
        (
            "<tool_call>",
            r#"<tool_call>{"name":"unknown","arguments":{}}</tool_call>"#,
            "",
        ),
        ("<tool_call>", r#"<tool_call>{"no json}</tool_call>"#, ""),
        (
            "<tool_call>",
            "<tool_call>nothing</tool_call> more",
            r#"C"more""#,
        ),
    ] {
        check(tag, answer, expected);
    }
    // A whole call and any part of another one.
    for end in (0..whole.len()).filter(|end| whole.is_char_boundary(*end)) {
        let answer = format!("{whole}\n{}", &whole[..end]);
        let expected = if end < whole.len() - "</tool_call>".len() {
            r#"get{"a":1}"#
        } else {
            r#"get{"a":1} get{"a":1}"#
        };
        check("<tool_call>", &answer, expected);
    }
}

#[test]
fn who_must_call_says_nothing_else() {
    for (tag, answer) in [
        ("{", "{"),
        ("{", r#"{"na"#),
        ("[", r#"[{"name": ""#),
        ("<|tool_call_start|>", "[ge"),
        ("<tool_call>", "<to"),
        ("<tool_call>", "<"),
    ] {
        check_bound(Bound::Calls, tag, answer, "");
    }
}

#[test]
fn what_is_left_out_is_counted() {
    let n_left_out = |answer: &str| {
        let template = template("<tool_call>");
        let mut splitter = OutputSplitter::new(&template, "", &tools(), None, Bound::Nothing);
        split(&mut splitter, &[answer]);
        splitter.n_left_out()
    };
    assert_eq!(n_left_out("<tool_call>{\"na"), 15);
    assert_eq!(n_left_out("Well.<tool_call>x</tool_call>"), 24);
    let call = r#"<tool_call>{"name":"get","arguments":{}}</tool_call>"#;
    assert_eq!(n_left_out(call), 0);
    assert_eq!(n_left_out("Just text, 1 < 2"), 0);
}

#[test]
fn an_answer_that_is_a_call_as_a_whole() {
    let tag = "<tool_call>";
    let call = "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}";
    let expected = r#"get_weather{"city":"Rome"}"#;
    for answer in [
        call.to_owned(),
        format!("\n {call}\n"),
        format!("```json\n{call}\n```"),
        format!("```\n{call}\n```\n"),
        format!("```json\n{call}"),
        format!("[{call}]"),
        format!("```tool_call\n[ {call} ]\n```"),
        call.replace("arguments", "parameters"),
        call.replace("{\"city\": \"Rome\"}", "\"{\\\"city\\\": \\\"Rome\\\"}\""),
        format!("{{\"type\": \"function\", \"function\": {call}}}"),
        "{\"arguments\": {\"city\": \"Rome\"}, \"name\": \"functions.get_weather\"}".to_owned(),
    ] {
        check(tag, &answer, expected);
    }
    check(
        tag,
        &format!("{call}\n{call}"),
        &format!("{expected} {expected}"),
    );
    check(
        tag,
        &format!("[{call},{call}]"),
        &format!("{expected} {expected}"),
    );
    check(tag, r#"{"name": "say_hello"}"#, "say_hello{}");
    // A fence also where calls are bare, and a call that was cut.
    check("{", &format!("```json\n{call}\n```"), expected);
    check(tag, "```json\n{\"name\": \"get\", \"argum", "");
    check(tag, &format!("{call}\n{{\"na"), expected);
    for text in [
        format!("{call} is what I would call."),
        format!("```json\n{call}\n```\nThis is how."),
        format!("```python\n{call}\n```"),
        format!("Sure: {call}"),
        format!("[{call}, 1]"),
        r#"{"name": "unknown", "arguments": {}}"#.to_owned(),
        r#"{"name": "get", "arguments": {}, "more": 1}"#.to_owned(),
        r#"{"name": "get_weather"}"#.to_owned(),
        r#"{"name": "get", "arguments": [1]}"#.to_owned(),
        r#"{"name": "jeff", "age": 3}"#.to_owned(),
        "{\"name\": {\"first\"".to_owned(),
        "```".to_owned(),
        "`get`".to_owned(),
    ] {
        check(tag, &text, &format!("C{text:?}"));
    }
    // An answer in a format is that format's.
    for tag in [tag, "{"] {
        check_bound(Bound::Format, tag, call, &format!("C{call:?}"));
    }
}

#[test]
fn text_is_held_only_while_it_can_become_a_call() {
    for (text, next) in [
        ("{", "\"x"),
        ("{\"name\": \"", "j"),
        ("{\"name\": ", "\"gex"),
        ("```", "py"),
        ("```json\n{\"", "result\""),
        ("[", "1"),
        ("{\"name\": \"say_hello\"}", "."),
    ] {
        let template = template("<tool_call>");
        let mut splitter = OutputSplitter::new(&template, "", &tools(), None, Bound::Nothing);
        assert!(splitter.push(text).is_empty(), "{text}");
        let released = splitter.push(next);
        assert_eq!(released, [Piece::Content(format!("{text}{next}"))]);
    }
}

#[test]
fn long_text_after_a_tag_is_content() {
    let text = format!("<tool_call>{} end", "word ".repeat(300));
    let mut splitter =
        OutputSplitter::new(&template("<tool_call>"), "", &tools(), None, Bound::Nothing);
    let early = splitter.push(&text);
    assert_eq!(early, [Piece::Content(text)]);
}

#[test]
fn bare_calls() {
    for tag in ["{", "[", "[TOOL_CALLS] [", "<|python_tag|>"] {
        check(
            tag,
            r#"{"name":"get","parameters":{"a":1}}"#,
            r#"get{"a":1}"#,
        );
        check(
            tag,
            " [{\"name\":\"get\",\"arguments\":{}}, {\"name\":\"say_hello\",\"arguments\":{}}]\nok",
            r#"get{} say_hello{} C"ok""#,
        );
        check(
            tag,
            r#"{"type":"function","function":{"name":"get","arguments":{}}}"#,
            "get{}",
        );
        check(
            tag,
            r#"{"name":"get","arguments":{}}; {"name":"get","arguments":{}}"#,
            "get{} get{}",
        );
        for text in [
            r#"Use {"name":"get","arguments":{}}"#,
            r#"{"name":"jeff"} {"name":"get","arguments":{}}"#,
            r#"{"answer": 42}"#,
            r#"{"na"#,
            "[special delivery]",
            "[1, 2]",
            "{",
            "[",
        ] {
            check(tag, text, &format!("C{text:?}"));
        }
    }
}

#[test]
fn plain_json_is_not_held_back() {
    let mut splitter = OutputSplitter::new(&template("{"), "", &tools(), None, Bound::Nothing);
    let pieces = splitter.push("{\"answer\"");
    assert_eq!(pieces, [Piece::Content("{\"answer\"".into())]);
}

#[test]
fn other_syntaxes() {
    check(
        "[TOOL_CALLS] [",
        r#"[TOOL_CALLS] [{"name":"get","arguments":{"a":1}},{"name":"get","arguments":{}}][/TOOL_CALLS]"#,
        r#"get{"a":1} get{}"#,
    );
    check(
        "[TOOL_CALLS]",
        r#"[TOOL_CALLS]get_weather[ARGS]{"city":"Rome"}[TOOL_CALLS]say_hello[ARGS]{}"#,
        r#"get_weather{"city":"Rome"} say_hello{}"#,
    );
    check(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\":\"Rome\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>say_hello\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        r#"get_weather{"city":"Rome"} say_hello{}"#,
    );
    check(
        "<|python_tag|>",
        r#"<|python_tag|>{"name":"get","parameters":{}}"#,
        "get{}",
    );
    check(
        "<|tool_call|>",
        r#"<|tool_call|>[{"name":"get","arguments":{}}]"#,
        "get{}",
    );
    check(
        "CALL:",
        r#"Now CALL: {"name":"get","arguments":{}}"#,
        r#"C"Now " get{}"#,
    );
    check(
        "<tool_call>",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n{Rome}\n2\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        r#"get_weather{"city":"{Rome}\n2","days":3}"#,
    );
    check(
        "{",
        r#"<function=get_weather>{"city":"Rome"}</function>"#,
        r#"get_weather{"city":"Rome"}"#,
    );
    check(
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{\"a\":1}<|tool_call_end|><|tool_calls_section_end|>",
        r#"get{"a":1}"#,
    );
    check(
        "{",
        "<function=rm>\n<parameter=x>1</parameter></function>",
        "",
    );
}

#[test]
fn calls_that_look_like_python() {
    let tag = "<|python_tag|>";
    check(
        tag,
        r#"[get_weather(city="Rome", days=3), say_hello()]"#,
        r#"get_weather{"city":"Rome","days":3} say_hello{}"#,
    );
    check(
        tag,
        " [get(a=[1, 'x)]', {\"k\": None}], b=True, c=-1.5e3, d='it\\'s \\u00e9')]",
        r#"get{"a":[1,"x)]",{"k":null}],"b":true,"c":-1500.0,"d":"it's é"}"#,
    );
    check(
        "<|tool_call_start|>",
        r#"Sure. <|tool_call_start|>[get_weather(city="Rome")]<|tool_call_end|>"#,
        r#"C"Sure. " get_weather{"city":"Rome"}"#,
    );
    for text in [
        "[rm(x=1)]",
        "[get(1)]",
        "[get(a=1), rm()]",
        "[get_weather] is a name",
        "[get ready]",
        "[get(a=open('x'))]",
    ] {
        check(tag, text, &format!("C{text:?}"));
    }
}

/// What each family writes, as its template shows it for calls of the past.
#[test]
fn calls_in_blocks() {
    let both = r#"get_weather{"city":"Rome","days":3} say_hello{}"#;
    for (tag, answer) in [
        (
            "<tool_call>",
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>say_hello\n</tool_call>",
        ),
        (
            "<|tool_call>",
            "<|tool_call>call:get_weather{city:<|\"|>Rome<|\"|>,days:3}<tool_call|><|tool_call>call:say_hello{}<tool_call|>",
        ),
        (
            "<start_function_call>",
            "<start_function_call>call:get_weather{city:<escape>Rome<escape>,days:3}<end_function_call><start_function_call>call:say_hello{}<end_function_call>",
        ),
        (
            "<minimax:tool_call>",
            "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Rome</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n<invoke name=\"say_hello\">\n</invoke>\n</minimax:tool_call>",
        ),
        (
            "{",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Rome</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"say_hello\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        ),
        (
            "{",
            "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Rome</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"say_hello\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        ),
        (
            "<function_calls>",
            "<function_calls>\nget_weather(city=\"Rome\", days=3)\nsay_hello()\n</function_calls>",
        ),
        (
            "<seed:tool_call>",
            "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Rome</parameter>\n<parameter=days>3</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=say_hello>\n</function>\n</seed:tool_call>",
        ),
        (
            "<tool_calls>",
            "<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}, {\"name\": \"say_hello\", \"arguments\": {}}]</tool_calls>",
        ),
        (
            "<TOOLCALL>",
            "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}, {\"name\": \"say_hello\", \"arguments\": {}}]</TOOLCALL>",
        ),
        (
            "{",
            "<function name=\"get_weather\"><param name=\"city\">Rome</param><param name=\"days\">3</param></function>\n<function name=\"say_hello\"></function>",
        ),
    ] {
        check(tag, answer, both);
        check(
            tag,
            &format!("Well. {answer}\nThere."),
            &format!(r#"C"Well. " {both} C"There.""#),
        );
        // Tools that there are not, and calls that were cut.
        let other = answer
            .replace("get_weather", "rm")
            .replace("say_hello", "rm");
        // What follows in a list is plain JSON.
        if !["<tool_calls>", "<TOOLCALL>"].contains(&tag) {
            check(tag, &other, "");
        }
        let begin = answer.find("Rome").unwrap();
        check(tag, &answer[..begin + 2], "");
    }
    let nested = "<|tool_call>call:get{a:{b:[1,-2.5e3,true,null],c:<|\"|>{x}, \"y\"<|\"|>},<|\"|>d e<|\"|>:[]}<tool_call|>";
    check(
        "<|tool_call>",
        nested,
        r#"get{"a":{"b":[1,-2500.0,true,null],"c":"{x}, \"y\""},"d e":[]}"#,
    );
    check(
        "<tool_call>",
        "<tool_call>get\n<arg_key>a</arg_key>\n<arg_value>{\"b\": [\"</x>\"]}</arg_value>\n<arg_key>city</arg_key>\n<arg_value>42</arg_value>\n</tool_call>",
        r#"get{"a":{"b":["</x>"]},"city":"42"}"#,
    );
    check(
        "<function_calls>",
        "<function_calls>get(a='x\\ny', b=[1, (2)]), say_hello()</function_calls>",
        r#"get{"a":"x\ny","b":[1,[2]]} say_hello{}"#,
    );
    // In CDATA tags are text, and nothing is left out.
    check(
        "{",
        "<function name=\"get_weather\"><param name=\"city\"><![CDATA[\n</param></function> a & <b>\n]]></param><param name=\"days\"><![CDATA[3]]></param><param name=\"wet\">True</param></function>",
        r#"get_weather{"city":"\n</param></function> a & <b>\n","days":3,"wet":true}"#,
    );
    check(
        "{",
        "<function name=\"get_weather\"><param name=\"city\"><![CDATA[</param></function>",
        "",
    );
    // What is about calls is content.
    for (tag, text) in [
        ("{", "<function name=\" is how a call begins"),
        ("<|tool_call>", "<|tool_call> is a tag"),
        ("<function_calls>", "<function_calls> is a tag"),
    ] {
        check(tag, text, &format!("C{text:?}"));
    }
    let deep = format!("<|tool_call>call:get{{a:{}", "[".repeat(100_000));
    check_bound_once("<|tool_call>", &format!("{deep}}}<tool_call|>"), "");
}

/// What a bare value is, the schema says, whatever words it takes for that.
#[test]
fn bare_values_have_the_types_of_the_schema() {
    let circle = json!({"anyOf": vec![json!({"$ref": "#/$defs/circle"}); 50]});
    let parameters = |schema: &Value| {
        let defs = json!({
            "size": {"type": "string", "enum": ["1", "2"]},
            "circle": circle,
        });
        json!({"$defs": defs, "properties": {"it": schema}})
    };
    let optional = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    let flag = json!({"type": "boolean"});
    for (schema, written, expected) in [
        (json!({"type": "string"}), "12345", json!("12345")),
        (json!({"type": "string"}), "\"a\"", json!("\"a\"")),
        (optional.clone(), "12345", json!("12345")),
        (optional.clone(), "True", json!("True")),
        (optional.clone(), "null", json!(null)),
        // As a grammar makes the model write it.
        (optional, "\"12345\"", json!("12345")),
        (
            json!({"type": ["string", "null"]}),
            "{\"a\":1}",
            json!("{\"a\":1}"),
        ),
        (
            json!({"type": ["string", "object"]}),
            "{\"a\":1}",
            json!({"a": 1}),
        ),
        (json!({"type": ["string", "integer"]}), "7", json!(7)),
        (json!({"type": ["string", "integer"]}), "7.5", json!("7.5")),
        (
            json!({"oneOf": [{"type": "number"}, {"type": "string"}]}),
            "7",
            json!(7),
        ),
        (json!({"$ref": "#/$defs/size"}), "1", json!("1")),
        (
            json!({"allOf": [{"$ref": "#/$defs/size"}], "default": "1"}),
            "1",
            json!("1"),
        ),
        (json!({"enum": ["1", "2"]}), "1", json!("1")),
        (json!({"enum": [1, "2"]}), "1", json!(1)),
        (json!({"const": "true"}), "true", json!("true")),
        (flag.clone(), "True", json!(true)),
        (flag.clone(), " FALSE ", json!(false)),
        (
            json!({"anyOf": [flag, {"type": "null"}]}),
            "False",
            json!(false),
        ),
        // Neither is right: what the model wrote is closest.
        (json!({"type": "integer"}), "null", json!(null)),
        (json!({"type": "integer"}), "many", json!("many")),
        // Nothing is known.
        (json!({}), "12345", json!(12345)),
        (
            json!({"anyOf": [{"type": "string"}, {}]}),
            "12345",
            json!(12345),
        ),
        (json!({"$ref": "#/$defs/circle"}), "12345", json!(12345)),
        (
            json!({"$ref": "https://example.com"}),
            "12345",
            json!(12345),
        ),
    ] {
        let tool = Tool {
            function: ToolFunction {
                name: "f".into(),
                parameters: parameters(&schema),
                ..ToolFunction::default()
            },
            ..tools().remove(0)
        };
        for (tag, answer) in [
            (
                "<tool_call>",
                format!(
                    "<tool_call>\n<function=f>\n<parameter=it>\n{written}\n</parameter>\n</function>\n</tool_call>"
                ),
            ),
            (
                "<tool_call>",
                format!(
                    "<tool_call>f\n<arg_key>it</arg_key>\n<arg_value>{written}</arg_value>\n</tool_call>"
                ),
            ),
            (
                "<minimax:tool_call>",
                format!(
                    "<minimax:tool_call><invoke name=\"f\"><parameter name=\"it\">{written}</parameter></invoke></minimax:tool_call>"
                ),
            ),
        ] {
            let tools = [tool.clone()];
            let mut splitter =
                OutputSplitter::new(&template(tag), "", &tools, None, Bound::Nothing);
            let pieces = split(&mut splitter, &[&answer]);
            assert_eq!(
                show(&pieces),
                format!("f{}", json!({"it": expected})),
                "{schema} {answer}"
            );
        }
    }
}

/// As [`check`], for answers that are too long to be cut everywhere.
fn check_bound_once(tag: &str, answer: &str, expected: &str) {
    let mut splitter = OutputSplitter::new(&template(tag), "", &tools(), None, Bound::Nothing);
    assert_eq!(show(&split(&mut splitter, &[answer])), expected);
}

/// The marks around the thinking of each family.
#[test]
fn thinking_has_several_marks() {
    for (open, close) in [
        ("<think>", "</think>"),
        ("[THINK]", "[/THINK]"),
        ("<|channel>thought\n", "<channel|>"),
        ("<seed:think>", "</seed:think>"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
    ] {
        let source = format!("{{% raw %}}{open} {close}{{% endraw %}}{{{{ messages }}}}");
        let template = Template::jinja(&source, "", "").unwrap();
        assert!(template.capabilities().thinking);
        for (tail, answer) in [
            ("", format!("{open}hm{close}Yes.")),
            (open, format!("hm{close}Yes.")),
        ] {
            for at in (0..answer.len()).filter(|at| answer.is_char_boundary(*at)) {
                let mut splitter = OutputSplitter::new(&template, tail, &[], None, Bound::Nothing);
                let pieces = split(&mut splitter, &[&answer[..at], &answer[at..]]);
                assert_eq!(show(&pieces), r#"T"hm" C"Yes.""#, "{answer} cut at {at}");
            }
        }
    }
}

/// The marks around the answer of each family are no part of it.
#[test]
fn marks_around_an_answer_are_left_out() {
    for (open, close, is_alone) in [
        ("<answer>", "</answer>", true),
        ("<|START_RESPONSE|>", "<|END_RESPONSE|>", true),
        ("<|START_TEXT|>", "<|END_TEXT|>", true),
        ("<response>", "</response>", false),
    ] {
        let source = format!(
            "{{% raw %}}<think></think>{open}{close}<tool_call>{{% endraw %}}{{{{ messages }}}}{{{{ tools }}}}"
        );
        let template = Template::jinja(&source, "", "").unwrap();
        let alone = format!("Yes{close}");
        let closed = if is_alone { "Yes" } else { alone.as_str() };
        let closed = format!("C{closed:?}");
        for (answer, expected) in [
            (
                format!("<think>\nhm\n</think>\n{open}\nYes <b>.\n{close}"),
                r#"T"hm\n" C"Yes <b>.""#,
            ),
            (format!(" {open}Yes{close}\n"), r#"C"Yes\n""#),
            // The prompt of some may have opened it.
            (alone.clone(), closed.as_str()),
            ("Yes\n</x>".to_owned(), r#"C"Yes\n</x>""#),
            (
                "<think>hm</think><tool_call>{\"name\":\"say_hello\",\"arguments\":{}}</tool_call>"
                    .to_owned(),
                r#"T"hm" say_hello{}"#,
            ),
            (open[..2].to_owned(), &*format!("C{:?}", &open[..2])),
        ] {
            for at in (0..answer.len()).filter(|at| answer.is_char_boundary(*at)) {
                let mut splitter =
                    OutputSplitter::new(&template, "", &tools(), None, Bound::Nothing);
                let pieces = split(&mut splitter, &[&answer[..at], &answer[at..]]);
                assert_eq!(show(&pieces), expected, "{answer:?} cut at {at}");
            }
        }
    }
}

/// The template of gpt-oss as far as it matters here.
fn harmony() -> Template {
    let text = "{% for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant";
    Template::jinja(text, "", "").unwrap()
}

#[test]
fn channels() {
    let call = "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Rome\"}";
    let cases = [
        (
            "<|channel|>analysis<|message|>They <ask>.<|end|><|start|>assistant<|channel|>final<|message|>It rains.<|return|>".to_owned(),
            r#"T"They <ask>." C"It rains.""#,
        ),
        // The last control token is an end of generation and never seen.
        (
            format!("<|channel|>analysis<|message|>Call it.<|end|>{call}"),
            r#"T"Call it." get_weather{"city":"Rome"}"#,
        ),
        (
            format!("<|channel|>commentary<|message|>Looking.<|end|>{call}<|call|>{call}<|call|>"),
            r#"C"Looking." get_weather{"city":"Rome"} get_weather{"city":"Rome"}"#,
        ),
        (
            "<|start|>assistant to=functions.say_hello<|channel|>commentary json<|message|>{}<|call|>".to_owned(),
            "say_hello{}",
        ),
        (
            "<|channel|>commentary to=functions.rm<|message|>{}<|call|>".to_owned(),
            "",
        ),
        (
            "<|channel|>commentary to=functions.get<|message|>{\"ci".to_owned(),
            "",
        ),
        ("<|channel|>commentary to=functions.get<|message|>".to_owned(), ""),
        ("<|channel|>final<|message|>cut <|en".to_owned(), r#"C"cut <|en""#),
        ("<|channel|>analysis<|message|>cut".to_owned(), r#"T"cut""#),
        ("<|channel|>fin".to_owned(), ""),
        ("Plain text.".to_owned(), r#"C"Plain text.""#),
        ("also plain".to_owned(), r#"C"also plain""#),
    ];
    let template = harmony();
    assert!(template.capabilities().thinking);
    for (answer, expected) in cases {
        let mut splitter = OutputSplitter::new(
            &template,
            "<|start|>assistant",
            &tools(),
            None,
            Bound::Nothing,
        );
        assert_eq!(
            show(&split(&mut splitter, &[&answer])),
            expected,
            "{answer}"
        );
        // Wherever it is cut.
        for at in (0..answer.len()).filter(|at| answer.is_char_boundary(*at)) {
            let mut splitter = OutputSplitter::new(&template, "", &tools(), None, Bound::Nothing);
            let chunks = [&answer[..at], &answer[at..]];
            assert_eq!(
                show(&split(&mut splitter, &chunks)),
                expected,
                "{answer} at {at}"
            );
        }
    }
    let tail = "<|start|>assistant<|channel|>final<|message|>";
    let mut splitter = OutputSplitter::new(&template, tail, &tools(), None, Bound::Nothing);
    assert_eq!(show(&split(&mut splitter, &["Yes"])), r#"C"Yes""#);
}

#[test]
fn the_format_of_calls_is_told_by_the_template() {
    for (text, name) in [
        ("<|channel|> <|message|>", "harmony"),
        ("<|tool_call>call:", "gemma4"),
        ("<start_function_call>call:", "functiongemma"),
        ("<minimax:tool_call>", "minimax"),
        ("'<' + '｜DSML｜' + 'function_calls>'", "deepseek-v32"),
        ("'<' + '｜DSML｜' + 'tool_calls>'", "deepseek-v4"),
        ("<seed:tool_call> <function= <parameter=", "seed"),
        ("<tool_call> <arg_key>", "glm"),
        ("<function_calls>", "olmo3"),
        ("<tool_calls>", "hunyuan"),
        ("<TOOLCALL>", "nemotron"),
        ("<function name=\" <param name=\"", "minicpm5"),
        ("<tool_call> <function= <parameter=", "qwen-coder"),
        ("<|tool_calls_section_begin|>", "kimi"),
        ("<｜tool▁calls▁begin｜> ```json", "deepseek-fenced"),
        ("<｜tool▁calls▁begin｜>", "deepseek"),
        ("<|tool_call_start|>", "lfm"),
        ("<|START_ACTION|>", "command-r"),
        ("[TOOL_CALLS] [ARGS]", "mistral-named"),
        ("[TOOL_CALLS]", "mistral"),
        ("<|tool_call|>", "granite"),
        ("<tool_call>", "hermes"),
        ("[func_name1(params_name1=params_value1)]", "pythonic"),
        (
            "{\"name\": function name, \"parameters\": dictionary}",
            "llama",
        ),
        ("nothing", "json"),
    ] {
        let template =
            Template::jinja(&format!("{{% raw %}}{text}{{% endraw %}}"), "", "").unwrap();
        assert_eq!(ToolFormat::of(&template).name(), name, "{text}");
    }
    // A tag of its own goes before each call.
    let format = ToolFormat::of(&template("CALL:"));
    let grammar = format
        .forced_grammar(&tools()[..1], false, &|_| None)
        .unwrap();
    assert!(
        grammar.lark.contains("start: \"CALL:\""),
        "{}",
        grammar.lark
    );
    assert_eq!(format.forced_grammar(&[], true, &|_| None), None);
}

#[test]
fn calls_are_numbered_and_named() {
    let mut splitter = OutputSplitter::new(&template("{"), "", &tools(), None, Bound::Nothing);
    let answer = r#"[{"name":"get","arguments":{}},{"name":"get","arguments":{}}]"#;
    let calls: Vec<ToolCall> = split(&mut splitter, &[answer])
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::ToolCall(call) => Some(call),
            _ => None,
        })
        .collect();
    assert_eq!(
        calls.iter().map(|c| c.function.index).collect::<Vec<_>>(),
        [0, 1]
    );
    assert_ne!(calls[0].id, calls[1].id);
}

/// Texts that are full of almost-tags and almost-calls.
fn answers() -> impl Strategy<Value = String> {
    let parts = [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        "[",
        "]",
        "{",
        "}",
        "\"",
        "\\",
        "<",
        "</",
        "<|",
        "|>",
        " ",
        "\n",
        ",",
        "get",
        "get_weather",
        "name",
        "arguments",
        "{\"name\":\"get\",\"arguments\":{\"a\":[1,{}]}}",
        "{\"name\": \"say_hello\"}",
        "{\"a\":1}",
        "get(",
        "a='x', b=[1]",
        ")",
        "<|tool_call_start|>",
        "<|channel|>",
        "<|message|>",
        "analysis",
        "commentary to=functions.get ",
        "<|end|>",
        "<|start|>assistant",
        "<arg_key>",
        "<arg_value>",
        "<|tool_call>call:get{",
        "<|\"|>",
        "<tool_call|>",
        "<function_calls>",
        "</function_calls>",
        "<minimax:tool_call>",
        "<invoke name=\"get\">",
        "</minimax:tool_call>",
        "<function=get>",
        "<parameter=city>",
        "</parameter>",
        "</function>",
        "<function name=\"get\">",
        "<param name=\"city\">",
        "<![CDATA[",
        "]]>",
        "</param>",
        "<TOOLCALL>",
        "é",
        "｜",
        "\u{1}",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..40).prop_map(|v| v.concat())
}

proptest! {
    #[test]
    fn how_text_is_cut_does_not_matter(
        answer in answers(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        tag in prop::sample::select(vec!["{", "<tool_call>", "[TOOL_CALLS]", "<|tool_call_start|>", "harmony"]),
        opened in any::<bool>(),
    ) {
        let template = if tag == "harmony" { harmony() } else { template(tag) };
        let tail = if opened { "<think>" } else { "" };
        let mut whole = OutputSplitter::new(&template, tail, &tools(), None, Bound::Nothing);
        let expected = show(&split(&mut whole, &[&answer]));

        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(answer.len() + 1)).collect();
        ends.retain(|&end| answer.is_char_boundary(end));
        ends.sort_unstable();
        ends.push(answer.len());
        let mut start = 0;
        let mut chunks = Vec::new();
        for end in ends {
            chunks.push(&answer[start..end]);
            start = end;
        }
        let mut cut = OutputSplitter::new(&template, tail, &tools(), None, Bound::Nothing);
        prop_assert_eq!(show(&split(&mut cut, &chunks)), expected);
    }

    #[test]
    fn without_calls_and_thinking_nothing_is_lost(answer in answers()) {
        let mut splitter = OutputSplitter::new(&template("<tool_call>"), "", &tools(), Some(Think::Off), Bound::Nothing);
        let pieces = split(&mut splitter, &[&answer]);
        let is_text = pieces.iter().all(|piece| matches!(piece, Piece::Content(_)));
        if is_text && splitter.n_left_out() == 0 {
            let content = pieces.first().map_or(String::new(), |piece| match piece {
                Piece::Content(text) => text.clone(),
                _ => String::new(),
            });
            prop_assert_eq!(content, answer);
        }
    }
}

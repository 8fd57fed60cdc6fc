use llmsrv_api::native::{ToolCall, ToolCallFunction};

use super::*;

fn message(role: &str, content: &str) -> Message {
    Message {
        role: role.into(),
        content: content.into(),
        ..Message::default()
    }
}

fn render(source: &str, messages: &[Message]) -> Result<String> {
    let prompt = Prompt::new(messages, "2026-08-21T10:11:12+00:00[UTC]".parse().unwrap());
    JinjaTemplate::parse(source, "<s>", "</s>")?.render(&prompt)
}

/// Wants a user first, then alternating roles, no system, ids of nine characters.
const STRICT: &str = "{% for m in messages %}\
    {% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}\
    {% if m.role != 'tool' and (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}{% endif %}\
    {% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('id') }}{% endif %}({{ c.id }}){% endfor %}\
    {{ m.role[0] }}:{{ m.content }}{{ m.tool_call_id }};{% endfor %}";

#[test]
fn conversations_are_adapted_to_strict_templates() {
    let (system, user, answer) = (
        message("system", "S"),
        message("user", "U"),
        message("assistant", "A"),
    );
    let mut call = message("assistant", "");
    call.tool_calls = ["f", "g"]
        .map(|name| ToolCall {
            id: format!("call_{name}0000000"),
            function: ToolCallFunction {
                name: name.into(),
                ..ToolCallFunction::default()
            },
        })
        .to_vec();
    let mut by_id = message("tool", "g=");
    by_id.tool_call_id = "call_g0000000".into();
    let mut by_name = message("tool", "f=");
    by_name.tool_name = "f".into();

    let cases: Vec<(Vec<Message>, &str)> = vec![
        (vec![user.clone(), answer.clone()], "u:U;a:A;"),
        (vec![system.clone(), user.clone()], "u:S\n\nU;"),
        (
            vec![user.clone(), user.clone(), answer.clone()],
            "u:U\n\nU;a:A;",
        ),
        (
            vec![
                system.clone(),
                user.clone(),
                answer.clone(),
                system.clone(),
                user.clone(),
            ],
            "u:S\n\nS\n\nU;a:A;u:U;",
        ),
        (vec![system.clone()], "u:S;"),
        (vec![answer.clone(), user.clone()], "u:;a:A;u:U;"),
        (
            vec![user.clone(), call.clone(), by_id.clone(), by_name],
            "u:U;(000000000)(000000001)a:;t:g=000000001;t:f=000000000;",
        ),
        (
            vec![user.clone(), call, message("tool", "?")],
            "u:U;(000000000)(000000001)a:;t:?000000000;",
        ),
    ];
    for (messages, expected) in cases {
        assert_eq!(render(STRICT, &messages).unwrap(), expected);
    }
}

#[test]
fn tool_messages_become_text_where_there_are_none() {
    let source = "{% for m in messages %}{% if m.role not in ['user', 'assistant'] or m.tool_calls %}{{ raise_exception('role') }}{% endif %}{{ m.content }};{% endfor %}";
    let mut call = message("assistant", "Let me see.");
    call.tool_calls = vec![ToolCall::default()];
    let messages = [message("user", "U"), call, message("tool", "R")];
    assert_eq!(
        render(source, &messages).unwrap(),
        "U;Let me see.\n{\"name\":\"\",\"arguments\":{}};R;"
    );
}

#[test]
fn a_refusal_that_nothing_helps_is_reported() {
    let refused = render(
        "{{ raise_exception('never ' + messages[0].role) }}",
        &[message("system", "S")],
    );
    assert!(matches!(refused, Err(Error::Refused(text)) if text == "never system"));
}

#[test]
fn errors_name_line_and_cause() {
    let syntax = |source: &str| match JinjaTemplate::parse(source, "", "") {
        Err(Error::Syntax(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(syntax("a\n{% if %}").starts_with("line 2: "));
    assert!(syntax("{{ (1 }}").contains("syntax error"));
    let Err(Error::Render(text)) =
        render("\n\n{{ messages[0].nope.deeper }}", &[message("user", "U")])
    else {
        panic!("rendered");
    };
    assert!(text.starts_with("line 3: "), "{text}");
    let long = "x".repeat(MAX_SOURCE_BYTES + 1);
    assert!(matches!(
        JinjaTemplate::parse(&long, "", ""),
        Err(Error::Limit(_))
    ));
}

#[test]
fn work_is_bounded() {
    let limited = |source: &str| match render(source, &[message("user", "U")]) {
        Err(Error::Limit(limit)) => limit.to_owned(),
        other => panic!("{source}: {:?}", other.map(|text| text.len())),
    };
    assert_eq!(
        limited("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
        "work"
    );
    assert_eq!(
        limited("{% for a in range(9999) %}{{ 'x' * 99999 }}{% endfor %}"),
        "text"
    );
    for source in [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x' * 999999999 }}",
        "{% include 'chat' %}",
        "{% extends 'chat' %}",
        "{% import 'chat' as c %}",
        "{{ [[[[[[[[1]]]]]]]] | tojson(indent=999999) ~ nope.x }}",
    ] {
        assert!(render(source, &[]).is_err(), "{source}");
    }
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(9999), ")".repeat(9999));
    assert!(render(&deep, &[]).is_err());
    let deep = format!(
        "{}x{}",
        "{% if true %}".repeat(9999),
        "{% endif %}".repeat(9999)
    );
    assert!(render(&deep, &[]).is_err());
}

#[test]
fn thinking_and_tools_of_a_text() {
    let template = |source: &str| JinjaTemplate::parse(source, "", "").unwrap();
    let plain = template("{{ messages }}");
    assert_eq!(plain.capabilities(), TemplateCapabilities::default());
    assert_eq!((plain.thinking_tags(), plain.tool_tag()), (None, "{"));
    let full = template("{% if tools %}<tool_call>{% endif %}<think></think>");
    assert!(
        full.capabilities().tools && full.capabilities().thinking && !full.capabilities().insert
    );
    assert_eq!(full.thinking_tags(), Some(("<think>", "</think>")));
    assert_eq!(full.tool_tag(), "<tool_call>");
    assert!(!template("<think>").capabilities().thinking);
}

#[test]
fn think_reaches_the_template() {
    let template = JinjaTemplate::parse(
        "{{ enable_thinking is defined }} {{ enable_thinking }} {{ reasoning_effort }}",
        "",
        "",
    )
    .unwrap();
    for (think, expected) in [
        (None, "False  "),
        (Some(crate::Think::Off), "True False "),
        (Some(crate::Think::On), "True True "),
        (Some(crate::Think::High), "True True high"),
    ] {
        let mut prompt = Prompt::new(&[], Zoned::default());
        prompt.think = think;
        assert_eq!(template.render(&prompt).unwrap(), expected);
    }
}

#[test]
fn images_become_tags() {
    let mut seen = message("user", "what?");
    seen.images = vec![String::new()];
    assert_eq!(
        render("{{ messages[0].content }}", &[seen]).unwrap(),
        "[img-0]what?"
    );
}

/// Each of these would take terabytes, or minutes.
#[test]
fn memory_is_bounded() {
    let double = "{% set ns = namespace(a='aaaaaaaaaaaaaaaa') %}{% for i in range(40) %}";
    let cases = [
        format!("{double}{{% set ns.a = ns.a ~ ns.a %}}{{% endfor %}}{{{{ ns.a }}}}"),
        format!("{double}{{% set ns.a = ns.a + ns.a %}}{{% endfor %}}"),
        format!("{double}{{% set ns.a = [ns.a, ns.a] %}}{{% endfor %}}{{{{ ns.a }}}}"),
        format!("{double}{{% set ns.a = {{'x': ns.a, 'y': ns.a}} %}}{{% endfor %}}{{{{ ns.a | tojson }}}}"),
        format!("{double}{{% set b %}}{{{{ ns.a }}}}{{{{ ns.a }}}}{{% endset %}}{{% set ns.a = b %}}{{% endfor %}}"),
        format!("{double}{{% set ns.a = ns.a | replace('a', ns.a) %}}{{% endfor %}}"),
        format!("{double}{{% set ns.a = ns.a.replace('a', ns.a) %}}{{% endfor %}}"),
        format!("{double}{{% set ns.a = ns.a | list | join(ns.a) %}}{{% endfor %}}"),
        format!("{double}{{% set ns.a = ns.a.join(ns.a | list) %}}{{% endfor %}}"),
        format!("{double}{{% set ns.a = ns.a | list %}}{{% set ns.a = ns.a + ns.a %}}{{% endfor %}}{{{{ ns.a | length }}}}"),
        format!("{double}{{% set ns.a = ns.a | list | chain(ns.a) %}}{{% endfor %}}{{{{ ns.a | list | length }}}}"),
        format!("{double}{{% set ns.a = [ns.a] * 100 %}}{{% endfor %}}{{{{ ns.a | string }}}}"),
        "{% macro m(t) %}{{ t }}{{ t }}{% endmacro %}".to_owned()
            + &format!("{double}{{% set ns.a = m(ns.a) %}}{{% endfor %}}"),
        "{% set a = 'a' * 30000000 %}{% set l = namespace(l=[]) %}{% for i in range(1000) %}{% set l.l = l.l + [a | upper] %}{% endfor %}".into(),
        format!("{{% for i in range(100000) %}}{{% for j in range(1000) %}}{}{{% endfor %}}{{% endfor %}}", "x".repeat(100_000)),
        "{{ 'a\nb' | indent(1000000000) }}".into(),
        "{{ 'a\nb' | indent(width=1000000000) }}".into(),
        "{{ [1] | batch(1000000000, 0) | list }}".into(),
        "{{ '%1000000000d' | format(1) }}".into(),
        "{{ '{:>1000000000}'.format(1) }}".into(),
        format!("{{{{ [{}] }}}}", vec!["'a' * 100000000"; 1000].join(",")),
        "{{ ('a' * 100000000) * 100 }}".into(),
    ];
    for source in cases {
        let started = std::time::Instant::now();
        let error = render(&source, &[message("user", "hi")]).unwrap_err();
        let start: String = source.chars().take(150).collect();
        let is_clear = matches!(error, Error::Limit(_))
            || error.to_string().contains("too large")
            || error.to_string().contains("too much");
        assert!(is_clear, "{start}: {error}");
        assert!(
            started.elapsed().as_secs() < 10,
            "{start}: {:?}",
            started.elapsed()
        );
    }
    // Nesting is not work for the copy of the tree.
    let nested = "x ~ (".repeat(40) + "x" + &")".repeat(40);
    let filters = "x | replace('a', ".repeat(40) + "x" + &")".repeat(40);
    for source in [nested, filters] {
        let source = format!("{{% set x = 'b' %}}{{{{ {source} }}}}");
        assert!(render(&source, &[]).unwrap().starts_with('b'));
    }
    // What an honest template does with a long conversation is far from the bounds.
    let messages = vec![message("user", &"word ".repeat(2000)); 400];
    let source = "{% set ns = namespace(t='', l=[]) %}{% for m in messages %}{% set ns.t = m.content ~ '\n' %}{% set ns.l = ns.l + [m] %}{{ ns.t | trim | replace('word', 'w') }}{% endfor %}{{ ns.l | length }}";
    assert!(render(source, &messages).unwrap().ends_with("w400"));
}

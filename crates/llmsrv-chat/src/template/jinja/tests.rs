use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use llmsrv_api::native::{ToolCall, ToolCallFunction};

use super::*;
use crate::limits::Stop;

fn message(role: &str, content: &str) -> Message {
    Message {
        role: role.into(),
        content: content.into(),
        ..Message::default()
    }
}

/// Renders while the clock stands still.
fn render(source: &str, messages: &[Message]) -> Result<String> {
    let mut prompt = Prompt::new(messages, "2026-08-21T10:11:12+00:00[UTC]".parse().unwrap());
    prompt.stop = Stop::with_clock(|| Duration::ZERO);
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

/// What stands before a late system message is the same prompt with it and without.
#[test]
fn a_late_system_message_is_said_by_the_user_where_it_stands() {
    let source = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}{{ m.role[0] }}:{{ m.content }};{% endfor %}";
    let messages = [
        message("system", "S"),
        message("user", "U"),
        message("assistant", "A"),
        message("system", "L"),
    ];
    assert_eq!(render(source, &messages).unwrap(), "s:S;u:U;a:A;u:L;");
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

/// What nests as deeply as it may is parsed, rendered and dropped on half of the stack that the server's
/// threads have; what nests more deeply is refused before it is parsed.
#[test]
fn depth_is_bounded() {
    let chains = [
        ("{{ ", "-", "1 }}"),
        ("{{ ", "not ", "1 }}"),
        ("{{ 1", "~'a'", " }}"),
        ("{{ x", "|upper", " }}"),
        ("{{ 'a'", "|upper|string", " }}"),
        ("{{ x", ".b", " }}"),
        ("{{ x", "()", " }}"),
        ("{{ x", "[0]", " }}"),
        ("{{ x", "[x:x]", " }}"),
        ("{{ x", " and x", " }}"),
        ("{{ x", " is defined", " }}"),
        ("{{ x", " == x", " }}"),
        ("{{ x", " in x", " }}"),
        ("{{ x", " if x else x", " }}"),
        ("{{ x", " if x", " }}"),
        ("{{ x", "|replace(x, x)", " }}"),
        ("{{ x", ".f(x, y=x)", " }}"),
        ("{{ ", "(", " }}"),
        ("{{ ", "[", " }}"),
        ("{{ ", "{1:", " }}"),
        ("{{ ", "x~(", " }}"),
        ("{{ ", "f(", " }}"),
        ("{% if x %}", "{% elif x %}", "{% endif %}"),
        ("", "{% if x %}{% else %}", ""),
        ("", "{% if x %}", ""),
        ("", "{% for a in x %}", ""),
        ("", "{% set a %}", ""),
        ("", "{% macro a() %}", ""),
        ("", "{% call f() %}", ""),
        ("", "{% filter upper %}", ""),
        ("", "{% with a = 1 %}", ""),
    ];
    for (open, middle, close) in chains {
        let source = |n: usize| {
            let ends = |begin: &str, end: &str| end.repeat(middle.matches(begin).count() * n);
            let mut closed = String::new();
            if !close.contains("end") {
                for (begin, end) in [
                    ("if", "if"),
                    ("for", "for"),
                    ("set", "set"),
                    ("macro", "macro"),
                    ("call", "call"),
                    ("filter", "filter"),
                    ("with", "with"),
                ] {
                    closed += &ends(&format!("{{% {begin} "), &format!("{{% end{end} %}}"));
                }
            }
            if middle.ends_with('(') {
                closed = ")".repeat(n);
            } else if middle.ends_with('[') {
                closed = "]".repeat(n);
            } else if middle.ends_with(':') {
                closed = format!("1{}", "}".repeat(n));
            }
            let inner = if middle.ends_with('(') { "x" } else { "" };
            format!("{open}{}{inner}{closed}{close}", middle.repeat(n))
        };
        for n in [3000, 10_000, 40_000] {
            let source = source(n);
            assert!(JinjaTemplate::parse(&source, "", "").is_err(), "{middle}");
        }
        // The deepest that is accepted.
        let (mut n, mut refused) = (1, 500);
        while refused - n > 1 {
            let text = source(usize::midpoint(n, refused));
            let small = thread::Builder::new().stack_size(1 << 20).spawn(move || {
                let accepted = JinjaTemplate::parse(&text, "", "").is_ok();
                let _ = render(&text, &[message("user", "U")]);
                accepted
            });
            let middle = usize::midpoint(n, refused);
            if small.unwrap().join().unwrap() {
                n = middle;
            } else {
                refused = middle;
            }
        }
        assert!(n > 30, "{middle}: only {n}");
    }
}

/// Each of these would take minutes: comparing, searching and counting are work by their operands.
#[test]
fn reading_is_work() {
    let long = "{% set a = 'a' * 30000000 %}{% set b = 'a' * 29999999 ~ 'b' %}{% set l = [a] %}{% set m = [b] %}";
    let many = "{% set r = range(90000) | list %}";
    let cases = [
        format!("{long}{{% for i in range(90000) %}}{{% if a == b %}}{{% endif %}}{{% endfor %}}"),
        format!("{long}{{% for i in range(90000) %}}{{% if a < b %}}{{% endif %}}{{% endfor %}}"),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a <= b <= a %}}{{% endif %}}{{% endfor %}}"
        ),
        format!("{long}{{% for i in range(90000) %}}{{% if l == m %}}{{% endif %}}{{% endfor %}}"),
        format!("{long}{{% for i in range(90000) %}}{{% if l < m %}}{{% endif %}}{{% endfor %}}"),
        format!("{long}{{% for i in range(90000) %}}{{% if a in m %}}{{% endif %}}{{% endfor %}}"),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if 'ab' in a %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if 'ab' not in a %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a is eq b %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a is in l %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a is startingwith b %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a is lower %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a | length %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a | trim('a') %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a.startswith(b) %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a.count('b') %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a.find('b') %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a.strip('a') %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if l.count(b) %}}{{% endif %}}{{% endfor %}}"
        ),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if a[29999999] %}}{{% endif %}}{{% endfor %}}"
        ),
        format!("{long}{{% for i in range(90000) %}}{{% if a[1:2] %}}{{% endif %}}{{% endfor %}}"),
        format!("{long}{{% for i in range(90000) %}}{{% if {{}}[a] %}}{{% endif %}}{{% endfor %}}"),
        format!(
            "{long}{{% for i in range(90000) %}}{{% if loop.changed(l) %}}{{% endif %}}{{% endfor %}}"
        ),
        format!("{long}{{{{ range(90000) | select('in', a) | list }}}}"),
        format!("{long}{{{{ ([b] * 90000) | map('replace', 'b', 'c') | list | length }}}}"),
        format!("{many}{{% for i in r %}}{{% if r | sum %}}{{% endif %}}{{% endfor %}}"),
        format!("{many}{{% for i in r %}}{{% if r | max %}}{{% endif %}}{{% endfor %}}"),
        format!("{many}{{% for i in r %}}{{% if r | last %}}{{% endif %}}{{% endfor %}}"),
        format!("{many}{{% for i in r %}}{{% if r | sort | length %}}{{% endif %}}{{% endfor %}}"),
        format!(
            "{many}{{% for i in r %}}{{% if r | select('odd') | list %}}{{% endif %}}{{% endfor %}}"
        ),
    ];
    for source in cases {
        // The clock runs: without optimisation some of these are slow before they are too much.
        let messages = [message("user", "hi")];
        let template = JinjaTemplate::parse(&source, "", "").unwrap();
        let error = template.render(&Prompt::new(&messages, Zoned::default()));
        assert!(matches!(error, Err(Error::Limit(_))), "{source}: {error:?}");
    }
}

/// What one step makes is bounded before it is made, and what is thrown away is not kept.
#[test]
fn steps_do_not_swell() {
    let long = "{% set a = 'a' * 3000000 %}";
    for source in [
        format!("{long}{{{{ a | list | length }}}}"),
        format!("{long}{{{{ a | map('upper') | list | length }}}}"),
        format!("{long}{{{{ a.split('a') | length }}}}"),
        format!("{long}{{{{ a | split('a') | list | length }}}}"),
        "{{ ('\\n' * 3000000).splitlines() | length }}".to_owned(),
        format!("{long}{{% for c in a %}}{{% endfor %}}"),
        format!("{long}{{{{ [1, 2, 3] | tojson(indent=a) }}}}"),
        format!("{long}{{{{ [1, 2, 3] | tojson(separators=[a, a]) }}}}"),
        format!("{long}{{{{ ('%s' * 1000) | format(a) }}}}"),
        format!("{long}{{{{ ('{{0}}' * 1000).format(a) }}}}"),
        format!("{long}{{{{ (['x' * 1000] * 1000) | map('replace', 'x', 'y' * 30000) | list }}}}"),
        "{{ strftime_now('%A' * 10000) }}".to_owned(),
        "{{ messages | pprint }}".to_owned(),
        "{{ debug() }}".to_owned(),
        // A namespace within itself is never freed.
        "{% set n = namespace() %}{% set n.n = n %}".to_owned(),
        "{% set n = namespace() %}{% set l = [n] %}".to_owned(),
        "{% set n = namespace() %}{% set d = {'n': n} %}".to_owned(),
        "{% set n = namespace() %}{% set m = namespace(n=n) %}".to_owned(),
    ] {
        let error = render(&source, &[message("user", "hi")]);
        assert!(error.is_err(), "{source}");
    }
    // Only the last result is kept.
    let thrown = format!("{long}{{% for i in range(5) %}}{{% do a.upper() %}}{{% endfor %}}ok");
    assert_eq!(render(&thrown, &[]).unwrap(), "ok");
    assert_eq!(
        render("{% macro m(n) %}{% set n.x = n.x + 1 %}{% endmacro %}{% set n = namespace(x=1, l=[1]) %}{% do m(n) %}{{ n.x }}{{ n.l[0] }}", &[]).unwrap(),
        "21"
    );
}

#[test]
fn a_rendering_ends_at_its_deadline_and_when_nobody_waits() {
    let source = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
    let template = JinjaTemplate::parse(source, "", "").unwrap();
    let mut prompt = Prompt::new(&[], Zoned::default());
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

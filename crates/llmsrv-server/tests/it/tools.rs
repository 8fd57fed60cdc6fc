//! Calls that a request forces, in every format, by a model that would rather say anything else.

use http::Method;
use http_body_util::BodyExt as _;
use llmsrv_api::native::{Tool, ToolFunction};
use llmsrv_chat::{Bound, CallGrammar, Otherwise, OutputSplitter, Piece, Template, ToolFormat};
use llmsrv_engine::{
    EngineOptions, Event, GenRequest, GrammarSpec, SamplingParams,
    fake::{self, Answer, FakeOptions},
    spawn,
};
use serde_json::{Value, json};

use crate::host::{Host, saying};

/// What stands in a template so that its calls have a format.
const FORMATS: &[&str] = &[
    "<|channel|><|message|>",
    "<|tool_call>",
    "<start_function_call>",
    "<minimax:tool_call>",
    "<｜DSML｜function_calls>",
    "<｜DSML｜tool_calls>",
    "<seed:tool_call>",
    "<tool_call><arg_key>",
    "<function_calls>",
    "<tool_calls>",
    "<TOOLCALL>",
    "<function name=\"<param name=\"",
    "<tool_call><function=<parameter=",
    "<|tool_calls_section_begin|>",
    "<｜tool▁calls▁begin｜>```json",
    "<｜tool▁calls▁begin｜>",
    "<|tool_call_start|>",
    "<|START_ACTION|>",
    "[TOOL_CALLS][ARGS]",
    "[TOOL_CALLS]",
    "<|tool_call|>",
    "<tool_call>",
    "<|python_tag|>[func_name1(",
    "\"parameters\": ",
    "",
];

fn tool(name: &str, parameters: Value) -> Tool {
    Tool {
        kind: "function".into(),
        function: ToolFunction {
            name: name.into(),
            description: String::new(),
            parameters,
            ..ToolFunction::default()
        },
    }
}

fn tools() -> Vec<Tool> {
    vec![
        tool(
            "get_weather",
            json!({"type": "object", "properties": {
                "city": {"type": "string", "enum": ["Rome", "São \"Paulo\""]},
                "days": {"$ref": "#/$defs/days"},
                "units": {"type": ["array"], "items": {"enum": ["c", "f"]}, "maxItems": 2, "uniqueItems": true},
            }, "required": ["city"], "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 7}}}),
        ),
        tool("say_hello", json!({"type": "object", "properties": {}})),
        tool(
            "set",
            json!({"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}),
        ),
    ]
}

fn template(mark: &str) -> Template {
    let source = format!("{{% raw %}}{mark}{{% endraw %}}{{{{ messages }}}}{{{{ tools }}}}");
    Template::jinja(&source, "", "").unwrap()
}

/// Lets a random model answer under the grammar of a format; returns what it said and its pieces.
fn forced(mark: &str, tools: &[Tool], parallel: bool, seed: u64) -> (String, Vec<Piece>) {
    let grammar = ToolFormat::of(&template(mark))
        .forced_grammar(tools, parallel, &|_| None)
        .unwrap();
    let params = SamplingParams {
        seed: Some(seed),
        temperature: 20.0,
        top_k: 0,
        top_p: 1.0,
        // White space makes answers long, not more interesting.
        logit_bias: [" ", "\n", "\t", "\r"]
            .map(|c| (u32::from(c.as_bytes()[0]), -60.0))
            .to_vec(),
        ..SamplingParams::default()
    };
    said(mark, tools, grammar, None, Answer::Random, params)
}

/// Lets a model answer under a grammar.
fn said(
    mark: &str,
    tools: &[Tool],
    grammar: CallGrammar,
    answer: Option<GrammarSpec>,
    wish: Answer,
    params: SamplingParams,
) -> (String, Vec<Piece>) {
    let template = template(mark);
    let options = FakeOptions {
        answer: wish,
        ..FakeOptions::default()
    };
    let engine = spawn(fake::loaded(options), EngineOptions::default());
    let request = GenRequest {
        images: Vec::new(),
        tokens: vec![97],
        params,
        num_ctx: 4096,
        max_tokens: Some(3000),
        stop: Vec::new(),
        num_keep: 0,
        shift: false,
        grammar: Some(GrammarSpec::Calls {
            lark: grammar.lark.clone(),
            schemas: grammar.schemas,
            answer: answer.map(Box::new),
        }),
        grammar_after: None,
        grammar_unless: None,
        logprobs: None,
    };
    let mut generation = engine
        .submit(request)
        .unwrap_or_else(|error| panic!("{mark}: {error}\n{}", grammar.lark));
    let mut said = String::new();
    let mut splitter = OutputSplitter::new(&template, "", tools, None, Bound::Nothing);
    let mut pieces = Vec::new();
    while let Some(event) = generation.blocking_next() {
        match event {
            Event::Text { text, .. } => {
                said.push_str(&text);
                pieces.extend(splitter.push(&text));
            }
            Event::Error(error) => panic!("{mark}: {error} after {said}"),
            _ => {}
        }
    }
    pieces.extend(splitter.finish());
    (said, pieces)
}

#[test]
fn forced_calls_are_calls_in_every_format() {
    let tools = tools();
    for mark in FORMATS {
        for seed in 0..12 {
            let parallel = seed % 2 == 0;
            let (said, pieces) = forced(mark, &tools, parallel, seed);
            assert!(!pieces.is_empty(), "{mark}: {said}");
            assert!(parallel || pieces.len() == 1, "{mark}: {said}");
            for piece in &pieces {
                let Piece::ToolCall(call) = piece else {
                    panic!("{mark}: {said:?} gives {pieces:?}")
                };
                let arguments = &call.function.arguments;
                match call.function.name.as_str() {
                    "get_weather" => {
                        let city = arguments["city"].as_str().unwrap();
                        assert!(["Rome", "São \"Paulo\""].contains(&city), "{said}");
                        let days = arguments.get("days").map(|days| days.as_i64().unwrap());
                        assert!(days.is_none_or(|days| (1..8).contains(&days)), "{said}");
                    }
                    "set" => assert!(arguments["on"].is_boolean(), "{said}"),
                    name => assert_eq!((name, arguments.len()), ("say_hello", 0), "{said}"),
                }
            }
        }
        let (said, pieces) = forced(mark, &tools[2..], false, 99);
        let [Piece::ToolCall(call)] = pieces.as_slice() else {
            panic!("{mark}: {said}")
        };
        assert_eq!(call.function.name, "set");
    }
}

fn greedy() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        logit_bias: [" ", "\n", "\t", "\r"]
            .map(|c| (u32::from(c.as_bytes()[0]), -1.0))
            .to_vec(),
        ..SamplingParams::default()
    }
}

fn calls_of(pieces: &[Piece]) -> Vec<Value> {
    let calls = pieces.iter().filter_map(|piece| match piece {
        Piece::ToolCall(call) => Some(json!([call.function.name, call.function.arguments])),
        _ => None,
    });
    calls.collect()
}

fn content_of(pieces: &[Piece]) -> String {
    let texts = pieces.iter().filter_map(|piece| match piece {
        Piece::Content(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// How an answer in words begins where there are channels.
fn opening(mark: &str) -> &'static str {
    if mark == FORMATS[0] {
        "<|channel|>final<|message|>"
    } else {
        ""
    }
}

/// Formats whose calls have no tag.
fn is_bare(mark: &str) -> bool {
    ["", "\"parameters\": ", "<|python_tag|>[func_name1("].contains(&mark)
}

#[test]
fn text_and_strict_calls_in_every_format() {
    let tools = &tools()[..1];
    for mark in FORMATS {
        let free = |wish: String| {
            let grammar =
                ToolFormat::of(&template(mark)).grammar(tools, false, Otherwise::Text, &|_| None);
            said(
                mark,
                tools,
                grammar.unwrap(),
                None,
                Answer::Text(wish),
                greedy(),
            )
        };
        let text = "Just <text>, [1] {2} no call.\nAnd more.";
        let (whole, pieces) = free(format!("{}{text}", opening(mark)));
        assert_eq!(content_of(&pieces), text, "{mark}: {whole}");
        assert_eq!(calls_of(&pieces), Vec::<Value>::new(), "{mark}: {whole}");

        // What the model was made to say before is let through as it is, also after text.
        let (call, pieces) = forced(mark, tools, false, 3);
        let expected = calls_of(&pieces);
        let (whole, pieces) = free(call.clone());
        assert_eq!(calls_of(&pieces), expected, "{mark}: {whole}");
        if !is_bare(mark) && opening(mark).is_empty() {
            let (whole, pieces) = free(format!("Let me see. {call}"));
            assert_eq!(calls_of(&pieces), expected, "{mark}: {whole}");
            assert_eq!(content_of(&pieces).trim(), "Let me see.", "{mark}: {whole}");
        }

        // A city that is not in the schema.
        let (whole, pieces) = free(call.replace("Rome", "Oslo").replace("São", "Nao"));
        let calls = calls_of(&pieces);
        assert_eq!(calls.len(), 1, "{mark}: {whole}");
        let city = calls[0][1]["city"].as_str().unwrap();
        assert!(["Rome", "São \"Paulo\""].contains(&city), "{mark}: {whole}");
    }
}

#[test]
fn calls_or_an_answer_in_a_format() {
    let tools = &tools()[..1];
    let schema = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}, "n": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["name", "n"], "additionalProperties": false});
    for mark in FORMATS {
        let format = ToolFormat::of(&template(mark));
        let grammar = || format.grammar(tools, true, Otherwise::Answer, &|_| None);
        if is_bare(mark) {
            assert_eq!(grammar(), None, "{mark}: a call is such an answer");
            continue;
        }
        let ask = |answer: GrammarSpec, wish: String| {
            let grammar = grammar().unwrap();
            said(
                mark,
                tools,
                grammar,
                Some(answer),
                Answer::Text(wish),
                greedy(),
            )
        };
        let (call, pieces) = forced(mark, tools, false, 5);
        let expected = calls_of(&pieces);
        for (answer, text) in [
            (
                GrammarSpec::JsonSchema(schema.clone()),
                "{\"name\": \"x\", \"n\": 7}",
            ),
            (GrammarSpec::Json, "{ \"any\": [1, {}] }"),
            (GrammarSpec::Regex("[a-z/]+!".into()), "b/a!"),
            (
                GrammarSpec::Lark("start: \"yes\" body\nbody: \" sir\"".into()),
                "yes sir",
            ),
        ] {
            let (whole, pieces) = ask(answer.clone(), format!("{}{text}", opening(mark)));
            assert_eq!(content_of(&pieces), text, "{mark}: {whole}");
            let (whole, pieces) = ask(answer, call.clone());
            assert_eq!(calls_of(&pieces), expected, "{mark}: {whole}");
        }
        // Neither the one nor the other.
        let schema = GrammarSpec::JsonSchema(schema.clone());
        let (whole, pieces) = ask(schema, "I would rather talk.".into());
        if calls_of(&pieces).is_empty() {
            let value: Value = serde_json::from_str(&content_of(&pieces))
                .unwrap_or_else(|_| panic!("{mark}: {whole}"));
            assert!(
                value["name"].is_string() && value["n"].is_i64(),
                "{mark}: {whole}"
            );
        }
    }
}

/// A model that answers in words must call what the request names, in all dialects.
#[tokio::test]
async fn the_choice_of_tools_is_enforced() {
    let host = saying("I would rather talk.");
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"]}}});
    let ask = |choice: Value| {
        json!({"model": "caller", "messages": [{"role": "user", "content": "x"}],
            "tools": [tool("add"), tool("sub")], "tool_choice": choice, "max_tokens": 200, "temperature": 0})
    };
    for (choice, names) in [
        (json!("required"), &["add", "sub"][..]),
        (
            json!({"type": "function", "function": {"name": "sub"}}),
            &["sub"][..],
        ),
    ] {
        let (status, answer) = host.post("/v1/chat/completions", ask(choice.clone())).await;
        assert_eq!(status, 200, "{answer}");
        let chosen = &answer["choices"][0];
        assert_eq!(chosen["finish_reason"], "tool_calls", "{choice}: {answer}");
        let call = &chosen["message"]["tool_calls"][0]["function"];
        assert!(names.contains(&call["name"].as_str().unwrap()), "{answer}");
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["a"].is_u64(), "{answer}");
    }
    for choice in [json!("auto"), json!("none")] {
        let (_, answer) = host.post("/v1/chat/completions", ask(choice)).await;
        assert_eq!(
            answer["choices"][0]["message"]["content"],
            "I would rather talk."
        );
    }
}

#[tokio::test]
async fn formats_of_our_own() {
    let host = saying("Say what you like.");
    for (format, fits) in [
        (json!({"type": "regex", "pattern": "[0-9]{3}-x"}), 5),
        (
            json!({"type": "lark", "grammar": "start: \"yes\" | \"nope\""}),
            4,
        ),
        (
            json!({"type": "gbnf", "grammar": "root ::= [0-9]{2} \"!\""}),
            3,
        ),
    ] {
        let (status, answer) = host.ask(json!({"format": format})).await;
        assert_eq!(status, 200, "{answer}");
        let said = answer["response"].as_str().unwrap();
        assert!(said.len() == fits || said == "yes", "{format}: {said}");
    }
}

/// What a schema says that is not enforced is named in a header of the answer, whole or not, in every
/// dialect; or refused, if the client wants all or nothing.
#[tokio::test]
async fn what_is_not_enforced_is_named() {
    let host = saying("Say what you like.");
    let schema = json!({"type": "object", "properties": {"tags": {"type": "array", "items": {"enum": ["a", "\u{e9}"]}, "maxItems": 2, "uniqueItems": true}}, "required": ["tags"]});
    let of_openai = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}});
    let flat = json!({"type": "json_schema", "name": "n", "strict": true, "schema": schema});
    let messages = json!([{"role": "user", "content": "x"}]);
    let requests = [
        ("/api/generate", json!({"prompt": "x", "format": schema})),
        ("/api/chat", json!({"messages": messages, "format": schema})),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "response_format": of_openai}),
        ),
        (
            "/v1/responses",
            json!({"input": "x", "text": {"format": flat}}),
        ),
    ];
    for (path, mut body) in requests {
        body["model"] = json!("plain");
        for stream in [false, true] {
            body["stream"] = stream.into();
            let ask = async |headers: &[(&str, &str)]| {
                let answer = host.send(Method::POST, path, headers, body.to_string());
                answer.await
            };
            let answer = ask(&[]).await;
            assert_eq!(answer.status(), 200, "{path}");
            let warnings: Vec<_> = answer.headers().get_all("warning").iter().collect();
            assert_eq!(
                warnings,
                [
                    "299 llmsrv \"\\\"uniqueItems\\\" (at /properties/tags/uniqueItems) cannot be enforced; remove it or set it to false\""
                ],
                "{path}"
            );
            let answer = ask(&[("prefer", "wait=5, Handling=Strict")]).await;
            assert_eq!(answer.status(), 400, "{path}");
            let bytes = answer.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8_lossy(&bytes);
            assert!(
                text.contains("at /properties/tags/uniqueItems"),
                "{path}: {text}"
            );
        }
    }
    let sound = json!({"model": "plain", "prompt": "x", "stream": false, "format": {"const": 1}});
    let answer = host.send(
        Method::POST,
        "/api/generate",
        &[("prefer", "handling=strict")],
        sound.to_string(),
    );
    let answer = answer.await;
    assert_eq!(answer.status(), 200);
    assert!(!answer.headers().contains_key("warning"));
}

#[tokio::test]
async fn one_call_is_one_call() {
    let two = concat!(
        r#"<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>"#,
        r#"<tool_call>{"name":"add","arguments":{"a":2}}</tool_call>"#
    );
    let host = saying(two);
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let nested = json!([{"type": "function", "function": {"name": "add", "parameters": schema}}]);
    let flat = json!([{"type": "function", "name": "add", "parameters": schema}]);
    let plain = json!([{"name": "add", "input_schema": schema}]);
    let messages = json!([{"role": "user", "content": "x"}]);
    for (path, body, at, kind) in [
        (
            "/v1/chat/completions",
            json!({"messages": messages, "tools": nested}),
            "/choices/0/message/tool_calls",
            "function",
        ),
        (
            "/v1/responses",
            json!({"input": "x", "tools": flat}),
            "/output",
            "function_call",
        ),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 500, "tools": plain}),
            "/content",
            "tool_use",
        ),
    ] {
        for (parallel, forced, expected) in [
            (None, false, 2),
            (Some(true), false, 2),
            (Some(false), false, 1),
            (Some(false), true, 1),
        ] {
            let mut body = body.clone();
            body["model"] = json!("caller");
            body["temperature"] = json!(0);
            if path == "/v1/messages" {
                let kind = if forced { "any" } else { "auto" };
                body["tool_choice"] = json!({"type": kind, "disable_parallel_tool_use": parallel.map(|parallel: bool| !parallel)});
            } else {
                body["parallel_tool_calls"] = json!(parallel);
                body["tool_choice"] = json!(if forced { "required" } else { "auto" });
            }
            let (status, answer) = host.post(path, body.clone()).await;
            assert_eq!(status, 200, "{answer}");
            let items = answer.pointer(at).unwrap().as_array().unwrap().iter();
            let n_calls = items.filter(|item| item["type"] == kind).count();
            assert_eq!(n_calls, expected, "{body}: {answer}");
        }
    }
}

/// The model may choose: words in the format, or a call.
#[tokio::test]
async fn a_format_does_not_shut_out_calls() {
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false});
    let tools = json!([{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}]);
    let call = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let messages = json!([{"role": "user", "content": "x"}]);
    for (wish, calls) in [
        (call, 1),
        ("{\"ok\": true}", 0),
        ("I would rather talk.", 0),
    ] {
        let host = saying(wish);
        let body = json!({"model": "caller", "messages": messages, "tools": tools, "format": schema, "stream": false});
        let (status, answer) = host.post("/api/chat", body).await;
        assert_eq!(status, 200, "{answer}");
        let message = &answer["message"];
        assert_eq!(
            message["tool_calls"].as_array().map_or(0, Vec::len),
            calls,
            "{answer}"
        );
        if calls == 0 {
            let said = message["content"].as_str().unwrap();
            let value: Value = serde_json::from_str(said).unwrap_or_else(|_| panic!("{said}"));
            assert!(value["ok"].is_boolean(), "{value}");
        }
        let body = json!({"model": "caller", "messages": messages, "tools": tools, "temperature": 0,
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
        let (_, answer) = host.post("/v1/chat/completions", body).await;
        let reason = if calls == 1 { "tool_calls" } else { "stop" };
        assert_eq!(answer["choices"][0]["finish_reason"], reason, "{answer}");
    }
    // What is wrong with a format is told as without tools.
    let format = json!({"type": "array", "items": {"$ref": "#/absent"}});
    let body = json!({"model": "caller", "messages": messages, "tools": tools, "format": format});
    let (status, answer) = saying("x").post("/api/chat", body).await;
    let error = answer["error"].as_str().unwrap();
    assert!(
        status == 400 && error.starts_with("invalid format: \"$ref\" (at /items/$ref)"),
        "{error}"
    );
}

/// Arguments of strict tools satisfy their schema although nothing forces a call.
#[tokio::test]
async fn strict_tools_get_arguments_of_their_schema() {
    let wish =
        "Well. <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"one\"}}\n</tool_call>";
    let host = saying(wish);
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"], "additionalProperties": false});
    for strict in [false, true] {
        let messages = json!([{"role": "user", "content": "x"}]);
        for (path, tool, members, at) in [
            (
                "/api/chat",
                json!({"type": "function", "function": {"name": "add", "parameters": schema, "strict": strict}}),
                json!({"stream": false}),
                "/message/tool_calls/0/function/arguments",
            ),
            (
                "/v1/chat/completions",
                json!({"type": "function", "function": {"name": "add", "parameters": schema, "strict": strict}}),
                json!({"temperature": 0}),
                "/choices/0/message/tool_calls/0/function/arguments",
            ),
            (
                "/v1/responses",
                json!({"type": "function", "name": "add", "parameters": schema, "strict": strict}),
                json!({"temperature": 0, "input": "x"}),
                "/output/1/arguments",
            ),
            (
                "/v1/messages",
                json!({"name": "add", "input_schema": schema, "strict": strict}),
                json!({"temperature": 0, "max_tokens": 500}),
                "/content/1/input",
            ),
        ] {
            let mut body = json!({"model": "caller", "messages": messages, "tools": [tool]});
            body.as_object_mut()
                .unwrap()
                .extend(members.as_object().unwrap().clone());
            let (status, answer) = host.post(path, body).await;
            assert_eq!(status, 200, "{answer}");
            let arguments = answer
                .pointer(at)
                .unwrap_or_else(|| panic!("{path}: {answer}"));
            let arguments = match arguments.as_str() {
                Some(text) => serde_json::from_str(text).unwrap(),
                None => arguments.clone(),
            };
            assert_eq!(arguments["a"].is_u64(), strict, "{path}: {answer}");
        }
    }
}

/// Asks for an answer in every dialect that has tools; returns the body of each.
async fn in_all_dialects(host: &Host, most: usize, stream: bool) -> Vec<(&'static str, String)> {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let nested = json!([{"type": "function", "function": {"name": "add", "parameters": schema}}]);
    let flat = json!([{"type": "function", "name": "add", "parameters": schema}]);
    let plain = json!([{"name": "add", "input_schema": schema}]);
    let messages = json!([{"role": "user", "content": "x"}]);
    let mut answers = Vec::new();
    for (path, mut body) in [
        (
            "/api/chat",
            json!({"messages": messages, "tools": nested, "options": {"num_predict": most}}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "tools": nested, "max_tokens": most}),
        ),
        (
            "/v1/responses",
            json!({"input": "x", "tools": flat, "max_output_tokens": most}),
        ),
        (
            "/v1/messages",
            json!({"messages": messages, "tools": plain, "max_tokens": most}),
        ),
    ] {
        body["model"] = json!("caller");
        body["temperature"] = json!(0);
        body["stream"] = json!(stream);
        let (status, answer) = host.text(Method::POST, path, body.to_string()).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answers.push((path, answer));
    }
    answers
}

/// Wherever a limit cuts an answer of calls, no piece of one is said as text, and the reason is the
/// limit.
#[tokio::test]
async fn cut_calls_are_never_text() {
    let call = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let two = format!("{call}\n{call}").leak();
    let host = saying(two);
    for most in [12, 20, call.len() / 2, call.len() + 5, call.len() + 30] {
        for stream in [false, true] {
            for (path, answer) in in_all_dialects(&host, most, stream).await {
                let about = format!("{path} cut after {most}, stream {stream}: {answer}");
                assert!(!answer.contains("tool_call>"), "{about}");
                // The name stands in whole calls, and in what a response repeats of its request.
                let n_calls = usize::from(most > call.len());
                if n_calls == 0 && path != "/v1/responses" {
                    assert!(!answer.contains("name"), "{about}");
                }
                let reason = match path {
                    "/v1/messages" => "\"max_tokens\"",
                    "/v1/responses" => "\"incomplete\"",
                    _ => "\"length\"",
                };
                assert!(answer.contains(reason), "{about}");
            }
        }
    }
}

/// Models that have no tag, or forget it, answer with the call alone.
#[tokio::test]
async fn an_answer_that_is_a_call_is_a_call_in_every_dialect() {
    let bare = r#"{"name": "add", "arguments": {"a": 1}}"#;
    let fenced = "```json\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n```";
    for said in [bare, fenced] {
        let host = saying(said);
        for stream in [false, true] {
            for (path, answer) in in_all_dialects(&host, 500, stream).await {
                let about = format!("{path}, stream {stream}: {answer}");
                let mark = match path {
                    "/api/chat" => "\"tool_calls\":[{",
                    "/v1/chat/completions" => "\"finish_reason\":\"tool_calls\"",
                    "/v1/responses" => "\"type\":\"function_call\"",
                    _ => "\"type\":\"tool_use\"",
                };
                assert!(answer.contains(mark), "{about}");
                assert!(!answer.contains("```"), "{about}");
            }
        }
    }
    // In a format it is what was asked for.
    let body = json!({"model": "caller", "stream": false, "format": "json",
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]});
    let (_, answer) = saying(bare).post("/api/chat", body).await;
    let content = answer["message"]["content"].as_str().unwrap();
    assert!(content.contains("add"), "{answer}");
}

//! `llmsrv examples`: requests with the address, port and model of the running server, to be copied.

use llmsrv_host::{instance, net};
use serde_json::{Value, json};

use crate::{
    cli::{ExamplesArgs, LanguageArg},
    context::Context,
    failure::Failure,
    term,
};

/// Prints requests that work as they are.
pub fn run(context: &Context, args: &ExamplesArgs) -> Result<(), Failure> {
    let config = context.config();
    let host = &config.server.host;
    // Those who read it may sit at another machine.
    let instance = instance::find(&config.host.runtime_dir, host.port);
    let network = instance
        .filter(|it| host.is_local() && it.is_bound_to_all())
        .and_then(|it| {
            super::network_urls(&it, &net::addresses())
                .into_iter()
                .next()
        });
    let url = network.unwrap_or_else(|| host.url());
    let languages: Vec<LanguageArg> = match args.language {
        Some(language) => vec![language],
        None => vec![LanguageArg::Curl, LanguageArg::Python, LanguageArg::Js],
    };
    let wanted = |request: &&Request| {
        let mut words = args.words.iter();
        args.words.is_empty() || words.any(|word| request.name.contains(word.as_str()))
    };
    let requests = REQUESTS.iter().filter(wanted);
    let examples: Vec<(&Request, LanguageArg, String)> = requests
        .flat_map(|request| languages.iter().map(move |language| (request, *language)))
        .map(|(request, language)| {
            let text = text(request, language, &url, &args.model);
            (request, language, text)
        })
        .collect();
    if examples.is_empty() {
        let names: Vec<&str> = REQUESTS.iter().map(|request| request.name).collect();
        let text = format!("no example is named {}", args.words.join(" or "));
        return Err(Failure::failed(text).hint(format!("there are: {}", names.join(", "))));
    }
    if args.json {
        let examples = examples.iter().map(|(request, language, text)| {
            json!({ "name": request.name, "language": word(*language), "text": text })
        });
        term::json(
            &json!({ "url": url, "model": args.model, "examples": examples.collect::<Value>() }),
        )?;
        return Ok(());
    }
    for (at, (request, language, text)) in examples.iter().enumerate() {
        let mark = if *language == LanguageArg::Js {
            "//"
        } else {
            "#"
        };
        let gap = if at == 0 { "" } else { "\n" };
        term::line(format_args!(
            "{gap}{mark} {} ({})\n{text}",
            request.what,
            word(*language)
        ))?;
    }
    Ok(())
}

fn word(language: LanguageArg) -> &'static str {
    match language {
        LanguageArg::Curl => "curl",
        LanguageArg::Python => "python",
        LanguageArg::Js => "js",
    }
}

/// A request worth showing.
struct Request {
    name: &'static str,
    what: &'static str,
    path: &'static str,
    /// `None` = GET. The model is added.
    body: Option<fn() -> Value>,
    answer: Answer,
}

/// What comes back.
#[derive(Clone, Copy)]
enum Answer {
    /// One object; where in it the interesting part is.
    Json(&'static [&'static str]),
    /// An object in each line; where in it the text is.
    Lines(&'static [&'static str]),
    /// Events of an OpenAI client.
    Events(&'static [&'static str]),
}

const REQUESTS: &[Request] = &[
    Request {
        name: "version",
        what: "Version of the server",
        path: "/api/version",
        body: None,
        answer: Answer::Json(&["version"]),
    },
    Request {
        name: "list",
        what: "The models",
        path: "/api/tags",
        body: None,
        answer: Answer::Json(&["models"]),
    },
    Request {
        name: "show",
        what: "What is known of a model",
        path: "/api/show",
        body: Some(|| json!({})),
        answer: Answer::Json(&["details"]),
    },
    Request {
        name: "generate",
        what: "Answer a prompt",
        path: "/api/generate",
        body: Some(
            || json!({"prompt": "What is a mutex?", "stream": false, "options": {"num_predict": 60, "temperature": 0}}),
        ),
        answer: Answer::Json(&["response"]),
    },
    Request {
        name: "stream",
        what: "Answer a prompt, piece by piece",
        path: "/api/generate",
        body: Some(
            || json!({"prompt": "Which Linux command shows free disk space?", "options": {"num_predict": 60, "temperature": 0}}),
        ),
        answer: Answer::Lines(&["response"]),
    },
    Request {
        name: "chat",
        what: "One turn of a conversation",
        path: "/api/chat",
        body: Some(|| {
            json!({
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Write a Python function that reverses a string."},
                ],
                "stream": false,
                "options": {"num_predict": 80, "temperature": 0},
            })
        }),
        answer: Answer::Json(&["message", "content"]),
    },
    Request {
        name: "json",
        what: "An answer in the form of a JSON schema",
        path: "/api/chat",
        body: Some(|| {
            json!({
                "messages": [{"role": "user", "content": "A person of your choice."}],
                "format": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "maxLength": 20},
                        "age": {"type": "integer", "minimum": 0, "maximum": 120},
                    },
                    "required": ["name", "age"],
                },
                "stream": false,
                "options": {"temperature": 0},
            })
        }),
        answer: Answer::Json(&["message", "content"]),
    },
    Request {
        name: "embed",
        what: "Vectors of texts",
        path: "/api/embed",
        body: Some(|| json!({"input": ["a cat", "a kitten"]})),
        answer: Answer::Json(&["embeddings"]),
    },
    Request {
        name: "openai-chat",
        what: "A conversation, as OpenAI's clients ask for it",
        path: "/v1/chat/completions",
        body: Some(
            || json!({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 60, "temperature": 0}),
        ),
        answer: Answer::Json(&["choices", "0", "message", "content"]),
    },
    Request {
        name: "openai-stream",
        what: "The same as a stream of events",
        path: "/v1/chat/completions",
        body: Some(
            || json!({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 60, "temperature": 0, "stream": true}),
        ),
        answer: Answer::Events(&["choices", "0", "delta", "content"]),
    },
    Request {
        name: "openai-responses",
        what: "A response, as OpenAI's newer clients ask for it",
        path: "/v1/responses",
        body: Some(|| json!({"input": "Who are you?", "max_output_tokens": 60, "temperature": 0})),
        answer: Answer::Json(&["output", "0", "content", "0", "text"]),
    },
    Request {
        name: "anthropic",
        what: "A message, as Anthropic's clients ask for it",
        path: "/v1/messages",
        body: Some(
            || json!({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 60, "temperature": 0}),
        ),
        answer: Answer::Json(&["content", "0", "text"]),
    },
    Request {
        name: "tokens",
        what: "The tokens of a text",
        path: "/api/tokenize",
        body: Some(|| json!({"content": "Hello, world"})),
        answer: Answer::Json(&["tokens"]),
    },
    Request {
        name: "loaded",
        what: "The models in memory",
        path: "/api/ps",
        body: None,
        answer: Answer::Json(&["models"]),
    },
];

fn text(request: &Request, language: LanguageArg, url: &str, model: &str) -> String {
    let url = format!("{url}{}", request.path);
    let body = request.body.map(|body| {
        let mut with_model = json!({ "model": model });
        if let (Some(all), Value::Object(body)) = (with_model.as_object_mut(), body()) {
            all.extend(body);
        }
        with_model
    });
    match language {
        LanguageArg::Curl => curl(&url, body.as_ref(), request.answer),
        LanguageArg::Python => python(&url, body.as_ref(), request.answer),
        LanguageArg::Js => js(&url, body.as_ref(), request.answer),
    }
}

fn curl(url: &str, body: Option<&Value>, answer: Answer) -> String {
    let stream = if matches!(answer, Answer::Json(_)) {
        ""
    } else {
        "N"
    };
    match body {
        None => format!("curl -fsS{stream} {url}"),
        Some(body) => {
            // A quote inside quotes of the shell.
            let body = body.to_string().replace('\'', r"'\''");
            format!("curl -fsS{stream} {url} -d '{body}'")
        }
    }
}

fn python(url: &str, body: Option<&Value>, answer: Answer) -> String {
    let data = match body {
        None => String::new(),
        Some(body) => format!(", json.dumps({}).encode()", literal(body, &PYTHON)),
    };
    let open = format!("with urllib.request.urlopen({url:?}{data}) as answer:\n");
    let rest = match answer {
        Answer::Json(path) => format!("    print(json.load(answer){})", indices(path)),
        Answer::Lines(path) => format!(
            "    for line in answer:\n        print(json.loads(line){}, end=\"\", flush=True)",
            indices(path)
        ),
        Answer::Events(path) => {
            let (last, path) = path.split_last().unwrap_or((&"", &[]));
            format!(
                "    for line in answer:\n        \
                 if line.startswith(b\"data: {{\"):\n            \
                 event = json.loads(line[6:])\n            \
                 print(event{}.get({last:?}) or \"\", end=\"\", flush=True)",
                indices(path)
            )
        }
    };
    format!("import json, urllib.request\n{open}{rest}")
}

fn js(url: &str, body: Option<&Value>, answer: Answer) -> String {
    let options = match body {
        None => String::new(),
        Some(body) => format!(
            ", {{ method: \"POST\", body: JSON.stringify({}) }}",
            literal(body, &JS)
        ),
    };
    let fetch = format!("  const answer = await fetch({url:?}{options});\n");
    let lines = |each: String| {
        format!(
            "  let rest = \"\";\n  \
             for await (const bytes of answer.body) {{\n    \
             const lines = (rest + new TextDecoder().decode(bytes)).split(\"\\n\");\n    \
             rest = lines.pop();\n    \
             for (const line of lines) {each}\n  \
             }}\n"
        )
    };
    let rest = match answer {
        Answer::Json(path) => format!("  console.log((await answer.json()){});\n", indices(path)),
        Answer::Lines(path) => lines(format!(
            "process.stdout.write(JSON.parse(line){});",
            indices(path)
        )),
        Answer::Events(path) => lines(format!(
            "if (line.startsWith(\"data: {{\")) process.stdout.write(JSON.parse(line.slice(6)){} ?? \"\");",
            indices(path)
        )),
    };
    format!("(async () => {{\n{fetch}{rest}}})();")
}

/// Writes the way to a part of an object.
fn indices(path: &[&str]) -> String {
    let index = |part: &&str| match part.parse::<usize>() {
        Ok(number) => format!("[{number}]"),
        Err(_) => format!("[{part:?}]"),
    };
    path.iter().map(index).collect()
}

/// How a language writes what JSON writes in its own way.
struct Words {
    yes: &'static str,
    no: &'static str,
    null: &'static str,
}

const PYTHON: Words = Words {
    yes: "True",
    no: "False",
    null: "None",
};
const JS: Words = Words {
    yes: "true",
    no: "false",
    null: "null",
};

/// Writes a value as a literal of the language.
fn literal(value: &Value, words: &Words) -> String {
    match value {
        Value::Null => words.null.to_owned(),
        Value::Bool(true) => words.yes.to_owned(),
        Value::Bool(false) => words.no.to_owned(),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(|value| literal(value, words)).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{name:?}: {}", literal(value, words)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

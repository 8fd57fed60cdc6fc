//! What the program and its documents show as examples: the built-in model gives a sensible answer.
//!
//! Every prompt that an example gives to the model `default` needs a row in [`SENSIBLE`].

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};

use crate::util::{Sandbox, Server};

/// What a sensible answer to a prompt has in it, in small letters.
const SENSIBLE: &[(&str, &[&str])] = &[
    ("Hello!", &["hello", "built-in model"]),
    ("Who are you?", &["built-in model", "demonstration"]),
    ("What is a mutex?", &["lock", "one thread"]),
    ("Which Linux command shows free disk space?", &["df -h"]),
    (
        "Write a Python function that reverses a string.",
        &["def ", "[::-1]"],
    ),
    ("A person of your choice.", &["name", "age"]),
];

/// What a newcomer types first, in the spellings of people in a hurry.
const FIRST: &[(&str, &[&str])] = &[
    ("hi", &["hello"]),
    ("Hi", &["hello"]),
    ("hello", &["hello"]),
    ("hey", &["hello"]),
    ("help", &["python", "example"]),
    ("what can you do?", &["python", "example"]),
    ("who are you", &["built-in model"]),
    ("thanks", &["welcome"]),
];

#[tokio::test]
async fn the_first_words_are_answered_sensibly() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    for (prompt, words) in FIRST {
        let body = json!({"model": "default", "stream": false, "messages": [{"role": "user", "content": prompt}]});
        let answer = server.post("/api/chat", &body).await.ok();
        let text = answer["message"]["content"]
            .as_str()
            .unwrap()
            .to_lowercase();
        for word in *words {
            assert!(text.contains(word), "{prompt}: {text}");
        }
        assert_eq!(answer["done_reason"], "stop", "{prompt}: {text}");
    }
}

#[tokio::test]
async fn examples_are_answered_sensibly() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let mut asked = BTreeSet::new();
    for (place, text) in documents(&sandbox) {
        for prompt in prompts_of_run(&text) {
            let body =
                json!({"model": "default", "messages": [{"role": "user", "content": prompt}]});
            check(&server, &place, "/api/chat", body, &mut asked).await;
        }
        for (path, body) in bodies_of_curl(&text) {
            check(&server, &place, &path, body, &mut asked).await;
        }
    }
    let table: BTreeSet<&str> = SENSIBLE.iter().map(|(prompt, _)| *prompt).collect();
    let unused: Vec<_> = table.iter().filter(|it| !asked.contains(**it)).collect();
    assert!(unused.is_empty(), "no example asks {unused:?}");
}

/// `docs/first-session.py` draws it again.
#[test]
fn the_picture_of_a_first_session_is_current() {
    let sandbox = Sandbox::new();
    let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/first-session.svg");
    let picture = fs::read_to_string(picture).unwrap();
    let lines: Vec<String> = picture
        .lines()
        .filter_map(|line| Some(line.strip_suffix("</text>")?.split_once('>')?.1.to_owned()))
        .map(|line| {
            line.replace("&quot;", "\"")
                .replace("&gt;", ">")
                .replace("&lt;", "<")
        })
        .collect();
    let mut parts = lines.split(|line| line.starts_with("$ ")).skip(1);
    let mut commands = lines
        .iter()
        .filter_map(|line| line.strip_prefix("$ llmsrv "));
    // What the model says is for the test above.
    assert!(commands.next().unwrap().starts_with("run default"));
    assert!(!parts.next().unwrap().is_empty());
    let mut n_compared = 0;
    for (command, shown) in commands.zip(parts) {
        let args: Vec<&str> = command.split(' ').collect();
        let printed = sandbox.run(&args).ok().stdout;
        // All but how long ago something was.
        let same = |line: &str| match line.trim_end().rsplit_once("    ") {
            Some((rest, "just now")) => rest.to_owned(),
            Some((rest, when)) if when.ends_with(" ago") => rest.to_owned(),
            _ => line.trim_end().to_owned(),
        };
        let shown: Vec<_> = shown.iter().map(|line| same(line)).collect();
        let printed: Vec<_> = printed.lines().map(&same).collect();
        assert_eq!(
            shown.join("\n").trim_end(),
            printed.join("\n").trim_end(),
            "{command}"
        );
        n_compared += printed.len();
    }
    assert!(n_compared > 10, "{picture}");
}

/// Sends an example, as it is but for the sampling, and looks for the words of a sensible answer.
async fn check(
    server: &Server,
    place: &str,
    path: &str,
    mut body: Value,
    asked: &mut BTreeSet<String>,
) {
    let Some(prompt) = prompt_of(&body) else {
        return;
    };
    if path.starts_with("/api/") {
        body["options"]["temperature"] = 0.into();
    } else {
        body["temperature"] = 0.into();
    }
    body["stream"] = false.into();
    let row = SENSIBLE.iter().find(|(known, _)| *known == prompt);
    let (_, words) =
        row.unwrap_or_else(|| panic!("{place}: what is a sensible answer to {prompt:?}?"));
    let answer = server.post(path, &body).await.ok();
    let said = said(&answer).to_lowercase();
    for word in *words {
        assert!(
            said.contains(word),
            "{place}: {prompt}: no {word:?} in {said:?}"
        );
    }
    let ends = [
        "/done_reason",
        "/choices/0/finish_reason",
        "/stop_reason",
        "/status",
    ];
    for end in ends.iter().filter_map(|end| answer.pointer(end)?.as_str()) {
        let is_whole = ["stop", "end_turn", "completed"].contains(&end);
        assert!(is_whole, "{place}: {prompt}: {answer}");
    }
    asked.insert(prompt);
}

/// The prompt of a request for text; `None` for one for something else.
fn prompt_of(body: &Value) -> Option<String> {
    let last = body["messages"].as_array().and_then(|all| all.last());
    let prompt = [
        &body["prompt"],
        last.map_or(&Value::Null, |it| &it["content"]),
        &body["input"],
    ];
    prompt
        .into_iter()
        .find_map(|it| Some(it.as_str()?.to_owned()))
}

/// The text of an answer in any dialect.
fn said(answer: &Value) -> String {
    let places = [
        "/response",
        "/message/content",
        "/choices/0/message/content",
        "/output/0/content/0/text",
        "/content/0/text",
    ];
    let text = places
        .iter()
        .find_map(|place| answer.pointer(place)?.as_str());
    text.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// What people read, with the name of the place.
fn documents(sandbox: &Sandbox) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("README.md")];
    let docs = fs::read_dir(root.join("docs")).unwrap();
    files.extend(docs.map(|entry| entry.unwrap().path()));
    files.retain(|path| path.extension().is_some_and(|it| it == "md" || it == "svg"));
    let mut found: Vec<_> = files
        .iter()
        .map(|path| {
            (
                path.display().to_string(),
                fs::read_to_string(path).unwrap(),
            )
        })
        .collect();
    let help = sandbox.run(&["--help"]).ok().stdout;
    let (commands, _) = help.split_once("Options:").unwrap();
    for line in commands.lines().filter_map(|line| line.strip_prefix("  ")) {
        let command = line.split(' ').next().unwrap();
        let help = sandbox.run(&["help", command]).ok().stdout;
        found.push((format!("help {command}"), help));
    }
    found.push(("--help".into(), help));
    let examples = sandbox.run(&["examples", "-l", "curl"]).ok().stdout;
    found.push(("examples".into(), examples));
    found
}

/// The prompts of `llmsrv run default ... "PROMPT"`.
fn prompts_of_run(text: &str) -> Vec<String> {
    let text = text.replace("&quot;", "\"");
    let prompt = |line: &str| Some(line.split('"').nth(1)?.to_owned());
    text.lines()
        .filter_map(|line| prompt(line.split_once("llmsrv run default")?.1))
        .collect()
}

/// The paths and bodies of calls with curl that are for the built-in model.
fn bodies_of_curl(text: &str) -> Vec<(String, Value)> {
    let one = |line: &str| {
        let (_, call) = line.split_once("curl ")?;
        let (_, body) = call.split_once("-d '")?;
        let body: Value = serde_json::from_str(body.split_once('\'')?.0).ok()?;
        let (_, rest) = call
            .split_once(":11434")
            .or_else(|| call.split_once("127.0.0.1:9"))?;
        let path = rest.split([' ', '`', '\'']).next()?.to_owned();
        (body["model"] == "default").then_some((path, body))
    };
    text.lines().filter_map(one).collect()
}

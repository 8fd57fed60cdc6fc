//! What is typed in a chat: text for the model, or a command that starts with a slash.

/// One thing typed.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// For the model.
    Text(String),
    /// `/help`
    Help,
    /// `/bye`
    Bye,
    /// `/clear`
    Clear,
    /// `/set ...`
    Set(Set),
    /// `/show WHAT`
    Show(ShowPart),
    /// `/list [PREFIX]`
    List(String),
    /// `/load MODEL`, or a file with a conversation
    Load(String),
    /// `/save MODEL`, or a file for the conversation
    Save(String),
    /// `/undo`
    Undo,
    /// `/retry`
    Retry,
    /// `/copy`
    Copy,
    /// `/edit [TEXT]`
    Edit(String),
    /// A command that is wrong, and why.
    Wrong(String),
}

/// What `/set` changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Set {
    /// An option of the model.
    Parameter(String, Vec<String>),
    /// The system prompt.
    System(String),
    /// How much the model thinks; `None` = not at all.
    Think(Option<String>),
    /// The form of answers; `None` = any.
    Format(Option<String>),
    /// Timings after answers.
    Verbose(bool),
    /// Wrapping of lines.
    WordWrap(bool),
    /// Styles for Markdown.
    Markdown(bool),
    /// Keeping what is typed.
    History(bool),
}

/// What `/show` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowPart {
    /// The most important facts.
    Info,
    /// The licence.
    License,
    /// The Modelfile.
    Modelfile,
    /// The parameters, those of the session included.
    Parameters,
    /// The system prompt, that of the session included.
    System,
    /// The prompt template.
    Template,
}

/// All commands, for `/help` and for completion.
pub const COMMANDS: &[(&str, &str)] = &[
    (
        "/set parameter NAME VALUE",
        "Set an option, such as temperature 0",
    ),
    ("/set system TEXT", "Set the system prompt"),
    (
        "/set think [LEVEL]",
        "Let the model think: low, medium, high, max",
    ),
    ("/set nothink", "Do not let the model think"),
    ("/set format json", "Answer in JSON"),
    ("/set noformat", "Answer in any form"),
    (
        "/set verbose",
        "Print timings after answers (/set quiet: do not)",
    ),
    ("/set wordwrap", "Wrap lines (/set nowordwrap: do not)"),
    ("/set markdown", "Style Markdown (/set nomarkdown: do not)"),
    (
        "/set history",
        "Keep what is typed (/set nohistory: do not)",
    ),
    ("/show info", "Show what is known of the model"),
    (
        "/show system",
        "Or license, modelfile, parameters, template",
    ),
    ("/list [PREFIX]", "List the models"),
    ("/load MODEL", "Change model; FILE.json: go on with a chat"),
    (
        "/save MODEL",
        "Keep the chat as a model, FILE.json or FILE.md",
    ),
    ("/undo", "Take back the last question and answer"),
    ("/retry", "Answer the last question once more"),
    ("/copy", "Copy the last answer to the clipboard"),
    ("/edit [TEXT]", "Write the message in $EDITOR"),
    ("/clear", "Forget the conversation"),
    ("/help", "Show this help; also /?"),
    ("/bye", "End; also Ctrl-D"),
];

/// Understands a whole input. A first word that looks like a path is text.
pub fn parse(input: &str) -> Input {
    let trimmed = input.trim();
    if !trimmed.starts_with('/') {
        return Input::Text(input.to_owned());
    }
    let (command, rest) = trimmed
        .split_once(char::is_whitespace)
        .unwrap_or((trimmed, ""));
    let rest = rest.trim();
    match command {
        "/bye" | "/exit" | "/quit" => Input::Bye,
        "/help" | "/?" => Input::Help,
        "/clear" => Input::Clear,
        "/undo" => Input::Undo,
        "/retry" => Input::Retry,
        "/copy" => Input::Copy,
        "/edit" => Input::Edit(rest.to_owned()),
        "/load" if rest.is_empty() || rest.contains(char::is_whitespace) => {
            Input::Wrong("usage: /load MODEL or /load FILE.json".to_owned())
        }
        "/load" => Input::Load(rest.to_owned()),
        "/save" if rest.is_empty() || rest.contains(char::is_whitespace) => {
            Input::Wrong("usage: /save MODEL, /save FILE.json or /save FILE.md".to_owned())
        }
        "/save" => Input::Save(rest.to_owned()),
        "/list" => Input::List(rest.to_owned()),
        "/set" => set(rest),
        "/show" => match rest {
            "" | "info" => Input::Show(ShowPart::Info),
            "license" => Input::Show(ShowPart::License),
            "modelfile" => Input::Show(ShowPart::Modelfile),
            "parameters" => Input::Show(ShowPart::Parameters),
            "system" => Input::Show(ShowPart::System),
            "template" => Input::Show(ShowPart::Template),
            _ => Input::Wrong(
                "usage: /show info|license|modelfile|parameters|system|template".to_owned(),
            ),
        },
        // "/etc/passwd is ..." is about a file.
        command if command[1..].contains('/') => Input::Text(input.to_owned()),
        command => Input::Wrong(format!(
            "unknown command {command}; /help lists the commands"
        )),
    }
}

fn set(rest: &str) -> Input {
    let (what, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let value = value.trim();
    let set = match (what, value) {
        ("parameter", value) => {
            let mut words = value.split_whitespace().map(str::to_owned);
            match (words.next(), words.collect::<Vec<_>>()) {
                (Some(name), values) if !values.is_empty() => Set::Parameter(name, values),
                _ => return Input::Wrong("usage: /set parameter NAME VALUE".to_owned()),
            }
        }
        ("system", "") => return Input::Wrong("usage: /set system TEXT".to_owned()),
        ("system", text) => Set::System(unquote(text).to_owned()),
        ("think", "") => Set::Think(Some("true".to_owned())),
        ("think", level @ ("low" | "medium" | "high" | "max" | "true")) => {
            Set::Think(Some(level.to_owned()))
        }
        ("nothink", "") | ("think", "false") => Set::Think(None),
        ("format", "json") => Set::Format(Some("json".to_owned())),
        ("noformat", "") => Set::Format(None),
        ("verbose", "") => Set::Verbose(true),
        ("quiet", "") => Set::Verbose(false),
        ("wordwrap", "") => Set::WordWrap(true),
        ("nowordwrap", "") => Set::WordWrap(false),
        ("markdown", "") => Set::Markdown(true),
        ("nomarkdown", "") => Set::Markdown(false),
        ("history", "") => Set::History(true),
        ("nohistory", "") => Set::History(false),
        _ => {
            return Input::Wrong(format!(
                "unknown setting `/set {rest}`; /help lists the commands"
            ));
        }
    };
    Input::Set(set)
}

fn unquote(text: &str) -> &str {
    ["\"\"\"", "\""]
        .iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(text)
}

/// Collects lines until an input is complete: text between `"""` may span lines.
#[derive(Debug, Default)]
pub struct Lines {
    open: Option<String>,
}

impl Lines {
    /// Tells whether a `"""` is open.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Forgets an unfinished input.
    pub fn clear(&mut self) {
        self.open = None;
    }

    /// Takes a line; returns the whole input when it is complete.
    pub fn push(&mut self, line: &str) -> Option<String> {
        if let Some(mut text) = self.open.take() {
            text.push('\n');
            if let Some(last) = line.trim_end().strip_suffix(QUOTES) {
                text.push_str(last);
                return Some(finish(&text));
            }
            text.push_str(line);
            self.open = Some(text);
            return None;
        }
        let Some(at) = line.find(QUOTES).filter(|at| opens(&line[..*at])) else {
            return Some(line.to_owned());
        };
        let after = &line[at + QUOTES.len()..];
        if let Some(inner) = after.trim_end().strip_suffix(QUOTES) {
            return Some(format!("{}{inner}", &line[..at]));
        }
        self.open = Some(line.to_owned());
        None
    }
}

const QUOTES: &str = "\"\"\"";

/// Quotes open an input at its start and after `/set system`.
fn opens(before: &str) -> bool {
    let before = before.trim();
    before.is_empty() || before.split_whitespace().eq(["/set", "system"])
}

/// Removes the opening quotes, and the line end right after them.
fn finish(text: &str) -> String {
    let (before, after) = text.split_once(QUOTES).unwrap_or(("", text));
    format!(
        "{before}{}",
        after
            .strip_prefix('\n')
            .unwrap_or(after)
            .trim_end_matches('\n')
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commands_are_understood() {
        for (typed, input) in [
            ("Hello", Input::Text("Hello".into())),
            ("/bye", Input::Bye),
            (" /? ", Input::Help),
            (
                "/set parameter temperature 0.5",
                Input::Set(Set::Parameter("temperature".into(), vec!["0.5".into()])),
            ),
            (
                "/set parameter stop a b",
                Input::Set(Set::Parameter("stop".into(), vec!["a".into(), "b".into()])),
            ),
            (
                "/set system Be brief.",
                Input::Set(Set::System("Be brief.".into())),
            ),
            (
                "/set system \"Be brief.\"",
                Input::Set(Set::System("Be brief.".into())),
            ),
            ("/set nothink", Input::Set(Set::Think(None))),
            (
                "/set think high",
                Input::Set(Set::Think(Some("high".into()))),
            ),
            ("/show", Input::Show(ShowPart::Info)),
            ("/show template", Input::Show(ShowPart::Template)),
            ("/list", Input::List(String::new())),
            ("/list qwen", Input::List("qwen".into())),
            ("/load other:1b", Input::Load("other:1b".into())),
            ("/save mine", Input::Save("mine".into())),
            ("/undo", Input::Undo),
            ("/retry", Input::Retry),
            ("/copy", Input::Copy),
            ("/edit", Input::Edit(String::new())),
            ("/edit a b", Input::Edit("a b".into())),
            ("/set nomarkdown", Input::Set(Set::Markdown(false))),
            (
                "/etc/passwd is what?",
                Input::Text("/etc/passwd is what?".into()),
            ),
        ] {
            assert_eq!(parse(typed), input, "{typed}");
        }
        for typed in [
            "/",
            "/set",
            "/set parameter x",
            "/set sytem x",
            "/show x",
            "/load",
            "/save",
            "/byebye",
        ] {
            assert!(matches!(parse(typed), Input::Wrong(_)), "{typed}");
        }
    }

    #[test]
    fn every_listed_command_is_understood() {
        for (usage, about) in COMMANDS {
            // As `/help` lays them out: they fit into the usual terminal.
            assert!(format!("  {usage:<28} {about}").len() < 80, "{usage}");
            let typed = usage
                .replace(['[', ']'], "")
                .replace("NAME VALUE", "seed 1")
                .replace("LEVEL", "low");
            assert!(
                !matches!(parse(&typed), Input::Wrong(_) | Input::Text(_)),
                "{usage}"
            );
        }
    }

    #[test]
    fn quoted_text_spans_lines() {
        let collect = |typed: &[&str]| {
            let mut lines = Lines::default();
            typed
                .iter()
                .filter_map(|line| lines.push(line))
                .collect::<Vec<_>>()
        };
        assert_eq!(collect(&["one", "two"]), ["one", "two"]);
        assert_eq!(collect(&["\"\"\"one", "two\"\"\"", "x"]), ["one\ntwo", "x"]);
        assert_eq!(collect(&["\"\"\"", "one", "\"\"\""]), ["one"]);
        assert_eq!(collect(&["\"\"\"one\"\"\""]), ["one"]);
        assert_eq!(
            collect(&["/set system \"\"\"a", "b\"\"\""]),
            ["/set system a\nb"]
        );
        assert_eq!(
            collect(&["what is \"\"\" in Python?"]),
            ["what is \"\"\" in Python?"]
        );
    }

    proptest! {
        #[test]
        fn anything_can_be_typed(lines in proptest::collection::vec("\\PC{0,20}|/[a-z ]{0,12}|\"{0,4}[a-z]{0,3}\"{0,4}", 0..5)) {
            let mut collected = Lines::default();
            for line in &lines {
                if let Some(input) = collected.push(line) {
                    parse(&input);
                }
            }
        }
    }
}

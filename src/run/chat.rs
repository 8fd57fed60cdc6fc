//! A chat in a terminal: reads lines, understands commands, prints answers.

use std::{
    ffi::OsString,
    fs::File,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use llmsrv_store::ModelName;
use rustyline::{
    Cmd, Config, Editor, Helper, KeyCode, KeyEvent, Modifiers, completion::Completer,
    error::ReadlineError, highlight::Highlighter, hint::Hinter, history::FileHistory,
    validate::Validator,
};
use serde_json::{Value, json};

use crate::{
    context::Context,
    failure::Failure,
    known::{self, Known},
    overview::{self, overview},
    run::{
        CUT, Ended, Prompt, Session, files, options,
        slash::{COMMANDS, Input, Lines, Set, ShowPart, parse},
    },
    term,
};

/// Chats until the user ends it.
pub async fn run(
    context: &Context,
    session: &mut Session,
    mut images: Vec<String>,
) -> Result<(), Failure> {
    session.load().await?;
    let mut chat = Chat::new(context)?;
    let mut sees = greet(session, context.global.quiet).await;
    chat.complete(session).await;
    while let Some(input) = chat.read().await? {
        match parse(&input) {
            Input::Text(text) if text.trim().is_empty() => {}
            Input::Text(text) => say(session, text, sees, &mut images).await,
            Input::Edit(text) => match edit(text, editor(context)).await {
                Ok(text) if text.trim().is_empty() => term::note("Nothing was written."),
                Ok(text) => {
                    term::note(&text);
                    chat.remember(&text);
                    say(session, text, sees, &mut images).await;
                }
                Err(failure) => term::failure(&failure, false),
            },
            Input::Undo if session.undo() => {
                term::note("The last question and its answer are taken back.");
            }
            Input::Undo => term::note("There is nothing to take back."),
            Input::Retry => {
                let answered = session.retry(interrupted()).await;
                told(session, answered).await;
            }
            Input::Copy => match last_answer(session).map(term::to_clipboard) {
                None => term::note("There is no answer yet."),
                Some(Ok(())) => term::note("Copied, if this terminal allows it."),
                Some(Err(error)) => term::note(error),
            },
            Input::Bye => break,
            Input::Help => help()?,
            Input::Clear => {
                session.messages.clear();
                session.n_tokens = None;
                term::note("The conversation is forgotten.");
            }
            Input::Set(Set::History(keep)) => chat.keep_history = keep,
            Input::Set(set) => match apply(session, set) {
                Ok(said) => term::note(said),
                Err(wrong) => term::note(wrong),
            },
            Input::Show(part) => {
                if let Err(failure) = show(session, part).await {
                    term::failure(&failure, false);
                }
            }
            Input::List(prefix) => {
                if let Err(failure) = list(session, &prefix).await {
                    term::failure(&failure, false);
                }
            }
            Input::Load(name) if files::is_conversation(&name) => {
                match files::load(session, Path::new(&name)) {
                    Ok(n) => term::note(format_args!("{n} messages of {name}; the chat goes on.")),
                    Err(wrong) => term::note(wrong),
                }
            }
            Input::Save(name) if files::is_conversation(&name) => {
                match files::save(session, Path::new(&name)) {
                    Ok(()) => term::note(format_args!("Saved as {name}.")),
                    Err(wrong) => term::note(wrong),
                }
            }
            Input::Load(model) => {
                if load(session, model).await {
                    sees = greet(session, context.global.quiet).await;
                }
            }
            Input::Save(name) => {
                match save(session, &name).await {
                    Ok(()) => term::note(format_args!(
                        "Saved as {name}, with the conversation; /load {name} goes on with it."
                    )),
                    Err(failure) => term::failure(&failure, false),
                }
                chat.complete(session).await;
            }
            Input::Wrong(wrong) => term::note(wrong),
        }
    }
    Ok(())
}

/// Says which model one talks to, and what one should know of it. Tells whether it sees.
async fn greet(session: &Session, quiet: bool) -> bool {
    let known = Known::ask(&session.client, &session.model).await.ok();
    let name = known.as_ref().map(Known::shown);
    let name = name.as_deref().unwrap_or(&session.model);
    let faint = term::FAINT;
    if !quiet {
        term::note(format_args!(
            "{faint}Chatting with {name}. /help lists the commands, Ctrl-D ends the chat.{faint:#}"
        ));
        if let Some(remark) = known.as_ref().and_then(Known::remark) {
            term::note(format_args!("{faint}{remark}{faint:#}"));
        }
    }
    known.is_some_and(|known| known.sees)
}

/// Keeps the conversation as a model of its own.
async fn save(session: &Session, name: &str) -> Result<(), Failure> {
    let mut request = json!({ "model": name, "from": session.model, "stream": false });
    for (member, value) in [
        ("parameters", Value::Object(session.options.clone())),
        ("system", json!(session.system)),
        ("messages", json!(session.messages)),
    ] {
        if !matches!(&value, Value::Null) && value != json!({}) && value != json!([]) {
            request[member] = value;
        }
    }
    let saved: Result<Value, _> = session.client.post("/api/create", &request).await;
    Ok(saved
        .map(drop)
        .with_context(|| format!("cannot save {name}"))?)
}

/// Asks what was typed, with the files and images it names.
async fn say(session: &mut Session, text: String, sees: bool, images: &mut Vec<String>) {
    let attached = files::attach(&text).map_err(Failure::failed);
    match attached.and_then(|text| Prompt::new(text, sees)) {
        Ok(mut prompt) => {
            prompt.images.splice(0..0, std::mem::take(images));
            let answered = session.answer(prompt, interrupted()).await;
            told(session, answered).await;
        }
        Err(failure) => term::failure(&failure, false),
    }
}

/// Ready when the user wants no more.
async fn interrupted() {
    // Without the signal the answer cannot be stopped early, which is no reason to fail.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Ends an answer; a failed one does not end the chat.
async fn told(session: &Session, answered: Result<Ended, Failure>) {
    match answered {
        Ok(Ended::Whole) => match context_used(session).await {
            Some(used) => {
                let faint = term::FAINT;
                term::note(format_args!("{faint}{used}{faint:#}\n"));
            }
            None => term::note(""),
        },
        Ok(Ended::Stopped) => term::note(""),
        Ok(Ended::Cut) => term::note(CUT),
        Err(failure) => term::failure(&failure, false),
    }
}

/// Says how much of the context is used, once it is worth knowing.
async fn context_used(session: &Session) -> Option<String> {
    let used = session.n_tokens?;
    let loaded: Value = session.client.get("/api/ps").await.ok()?;
    let models = loaded["models"].as_array()?;
    let name: Option<ModelName> = session.model.parse().ok();
    let model = models
        .iter()
        .find(|model| model["name"].as_str().and_then(|it| it.parse().ok()) == name)?;
    let total = model["context_length"]
        .as_u64()
        .filter(|total| *total > 0)?;
    let percent = used * 100 / total;
    (percent >= SHOWN_PERCENT).then(|| {
        let hint = match percent {
            90.. => "; /clear begins anew",
            _ => "",
        };
        format!("{used} of {total} tokens of the context used{hint}")
    })
}

/// From here on the use of the context is shown.
const SHOWN_PERCENT: u64 = 10;

fn last_answer(session: &Session) -> Option<&str> {
    let mut answers = session.messages.iter().rev();
    let last = answers.find(|message| message.role == "assistant")?;
    Some(&last.content)
}

/// Returns the command of the user's editor.
fn editor(context: &Context) -> OsString {
    let set = context.config().client.editor.clone();
    set.map_or_else(llmsrv_config::editor, OsString::from)
}

/// Lets the user write in an editor of their own; returns the text.
async fn edit(text: String, editor: OsString) -> Result<String, Failure> {
    let written = tokio::task::spawn_blocking(move || -> anyhow::Result<String> {
        let mut file = tempfile::Builder::new()
            .prefix("llmsrv-")
            .suffix(".md")
            .tempfile()?;
        file.write_all(text.as_bytes())?;
        // As other programs do it: the variable may have options of the editor.
        let status = Command::new("sh")
            .args(["-c", r#"eval "$0 \"\$1\"""#])
            .arg(&editor)
            .arg(file.path())
            .status()?;
        anyhow::ensure!(status.success(), "the editor ended with {status}");
        let file = File::open(file.path())?;
        let mut text = String::new();
        file.take(MAX_EDITED).read_to_string(&mut text)?;
        Ok(text.trim_end().to_owned())
    });
    Ok(written
        .await?
        .context("cannot write a message in $EDITOR")?)
}

/// Longest text of an editor, in bytes.
const MAX_EDITED: u64 = 16 << 20;

/// Changes to another model; tells whether that worked.
async fn load(session: &mut Session, model: String) -> bool {
    let before = std::mem::replace(&mut session.model, model);
    match session.load().await {
        Ok(()) => {
            session.messages.clear();
            true
        }
        Err(failure) => {
            session.model = before;
            term::failure(&failure, false);
            false
        }
    }
}

/// Changes the session; returns what to say.
fn apply(session: &mut Session, set: Set) -> Result<String, String> {
    Ok(match set {
        Set::Parameter(name, values) => match options::set(&mut session.options, &name, &values)? {
            Some(remark) => remark,
            None => format!(
                "{name} is {}",
                session.options.get(&name).unwrap_or(&Value::Null)
            ),
        },
        Set::System(text) => {
            session.system = Some(text);
            "The system prompt is set.".to_owned()
        }
        Set::Think(level) => {
            session.think = Some(match level.as_deref() {
                None => Value::Bool(false),
                Some("true") => Value::Bool(true),
                Some(level) => Value::String(level.to_owned()),
            });
            if level.is_some() {
                "The model thinks first."
            } else {
                "The model does not think first."
            }
            .to_owned()
        }
        Set::Format(format) => {
            session.format = format.map(Value::String);
            if session.format.is_some() {
                "Answers are JSON."
            } else {
                "Answers have any form."
            }
            .to_owned()
        }
        Set::Verbose(verbose) => {
            session.verbose = verbose;
            if verbose {
                "Timings are printed."
            } else {
                "Timings are not printed."
            }
            .to_owned()
        }
        Set::WordWrap(wrap) => {
            session.word_wrap = wrap;
            if wrap {
                "Lines are wrapped."
            } else {
                "Lines are not wrapped."
            }
            .to_owned()
        }
        Set::Markdown(markdown) => {
            session.markdown = markdown;
            if markdown {
                "Markdown is shown as styles."
            } else {
                "Markdown is shown as text."
            }
            .to_owned()
        }
        Set::History(_) => String::new(),
    })
}

async fn show(session: &Session, part: ShowPart) -> Result<(), Failure> {
    let request = json!({ "model": session.model });
    let shown: Value = session.client.post("/api/show", &request).await?;
    let text = |key: &str| {
        shown[key]
            .as_str()
            .unwrap_or_default()
            .trim_end()
            .to_owned()
    };
    let text = match part {
        ShowPart::Info => overview(&shown, false),
        ShowPart::License => text("license"),
        ShowPart::Modelfile => text("modelfile"),
        ShowPart::Template => text("template"),
        ShowPart::System => session.system.clone().unwrap_or_else(|| text("system")),
        ShowPart::Parameters => {
            let own = session
                .options
                .iter()
                .map(|(name, value)| format!("{name:<30} {value} (this chat)"));
            std::iter::once(text("parameters"))
                .chain(own)
                .filter(|line| !line.is_empty())
                .collect::<Vec<_>>()
                .join("\n")
        }
    };
    if text.is_empty() {
        term::note("There is nothing to show.");
    } else {
        term::line(text)?;
    }
    Ok(())
}

/// Prints the models whose names begin with a text.
async fn list(session: &Session, prefix: &str) -> Result<(), Failure> {
    let mut listed: Value = session.client.get("/api/tags").await?;
    known::keep_named(&mut listed, prefix);
    Ok(term::line(overview::list(listed)?)?)
}

fn help() -> Result<(), Failure> {
    let strong = term::STRONG;
    for (usage, about) in COMMANDS {
        term::line(format_args!("  {strong}{usage:<28}{strong:#} {about}"))?;
    }
    term::line(
        "\nSeveral lines: Alt-Enter begins a new one, or begin with \"\"\" and end with \"\"\".\n\
         Ctrl-C stops an answer, Ctrl-R searches what was typed before.\n\
         @path puts the text of a file behind the message. A model that sees takes the paths\n\
         of images as parts of the text.",
    )?;
    Ok(())
}

/// The line editor and where its history is kept.
struct Chat {
    editor: Option<Editor<Hints, FileHistory>>,
    history: PathBuf,
    keep_history: bool,
}

impl Chat {
    fn new(context: &Context) -> Result<Chat, Failure> {
        let config = Config::builder()
            .auto_add_history(false)
            .max_history_size(1000)?
            .build();
        let mut editor = Editor::with_config(config).context("cannot use this terminal")?;
        editor.set_helper(Some(Hints::default()));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        let history = context.config().host.state_dir.join("history");
        // The first chat has no history; one that cannot be read is not worth failing for.
        let _ = editor.load_history(&history);
        Ok(Chat {
            editor: Some(editor),
            history,
            keep_history: !context.config().client.nohistory,
        })
    }

    /// Learns the names of the models, for completion.
    async fn complete(&mut self, session: &Session) {
        let names = known::names(&session.client).await.unwrap_or_default();
        if let Some(hints) = self.editor.as_mut().and_then(Editor::helper_mut) {
            hints.models = names;
        }
    }

    /// Reads one input, which may have several lines; nothing at the end.
    async fn read(&mut self) -> Result<Option<String>, Failure> {
        let mut lines = Lines::default();
        loop {
            let prompt = if lines.is_open() { "... " } else { ">>> " };
            if let Some(hints) = self.editor.as_mut().and_then(Editor::helper_mut) {
                hints.is_open = lines.is_open();
            }
            match self.line(prompt).await? {
                Ok(line) => {
                    if let Some(input) = lines.push(&line) {
                        self.remember(&input);
                        return Ok(Some(input));
                    }
                }
                Err(ReadlineError::Interrupted) if lines.is_open() => lines.clear(),
                Err(ReadlineError::Interrupted) => term::note("Ctrl-D or /bye ends the chat."),
                Err(ReadlineError::Eof) => return Ok(None),
                // The window changed its size; the line is read again.
                Err(ReadlineError::Signal(_)) => {}
                Err(error) => {
                    return Err(anyhow::Error::new(error)
                        .context("cannot read from the terminal")
                        .into());
                }
            }
        }
    }

    /// Reads a line without keeping the runtime's threads from their work.
    async fn line(
        &mut self,
        prompt: &'static str,
    ) -> Result<Result<String, ReadlineError>, Failure> {
        let Some(mut editor) = self.editor.take() else {
            return Ok(Err(ReadlineError::Eof));
        };
        let (editor, line) = tokio::task::spawn_blocking(move || {
            let line = editor.readline(prompt);
            (editor, line)
        })
        .await?;
        self.editor = Some(editor);
        Ok(line)
    }

    fn remember(&mut self, input: &str) {
        let Some(editor) = &mut self.editor else {
            return;
        };
        if !self.keep_history || input.trim().is_empty() {
            return;
        }
        let added = editor.add_history_entry(input).unwrap_or(false);
        let folder = self.history.parent().map(std::fs::create_dir_all);
        if added && !matches!(folder, Some(Err(_))) {
            // A history that cannot be kept is a small loss.
            let _ = editor.append_history(&self.history);
        }
    }
}

/// What the line editor offers while typing.
#[derive(Default)]
struct Hints {
    models: Vec<String>,
    /// The line goes on with a text between quotes.
    is_open: bool,
}

impl Helper for Hints {}
impl Validator for Hints {}

impl Highlighter for Hints {
    fn highlight_hint<'h>(&self, hint: &'h str) -> std::borrow::Cow<'h, str> {
        let faint = term::FAINT;
        format!("{faint}{hint}{faint:#}").into()
    }
}

impl Hinter for Hints {
    type Hint = String;

    fn hint(
        &self,
        line: &str,
        _cursor: usize,
        _context: &rustyline::Context<'_>,
    ) -> Option<String> {
        let hint = if self.is_open {
            "\"\"\" ends the text"
        } else {
            "Send a message (/? for help)"
        };
        line.is_empty().then(|| hint.to_owned())
    }
}

impl Completer for Hints {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _context: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..cursor).unwrap_or(line);
        if !typed.starts_with('/') {
            return Ok((cursor, Vec::new()));
        }
        let words = COMMANDS
            .iter()
            .map(|(usage, _)| fixed_words(usage))
            .chain(SHOW.iter().map(|show| (*show).to_owned()))
            .chain(self.models.iter().map(|model| format!("/load {model}")));
        Ok((0, words.filter(|word| word.starts_with(typed)).collect()))
    }
}

/// The further forms of `/show`.
const SHOW: &[&str] = &[
    "/show license",
    "/show modelfile",
    "/show parameters",
    "/show template",
];

/// Returns the part of a usage that is typed as it stands.
fn fixed_words(usage: &str) -> String {
    let fixed = |word: &&str| !word.starts_with('[') && word.chars().any(char::is_lowercase);
    usage
        .split(' ')
        .take_while(fixed)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use rustyline::history::DefaultHistory;

    use super::*;

    #[test]
    fn tab_completes_commands() {
        let history = DefaultHistory::new();
        let context = rustyline::Context::new(&history);
        let hints = Hints {
            models: vec!["qwen3:0.6b".into(), "mine".into()],
            is_open: false,
        };
        let complete = |typed: &str| hints.complete(typed, typed.len(), &context).unwrap().1;
        assert_eq!(complete("/b"), ["/bye"]);
        assert_eq!(complete("/set no"), ["/set nothink", "/set noformat"]);
        assert_eq!(complete("/show t"), ["/show template"]);
        assert_eq!(complete("/set par"), ["/set parameter"]);
        assert_eq!(complete("/load q"), ["/load qwen3:0.6b"]);
        assert_eq!(complete("/sa"), ["/save"]);
        let hint = |is_open| {
            let hints = Hints {
                is_open,
                ..Hints::default()
            };
            hints.hint("", 0, &context).unwrap()
        };
        assert!(hint(true).contains("\"\"\"") && !hint(false).contains("\"\"\""));
        assert!(complete("hello").is_empty());
    }
}

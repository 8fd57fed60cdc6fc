//! `llmsrv run`: one answer, or a chat.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use crate::{
    cli::{RunArgs, ThinkArg},
    connect::{Connection, runtime},
    context::Context,
    failure::Failure,
    known::Known,
    local::Access,
    run::{CUT, Ended, Prompt, Session, chat, files, images, options},
    term,
    transfer::pull_missing,
};

/// Longest text taken from a pipe, in bytes.
const MAX_PIPED: u64 = 64 << 20;

/// Answers one prompt, or chats when there is none.
pub fn run(context: &Context, args: RunArgs) -> Result<(), Failure> {
    refuse_prompt_as_model(&args)?;
    let interactive = args.prompt.is_empty() && term::stdin_is_terminal();
    let prompt = if interactive {
        None
    } else {
        Some(prompt(&args.prompt)?)
    };
    let setup = Setup::parse(&args)?;
    let file = model_file(&args.model)?;
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let (connection, model) = if let Some(file) = &file {
            let name = name_of(file);
            (Connection::over_file(context, file, &name).await?, name)
        } else {
            let connection = Connection::open(context, Access::Use).await?;
            (connection, args.model.clone())
        };
        let mut session = Session::new(connection.client.clone(), model);
        let result = converse(context, &args, &mut session, setup, prompt).await;
        connection.close().await;
        result
    });
    // A line editor that still waits for a key must not keep the program.
    runtime.shutdown_background();
    result
}

/// Answers the prompt, or chats.
async fn converse(
    context: &Context,
    args: &RunArgs,
    session: &mut Session,
    setup: Setup,
    prompt: Option<String>,
) -> Result<(), Failure> {
    let pull = json!({ "model": session.model, "insecure": args.insecure });
    pull_missing(context, &session.client, &pull).await?;
    let images = setup.images.clone();
    setup.apply(session, args);
    // What goes wrong here goes wrong below, and is told there.
    let known = Known::ask(&session.client, &session.model).await.ok();
    if let Some(known) = known.as_ref().filter(|known| known.embeds_only) {
        return embed(args, session, known, prompt).await;
    }
    if args.truncate.is_some() || args.dimensions.is_some() {
        term::warning("--truncate and --dimensions are for models that make vectors");
    }
    let Some(prompt) = prompt else {
        return chat::run(context, session, images).await;
    };
    let sees = known.as_ref().is_some_and(|known| known.sees);
    let mut prompt = Prompt::new(prompt, sees)?;
    if let Some(known) = known.filter(|known| !known.sees && !images.is_empty()) {
        let text = format!("{} sees no images", known.shown());
        return Err(Failure::failed(text));
    }
    prompt.images.splice(0..0, images);
    match session.answer(prompt, std::future::pending()).await {
        Ok(Ended::Cut) => Err(Failure::failed(CUT)),
        answered => answered.map(drop),
    }
}

/// Prints the vector of a text, in one line of JSON.
async fn embed(
    args: &RunArgs,
    session: &Session,
    known: &Known,
    text: Option<String>,
) -> Result<(), Failure> {
    let name = known.shown();
    if !args.images.is_empty() {
        return Err(Failure::failed(format!("{name} sees no images")));
    }
    let Some(text) = text else {
        let usage = format!("{name} makes vectors of texts, and there is no text");
        let hint = format!(
            "`llmsrv run {} TEXT` prints the vector of a text",
            args.model
        );
        return Err(Failure::usage(usage).hint(hint));
    };
    let mut request = json!({ "model": session.model, "input": text, "options": session.options });
    for (member, value) in [
        ("keep_alive", session.keep_alive.clone().map(Value::from)),
        ("truncate", args.truncate.map(Value::from)),
        ("dimensions", args.dimensions.map(Value::from)),
    ] {
        if let Some(value) = value {
            request[member] = value;
        }
    }
    let answer: Value = session
        .client
        .post("/api/embed", &request)
        .await
        .with_context(|| format!("cannot run {}", session.model))?;
    match &answer["embeddings"][0] {
        vector @ Value::Array(_) => Ok(term::line(vector)?),
        _ => Err(Failure::failed("the server made no vector")),
    }
}

/// Refuses a prompt in the place of the model, before anything tries to pull it.
fn refuse_prompt_as_model(args: &RunArgs) -> Result<(), Failure> {
    if !args.model.contains(char::is_whitespace) || Path::new(&args.model).exists() {
        return Ok(());
    }
    Err(
        Failure::usage("the name of a model comes before the prompt, and has no blanks")
            .hint("`llmsrv run default PROMPT` asks the default model"),
    )
}

/// Returns the file that is meant by a model's name, if it is that of one.
fn model_file(model: &str) -> Result<Option<PathBuf>, Failure> {
    let path = Path::new(model);
    let is_gguf = path
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
    // A name may have slashes, too.
    let is_path = model.starts_with("./") || model.starts_with("../") || model.starts_with('/');
    let is_hub = model.starts_with("hf.co/") || model.starts_with("huggingface.co/");
    if is_hub || !(is_gguf || is_path) || !(path.exists() || is_gguf) {
        return Ok(None);
    }
    let cannot = |why: &str| {
        Failure::failed(format!("cannot run {model}: {why}"))
            .hint("`llmsrv create NAME --from PATH` makes a model of a file or a folder")
    };
    let mut start = [0; 4];
    let mut file = std::fs::File::open(path).map_err(|error| cannot(&error.to_string()))?;
    match file.read_exact(&mut start) {
        Ok(()) if &start == b"GGUF" => Ok(Some(path.to_owned())),
        _ => Err(cannot("it is not a GGUF file")),
    }
}

/// Returns what a model that is a file is called.
fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let stem: String = stem
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(60)
        .collect();
    match stem.trim_matches('-') {
        "" | "default" => "file".to_owned(),
        stem => stem.to_owned(),
    }
}

/// Puts together the words of the command line and what a pipe brings.
fn prompt(words: &[String]) -> Result<String, Failure> {
    let mut parts = Vec::new();
    if !words.is_empty() {
        // What is piped in is somebody else's text: it names no files.
        let words = files::attach(&words.join(" "));
        parts.push(words.map_err(Failure::usage)?);
    }
    if !term::stdin_is_terminal() {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .take(MAX_PIPED + 1)
            .read_to_end(&mut bytes)
            .context("cannot read stdin")?;
        if bytes.len() as u64 > MAX_PIPED {
            return Err(Failure::failed(format!(
                "stdin is longer than {MAX_PIPED} bytes"
            )));
        }
        let text = String::from_utf8(bytes).context("stdin is not text (UTF-8)")?;
        if !text.trim().is_empty() {
            parts.push(text);
        }
    }
    if parts.is_empty() {
        return Err(Failure::usage("there is no prompt")
            .hint("write it as an argument, or run the command in a terminal to chat"));
    }
    Ok(parts.join("\n\n"))
}

/// What the flags ask for, checked before anything starts.
struct Setup {
    options: Map<String, Value>,
    format: Option<Value>,
    images: Vec<String>,
}

impl Setup {
    fn parse(args: &RunArgs) -> Result<Setup, Failure> {
        let usage = |message: String| Failure::usage(message);
        let mut set = Map::new();
        for option in &args.options {
            let (name, value) = option
                .split_once('=')
                .ok_or_else(|| usage(format!("--option {option} is not of the form NAME=VALUE")))?;
            let remark = options::set(&mut set, name.trim(), &[value.to_owned()]);
            if let Some(remark) = remark.map_err(usage)? {
                term::warning(remark);
            }
        }
        for (name, value) in [
            (
                "temperature",
                args.temperature.map(|value| value.to_string()),
            ),
            ("seed", args.seed.map(|value| value.to_string())),
            (
                "num_predict",
                args.num_predict.map(|value| value.to_string()),
            ),
        ] {
            if let Some(value) = value {
                options::set(&mut set, name, &[value]).map_err(usage)?;
            }
        }
        let format = args
            .format
            .as_deref()
            .map(options::format)
            .transpose()
            .map_err(usage)?;
        let images = args.images.iter().map(|path| images::read(path));
        Ok(Setup {
            options: set,
            format,
            images: images.collect::<Result<_, _>>().map_err(usage)?,
        })
    }

    fn apply(self, session: &mut Session, args: &RunArgs) {
        session.options = self.options;
        session.format = self.format;
        session.system.clone_from(&args.system);
        session.keep_alive.clone_from(&args.keepalive);
        session.think = match (args.nothink, args.think) {
            (true, _) | (_, Some(ThinkArg::False)) => Some(Value::Bool(false)),
            (_, Some(ThinkArg::True)) => Some(Value::Bool(true)),
            (_, Some(ThinkArg::Low)) => Some("low".into()),
            (_, Some(ThinkArg::Medium)) => Some("medium".into()),
            (_, Some(ThinkArg::High)) => Some("high".into()),
            (_, Some(ThinkArg::Max)) => Some("max".into()),
            (false, None) => None,
        };
        session.verbose = args.verbose;
        session.hide_thinking = args.hidethinking;
        session.word_wrap = !args.nowordwrap;
        session.markdown = !args.nomarkdown;
    }
}

//! `llmsrv run`: one answer, or a chat.

use std::io::Read;

use anyhow::Context as _;
use serde_json::{Map, Value};

use crate::{
    cli::{RunArgs, ThinkArg},
    connect::{Connection, runtime},
    context::Context,
    failure::{Code, Failure},
    logging,
    run::{Session, chat, options},
    term,
    transfer::pull_missing,
};

/// Longest text taken from a pipe, in bytes.
const MAX_PIPED: u64 = 64 << 20;

/// Answers one prompt, or chats when there is none.
pub fn run(context: &Context, args: RunArgs) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    let interactive = args.prompt.is_empty() && term::stdin_is_terminal();
    let prompt = if interactive {
        None
    } else {
        Some(prompt(&args.prompt)?)
    };
    let setup = Setup::parse(&args)?;
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let connection = Connection::open(context).await?;
        if let Err(failure) = pull_missing(context, &connection.client, &args.model).await {
            connection.close().await;
            return Err(failure);
        }
        let mut session = Session::new(connection.client.clone(), args.model.clone());
        setup.apply(&mut session, &args);
        let result = match prompt {
            Some(prompt) => session
                .answer(prompt, std::future::pending())
                .await
                .map(drop),
            None => chat::run(context, &mut session).await,
        };
        connection.close().await;
        result
    });
    // A line editor that still waits for a key must not keep the program.
    runtime.shutdown_background();
    result
}

/// Puts together the words of the command line and what a pipe brings.
fn prompt(words: &[String]) -> Result<String, Failure> {
    let mut parts = Vec::new();
    if !words.is_empty() {
        parts.push(words.join(" "));
    }
    if !term::stdin_is_terminal() {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .take(MAX_PIPED + 1)
            .read_to_end(&mut bytes)
            .context("cannot read stdin")?;
        if bytes.len() as u64 > MAX_PIPED {
            return Err(Failure::new(
                Code::Failed,
                format!("stdin is longer than {MAX_PIPED} bytes"),
            ));
        }
        let text = String::from_utf8(bytes).context("stdin is not text (UTF-8)")?;
        if !text.trim().is_empty() {
            parts.push(text);
        }
    }
    if parts.is_empty() {
        return Err(Failure::new(Code::Usage, "there is no prompt")
            .hint("write it as an argument, or run the command in a terminal to chat"));
    }
    Ok(parts.join("\n\n"))
}

/// What the flags ask for, checked before anything starts.
struct Setup {
    options: Map<String, Value>,
    format: Option<Value>,
}

impl Setup {
    fn parse(args: &RunArgs) -> Result<Setup, Failure> {
        let usage = |message: String| Failure::new(Code::Usage, message);
        let mut set = Map::new();
        for option in &args.options {
            let (name, value) = option
                .split_once('=')
                .ok_or_else(|| usage(format!("--option {option} is not of the form NAME=VALUE")))?;
            options::set(&mut set, name.trim(), &[value.to_owned()]).map_err(usage)?;
        }
        let format = args
            .format
            .as_deref()
            .map(options::format)
            .transpose()
            .map_err(usage)?;
        Ok(Setup {
            options: set,
            format,
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
    }
}

//! A conversation with a model: what `llmsrv run` keeps between answers.

pub mod chat;
pub mod files;
mod highlight;
pub mod images;
mod markdown;
pub mod options;
pub mod slash;
mod wrap;

use std::{io, time::Duration};

use anstyle::Style;
use llmsrv_api::{
    client::{self, Client},
    native::{ChatResponse, Message, Metrics},
};
use serde_json::{Map, Value, json};

use crate::{
    failure::Failure,
    format,
    run::{markdown::Markdown, wrap::Wrapper},
    term,
};

/// A model, what was said, and how answers are wanted.
pub struct Session {
    pub client: Client,
    pub model: String,
    pub messages: Vec<Message>,
    pub system: Option<String>,
    pub options: Map<String, Value>,
    pub format: Option<Value>,
    pub think: Option<Value>,
    pub keep_alive: Option<String>,
    pub verbose: bool,
    pub hide_thinking: bool,
    pub word_wrap: bool,
    /// Markdown of answers becomes styles, where a terminal has some.
    pub markdown: bool,
    /// Tokens of the conversation after the last answer.
    pub n_tokens: Option<u64>,
}

/// What is asked.
#[derive(Debug, Default)]
pub struct Prompt {
    pub text: String,
    /// As requests carry them.
    pub images: Vec<String>,
}

impl Prompt {
    /// Reads the images whose paths are in the text; a model that sees none gets the text as it is.
    pub fn new(text: String, sees: bool) -> Result<Prompt, Failure> {
        let seen = images::find(&text);
        for path in &seen.missing {
            term::warning(format_args!("there is no file {path}"));
        }
        if !sees {
            for path in &seen.files {
                let path = path.display();
                term::warning(format_args!(
                    "the model sees no images: {path} is text for it"
                ));
            }
            let images = Vec::new();
            return Ok(Prompt { text, images });
        }
        let images = seen.files.iter().map(|path| images::read(path));
        let images = images.collect::<Result<_, _>>();
        Ok(Prompt {
            text: seen.text,
            images: images.map_err(Failure::failed)?,
        })
    }
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model had no more to say.
    Whole,
    /// There was a limit before the end of an answer in a format, which is not in it so.
    Cut,
    /// The user did not want more.
    Stopped,
}

/// What is said of an answer that ended with [`Ended::Cut`].
pub const CUT: &str = "num_predict or the context is too small: the answer was cut, or closed before the model had ended it";

impl Session {
    /// Starts a conversation.
    pub fn new(client: Client, model: String) -> Session {
        Session {
            client,
            model,
            messages: Vec::new(),
            system: None,
            options: Map::new(),
            format: None,
            think: None,
            keep_alive: None,
            verbose: false,
            hide_thinking: false,
            word_wrap: true,
            markdown: true,
            n_tokens: None,
        }
    }

    /// Loads the model, so that mistakes show before anything is typed.
    pub async fn load(&self) -> Result<(), Failure> {
        let _spinner = term::Spinner::start("loading the model");
        let request = self.request(&[]);
        let loaded: Result<Value, client::Error> = self.client.post("/api/chat", &request).await;
        loaded.map(drop).map_err(|error| self.failure(error))
    }

    /// Asks, prints the answer as it comes, and remembers both. When `stop` is ready first, the
    /// answer ends where it is; what was said so far is remembered.
    pub async fn answer(
        &mut self,
        prompt: Prompt,
        stop: impl Future<Output = ()>,
    ) -> Result<Ended, Failure> {
        self.messages.push(Message {
            role: "user".to_owned(),
            content: prompt.text,
            images: prompt.images,
            ..Message::default()
        });
        let answered = self.go_on(stop).await;
        if answered.is_err() {
            // The next question must not carry one that was never answered.
            self.messages.pop();
        }
        answered
    }

    /// Answers the last question once more.
    pub async fn retry(&mut self, stop: impl Future<Output = ()>) -> Result<Ended, Failure> {
        let Some(before) = self.undo_answer() else {
            return Err(Failure::failed("there is no answer yet"));
        };
        let answered = self.go_on(stop).await;
        if answered.is_err() {
            self.messages.push(before);
        }
        answered
    }

    /// Takes back the last question and its answer; tells whether there was one.
    pub fn undo(&mut self) -> bool {
        let last = self
            .messages
            .iter()
            .rposition(|message| message.role == "user");
        self.messages.truncate(last.unwrap_or_default());
        self.n_tokens = None;
        last.is_some()
    }

    fn undo_answer(&mut self) -> Option<Message> {
        self.messages.pop_if(|message| message.role == "assistant")
    }

    /// Asks for what follows the last message, and remembers it.
    async fn go_on(&mut self, stop: impl Future<Output = ()>) -> Result<Ended, Failure> {
        let (answer, ended) = self.stream(stop).await?;
        self.messages.push(answer);
        Ok(ended)
    }

    async fn stream(
        &mut self,
        stop: impl Future<Output = ()>,
    ) -> Result<(Message, Ended), Failure> {
        let mut printer = Printer::new(self);
        let mut answer = Message {
            role: "assistant".to_owned(),
            ..Message::default()
        };
        let mut stop = std::pin::pin!(stop);
        let mut spinner = Some(term::Spinner::start("thinking"));
        let request = self.request(&self.messages);
        // What comes at the same time as the wish to stop is not printed any more.
        let mut lines = tokio::select! {
            biased;
            () = &mut stop => return Ok((answer, Ended::Stopped)),
            lines = self.client.stream::<ChatResponse>("/api/chat", &request) => lines.map_err(|error| self.failure(error))?,
        };
        let last = loop {
            let line = tokio::select! {
                biased;
                () = &mut stop => {
                    spinner.take();
                    printer.stop()?;
                    return Ok((answer, Ended::Stopped));
                }
                line = lines.next() => line,
            };
            let chunk = match line {
                Some(Ok(chunk)) => chunk,
                Some(Err(error)) => {
                    spinner.take();
                    printer.finish()?;
                    return Err(self.failure(error));
                }
                None => break None,
            };
            if !chunk.message.content.is_empty() || !chunk.message.thinking.is_empty() {
                spinner.take();
            }
            printer.print(&chunk.message)?;
            answer.thinking += &chunk.message.thinking;
            answer.content += &chunk.message.content;
            answer
                .tool_calls
                .extend(chunk.message.tool_calls.iter().cloned());
            if chunk.done {
                break Some(chunk);
            }
        };
        spinner.take();
        printer.finish()?;
        let Some(last) = last else {
            return Err(self.failure(client::Error::Stream("the answer was cut off".to_owned())));
        };
        self.n_tokens = Some(last.metrics.prompt_eval_count + last.metrics.eval_count);
        if last.metrics.prompt_truncated > 0 {
            let tokens = last.metrics.prompt_truncated;
            term::warning(format_args!(
                "{tokens} tokens did not fit the context and were left out"
            ));
        }
        if self.verbose {
            term::note(timings(&last.metrics, last.done_reason.as_deref()));
        }
        let is_cut = self.format.is_some() && last.done_reason.as_deref() == Some("length");
        Ok((answer, if is_cut { Ended::Cut } else { Ended::Whole }))
    }

    /// Builds the request for `messages`; without any it only loads the model.
    fn request(&self, messages: &[Message]) -> Value {
        let system = self.system.as_ref().filter(|_| !messages.is_empty());
        let system = system.map(|text| Message {
            role: "system".into(),
            content: text.clone(),
            ..Message::default()
        });
        let messages: Vec<&Message> = system.iter().chain(messages).collect();
        let mut request =
            json!({ "model": self.model, "messages": messages, "options": self.options });
        for (name, value) in [
            ("format", self.format.clone()),
            ("think", self.think.clone()),
            ("keep_alive", self.keep_alive.clone().map(Value::String)),
        ] {
            if let Some(value) = value {
                request[name] = value;
            }
        }
        request
    }

    fn failure(&self, error: client::Error) -> Failure {
        let missing = matches!(error, client::Error::Status { status: 404, .. });
        let failure =
            Failure::from(anyhow::Error::new(error).context(format!("cannot run {}", self.model)));
        if missing {
            failure.hint("`llmsrv list` shows the models there are")
        } else {
            failure
        }
    }
}

/// Lays out the timings of an answer.
fn timings(metrics: &Metrics, reason: Option<&str>) -> String {
    let rate = |count: u64, nanos: u64| {
        let seconds = Duration::from_nanos(nanos).as_secs_f64();
        if seconds > 0.0 {
            format!("{:.2} tokens/s", count as f64 / seconds)
        } else {
            "-".to_owned()
        }
    };
    let rows = [
        ("total duration", format::nanos(metrics.total_duration)),
        ("load duration", format::nanos(metrics.load_duration)),
        (
            "prompt eval count",
            format!("{} tokens", metrics.prompt_eval_count),
        ),
        (
            "prompt eval duration",
            format::nanos(metrics.prompt_eval_duration),
        ),
        (
            "prompt eval rate",
            rate(metrics.prompt_eval_count, metrics.prompt_eval_duration),
        ),
        ("eval count", format!("{} tokens", metrics.eval_count)),
        ("eval duration", format::nanos(metrics.eval_duration)),
        ("eval rate", rate(metrics.eval_count, metrics.eval_duration)),
        ("done reason", reason.unwrap_or("-").to_owned()),
    ];
    let lines: Vec<String> = rows
        .iter()
        .map(|(name, value)| format!("{:<22}{value}", format!("{name}:")))
        .collect();
    lines.join("\n")
}

/// Prints an answer piece by piece: thinking faint, Markdown as styles, words wrapped, a line end at
/// the end.
struct Printer {
    wrapper: Wrapper,
    markdown: Option<Markdown>,
    hide_thinking: bool,
    part: Part,
    ends_with_line_end: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Nothing,
    Thinking,
    Content,
}

impl Printer {
    fn new(session: &Session) -> Printer {
        // In a pipe only the answer itself is wanted, as it is.
        let is_seen = term::stdout_is_terminal();
        let has_styles = is_seen && term::stdout_has_color();
        Printer {
            wrapper: Wrapper::new(term::width().filter(|_| session.word_wrap)),
            markdown: (has_styles && session.markdown).then(Markdown::new),
            hide_thinking: session.hide_thinking || !is_seen,
            part: Part::Nothing,
            ends_with_line_end: true,
        }
    }

    fn print(&mut self, message: &Message) -> io::Result<()> {
        if !message.thinking.is_empty() && !self.hide_thinking {
            self.change(Part::Thinking)?;
            let text = self.wrapper.push(&message.thinking, term::FAINT);
            self.emit(&text)?;
        }
        if !message.content.is_empty() {
            self.change(Part::Content)?;
            let text = self.content(&message.content);
            self.emit(&text)?;
        }
        for call in &message.tool_calls {
            self.change(Part::Content)?;
            let arguments = Value::Object(call.function.arguments.clone());
            self.emit(&format!("{}({arguments})\n", call.function.name))?;
        }
        Ok(())
    }

    fn content(&mut self, text: &str) -> String {
        match &mut self.markdown {
            // A style that the model writes itself would mix with those of Markdown.
            Some(markdown) => {
                let text = text.replace('\u{1b}', "");
                wrapped(&mut self.wrapper, &markdown.push(&text))
            }
            None => self.wrapper.push(text, Style::new()),
        }
    }

    /// Ends the answer where it is.
    fn stop(&mut self) -> io::Result<()> {
        self.wrapper.forget();
        if let Some(markdown) = &mut self.markdown {
            markdown.forget();
        }
        self.finish()
    }

    /// Ends the answer.
    fn finish(&mut self) -> io::Result<()> {
        let mut rest = match &mut self.markdown {
            Some(markdown) => wrapped(&mut self.wrapper, &markdown.finish()),
            None => String::new(),
        };
        rest += &self.wrapper.finish();
        self.emit(&rest)?;
        if !self.ends_with_line_end {
            self.ends_with_line_end = true;
            term::piece("\n")?;
        }
        self.part = Part::Nothing;
        Ok(())
    }

    /// Separates thinking from what is said aloud.
    fn change(&mut self, part: Part) -> io::Result<()> {
        if self.part == Part::Thinking && part == Part::Content {
            self.finish()?;
            term::piece("\n")?;
        }
        self.part = part;
        Ok(())
    }

    fn emit(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let reset = format!("{:#}", term::FAINT);
        self.ends_with_line_end = text.trim_end_matches(&reset).ends_with('\n');
        term::piece(text)
    }
}

fn wrapped(wrapper: &mut Wrapper, spans: &[markdown::Span]) -> String {
    let push = |span: &markdown::Span| wrapper.push(&span.text, span.style);
    spans.iter().map(push).collect()
}

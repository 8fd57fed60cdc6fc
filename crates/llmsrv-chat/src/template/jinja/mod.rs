//! The Jinja dialect: `tokenizer.chat_template` of model files.
//!
//! minijinja runs the template the way the transformers library runs it with Jinja2: blocks trimmed,
//! Python's methods on strings and maps, Python's JSON ([`python`]). A template may refuse a
//! conversation with `raise_exception`; then the conversation is brought step by step into the shape
//! that strict templates want ([`adapt`]) before the refusal is reported.

mod adapt;
mod bounded;
mod depth;
mod parts;
mod python;

use std::fmt;

use jiff::Zoned;
use llmsrv_api::native::{Message, Tool};
use minijinja::machinery::{self, CodeGenerator};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, Value, context};
use serde_json::{Map, Value as Json, json};

use crate::capability::TemplateCapabilities;
use crate::error::{Error, Result};
use crate::limits::{Bound, Watch};
use crate::marks::TAGS;
use crate::messages::tagged;
use crate::prompt::Prompt;
use crate::stack;
use crate::template::MAX_SOURCE_BYTES;

use parts::Content;

/// A parsed Jinja template.
pub struct JinjaTemplate {
    source: String,
    /// The source without the blocks that only training needs.
    runnable: String,
    environment: Environment<'static>,
    syntax: SyntaxConfig,
    bos: String,
    eos: String,
    may_read_parts: bool,
}

impl JinjaTemplate {
    /// Parses a template; `bos` and `eos` become `bos_token` and `eos_token`.
    pub fn parse(source: &str, bos: &str, eos: &str) -> Result<Self> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(Error::Limit("1 MiB of text"));
        }
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| Error::Syntax(describe(&error)))?;
        let template = JinjaTemplate {
            source: source.to_owned(),
            runnable: python::without_generation_blocks(source),
            environment: environment(),
            syntax,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            may_read_parts: parts::may_read(source),
        };
        depth::check(&template.runnable, &template.syntax)?;
        stack::large(|| template.tree().map(drop))?;
        Ok(template)
    }

    /// Renders the prompt. A refusal is reported only if no adapted form of the conversation is
    /// accepted either.
    pub fn render(&self, prompt: &Prompt<'_>) -> Result<String> {
        stack::large(|| self.render_here(prompt))
    }

    fn render_here(&self, prompt: &Prompt<'_>) -> Result<String> {
        let messages = match prompt.fill {
            Some(fill) => vec![Message {
                role: "user".into(),
                content: fill.prompt.into(),
                ..Message::default()
            }],
            None => tagged(prompt.messages),
        };
        let watch = prompt.stop.watch();
        watch.check()?;
        let refusal = match self.render_messages(&messages, prompt, &watch) {
            Err(refusal @ Error::Refused(_)) => refusal,
            other => return other,
        };
        for adapted in adapt::forms(&messages) {
            match self.render_messages(&adapted, prompt, &watch) {
                Err(Error::Refused(_)) => {}
                other => return other,
            }
        }
        Err(refusal)
    }

    /// What the text mentions.
    pub fn capabilities(&self) -> TemplateCapabilities {
        capabilities(&self.source)
    }

    /// The text it was parsed from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The first known pair of tags around thinking that the text has.
    pub fn thinking_tags(&self) -> Option<(&str, &str)> {
        thinking_tags(&self.source)
    }

    /// The first known tag of tool calls that the text mentions, else `{`.
    pub fn tool_tag(&self) -> &str {
        TAGS.iter()
            .find(|&&tag| self.source.contains(tag))
            .unwrap_or(&"{")
    }

    /// Renders contents as strings; as parts if the text got lost and the template may read parts.
    fn render_messages(
        &self,
        messages: &[Message],
        prompt: &Prompt<'_>,
        watch: &Watch,
    ) -> Result<String> {
        let as_text = self.render_contents(messages, Content::Text, prompt, watch);
        let is_lost = |rendered: &Result<String>| match rendered {
            Ok(text) => !parts::says(text, messages),
            Err(error) => matches!(error, Error::Render(_) | Error::Refused(_)),
        };
        if !self.may_read_parts || !is_lost(&as_text) {
            return as_text;
        }
        let tags = parts::tags(messages);
        if !tags.is_empty()
            && let Ok(text) = self.render_contents(messages, Content::Parts, prompt, watch)
            && parts::says(&text, messages)
            && let Some(tagged) = parts::with_tags(&text, &tags)
        {
            return Ok(tagged);
        }
        let as_parts = self.render_contents(messages, Content::TextParts, prompt, watch);
        if is_lost(&as_parts) {
            as_text
        } else {
            as_parts
        }
    }

    fn render_contents(
        &self,
        messages: &[Message],
        content: Content,
        prompt: &Prompt<'_>,
        watch: &Watch,
    ) -> Result<String> {
        let mut generator = CodeGenerator::new(NAME, &self.runnable);
        generator.compile_stmt(&self.tree()?);
        let (instructions, blocks) = generator.finish();
        let mut text = String::new();
        let _open = bounded::begin(watch.clone());
        machinery::eval(
            &self.environment,
            &instructions,
            self.context(messages, content, prompt),
            &blocks,
            &mut machinery::make_string_output(&mut text),
            AutoEscape::None,
        )
        .map_err(|error| run_error(&error))?;
        Ok(text)
    }

    /// The syntax tree, its memory bounded.
    fn tree(&self) -> Result<machinery::ast::Stmt<'_>> {
        let tree = machinery::parse(&self.runnable, NAME, self.syntax.clone())
            .map_err(|error| Error::Syntax(describe(&error)))?;
        bounded::tree(&tree)
            .map_err(|_| Error::Syntax("a chat template cannot use other templates".into()))
    }

    fn context(&self, messages: &[Message], content: Content, prompt: &Prompt<'_>) -> Value {
        let mut context = Map::new();
        context.insert("messages".into(), messages_json(messages, content));
        context.insert("add_generation_prompt".into(), true.into());
        context.insert("bos_token".into(), self.bos.as_str().into());
        context.insert("eos_token".into(), self.eos.as_str().into());
        if !prompt.tools.is_empty() {
            context.insert("tools".into(), prompt.tools.iter().map(tool_json).collect());
        }
        if let Some(think) = prompt.think {
            context.insert("enable_thinking".into(), think.is_on().into());
            context.insert("thinking".into(), think.is_on().into());
            if let Some(level) = think.level() {
                context.insert("reasoning_effort".into(), level.into());
            }
        }
        let date = prompt.now.strftime("%d %b %Y").to_string();
        context.insert("date_string".into(), date.into());

        let now = prompt.now.clone();
        let strftime_now = Value::from_function(move |format: String| strftime(&now, &format));
        let given = Value::from(Serde(&Json::Object(context)));
        context! { strftime_now, ..given }
    }
}

/// What a text mentions, without parsing it.
pub(super) fn capabilities(source: &str) -> TemplateCapabilities {
    TemplateCapabilities {
        tools: source.contains("tools") || source.contains("tool_call"),
        thinking: thinking_tags(source).is_some(),
        insert: false,
    }
}

/// Tells whether a text that offers tools also reads calls and their results in a conversation: it
/// compares roles with that of results, or has the marks around them.
pub(super) fn takes_results(source: &str) -> bool {
    let results = [
        "'tool'",
        "\"tool\"",
        "tool_response",
        "tool_results",
        "ipython",
    ];
    source.contains("tool_calls") && results.iter().any(|mark| source.contains(mark))
}

fn thinking_tags(source: &str) -> Option<(&'static str, &'static str)> {
    let has = |(open, close): &&(&str, &str)| source.contains(open) && source.contains(close);
    THINKING.iter().find(has).copied()
}

impl fmt::Debug for JinjaTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JinjaTemplate")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    bounded::guard(&mut environment);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_unknown_method_callback(python::method);
    environment.add_function(
        "raise_exception",
        |text: String| -> Result<Value, minijinja::Error> {
            let error = minijinja::Error::new(ErrorKind::InvalidOperation, text.clone());
            Err(error.with_source(Refusal(text)))
        },
    );
    environment
}

/// What `raise_exception` said.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

fn run_error(error: &minijinja::Error) -> Error {
    if error.kind() == ErrorKind::OutOfFuel {
        return Error::Limit("work");
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Refusal(text)) = error.downcast_ref() {
            return Error::Refused(text.clone());
        }
        if let Some(bound) = error.downcast_ref::<Bound>() {
            return (*bound).into();
        }
        cause = error.source();
    }
    Error::Render(describe(error))
}

/// Error, line and detail in one line.
fn describe(error: &minijinja::Error) -> String {
    let text = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    match error.line() {
        Some(line) => format!("line {line}: {text}"),
        None => text,
    }
}

/// `messages` as the transformers library passes them: members that say nothing are absent.
fn messages_json(messages: &[Message], content: Content) -> Json {
    let json = |message: &Message| {
        let mut members = Map::new();
        members.insert("role".into(), message.role.as_str().into());
        members.insert("content".into(), parts::content(message, content));
        if !message.thinking.is_empty() {
            members.insert("reasoning_content".into(), message.thinking.as_str().into());
            members.insert("thinking".into(), message.thinking.as_str().into());
        }
        if !message.tool_calls.is_empty() {
            let calls = message.tool_calls.iter().map(|call| {
                let function = json!({
                    "name": call.function.name,
                    "arguments": call.function.arguments,
                });
                let mut members = Map::new();
                if !call.id.is_empty() {
                    members.insert("id".into(), call.id.as_str().into());
                }
                members.insert("type".into(), "function".into());
                members.insert("function".into(), function);
                Json::Object(members)
            });
            members.insert("tool_calls".into(), calls.collect());
        }
        if !message.tool_name.is_empty() {
            members.insert("name".into(), message.tool_name.as_str().into());
        }
        if !message.tool_call_id.is_empty() {
            members.insert("tool_call_id".into(), message.tool_call_id.as_str().into());
        }
        Json::Object(members)
    };
    messages.iter().map(json).collect()
}

fn tool_json(tool: &Tool) -> Json {
    let kind = if tool.kind.is_empty() {
        "function"
    } else {
        &tool.kind
    };
    json!({
        "type": kind,
        "function": {
            "name": tool.function.name,
            "description": tool.function.description,
            "parameters": tool.function.parameters,
        },
    })
}

fn strftime(now: &Zoned, format: &str) -> Result<String, minijinja::Error> {
    if format.len() > MAX_FORMAT_BYTES {
        let text = "strftime_now: the format is too long";
        return Err(minijinja::Error::new(ErrorKind::InvalidOperation, text));
    }
    jiff::fmt::strtime::format(format, now).map_err(|error| {
        minijinja::Error::new(
            ErrorKind::InvalidOperation,
            format!("strftime_now: {error}"),
        )
    })
}

const NAME: &str = "chat";
/// What stands around the thinking of models.
const THINKING: &[(&str, &str)] = &[
    // Most.
    ("<think>", "</think>"),
    // Magistral, Ministral 3.
    ("[THINK]", "[/THINK]"),
    // Gemma 4. A line break follows, which templates write in their own way.
    ("<|channel>thought", "<channel|>"),
    // Seed OSS.
    ("<seed:think>", "</seed:think>"),
    // Command R7B and Command A.
    ("<|START_THINKING|>", "<|END_THINKING|>"),
];
/// Instructions of one rendering.
const FUEL: u64 = 20_000_000;
/// Nesting of blocks and macro calls.
const RECURSION: usize = 200;
/// Longest format of a date.
const MAX_FORMAT_BYTES: usize = 1 << 10;

#[cfg(test)]
mod tests;

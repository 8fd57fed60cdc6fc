//! The Go dialect: `TEMPLATE` layers in the syntax of Go's `text/template`.
//!
//! gotmpl parses and runs the template. Between the two, [`ast`] changes the tree so that values print
//! as they do for Go's typed data (JSON, nothing for a missing key) and so that work is counted;
//! [`values`] builds the data; [`functions`] adds the functions.

mod ast;
mod blocks;
mod functions;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gotmpl::parse::{ListNode, Parser};
use gotmpl::{TemplateError, Value};
use llmsrv_api::native::Message;

use crate::capability::TemplateCapabilities;
use crate::error::{Error, Result};
use crate::messages::{joined, system_text, tagged};
use crate::prompt::{Prompt, Think};
use crate::stack;
use crate::template::{MAX_OUTPUT_BYTES, MAX_SOURCE_BYTES};
use blocks::Facts;
use functions::Budget;
use values::{Values, text};

/// A parsed template of the Go dialect.
#[derive(Debug)]
pub struct GoTemplate {
    source: String,
    /// The template ([`WHOLE`], [`CUT`]) and its `define`s by name.
    trees: BTreeMap<String, ListNode>,
    uses_messages: bool,
    capabilities: TemplateCapabilities,
    thinking_tags: Option<(String, String)>,
    tool_tag: String,
}

impl GoTemplate {
    /// Parses a template. One that uses neither `.Messages` nor `.Response` gets `{{ .Response }}`
    /// appended.
    pub fn parse(source: &str) -> Result<Self> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(Error::Limit("1 MiB of text"));
        }
        blocks::check_depth(source)?;
        stack::large(|| GoTemplate::parse_here(source))
    }

    fn parse_here(source: &str) -> Result<Self> {
        let (mut whole, mut trees) = parse_trees(source)?;
        let all = || trees.values().chain([&whole]);
        if let Some((name, line)) = all().find_map(ast::unknown_function) {
            let text = format!("template: {line}: function {name:?} not defined");
            return Err(Error::Syntax(text));
        }

        if let Some(line) = all().find_map(ast::call_without_data) {
            let text = format!("template: {line}: undefined template specified");
            return Err(Error::Syntax(text));
        }
        let facts = Facts::of(source);
        let thinking_tags = all().filter_map(ast::thinking_tags).next_back();
        let tool_tag = all().find_map(ast::tool_tag).unwrap_or_else(|| "{".into());
        let uses_messages = facts.fields.contains("messages");
        if !uses_messages && !facts.fields.contains("response") {
            whole.nodes.push(ast::print_field("Response"));
        }

        trees.insert(CUT.to_owned(), ast::cut_after_field(&whole, "Response"));
        trees.insert(WHOLE.to_owned(), whole);
        trees.values_mut().for_each(ast::prepare);
        Ok(GoTemplate {
            source: source.to_owned(),
            trees,
            uses_messages,
            capabilities: capabilities_of(&facts),
            thinking_tags,
            tool_tag,
        })
    }

    /// Renders the prompt. A template that knows `.Messages` or a gap to fill runs once, an older one
    /// once per exchange, the last time only up to `.Response`.
    pub fn render(&self, prompt: &Prompt<'_>) -> Result<String> {
        stack::large(|| self.render_here(prompt))
    }

    fn render_here(&self, prompt: &Prompt<'_>) -> Result<String> {
        let mut values = Values::default();
        if let Some(fill) = prompt.fill {
            let data = [
                ("Prompt", text(fill.prompt)),
                ("Suffix", text(fill.suffix)),
                ("Response", text("")),
            ];
            return self.run(prompt, values, vec![(WHOLE, root(data, prompt.think))]);
        }

        let messages = tagged(prompt.messages);
        let system = system_text(&messages);
        let messages = joined(messages);
        let runs = if self.uses_messages {
            let data = [
                ("System", text(&system)),
                ("Messages", values.messages(&messages)),
                ("Tools", values.tools(prompt.tools)),
                ("Response", text("")),
            ];
            vec![(WHOLE, root(data, prompt.think))]
        } else {
            let exchanges = exchanges(&messages);
            let last = exchanges.len().saturating_sub(1);
            let run = |(i, exchange): (usize, Exchange<'_>)| {
                let data = [
                    ("System", text(exchange.system)),
                    ("Prompt", text(exchange.prompt)),
                    ("Response", text(exchange.response)),
                ];
                let tree = if i == last { CUT } else { WHOLE };
                (tree, root(data, prompt.think))
            };
            exchanges.into_iter().enumerate().map(run).collect()
        };
        self.run(prompt, values, runs)
    }

    /// What the template can express.
    pub fn capabilities(&self) -> TemplateCapabilities {
        self.capabilities
    }

    /// The text it was parsed from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The first and last text around `.Thinking` in a range over the messages.
    pub fn thinking_tags(&self) -> Option<(&str, &str)> {
        let (open, close) = self.thinking_tags.as_ref()?;
        Some((open, close))
    }

    /// The first text after `.ToolCalls`, up to `{`; `{` if there is none.
    pub fn tool_tag(&self) -> &str {
        &self.tool_tag
    }

    /// Runs trees one after the other into one text.
    fn run(&self, prompt: &Prompt<'_>, values: Values, runs: Vec<(&str, Value)>) -> Result<String> {
        let watch = prompt.stop.watch();
        watch.check()?;
        let budget = Arc::new(Budget::new(watch));
        let mut template = gotmpl::Template::new("prompt").max_range_iters(MAX_ITERATIONS);
        template = functions::register(template, &budget, Arc::new(values), &prompt.now);
        for (name, tree) in &self.trees {
            template = template.add_parse_tree(name, tree.clone());
        }
        let mut output = Output::default();
        for (tree, data) in runs {
            template
                .execute_template_fmt(&mut output, tree, &data)
                .map_err(|error| budget.exhausted().unwrap_or_else(|| run_error(&error)))?;
        }
        Ok(output.0)
    }
}

/// What a text can express, without parsing it.
pub(super) fn capabilities(source: &str) -> TemplateCapabilities {
    capabilities_of(&Facts::of(source))
}

/// Tells whether a text that offers tools also reads calls and their results in a conversation.
pub(super) fn takes_results(source: &str) -> bool {
    let fields = Facts::of(source).fields;
    let results = ["\"tool\"", "tool_response", "TOOL_RESULTS"];
    fields.contains("tools")
        && fields.contains("toolcalls")
        && results.iter().any(|mark| source.contains(mark))
}

fn capabilities_of(facts: &Facts) -> TemplateCapabilities {
    TemplateCapabilities {
        tools: facts.fields.contains("tools"),
        insert: facts.fields.contains("suffix"),
        thinking: facts.reads_thinking,
    }
}

/// One system text, question and answer.
#[derive(Default)]
struct Exchange<'a> {
    system: &'a str,
    prompt: &'a str,
    response: &'a str,
}

/// Divides a conversation for templates that know only one exchange. There is always a last one,
/// which may be empty.
fn exchanges(messages: &[Message]) -> Vec<Exchange<'_>> {
    let mut done = Vec::new();
    let mut open = Exchange::default();
    for message in messages {
        match message.role.as_str() {
            "system" => {
                if !open.prompt.is_empty() || !open.response.is_empty() {
                    done.push(std::mem::take(&mut open));
                }
                open.system = &message.content;
            }
            "user" => {
                if !open.response.is_empty() {
                    done.push(std::mem::take(&mut open));
                }
                open.prompt = &message.content;
            }
            "assistant" => open.response = &message.content,
            _ => {}
        }
    }
    done.push(open);
    done
}

fn root<const N: usize>(data: [(&str, Value); N], think: Option<Think>) -> Value {
    let level = match think {
        // A template that only knows levels must get one.
        Some(Think::On) => "medium",
        Some(think) => think.level().unwrap_or(""),
        None => "",
    };
    let think_data = [
        ("Think", Value::Bool(think.is_some_and(Think::is_on))),
        ("ThinkLevel", text(level)),
        ("IsThinkSet", Value::Bool(think.is_some())),
    ];
    let entries = data.into_iter().chain(think_data);
    Value::Map(Arc::new(
        entries
            .map(|(key, value)| (Arc::from(key), value))
            .collect(),
    ))
}

/// Parses the template itself and its `define`s.
fn parse_trees(source: &str) -> Result<(ListNode, BTreeMap<String, ListNode>)> {
    let (whole, defines) = Parser::new(source, "{{", "}}")
        .and_then(Parser::parse)
        .map_err(|error| Error::Syntax(error.to_string()))?;
    blocks::check(source)?;
    let mut trees: BTreeMap<String, ListNode> = BTreeMap::new();
    for define in defines {
        match trees.get(define.name.as_str()) {
            Some(_) if define.body.is_empty_tree() => {}
            Some(earlier) if !earlier.is_empty_tree() => {
                let (line, name) = (define.pos.line, define.name);
                let text = format!("template: {line}: multiple definition of template {name:?}");
                return Err(Error::Syntax(text));
            }
            _ => {
                trees.insert(define.name.to_string(), define.body);
            }
        }
    }
    Ok((whole, trees))
}

fn run_error(error: &TemplateError) -> Error {
    match error {
        TemplateError::RecursionLimit => Error::Limit("nested templates"),
        TemplateError::RangeIterLimit => Error::Limit("loop iterations"),
        TemplateError::Write => Error::Limit("output"),
        other => Error::Render(other.to_string()),
    }
}

/// The rendered text, of bounded length.
#[derive(Default)]
struct Output(String);

impl fmt::Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_OUTPUT_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Name of the whole template among the trees.
const WHOLE: &str = "\0whole";
/// Name of the template up to its first `.Response`.
const CUT: &str = "\0cut";
/// Loop iterations of one run.
const MAX_ITERATIONS: u64 = 1_000_000;

#[cfg(test)]
mod tests;

//! `llmsrv launch`

use std::{os::unix::process::CommandExt as _, path::PathBuf, process::Command};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{
    cli::LaunchArgs,
    connect::{self, running, runtime},
    context::Context,
    failure::{Code, Failure},
    known::Known,
    logging, term,
    tools::{KEY_SHOWN, NO_KEY, Place, TOOLS, Tool, Way},
};

/// Starts a tool, prints what it needs, or lists all of them.
pub fn run(context: &Context, args: &LaunchArgs) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    match &args.tool {
        None => list(context, args),
        Some(name) => {
            let tool = find(name)?;
            match &tool.way {
                Way::Start { .. } if !args.print && !args.json => Err(start(context, args, tool)?),
                _ => print(context, args, tool),
            }
        }
    }
}

fn find(name: &str) -> Result<&'static Tool, Failure> {
    let found = TOOLS
        .iter()
        .find(|tool| tool.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names = TOOLS.iter().map(|tool| tool.name);
        let hint = match llmsrv_config::nearest(name, names.clone()) {
            Some(near) => format!("did you mean `llmsrv launch {near}`?"),
            None => format!("there are: {}", names.collect::<Vec<_>>().join(", ")),
        };
        Failure::new(Code::Usage, format_args!("no tool is named {name}")).hint(hint)
    })
}

/// Becomes the tool; returns the reason only if that fails.
fn start(context: &Context, args: &LaunchArgs, tool: &Tool) -> Result<Failure, Failure> {
    let Way::Start {
        program,
        install,
        variables,
        args: own_args,
    } = &tool.way
    else {
        return Ok(Failure::new(
            Code::Usage,
            "this tool is not started from here",
        ));
    };
    let path = path(program).ok_or_else(|| {
        let text = format!(
            "{} is not installed: no `{program}` on the PATH",
            tool.title
        );
        Failure::new(Code::Failed, text).hint(format!("`{install}` installs it"))
    })?;
    let known = runtime()?.block_on(async {
        let client = running(context).await?;
        let known = Known::ask(&client, &args.model).await;
        Ok::<_, Failure>(known.with_context(|| format!("cannot use {}", args.model))?)
    })?;
    let place = Place {
        url: url(context),
        key: key(context).unwrap_or_else(|| NO_KEY.to_owned()),
        model: known.name().to_owned(),
    };
    if !context.global.quiet {
        term::note(format_args!(
            "{} uses {} at {}",
            tool.title, place.model, place.url
        ));
        if !known.calls_tools {
            term::warning(format_args!(
                "{} calls no tools: most agents refuse to work with it",
                place.model
            ));
        }
    }
    let error = Command::new(&path)
        .envs(variables(&place))
        .args(own_args(&place))
        .args(&args.args)
        .exec();
    Ok(Failure::from(error).context(format!("cannot start {}", path.display())))
}

/// Prints what leads one tool to the server.
fn print(context: &Context, args: &LaunchArgs, tool: &Tool) -> Result<(), Failure> {
    let place = shown(context, args);
    match &tool.way {
        Way::Start {
            program,
            variables,
            args: own_args,
            ..
        } => {
            let variables = variables(&place);
            let mut line: Vec<String> = std::iter::once((*program).to_owned())
                .chain(own_args(&place))
                .collect();
            line.extend(
                args.args
                    .iter()
                    .map(|arg| arg.to_string_lossy().into_owned()),
            );
            if args.json {
                let variables: Value = variables
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), Value::from(value)))
                    .collect();
                term::json(&json!({ "tool": tool.name, "env": variables, "command": line }))?;
                return Ok(());
            }
            for (name, value) in variables {
                let value = if value == KEY_SHOWN {
                    format!("\"{value}\"")
                } else {
                    quoted(&value)
                };
                term::line(format_args!("export {name}={value}"))?;
            }
            let line: Vec<String> = line.iter().map(|word| quoted(word)).collect();
            term::line(line.join(" "))?;
        }
        Way::Settings { into, text } => {
            let text = text(&place);
            if args.json {
                term::json(&json!({ "tool": tool.name, "into": into, "text": text }))?;
                return Ok(());
            }
            if !context.global.quiet {
                term::note(format_args!("into {into}:"));
            }
            term::line(text)?;
        }
    }
    Ok(())
}

/// Prints all tools, and what any other one needs.
fn list(context: &Context, args: &LaunchArgs) -> Result<(), Failure> {
    let place = shown(context, args);
    let state = |tool: &Tool| match &tool.way {
        Way::Start { program, .. } if path(program).is_some() => "installed",
        Way::Start { .. } => "not installed",
        Way::Settings { .. } => "settings to copy",
    };
    let (native, openai, anthropic) = (&place.url, format!("{}/v1", place.url), &place.url);
    if args.json {
        let tools = TOOLS
            .iter()
            .map(|tool| json!({ "name": tool.name, "title": tool.title, "state": state(tool) }));
        term::json(&json!({
            "ollama": native, "openai": openai, "anthropic": anthropic,
            "key": place.key, "model": place.model, "tools": tools.collect::<Value>(),
        }))?;
        return Ok(());
    }
    let rows: Vec<Vec<String>> = TOOLS
        .iter()
        .map(|tool| {
            [tool.name, tool.title, state(tool)]
                .map(str::to_owned)
                .into()
        })
        .collect();
    term::line(term::table(&["NAME", "TOOL", "STATE"], &rows))?;
    term::line(format_args!(
        "\nAny other one:\n  Ollama address     {native}\n  OpenAI address     {openai}\n  Anthropic address  {anthropic}\n  Key                {}\n  Model              {}",
        place.key, place.model
    ))?;
    Ok(())
}

/// What is printed, which may be shown to others: the key is named, and not told.
fn shown(context: &Context, args: &LaunchArgs) -> Place {
    let key = key(context).map_or(NO_KEY, |_| KEY_SHOWN);
    Place {
        url: url(context),
        key: key.to_owned(),
        model: args.model.clone(),
    }
}

fn url(context: &Context) -> String {
    let url = connect::address(&context.config().server).url();
    url.trim_end_matches('/').to_owned()
}

fn key(context: &Context) -> Option<String> {
    let key = context.config().client.api_key.as_ref();
    key.map(|key| key.expose().to_owned())
}

fn path(program: &str) -> Option<PathBuf> {
    which::which_in(program, llmsrv_config::search_path(), "/").ok()
}

/// Writes a word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, expected) in [
            ("qwen3:0.6b", "qwen3:0.6b"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("$(id)", "'$(id)'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}

//! `llmsrv launch`

mod settings;

use std::{
    io::{BufRead as _, Read as _},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use anyhow::Context as _;
use llmsrv_api::client::Client;
use llmsrv_host::command::quoted;
use serde_json::{Value, json};

use self::settings::{Target, Written};

use crate::{
    cli::LaunchArgs,
    connect::{self, running, runtime},
    context::Context,
    failure::Failure,
    known::{self, Known},
    term,
    tools::{KEY_SHOWN, NO_KEY, Place, TOOLS, Tool, Way},
};

/// Starts a tool, prints what it needs, or lists all of them.
pub fn run(context: &Context, args: &LaunchArgs) -> Result<(), Failure> {
    let Some(name) = &args.tool else {
        return list(context, args);
    };
    let tool = find(name)?;
    if args.write || args.undo {
        return change(context, args, tool);
    }
    match &tool.way {
        Way::Start { .. } if !args.print && !args.json => Err(start(context, args, tool)?),
        _ => print(context, args, tool),
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
        Failure::usage(format_args!("no tool is named {name}")).hint(hint)
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
        return Ok(Failure::usage("this tool is not started from here"));
    };
    let path = path(program).ok_or_else(|| {
        let text = format!(
            "{} is not installed: no `{program}` on the PATH",
            tool.title
        );
        Failure::failed(text).hint(format!("`{install}` installs it"))
    })?;
    let place = loaded(context, args)?;
    if !context.global.quiet {
        let (title, model, url) = (tool.title, &place.model, &place.url);
        match place.context {
            Some(tokens) => term::note(format_args!(
                "{title} uses {model} at {url}, with a context of {tokens} tokens"
            )),
            None => term::note(format_args!("{title} uses {model} at {url}")),
        }
    }
    let error = Command::new(&path)
        .envs(variables(&place))
        .args(own_args(&place))
        .args(&args.args)
        .exec();
    Ok(Failure::from(error).context(format!("cannot start {}", path.display())))
}

/// Loads the model, and returns what leads a tool to it.
fn loaded(context: &Context, args: &LaunchArgs) -> Result<Place, Failure> {
    runtime()?.block_on(async {
        let client = running(context).await?;
        let _spinner = term::Spinner::start("loading the model");
        let known = Known::ask(&client, &args.model).await;
        let known = known.with_context(|| format!("cannot use {}", args.model))?;
        let name = known.name();
        if !known.calls_tools && !context.global.quiet {
            term::warning(format_args!(
                "{name} calls no tools: most agents refuse to work with it"
            ));
        }
        client
            .post::<Value>("/api/generate", &json!({ "model": name }))
            .await
            .with_context(|| format!("cannot load {name}"))?;
        Ok(Place {
            url: url(context),
            key: key(context).unwrap_or_else(|| NO_KEY.to_owned()),
            model: name.to_owned(),
            context: context_of(&client, name).await,
        })
    })
}

/// Returns the context in tokens that the server gives a model, if it is loaded and may be looked at.
async fn context_of(client: &Client, model: &str) -> Option<u64> {
    let running: Value = client.get("/api/ps").await.ok()?;
    let is_meant =
        |it: &&Value| known::short(it["name"].as_str().unwrap_or_default()) == known::short(model);
    running["models"]
        .as_array()?
        .iter()
        .find(is_meant)
        .and_then(|it| it["context_length"].as_u64())
}

/// Puts an entry into the settings file of a tool, or takes it out again.
fn change(context: &Context, args: &LaunchArgs, tool: &Tool) -> Result<(), Failure> {
    let Some(file) = &tool.settings else {
        let text = format!("{} has no settings file that llmsrv writes", tool.title);
        return Err(Failure::usage(text).hint(format!(
            "`llmsrv launch {} --print` prints what it needs",
            tool.name
        )));
    };
    let target = Target::read(file)?;
    let path = target.path().display();
    if args.undo {
        consent(args, &format!("take llmsrv out of {path}?"))?;
        let was_there = target.undo()?;
        if args.json {
            term::json(&json!({ "tool": tool.name, "path": target.path(), "changed": was_there }))?;
        } else if !context.global.quiet {
            term::note(if was_there {
                format!("{path} is without llmsrv")
            } else {
                format!("{path} has nothing of llmsrv")
            });
        }
        return Ok(());
    }
    let place = loaded(context, args)?;
    let shown = Place {
        key: shown_key(context),
        url: place.url.clone(),
        model: place.model.clone(),
        context: place.context,
    };
    let entry = settings::put(&file.entry, &shown, None).context("cannot show the entry")?;
    if !args.json && !context.global.quiet {
        term::note(format_args!("into {path}:"));
        term::line(entry.trim_end())?;
    }
    consent(args, "write this?")?;
    let written = target.write(&place)?;
    if args.json {
        let (changed, backup) = match &written {
            Written::Already => (false, None),
            Written::Now { backup } => (true, backup.as_ref()),
        };
        term::json(&json!({
            "tool": tool.name, "path": target.path(), "changed": changed,
            "backup": backup, "entry": entry,
        }))?;
    } else if !context.global.quiet {
        match &written {
            Written::Already => term::note(format_args!("{path} says so already")),
            Written::Now { backup: None } => term::note(format_args!("wrote {path}")),
            Written::Now {
                backup: Some(backup),
            } => term::note(format_args!(
                "wrote {path}; what it said before is in {}",
                backup.display()
            )),
        }
        term::note(format_args!(
            "{}; `llmsrv launch {} --undo` takes it back",
            file.then, tool.name
        ));
    }
    Ok(())
}

/// Asks before anything of another program is changed.
fn consent(args: &LaunchArgs, question: &str) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    if !term::stdin_is_terminal() {
        let text = "nobody is there to say yes";
        return Err(Failure::usage(text).hint("--yes says it"));
    }
    term::question(format_args!("{question} [y/N] "))?;
    let mut answer = String::new();
    std::io::stdin().lock().take(100).read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::failed("nothing was changed")),
    }
}

/// Prints what leads one tool to the server.
fn print(context: &Context, args: &LaunchArgs, tool: &Tool) -> Result<(), Failure> {
    let place = shown(context, args)?;
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
        Way::Text { into, text } => text_for(context, args, tool, into, &text(&place))?,
        Way::Settings => {
            if let Some(file) = &tool.settings {
                let text = settings::put(&file.entry, &place, None)?;
                text_for(context, args, tool, &format!("~/{}", file.path), &text)?;
                if !args.json && !context.global.quiet {
                    term::note(format_args!(
                        "`llmsrv launch {} -m {} --write` puts it there",
                        tool.name, place.model
                    ));
                }
            }
        }
    }
    Ok(())
}

fn text_for(
    context: &Context,
    args: &LaunchArgs,
    tool: &Tool,
    into: &str,
    text: &str,
) -> Result<(), Failure> {
    if args.json {
        term::json(&json!({ "tool": tool.name, "into": into, "text": text }))?;
        return Ok(());
    }
    if !context.global.quiet {
        term::note(format_args!("into {into}:"));
    }
    term::line(text.trim_end())?;
    Ok(())
}

/// Prints all tools, and what any other one needs.
fn list(context: &Context, args: &LaunchArgs) -> Result<(), Failure> {
    let place = shown(context, args)?;
    let state = |tool: &Tool| match &tool.way {
        Way::Start { program, .. } if path(program).is_some() => "installed",
        Way::Start { .. } => "not installed",
        Way::Settings => "settings to write",
        Way::Text { .. } => "settings to copy",
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

/// What is printed, which may be shown to others: the key is named, and not told. The server is asked for the
/// context if it is there.
fn shown(context: &Context, args: &LaunchArgs) -> Result<Place, Failure> {
    let context_length = runtime()?.block_on(async {
        let asked = async { context_of(&connect::client(context).ok()?, &args.model).await };
        tokio::time::timeout(Duration::from_secs(1), asked).await
    });
    Ok(Place {
        url: url(context),
        key: shown_key(context),
        model: args.model.clone(),
        context: context_length.ok().flatten(),
    })
}

fn shown_key(context: &Context) -> String {
    let key = key(context).map_or(NO_KEY, |_| KEY_SHOWN);
    key.to_owned()
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

//! `llmsrv firewall`

use llmsrv_host::{
    firewall::{self, Activity, Error, Keeps, Sources, State, Tool},
    plan::Step,
};
use serde_json::{Value, json};

use crate::{
    cli::{ApplyArgs, FirewallAction, FirewallArgs},
    context::Context,
    failure::Failure,
    steps::{self, carry_out},
    term,
};

/// Looks at the firewall, or changes it.
pub fn run(context: &Context, args: &FirewallArgs) -> Result<(), Failure> {
    let port = context.config().server.host.port;
    match args.action {
        FirewallAction::Status { json } => status(port, json),
        FirewallAction::Allow {
            lan_only,
            dry_run,
            json,
        } => {
            let sources = if lan_only { Sources::Lan } else { Sources::All };
            let tools = active()?;
            let steps = plan(&tools, |tool| tool.allow(port, sources))?;
            change(context, manner(dry_run, json), &steps, NOTHING_STANDS)?;
            if !json && !context.global.quiet {
                tell_who_keeps(&tools);
            }
            Ok(())
        }
        FirewallAction::Remove { dry_run, json } => {
            let steps = remove_steps_strictly(port)?;
            let nothing = "no rule of ours lets the port in";
            change(context, manner(dry_run, json), &steps, nothing)
        }
    }
}

fn manner(dry_run: bool, json: bool) -> ApplyArgs {
    ApplyArgs {
        user: false,
        dry_run,
        json,
    }
}

fn change(
    context: &Context,
    manner: ApplyArgs,
    steps: &[Step],
    nothing: &str,
) -> Result<(), Failure> {
    if steps.is_empty() && !manner.json && !context.global.quiet {
        term::note(nothing);
    }
    carry_out(context, manner, steps)
}

/// Plans to let a port in, where a failure does no harm.
pub fn allow_steps(port: u16) -> Vec<Step> {
    let steps = active().and_then(|tools| plan(&tools, |tool| tool.allow(port, Sources::All)));
    harmless(steps)
}

/// Plans to take that back, where a failure does no harm.
pub fn remove_steps(port: u16) -> Vec<Step> {
    harmless(remove_steps_strictly(port))
}

fn harmless(steps: Result<Vec<Step>, Failure>) -> Vec<Step> {
    match steps {
        Ok(steps) => steps.into_iter().map(Step::may_fail).collect(),
        Err(failure) => {
            term::warning(format_args!("the firewall stays as it is: {failure}"));
            Vec::new()
        }
    }
}

fn remove_steps_strictly(port: u16) -> Result<Vec<Step>, Failure> {
    plan(&active()?, |tool| tool.remove(port))
}

fn active() -> Result<Vec<Tool>, Failure> {
    firewall::active().map_err(failure)
}

fn plan(
    tools: &[Tool],
    of: impl Fn(&Tool) -> Result<Vec<Step>, Error>,
) -> Result<Vec<Step>, Failure> {
    let steps: Result<Vec<_>, Error> = tools.iter().map(of).collect();
    Ok(steps.map_err(failure)?.concat())
}

fn failure(error: Error) -> Failure {
    let failure = Failure::failed(error);
    if llmsrv_host::is_root() {
        failure
    } else {
        failure.hint(steps::as_root())
    }
}

fn tell_who_keeps(tools: &[Tool]) {
    for tool in tools {
        if let Keeps::Until(how) = tool.keeps {
            term::note(format_args!(
                "{} forgets the rule when the machine starts again; {how}",
                tool.name
            ));
        }
    }
}

fn status(port: u16, as_json: bool) -> Result<(), Failure> {
    let states = firewall::look(port);
    if as_json {
        let states: Vec<Value> = states.iter().map(json_of).collect();
        term::json(&json!({ "port": port, "firewalls": states }))?;
        return Ok(());
    }
    let rows: Vec<Vec<String>> = states.iter().map(row).collect();
    let header = format!("PORT {port} FROM");
    term::line(term::table(&["FIREWALL", "STATE", &header], &rows))?;
    let is_unknown = |state: &State| matches!(state.activity, Activity::Unknown(_));
    if states.iter().any(is_unknown) && !llmsrv_host::is_root() {
        term::note(format_args!(
            "firewalls mostly tell root alone; {}",
            steps::as_root()
        ));
    }
    Ok(())
}

fn row(state: &State) -> Vec<String> {
    let mut from: Vec<&str> = state.rules.iter().map(source).collect();
    from.dedup();
    let (word, from) = match &state.activity {
        Activity::Absent => ("not installed", "-".to_owned()),
        Activity::Inactive => ("inactive", "-".to_owned()),
        Activity::Unknown(_) => ("unknown", "-".to_owned()),
        Activity::Active if from.is_empty() => ("active", "nowhere by a rule for it".to_owned()),
        Activity::Active => ("active", from.join(", ")),
    };
    vec![state.name.to_owned(), word.to_owned(), from]
}

fn source(rule: &firewall::Rule) -> &str {
    rule.source.as_deref().unwrap_or("everywhere")
}

fn json_of(state: &State) -> Value {
    let rules = state
        .rules
        .iter()
        .map(|rule| json!({ "from": rule.source, "ours": rule.is_ours }));
    json!({
        "name": state.name,
        "installed": state.activity != Activity::Absent,
        "active": match &state.activity {
            Activity::Active => Some(true),
            Activity::Absent | Activity::Inactive => Some(false),
            Activity::Unknown(_) => None,
        },
        "why_unknown": match &state.activity {
            Activity::Unknown(why) => Some(why),
            _ => None,
        },
        "rules": rules.collect::<Value>(),
    })
}

const NOTHING_STANDS: &str = "no firewall of this machine is active: nothing to do";

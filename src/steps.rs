//! Carrying out a plan before the eyes of the user, or only showing it.

use std::path::Path;

use llmsrv_host::{
    command::quoted,
    is_root,
    plan::{self, Action, Answers, Outcome, Step},
};
use serde_json::{Value, json};

use crate::{
    cli::ApplyArgs,
    context::Context,
    failure::{Code, Failure},
    term,
};

/// Which steps are shown while a plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// All.
    All,
    /// Those that fail.
    Failed,
}

/// Carries out a plan in which no server is waited for.
pub fn carry_out(context: &Context, manner: ApplyArgs, steps: &[Step]) -> Result<(), Failure> {
    carry_out_asking(context, manner, steps, Shown::All, &|_| Ok(()))
}

/// Carries out a plan, or shows it. `answers` asks a server that is waited for.
pub fn carry_out_asking(
    context: &Context,
    manner: ApplyArgs,
    steps: &[Step],
    shown: Shown,
    answers: &Answers<'_>,
) -> Result<(), Failure> {
    if manner.dry_run {
        return show(manner.json, steps);
    }
    let talks = !manner.json && !context.global.quiet;
    let outcomes = plan::carry_out(steps, answers, &mut |step, outcome| match outcome {
        _ if !talks => {}
        None | Some(Outcome::Done | Outcome::Already) if shown == Shown::Failed => {}
        None => term::note(format_args!(
            "{}  {}{:#}",
            term::FAINT,
            step.line(),
            term::FAINT
        )),
        Some(outcome) => tell(step, outcome),
    })?;
    if manner.json {
        let steps = steps.iter().zip(&outcomes);
        let steps: Vec<Value> = steps
            .map(|(step, outcome)| with_outcome(step, outcome))
            .collect();
        let ok = !outcomes.iter().any(Outcome::is_final);
        term::json(&json!({ "ok": ok, "dry_run": false, "steps": steps }))?;
    }
    match (steps.get(outcomes.len().saturating_sub(1)), outcomes.last()) {
        (Some(step), Some(Outcome::Failed(why))) => {
            let failure = Failure::failed(format!("{}: {why}", step.title));
            Err(if is_root() {
                failure
            } else {
                failure.hint(as_root())
            })
        }
        (Some(step), Some(Outcome::Interrupted)) => {
            let text = format!("interrupted before: {}", step.title);
            Err(Failure::new(Code::Interrupted, text)
                .hint("what was done stays; do it again to go on"))
        }
        _ => Ok(()),
    }
}

/// Fails if root is needed to write to a folder, and this is not root.
pub fn check_rights(folder: &Path) -> Result<(), Failure> {
    if is_root() || llmsrv_host::may_write(folder) {
        return Ok(());
    }
    let text = format!("{} can only be written to by root", folder.display());
    Err(Failure::failed(text).hint(as_root()))
}

/// Says what to type to do the same as root.
pub fn as_root() -> String {
    let typed: Vec<String> = std::env::args().skip(1).map(|arg| quoted(&arg)).collect();
    format!("type: sudo llmsrv {}", typed.join(" "))
}

fn show(as_json: bool, steps: &[Step]) -> Result<(), Failure> {
    if as_json {
        let steps: Vec<Value> = steps.iter().map(json_of).collect();
        term::json(&json!({ "ok": true, "dry_run": true, "steps": steps }))?;
        return Ok(());
    }
    for step in steps {
        term::line(format_args!(
            "{}# {}{:#}",
            term::STRONG,
            step.title,
            term::STRONG
        ))?;
        term::line(step.shown())?;
    }
    Ok(())
}

fn tell(step: &Step, outcome: &Outcome) {
    let title = &step.title;
    match outcome {
        Outcome::Done => term::note(format_args!("✓ {title}")),
        Outcome::Already => term::note(format_args!("= {title} (nothing to do)")),
        Outcome::Ignored(why) => term::note(format_args!("! {title}: {why} (ignored)")),
        // The error follows.
        Outcome::Failed(_) => term::note(format_args!("✗ {title}")),
        Outcome::Interrupted => term::note(format_args!("- {title}")),
    }
}

fn json_of(step: &Step) -> Value {
    let mut value = json!({ "title": step.title, "action": step.line() });
    match &step.action {
        Action::Run { command, .. } => {
            let words = std::iter::once(&command.program).chain(&command.args);
            value["command"] = words.map(String::as_str).collect();
        }
        Action::Write { path, text, mode } => {
            let mode = format!("{mode:04o}");
            value["file"] = json!({ "path": path, "text": text, "mode": mode });
        }
        Action::Remove { .. } | Action::End { .. } | Action::Start(_) | Action::Answers { .. } => {}
    }
    value
}

fn with_outcome(step: &Step, outcome: &Outcome) -> Value {
    let mut value = json_of(step);
    value["outcome"] = outcome.word().into();
    if let Outcome::Ignored(why) | Outcome::Failed(why) = outcome {
        value["why"] = why.as_str().into();
    }
    value
}

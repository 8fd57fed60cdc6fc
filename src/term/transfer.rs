//! The steps of a transfer: bars in a terminal, plain lines elsewhere, JSON for scripts.

use std::{
    io,
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use super::{json_line, note, stderr_is_terminal};
use crate::format;

/// Shows the objects that a transfer sends.
pub struct TransferSteps(Form);

enum Form {
    Json,
    Hidden,
    Bars(Bars),
    Lines(Lines),
}

impl TransferSteps {
    /// Each step as a line of JSON on stdout.
    pub fn json() -> TransferSteps {
        TransferSteps(Form::Json)
    }

    /// Nothing at all.
    pub fn hidden() -> TransferSteps {
        TransferSteps(Form::Hidden)
    }

    /// Bars where stderr is a terminal, else some lines.
    pub fn for_people() -> TransferSteps {
        TransferSteps(if stderr_is_terminal() {
            Form::Bars(Bars::new())
        } else {
            Form::Lines(Lines::default())
        })
    }

    /// Shows a step.
    pub fn step(&mut self, step: &Value) -> io::Result<()> {
        match &mut self.0 {
            Form::Json => return json_line(step),
            Form::Hidden => {}
            Form::Bars(bars) => bars.step(&Step::of(step)),
            Form::Lines(lines) => lines.step(&Step::of(step)),
        }
        Ok(())
    }

    /// Leaves the terminal as it is now.
    pub fn stop(&mut self) {
        if let Form::Bars(bars) = &mut self.0 {
            bars.stop();
        }
    }
}

/// What is shown of a step.
#[derive(Clone, Default, PartialEq)]
struct Step {
    status: String,
    total: u64,
    completed: u64,
}

impl Step {
    fn of(value: &Value) -> Step {
        let number = |key: &str| value[key].as_u64().unwrap_or(0);
        // A server may say anything; only what is printable reaches the terminal.
        let status = value["status"].as_str().unwrap_or_default();
        Step {
            status: status.chars().filter(|c| !c.is_control()).collect(),
            total: number("total"),
            completed: number("completed"),
        }
    }
}

struct Bars {
    all: MultiProgress,
    /// The bar of the present step.
    current: Option<(String, ProgressBar)>,
}

impl Bars {
    fn new() -> Bars {
        Bars {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            current: None,
        }
    }

    fn step(&mut self, step: &Step) {
        let same = matches!(&self.current, Some((status, _)) if *status == step.status);
        if !same {
            self.stop();
            let bar = self.all.add(bar(step));
            self.current = Some((step.status.clone(), bar));
        }
        if let Some((_, bar)) = &self.current
            && step.total > 0
        {
            bar.set_length(step.total);
            bar.set_position(step.completed);
            if !same {
                // What was there before did not come just now.
                bar.reset_eta();
            }
        }
    }

    fn stop(&mut self) {
        if let Some((_, bar)) = self.current.take() {
            bar.abandon();
        }
    }
}

fn bar(step: &Step) -> ProgressBar {
    let (bar, template) = if step.total > 0 {
        (ProgressBar::new(step.total), LAYER)
    } else {
        (ProgressBar::new_spinner(), "{msg}")
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(step.status.clone());
    bar.tick();
    bar
}

/// For logs: a line when a step begins, when it ends, and now and then in between.
#[derive(Default)]
struct Lines {
    last: Step,
    printed_at: Option<Instant>,
}

impl Lines {
    fn step(&mut self, step: &Step) {
        let begins = step.status != self.last.status;
        let ends = step.total > 0 && step.completed == step.total && self.last != *step;
        let due = self.printed_at.is_none_or(|at| at.elapsed() > SAY_EVERY);
        if begins || ends || (due && step.total > 0) {
            if step.total > 0 {
                let percent = (u128::from(step.completed) * 100 / u128::from(step.total)).min(100);
                let size = format::size(step.total);
                note(format_args!("{}: {percent}% of {size}", step.status));
            } else {
                note(&step.status);
            }
            self.printed_at = Some(Instant::now());
        }
        self.last = step.clone();
    }
}

const LAYER: &str = "{msg} [{wide_bar}] {bytes:>10}/{total_bytes} {bytes_per_sec:>11} {eta:>4}";
const SAY_EVERY: Duration = Duration::from_secs(10);

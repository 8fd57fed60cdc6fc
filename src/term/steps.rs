//! Long work step by step: bars in a terminal, plain lines elsewhere, JSON for scripts.

use std::{
    fmt::Write,
    io,
    time::{Duration, Instant},
};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use llmsrv_api::progress::Progress;
use serde_json::json;

use super::{json_line, note, stderr_is_terminal};
use crate::format;

/// Shows what long work says about itself: `status`, and where bytes are counted `total` and `completed`.
pub struct Steps(Form);

enum Form {
    Json,
    Hidden,
    Bars(Bars),
    Lines(Lines),
}

impl Steps {
    /// Each step as a line of JSON on stdout.
    pub fn json() -> Steps {
        Steps(Form::Json)
    }

    /// Nothing at all.
    pub fn hidden() -> Steps {
        Steps(Form::Hidden)
    }

    /// Bars where stderr is a terminal, else some lines.
    pub fn for_people() -> Steps {
        Steps(if stderr_is_terminal() {
            Form::Bars(Bars::default())
        } else {
            Form::Lines(Lines::default())
        })
    }

    /// Shows a step.
    pub fn step(&mut self, step: &Progress) -> io::Result<()> {
        let shown = || Progress {
            // The bars go to the terminal by themselves.
            status: super::clean::one_line(&step.status),
            ..step.clone()
        };
        match &mut self.0 {
            Form::Json => return json_line(&json!(step)),
            Form::Hidden => {}
            Form::Bars(bars) => bars.step(&shown()),
            Form::Lines(lines) => lines.step(shown()),
        }
        Ok(())
    }

    /// Shows how many of how many bytes of a step of this program are done.
    pub fn amount(&mut self, status: &str, completed: u64, total: u64) {
        // The beginning and the end are enough for scripts.
        if matches!(self.0, Form::Json) && completed != 0 && completed != total {
            return;
        }
        let step = Progress {
            status: status.to_owned(),
            total,
            completed,
            ..Progress::default()
        };
        // A script that reads no more is told with the next step of the server.
        let _ = self.step(&step);
    }

    /// Leaves the terminal as it is now.
    pub fn stop(&mut self) {
        if let Form::Bars(bars) = &mut self.0 {
            bars.stop();
        }
    }
}

/// The bar of the present step; those before it are lines above.
#[derive(Default)]
struct Bars(Option<(String, ProgressBar)>);

impl Bars {
    fn step(&mut self, step: &Progress) {
        let same = matches!(&self.0, Some((status, bar))
            if *status == step.status && (step.total == 0 || bar.length().is_some()));
        if !same {
            match self.0.take() {
                // Now its bytes are counted: the line before says no more than this one.
                Some((status, bar)) if status == step.status => bar.finish_and_clear(),
                Some((_, bar)) => bar.abandon(),
                None => {}
            }
            self.0 = Some((step.status.clone(), bar(step)));
        }
        if let Some((_, bar)) = &self.0
            && step.total > 0
        {
            bar.set_length(step.total);
            bar.set_position(step.completed);
        }
    }

    fn stop(&mut self) {
        if let Some((_, bar)) = self.0.take() {
            bar.abandon();
        }
    }
}

fn bar(step: &Progress) -> ProgressBar {
    let (bar, template) = if step.total == 0 {
        (ProgressBar::new_spinner(), "{msg}")
    } else if super::stderr_width() < WIDE {
        (ProgressBar::new(step.total), "{msg} {percent}% {speed}")
    } else {
        (ProgressBar::new(step.total), LAYER)
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        let (begun, before) = (Instant::now(), step.completed);
        let rate = move |state: &ProgressState| rate(state.pos(), before, begun.elapsed());
        let speed = move |state: &ProgressState, text: &mut dyn Write| {
            let _ = write!(text, "{}/s", format::size(rate(state) as u64));
        };
        let left = move |state: &ProgressState, text: &mut dyn Write| {
            let missing = state.len().unwrap_or(0).saturating_sub(state.pos());
            let seconds = missing as f64 / rate(state);
            let _ = if seconds.is_finite() {
                write!(
                    text,
                    "{}",
                    HumanDuration(Duration::from_secs_f64(seconds.min(1e9)))
                )
            } else {
                write!(text, "-")
            };
        };
        let size = |state: &ProgressState, text: &mut dyn Write| {
            let (done, all) = (state.pos(), state.len().unwrap_or(0));
            let _ = write!(text, "{}/{}", format::size(done), format::size(all));
        };
        let style = style.with_key("speed", speed).with_key("left", left);
        bar.set_style(style.with_key("size", size).progress_chars("━╸ "));
    }
    bar.set_draw_target(ProgressDrawTarget::stderr());
    bar.set_message(step.status.clone());
    bar.tick();
    bar
}

/// Bytes per second: what was there `before` the step began did not come just now.
fn rate(completed: u64, before: u64, elapsed: Duration) -> f64 {
    completed.saturating_sub(before) as f64 / elapsed.as_secs_f64().max(0.001)
}

/// For logs: a line when a step begins, when it ends, and now and then in between.
#[derive(Default)]
struct Lines {
    last: Progress,
    printed_at: Option<Instant>,
}

impl Lines {
    fn step(&mut self, step: Progress) {
        let begins = step.status != self.last.status;
        let ends = step.total > 0 && step.completed == step.total && self.last != step;
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
        self.last = step;
    }
}

const LAYER: &str = "{msg} {wide_bar} {size:>15} {speed:>10} {left:>10}";
/// Columns below which a bar would leave no room for the figures.
const WIDE: usize = 70;
const SAY_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_that_goes_on_does_not_count_what_was_there() {
        let of = |completed, before, seconds| {
            let rate = rate(completed, before, Duration::from_secs(seconds));
            format!("{}/s", format::size(rate as u64))
        };
        assert_eq!(of(900_000_000, 880_000_000, 4), "5.0 MB/s");
        assert_eq!(of(880_000_000, 880_000_000, 4), "0 B/s");
        // A server that begins anew has less than before.
        assert_eq!(of(1, 880_000_000, 0), "0 B/s");
    }
}

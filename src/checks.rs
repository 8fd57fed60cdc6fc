//! Checks that are made one after the other: how each is shown, and how many ended how.

use std::{fmt::Display, io, process::ExitCode};

pub use llmsrv_ssh::doctor::Outcome;

use crate::{failure::Code, term};

/// The outcome in JSON and in tables.
pub fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "pass",
        Outcome::Fail => "fail",
        Outcome::Skip => "skip",
    }
}

/// Prints a check, and below it what may help.
pub fn show(
    number: usize,
    outcome: Outcome,
    text: impl Display,
    hints: impl IntoIterator<Item = impl Display>,
) -> io::Result<()> {
    let sign = match outcome {
        Outcome::Pass => '✓',
        Outcome::Fail => '✗',
        Outcome::Skip => '-',
    };
    term::line(format_args!("{number:>2} {sign} {text}"))?;
    let mut hints = hints.into_iter();
    hints.try_for_each(|hint| term::line(format_args!("     {hint}")))
}

/// How many checks ended how.
#[derive(Default)]
pub struct Totals {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Totals {
    /// Counts.
    pub fn of(outcomes: impl Iterator<Item = Outcome>) -> Totals {
        let mut totals = Totals::default();
        for outcome in outcomes {
            *match outcome {
                Outcome::Pass => &mut totals.passed,
                Outcome::Fail => &mut totals.failed,
                Outcome::Skip => &mut totals.skipped,
            } += 1;
        }
        totals
    }

    /// Prints the counts.
    pub fn show(&self) -> io::Result<()> {
        let Totals {
            passed,
            failed,
            skipped,
        } = self;
        let total = passed + failed + skipped;
        term::line(format_args!(
            "Total {total}, passed {passed}, failed {failed}, skipped {skipped}"
        ))
    }

    /// The exit status.
    pub fn status(&self) -> ExitCode {
        match self.failed {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::from(Code::Failed as u8),
        }
    }
}

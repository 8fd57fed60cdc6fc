//! What checks found.

use serde::{Deserialize, Serialize};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// What was tried works.
    Pass,
    /// What was tried does not work.
    Fail,
    /// Nothing could be tried; the detail says why.
    Skip,
    /// A fact and no test; not counted.
    Info,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The category it belongs to.
    pub category: String,
    /// What was checked, with the device where there may be several: `opencl:0 saxpy`.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What was measured, in `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Unit of the value, such as `GB/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// What was seen, or why it failed or was skipped.
    pub detail: String,
    /// What may help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Check {
    /// A check without a value.
    pub fn new(
        category: &str,
        name: impl Into<String>,
        outcome: Outcome,
        detail: impl Into<String>,
    ) -> Check {
        Check {
            category: category.to_owned(),
            name: name.into(),
            outcome,
            value: None,
            unit: None,
            detail: detail.into(),
            hint: None,
        }
    }

    /// Something that works.
    pub fn pass(category: &str, name: impl Into<String>, detail: impl Into<String>) -> Check {
        Check::new(category, name, Outcome::Pass, detail)
    }

    /// Something that does not work, and why.
    pub fn fail(category: &str, name: impl Into<String>, detail: impl Into<String>) -> Check {
        Check::new(category, name, Outcome::Fail, detail)
    }

    /// Something that could not be tried, and why.
    pub fn skip(category: &str, name: impl Into<String>, detail: impl Into<String>) -> Check {
        Check::new(category, name, Outcome::Skip, detail)
    }

    /// A fact.
    pub fn info(category: &str, name: impl Into<String>, detail: impl Into<String>) -> Check {
        Check::new(category, name, Outcome::Info, detail)
    }

    /// Adds what was measured.
    pub fn measured(self, value: f64, unit: &str) -> Check {
        Check {
            value: Some(value),
            unit: Some(unit.to_owned()),
            ..self
        }
    }

    /// Adds what may help.
    pub fn hint(self, hint: impl Into<String>) -> Check {
        Check {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// All checks of a command.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// In the order in which they were made.
    pub checks: Vec<Check>,
}

/// How many checks ended how; facts are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// All of them.
    pub total: usize,
    /// Those that passed.
    pub passed: usize,
    /// Those that failed.
    pub failed: usize,
    /// Those that could not be made.
    pub skipped: usize,
}

/// What the checks say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that could be checked passed.
    Passed,
    /// Something failed.
    Failed,
    /// There is no such device, or nothing to reach it with.
    NoDevice,
}

impl Report {
    /// Counts the checks.
    pub fn totals(&self) -> Totals {
        let count = |outcome| {
            self.checks
                .iter()
                .filter(|check| check.outcome == outcome)
                .count()
        };
        let (passed, failed, skipped) = (
            count(Outcome::Pass),
            count(Outcome::Fail),
            count(Outcome::Skip),
        );
        Totals {
            total: passed + failed + skipped,
            passed,
            failed,
            skipped,
        }
    }

    /// Says what the checks mean; `has_device` tells whether anything was there to be checked.
    pub fn verdict(&self, has_device: bool) -> Verdict {
        match self.totals() {
            Totals { failed: 1.., .. } => Verdict::Failed,
            Totals { passed: 1.., .. } if has_device => Verdict::Passed,
            _ => Verdict::NoDevice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_outweighs_all_and_nothing_passed_means_no_device() {
        let report = |outcomes: &[Outcome]| Report {
            checks: outcomes
                .iter()
                .map(|outcome| Check::new("c", "n", *outcome, ""))
                .collect(),
        };
        use Outcome::{Fail, Info, Pass, Skip};
        assert_eq!(report(&[Pass, Skip, Info]).verdict(true), Verdict::Passed);
        assert_eq!(report(&[Pass, Fail, Skip]).verdict(true), Verdict::Failed);
        assert_eq!(report(&[Fail]).verdict(false), Verdict::Failed);
        assert_eq!(report(&[Skip, Info]).verdict(true), Verdict::NoDevice);
        assert_eq!(report(&[Pass]).verdict(false), Verdict::NoDevice);
        assert_eq!(report(&[]).verdict(false), Verdict::NoDevice);
        let totals = report(&[Pass, Skip, Info, Fail]).totals();
        assert_eq!(
            totals,
            Totals {
                total: 3,
                passed: 1,
                failed: 1,
                skipped: 1
            }
        );
    }
}

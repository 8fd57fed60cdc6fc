//! Reading files of the machine, and noting those which may not be read.

use crate::{
    parse,
    root::{Lack, Root},
    sample::Problem,
};

/// Reads files and notes those which may not be read.
pub(crate) struct Reader<'a> {
    pub(crate) root: &'a Root,
    pub(crate) problems: Vec<Problem>,
}

impl Reader<'_> {
    /// Reads a file about `subject`.
    pub(crate) fn text(&mut self, subject: &'static str, path: &str) -> Option<String> {
        self.root
            .text(path)
            .map_err(|lack| self.lacks(subject, path, lack))
            .ok()
    }

    /// Lists a folder about `subject`.
    pub(crate) fn names(&mut self, subject: &'static str, path: &str) -> Vec<String> {
        self.root
            .names(path)
            .map_err(|lack| self.lacks(subject, path, lack))
            .unwrap_or_default()
    }

    /// Reads one number about `subject`.
    pub(crate) fn number(&mut self, subject: &'static str, path: &str) -> Option<u64> {
        self.text(subject, path).as_deref().and_then(parse::number)
    }

    fn lacks(&mut self, subject: &'static str, path: &str, lack: Lack) {
        // Sensors that sleep fail by the dozen; only what the user can change is told.
        if lack == Lack::Denied && self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem {
                subject,
                path: parse::clean(&format!("/{path}")),
                reason: "permission denied",
            });
        }
    }
}

/// Most files that are named as unreadable.
const MAX_PROBLEMS: usize = 32;

//! Commands of the machine, such as `systemctl`: how they are written and run.

use std::{
    fmt, io,
    process::{Command, ExitStatus, Stdio},
};

/// A command with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cmd {
    /// Name, looked for on the path.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
}

/// What a command left.
#[derive(Debug)]
pub struct Left {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to its standard output.
    pub stdout: String,
    /// What it wrote to its standard error.
    pub stderr: String,
}

/// Why a command did not do what it is for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such command.
    #[error("`{0}` is not installed")]
    Missing(String),
    /// It could not be started.
    #[error("`{command}` cannot be run: {source}")]
    Start {
        /// The command.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// It ended with a failure.
    #[error("`{command}` failed ({status}){}{said}", if said.is_empty() { "" } else { ": " })]
    Failed {
        /// The command.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The last line it wrote.
        said: String,
    },
}

impl Cmd {
    /// Makes a command.
    pub fn new<S: Into<String>>(program: &str, args: impl IntoIterator<Item = S>) -> Cmd {
        Cmd {
            program: program.to_owned(),
            args: args.into_iter().map(Into::into).collect(),
        }
    }

    /// Makes a command of words between spaces.
    pub fn words(line: &str) -> Cmd {
        let mut words = line.split_whitespace();
        Cmd::new(words.next().unwrap_or_default(), words)
    }

    /// Runs it to its end, whatever that is. Its messages are those of no language.
    pub fn run(&self) -> Result<Left, Error> {
        let output = Command::new(&self.program)
            .args(&self.args)
            // What it says is read.
            .env("LC_ALL", "C")
            .env("SYSTEMD_PAGER", "")
            // It may ask for a password.
            .stdin(Stdio::inherit())
            .output();
        match output {
            Ok(output) => Ok(Left {
                status: output.status,
                stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Error::Missing(self.program.clone()))
            }
            Err(source) => Err(Error::Start {
                command: self.to_string(),
                source,
            }),
        }
    }

    /// Runs it and tells whether it succeeded.
    pub fn succeeds(&self) -> bool {
        self.run().is_ok_and(|left| left.status.success())
    }

    /// Runs it; an exit status other than 0 is an error.
    pub fn must(&self) -> Result<Left, Error> {
        let left = self.run()?;
        if left.status.success() {
            Ok(left)
        } else {
            Err(self.failed(&left))
        }
    }

    /// Describes a failure.
    pub fn failed(&self, left: &Left) -> Error {
        let said = [&left.stderr, &left.stdout]
            .into_iter()
            .find_map(|text| text.trim().lines().last())
            .unwrap_or_default();
        Error::Failed {
            command: self.to_string(),
            status: left.status,
            said: said.trim().chars().take(MAX_SAID).collect(),
        }
    }
}

impl fmt::Display for Cmd {
    /// Writes it as a shell would take it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.program))?;
        self.args
            .iter()
            .try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

/// Writes a word as a shell would take it.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Characters of a message that are passed on.
const MAX_SAID: usize = 300;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn failures_say_what_the_command_said() {
        let fails = Cmd::new(
            "sh",
            ["-c", "echo first >&2; echo 'not that way' >&2; exit 3"],
        );
        let error = fails.must().unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.ends_with(": not that way"), "{error}");
        let silent = Cmd::words("sh -c false").must().unwrap_err().to_string();
        assert!(silent.ends_with("1)"), "{silent}");
        let none = Cmd::words("no-such-command-here x").run().unwrap_err();
        assert_eq!(none.to_string(), "`no-such-command-here` is not installed");
        assert!(!fails.succeeds() && Cmd::words("true").succeeds());
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_typed(word in "[^\0]{0,12}") {
            let shown = Cmd::new("printf", ["%s", &word]).to_string();
            let left = Cmd::new("sh", ["-c", &shown]).must().unwrap();
            prop_assert_eq!(left.stdout, word);
        }
    }
}

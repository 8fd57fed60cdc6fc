//! Why a command failed: the exit status, the causes, and what the user can do about it.

use std::{fmt, io};

use llmsrv_api::client;

/// Exit statuses, listed for users in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It did not work.
    Failed = 1,
    /// Wrong use of the command line.
    Usage = 2,
    /// No server runs.
    NotRunning = 3,
    /// The service is not installed.
    NoService = 4,
    /// The server cannot be reached.
    Unreachable = 69,
    /// The server is busy.
    TryAgain = 75,
    /// The settings are wrong.
    Config = 78,
    /// Ctrl-C came.
    Interrupted = 130,
    /// No connection to another machine, as ssh has it.
    NoConnection = 255,
}

impl Code {
    /// Returns the word for JSON errors.
    pub fn word(self) -> &'static str {
        match self {
            Code::Failed => "failed",
            Code::Usage => "usage",
            Code::NotRunning => "not running",
            Code::NoService => "no service",
            Code::Unreachable => "unreachable",
            Code::TryAgain => "busy",
            Code::Config => "config",
            Code::Interrupted => "interrupted",
            Code::NoConnection => "no connection",
        }
    }
}

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    /// Exit status.
    pub code: Code,
    /// What happened and why.
    pub error: anyhow::Error,
    /// What the user can do.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a deeper cause.
    pub fn new(code: Code, message: impl fmt::Display) -> Failure {
        Failure {
            code,
            error: anyhow::anyhow!("{message}"),
            hint: None,
        }
    }

    /// Something that did not work.
    pub fn failed(message: impl fmt::Display) -> Failure {
        Failure::new(Code::Failed, message)
    }

    /// A command line that cannot be followed.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure::new(Code::Usage, message)
    }

    /// One failure of several of the same kind; none is no failure.
    pub fn together(mut failures: Vec<Failure>, what: &str) -> Result<(), Failure> {
        match failures.len() {
            0 => Ok(()),
            1 => Err(failures.remove(0)),
            n => {
                let lines = failures.iter().map(|failure| format!("\n  {failure}"));
                let lines: String = lines.collect();
                Err(Failure::failed(format!("{n} {what}:{lines}")))
            }
        }
    }

    /// Says what the user can do.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Says what was being done.
    pub fn context(self, doing: impl fmt::Display + Send + Sync + 'static) -> Failure {
        Failure {
            error: self.error.context(doing),
            ..self
        }
    }

    /// Tells whether whoever read our output has left, which is nobody's failure.
    pub fn is_broken_pipe(&self) -> bool {
        self.error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Failure {
    /// Writes the error and its causes in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

/// What to do about a server that wants a key.
pub const KEY_HINT: &str = "put a key into LLMSRV_API_KEY (`llmsrv key add NAME` makes one)";

/// How models are named.
const NAME_HINT: &str = "names are MODEL, MODEL:TAG or [HOST/]NAMESPACE/MODEL:TAG, of letters, digits, `_`, `-` and `.`, and begin with \
     a letter, a digit or `_`";

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        let error = error.into();
        let (code, hint) = match error.downcast_ref::<client::Error>() {
            Some(client::Error::Unreachable { .. }) => (
                Code::Unreachable,
                Some(
                    "start a server with `llmsrv serve`, or name another one with --host or LLMSRV_HOST",
                ),
            ),
            Some(client::Error::Status { status: 503, .. }) => (Code::TryAgain, None),
            Some(client::Error::Status { status: 401, .. }) => (Code::Failed, Some(KEY_HINT)),
            Some(client::Error::Status {
                status: 404,
                message,
            }) if message.starts_with("model ") => (
                Code::Failed,
                Some("`llmsrv list` names the models that are here, `llmsrv search` others"),
            ),
            Some(client::Error::Status {
                status: 400,
                message,
            }) if message == "invalid model name" => (Code::Failed, Some(NAME_HINT)),
            _ => (Code::Failed, None),
        };
        Failure {
            code,
            error,
            hint: hint.map(str::to_owned),
        }
    }
}

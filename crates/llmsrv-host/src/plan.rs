//! What is changed on the machine, as data: the same steps are shown or carried out.
//!
//! A step that finds its work done says so and does nothing, so a plan can be carried out again.

mod file;

use std::{
    fmt::Write as _,
    fs, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

use crate::{
    background::{self, Program},
    command::{self, Cmd},
    instance,
};

/// One change.
#[derive(Clone, Debug)]
pub struct Step {
    /// What it is for.
    pub title: String,
    /// What is done.
    pub action: Action,
    /// When it needs not be done.
    pub skip: Skip,
    /// A failure is shown, and the plan goes on.
    pub may_fail: bool,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Runs a command.
    Run {
        /// The command.
        command: Cmd,
        /// Exit statuses which say that nothing had to be done.
        already: &'static [i32],
    },
    /// Replaces a file as a whole; one with other content is kept beside it as `NAME.bak`.
    Write {
        /// Where.
        path: PathBuf,
        /// What.
        text: String,
        /// Permissions.
        mode: u32,
    },
    /// Removes a file.
    Remove {
        /// Where.
        path: PathBuf,
    },
    /// Ends the server of this user on a port.
    End {
        /// Folder in which servers write themselves down.
        folder: PathBuf,
        /// The port.
        port: u16,
        /// How long it may take, before it is killed.
        timeout: Duration,
    },
    /// Starts a program that goes on when this one ends.
    Start(Program),
    /// Waits until a server answers.
    Answers {
        /// What it is asked.
        url: String,
        /// How long it may take.
        timeout: Duration,
    },
}

/// When a step needs not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It is done always.
    Never,
    /// It was found to be so when the plan was made.
    Already,
    /// No step before it has changed anything.
    Unchanged,
    /// This command succeeds.
    If(Cmd),
    /// This command fails.
    Unless(Cmd),
    /// No step before it has changed anything, and this command succeeds.
    UnchangedAnd(Cmd),
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// There was nothing to do.
    Already,
    /// It did not work, which does no harm.
    Ignored(String),
    /// It did not work, and nothing after it was done.
    Failed(String),
    /// Ctrl-C came before it.
    Interrupted,
}

impl Outcome {
    /// Returns the word for scripts.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Already => "already",
            Outcome::Ignored(_) => "ignored",
            Outcome::Failed(_) => "failed",
            Outcome::Interrupted => "interrupted",
        }
    }

    /// Tells whether the plan ends here.
    pub fn is_final(&self) -> bool {
        matches!(self, Outcome::Failed(_) | Outcome::Interrupted)
    }
}

impl Step {
    fn new(title: impl Into<String>, action: Action) -> Step {
        Step {
            title: title.into(),
            action,
            skip: Skip::Never,
            may_fail: false,
        }
    }

    /// Runs a command.
    pub fn run(title: impl Into<String>, command: Cmd) -> Step {
        let already = &[];
        Step::new(title, Action::Run { command, already })
    }

    /// Writes a file that all may read.
    pub fn write(title: impl Into<String>, path: PathBuf, text: String) -> Step {
        let mode = 0o644;
        Step::new(title, Action::Write { path, text, mode })
    }

    /// Removes a file.
    pub fn remove(title: impl Into<String>, path: PathBuf) -> Step {
        Step::new(title, Action::Remove { path })
    }

    /// Ends the server of this user on a port.
    pub fn end(title: impl Into<String>, folder: PathBuf, port: u16, timeout: Duration) -> Step {
        Step::new(
            title,
            Action::End {
                folder,
                port,
                timeout,
            },
        )
    }

    /// Starts a program in the background.
    pub fn start(title: impl Into<String>, program: Program) -> Step {
        Step::new(title, Action::Start(program))
    }

    /// Waits until a server answers.
    pub fn answers(title: impl Into<String>, url: String, timeout: Duration) -> Step {
        Step::new(title, Action::Answers { url, timeout })
    }

    /// Says when it needs not be done.
    pub fn skip(self, skip: Skip) -> Step {
        Step { skip, ..self }
    }

    /// Takes these exit statuses of its command for "nothing had to be done".
    pub fn already(mut self, statuses: &'static [i32]) -> Step {
        if let Action::Run { already, .. } = &mut self.action {
            *already = statuses;
        }
        self
    }

    /// Lets the plan go on when it fails.
    pub fn may_fail(self) -> Step {
        Step {
            may_fail: true,
            ..self
        }
    }

    /// Returns what is done, as it would be typed; files follow with their content.
    pub fn shown(&self) -> String {
        let mut text = self.line();
        if let Action::Write { text: content, .. } = &self.action {
            for line in content.lines() {
                let _ = write!(text, "\n    | {line}");
            }
        }
        let when = match &self.skip {
            Skip::Never => String::new(),
            Skip::Already => "  (nothing to do)".to_owned(),
            Skip::Unchanged => "  (if something changed)".to_owned(),
            Skip::If(probe) => format!("  (unless `{probe}` succeeds)"),
            Skip::Unless(probe) => format!("  (if `{probe}` succeeds)"),
            Skip::UnchangedAnd(probe) => {
                format!("  (unless nothing changed and `{probe}` succeeds)")
            }
        };
        // After the first line, which has the command.
        match text.split_once('\n') {
            Some((first, rest)) => format!("{first}{when}\n{rest}"),
            None => text + &when,
        }
    }

    /// Returns what is done in one line.
    pub fn line(&self) -> String {
        match &self.action {
            Action::Run { command, .. } => format!("$ {command}"),
            Action::Write { path, mode, .. } => format!("write {} ({mode:04o})", path.display()),
            Action::Remove { path } => format!("remove {}", path.display()),
            Action::End {
                folder,
                port,
                timeout,
            } => format!(
                "stop the server of {}/server-{port}.json if it runs (SIGTERM, SIGKILL after {} s)",
                folder.display(),
                timeout.as_secs()
            ),
            Action::Start(program) => format!("$ {program}"),
            Action::Answers { url, timeout } => {
                format!(
                    "GET {url} until it answers, {} s at most",
                    timeout.as_secs()
                )
            }
        }
    }

    /// Does it.
    fn carry_out(&self, changed: bool, answers: &Answers<'_>) -> Outcome {
        let needless = match &self.skip {
            Skip::Never => false,
            Skip::Already => true,
            Skip::Unchanged => !changed,
            Skip::If(probe) => probe.succeeds(),
            Skip::Unless(probe) => !probe.succeeds(),
            Skip::UnchangedAnd(probe) => !changed && probe.succeeds(),
        };
        if needless {
            return Outcome::Already;
        }
        match self.action.carry_out(answers) {
            Ok(true) => Outcome::Done,
            Ok(false) => Outcome::Already,
            Err(error) if self.may_fail => Outcome::Ignored(error.to_string()),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Command(#[from] command::Error),
    #[error(transparent)]
    Write(#[from] file::Error),
    #[error("cannot remove {path}: {error}", path = .0.display(), error = .1)]
    Remove(PathBuf, #[source] io::Error),
    #[error(transparent)]
    End(#[from] instance::Error),
    #[error(transparent)]
    Start(#[from] background::Error),
    #[error("no answer within {} s: {}", .0.as_secs(), .1)]
    Silent(Duration, String),
}

/// Asks a server; an error says why it does not answer.
pub type Answers<'a> = dyn Fn(&str) -> Result<(), String> + 'a;

impl Action {
    /// Does it; tells whether anything had to be done.
    fn carry_out(&self, answers: &Answers<'_>) -> Result<bool, Error> {
        match self {
            Action::Run { command, already } => {
                let left = command.run()?;
                match left.status.code() {
                    Some(0) => Ok(true),
                    Some(status) if already.contains(&status) => Ok(false),
                    _ => Err(command.failed(&left).into()),
                }
            }
            Action::Write { path, text, mode } => Ok(file::write(path, text, *mode)?),
            Action::Remove { path } => match fs::remove_file(path) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(Error::Remove(path.clone(), error)),
            },
            Action::End {
                folder,
                port,
                timeout,
            } => match instance::on_port(folder, *port) {
                None => Ok(false),
                Some(instance) => {
                    instance.end(*timeout)?;
                    Ok(true)
                }
            },
            Action::Start(program) => Ok(program.start().map(|_| true)?),
            Action::Answers { url, timeout } => {
                let begun = Instant::now();
                loop {
                    match answers(url) {
                        Ok(()) => return Ok(true),
                        Err(why) if begun.elapsed() > *timeout => {
                            return Err(Error::Silent(*timeout, why));
                        }
                        Err(_) => std::thread::sleep(Duration::from_millis(100)),
                    }
                }
            }
        }
    }
}

/// Carries out a plan. `shown` is called before a step, without an outcome, and after it. Ctrl-C and
/// SIGTERM end the plan between two steps; the second one ends the program.
pub fn carry_out(
    steps: &[Step],
    answers: &Answers<'_>,
    shown: &mut dyn FnMut(&Step, Option<&Outcome>),
) -> io::Result<Vec<Outcome>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let over = Arc::new(AtomicBool::new(false));
    for (signal, status) in [(SIGINT, 130), (SIGTERM, 143)] {
        flag::register_conditional_default(signal, over.clone())?;
        // The first one finds the flag unset.
        flag::register_conditional_shutdown(signal, status, interrupted.clone())?;
        flag::register(signal, interrupted.clone())?;
    }
    let outcomes = carry_out_until(steps, answers, &interrupted, shown);
    // From now on a signal does what it always does.
    over.store(true, Ordering::SeqCst);
    Ok(outcomes)
}

fn carry_out_until(
    steps: &[Step],
    answers: &Answers<'_>,
    interrupted: &AtomicBool,
    shown: &mut dyn FnMut(&Step, Option<&Outcome>),
) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for step in steps {
        shown(step, None);
        let outcome = if interrupted.load(Ordering::SeqCst) {
            Outcome::Interrupted
        } else {
            step.carry_out(outcomes.contains(&Outcome::Done), answers)
        };
        shown(step, Some(&outcome));
        let is_final = outcome.is_final();
        outcomes.push(outcome);
        if is_final {
            break;
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn outcomes(steps: &[Step]) -> Vec<&'static str> {
        let goes_on = AtomicBool::new(false);
        let outcomes = carry_out_until(steps, &|_| Ok(()), &goes_on, &mut |_, _| {});
        outcomes.iter().map(Outcome::word).collect()
    }

    fn sh(script: &str) -> Cmd {
        Cmd::new("sh", ["-c", script])
    }

    #[test]
    fn a_plan_can_be_carried_out_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/x.service");
        let plan = |text: &str| {
            [
                Step::write("write", path.clone(), text.into()),
                Step::run("load", sh("exit 0")).skip(Skip::Unchanged),
                Step::run("add", sh("exit 11")).already(&[11]),
                Step::run("start", sh("exit 0")).skip(Skip::UnchangedAnd(sh("exit 0"))),
            ]
        };
        assert_eq!(outcomes(&plan("one")), ["done", "done", "already", "done"]);
        assert_eq!(outcomes(&plan("one")), ["already"; 4]);
        assert_eq!(outcomes(&plan("two")), ["done", "done", "already", "done"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        let backup = path.with_extension("service.bak");
        assert_eq!(fs::read_to_string(backup).unwrap(), "one");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o644);
        // Nothing half-written is left.
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
        let remove = [Step::remove("remove", path)];
        assert_eq!(outcomes(&remove), ["done"]);
        assert_eq!(outcomes(&remove), ["already"]);
    }

    #[test]
    fn a_failure_ends_a_plan_unless_it_does_no_harm() {
        let steps = |may_fail| {
            let fails = Step::run("fails", sh("echo no >&2; exit 1"));
            let fails = if may_fail { fails.may_fail() } else { fails };
            [fails, Step::run("after", sh("exit 0"))]
        };
        assert_eq!(outcomes(&steps(false)), ["failed"]);
        assert_eq!(outcomes(&steps(true)), ["ignored", "done"]);
        let stops = AtomicBool::new(true);
        let stopped = carry_out_until(&steps(true), &|_| Ok(()), &stops, &mut |_, _| {});
        assert_eq!(stopped, [Outcome::Interrupted]);
    }

    #[test]
    fn an_answer_is_waited_for_but_not_for_ever() {
        let asked = std::cell::Cell::new(0);
        let third = |_: &str| {
            asked.set(asked.get() + 1);
            if asked.get() < 3 {
                Err("not yet".to_owned())
            } else {
                Ok(())
            }
        };
        let wait = |timeout| Step::answers("wait", "http://x".into(), timeout);
        let long = wait(Duration::from_mins(1));
        assert_eq!(long.carry_out(false, &third), Outcome::Done);
        let short = wait(Duration::ZERO).carry_out(false, &|_| Err("refused".to_owned()));
        assert_eq!(
            short,
            Outcome::Failed("no answer within 0 s: refused".into())
        );
    }

    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("masked.service");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let step = Step::write("write", path.clone(), "text".into());
        let Outcome::Failed(why) = step.carry_out(false, &|_| Ok(())) else {
            panic!("it was written");
        };
        assert!(why.contains("/dev/null"), "{why}");
        assert!(fs::symlink_metadata(path).unwrap().is_symlink());
    }

    #[test]
    fn what_is_shown_has_the_whole_file() {
        let step = Step::write("the unit", "/etc/x.service".into(), "[Unit]\nA=b\n".into());
        let shown = step.shown();
        assert_eq!(
            shown,
            "write /etc/x.service (0644)\n    | [Unit]\n    | A=b"
        );
        let step = Step::run("r", Cmd::words("a b")).skip(Skip::If(Cmd::words("c d")));
        assert_eq!(step.shown(), "$ a b  (unless `c d` succeeds)");
    }
}

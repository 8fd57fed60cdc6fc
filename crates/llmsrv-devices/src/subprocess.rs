//! Work in another process: what a driver does to it, it does not do to us.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use crate::worker::{Job, Message};

/// How a worker is started: a program that calls [`crate::worker::work`] with its last argument and writes each
/// message as a line to stdout.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// The program.
    pub program: PathBuf,
    /// Arguments before the job.
    pub arguments: Vec<OsString>,
    /// How long a worker may take for one step.
    pub limit: Duration,
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It did all it was told to.
    Done,
    /// It broke off; this is how.
    Broken(String),
}

/// What does jobs.
pub trait Worker {
    /// Does a job, and calls `on` for each message.
    fn work(&self, job: &Job, on: &mut dyn FnMut(Message)) -> End;
}

impl Worker for Spawn {
    fn work(&self, job: &Job, on: &mut dyn FnMut(Message)) -> End {
        let Ok(job) = serde_json::to_string(job) else {
            return End::Broken("the job cannot be written down".into());
        };
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .arg(job)
            // The worker ends when this pipe does, so that none outlives us.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        match child {
            Ok(child) => self.attend(child, on),
            Err(error) => End::Broken(format!(
                "{} cannot be started: {error}",
                self.program.display()
            )),
        }
    }
}

impl Spawn {
    fn attend(&self, mut child: Child, on: &mut dyn FnMut(Message)) -> End {
        let (sender, messages) = mpsc::channel();
        let stdout = child.stdout.take();
        // The threads end when the worker does; one that cannot be ended keeps them, and nothing waits for them.
        std::thread::spawn(move || {
            for line in stdout.into_iter().flat_map(lines) {
                // Whatever else drivers print is not for us.
                if let Ok(message) = serde_json::from_str(&line)
                    && sender.send(message).is_err()
                {
                    break;
                }
            }
        });
        let (complaint, complaints) = mpsc::channel();
        let stderr = child.stderr.take();
        std::thread::spawn(move || {
            let last = stderr
                .into_iter()
                .flat_map(lines)
                .filter(|line| !line.trim().is_empty())
                .last();
            let _ = complaint.send(last);
        });
        loop {
            match messages.recv_timeout(self.limit) {
                Ok(Message::Done) => {
                    // What happens while the driver is closed is of no interest.
                    ended(&mut child, GRACE);
                    return End::Done;
                }
                Ok(message) => on(message),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let killed = child.kill().is_ok() && ended(&mut child, GRACE).is_some();
                    let stuck = if killed {
                        ""
                    } else {
                        "; its process cannot be ended"
                    };
                    return End::Broken(format!(
                        "no answer for {} s{stuck}",
                        self.limit.as_secs_f32()
                    ));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        let Some(status) = ended(&mut child, GRACE) else {
            let _ = child.kill();
            return End::Broken("it stopped answering".into());
        };
        let last = complaints.recv_timeout(GRACE).ok().flatten();
        let last = last
            .map(|line| format!(": {}", line.trim()))
            .unwrap_or_default();
        End::Broken(format!("{}{last}", how(status)))
    }
}

/// Waits for the end of a process, but not for ever.
fn ended(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            return child.try_wait().ok().flatten();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn how(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    let signal = status
        .signal()
        .and_then(|signal| nix::sys::signal::Signal::try_from(signal).ok());
    match signal {
        Some(signal) => format!("the process of the driver crashed ({signal})"),
        None => format!("the process of the driver ended ({status})"),
    }
}

/// Lines of at most [`LONGEST`] bytes; what is longer comes in parts.
fn lines(from: impl Read) -> impl Iterator<Item = String> {
    let mut from = BufReader::new(from);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match from.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(1..) => Some(String::from_utf8_lossy(&line).into_owned()),
            _ => None,
        }
    })
}

const LONGEST: u64 = 1 << 20;
/// How long a process may take to end.
const GRACE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Api;

    fn run(script: &str, limit: Duration) -> (End, Vec<Message>) {
        let spawn = Spawn {
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            limit,
        };
        let mut messages = Vec::new();
        let end = spawn.work(&Job::List { api: Api::OpenCl }, &mut |message| {
            messages.push(message);
        });
        (end, messages)
    }

    #[test]
    fn a_worker_that_ends_well_is_heard_among_the_noise_of_drivers() {
        let script = r#"echo 'Driver banner {'; echo '{"begin":"a"}'; head -c 3000000 /dev/zero; echo; echo '"done"'"#;
        let (end, messages) = run(script, Duration::from_secs(20));
        assert_eq!(
            (end, messages),
            (End::Done, vec![Message::Begin("a".into())])
        );
    }

    #[test]
    fn crashes_hangs_and_refusals_are_told_apart() {
        let long = Duration::from_secs(20);
        let broken = |script, limit| match run(script, limit).0 {
            End::Broken(how) => how,
            End::Done => panic!("{script}"),
        };
        assert!(broken("kill -SEGV $$", long).contains("SIGSEGV"));
        assert!(broken("echo 'no firmware' >&2; exit 3", long).contains("3): no firmware"));
        let begun = Instant::now();
        assert!(
            broken("exec sleep 60", Duration::from_millis(200)).contains("no answer for 0.2 s")
        );
        assert!(begun.elapsed() < Duration::from_secs(10));
        let nothing = Spawn {
            program: "/nonexistent".into(),
            arguments: Vec::new(),
            limit: long,
        };
        let end = nothing.work(&Job::List { api: Api::OpenCl }, &mut |_| ());
        assert!(matches!(end, End::Broken(how) if how.contains("/nonexistent")));
    }
}

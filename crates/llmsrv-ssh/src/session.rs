//! The command lines of ssh, and the session itself.

use std::{ffi::OsString, path::Path};

use tokio::process::Command;

use crate::{
    Error, Interrupt, Settings, Ssh, children, control::Control, known_errors::KnownError,
    ssh::PROGRAM,
};

impl Ssh {
    /// Asks ssh what its settings say about the destination.
    pub async fn settings(&self, interrupt: &mut Interrupt) -> Result<Settings, Error> {
        let mut command = Command::new(PROGRAM);
        command
            .arg("-G")
            .args(self.options())
            .args(["--", &self.destination.to_string()]);
        let output = children::output(&mut command, interrupt).await?;
        if !output.status.success() {
            return Err(KnownError::from_log(&output.stderr, self.jump.is_some()).into());
        }
        Ok(Settings::parse(&output.stdout))
    }
}

/// The session itself.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// The remote command; none for a login shell. One word is a line for the remote shell, as with
    /// ssh; several are passed on word by word, whatever they contain.
    pub command: Vec<String>,
    /// A terminal also for a command.
    pub terminal: bool,
}

impl Session {
    /// Returns the command line of the session: `ssh`, its options, the host, the command.
    pub(crate) fn args(&self, ssh: &Ssh, control: Option<&Path>) -> Result<Vec<OsString>, Error> {
        let mut args = ssh.options();
        if let Some(control) = control {
            args.extend([OsString::from("-S"), control.into()]);
            args.extend(["-o", "ControlMaster=no"].map(OsString::from));
        }
        if self.terminal {
            args.push("-t".into());
        }
        args.extend(["--".into(), ssh.destination.to_string().into()]);
        args.extend(self.remote_line()?.map(OsString::from));
        Ok(args)
    }

    fn remote_line(&self) -> Result<Option<String>, Error> {
        match self.command.as_slice() {
            [] => Ok(None),
            [line] if line.contains('\0') => Err(Error::NulInCommand),
            [line] => Ok(Some(line.clone())),
            words => shlex::try_join(words.iter().map(String::as_str))
                .map(Some)
                .map_err(|_| Error::NulInCommand),
        }
    }

    /// Becomes ssh: only returns if that failed. The connection of `control` carries the session and
    /// ends after it.
    pub fn exec(&self, ssh: &Ssh, control: Control) -> Error {
        use std::os::unix::process::CommandExt as _;
        let args = match self.args(ssh, Some(control.path())) {
            Ok(args) => args,
            Err(error) => return error,
        };
        control.leave_open();
        let source = std::process::Command::new(PROGRAM).args(args).exec();
        Error::Run {
            program: PROGRAM.to_owned(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_is_a_line_and_several_are_words() {
        let line = |words: &[&str]| {
            let command = words.iter().map(ToString::to_string).collect();
            let session = Session {
                command,
                terminal: false,
            };
            session.remote_line().unwrap()
        };
        assert_eq!(line(&[]), None);
        assert_eq!(line(&["cd /tmp && ls *"]).unwrap(), "cd /tmp && ls *");
        assert_eq!(
            line(&["echo", "a  b", "it's", "$HOME"]).unwrap(),
            "echo 'a  b' \"it's\" '$HOME'"
        );
    }
}

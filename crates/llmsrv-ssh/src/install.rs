//! Appends a public key to the host's `authorized_keys`, once, with the modes that sshd asks for.

use openssh::Stdio;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{Error, Interrupt, control::Control, key::blob};

/// What the host did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Whether the key is new there.
    pub is_new: bool,
    /// Whether others may write to the home directory there, for which sshd refuses all keys.
    pub is_home_open: bool,
}

/// Appends the key of `line`, unless it is there.
pub async fn install(
    control: &Control,
    line: &str,
    interrupt: &mut Interrupt,
) -> Result<Installed, Error> {
    let script = script(line)?;
    let steps = control.steps();
    let work = run(&steps, &script);
    let output = interrupt.unless(work).await??;
    // What the host's shell prints at its start does not matter.
    let said = |word: &str| output.lines().any(|line| line.trim() == word);
    if !said(DONE) {
        let why = output
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .unwrap_or("/bin/sh does not run there");
        let printable = why.chars().filter(|c| !c.is_control()).take(200);
        return Err(Error::NotInstalled(printable.collect()));
    }
    Ok(Installed {
        is_new: said(ADDED),
        is_home_open: said(HOME_OPEN),
    })
}

async fn run(steps: &openssh::Session, script: &str) -> Result<String, Error> {
    let lost = |error: openssh::Error| Error::Lost(std::io::Error::other(error));
    // Whatever the login shell is, it can start this; the script comes through the pipe.
    let mut command = steps.raw_command("/bin/sh -s 2>&1");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().await.map_err(lost)?;
    let (stdin, stdout) = (child.stdin().take(), child.stdout().take());
    if let Some(mut stdin) = stdin {
        // A host that does not read it says so in its output.
        let _ = stdin.write_all(script.as_bytes()).await;
        let _ = stdin.shutdown().await;
    }
    let mut output = Vec::new();
    if let Some(stdout) = stdout {
        let mut limited = stdout.take(MAX_OUTPUT);
        limited
            .read_to_end(&mut output)
            .await
            .map_err(Error::Lost)?;
    }
    // What was said counts, not the status: the host's shell may change it.
    drop(child);
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Returns the script: POSIX, all of it a function, so that nothing runs before everything is there.
fn script(line: &str) -> Result<String, Error> {
    let refuse = || Error::NotInstalled("the public key is not one line".into());
    let (kind, data) = blob(line).ok_or_else(refuse)?;
    let quote = |text: &str| {
        shlex::try_quote(text)
            .map(String::from)
            .map_err(|_| refuse())
    };
    if line.contains(['\n', '\r']) {
        return Err(refuse());
    }
    Ok(SCRIPT
        .replace("@LINE@", &quote(line)?)
        .replace("@KEY@", &quote(&format!("{kind} {data}"))?))
}

const DONE: &str = "llmsrv-key: done";
const ADDED: &str = "llmsrv-key: added";
const HOME_OPEN: &str = "llmsrv-key: home is open";

const MAX_OUTPUT: u64 = 1 << 16;

/// A key that is there with options (`from="…" ssh-ed25519 …`) counts, a commented one does not. A last line without
/// an end gets one.
const SCRIPT: &str = r#"llmsrv_install() {
    line=@LINE@
    key=@KEY@
    file=.ssh/authorized_keys
    umask 077
    cd || return
    mkdir -p .ssh || return
    chmod 700 .ssh || return
    has() { grep -v '^[[:space:]]*#' "$file" 2>/dev/null | grep -qF -e "$key"; }
    if ! has; then
        if [ -s "$file" ] && [ -n "$(tail -c 1 "$file")" ]; then
            line="
$line"
        fi
        printf '%s\n' "$line" >>"$file" || return
        has || return
        echo 'llmsrv-key: added'
    fi
    chmod 600 "$file" || return
    if command -v restorecon >/dev/null 2>&1; then
        restorecon -F .ssh "$file" >/dev/null 2>&1
    fi
    case "$(ls -ld . | cut -c 6,9)" in
    *w*) echo 'llmsrv-key: home is open' ;;
    esac
    echo 'llmsrv-key: done'
}
llmsrv_install
exit
"#;

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write as _,
        os::unix::fs::PermissionsExt as _,
        path::Path,
        process::{Command, Stdio},
    };

    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAA";

    fn run(home: &Path, line: &str) -> String {
        let mut child = Command::new("/bin/sh")
            .arg("-s")
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(script(line).unwrap().as_bytes()).unwrap();
        drop(stdin);
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn the_script_appends_once_whatever_is_there() {
        let other = "ssh-rsa AAAA other";
        let comment = format!("{KEY} it's \"$HOME\" `id`");
        for (before, is_new, after) in [
            (None, true, format!("{comment}\n")),
            (Some(String::new()), true, format!("{comment}\n")),
            (
                Some(format!("{other}\n")),
                true,
                format!("{other}\n{comment}\n"),
            ),
            (
                Some(other.to_owned()),
                true,
                format!("{other}\n{comment}\n"),
            ),
            (
                Some(format!("# {KEY}\n")),
                true,
                format!("# {KEY}\n{comment}\n"),
            ),
            (
                Some(format!("from=\"h\" {KEY} x\n")),
                false,
                format!("from=\"h\" {KEY} x\n"),
            ),
        ] {
            let home = tempfile::tempdir().unwrap();
            let file = home.path().join(".ssh/authorized_keys");
            if let Some(before) = &before {
                fs::create_dir(home.path().join(".ssh")).unwrap();
                fs::write(&file, before).unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
            }
            let said = run(home.path(), &comment);
            assert_eq!(said.contains(ADDED), is_new, "{before:?}: {said}");
            assert!(said.contains(DONE), "{before:?}: {said}");
            let again = run(home.path(), &comment);
            assert!(again.contains(DONE) && !again.contains(ADDED), "{again}");
            assert_eq!(fs::read_to_string(&file).unwrap(), after);
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(
                (mode(&file), mode(&home.path().join(".ssh"))),
                (0o600, 0o700)
            );
        }
    }

    #[test]
    fn a_home_that_others_may_write_to_is_told() {
        let home = tempfile::tempdir().unwrap();
        assert!(!run(home.path(), KEY).contains(HOME_OPEN));
        for mode in [0o770, 0o702] {
            fs::set_permissions(home.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert!(run(home.path(), KEY).contains(HOME_OPEN), "{mode:o}");
        }
    }

    #[test]
    fn what_is_no_line_is_no_key() {
        for line in ["", "ssh-ed25519", "ssh-ed25519 AAAA\nrm"] {
            assert!(script(line).is_err(), "{line:?}");
        }
    }
}

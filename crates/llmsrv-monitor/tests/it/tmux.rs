//! A terminal that can be looked at: tmux with a server of its own.
#![allow(
    dead_code,
    reason = "each of the test crates that have this uses another part"
)]

use std::{
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A terminal with a shell in it; ended when dropped.
pub struct Tmux {
    dir: tempfile::TempDir,
}

impl Tmux {
    /// Opens a terminal.
    pub fn open(width: u16, height: u16) -> Tmux {
        let tmux = Tmux {
            dir: tempfile::tempdir().unwrap(),
        };
        let (width, height) = (width.to_string(), height.to_string());
        let shell = "env -u LC_ALL LC_CTYPE=C.UTF-8 PS1='ready> ' sh";
        tmux.ask(&["new-session", "-d", "-x", &width, "-y", &height, shell]);
        tmux.wait_for("ready>");
        tmux
    }

    /// Types a line and Enter.
    pub fn line(&self, text: &str) {
        self.write(text);
        self.key("Enter");
    }

    /// Types a part of a line.
    pub fn write(&self, text: &str) {
        self.ask(&["send-keys", "-l", text]);
    }

    /// Presses a key by tmux's name for it.
    pub fn key(&self, name: &str) {
        self.ask(&["send-keys", name]);
    }

    pub fn resize(&self, width: u16, height: u16) {
        let (width, height) = (width.to_string(), height.to_string());
        self.ask(&["resize-window", "-x", &width, "-y", &height]);
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.ask(&["capture-pane", "-p"])
    }

    /// What is on the screen, with its colours.
    pub fn colored(&self) -> String {
        self.ask(&["capture-pane", "-p", "-e"])
    }

    /// Tells whether a program shows a screen of its own, and whether the cursor is seen.
    pub fn flags(&self) -> (bool, bool) {
        let flags = self.ask(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        (flags.starts_with('1'), flags.trim().ends_with('1'))
    }

    /// Waits until `text` is on the screen, which is returned.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        self.wait_until(text, |screen| screen.contains(text))
    }

    /// A screen is taken when it stays as it is: one that is being drawn is half of two.
    #[track_caller]
    pub fn wait_until(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        let mut seen: Vec<String> = Vec::new();
        loop {
            let screen = self.screen();
            if is(&screen) {
                // Some never stay the same for long.
                if seen.last() == Some(&screen) || seen.len() == 10 {
                    return screen;
                }
                seen.push(screen);
                thread::sleep(Duration::from_millis(50));
                continue;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "no {what} in:\n{screen}"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The process that the shell has started.
    pub fn child(&self) -> Option<u32> {
        let shell = self.ask(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        children.unwrap().split_whitespace().next()?.parse().ok()
    }

    /// A folder that is removed with it.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    fn ask(&self, args: &[&str]) -> String {
        let output = self.command().args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(self.dir.path().join("socket"))
            .env_remove("TMUX")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").output();
    }
}

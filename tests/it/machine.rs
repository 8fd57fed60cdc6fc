//! A machine whose commands are fakes: each writes down how it was called.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command};

use crate::util::{Output, Sandbox};

/// A machine whose commands are fakes.
pub struct Machine {
    pub sandbox: Sandbox,
}

/// A manager that runs and knows no unit.
pub const SYSTEMCTL: &str = r#"
case "$*" in
  *is-system-running*) echo running ;;
  *show*) if [ -e "$STATE/loaded" ]; then while read -r line; do echo "$line"; done <"$STATE/loaded"; else echo LoadState=not-found; fi ;;
  *is-active*) [ -e "$STATE/active" ] && read -r is <"$STATE/active" && [ "$is" = yes ] ;;
  *is-enabled*) [ -e "$STATE/enabled" ] ;;
  *" start "*|"start "*|*"restart "*) echo yes >"$STATE/active" ;;
  *"stop "*) echo no >"$STATE/active" ;;
  *"enable "*) : >"$STATE/enabled" ;;
esac
"#;

impl Machine {
    pub fn new() -> Machine {
        let sandbox = Sandbox::new();
        for folder in ["bin", "units", "faked"] {
            fs::create_dir(sandbox.path().join(folder)).unwrap();
        }
        Machine { sandbox }
    }

    pub fn with(commands: &[(&str, &str)]) -> Machine {
        let machine = Machine::new();
        for (name, script) in commands {
            machine.fake(name, script);
        }
        machine
    }

    /// Puts a command on the path: it writes its words down, and does as the script says.
    pub fn fake(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        let (calls, state) = (self.path("calls"), self.path("faked"));
        let text = format!(
            "#!/bin/sh\nSTATE='{}'\n{{ printf '%s' {name}; for a in \"$@\"; do printf '|%s' \"$a\"; done; echo; }} >>'{}'\n{script}\n",
            state.display(),
            calls.display()
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path().join(name)
    }

    /// Writes a file that the fakes look at.
    pub fn state(&self, name: &str, text: &str) {
        fs::write(self.path("faked").join(name), text).unwrap();
    }

    pub fn unit_file(&self) -> PathBuf {
        self.path("units/llmsrv-network.service")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.command();
        command
            .args(args)
            // Nothing of the real machine.
            .env("PATH", self.path("bin"))
            .env("LLMSRV_UNIT_DIR", self.path("units"))
            .env("LLMSRV_LOG_FILE", self.path("server.log"));
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        Output::of(&mut self.command(args))
    }

    /// Returns the calls since the last time, without those that only ask.
    pub fn changes(&self) -> Vec<String> {
        let calls = self.calls();
        let asks = |call: &String| {
            [
                "is-system-running",
                "|show|",
                "is-active",
                "is-enabled",
                "--state",
                "--list-",
                "|-S|",
                "|-C|",
                "ufw|status",
                "--json",
            ]
            .iter()
            .any(|query| call.contains(query))
        };
        calls.into_iter().filter(|call| !asks(call)).collect()
    }

    pub fn calls(&self) -> Vec<String> {
        let path = self.path("calls");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        text.lines().map(str::to_owned).collect()
    }
}

/// A port that nobody has now.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// How the steps of a plan ended.
pub fn outcomes(output: &Output) -> Vec<String> {
    let json = output.json();
    let steps = json["steps"].as_array().unwrap().iter();
    steps
        .map(|step| step["outcome"].as_str().unwrap().to_owned())
        .collect()
}

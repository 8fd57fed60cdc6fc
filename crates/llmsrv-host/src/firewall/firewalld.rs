//! firewalld. A rule is made twice, for now and for later, so that nothing else is loaded again.

use super::{Activity, Keeps, Place, Rule, Tool};
use crate::command::{self, Cmd};

pub(super) const TOOL: Tool = Tool {
    name: "firewalld",
    look,
    places,
    manages: true,
    keeps: Keeps::Always,
};

fn look() -> Activity {
    let state = Cmd::words("firewall-cmd --state");
    match state.run() {
        // It says so with a status of its own.
        Ok(left) if left.status.code() == Some(NOT_RUNNING) => Activity::Inactive,
        Ok(left) if left.status.success() => Activity::Active,
        Ok(left) => Activity::Unknown(state.failed(&left).to_string()),
        Err(command::Error::Missing(_)) => Activity::Absent,
        Err(error) => Activity::Unknown(error.to_string()),
    }
}

fn places(port: u16) -> Result<Vec<Place>, command::Error> {
    let now = place("firewalld", &[], port)?;
    let later = place("firewalld, permanently", &["--permanent"], port)?;
    Ok(vec![now, later])
}

fn place(name: &str, scope: &'static [&'static str], port: u16) -> Result<Place, command::Error> {
    let command = move |option: String| {
        let option = std::iter::once(option);
        Cmd::new(
            "firewall-cmd",
            scope.iter().map(|arg| (*arg).to_owned()).chain(option),
        )
    };
    let mut rules = Vec::new();
    let ports = command("--list-ports".into()).must()?.stdout;
    if ports
        .split_whitespace()
        .any(|it| it == format!("{port}/tcp"))
    {
        rules.push(Rule {
            source: None,
            is_ours: true,
            delete: command(format!("--remove-port={port}/tcp")),
        });
    }
    let rich = command("--list-rich-rules".into()).must()?.stdout;
    for source in super::PRIVATE {
        let rule = rich_rule(source, port);
        if rich.lines().any(|line| line.trim() == rule) {
            rules.push(Rule {
                source: Some(source.to_owned()),
                is_ours: true,
                delete: command(format!("--remove-rich-rule={rule}")),
            });
        }
    }
    let add = move |source: Option<&str>| {
        Some(command(match source {
            None => format!("--add-port={port}/tcp"),
            Some(source) => format!("--add-rich-rule={}", rich_rule(source, port)),
        }))
    };
    Ok(Place {
        name: name.to_owned(),
        rules,
        add: Box::new(add),
    })
}

fn rich_rule(source: &str, port: u16) -> String {
    let family = if source.contains(':') { "ipv6" } else { "ipv4" };
    format!(
        "rule family=\"{family}\" source address=\"{source}\" port port=\"{port}\" protocol=\"tcp\" accept"
    )
}

const NOT_RUNNING: i32 = 252;

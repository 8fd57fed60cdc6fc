//! ufw. Our rules carry a comment.

use super::{Activity, Keeps, Place, Rule, Tool, ask};
use crate::command::{self, Cmd};

pub(super) const TOOL: Tool = Tool {
    name: "ufw",
    look,
    places,
    manages: true,
    keeps: Keeps::Always,
};

fn status() -> Cmd {
    Cmd::words("ufw status")
}

fn look() -> Activity {
    ask(&status(), |text| {
        text.lines().any(|line| line.trim() == "Status: active")
    })
}

fn places(port: u16) -> Result<Vec<Place>, command::Error> {
    let add = move |source: Option<&str>| {
        Some(Cmd::words(&format!(
            "ufw {} comment {COMMENT}",
            rule(source, port)
        )))
    };
    Ok(vec![Place {
        name: "ufw".to_owned(),
        rules: rules(&status().must()?.stdout, port),
        add: Box::new(add),
    }])
}

fn rule(source: Option<&str>, port: u16) -> String {
    match source {
        None => format!("allow {port}/tcp"),
        Some(source) => format!("allow proto tcp from {source} to any port {port}"),
    }
}

/// Reads the columns To, Action, From and, after `#`, the comment.
fn rules(status: &str, port: u16) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for line in status.lines() {
        let (line, comment) = line.split_once('#').unwrap_or((line, ""));
        let line = line.replace("(v6)", "");
        let mut columns = line
            .split("  ")
            .map(str::trim)
            .filter(|column| !column.is_empty());
        let (to, action, from) = (columns.next(), columns.next(), columns.next());
        let to_port = to.is_some_and(|to| to == format!("{port}/tcp") || to == port.to_string());
        let (true, Some("ALLOW" | "ALLOW IN"), Some(from)) = (to_port, action, from) else {
            continue;
        };
        let source = (from != "Anywhere").then(|| from.to_owned());
        let is_ours = comment.trim() == COMMENT;
        // One rule for both families is shown twice.
        if rules
            .iter()
            .any(|it| (&it.source, it.is_ours) == (&source, is_ours))
        {
            continue;
        }
        rules.push(Rule {
            delete: Cmd::words(&format!("ufw delete {}", rule(source.as_deref(), port))),
            source,
            is_ours,
        });
    }
    rules
}

const COMMENT: &str = "llmsrv";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_rules_is_read() {
        let status = "\
Status: active

To                         Action      From
--                         ------      ----
22/tcp                     ALLOW       Anywhere                  
11434/tcp                  ALLOW       Anywhere                   # llmsrv
11434/tcp                  ALLOW       10.0.0.0/8                 # somebody
11434                      DENY        Anywhere                  
11434/udp                  ALLOW       Anywhere                  
11434/tcp (v6)             ALLOW       Anywhere (v6)              # llmsrv
11434/tcp                  ALLOW       fc00::/7                   # llmsrv
";
        let rules = rules(status, 11434);
        let shown: Vec<_> = rules
            .iter()
            .map(|rule| {
                (
                    rule.source.as_deref(),
                    rule.is_ours,
                    rule.delete.to_string(),
                )
            })
            .collect();
        let delete =
            |from: &str| format!("ufw delete allow proto tcp from {from} to any port 11434");
        assert_eq!(
            shown,
            [
                (None, true, "ufw delete allow 11434/tcp".to_owned()),
                (Some("10.0.0.0/8"), false, delete("10.0.0.0/8")),
                (Some("fc00::/7"), true, delete("fc00::/7")),
            ]
        );
    }
}

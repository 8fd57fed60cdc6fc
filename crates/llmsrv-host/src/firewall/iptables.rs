//! iptables and ip6tables. Our rules are at the top and carry a comment.

use super::{Activity, Keeps, Place, Rule, Tool, ask, mark};
use crate::command::{self, Cmd};

pub(super) const TOOL: Tool = Tool {
    name: "iptables",
    look,
    places,
    manages: false,
    keeps: Keeps::Until("`netfilter-persistent save` keeps it where that is installed"),
};

/// One for each family.
const PROGRAMS: [&str; 2] = ["iptables", "ip6tables"];

fn list(program: &str) -> Cmd {
    Cmd::new(program, ["-S", "INPUT"])
}

fn look() -> Activity {
    let [v4, v6] = PROGRAMS.map(|program| ask(&list(program), turns_away));
    match (v4, v6) {
        (Activity::Active, _) | (_, Activity::Active) => Activity::Active,
        (v4, _) => v4,
    }
}

/// Tells whether a chain turns anything away.
fn turns_away(chain: &str) -> bool {
    let drops = |target: &str| matches!(target, "DROP" | "REJECT");
    chain.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["-P", "INPUT", policy] => drops(policy),
            words => words
                .windows(2)
                .any(|pair| pair[0] == "-j" && drops(pair[1])),
        }
    })
}

fn places(port: u16) -> Result<Vec<Place>, command::Error> {
    let mut places = Vec::new();
    for program in PROGRAMS {
        let left = match list(program).must() {
            Ok(left) => left,
            Err(command::Error::Missing(_)) => continue,
            Err(error) => return Err(error),
        };
        if turns_away(&left.stdout) {
            places.push(Place {
                name: program.to_owned(),
                rules: rules(program, &left.stdout, port),
                add: Box::new(move |source| add(program, source, port)),
            });
        }
    }
    Ok(places)
}

fn add(program: &str, source: Option<&str>, port: u16) -> Option<Cmd> {
    let from = match source {
        None => String::new(),
        Some(source) if source.contains(':') == (program == "ip6tables") => format!("-s {source} "),
        Some(_) => return None,
    };
    let mark = mark(port);
    Some(Cmd::words(&format!(
        "{program} -I INPUT 1 {from}-p tcp --dport {port} -m comment --comment {mark} -j ACCEPT"
    )))
}

/// Reads `-A INPUT -s SOURCE -p tcp -m tcp --dport PORT -m comment --comment MARK -j ACCEPT`.
fn rules(program: &str, chain: &str, port: u16) -> Vec<Rule> {
    let rule = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |flag: &str| {
            let at = words.iter().position(|word| *word == flag)?;
            words.get(at + 1).copied()
        };
        let (source, comment) = (after("-s"), after("--comment"));
        // Whatever else it asks for makes it another rule.
        let known = 2
            + if source.is_some() { 2 } else { 0 }
            + if comment.is_some() { 4 } else { 0 }
            + if words.windows(2).any(|pair| pair == ["-m", "tcp"]) {
                2
            } else {
                0
            }
            + 6;
        let is_it = words.first() == Some(&"-A")
            && after("-p") == Some("tcp")
            && after("--dport") == Some(port.to_string().as_str())
            && after("-j") == Some("ACCEPT")
            && words.len() == known;
        let delete = std::iter::once("-D").chain(words.iter().skip(1).copied());
        is_it.then(|| Rule {
            source: source.map(str::to_owned),
            is_ours: comment == Some(&mark(port)),
            delete: Cmd::new(program, delete),
        })
    };
    chain.lines().filter_map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_back() {
        let chain = "\
-P INPUT DROP
-A INPUT -s 10.0.0.0/8 -p tcp -m tcp --dport 11434 -m comment --comment llmsrv-11434 -j ACCEPT
-A INPUT -p tcp -m tcp --dport 11434 -j ACCEPT
-A INPUT -i eth1 -p tcp -m tcp --dport 11434 -j ACCEPT
-A INPUT -p tcp -m tcp --dport 114 -m comment --comment llmsrv-114 -j ACCEPT
";
        assert!(turns_away(chain));
        assert!(turns_away(
            "-P INPUT ACCEPT\n-A INPUT -j REJECT --reject-with x\n"
        ));
        assert!(!turns_away("-P INPUT ACCEPT\n-A INPUT -i lo -j ACCEPT\n"));
        let rules = rules("iptables", chain, 11434);
        let shown: Vec<_> = rules
            .iter()
            .map(|rule| (rule.source.as_deref(), rule.is_ours))
            .collect();
        assert_eq!(shown, [(Some("10.0.0.0/8"), true), (None, false)]);
        assert_eq!(
            rules[0].delete.to_string(),
            "iptables -D INPUT -s 10.0.0.0/8 -p tcp -m tcp --dport 11434 -m comment --comment llmsrv-11434 -j ACCEPT"
        );
        assert_eq!(add("iptables", Some("fc00::/7"), 1), None);
        assert_eq!(
            add("ip6tables", None, 80).unwrap().to_string(),
            "ip6tables -I INPUT 1 -p tcp --dport 80 -m comment --comment llmsrv-80 -j ACCEPT"
        );
    }
}

//! nftables. A packet is let in only if every chain at the hook `input` accepts it: an accept in a
//! table of our own would not count where another table drops. So the rule goes to the top of each
//! chain that turns packets away, with a mark as its comment; nothing else of it is touched.

use serde_json::Value;

use super::{Activity, Keeps, Place, Rule, Tool, ask, mark};
use crate::command::{self, Cmd};

pub(super) const TOOL: Tool = Tool {
    name: "nftables",
    look,
    places,
    manages: false,
    keeps: Keeps::Until("`nft list ruleset > /etc/nftables.conf` keeps it"),
};

fn list() -> Cmd {
    Cmd::words("nft --json list ruleset")
}

fn look() -> Activity {
    ask(&list(), |text| !chains(&objects(text)).is_empty())
}

fn places(port: u16) -> Result<Vec<Place>, command::Error> {
    let objects = objects(&list().must()?.stdout);
    let place = |chain: Chain| Place {
        name: format!("nftables, {} {} {}", chain.family, chain.table, chain.name),
        rules: chain.rules(&objects, port),
        add: Box::new(move |source| chain.add(source, port)),
    };
    Ok(chains(&objects).into_iter().map(place).collect())
}

fn objects(text: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(text).unwrap_or_default();
    list["nftables"].as_array().cloned().unwrap_or_default()
}

/// A chain which packets for this machine pass.
struct Chain {
    family: String,
    table: String,
    name: String,
}

/// Finds the chains that turn packets away. Those of iptables are left to its command.
fn chains(objects: &[Value]) -> Vec<Chain> {
    let chain = |object: &Value| {
        let it = &object["chain"];
        let text = |key: &str| {
            it[key]
                .as_str()
                .filter(|text| is_name(text))
                .map(str::to_owned)
        };
        let chain = Chain {
            family: text("family")?,
            table: text("table")?,
            name: text("name")?,
        };
        let is_input = it["hook"] == "input" && it["type"] == "filter";
        let family = matches!(chain.family.as_str(), "inet" | "ip" | "ip6");
        let is_of_iptables = chain.table == "filter" && chain.name == "INPUT";
        let drops = it["policy"] == "drop" || chain.has_dropping_rule(objects);
        (is_input && family && !is_of_iptables && drops).then_some(chain)
    };
    objects.iter().filter_map(chain).collect()
}

impl Chain {
    /// Returns the rules of the chain.
    fn all<'a>(&self, objects: &'a [Value]) -> impl Iterator<Item = &'a Value> {
        let (family, table, name) = (self.family.clone(), self.table.clone(), self.name.clone());
        let rules = objects.iter().map(|object| &object["rule"]);
        rules.filter(move |rule| {
            rule["family"] == family.as_str()
                && rule["table"] == table.as_str()
                && rule["chain"] == name.as_str()
        })
    }

    fn has_dropping_rule(&self, objects: &[Value]) -> bool {
        let turns_away = |part: &Value| part.get("drop").is_some() || part.get("reject").is_some();
        self.all(objects)
            .any(|rule| expression(rule).any(turns_away))
    }

    /// Returns the rules that let the port in, as far as they are as simple as ours.
    fn rules(&self, objects: &[Value], port: u16) -> Vec<Rule> {
        let rule = |rule: &Value| {
            let accepts = expression(rule).any(|part| part.get("accept").is_some());
            let matches: Vec<&Value> = expression(rule)
                .filter_map(|part| part.get("match"))
                .collect();
            let field = |it: &Value| it["left"]["payload"]["field"].as_str().map(str::to_owned);
            let is_port =
                |it: &&Value| field(it).as_deref() == Some("dport") && it["right"] == port;
            let simple = matches
                .iter()
                .all(|it| is_port(it) || field(it).as_deref() == Some("saddr"));
            if !accepts || !simple || !matches.iter().any(is_port) {
                return None;
            }
            let source = matches
                .iter()
                .find(|it| field(it).as_deref() == Some("saddr"))
                .map(|it| {
                    let prefix = &it["right"]["prefix"];
                    match (prefix["addr"].as_str(), prefix["len"].as_u64()) {
                        (Some(address), Some(length)) => format!("{address}/{length}"),
                        _ => it["right"].to_string(),
                    }
                });
            let delete = format!("nft delete rule {self} handle {}", rule["handle"].as_u64()?);
            Some(Rule {
                source,
                is_ours: rule["comment"] == mark(port).as_str(),
                delete: Cmd::words(&delete),
            })
        };
        self.all(objects).filter_map(rule).collect()
    }

    fn add(&self, source: Option<&str>, port: u16) -> Option<Cmd> {
        let from = match source {
            None => String::new(),
            Some(source) => {
                let family = if source.contains(':') { "ip6" } else { "ip" };
                if self.family != "inet" && self.family != family {
                    return None;
                }
                format!("{family} saddr {source} ")
            }
        };
        let mark = mark(port);
        Some(Cmd::words(&format!(
            "nft insert rule {self} {from}tcp dport {port} accept comment {mark}"
        )))
    }
}

impl std::fmt::Display for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.family, self.table, self.name)
    }
}

fn expression(rule: &Value) -> impl Iterator<Item = &Value> {
    rule["expr"].as_array().into_iter().flatten()
}

/// Names become words of a command.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    !text.is_empty() && text.chars().all(plain) && !text.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `nft` of Debian 12 writes it.
    const RULESET: &str = r#"{"nftables": [
        {"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
        {"table": {"family": "inet", "name": "filter", "handle": 1}},
        {"chain": {"family": "inet", "table": "filter", "name": "input", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
        {"chain": {"family": "inet", "table": "filter", "name": "forward", "handle": 2, "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
        {"chain": {"family": "ip", "table": "filter", "name": "INPUT", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
        {"chain": {"family": "ip6", "table": "open", "name": "input", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}},
        {"chain": {"family": "ip6", "table": "half", "name": "input", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}},
        {"rule": {"family": "ip6", "table": "half", "chain": "input", "handle": 2, "expr": [{"reject": null}]}},
        {"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 4, "comment": "llmsrv-11434", "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 11434}}, {"accept": null}]}},
        {"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 5, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"prefix": {"addr": "10.0.0.0", "len": 8}}}}, {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 11434}}, {"accept": null}]}},
        {"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 6, "expr": [{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "lo"}}, {"accept": null}]}}
    ]}"#;

    #[test]
    fn chains_that_turn_away_are_found_with_their_rules() {
        let objects = objects(RULESET);
        let chains = chains(&objects);
        let names: Vec<String> = chains.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["inet filter input", "ip6 half input"]);
        let rules = chains[0].rules(&objects, 11434);
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
        assert_eq!(
            shown,
            [
                (
                    None,
                    true,
                    "nft delete rule inet filter input handle 4".to_owned()
                ),
                (
                    Some("10.0.0.0/8"),
                    false,
                    "nft delete rule inet filter input handle 5".to_owned()
                ),
            ]
        );
        assert!(chains[0].rules(&objects, 80).is_empty());
    }

    #[test]
    fn a_source_goes_where_it_can_come_from() {
        let [inet, ip6] = ["inet", "ip6"].map(|family| Chain {
            family: family.into(),
            table: "t".into(),
            name: "c".into(),
        });
        assert_eq!(
            inet.add(Some("fc00::/7"), 80).unwrap().to_string(),
            "nft insert rule inet t c ip6 saddr fc00::/7 tcp dport 80 accept comment llmsrv-80"
        );
        assert_eq!(ip6.add(Some("10.0.0.0/8"), 80), None);
        assert_eq!(
            ip6.add(None, 80).unwrap().to_string(),
            "nft insert rule ip6 t c tcp dport 80 accept comment llmsrv-80"
        );
        assert!(!is_name("a; flush ruleset") && !is_name("") && is_name("my_table-1"));
    }
}

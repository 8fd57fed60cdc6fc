//! Spellings of the script this program replaces, turned into today's before they are parsed. The
//! script served the network: so does a port alone, unless an address is set.

use std::ffi::{OsStr, OsString};

/// Actions that used to be flags of the program itself, and are those of `net` now.
const ACTIONS: &[&str] = &[
    "--stop",
    "--status",
    "--test",
    "--examples",
    "--install-model",
    "--logs",
];

/// Rewrites the arguments (the program's name first): a port and nothing else means `serve`, one of
/// the actions, wherever it stands, means `net`.
pub fn translate(args: Vec<OsString>) -> Vec<OsString> {
    let typed = args.get(1..).unwrap_or_default();
    let first_is_flag = typed
        .first()
        .is_some_and(|arg| arg.as_encoded_bytes().starts_with(b"-"));
    if !first_is_flag {
        return args;
    }
    let mut words = typed.iter().filter_map(|arg| arg.to_str());
    let command: &[&str] = if words.any(|word| ACTIONS.contains(&word)) {
        &["net"]
    } else if is_port_only(typed) {
        &["serve", "--network-unless-set"]
    } else {
        return args;
    };
    let mut translated = args;
    translated.splice(1..1, command.iter().map(OsString::from));
    translated
}

fn is_port_only(typed: &[OsString]) -> bool {
    match typed {
        [flag, _value] => flag == OsStr::new("-p") || flag == OsStr::new("--port"),
        [flag] => {
            let flag = flag.as_encoded_bytes();
            flag.starts_with(b"--port=") || (flag.starts_with(b"-p") && flag.len() > 2)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(typed: &str) -> String {
        let args = std::iter::once("llmsrv")
            .chain(typed.split_whitespace())
            .map(OsString::from)
            .collect();
        let args = translate(args);
        args.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn a_port_alone_means_to_serve_the_network() {
        for (typed, parsed) in [
            ("", "llmsrv"),
            ("-p 8080", "llmsrv serve --network-unless-set -p 8080"),
            ("-p8080", "llmsrv serve --network-unless-set -p8080"),
            (
                "--port 8080",
                "llmsrv serve --network-unless-set --port 8080",
            ),
            (
                "--port=8080",
                "llmsrv serve --network-unless-set --port=8080",
            ),
            ("-p 8080 list", "llmsrv -p 8080 list"),
            ("-p", "llmsrv -p"),
            ("--help", "llmsrv --help"),
            (
                "run default what does --stop mean",
                "llmsrv run default what does --stop mean",
            ),
        ] {
            assert_eq!(translated(typed), parsed, "{typed}");
        }
    }

    #[test]
    fn actions_are_those_of_net_wherever_they_stand() {
        for (typed, parsed) in [
            ("--stop", "llmsrv net --stop"),
            ("--status -p 80", "llmsrv net --status -p 80"),
            ("-p 80 --logs", "llmsrv net -p 80 --logs"),
            ("--install-model", "llmsrv net --install-model"),
        ] {
            assert_eq!(translated(typed), parsed, "{typed}");
        }
    }
}

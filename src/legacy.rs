//! Spellings of the script this program replaces, turned into today's before they are parsed.

use std::ffi::{OsStr, OsString};

use crate::failure::{Code, Failure};

/// Actions that used to be flags, and that this version does not have yet.
const UNAVAILABLE: &[&str] = &[
    "--stop",
    "--status",
    "--test",
    "--examples",
    "--install-model",
    "--logs",
];

/// Rewrites the arguments (the program's name first): a port and nothing else means `serve`.
pub fn translate(args: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let typed = args.get(1..).unwrap_or_default();
    let first_is_flag = typed
        .first()
        .is_some_and(|arg| arg.as_encoded_bytes().starts_with(b"-"));
    if !first_is_flag {
        return Ok(args);
    }
    if let Some(flag) = typed
        .iter()
        .filter_map(|arg| arg.to_str())
        .find(|arg| UNAVAILABLE.contains(arg))
    {
        return Err(Failure::new(
            Code::Usage,
            format!("{flag} is not available in this version"),
        )
        .hint(
            "`llmsrv help` lists the commands; `llmsrv serve` runs the server in the foreground",
        ));
    }
    if is_port_only(typed) {
        let mut translated = args;
        translated.insert(1, "serve".into());
        return Ok(translated);
    }
    Ok(args)
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

    fn translated(typed: &str) -> Result<String, String> {
        let args = std::iter::once("llmsrv")
            .chain(typed.split_whitespace())
            .map(OsString::from)
            .collect();
        match translate(args) {
            Ok(args) => Ok(args.join(OsStr::new(" ")).into_string().unwrap()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    #[test]
    fn a_port_alone_means_serve() {
        for (typed, parsed) in [
            ("", "llmsrv"),
            ("-p 8080", "llmsrv serve -p 8080"),
            ("-p8080", "llmsrv serve -p8080"),
            ("--port 8080", "llmsrv serve --port 8080"),
            ("--port=8080", "llmsrv serve --port=8080"),
            ("-p 8080 list", "llmsrv -p 8080 list"),
            ("-p", "llmsrv -p"),
            ("--help", "llmsrv --help"),
            (
                "run default what does --stop mean",
                "llmsrv run default what does --stop mean",
            ),
        ] {
            assert_eq!(translated(typed).as_deref(), Ok(parsed), "{typed}");
        }
    }

    #[test]
    fn actions_of_other_versions_are_refused_by_name() {
        for typed in [
            "--stop",
            "--status -p 80",
            "-p 80 --logs",
            "--install-model",
        ] {
            assert!(
                translated(typed).unwrap_err().contains("not available"),
                "{typed}"
            );
        }
    }
}

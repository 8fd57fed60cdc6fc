//! `logkit replay --dry-run`: logged commands as one would type them again, oldest first.

use logkit::{Entry, query::Filter, repr};

use crate::{
    args::ReplayArgs,
    failure::Failure,
    filter::{filter, limit},
    render,
    settings::Database,
};

/// What takes the place of a secret in what is logged.
const REDACTED: &str = "***REDACTED***";

/// Does `replay`. Nothing is run.
pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let filter = filter(&args.filter)?;
    let database = Database::find(&args.database)?;
    let mut rows = database.reader_for(&args.filter)?.rows(&Filter {
        module: Some(crate::run::MODULE.to_owned()),
        limit: Some(limit(args.limit)),
        ..filter
    })?;
    rows.reverse();
    if rows.is_empty() {
        render::line("No commands found.")?;
        return Ok(());
    }
    render::results(|out| {
        for row in &rows {
            match command(&row.entry) {
                Ok(command) => writeln!(out, "{command}")?,
                Err(why) => writeln!(
                    out,
                    "# {} cannot be replayed: {why}",
                    render::one_line(&row.entry.function_name)
                )?,
            }
        }
        Ok(())
    })
}

/// Returns the line that a shell would run, in the folder it was run in.
fn command(entry: &Entry) -> Result<String, &'static str> {
    let args = repr::parse_tuple(&entry.args).ok_or("its arguments cannot be read")?;
    let mut words = vec![entry.function_name.to_string()];
    words.extend(args);
    if words.iter().any(|word| word.contains(REDACTED)) {
        return Err("an argument was a secret and is not in the log");
    }
    if words.iter().any(|word| word.contains("... [truncated ")) {
        return Err("an argument was too long for the log");
    }
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let line = words.join(" ");
    Ok(match entry.extra.get("cwd").and_then(|cwd| cwd.as_str()) {
        Some(cwd) => format!("(cd {} && {line})", quoted(cwd)),
        None => line,
    })
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    // A line stays a line: what would break it is written as an escape of `$'...'`.
    if word.contains(char::is_control) {
        let mut text = String::from("$'");
        for c in word.chars() {
            match c {
                '\'' | '\\' => text.extend(['\\', c]),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                c if c.is_control() => text.push_str(&escaped(c)),
                c => text.push(c),
            }
        }
        text.push('\'');
        return text;
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Writes the bytes of a character, each as `\xHH`.
fn escaped(c: char) -> String {
    use std::fmt::Write as _;

    let (mut buffer, mut escaped) = ([0; 4], String::new());
    for byte in c.encode_utf8(&mut buffer).bytes() {
        let _ = write!(escaped, "\\x{byte:02x}");
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commands_are_written_as_one_would_type_them() {
        let entry = |args: &str, cwd: Option<&str>| {
            let mut entry = Entry {
                function_name: "make".into(),
                args: args.to_owned().into(),
                ..Entry::default()
            };
            if let Some(cwd) = cwd {
                entry.extra.insert("cwd".into(), cwd.into());
            }
            entry
        };
        assert_eq!(
            command(&entry("('-j', 'a b', \"it's\")", Some("/x"))).unwrap(),
            "(cd /x && make -j 'a b' 'it'\\''s')"
        );
        assert_eq!(command(&entry("()", None)).unwrap(), "make");
        assert!(command(&entry("('--token=***REDACTED***',)", None)).is_err());
        assert!(command(&entry("('a', 'b... [truncated 9 chars]", None)).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn a_shell_reads_quoted_words_back(word in "[^\0]{0,12}") {
            let output = Command::new("bash")
                .args(["-c", &format!("printf %s {}", quoted(&word))])
                .output()
                .unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
    }
}

//! What a command is written in, from its name or from the first line of its file.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

/// Names of commands, lower case, and ends of the names of scripts.
const LANGUAGES: &[(&str, &[&str], &[&str])] = &[
    (
        "bash",
        &["bash", "sh", "zsh", "dash", "ksh"],
        &[".sh", ".bash", ".zsh"],
    ),
    (
        "python",
        &[
            "python", "python2", "python3", "uv", "pip", "pip3", "pytest",
        ],
        &[".py"],
    ),
    ("go", &["go"], &[".go"]),
    ("rust", &["cargo", "rustc"], &[]),
    (
        "node",
        &["node", "npm", "npx", "bun", "deno"],
        &[".js", ".mjs", ".cjs", ".ts"],
    ),
    ("docker", &["docker", "docker-compose", "podman"], &[]),
    ("make", &["make", "gmake", "cmake"], &[]),
    ("java", &["java", "gradle", "mvn"], &[]),
    ("ruby", &["ruby"], &[".rb"]),
    ("perl", &["perl"], &[".pl"]),
    ("php", &["php"], &[".php"]),
    ("dotnet", &["dotnet"], &[]),
];

/// Names the language of `command`, whose file is `file` if that is known; `shell` when nothing
/// says more.
pub(crate) fn language(command: &OsStr, file: Option<PathBuf>) -> &'static str {
    let typed = command.to_string_lossy();
    by_name(&typed)
        .or_else(|| interpreter(&file?).and_then(|name| by_name(&name)))
        .unwrap_or("shell")
}

fn by_name(command: &str) -> Option<&'static str> {
    let base = command.rsplit('/').next().unwrap_or(command).to_lowercase();
    // `python3.12` is python.
    let plain = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    LANGUAGES
        .iter()
        .find(|(_, names, ends)| {
            names.contains(&base.as_str())
                || names.contains(&plain)
                || ends.iter().any(|end| base.ends_with(end))
        })
        .map(|(language, _, _)| *language)
}

/// Returns the program that the first line of a script names: `#!/usr/bin/env -S python3 -u` is
/// `python3`.
fn interpreter(file: &Path) -> Option<String> {
    let mut line = Vec::new();
    File::open(file)
        .ok()?
        .take(256)
        .read_to_end(&mut line)
        .ok()?;
    let line = line.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let program = words.next()?;
    if program.rsplit('/').next() == Some("env") {
        return words
            .find(|word| !word.starts_with('-') && !word.contains('='))
            .map(str::to_owned);
    }
    Some(program.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_tell_the_language() {
        for (command, expected) in [
            ("bash", "bash"),
            ("/bin/sh", "bash"),
            ("Deploy.SH", "bash"),
            ("python3.12", "python"),
            ("./tool.py", "python"),
            ("pytest", "python"),
            ("go", "go"),
            ("cargo", "rust"),
            ("npx", "node"),
            ("server.ts", "node"),
            ("podman", "docker"),
            ("cmake", "make"),
            ("mvn", "java"),
            ("ls", "shell"),
            ("cargo-nextest", "shell"),
            ("", "shell"),
        ] {
            assert_eq!(language(OsStr::new(command), None), expected, "{command}");
        }
    }

    #[test]
    fn the_first_line_of_a_script_tells_the_language() {
        let dir = tempfile::tempdir().unwrap();
        for (line, expected) in [
            ("#!/usr/bin/env python3\nprint()", "python"),
            ("#!/usr/bin/env -S A=1 perl -w", "perl"),
            ("#! /bin/dash -e\n", "bash"),
            ("#!\n", "shell"),
            ("\x7fELF", "shell"),
        ] {
            let file = dir.path().join("tool");
            fs::write(&file, line).unwrap();
            assert_eq!(
                language(OsStr::new("tool"), Some(file)),
                expected,
                "{line:?}"
            );
        }
    }
}

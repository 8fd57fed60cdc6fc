//! The commands that README and `docs/` show: each one is known to the program, and those of the blocks are run.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::util::{Output, Sandbox};

/// Commands of blocks that are not run here, by how they begin, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("cargo ", "builds the program"),
    ("LLMSRV_TEST_PROGRAM=", "builds the program"),
    ("tests/run", "runs this test"),
    ("pip install ", "packages of Python: tests/python"),
    ("python ", "benchmarks of the Python package"),
    (
        "sudo ",
        "the service: the tests of `service` and `firewall`",
    ),
    (
        "llmsrv service status",
        "there is no service: the tests of `service`",
    ),
    ("llmsrv ssh ", "there is no such host: the tests of `ssh`"),
    ("llmsrv testgpu", "the tests of `devices`"),
    (
        "llmsrv monitor --json --interval",
        "writes until it is ended: the tests of `monitor`",
    ),
    (
        "llmsrv logs -f",
        "follows until it is ended: the tests of `background`",
    ),
    (
        "logkit tail -f",
        "follows until it is ended: the tests of `logkit`",
    ),
    (
        "llmsrv serve --network",
        "opens the machine: the tests of `secure`",
    ),
    (
        "LLMSRV_GPU=1 llmsrv serve",
        "serves until it is ended: the tests of `gpu`",
    ),
    (
        "logkit serve",
        "serves until it is ended: the tests of `logkit`",
    ),
    (
        "LOGKIT_API_KEY=",
        "opens the machine: the tests of `logkit`",
    ),
    (
        "curl localhost:8080/",
        "asks that service: the tests of `logkit`",
    ),
    ("curl -H ", "asks a server that is made up"),
    (
        "curl -d '{\"model\":\"bge-reranker",
        "there is no such model: the tests of `embed`",
    ),
    (
        "curl localhost:11434/api/create -d '{\"model\": \"mine\", \"files\"",
        "names a file that is made up: the tests of `create`",
    ),
    (
        "llmsrv create small --from big",
        "wants a model that is not quantized: the tests of `create`",
    ),
    (
        "curl localhost:11434/api/create -d '{\"model\": \"mine\", \"from\": \"big\"",
        "wants a model that is not quantized: the tests of `create`",
    ),
    (
        "llmsrv imatrix ",
        "wants a model that is not quantized: the tests of `quality`",
    ),
    (
        "llmsrv bench ",
        "measures for minutes: the tests of `bench`",
    ),
    ("pid=$(pgrep", "measures for minutes"),
    ("spent", "measures for minutes"),
];
/// Models that pages speak of, which are copies of the built-in one here.
const MODELS: &[&str] = &[
    "all-minilm",
    "gpt-oss:20b",
    "qwen2.5-coder:1.5b",
    "qwen2.5-coder:7b",
    "qwen3-coder:30b",
];
/// Tools that pages start, which need not be here.
const TOOLS: &[&str] = &["claude", "codex", "opencode", "aider", "open-webui"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A page: its name, the lines of its blocks for a shell, and the commands of this program within its sentences.
struct Page {
    name: String,
    blocks: Vec<String>,
    sentences: Vec<String>,
}

/// What is typed, without the prompt of a shell and what a comment says of it.
fn typed(line: &str) -> &str {
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let line = line.split(" # ").next().unwrap().trim();
    line.strip_prefix('#').map_or(line, |_| "")
}

/// The words of a command of this program, from its name on; `None` for other commands.
fn ours(line: &str) -> Option<Vec<String>> {
    let words = shlex::split(line)?;
    let start = words.iter().position(|word| !word.contains('='))?;
    let is_ours = ["llmsrv", "logkit"].contains(&words[start].as_str());
    (is_ours && words.len() > start + 1).then(|| words[start..].to_vec())
}

fn page(path: &Path) -> Page {
    let text = fs::read_to_string(path).unwrap();
    let mut page = Page {
        name: path.strip_prefix(root()).unwrap().display().to_string(),
        blocks: Vec::new(),
        sentences: Vec::new(),
    };
    let mut block = None;
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = block.is_none().then(|| language.trim());
        } else if let Some(language) = block {
            // In a console, output stands between the commands.
            if language == "sh" || (language == "console" && line.starts_with("$ ")) {
                page.blocks
                    .extend(Some(typed(line).to_owned()).filter(|it| !it.is_empty()));
            }
        } else {
            let code = line.split('`').skip(1).step_by(2);
            page.sentences
                .extend(code.filter(|it| ours(it).is_some()).map(str::to_owned));
        }
    }
    page
}

fn pages() -> Vec<Page> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let mut paths: Vec<PathBuf> = docs.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "md"));
    paths.push(root().join("README.md"));
    paths.sort();
    paths.iter().map(|path| page(path)).collect()
}

/// Whether a word stands for something that the reader chooses, such as `MODEL`, or says what may be left out.
fn is_placeholder(word: &str) -> bool {
    let is_name = word
        .chars()
        .all(|c| c.is_ascii_uppercase() || ".@_".contains(c));
    is_name || word.starts_with('[') || word.ends_with(']') || word.contains(['|', '…'])
}

/// The arguments of a command that this program takes apart; others belong to a command that it runs.
fn own_arguments(words: &[String]) -> Vec<&str> {
    let runs = words.len() > 2 && words[0] == "logkit" && words[1] == "run";
    let end = words
        .iter()
        .position(|word| word == "--" || word.starts_with('>'));
    let end = if runs { 2 } else { end.unwrap_or(words.len()) };
    let own = words[1..end].iter().map(String::as_str);
    own.filter(|word| !is_placeholder(word)).collect()
}

#[test]
fn every_command_of_the_documents_is_known() {
    let sandbox = Sandbox::new();
    let links = programs(&sandbox);
    let (mut n_known, mut failed) = (0, Vec::new());
    for page in pages() {
        for line in page.blocks.iter().chain(&page.sentences) {
            // Each part of a pipe.
            for words in line.split(" | ").filter_map(ours) {
                let mut command = sandbox.command();
                let program = links.join(&words[0]);
                let known = Output::of(
                    Command::new(program)
                        .env_clear()
                        .envs(
                            command
                                .env("NO_COLOR", "1")
                                .get_envs()
                                .filter_map(|(name, value)| Some((name, value?))),
                        )
                        .current_dir(sandbox.path())
                        .args(own_arguments(&words))
                        .arg("--help"),
                );
                // A sentence may name an option without its value.
                if known.code != 0 && !known.stderr.contains("error: a value is required for") {
                    failed.push(format!("{}: {line}: {}", page.name, known.stderr));
                }
                n_known += 1;
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(n_known > 150, "{n_known}");
}

/// A folder with this program by both its names.
fn programs(sandbox: &Sandbox) -> PathBuf {
    let folder = sandbox.path().join("programs");
    fs::create_dir(&folder).unwrap();
    for name in ["llmsrv", "logkit"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_llmsrv"), folder.join(name)).unwrap();
    }
    folder
}

/// A home with the models, files and tools that the pages speak of.
fn home(sandbox: &Sandbox, page: &Page) -> PathBuf {
    let folder = programs(sandbox);
    for tool in TOOLS {
        fs::write(folder.join(tool), "#!/bin/sh\n").unwrap();
        fs::set_permissions(folder.join(tool), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let work = sandbox.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(
        work.join("Modelfile"),
        "FROM default\nSYSTEM You are brief.\n",
    )
    .unwrap();
    fs::write(work.join("Makefile"), "test:\n\t@echo fine\n").unwrap();
    Output::of(Command::new("git").args(["init", "-q"]).current_dir(&work)).ok();
    let words = page
        .blocks
        .iter()
        .flat_map(|line| line.split([' ', '"', '\'']));
    let models: BTreeSet<&str> = words.filter(|word| MODELS.contains(word)).collect();
    for model in models {
        sandbox.run(&["cp", "default", model]).ok();
    }
    // The database that a program on the page has written.
    let mut log = sandbox.command();
    log.args(["logkit", "run", "true"])
        .env("LOGKIT_DB", work.join("logs.db"));
    Output::of(&mut log).ok();
    work
}

#[test]
fn the_blocks_of_the_documents_run() {
    let mut unused: BTreeSet<&str> = ELSEWHERE.iter().map(|(start, _)| *start).collect();
    let (mut n_run, mut failed) = (0, Vec::new());
    for page in pages() {
        let elsewhere = |line: &str| ELSEWHERE.iter().find(|(start, _)| line.starts_with(start));
        let mut lines = Vec::new();
        for line in &page.blocks {
            match elsewhere(line) {
                Some((start, _)) => {
                    unused.remove(start);
                }
                None => lines.push(line.as_str()),
            }
        }
        if lines.is_empty() {
            continue;
        }
        let sandbox = Sandbox::new();
        let work = home(&sandbox, &page);
        let port = {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap().port()
        };
        let host = format!("127.0.0.1:{port}");
        let shell = |line: &str| {
            let chats = line.starts_with("llmsrv run ") && line.split(' ').count() == 3;
            let line = format!("{line}{}", if chats { " <<< Hello!" } else { "" });
            let line = line
                .replace("localhost:11434", &host)
                .replace("curl ", "curl -sS --fail-with-body ");
            let path = format!(
                "{}:{}",
                sandbox.path().join("programs").display(),
                std::env::var("PATH").unwrap()
            );
            let mut command = Command::new("bash");
            let mut clean = sandbox.command();
            command
                .env_clear()
                .envs(
                    clean
                        .env("PATH", path)
                        .env("LLMSRV_HOST", &host)
                        .get_envs()
                        .filter_map(|(name, value)| Some((name, value?))),
                )
                .current_dir(&work)
                .args(["-o", "pipefail", "-c", &line]);
            Output::of(&mut command)
        };
        let starts = lines
            .iter()
            .any(|line| line.starts_with("llmsrv serve --background"));
        if !starts {
            shell("llmsrv serve --background").ok();
        }
        for line in lines {
            let done = shell(line);
            if done.code != 0 {
                failed.push(format!(
                    "{}: {line}: {}{}",
                    page.name, done.stdout, done.stderr
                ));
            }
            n_run += 1;
        }
        shell("llmsrv stop").ok();
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(unused.is_empty(), "no page has these any more: {unused:?}");
    assert!(n_run > 25, "{n_run}");
}

//! `llmsrv launch`: tools get what leads them to the server, and nothing is written.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use crate::util::{Output, Sandbox};

/// A tool that says what it was given.
const TOOL: &str = "#!/bin/sh\nenv | sort\nfor arg; do echo \"arg $arg\"; done\nexit 7\n";

/// A folder of programs with this tool alone.
fn with_tool(sandbox: &Sandbox, name: &str) -> Command {
    let folder = sandbox.path().join("programs");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, TOOL).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = sandbox.command();
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    command
}

#[test]
fn a_tool_is_started_with_its_variables_and_arguments() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let url = &server.url;
    let cases: &[(&str, &[&str])] = &[
        (
            "claude",
            &[
                "ANTHROPIC_BASE_URL={url}\n",
                "ANTHROPIC_AUTH_TOKEN=llmsrv\n",
                "API_TIMEOUT_MS=3600000\n",
                "CLAUDE_CODE_ATTRIBUTION_HEADER=0\n",
                "CLAUDE_STREAM_IDLE_TIMEOUT_MS=3600000\n",
                "arg --model\narg default\narg -p\narg two words\n",
            ],
        ),
        (
            "codex",
            &[
                "LLMSRV_API_KEY=llmsrv\n",
                "base_url=\"{url}/v1\"",
                "stream_idle_timeout_ms=3600000}",
                "arg model=\"default\"\narg -p\n",
            ],
        ),
        (
            "opencode",
            &["\"baseURL\":\"{url}/v1\"", "\"model\":\"llmsrv/default\""],
        ),
        (
            "aider",
            &[
                "OPENAI_API_BASE={url}/v1\n",
                "arg --model\narg openai/default\n",
            ],
        ),
        (
            "open-webui",
            &[
                "ENABLE_OPENAI_API=False\n",
                "OLLAMA_BASE_URL={url}\n",
                "arg serve\narg --host\narg 127.0.0.1\n",
            ],
        ),
    ];
    for (tool, expected) in cases {
        let output = Output::of(
            with_tool(&sandbox, tool)
                .args(["launch", tool, "--host", url])
                .args(["-m", "llmsrv-tiny-code", "--", "-p", "two words"]),
        );
        // The tool's own exit status.
        assert_eq!(output.code, 7, "{output:?}");
        assert!(output.stderr.contains(url.as_str()), "{output:?}");
        assert!(output.stderr.contains("calls no tools"), "{output:?}");
        for part in *expected {
            let part = part
                .replace("{url}", url)
                .replace("default", "llmsrv-tiny-code");
            assert!(output.stdout.contains(&part), "{tool}: {part}: {output:?}");
        }
    }
}

#[test]
fn what_is_printed_can_be_run_and_tells_no_key() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    for key in [None, Some("k-1234567890")] {
        for tool in ["claude", "codex", "opencode", "aider", "open-webui"] {
            let mut command = with_tool(&sandbox, tool);
            command.args([
                "launch",
                tool,
                "--print",
                "--host",
                &server.url,
                "-m",
                "it's",
            ]);
            if let Some(key) = key {
                command.env("LLMSRV_API_KEY", key);
            }
            let printed = Output::of(&mut command).ok().stdout;
            assert!(!printed.contains("k-1234567890"), "{printed}");
            let mut shell = Command::new("sh");
            shell.args(["-euc", &printed]).env_clear();
            shell.env(
                "PATH",
                sandbox.path().join("programs").display().to_string() + ":/usr/bin:/bin",
            );
            if let Some(key) = key {
                shell.env("LLMSRV_API_KEY", key);
            }
            let output = Output::of(&mut shell);
            assert_eq!(output.code, 7, "{printed}\n{output:?}");
            if tool != "open-webui" {
                assert!(output.stdout.contains("it's"), "{printed}\n{output:?}");
            }
            let token = key.unwrap_or("llmsrv");
            let is_told = output.stdout.contains(&format!("={token}\n"));
            assert_eq!(is_told, key.is_some() || tool != "open-webui", "{output:?}");
        }
    }
}

#[test]
fn settings_and_addresses_are_printed() {
    let sandbox = Sandbox::new();
    for (tool, expected) in [
        (
            "vscode",
            "\"url\": \"http://127.0.0.1:9/v1/chat/completions\"",
        ),
        ("continue", "apiBase: \"http://127.0.0.1:9/v1\""),
        ("cline", "Model ID: some"),
        ("zed", "\"api_url\": \"http://127.0.0.1:9\""),
        ("langchain", "model=\"some\""),
    ] {
        let output = sandbox
            .run(&["launch", tool, "-m", "some", "--host", "127.0.0.1:9"])
            .ok();
        assert!(output.stdout.contains(expected), "{output:?}");
    }
    let output = sandbox.run(&["launch", "--host", "127.0.0.1:9"]).ok();
    for expected in ["claude", "Zed", "http://127.0.0.1:9/v1"] {
        assert!(output.stdout.contains(expected), "{output:?}");
    }
    let listed = sandbox
        .run(&["launch", "--json", "--host", "127.0.0.1:9"])
        .ok()
        .json();
    assert_eq!(listed["openai"], "http://127.0.0.1:9/v1");
    assert_eq!(listed["tools"].as_array().unwrap().len(), 10);
}

#[test]
fn what_cannot_be_launched_is_told() {
    let sandbox = Sandbox::new();
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["launch", "cluade"],
            2,
            "did you mean `llmsrv launch claude`?",
        ),
        (
            &["launch", "claude"],
            1,
            "`npm install -g @anthropic-ai/claude-code` installs it",
        ),
        (
            &["launch", "aider", "--host", "127.0.0.1:9"],
            69,
            "no server answers",
        ),
    ];
    for (args, status, text) in cases {
        let mut command = with_tool(&sandbox, "aider");
        let folder = sandbox.path().join("programs");
        let output = Output::of(command.env("PATH", folder).args(*args));
        assert_eq!(output.code, *status, "{output:?}");
        assert!(output.stderr.contains(text), "{output:?}");
    }
    let server = sandbox.serve();
    let output = Output::of(with_tool(&sandbox, "aider").args([
        "launch",
        "aider",
        "-m",
        "nothing",
        "--host",
        &server.url,
    ]));
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("cannot use nothing"), "{output:?}");
}

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
                "base_url = \"{url}/v1\"",
                "stream_idle_timeout_ms = 3600000 }",
                "arg model=\"default\"\n",
                "arg model_context_window=1024\narg -p\n",
            ],
        ),
        (
            "opencode",
            &[
                "\"baseURL\":\"{url}/v1\"",
                "\"models\":{\"default\":{\"limit\":{\"context\":1024,\"output\":256}}}",
                "\"model\":\"llmsrv/default\"",
            ],
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

#[test]
fn settings_are_written_with_a_backup_and_taken_back() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let home = sandbox.path().to_path_buf();
    let zed = home.join(".config/zed/settings.json");
    fs::create_dir_all(zed.parent().unwrap()).unwrap();
    let before = "// mine\n{ \"theme\": \"One\" }\n";
    fs::write(&zed, before).unwrap();
    fs::set_permissions(&zed, fs::Permissions::from_mode(0o640)).unwrap();
    let launch = |tool: &str, args: &[&str]| {
        let mut command = sandbox.command();
        command.env_remove("XDG_CONFIG_HOME");
        command
            .args(["launch", tool, "--host", &server.url])
            .args(args);
        command
    };

    // Nobody said yes.
    let output = Output::of(&mut launch("zed", &["--write"]));
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.stderr.contains("--yes says it"), "{output:?}");
    assert_eq!(fs::read_to_string(&zed).unwrap(), before);

    let output = Output::of(&mut launch("zed", &["--write", "--yes"])).ok();
    assert!(
        output.stderr.contains("settings.json.before-llmsrv"),
        "{output:?}"
    );
    let written = fs::read_to_string(&zed).unwrap();
    assert!(written.starts_with("// mine\n{"), "{written}");
    assert!(
        written.contains(&format!("\"api_url\": \"{}\"", server.url)),
        "{written}"
    );
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&zed), 0o640);
    assert_eq!(mode(&zed.with_extension("json.before-llmsrv")), 0o640);
    let output = Output::of(&mut launch("zed", &["--write", "--yes"])).ok();
    assert!(output.stderr.contains("says so already"), "{output:?}");
    Output::of(&mut launch("zed", &["--undo", "--yes"])).ok();
    assert_eq!(fs::read_to_string(&zed).unwrap(), before);
    assert!(!zed.with_extension("json.before-llmsrv").exists());
    let output = Output::of(&mut launch("zed", &["--undo", "--yes"])).ok();
    assert!(output.stderr.contains("nothing of llmsrv"), "{output:?}");

    // Files that were not there are gone again; one with a key is for its owner.
    for (tool, file) in [
        ("claude", ".claude/settings.json"),
        ("codex", ".codex/llmsrv.config.toml"),
        ("opencode", ".config/opencode/opencode.json"),
        ("vscode", ".config/Code/User/chatLanguageModels.json"),
        ("continue", ".continue/config.yaml"),
    ] {
        let file = home.join(file);
        let mut command = launch(
            tool,
            &["--write", "--yes", "--json", "-m", "llmsrv-tiny-code"],
        );
        let output = Output::of(command.env("LLMSRV_API_KEY", "k-1234567890")).ok();
        assert!(!output.stdout.contains("k-1234567890"), "{output:?}");
        assert_eq!(output.json()["changed"], true, "{output:?}");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("llmsrv-tiny-code"), "{tool}: {text}");
        let told = matches!(tool, "claude" | "vscode");
        assert_eq!(text.contains("k-1234567890"), told, "{tool}: {text}");
        assert_eq!(mode(&file), 0o600, "{tool}");
        Output::of(&mut launch(tool, &["--undo", "--yes"])).ok();
        assert!(!file.exists(), "{tool}");
    }
    for (args, hint) in [
        (&["aider", "--write"][..], "`llmsrv launch aider --print`"),
        (&["cline", "--undo"], "`llmsrv launch cline --print`"),
        (&["--write"], "TOOL"),
    ] {
        let output = Output::of(sandbox.command().arg("launch").args(args));
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.stderr.contains(hint), "{output:?}");
    }

    // What cannot be read is left alone, and so is a link.
    fs::write(&zed, "{ nonsense").unwrap();
    let output = Output::of(&mut launch("zed", &["--write", "--yes"]));
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("stays as it is"), "{output:?}");
    let own = sandbox.path().join("zed.json");
    fs::write(&own, "{}").unwrap();
    fs::remove_file(&zed).unwrap();
    std::os::unix::fs::symlink(&own, &zed).unwrap();
    Output::of(&mut launch("zed", &["--write", "--yes"])).ok();
    assert!(fs::symlink_metadata(&zed).unwrap().is_symlink());
    assert!(fs::read_to_string(&own).unwrap().contains(&server.url));
}

//! Programs of others that can use the server, and what leads each of them to it.
//!
//! The names of variables, options and settings are those of the tools' own documentation;
//! `docs/clients.md` describes each of them.

use clap_complete::CompletionCandidate;
use serde_json::json;

/// A program that can use the server.
pub struct Tool {
    /// What is typed.
    pub name: &'static str,
    /// What it is, for people.
    pub title: &'static str,
    /// How it comes to the server.
    pub way: Way,
}

/// How a tool comes to the server.
pub enum Way {
    /// It is started with variables and arguments.
    Start {
        /// The program on the `PATH`.
        program: &'static str,
        /// The command that installs it.
        install: &'static str,
        /// Its variables.
        variables: fn(&Place) -> Vec<(&'static str, String)>,
        /// Its arguments.
        args: fn(&Place) -> Vec<String>,
    },
    /// Somebody puts a text into its settings.
    Settings {
        /// Where the text belongs.
        into: &'static str,
        /// The text.
        text: fn(&Place) -> String,
    },
}

/// What a tool is led to.
pub struct Place {
    /// Address of the server, without a slash at its end.
    pub url: String,
    /// Key of the server, or a word where it wants none.
    pub key: String,
    /// The model.
    pub model: String,
}

impl Place {
    fn openai(&self) -> String {
        format!("{}/v1", self.url)
    }
}

/// The key for servers that want none: most tools insist on one.
pub const NO_KEY: &str = "llmsrv";
/// Variable of the key; tools that read keys from the environment are told this name.
pub const KEY_VARIABLE: &str = "LLMSRV_API_KEY";

/// A key, where it is printed.
pub const KEY_SHOWN: &str = "$LLMSRV_API_KEY";
/// How long an agent waits for the first token of a long prompt, in milliseconds.
const PATIENCE_MS: &str = "3600000";

/// All tools, in the order in which they are listed.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "claude",
        title: "Claude Code",
        way: Way::Start {
            program: "claude",
            install: "npm install -g @anthropic-ai/claude-code",
            variables: |place| {
                vec![
                    ("ANTHROPIC_BASE_URL", place.url.clone()),
                    ("ANTHROPIC_AUTH_TOKEN", place.key.clone()),
                    // A key of Anthropic in the environment would be sent in place of the token.
                    ("ANTHROPIC_API_KEY", String::new()),
                    // Titles, summaries and helpers are asked of other models, which are not here.
                    ("ANTHROPIC_DEFAULT_HAIKU_MODEL", place.model.clone()),
                    ("ANTHROPIC_DEFAULT_SONNET_MODEL", place.model.clone()),
                    ("ANTHROPIC_DEFAULT_OPUS_MODEL", place.model.clone()),
                    ("CLAUDE_CODE_SUBAGENT_MODEL", place.model.clone()),
                    // It gives up after five minutes without a token, which a long prompt may take.
                    ("CLAUDE_STREAM_IDLE_TIMEOUT_MS", PATIENCE_MS.into()),
                    ("API_TIMEOUT_MS", PATIENCE_MS.into()),
                    // The line for Anthropic's accounts differs with each prompt: nothing behind it would be
                    // found in the prefix cache.
                    ("CLAUDE_CODE_ATTRIBUTION_HEADER", "0".into()),
                ]
            },
            args: |place| vec!["--model".into(), place.model.clone()],
        },
    },
    Tool {
        name: "codex",
        title: "Codex CLI",
        way: Way::Start {
            program: "codex",
            install: "npm install -g @openai/codex",
            variables: |place| vec![(KEY_VARIABLE, place.key.clone())],
            args: |place| {
                let provider = format!(
                    "model_providers.llmsrv={{name=\"llmsrv\", base_url={}, wire_api=\"responses\", env_key=\"{KEY_VARIABLE}\", stream_idle_timeout_ms={PATIENCE_MS}}}",
                    json!(place.openai())
                );
                // Options before a subcommand are lost, settings are not.
                let model = format!("model={}", json!(place.model));
                ["-c", "model_provider=llmsrv", "-c", &provider, "-c", &model]
                    .map(str::to_owned)
                    .into()
            },
        },
    },
    Tool {
        name: "opencode",
        title: "opencode",
        way: Way::Start {
            program: "opencode",
            install: "npm install -g opencode-ai",
            variables: |place| {
                let config = json!({
                    "provider": { "llmsrv": {
                        "npm": "@ai-sdk/openai-compatible",
                        "name": "llmsrv",
                        "options": {
                            "baseURL": place.openai(),
                            "apiKey": format!("{{env:{KEY_VARIABLE}}}"),
                        },
                        "models": { &place.model: {} },
                    }},
                    "model": format!("llmsrv/{}", place.model),
                });
                vec![
                    (KEY_VARIABLE, place.key.clone()),
                    ("OPENCODE_CONFIG_CONTENT", config.to_string()),
                ]
            },
            args: |_| Vec::new(),
        },
    },
    Tool {
        name: "aider",
        title: "aider",
        way: Way::Start {
            program: "aider",
            install: "python -m pip install aider-install && aider-install",
            variables: |place| {
                vec![
                    ("OPENAI_API_BASE", place.openai()),
                    ("OPENAI_API_KEY", place.key.clone()),
                ]
            },
            args: |place| {
                vec![
                    "--model".into(),
                    format!("openai/{}", place.model),
                    // Its list of models has no local ones.
                    "--no-show-model-warnings".into(),
                ]
            },
        },
    },
    Tool {
        name: "open-webui",
        title: "Open WebUI",
        way: Way::Start {
            program: "open-webui",
            install: "pip install open-webui",
            // Of both ways one, or each model is listed twice; that of Ollama takes no key.
            variables: |place| {
                let mut variables = if place.key == NO_KEY {
                    vec![
                        ("OLLAMA_BASE_URL", place.url.clone()),
                        ("ENABLE_OPENAI_API", "False".into()),
                    ]
                } else {
                    vec![
                        ("OPENAI_API_BASE_URL", place.openai()),
                        ("OPENAI_API_KEY", place.key.clone()),
                        ("ENABLE_OLLAMA_API", "False".into()),
                    ]
                };
                // It would keep the addresses of its first start.
                variables.push(("ENABLE_PERSISTENT_CONFIG", "False".into()));
                variables
            },
            // On its own it listens on all interfaces.
            args: |_| ["serve", "--host", "127.0.0.1"].map(str::to_owned).into(),
        },
    },
    Tool {
        name: "vscode",
        title: "Copilot in VS Code",
        way: Way::Settings {
            into: "chatLanguageModels.json (\"Chat: Manage Language Models\", Custom Endpoint); the extension Ollama \
                   finds a server at the usual address by itself",
            text: |place| {
                let entry = json!([{
                    "name": "llmsrv",
                    "vendor": "customendpoint",
                    "apiType": "chat-completions",
                    "apiKey": place.key,
                    "models": [{
                        "id": place.model,
                        "name": place.model,
                        "url": format!("{}/chat/completions", place.openai()),
                        "toolCalling": true,
                        "maxInputTokens": 32_768,
                        "maxOutputTokens": 8_192,
                    }],
                }]);
                format!("{entry:#}")
            },
        },
    },
    Tool {
        name: "continue",
        title: "Continue",
        way: Way::Settings {
            into: "~/.continue/config.yaml; where there is one, only the entry below `models`",
            text: |place| {
                // Its own words for a key in `~/.continue/.env`.
                let key = match place.key.as_str() {
                    KEY_SHOWN => format!("${{{{ secrets.{KEY_VARIABLE} }}}}"),
                    key => key.to_owned(),
                };
                format!(
                    "name: llmsrv\nversion: 0.0.1\nschema: v1\nmodels:\n  - name: llmsrv\n    provider: openai\n    model: {}\n    apiBase: {}\n    apiKey: {}\n    roles: [chat, edit, apply]",
                    json!(place.model),
                    json!(place.openai()),
                    json!(key)
                )
            },
        },
    },
    Tool {
        name: "cline",
        title: "Cline",
        way: Way::Settings {
            into: "its settings, API Provider: OpenAI Compatible",
            text: |place| {
                let key = match place.key.as_str() {
                    KEY_SHOWN => "the key that LLMSRV_API_KEY has",
                    key => key,
                };
                format!(
                    "Base URL: {}\nAPI Key: {key}\nModel ID: {}",
                    place.openai(),
                    place.model
                )
            },
        },
    },
    Tool {
        name: "zed",
        title: "Zed",
        way: Way::Settings {
            into: "settings.json; models show up by themselves",
            text: |place| {
                let setting = json!({ "language_models": { "ollama": { "api_url": place.url } } });
                format!("{setting:#}")
            },
        },
    },
    Tool {
        name: "langchain",
        title: "LangChain",
        way: Way::Settings {
            into: "a program, with the package langchain-ollama",
            text: |place| {
                let (import, headers) = if place.key == NO_KEY {
                    ("", "")
                } else {
                    (
                        "import os\n\n",
                        ", client_kwargs={\"headers\": {\"Authorization\": \"Bearer \" + os.environ[\"LLMSRV_API_KEY\"]}}",
                    )
                };
                format!(
                    "{import}from langchain_ollama import ChatOllama\n\n\
                     chat = ChatOllama(model={}, base_url={}{headers})\n\
                     print(chat.invoke(\"Hello!\").content)",
                    json!(place.model),
                    json!(place.url)
                )
            },
        },
    },
];

/// Returns the tools for completions.
pub fn candidates() -> Vec<CompletionCandidate> {
    let candidate = |tool: &Tool| CompletionCandidate::new(tool.name).help(Some(tool.title.into()));
    TOOLS.iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_its_section_in_the_docs() {
        let docs = include_str!("../docs/clients.md");
        for tool in TOOLS {
            assert!(
                docs.contains(&format!("\n## {}\n", tool.title)),
                "{}",
                tool.title
            );
            assert!(
                docs.contains(&format!("llmsrv launch {}", tool.name)),
                "{}",
                tool.name
            );
        }
    }

    #[test]
    fn names_cannot_leave_their_quotes() {
        let place = Place {
            url: "http://127.0.0.1:1".into(),
            key: "k\"\n".into(),
            model: "a\": {}, \"b\n".into(),
        };
        for tool in TOOLS {
            if let Way::Start { variables, .. } = tool.way {
                for (name, value) in variables(&place) {
                    if name == "OPENCODE_CONFIG_CONTENT" {
                        let config: serde_json::Value = serde_json::from_str(&value).unwrap();
                        assert_eq!(config["model"], format!("llmsrv/{}", place.model));
                    }
                }
            }
        }
    }
}

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
                    // Titles and summaries are asked of a smaller model, which is not here.
                    ("ANTHROPIC_DEFAULT_HAIKU_MODEL", place.model.clone()),
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
                    "model_providers.llmsrv={{name=\"llmsrv\", base_url={}, wire_api=\"responses\", env_key=\"{KEY_VARIABLE}\"}}",
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
            args: |place| vec!["--model".into(), format!("openai/{}", place.model)],
        },
    },
    Tool {
        name: "open-webui",
        title: "Open WebUI",
        way: Way::Start {
            program: "open-webui",
            install: "pip install open-webui",
            variables: |place| {
                vec![
                    ("OPENAI_API_BASE_URL", place.openai()),
                    ("OPENAI_API_KEY", place.key.clone()),
                    ("OLLAMA_BASE_URL", place.url.clone()),
                ]
            },
            args: |_| vec!["serve".into()],
        },
    },
    Tool {
        name: "vscode",
        title: "Copilot in VS Code",
        way: Way::Settings {
            into: "settings.json; then \"Chat: Manage Language Models\", Ollama",
            text: |place| {
                let setting = json!({ "github.copilot.chat.byok.ollamaEndpoint": place.url });
                format!("{setting:#}")
            },
        },
    },
    Tool {
        name: "continue",
        title: "Continue",
        way: Way::Settings {
            into: "~/.continue/config.yaml",
            text: |place| {
                format!(
                    "models:\n  - name: llmsrv\n    provider: openai\n    model: {}\n    apiBase: {}\n    apiKey: {}\n    roles: [chat, edit, apply]",
                    json!(place.model),
                    json!(place.openai()),
                    json!(place.key)
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
                format!(
                    "Base URL: {}\nAPI Key: {}\nModel ID: {}",
                    place.openai(),
                    place.key,
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
                format!(
                    "from langchain_ollama import ChatOllama\n\n\
                     chat = ChatOllama(model={}, base_url={})\n\
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

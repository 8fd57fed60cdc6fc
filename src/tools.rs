//! Programs of others that can use the server, and what leads each of them to it.
//!
//! The names of variables, options and settings are those of the tools' own documentation;
//! `docs/clients.md` describes each of them.

use clap_complete::CompletionCandidate;
use serde_json::{Value, json};

/// A program that can use the server.
pub struct Tool {
    /// What is typed.
    pub name: &'static str,
    /// What it is, for people.
    pub title: &'static str,
    /// How it comes to the server.
    pub way: Way,
    /// Its settings file, if an entry there leads it to the server for good.
    pub settings: Option<SettingsFile>,
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
    /// By its settings file.
    Settings,
    /// Somebody puts a text where no file is.
    Text {
        /// Where the text belongs.
        into: &'static str,
        /// The text.
        text: fn(&Place) -> String,
    },
}

/// The settings file of a tool.
pub struct SettingsFile {
    /// Its path from the home directory; `.config` stands for `$XDG_CONFIG_HOME`.
    pub path: &'static str,
    /// What is put there.
    pub entry: Entry,
    /// What to do then.
    pub then: &'static str,
}

/// What is put into a settings file.
pub enum Entry {
    /// Values of a JSON document with comments, each with its path: names with `/` between them.
    Values(fn(&Place) -> Vec<(String, Value)>),
    /// An element of a JSON array with comments, known by its `name`.
    Element(fn(&Place) -> Value),
    /// An element of the list `models` of a YAML document, known by its `name`: the lines of a mapping.
    Model(fn(&Place) -> Vec<String>),
    /// A file of its own.
    Whole(fn(&Place) -> String),
}

/// What a tool is led to.
#[derive(Default)]
pub struct Place {
    /// Address of the server, without a slash at its end.
    pub url: String,
    /// Key of the server, or [`NO_KEY`] where it wants none.
    pub key: String,
    /// The model.
    pub model: String,
    /// The context in tokens that the server gives the model, where it is known.
    pub context: Option<u64>,
}

impl Place {
    fn openai(&self) -> String {
        format!("{}/v1", self.url)
    }

    /// Returns how the context is divided between prompt and answer.
    fn limits(&self) -> Option<(u64, u64)> {
        let context = self.context?;
        let answer = (context / 4).min(8192);
        Some((context - answer, answer))
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
            variables: claude_variables,
            args: |place| vec!["--model".into(), place.model.clone()],
        },
        settings: Some(SettingsFile {
            path: ".claude/settings.json",
            entry: Entry::Values(|place| {
                let variables = claude_variables(place).into_iter();
                let mut values: Vec<(String, Value)> = variables
                    .map(|(name, value)| (format!("env/{name}"), value.into()))
                    .collect();
                values.push(("model".into(), place.model.clone().into()));
                values
            }),
            then: "`claude` uses the server from now on",
        }),
    },
    Tool {
        name: "codex",
        title: "Codex CLI",
        way: Way::Start {
            program: "codex",
            install: "npm install -g @openai/codex",
            variables: |place| vec![(KEY_VARIABLE, place.key.clone())],
            // Options before a subcommand are lost, settings are not.
            args: |place| {
                let settings = codex_settings(place).into_iter();
                settings
                    .flat_map(|(key, value)| ["-c".to_owned(), format!("{key}={value}")])
                    .collect()
            },
        },
        settings: Some(SettingsFile {
            path: ".codex/llmsrv.config.toml",
            entry: Entry::Whole(|place| {
                let settings = codex_settings(place).into_iter();
                let lines = settings.map(|(key, value)| format!("{key} = {value}"));
                lines.collect::<Vec<_>>().join("\n") + "\n"
            }),
            then: "`codex --profile llmsrv` uses the server",
        }),
    },
    Tool {
        name: "opencode",
        title: "opencode",
        way: Way::Start {
            program: "opencode",
            install: "npm install -g opencode-ai",
            variables: |place| {
                let mut config = json!({ "provider": {} });
                config["provider"]["llmsrv"] = opencode_provider(place);
                config["model"] = format!("llmsrv/{}", place.model).into();
                vec![
                    (KEY_VARIABLE, place.key.clone()),
                    ("OPENCODE_CONFIG_CONTENT", config.to_string()),
                ]
            },
            args: |_| Vec::new(),
        },
        settings: Some(SettingsFile {
            path: ".config/opencode/opencode.json",
            entry: Entry::Values(|place| {
                vec![
                    ("provider/llmsrv".into(), opencode_provider(place)),
                    ("model".into(), format!("llmsrv/{}", place.model).into()),
                ]
            }),
            then: "`opencode` uses the server from now on",
        }),
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
        settings: None,
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
        settings: None,
    },
    Tool {
        name: "vscode",
        title: "Copilot in VS Code",
        way: Way::Settings,
        settings: Some(SettingsFile {
            path: ".config/Code/User/chatLanguageModels.json",
            entry: Entry::Element(|place| {
                let (prompt, answer) = place.limits().unwrap_or((24_576, 8_192));
                json!({
                    "name": "llmsrv",
                    "vendor": "customendpoint",
                    "apiType": "chat-completions",
                    "apiKey": place.key,
                    "models": [{
                        "id": place.model,
                        "name": place.model,
                        "url": format!("{}/chat/completions", place.openai()),
                        "toolCalling": true,
                        "maxInputTokens": prompt,
                        "maxOutputTokens": answer,
                    }],
                })
            }),
            then: "VS Code lists the model in its chat (\"Chat: Manage Language Models\")",
        }),
    },
    Tool {
        name: "continue",
        title: "Continue",
        way: Way::Settings,
        settings: Some(SettingsFile {
            path: ".continue/config.yaml",
            entry: Entry::Model(|place| {
                let key = match place.key.as_str() {
                    NO_KEY => json!(NO_KEY),
                    // Its own words for a key in `~/.continue/.env`.
                    _ => json!(format!("${{{{ secrets.{KEY_VARIABLE} }}}}")),
                };
                let mut lines = vec![
                    "name: llmsrv".to_owned(),
                    "provider: openai".to_owned(),
                    format!("model: {}", json!(place.model)),
                    format!("apiBase: {}", json!(place.openai())),
                    format!("apiKey: {key}"),
                    "roles: [chat, edit, apply]".to_owned(),
                ];
                if let Some(context) = place.context {
                    lines.push("defaultCompletionOptions:".to_owned());
                    lines.push(format!("  contextLength: {context}"));
                }
                lines
            }),
            then: "Continue lists the model; a key belongs into ~/.continue/.env as LLMSRV_API_KEY=...",
        }),
    },
    Tool {
        name: "cline",
        title: "Cline",
        way: Way::Text {
            into: "its settings, API Provider: OpenAI Compatible",
            text: |place| {
                let key = match place.key.as_str() {
                    KEY_SHOWN => "the key that LLMSRV_API_KEY has",
                    key => key,
                };
                let context = place
                    .context
                    .map(|context| format!("\nContext Window Size: {context}"));
                format!(
                    "Base URL: {}\nAPI Key: {key}\nModel ID: {}{}",
                    place.openai(),
                    place.model,
                    context.unwrap_or_default()
                )
            },
        },
        settings: None,
    },
    Tool {
        name: "zed",
        title: "Zed",
        way: Way::Settings,
        settings: Some(SettingsFile {
            path: ".config/zed/settings.json",
            entry: Entry::Values(|place| {
                let path = "language_models/ollama/api_url";
                vec![(path.into(), place.url.clone().into())]
            }),
            then: "Zed finds the models by itself; it reads a key from OLLAMA_API_KEY",
        }),
    },
    Tool {
        name: "langchain",
        title: "LangChain",
        way: Way::Text {
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
        settings: None,
    },
];

fn claude_variables(place: &Place) -> Vec<(&'static str, String)> {
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
        // The line for Anthropic's accounts differs with each prompt: nothing behind it would be found in the
        // prefix cache.
        ("CLAUDE_CODE_ATTRIBUTION_HEADER", "0".into()),
    ]
}

/// Returns settings of Codex: keys, and values in TOML.
fn codex_settings(place: &Place) -> Vec<(&'static str, String)> {
    let key = match place.key.as_str() {
        NO_KEY => String::new(),
        _ => format!(", env_key = \"{KEY_VARIABLE}\""),
    };
    let provider = format!(
        "{{ name = \"llmsrv\", base_url = {}, wire_api = \"responses\"{key}, stream_idle_timeout_ms = {PATIENCE_MS} }}",
        json!(place.openai())
    );
    let mut settings = vec![
        ("model_provider", "\"llmsrv\"".to_owned()),
        ("model_providers.llmsrv", provider),
        // Strings of JSON are strings of TOML.
        ("model", json!(place.model).to_string()),
    ];
    if let Some(context) = place.context {
        settings.push(("model_context_window", context.to_string()));
    }
    settings
}

fn opencode_provider(place: &Place) -> Value {
    let key = match place.key.as_str() {
        NO_KEY => NO_KEY.to_owned(),
        _ => format!("{{env:{KEY_VARIABLE}}}"),
    };
    let model = match place.limits() {
        Some((prompt, answer)) => {
            json!({ "limit": { "context": prompt + answer, "output": answer } })
        }
        None => json!({}),
    };
    json!({
        "npm": "@ai-sdk/openai-compatible",
        "name": "llmsrv",
        "options": { "baseURL": place.openai(), "apiKey": key },
        "models": { &place.model: model },
    })
}

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
            context: Some(4096),
        };
        for tool in TOOLS {
            if let Way::Start { variables, .. } = tool.way {
                for (name, value) in variables(&place) {
                    if name == "OPENCODE_CONFIG_CONTENT" {
                        let config: Value = serde_json::from_str(&value).unwrap();
                        assert_eq!(config["model"], format!("llmsrv/{}", place.model));
                    }
                }
            }
        }
    }
}

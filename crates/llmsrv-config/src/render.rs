//! The table as people read it: the reference document, and single values with secrets masked.

use crate::{
    Change, Kind, Redaction, Resolved, SETTINGS, Section, Setting, Status, Value,
    folders::PLACEHOLDERS, upstream,
};

impl Resolved {
    /// Writes the value for people; what is secret is masked.
    pub fn show(&self) -> String {
        match (self.setting.secrecy, &self.value) {
            (_, Value::Unset) => String::new(),
            (Redaction::Open, value) => value.show(),
            (Redaction::Hidden, Value::List(items)) => format!("*** ({} values)", items.len()),
            (Redaction::Hidden, _) => "***".to_owned(),
            (Redaction::Urls, Value::List(items)) => items
                .iter()
                .map(|item| mask_url(item))
                .collect::<Vec<_>>()
                .join(","),
            (Redaction::Urls, value) => mask_url(&value.show()),
        }
    }
}

/// Keeps scheme and host of a URL, wherever it begins in the text, and hides the rest.
fn mask_url(text: &str) -> String {
    let Some((before, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (authority, path) = rest.split_once(['/', '?', '#']).unwrap_or((rest, ""));
    // What is before an `@` is a name and a password.
    let host = authority.rsplit('@').next().unwrap_or_default();
    let hidden = if path.is_empty() && host.len() == authority.len() {
        ""
    } else {
        "/..."
    };
    format!("{before}://{host}{hidden}")
}

/// Describes a default for documents.
pub fn default_text(setting: &Setting) -> String {
    let placeholder = PLACEHOLDERS
        .iter()
        .find(|(placeholder, _)| setting.default.starts_with(placeholder));
    match placeholder {
        Some((placeholder, text)) => setting.default.replace(placeholder, text),
        None => setting.default.to_owned(),
    }
}

/// Writes the reference of all settings as a Markdown document.
pub fn markdown() -> String {
    let mut lines = vec![INTRODUCTION.to_owned()];
    for section in Section::ALL {
        lines.push(format!("## [{}]\n\n{}\n", section.name(), about(section)));
        lines.push("| key | variable | value | default | what it does |".to_owned());
        lines.push("|---|---|---|---|---|".to_owned());
        let rows = SETTINGS.iter().filter(|setting| setting.section == section);
        lines.extend(rows.map(markdown_row));
        lines.push(String::new());
    }
    lines.push(upstreams());
    lines.push(KINDS.to_owned());
    lines.join("\n")
}

fn upstreams() -> String {
    let row = |(key, help): &(&str, &str)| format!("| `{key}` | {help} |");
    let rows: Vec<String> = upstream::KEYS.iter().map(row).collect();
    format!("{UPSTREAMS}{}\n", rows.join("\n"))
}

const UPSTREAMS: &str = "## [upstream.NAME]

Servers that answer for some models, one table for each; see scaling.md. Only the file can set them.

| key | what it does |
|---|---|
";

fn markdown_row(setting: &Setting) -> String {
    let key = if setting.key.is_empty() {
        "-".to_owned()
    } else {
        format!("`{}`", setting.key)
    };
    let variables: Vec<String> = setting
        .variables()
        .map(|name| format!("`{name}`"))
        .collect();
    let default = match default_text(setting) {
        text if text.is_empty() => "unset".to_owned(),
        text => format!("`{text}`"),
    };
    let secret = if setting.secrecy == Redaction::Open {
        ""
    } else {
        " Secret."
    };
    let effect = match (setting.status, setting.change) {
        (Status::Ignored(why), _) => format!(" *Ignored*: {why}."),
        (Status::Active, Change::Reload) => " (live)".to_owned(),
        (Status::Active, Change::Restart) => String::new(),
    };
    let (kind, help) = (setting.kind.name(), setting.help);
    format!(
        "| {key} | {} | {kind} | {default} | {help}.{secret}{effect} |",
        variables.join(", ")
    )
}

fn about(section: Section) -> &'static str {
    match section {
        Section::Server => "The model server.",
        Section::Client => "The commands that talk to a server.",
        Section::Host => "Folders of the machine.",
        Section::Logkit => "The call logger: `logkit`, its services, and the loggers of programs.",
    }
}

const INTRODUCTION: &str = "# Settings

<!-- Written by `llmsrv generate`; change crates/llmsrv-config/src/registry.rs instead. -->

Every setting can be given in five places. A later one wins over an earlier one:

1. the default;
2. the settings file: `--config FILE`, else `$LLMSRV_CONFIG`, else `$XDG_CONFIG_HOME/llmsrv/config.toml`, else `/etc/llmsrv/config.toml`;
3. a file of `NAME=value` lines, only when `--env-file FILE` or `$LOGKIT_ENV_FILE` names it;
4. the environment; of several variables in a row of the tables the first one that is not empty counts;
5. a flag of the command line.

`llmsrv config` prints every value and where it came from; `llmsrv config check` looks for mistakes. An unknown key in the settings file is an error, an unknown variable that starts with `LLMSRV_` or `LOGKIT_` a warning; both name the nearest known one.

```toml
[server]
host = \"127.0.0.1:11434\"
keep_alive = \"30m\"
origins = [\"https://chat.example.com\"]
```

*Ignored* settings have no effect; where one has another value than its default, every command warns. A running server takes up changes of *live* settings when it gets the signal SIGHUP, and says which others wait for the next start.
";

const KINDS: &str = "## Values

| value | how it is written |
|---|---|
| true or false | `1`/`0`, `true`/`false`, `yes`/`no`, `on`/`off`. In `LLMSRV_*` and `OLLAMA_*` variables any other word counts as true, with a warning |
| a time | `30s`, `5m`, `1h30m`, `1.5h`, `2d`, `1w`, `500ms`; a bare number is seconds; negative = forever |
| a size | `512MiB`, `8GB`, `2g` (steps of 1024 unless it ends in `B` alone), or bytes |
| a rate | `10/s`, `60/min`, `1000/h`, `5000/d` |
| an address | `host`, `:port` (every interface), `host:port`, `[v6]:port`, `http://host` (port 80), `https://host` (port 443), each with an optional path; port 0 = any free one. A bad port in a variable becomes the default port, with a warning |
| a list | texts between commas; in the settings file an array |
| a path | a leading `~` is the home directory |

Spaces and one pair of quotes around a value are ignored; an empty value is no value.

Without a home directory (a system service) `$XDG_CONFIG_HOME/llmsrv` is `/etc/llmsrv` and the other folders are below `/var/lib/llmsrv` and `/run/llmsrv`.
";

/// Returns a value's kind in one word, for machines.
pub fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Switch => "bool",
        Kind::Verbosity | Kind::Integer { .. } => "integer",
        Kind::Duration => "duration",
        Kind::Bytes => "bytes",
        Kind::Rate => "rate",
        Kind::Address => "address",
        Kind::Choice(_) => "choice",
        Kind::Text => "text",
        Kind::List | Kind::EscapedList => "list",
        Kind::Path => "path",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Inputs, load};

    #[test]
    fn secrets_are_masked_wherever_they_are() {
        let environment = [
            ("LLMSRV_API_KEYS", "hunter2,hunter3"),
            ("LLMSRV_API_KEY", "hunter2"),
            (
                "LOGKIT_WEBHOOK_URL",
                "https://bot:hunter2@hooks.example.com/T00/hunter2",
            ),
            (
                "LOGKIT_SINKS",
                "db:logs.db,webhook:https://hooks.example.com/hunter2",
            ),
        ];
        let inputs = Inputs {
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).into(), value.into()))
                .collect(),
            ..Inputs::default()
        };
        let loaded = load(&inputs).unwrap();
        let shown: Vec<String> = loaded
            .settings
            .iter()
            .filter(|row| row.setting.secrecy != Redaction::Open)
            .map(Resolved::show)
            .collect();
        assert_eq!(
            shown,
            [
                "*** (2 values)",
                "",
                "",
                "https://huggingface.co",
                "***",
                "db:logs.db,webhook:https://hooks.example.com/...",
                "",
                "https://hooks.example.com/...",
            ]
        );
        assert!(
            !format!("{:?}", loaded.config).contains("hunter2,"),
            "typed secrets are masked too"
        );
        assert_eq!(loaded.config.server.api_keys[1].expose(), "hunter3");
    }

    #[test]
    fn the_document_has_every_setting() {
        let page = markdown();
        for setting in SETTINGS {
            assert!(
                page.contains(&format!("`{}`", setting.name)),
                "{}",
                setting.name
            );
        }
        assert!(!page.contains('{'), "no placeholder is left");
    }
}

//! What the services take. Limits: Slack's header 150 and section 3,000 characters; Discord's
//! content 2,000, title 256 and description 4,096; a Teams message 28 KB.

use serde_json::{Value, json};

use crate::{Entry, Level, Redactor};

/// What a web hook is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WebhookFormat {
    /// A message of blocks, as Slack and those that imitate it take it.
    #[default]
    Slack,
    /// A message with an embed, as Discord takes it.
    Discord,
    /// A card, as Microsoft Teams takes it.
    Teams,
    /// The entry itself as JSON.
    Raw,
}

impl WebhookFormat {
    /// Reads `slack`, `discord`, `teams` or `raw`.
    pub fn parse(name: &str) -> Option<WebhookFormat> {
        Some(match name.trim().to_ascii_lowercase().as_str() {
            "slack" => WebhookFormat::Slack,
            "discord" => WebhookFormat::Discord,
            "teams" => WebhookFormat::Teams,
            "raw" => WebhookFormat::Raw,
            _ => return None,
        })
    }

    /// The format of the service behind that host name.
    pub fn of_host(host: &str) -> WebhookFormat {
        let host = host.to_ascii_lowercase();
        let below = |domain: &str| {
            host.strip_suffix(domain)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if below("discord.com") || below("discordapp.com") {
            WebhookFormat::Discord
        } else if below("office.com") || below("logic.azure.com") || below("office365.com") {
            WebhookFormat::Teams
        } else {
            WebhookFormat::Slack
        }
    }
}

/// The body of the request for an entry.
pub(super) fn render(
    entry: &Entry,
    format: WebhookFormat,
    n_suppressed: u64,
    redactor: &Redactor,
) -> String {
    let mut entry = entry.clone();
    redactor.redact_entry(&mut entry);
    match format {
        WebhookFormat::Slack => slack(&entry, n_suppressed),
        WebhookFormat::Discord => discord(&entry, n_suppressed),
        WebhookFormat::Teams => teams(&entry, n_suppressed),
        WebhookFormat::Raw => raw(entry, n_suppressed),
    }
    .to_string()
}

fn slack(entry: &Entry, n_suppressed: u64) -> Value {
    let header = format!("{}: {}()", entry.level, entry.function_name);
    let style = Style {
        bold: "*",
        line_end: "\n",
        escape: escape_slack,
    };
    json!({
        "text": cut(&escape_slack(&title(entry)), SLACK_TEXT),
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": cut(&one_line(&header), SLACK_HEADER)}},
            {"type": "section", "text": {"type": "mrkdwn", "text": style.body(entry, n_suppressed, SLACK_SECTION)}},
        ],
    })
}

fn discord(entry: &Entry, n_suppressed: u64) -> Value {
    let style = Style {
        bold: "**",
        line_end: "\n",
        escape: str::to_owned,
    };
    let title = title(entry);
    json!({
        "content": cut(&title, DISCORD_CONTENT),
        "embeds": [{
            "title": cut(&title, DISCORD_TITLE),
            "description": style.body(entry, n_suppressed, DISCORD_DESCRIPTION),
            "color": if entry.level == Level::Error { 0xFF_0000 } else { 0xFF_AA00 },
        }],
        // An argument such as `@everyone` calls nobody.
        "allowed_mentions": {"parse": []},
    })
}

fn teams(entry: &Entry, n_suppressed: u64) -> Value {
    let style = Style {
        bold: "**",
        // One newline would not end the line.
        line_end: "\n\n",
        escape: escape_html,
    };
    let title = cut(&title(entry), TEAMS_TITLE);
    json!({
        "@type": "MessageCard",
        "@context": "https://schema.org/extensions",
        "summary": title,
        "themeColor": if entry.level == Level::Error { "FF0000" } else { "FFAA00" },
        "title": title,
        "text": style.body(entry, n_suppressed, TEAMS_TEXT),
    })
}

fn raw(mut entry: Entry, n_suppressed: u64) -> Value {
    if n_suppressed > 0 {
        entry.extra.insert("suppressed".into(), n_suppressed.into());
    }
    Value::Object(entry.as_json())
}

fn title(entry: &Entry) -> String {
    let function = code(&format!("{}()", one_line(&entry.function_name)));
    format!("🚨 {}: {function}", entry.level)
}

const SLACK_TEXT: usize = 3000;
const SLACK_HEADER: usize = 150;
const SLACK_SECTION: usize = 3000;
const DISCORD_CONTENT: usize = 2000;
const DISCORD_TITLE: usize = 256;
const DISCORD_DESCRIPTION: usize = 4096;
const TEAMS_TITLE: usize = 256;
/// At most four bytes each, with room for the rest of 28 KB.
const TEAMS_TEXT: usize = 5000;
/// Arguments, so that the error after them still fits.
const MAX_ARGS: usize = 600;
const MAX_EXCEPTION: usize = 1000;

/// How a service writes bold text and the ends of lines, and what must not reach it as it is.
struct Style {
    bold: &'static str,
    line_end: &'static str,
    escape: fn(&str) -> String,
}

impl Style {
    fn body(&self, entry: &Entry, n_suppressed: u64, limit: usize) -> String {
        let mut lines = vec![("Function", code(&one_line(&entry.function_name)))];
        let mut add = |label, value: String| lines.push((label, value));
        if entry.args != "()" && !entry.args.is_empty() {
            add("Args", code(&cut(&one_line(&entry.args), MAX_ARGS)));
        }
        if !entry.exception_type.is_empty() || !entry.exception.is_empty() {
            let text = format!("{}: {}", entry.exception_type, entry.exception);
            add("Exception", code(&cut(&one_line(&text), MAX_EXCEPTION)));
        }
        if let Some(ms) = entry.duration_ms {
            add("Duration", format!("{ms}ms"));
        }
        if !entry.environment.is_empty() {
            add("Env", one_line(&entry.environment));
        }
        if !entry.trace_id.is_empty() {
            add("Trace", code(&one_line(&entry.trace_id)));
        }
        if n_suppressed > 0 {
            add("Suppressed", format!("{n_suppressed} more like this"));
        }
        let lines: Vec<String> = lines
            .into_iter()
            .map(|(label, value)| {
                let bold = self.bold;
                format!("{bold}{label}:{bold} {}", (self.escape)(&value))
            })
            .collect();
        cut(&lines.join(self.line_end), limit)
    }
}

/// A code span. The services know no escape within one, so that backticks become apostrophes.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('`', "'"))
}

/// Control characters and ends of lines become blanks.
fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control())
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn escape_slack(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// At most `limit` units of UTF-16, which is what the services count at worst. Never cuts a
/// character, nor an escape such as `&lt;`.
fn cut(text: &str, limit: usize) -> String {
    let mut n_units = 0;
    let mut end = 0;
    for (at, c) in text.char_indices() {
        n_units += c.len_utf16();
        if n_units < limit {
            end = at + c.len_utf8();
        } else if n_units > limit {
            let kept = &text[..end];
            let kept = match kept.rfind('&') {
                Some(amp) if end - amp < ESCAPE && !kept[amp..].contains(';') => &kept[..amp],
                _ => kept,
            };
            return format!("{kept}…");
        }
    }
    text.to_owned()
}

/// Bytes of the longest escape.
const ESCAPE: usize = "&amp;".len();

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Entry {
        Entry {
            level: Level::Error,
            function_name: "pay".into(),
            args: "(3, 'a<b>&c')".into(),
            exception: "card `x` refused\npassword=hunter2".into(),
            exception_type: "ValueError".into(),
            duration_ms: Some(1.5),
            environment: "prod".into(),
            trace_id: "4bf9".into(),
            ..Entry::default()
        }
    }

    fn payload(entry: &Entry, format: WebhookFormat, n_suppressed: u64) -> Value {
        let text = render(entry, format, n_suppressed, &Redactor::shared());
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn slack_gets_blocks() {
        assert_eq!(
            payload(&sample(), WebhookFormat::Slack, 2),
            json!({
                "text": "🚨 ERROR: `pay()`",
                "blocks": [
                    {"type": "header", "text": {"type": "plain_text", "text": "ERROR: pay()"}},
                    {"type": "section", "text": {"type": "mrkdwn", "text":
                        "*Function:* `pay`\n*Args:* `(3, 'a&lt;b&gt;&amp;c')`\n\
                         *Exception:* `ValueError: card 'x' refused password=***REDACTED***`\n\
                         *Duration:* 1.5ms\n*Env:* prod\n*Trace:* `4bf9`\n\
                         *Suppressed:* 2 more like this"}},
                ],
            })
        );
    }

    #[test]
    fn discord_gets_an_embed_and_calls_nobody() {
        let entry = Entry {
            level: Level::Critical,
            function_name: "f".into(),
            ..Entry::default()
        };
        assert_eq!(
            payload(&entry, WebhookFormat::Discord, 0),
            json!({
                "content": "🚨 CRITICAL: `f()`",
                "embeds": [{"title": "🚨 CRITICAL: `f()`", "description": "**Function:** `f`",
                            "color": 0x00FF_AA00}],
                "allowed_mentions": {"parse": []},
            })
        );
        assert_eq!(
            payload(&sample(), WebhookFormat::Discord, 0)["embeds"][0]["color"],
            0xFF_0000
        );
    }

    #[test]
    fn teams_gets_a_card() {
        let card = payload(&sample(), WebhookFormat::Teams, 0);
        assert_eq!(card["@type"], "MessageCard");
        assert_eq!(card["@context"], "https://schema.org/extensions");
        assert_eq!(card["summary"], "🚨 ERROR: `pay()`");
        assert_eq!(card["title"], card["summary"]);
        assert_eq!(card["themeColor"], "FF0000");
        let text = card["text"].as_str().unwrap();
        assert!(
            text.starts_with("**Function:** `pay`\n\n**Args:** "),
            "{text}"
        );
    }

    #[test]
    fn raw_is_the_entry() {
        let sent = payload(&sample(), WebhookFormat::Raw, 3);
        assert_eq!(sent["function_name"], "pay");
        assert_eq!(
            sent["exception"],
            "card `x` refused\npassword=***REDACTED***"
        );
        assert_eq!(sent["extra"]["suppressed"], 3);
        assert_eq!(sent.as_object().unwrap().len(), 19);
    }

    #[test]
    fn hosts_tell_the_format() {
        for (host, format) in [
            ("hooks.slack.com", WebhookFormat::Slack),
            ("discord.com", WebhookFormat::Discord),
            ("x.webhook.office.com", WebhookFormat::Teams),
            ("notdiscord.com", WebhookFormat::Slack),
            ("127.0.0.1", WebhookFormat::Slack),
        ] {
            assert_eq!(WebhookFormat::of_host(host), format, "{host}");
        }
        assert_eq!(WebhookFormat::parse("SLACK"), Some(WebhookFormat::Slack));
        assert_eq!(WebhookFormat::parse("irc"), None);
    }

    fn units(value: &Value) -> usize {
        value.as_str().unwrap().encode_utf16().count()
    }

    proptest! {
        #[test]
        fn no_limit_of_a_service_is_passed(
            function in "\\PC{0,400}",
            args in "[&<>`🚨a\n]{0,5000}",
            exception in "(?s).{0,5000}",
            n_suppressed in 0_u64..3,
        ) {
            let entry = Entry {
                level: Level::Error,
                function_name: function.into(),
                args: args.into(),
                exception: exception.into(),
                exception_type: "E".into(),
                ..Entry::default()
            };
            let slack = payload(&entry, WebhookFormat::Slack, n_suppressed);
            prop_assert!(units(&slack["blocks"][0]["text"]["text"]) <= 150);
            let section = &slack["blocks"][1]["text"]["text"];
            prop_assert!(units(section) <= 3000);
            // Every `&` begins an escape.
            for part in section.as_str().unwrap().split('&').skip(1) {
                prop_assert!(["amp;", "lt;", "gt;"].iter().any(|end| part.starts_with(end)));
            }
            let discord = payload(&entry, WebhookFormat::Discord, n_suppressed);
            prop_assert!(units(&discord["content"]) <= 2000);
            prop_assert!(units(&discord["embeds"][0]["title"]) <= 256);
            prop_assert!(units(&discord["embeds"][0]["description"]) <= 4096);
            let teams = payload(&entry, WebhookFormat::Teams, n_suppressed);
            prop_assert!(teams.to_string().len() <= 28 << 10);
        }

        #[test]
        fn cutting_keeps_what_fits(text in "\\PC{0,40}", limit in 1_usize..50) {
            let kept = cut(&text, limit);
            let n_units = text.encode_utf16().count();
            if n_units <= limit {
                prop_assert_eq!(kept, text);
            } else {
                prop_assert!(kept.encode_utf16().count() <= limit);
                let start = kept.strip_suffix('…').unwrap();
                prop_assert!(text.starts_with(start));
            }
        }
    }
}

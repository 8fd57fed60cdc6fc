//! Files in a chat: `@path` in a prompt, and conversations that are kept.

use std::{
    fmt::Write as _,
    fs::File,
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use llmsrv_api::native::Message;
use serde::{Deserialize, Serialize};

use crate::run::Session;

/// Largest text file that a prompt takes in, in bytes, and how many.
const MAX_TEXT: u64 = 1 << 20;
const MAX_FILES: usize = 16;
/// Largest conversation that is read, in bytes.
const MAX_CONVERSATION: u64 = 64 << 20;

/// Puts the texts of files behind a prompt that names them: `@` and a path that is a file. Other
/// words that begin so are names of people and the like, and stay.
pub fn attach(prompt: &str) -> Result<String, String> {
    let mut text = prompt.to_owned();
    let paths = prompt
        .split_whitespace()
        .filter_map(|word| word.strip_prefix('@'))
        .map(|path| path.trim_end_matches([',', ';', ':', '?', '!', ')']))
        .map(|path| {
            if Path::new(path).is_file() {
                path
            } else {
                path.trim_end_matches('.')
            }
        });
    let mut seen = Vec::new();
    for path in paths.filter(|path| Path::new(path).is_file()) {
        if seen.contains(&path) {
            continue;
        }
        seen.push(path);
        if seen.len() > MAX_FILES {
            return Err(format!("a prompt takes {MAX_FILES} files"));
        }
        let content = read(Path::new(path), MAX_TEXT)?;
        let fence = fence(&content);
        let end = if content.ends_with('\n') { "" } else { "\n" };
        let _ = write!(text, "\n\n{path}:\n{fence}\n{content}{end}{fence}");
    }
    Ok(text)
}

/// Returns a fence that the text itself does not have.
fn fence(text: &str) -> String {
    let longest = text
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    "`".repeat(3.max(longest + 1))
}

fn read(path: &Path, most: u64) -> Result<String, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("cannot use {}: {why}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| wrong(&error))?;
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(&error))?;
    if bytes.len() as u64 > most {
        return Err(wrong(&format_args!("it is larger than {} MiB", most >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong(&"it is not text (UTF-8)"))?;
    if text.contains('\0') {
        return Err(wrong(&"it is not text"));
    }
    Ok(text)
}

/// A conversation in a file.
#[derive(Serialize, Deserialize)]
struct Conversation {
    model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    messages: Vec<Message>,
}

/// Tells whether a name is that of a file with a conversation; others are those of models.
pub fn is_conversation(name: &str) -> bool {
    let ending = Path::new(name).extension();
    ending.is_some_and(|ending| ending == "json" || ending == "md")
}

/// Writes the conversation to a new file: JSON, which can be read again, or Markdown for people.
pub fn save(session: &Session, path: &Path) -> Result<(), String> {
    let wrong = |why: &dyn std::fmt::Display| format!("cannot write {}: {why}", path.display());
    let text = if path.extension().is_some_and(|ending| ending == "md") {
        markdown(session)
    } else {
        let conversation = Conversation {
            model: session.model.clone(),
            system: session.system.clone(),
            messages: session.messages.clone(),
        };
        let text = serde_json::to_string_pretty(&conversation).map_err(|error| wrong(&error))?;
        text + "\n"
    };
    // What was said may be private; what is there already is somebody's.
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| wrong(&error))
}

fn markdown(session: &Session) -> String {
    let mut text = format!("# Chat with {}\n", session.model);
    let system = session.system.iter().map(|system| ("System", system));
    let said = session.messages.iter().map(|message| {
        let name = match message.role.as_str() {
            "user" => "You",
            "assistant" => "Assistant",
            other => other,
        };
        (name, &message.content)
    });
    for (name, content) in system.chain(said) {
        let _ = write!(text, "\n## {name}\n\n{}\n", content.trim_end());
    }
    text
}

/// Goes on with the conversation of a file; the model stays. Returns how many messages it has.
pub fn load(session: &mut Session, path: &Path) -> Result<usize, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    if path.extension().is_some_and(|ending| ending == "md") {
        return Err(wrong(
            &"only a conversation that was saved as .json is read again",
        ));
    }
    let text = read(path, MAX_CONVERSATION)?;
    let found: Conversation = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    session.messages = found.messages;
    session.system = found.system;
    session.n_tokens = None;
    Ok(session.messages.len())
}

#[cfg(test)]
mod tests {
    use llmsrv_api::client::Client;

    use super::*;

    #[test]
    fn files_are_put_behind_the_prompt() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (one, two, binary) = (path("one.rs"), path("two.md"), path("three"));
        std::fs::write(&one, "fn main() {}\n").unwrap();
        std::fs::write(&two, "````\nx").unwrap();
        std::fs::write(&binary, b"\xff\x00").unwrap();
        let prompt = format!("Explain @{one}, and @{two}. Mail a@b.example, @nobody.");
        let text = attach(&prompt).unwrap();
        let wanted = format!(
            "{prompt}\n\n{one}:\n```\nfn main() {{}}\n```\n\n{two}:\n`````\n````\nx\n`````"
        );
        assert_eq!(text, wanted);
        assert_eq!(attach("no @file here").unwrap(), "no @file here");
        let error = attach(&format!("@{binary}")).unwrap_err();
        assert!(error.ends_with("it is not text (UTF-8)"), "{error}");
        let large = path("large");
        std::fs::write(&large, vec![b'x'; MAX_TEXT as usize + 1]).unwrap();
        let error = attach(&format!("@{large}")).unwrap_err();
        assert!(error.ends_with("it is larger than 1 MiB"), "{error}");
    }

    #[test]
    fn conversations_are_kept_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let client = Client::new("http://127.0.0.1:1", None).unwrap();
        let mut session = Session::new(client, "m".to_owned());
        session.system = Some("Be brief.".to_owned());
        for (role, content) in [("user", "hi"), ("assistant", "Hello!\n")] {
            session.messages.push(Message {
                role: role.to_owned(),
                content: content.to_owned(),
                ..Message::default()
            });
        }
        let json = folder.path().join("talk.json");
        save(&session, &json).unwrap();
        let error = save(&session, &json).unwrap_err();
        assert!(error.contains("exists"), "{error}");
        let said = std::mem::take(&mut session.messages);
        session.system = None;
        assert_eq!(load(&mut session, &json), Ok(2));
        assert_eq!(session.messages, said);
        assert_eq!(session.system.as_deref(), Some("Be brief."));
        let md = folder.path().join("talk.md");
        save(&session, &md).unwrap();
        let text = std::fs::read_to_string(&md).unwrap();
        assert_eq!(
            text,
            "# Chat with m\n\n## System\n\nBe brief.\n\n## You\n\nhi\n\n## Assistant\n\nHello!\n"
        );
        assert!(load(&mut session, &md).is_err());
        std::fs::write(&json, "[1").unwrap_or_default();
        assert!(load(&mut session, &json).is_err());
        assert_eq!(session.messages, said);
    }
}

//! The settings files of tools: an entry is put in, and taken out again, and all else stays as its owner wrote it.

use std::{
    borrow::Cow,
    fs::{self, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use jsonc_parser::{
    ParseOptions,
    cst::{CstInputValue, CstNode, CstObject, CstRootNode},
};
use llmsrv_config::Folders;
use serde_json::Value;

use crate::tools::{Entry, NO_KEY, Place, SettingsFile};

/// Longest settings file that is changed, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// What a file of Continue has beside its models.
const YAML_HEAD: &str = "name: llmsrv\nversion: 0.0.1\nschema: v1\n";
/// Name of the entry in lists.
const NAME: &str = "llmsrv";

/// A settings file on this machine.
pub struct Target<'a> {
    entry: &'a Entry,
    /// Where it is, behind links.
    path: PathBuf,
    /// What it says, unless it does not exist.
    text: Option<String>,
}

/// What putting an entry in came to.
pub enum Written {
    /// The file said so before.
    Already,
    /// The file was written.
    Now {
        /// Where a backup of it was made.
        backup: Option<PathBuf>,
    },
}

impl<'a> Target<'a> {
    /// Reads the settings file of a tool.
    pub fn read(file: &'a SettingsFile) -> anyhow::Result<Target<'a>> {
        let folders = Folders::from_process();
        let base = match file.path.strip_prefix(".config/") {
            Some(rest) => folders.config.parent().map(|config| config.join(rest)),
            None => folders.home.as_ref().map(|home| home.join(file.path)),
        };
        let path = base.context("there is no home directory for settings; set HOME")?;
        // Behind a link into somebody's collection of settings, the file there is the one.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let text = read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Target {
            entry: &file.entry,
            path,
            text,
        })
    }

    /// Returns where the file is, behind links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the entry in.
    pub fn write(&self, place: &Place) -> anyhow::Result<Written> {
        let text = put(self.entry, place, self.text.as_deref()).with_context(|| self.refusal())?;
        if self.text.as_ref() == Some(&text) {
            return Ok(Written::Already);
        }
        let backup = match &self.text {
            // What was there before the first entry is what somebody wants back.
            Some(before) if !self.backup().exists() => {
                self.back_up(before)
                    .with_context(|| format!("cannot write {}", self.backup().display()))?;
                Some(self.backup())
            }
            _ => None,
        };
        let has_key = text.contains(&place.key) && place.key != NO_KEY;
        self.replace(&text, has_key)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(Written::Now { backup })
    }

    /// Takes the entry out; tells whether there was one.
    pub fn undo(&self) -> anyhow::Result<bool> {
        let backup = read(&self.backup())
            .with_context(|| format!("cannot read {}", self.backup().display()))?;
        let Some(text) = &self.text else {
            return Ok(false);
        };
        let left = take(self.entry, text, backup.as_deref()).with_context(|| self.refusal())?;
        match &left {
            Some(left) if left == text => Ok(()),
            Some(left) => self.replace(left, false),
            None => fs::remove_file(&self.path),
        }
        .with_context(|| format!("cannot write {}", self.path.display()))?;
        if backup.is_some() {
            fs::remove_file(self.backup())
                .with_context(|| format!("cannot remove {}", self.backup().display()))?;
        }
        Ok(left.as_ref() != Some(text))
    }

    fn refusal(&self) -> String {
        format!("{} stays as it is", self.path.display())
    }

    fn backup(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".before-llmsrv");
        name.into()
    }

    fn mode(&self) -> Option<u32> {
        let metadata = fs::metadata(&self.path).ok()?;
        Some(metadata.permissions().mode() & 0o777)
    }

    fn back_up(&self, text: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(self.mode().unwrap_or(0o600));
        let mut file = options.open(self.backup())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Replaces the file as a whole. One with a key is for its owner alone.
    fn replace(&self, text: &str, has_key: bool) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        let mode = self.mode().filter(|_| !has_key).unwrap_or(0o600);
        file.as_file()
            .set_permissions(fs::Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// Reads a settings file, if there is one.
fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        let error = format!("it is longer than {MAX_BYTES} bytes");
        return Err(io::Error::other(error));
    }
    Ok(Some(text))
}

/// Returns a settings file with the entry in it.
///
/// # Errors
/// If the file is not what the tool would read, or has something else where the entry belongs.
pub fn put(entry: &Entry, place: &Place, text: Option<&str>) -> anyhow::Result<String> {
    match entry {
        Entry::Values(values) => {
            let root = json(text.unwrap_or_default())?;
            let top = root.object_value_or_create();
            let top = top.ok_or_else(|| anyhow!("it is no JSON object"))?;
            for (path, value) in values(place) {
                let (folder, name) = walk(&top, &path, true)?;
                let Some(folder) = folder else { continue };
                let value = input(&value);
                match folder.get(name) {
                    Some(property) => property.set_value(value),
                    None => drop(folder.append(name, value)),
                }
            }
            Ok(with_line_end(root.to_string()))
        }
        Entry::Element(element) => {
            let root = json(text.unwrap_or_default())?;
            let list = root.array_value_or_create();
            let list = list.ok_or_else(|| anyhow!("it is no JSON array"))?;
            let element = input(&element(place));
            let elements = list.elements();
            let at = elements.iter().position(is_ours).unwrap_or(elements.len());
            if let Some(node) = elements.into_iter().nth(at) {
                node.remove();
            }
            list.insert(at, element);
            Ok(with_line_end(root.to_string()))
        }
        Entry::Model(lines) => put_model(&lines(place), text),
        Entry::Whole(whole) => Ok(whole(place)),
    }
}

/// Returns a settings file without the entry, or `None` if nothing else was in it. Where `before` has other
/// values in the same places, they come back.
///
/// # Errors
/// If the file is not what the tool would read.
pub fn take(entry: &Entry, text: &str, before: Option<&str>) -> anyhow::Result<Option<String>> {
    match entry {
        Entry::Values(values) => {
            let root = json(text)?;
            let top = root.object_value();
            let top = top.ok_or_else(|| anyhow!("it is no JSON object"))?;
            let before_value = before.map(json).transpose()?;
            let before_value = before_value.and_then(|root| root.to_serde_value());
            for (path, _) in values(&Place::default()) {
                let old = before_value.as_ref();
                let old = old.and_then(|value| value.pointer(&format!("/{path}")));
                let (folder, name) = walk(&top, &path, false)?;
                let Some(property) = folder.and_then(|folder| folder.get(name)) else {
                    continue;
                };
                if let Some(old) = old {
                    property.set_value(input(old));
                } else {
                    property.remove();
                    remove_empty(&top, &path, before_value.as_ref());
                }
            }
            Ok(without_traces(&root, before))
        }
        Entry::Element(_) => {
            let root = json(text)?;
            let list = root.array_value();
            let list = list.ok_or_else(|| anyhow!("it is no JSON array"))?;
            let before_value = before.map(json).transpose()?;
            let before_value = before_value.and_then(|root| root.to_serde_value());
            let old = before_value.as_ref().and_then(Value::as_array);
            let old = old.into_iter().flatten().find(|it| it["name"] == NAME);
            let elements = list.elements();
            if let Some(at) = elements.iter().position(is_ours) {
                if let Some(node) = elements.into_iter().nth(at) {
                    node.remove();
                }
                if let Some(old) = old {
                    list.insert(at, input(old));
                }
            }
            Ok(without_traces(&root, before))
        }
        Entry::Model(_) => {
            let left = without_model(text);
            // What putting and taking makes of a text, such as a line end at its end.
            let untouched = |text: Option<&str>| {
                let put = put_model(&[format!("name: {NAME}")], text);
                put.is_ok_and(|put| without_model(&put) == left)
            };
            Ok(match before {
                Some(before) if untouched(Some(before)) => Some(before.to_owned()),
                None if untouched(None) => None,
                _ => Some(left),
            })
        }
        Entry::Whole(_) => Ok(before.map(str::to_owned)),
    }
}

fn json(text: &str) -> anyhow::Result<CstRootNode> {
    CstRootNode::parse(text, &ParseOptions::default())
        .map_err(|error| anyhow!("it is no JSON: {error}"))
}

/// Finds the object that holds the last name of a path.
fn walk<'p>(
    top: &CstObject,
    path: &'p str,
    create: bool,
) -> anyhow::Result<(Option<CstObject>, &'p str)> {
    let mut names: Vec<&str> = path.split('/').collect();
    let last = names.pop().unwrap_or_default();
    let mut at = top.clone();
    for name in names {
        let next = if create {
            at.object_value_or_create(name)
        } else {
            at.object_value(name)
        };
        at = match next {
            Some(next) => next,
            None if create => bail!("\"{name}\" in it is no object"),
            None => return Ok((None, last)),
        };
    }
    Ok((Some(at), last))
}

/// Removes the objects on the way to a value that is gone, where they are empty and were not there before.
fn remove_empty(top: &CstObject, path: &str, before: Option<&Value>) {
    let mut path = path;
    while let Some((parent, _)) = path.rsplit_once('/') {
        path = parent;
        let was_there = before.is_some_and(|value| value.pointer(&format!("/{path}")).is_some());
        let Ok((Some(folder), name)) = walk(top, path, false) else {
            return;
        };
        match folder.get(name) {
            Some(property)
                if !was_there
                    && property
                        .object_value()
                        .is_some_and(|object| object.properties().is_empty()) =>
            {
                property.remove();
            }
            _ => return,
        }
    }
}

/// Returns what is left of a document: the text from before if it is the same but for spaces and commas, and
/// nothing if there was none.
fn without_traces(root: &CstRootNode, before: Option<&str>) -> Option<String> {
    let text = root.to_string();
    let plain = |text: &str| text.replace(|c: char| c.is_whitespace() || c == ',', "");
    match before {
        Some(before) if plain(before) == plain(&text) => Some(before.to_owned()),
        None if matches!(plain(&text).as_str(), "{}" | "[]") => None,
        _ => Some(text),
    }
}

fn is_ours(node: &CstNode) -> bool {
    node.to_serde_value().is_some_and(|it| it["name"] == NAME)
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(values) => CstInputValue::Object(
            values
                .iter()
                .map(|(name, value)| (name.clone(), input(value)))
                .collect(),
        ),
    }
}

fn with_line_end(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Puts an element into the list `models` of a YAML document in block style.
fn put_model(mapping: &[String], text: Option<&str>) -> anyhow::Result<String> {
    let text = text.filter(|text| !text.trim().is_empty());
    let text: Cow<'_, str> = match text {
        Some(text) => without_model(text).into(),
        None => format!("{YAML_HEAD}models:\n").into(),
    };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = lines.iter().position(|line| line.starts_with("models:"));
    let at = at.unwrap_or_else(|| {
        lines.push("models:".to_owned());
        lines.len() - 1
    });
    let rest = lines[at]["models:".len()..].trim();
    match rest {
        "[]" => lines[at].truncate("models:".len()),
        "" => {}
        comment if comment.starts_with('#') => {}
        _ => {
            bail!("its list \"models\" is in one line; put its elements on lines of their own")
        }
    }
    let below = lines[at + 1..].iter();
    let first = below
        .map(String::as_str)
        .find(|line| !is_blank(line))
        .filter(|line| line.trim_start().starts_with("- "));
    let indent = " ".repeat(first.map_or(2, indent));
    let element = mapping.iter().enumerate().map(|(idx, line)| {
        let mark = if idx == 0 { "- " } else { "  " };
        format!("{indent}{mark}{line}")
    });
    let below = lines.split_off(at + 1);
    lines.extend(element.chain(below));
    Ok(lines.join("\n") + "\n")
}

/// Removes our element of the list `models`: its lines go to the next one that is indented no further.
fn without_model(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let first = format!("- name: {NAME}");
    let models = lines.iter().position(|line| line.starts_with("models:"));
    let start = models.and_then(|models| {
        let below = lines[models + 1..].iter();
        // Up to the next key of the document.
        let mut below = below.take_while(|line| indent(line) > 0 || !is_key(line));
        let at = below.position(|line| line.trim() == first)?;
        Some(models + 1 + at)
    });
    let Some(start) = start else {
        return text.to_owned();
    };
    let depth = indent(lines[start]);
    let rest = lines[start + 1..].iter();
    let n_more = rest.take_while(|line| !is_blank(line) && indent(line) > depth);
    let end = start + 1 + n_more.count();
    lines.drain(start..end);
    lines.join("\n") + "\n"
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

fn is_key(line: &str) -> bool {
    !is_blank(line) && !line.starts_with('-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tools::TOOLS;

    fn place(model: &str) -> Place {
        Place {
            url: "http://127.0.0.1:11434".into(),
            key: NO_KEY.into(),
            model: model.into(),
            context: Some(32_768),
        }
    }

    fn entry(tool: &str) -> &'static Entry {
        let tool = TOOLS.iter().find(|it| it.name == tool).unwrap();
        &tool.settings.as_ref().unwrap().entry
    }

    #[test]
    fn what_is_put_into_nothing_leaves_nothing() {
        for tool in TOOLS {
            let Some(settings) = &tool.settings else {
                continue;
            };
            let once = put(&settings.entry, &place("qwen3:8b"), None).unwrap();
            let twice = put(&settings.entry, &place("qwen3:8b"), Some(&once)).unwrap();
            assert_eq!(once, twice, "{}", tool.name);
            let other = put(&settings.entry, &place("gemma4"), Some(&once)).unwrap();
            let directly = put(&settings.entry, &place("gemma4"), None).unwrap();
            assert_eq!(other, directly, "{}", tool.name);
            assert_eq!(take(&settings.entry, &other, None).unwrap(), None);
        }
    }

    #[test]
    fn what_others_wrote_stays() {
        for (tool, before, kept) in [
            (
                "zed",
                "// Mine\n{\n  \"theme\": \"One\", // dark\n  \"language_models\": { \"ollama\": { \"api_url\": \"http://other\" } },\n}\n",
                "\"theme\": \"One\", // dark",
            ),
            (
                "opencode",
                "{\n\t\"model\": \"mine/model\",\n\t\"provider\": {\n\t\t\"mine\": {} // here\n\t}\n}\n",
                "\"mine\": {}",
            ),
            (
                "vscode",
                "[\n  {\n    \"name\": \"other\",\n    \"vendor\": \"x\"\n  }\n]\n",
                "\"name\": \"other\"",
            ),
            (
                "continue",
                "name: mine\nmodels:\n    # my model\n    - name: llmsrv2\n      model: x\n\nrules:\n  - be brief\n",
                "    - name: llmsrv2\n      model: x\n",
            ),
            ("continue", "name: mine\nmodels: []\n", "name: mine\n"),
            (
                "continue",
                "models:\n- name: a\n  model: x\n",
                "- name: a\n  model: x\n",
            ),
            ("continue", "name: mine", "name: mine\n"),
        ] {
            let entry = entry(tool);
            let text = put(entry, &place("qwen3:8b"), Some(before)).unwrap();
            assert!(text.contains(kept), "{text}");
            assert!(text.contains("qwen3:8b") || tool == "zed", "{text}");
            let undone = take(entry, &text, Some(before)).unwrap();
            assert_eq!(undone.as_deref(), Some(before), "{text}");
            // What was changed since stays, too.
            let changed = text.replace("mine", "yours").replace("dark", "light");
            let undone = take(entry, &changed, Some(before)).unwrap().unwrap();
            assert!(!undone.contains("127.0.0.1"), "{undone}");
            assert!(!undone.contains("dark"), "{undone}");
        }
    }

    #[test]
    fn what_is_no_settings_file_is_refused() {
        let deep = "[".repeat(100_000);
        for (tool, text) in [
            ("zed", "{ nonsense"),
            ("zed", "[]"),
            ("zed", "{\"language_models\": 3}"),
            ("zed", deep.as_str()),
            ("vscode", "{}"),
            ("vscode", deep.as_str()),
            ("continue", "models: [{name: a}]\n"),
        ] {
            let result = put(entry(tool), &place("qwen3:8b"), Some(text));
            assert!(result.is_err(), "{tool}: {result:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_comes_back(
            text in "(models:|- name: |llmsrv|[a-z ]|\\{|\\}|\\[|\\]|\"|,|:|#|/|\n|  ){0,40}",
            tool in 0..TOOLS.len(),
        ) {
            if let Some(settings) = &TOOLS[tool].settings
                && let Ok(put) = put(&settings.entry, &place("m"), Some(&text))
            {
                let undone = take(&settings.entry, &put, Some(&text)).unwrap();
                prop_assert!(undone.is_some());
            }
        }
    }
}

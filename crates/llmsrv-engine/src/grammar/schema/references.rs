//! Where references lead.

use std::collections::HashMap;

use serde_json::Value;

use super::join;

/// The references of one schema and the names of their targets.
pub(super) struct References<'a> {
    root: &'a Value,
    /// JSON pointers of the anchors.
    anchors: HashMap<&'a str, String>,
    /// The targets so far, and whether they are parts of other schemas; number `n` is called `r<n>`.
    targets: Vec<(String, bool)>,
    numbers: HashMap<(String, bool), usize>,
    n_taken: usize,
}

impl<'a> References<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let mut anchors = HashMap::new();
        find_anchors(root, "", &mut anchors);
        References {
            root,
            anchors,
            targets: Vec::new(),
            numbers: HashMap::new(),
            n_taken: 0,
        }
    }

    /// Returns the JSON pointer of what a reference leads to; nothing if it is not in the schema.
    pub(super) fn find(&self, reference: &str) -> Option<String> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let own = self.root.get("$id").and_then(Value::as_str);
        let own = own.map_or("", |id| id.trim_end_matches('#'));
        if !base.is_empty() && base != own {
            return None;
        }
        let fragment = percent_decoded(fragment)?;
        if fragment.is_empty() || fragment.starts_with('/') {
            self.root.pointer(&fragment).map(|_| fragment)
        } else {
            self.anchors.get(fragment.as_str()).cloned()
        }
    }

    /// Returns the name of a target, a new one if it is new. A target is another one where it is a
    /// part of a schema that says which properties there are.
    pub(super) fn name(&mut self, at: &str, is_part: bool) -> String {
        let next = self.targets.len();
        let target = (at.to_owned(), is_part);
        let number = *self.numbers.entry(target.clone()).or_insert(next);
        if number == next {
            self.targets.push(target);
        }
        format!("r{number}")
    }

    /// Returns the next target that was not yet returned: its name, its JSON pointer, and whether it
    /// is a part.
    pub(super) fn next(&mut self) -> Option<(String, String, bool)> {
        let number = self.n_taken;
        let (at, is_part) = self.targets.get(number)?.clone();
        self.n_taken += 1;
        Some((format!("r{number}"), at, is_part))
    }

    /// Returns the whole schema.
    pub(super) fn root(&self) -> &Value {
        self.root
    }

    /// Follows a schema that is nothing but a reference to what it leads to.
    pub(super) fn follow(&self, schema: &'a Value) -> Option<&'a Value> {
        let mut schema = schema;
        for _ in 0..MAX_HOPS {
            match schema.get("$ref") {
                None => return Some(schema),
                Some(reference) => {
                    schema = self.root.pointer(&self.find(reference.as_str()?)?)?;
                }
            }
        }
        None
    }
}

fn find_anchors<'a>(value: &'a Value, at: &str, anchors: &mut HashMap<&'a str, String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("$anchor" | "$dynamicAnchor", Value::String(anchor)) => {
                        anchors.insert(anchor, at.to_owned());
                    }
                    ("$id" | "id", Value::String(id)) if id.starts_with('#') => {
                        anchors.insert(&id[1..], at.to_owned());
                    }
                    ("const" | "enum" | "default" | "examples", _) => {}
                    _ => find_anchors(field, &join(at, name), anchors),
                }
            }
        }
        Value::Array(items) => {
            for (idx, item) in items.iter().enumerate() {
                find_anchors(item, &join(at, &idx.to_string()), anchors);
            }
        }
        _ => {}
    }
}

/// `%C3%A9` is `é`.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

const MAX_HOPS: usize = 32;

//! Makes a JSON schema ready for the grammar engine, or says why that cannot be.
//!
//! A schema of any draft becomes one in the words that the engine enforces: [`keywords`] holds what
//! is done with each keyword. Whatever the result allows satisfies the original; what cannot be had
//! that way is refused, or left out and named, with the keyword and its place (a JSON pointer).
//! Example:
//!
//! ```text
//! {"items": [{"$ref": "#/definitions/a~1b"}], "definitions": {"a/b": {"format": "date"}}}
//! {"prefixItems": [{"$ref": "#/$defs/r0"}], "$defs": {"r0": {"pattern": "^…$"}}}
//! ```

mod closing;
mod disjoint;
mod formats;
mod keywords;
mod references;
mod rewrite;

use serde_json::{Map, Value, json};

use closing::Closing;
use keywords::{KEYWORDS, Rule};
use references::References;

use super::limits::Deadline;

/// What is done with a keyword that cannot be enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The schema is refused.
    Strict,
    /// The keyword is left out and named: more is allowed than the schema says. A schema that is
    /// wrong is refused.
    Named,
    /// The same, and what is wrong is left out, too.
    Lenient,
}

/// A schema in the words of the grammar engine.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) schema: Value,
    /// What it leaves out.
    pub(super) unenforced: Vec<SchemaError>,
}

/// Why a schema cannot be enforced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{keyword:?} (at {at}) {why}")]
pub(super) struct SchemaError {
    /// The keyword.
    pub(super) keyword: String,
    /// Where it is: a JSON pointer.
    pub(super) at: String,
    /// What is wrong with it.
    pub(super) why: String,
    /// Whether the schema is right and only cannot be enforced.
    pub(super) is_sound: bool,
}

impl SchemaError {
    fn leaves_out(&self, mode: Mode) -> bool {
        self.is_sound && mode == Mode::Named
    }

    /// The keyword of the schema at `at`, which is left out.
    pub(super) fn unenforced(keyword: &str, at: &str, why: &str) -> SchemaError {
        SchemaError {
            keyword: keyword.into(),
            at: join(at, keyword),
            why: format!("is not enforced: {why}"),
            is_sound: true,
        }
    }
}

/// Returns the part of `root` at the JSON pointer `at` as the grammar engine wants it. References
/// are looked up in `root`.
pub(super) fn prepare(
    root: &Value,
    at: &str,
    mode: Mode,
    deadline: Deadline,
) -> Result<Prepared, SchemaError> {
    let mut walk = Walk {
        references: References::new(root),
        mode,
        deadline,
        unenforced: Vec::new(),
        is_part: false,
    };
    let start = root.pointer(at).unwrap_or(&Value::Null);
    let mut prepared = walk.schema(start, at)?;
    let mut definitions = Map::new();
    while let Some((name, at, is_part)) = walk.references.next() {
        let target = root.pointer(&at).unwrap_or(&Value::Null);
        definitions.insert(name, walk.member(target, &at, is_part)?);
    }
    if let Value::Object(fields) = &mut prepared
        && !definitions.is_empty()
    {
        fields.insert("$defs".into(), definitions.into());
    }
    Ok(Prepared {
        schema: prepared,
        unenforced: walk.unenforced,
    })
}

/// Returns the JSON pointers of the schemas inside the one at `at`, where a reference leads included.
pub(super) fn parts(root: &Value, at: &str) -> Vec<String> {
    let Some(Value::Object(schema)) = root.pointer(at) else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    for (keyword, value) in schema {
        let at = join(at, keyword);
        match (keyword.as_str(), value) {
            ("$ref", Value::String(reference)) => {
                parts.extend(References::new(root).find(reference));
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(items)) => {
                parts.extend((0..items.len()).map(|idx| join(&at, &idx.to_string())));
            }
            (
                "properties" | "patternProperties" | "dependentSchemas" | "dependencies",
                Value::Object(members),
            ) => parts.extend(members.keys().map(|name| join(&at, name))),
            (
                "items"
                | "additionalItems"
                | "additionalProperties"
                | "unevaluatedItems"
                | "unevaluatedProperties",
                Value::Object(_),
            ) => parts.push(at),
            _ => {}
        }
    }
    parts
}

/// Returns whether a keyword says anything about what is valid.
pub(super) fn constrains(keyword: &str) -> bool {
    !matches!(
        keywords::rule(keyword),
        None | Some(Rule::Annotation | Rule::Definitions)
    )
}

/// The type that is meant by a schema without one: who lists properties wants an object.
fn implied_type(schema: &Map<String, Value>) -> Option<&'static str> {
    const SAID: [&str; 4] = ["type", "const", "enum", "$ref"];
    let has = |name: &&str| schema.contains_key(*name);
    if SAID.iter().any(has) {
        None
    } else if has(&"properties") {
        Some("object")
    } else if ["items", "prefixItems"].iter().any(has) {
        Some("array")
    } else {
        None
    }
}

/// Appends a member to a JSON pointer.
pub(super) fn join(at: &str, member: &str) -> String {
    format!("{at}/{}", member.replace('~', "~0").replace('/', "~1"))
}

/// Rewrites one schema and what it refers to.
struct Walk<'a> {
    references: References<'a>,
    mode: Mode,
    deadline: Deadline,
    unenforced: Vec<SchemaError>,
    /// Whether the next schema is a part of one that says which properties there are.
    is_part: bool,
}

/// A keyword in its schema.
struct Site<'a> {
    schema: &'a Map<String, Value>,
    keyword: &'a str,
    value: &'a Value,
    /// Where the keyword is.
    at: String,
    /// Which properties an object may have.
    closing: &'a Closing,
}

/// The rewritten schema.
#[derive(Default)]
struct Output {
    fields: Map<String, Value>,
    /// Schemas that must hold, too.
    all: Vec<Value>,
}

impl Walk<'_> {
    /// Rewrites a schema that is a part of another, or is not.
    fn member(&mut self, schema: &Value, at: &str, is_part: bool) -> Result<Value, SchemaError> {
        self.is_part = is_part;
        self.schema(schema, at)
    }

    fn schema(&mut self, schema: &Value, at: &str) -> Result<Value, SchemaError> {
        let is_part = std::mem::take(&mut self.is_part);
        let schema = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(_) if self.deadline.is_over() => {
                return Err(SchemaError {
                    keyword: "schema".into(),
                    at: at.into(),
                    why: "takes too long to compile".into(),
                    is_sound: false,
                });
            }
            Value::Object(schema) => schema,
            _ => {
                let member = at.rsplit_once('/').map_or("", |(_, member)| member);
                return Err(SchemaError {
                    keyword: member.into(),
                    at: at.into(),
                    why: "must be a schema: an object, true or false".into(),
                    is_sound: false,
                });
            }
        };
        let closing = if is_part {
            Closing::Elsewhere
        } else {
            self.references.closing(schema)
        };
        let mut output = Output::default();
        for (keyword, value) in schema {
            let Some(row) = KEYWORDS.iter().find(|row| row.name == keyword) else {
                // By the specification, a word that is no keyword is an annotation.
                tracing::debug!(keyword, at, "an unknown word in a schema");
                continue;
            };
            if !row.applies.to(schema) {
                continue;
            }
            let site = Site {
                schema,
                keyword,
                value,
                at: join(at, keyword),
                closing: &closing,
            };
            match self.apply(&row.rule, &site, &mut output) {
                Ok(()) => {}
                Err(error) if self.mode == Mode::Lenient || error.leaves_out(self.mode) => {
                    if !self.unenforced.contains(&error) {
                        self.unenforced.push(error);
                    }
                }
                Err(error) => return Err(error),
            }
            self.is_part = false;
        }
        closing.apply(schema, &mut output);
        if let Some(kind) = implied_type(schema).filter(|_| !is_part) {
            output.fields.insert("type".into(), kind.into());
        }
        Ok(output.finish())
    }

    fn apply(
        &mut self,
        rule: &Rule,
        site: &Site<'_>,
        output: &mut Output,
    ) -> Result<(), SchemaError> {
        let value = match (rule, site.value) {
            (Rule::Annotation | Rule::Definitions, _) => return Ok(()),
            (Rule::Refused(why), _) => return Err(site.unenforced(*why)),
            (Rule::Rewritten(rewrite), _) => return rewrite(self, site, output),
            (Rule::Plain, value) => value.clone(),
            (Rule::Schema, value) => self.schema(value, &site.at)?,
            (Rule::Schemas, _) => self.list(site)?,
            (Rule::SchemaMap, Value::Object(members)) => {
                let mut schemas = Map::new();
                for (name, member) in members {
                    let at = join(&site.at, name);
                    schemas.insert(name.clone(), self.schema(member, &at)?);
                }
                schemas.into()
            }
            (Rule::SchemaMap, _) => return Err(site.error("must be an object of schemas")),
        };
        output.fields.insert(site.keyword.to_owned(), value);
        Ok(())
    }

    /// Rewrites a list of schemas.
    fn list(&mut self, site: &Site<'_>) -> Result<Value, SchemaError> {
        let Value::Array(items) = site.value else {
            return Err(site.error("must be a list of schemas"));
        };
        let items = items.iter().enumerate();
        // Only applicators have parts: the items of a list are schemas of their own.
        let is_part = site.closing.is_shared() && site.keyword.ends_with("Of");
        let schemas =
            items.map(|(idx, item)| self.member(item, &join(&site.at, &idx.to_string()), is_part));
        schemas.collect::<Result<Vec<_>, _>>().map(Value::from)
    }
}

impl Site<'_> {
    fn error(&self, why: impl Into<String>) -> SchemaError {
        SchemaError {
            keyword: self.keyword.into(),
            at: self.at.clone(),
            why: why.into(),
            is_sound: false,
        }
    }

    /// What is wrong with a keyword of a schema that is right, for all that.
    fn unenforced(&self, why: impl Into<String>) -> SchemaError {
        SchemaError {
            is_sound: true,
            ..self.error(why)
        }
    }

    /// The non-negative number of another keyword of the schema.
    fn count(&self, keyword: &str) -> Option<u64> {
        self.schema.get(keyword)?.as_u64()
    }
}

impl Output {
    /// Puts the keywords that stand for themselves side by side: the grammar engine reads those
    /// between two applicators as one schema, and `additionalProperties` is about all of them.
    fn finish(mut self) -> Value {
        if !self.all.is_empty() {
            let all = self.fields.entry("allOf").or_insert_with(|| json!([]));
            if let Value::Array(all) = all {
                all.append(&mut self.all);
            }
        }
        let is_applicator = |name: &str| APPLICATORS.contains(&name);
        let n_before = self
            .fields
            .keys()
            .take_while(|name| is_applicator(name))
            .count();
        let (mut before, mut plain, mut after) = (Map::new(), Map::new(), Map::new());
        for (idx, (name, value)) in self.fields.into_iter().enumerate() {
            let part = match (idx < n_before, is_applicator(&name)) {
                (true, _) => &mut before,
                (false, false) => &mut plain,
                (false, true) => &mut after,
            };
            part.insert(name, value);
        }
        before.extend(plain);
        before.extend(after);
        before.into()
    }
}

const APPLICATORS: [&str; 6] = ["const", "enum", "allOf", "anyOf", "oneOf", "$ref"];

#[cfg(test)]
mod tests;

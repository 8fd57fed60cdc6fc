//! What is done with each keyword of the drafts 4 to 2020-12: one table.

use serde_json::{Map, Value};

use super::{Output, SchemaError, Site, Walk, rewrite};

/// A keyword and its treatment.
pub(super) struct Keyword {
    pub(super) name: &'static str,
    pub(super) applies: Applies,
    pub(super) rule: Rule,
}

/// How a keyword is treated.
pub(super) enum Rule {
    /// Enforced; its value holds no schema.
    Plain,
    /// Enforced; its value is a schema.
    Schema,
    /// Enforced; its value is a list of schemas.
    Schemas,
    /// Enforced; its value has schemas as members.
    SchemaMap,
    /// Enforced by other keywords, or not at all if they cannot say it.
    Rewritten(fn(&mut Walk<'_>, &Site<'_>, &mut Output) -> Result<(), SchemaError>),
    /// Schemas for references; they say nothing themselves.
    Definitions,
    /// Says nothing about what is valid.
    Annotation,
    /// Cannot be enforced.
    Refused(&'static str),
}

/// The values that a keyword is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Applies {
    All,
    Strings,
    Numbers,
    Arrays,
    Objects,
}

impl Applies {
    /// Whether a schema allows any such value.
    pub(super) fn to(self, schema: &Map<String, Value>) -> bool {
        let types: &[&str] = match self {
            Applies::All => return true,
            Applies::Strings => &["string"],
            Applies::Numbers => &["number", "integer"],
            Applies::Arrays => &["array"],
            Applies::Objects => &["object"],
        };
        let is_one = |value: &Value| value.as_str().is_none_or(|name| types.contains(&name));
        match schema.get("type") {
            Some(Value::Array(allowed)) => allowed.iter().any(is_one),
            Some(allowed) => is_one(allowed),
            None => true,
        }
    }
}

/// Returns how a keyword is treated; nothing if it is none.
pub(super) fn rule(name: &str) -> Option<&'static Rule> {
    let row = KEYWORDS.iter().find(|row| row.name == name)?;
    Some(&row.rule)
}

const fn row(name: &'static str, applies: Applies, rule: Rule) -> Keyword {
    Keyword {
        name,
        applies,
        rule,
    }
}

const DYNAMIC: &str = "cannot be enforced; use $ref";

/// Every keyword of the drafts 4, 6, 7, 2019-09 and 2020-12.
pub(super) static KEYWORDS: &[Keyword] = {
    use Applies::{All, Arrays, Numbers, Objects, Strings};
    use Rule::{Annotation, Definitions, Plain, Refused, Rewritten, Schema, SchemaMap, Schemas};
    &[
        row("$ref", All, Rewritten(rewrite::reference)),
        row("$dynamicRef", All, Refused(DYNAMIC)),
        row("$recursiveRef", All, Refused(DYNAMIC)),
        row("$defs", All, Definitions),
        row("definitions", All, Definitions),
        row("$id", All, Rewritten(rewrite::identifier)),
        row("id", All, Annotation),
        row("$schema", All, Annotation),
        row("$vocabulary", All, Annotation),
        row("$anchor", All, Annotation),
        row("$dynamicAnchor", All, Annotation),
        row("$recursiveAnchor", All, Annotation),
        row("$comment", All, Annotation),
        row("title", All, Annotation),
        row("description", All, Annotation),
        row("default", All, Annotation),
        row("examples", All, Annotation),
        row("deprecated", All, Annotation),
        row("readOnly", All, Annotation),
        row("writeOnly", All, Annotation),
        row("contentEncoding", All, Annotation),
        row("contentMediaType", All, Annotation),
        row("contentSchema", All, Annotation),
        row("type", All, Plain),
        row("enum", All, Rewritten(rewrite::constants)),
        row("const", All, Rewritten(rewrite::constants)),
        row("allOf", All, Schemas),
        row("anyOf", All, Schemas),
        row("oneOf", All, Rewritten(rewrite::one_of)),
        row("not", All, Rewritten(rewrite::not)),
        row("if", All, Rewritten(rewrite::condition)),
        // Without `if` they say nothing, with it, it is refused.
        row("then", All, Annotation),
        row("else", All, Annotation),
        row("minLength", Strings, Plain),
        row("maxLength", Strings, Plain),
        row("pattern", Strings, Rewritten(rewrite::pattern)),
        row("format", All, Rewritten(rewrite::format)),
        row("minimum", Numbers, Rewritten(rewrite::limit)),
        row("maximum", Numbers, Rewritten(rewrite::limit)),
        row("exclusiveMinimum", Numbers, Rewritten(rewrite::limit)),
        row("exclusiveMaximum", Numbers, Rewritten(rewrite::limit)),
        row("multipleOf", Numbers, Plain),
        row("prefixItems", Arrays, Schemas),
        row("items", Arrays, Rewritten(rewrite::items)),
        row(
            "additionalItems",
            Arrays,
            Rewritten(rewrite::additional_items),
        ),
        row("unevaluatedItems", Arrays, Rewritten(rewrite::unevaluated)),
        row("minItems", Arrays, Plain),
        row("maxItems", Arrays, Plain),
        row("uniqueItems", Arrays, Rewritten(rewrite::unique_items)),
        row("contains", Arrays, Rewritten(rewrite::contains)),
        // Without `contains` they say nothing, with it, it is refused.
        row("minContains", Arrays, Annotation),
        row("maxContains", Arrays, Annotation),
        row("properties", Objects, SchemaMap),
        row("patternProperties", Objects, SchemaMap),
        row("additionalProperties", Objects, Schema),
        row(
            "unevaluatedProperties",
            Objects,
            Rewritten(rewrite::unevaluated),
        ),
        row("propertyNames", Objects, Rewritten(rewrite::property_names)),
        row("required", Objects, Plain),
        row("minProperties", Objects, Rewritten(rewrite::property_count)),
        row("maxProperties", Objects, Rewritten(rewrite::property_count)),
        row(
            "dependentRequired",
            Objects,
            Rewritten(rewrite::dependencies),
        ),
        row(
            "dependentSchemas",
            Objects,
            Rewritten(rewrite::dependencies),
        ),
        row("dependencies", Objects, Rewritten(rewrite::dependencies)),
    ]
};

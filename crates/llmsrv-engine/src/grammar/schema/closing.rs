//! Which properties an object has where its schema does not say whether there may be others: those
//! that are listed. `{"properties": {"a": {}}}` is read with `"additionalProperties": false`.
//!
//! A schema of several parts lists what its parts list together: to close each of them by itself
//! would leave nothing. So parts stay open, and the whole gets a part more, which closes it:
//!
//! ```text
//! {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}
//! {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}},
//!            {"properties": {"a": true, "b": true}, "additionalProperties": false}]}
//! ```

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{Output, references::References};

/// How the properties of a schema's objects are closed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Closing {
    /// There is nothing to close, or each alternative closes itself.
    No,
    /// With what the schema lists itself.
    Own,
    /// With what all parts list together; `is_exact` where each of them is sure to hold.
    Whole { names: Vec<String>, is_exact: bool },
    /// The schema says itself that there are others, or is a part of one that is closed as a whole.
    Elsewhere,
}

impl Closing {
    /// Whether the parts of the schema are closed together, or not at all.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Closing::Whole { .. } | Closing::Elsewhere)
    }

    /// Whether there are no properties but those that the schema lists itself.
    pub(super) fn is_own(&self) -> bool {
        *self == Closing::Own
    }

    /// Whether no other properties than those evaluated by the schema's parts are let through.
    pub(super) fn is_exact(&self) -> bool {
        matches!(self, Closing::Whole { is_exact: true, .. })
    }

    /// Closes the rewritten schema.
    pub(super) fn apply(&self, schema: &Map<String, Value>, output: &mut Output) {
        match self {
            Closing::No | Closing::Elsewhere => {}
            Closing::Own => {
                if let Some(Value::Object(listed)) = output.fields.get_mut("properties") {
                    for name in names(schema, "required") {
                        listed.entry(name).or_insert(Value::Bool(true));
                    }
                    output
                        .fields
                        .insert("additionalProperties".into(), false.into());
                }
            }
            Closing::Whole { names, .. } => {
                let listed = names.iter().map(|name| (name.clone(), Value::Bool(true)));
                let listed: Map<String, Value> = listed.collect();
                let mut whole = json!({ "properties": listed, "additionalProperties": false });
                if schema.get("type").is_some_and(|name| name == "object") {
                    whole["type"] = "object".into();
                }
                output.all.push(whole);
            }
        }
    }
}

impl References<'_> {
    /// Returns how a schema that is no part of another is closed.
    pub(super) fn closing(&self, schema: &Map<String, Value>) -> Closing {
        let applicators: Vec<&str> = APPLICATORS
            .into_iter()
            .filter(|name| schema.contains_key(*name))
            .collect();
        let has_own = OWN.iter().any(|name| schema.contains_key(*name));
        match applicators[..] {
            [] if is_plainly_closed(schema) => Closing::Own,
            [] => Closing::No,
            ["$ref" | "anyOf" | "oneOf"] if !has_own => Closing::No,
            ["allOf"] if !has_own && list(schema, "allOf").len() == 1 => Closing::No,
            _ => {
                let mut listing = Listing {
                    is_exact: true,
                    ..Listing::default()
                };
                let is_open = self.collect(schema, &mut listing, MAX_NESTED).is_none();
                if is_open || !listing.is_listed || listing.least > listing.names.len() as u64 {
                    return Closing::Elsewhere;
                }
                Closing::Whole {
                    names: listing.names,
                    is_exact: listing.is_exact,
                }
            }
        }
    }

    /// Adds the properties that a schema and its parts list; nothing if it says that there are
    /// others, or too much to look through.
    fn collect<'s>(
        &'s self,
        schema: &'s Map<String, Value>,
        listing: &mut Listing<'s>,
        depth: usize,
    ) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        listing.n_schemas += 1;
        if says_there_are_others(schema) || listing.n_schemas > MAX_SCHEMAS {
            return None;
        }
        listing.is_listed |= schema.contains_key("properties");
        listing.least = listing.least.max(least(schema));
        let listed = schema.get("properties").and_then(Value::as_object);
        let listed = listed.into_iter().flat_map(Map::keys).cloned();
        for name in listed.chain(names(schema, "required")) {
            if listing.known.insert(name.clone()) {
                listing.names.push(name);
            }
        }
        let target = schema.get("$ref").and_then(Value::as_str);
        if let Some(reference) = target
            && listing.references.insert(reference)
            && let Some(Value::Object(target)) = self.target(reference)
        {
            self.collect(target, listing, depth)?;
        }
        for name in ["allOf", "anyOf", "oneOf"] {
            for part in list(schema, name) {
                if let Value::Object(part) = part {
                    listing.is_exact &= name == "allOf";
                    self.collect(part, listing, depth)?;
                }
            }
        }
        for name in ["if", "then", "else"] {
            if let Some(Value::Object(part)) = schema.get(name) {
                listing.is_exact = false;
                self.collect(part, listing, depth)?;
            }
        }
        for name in ["dependentSchemas", "dependencies"] {
            let members = schema.get(name).and_then(Value::as_object);
            for member in members.into_iter().flat_map(Map::values) {
                if let Value::Object(part) = member {
                    listing.is_exact = false;
                    self.collect(part, listing, depth)?;
                }
            }
        }
        Some(())
    }
}

/// What was found so far.
#[derive(Default)]
struct Listing<'a> {
    names: Vec<String>,
    known: HashSet<String>,
    /// References that were followed.
    references: HashSet<&'a str>,
    /// Whether any part has `properties`.
    is_listed: bool,
    is_exact: bool,
    /// Properties that an object needs.
    least: u64,
    n_schemas: usize,
}

/// Whether the objects of a schema without parts have the listed properties only.
pub(super) fn is_plainly_closed(schema: &Map<String, Value>) -> bool {
    let Some(Value::Object(listed)) = schema.get("properties") else {
        return false;
    };
    let others = names(schema, "required").filter(|name| !listed.contains_key(name));
    !says_there_are_others(schema) && least(schema) <= (listed.len() + others.count()) as u64
}

/// Whether a schema says something about properties that it does not list.
fn says_there_are_others(schema: &Map<String, Value>) -> bool {
    let is_open = |name: &&str| {
        schema
            .get(*name)
            .is_some_and(|value| *value != Value::Bool(false))
    };
    TRIGGER.iter().any(is_open)
}

fn least(schema: &Map<String, Value>) -> u64 {
    let least = schema.get("minProperties").and_then(Value::as_u64);
    least.unwrap_or_default()
}

fn names(schema: &Map<String, Value>, keyword: &str) -> impl Iterator<Item = String> {
    let names = list(schema, keyword).iter();
    names
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect::<Vec<_>>()
        .into_iter()
}

fn list<'a>(schema: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    let items = schema.get(keyword).and_then(Value::as_array);
    items.map_or(&[][..], Vec::as_slice)
}

/// Keywords with parts of the schema they are in.
const APPLICATORS: [&str; 7] = [
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "dependentSchemas",
    "dependencies",
];
/// Keywords by which a schema itself says something about properties.
const OWN: [&str; 8] = [
    "properties",
    "required",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
];
/// Keywords about other properties than those that are listed.
const TRIGGER: [&str; 4] = [
    "additionalProperties",
    "unevaluatedProperties",
    "patternProperties",
    "propertyNames",
];
const MAX_NESTED: usize = 64;
const MAX_SCHEMAS: usize = 2000;

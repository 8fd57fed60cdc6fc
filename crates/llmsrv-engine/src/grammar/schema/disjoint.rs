//! Whether two schemas have no value in common, as far as can be seen.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::{closing, references::References};

impl References<'_> {
    /// Whether no value matches two of the schemas for sure. Where they `are_closed`, an object has
    /// no properties but those that its schema lists, unless it says something about others.
    pub(super) fn are_disjoint(&self, schemas: &[Value], are_closed: bool) -> bool {
        let work = Work {
            left: Cell::new(MAX_COMPARISONS),
            are_closed,
        };
        schemas.iter().enumerate().all(|(idx, a)| {
            schemas[idx + 1..]
                .iter()
                .all(|b| self.disjoint(a, b, MAX_DEPTH, &work))
        })
    }

    /// A schema is a conjunction of parts; one pair of parts without a common value is enough.
    fn disjoint(&self, a: &Value, b: &Value, depth: usize, work: &Work) -> bool {
        let Some(depth) = depth.checked_sub(1) else {
            return false;
        };
        let Some(left) = work.left.get().checked_sub(1) else {
            return false;
        };
        work.left.set(left);
        let (a, b) = match (a, b) {
            (Value::Bool(false), _) | (_, Value::Bool(false)) => return true,
            (Value::Object(a), Value::Object(b)) => (a, b),
            _ => return false,
        };
        self.part_disjoint(a, &Value::Object(b.clone()), depth, work)
            || self.part_disjoint(b, &Value::Object(a.clone()), depth, work)
            || types_disjoint(a, b)
            || constants_disjoint(a, b)
            || constants_disjoint(b, a)
            || self.properties_disjoint(a, b, depth, work)
    }

    /// Whether what an applicator of `a` says excludes `b`.
    fn part_disjoint(&self, a: &Map<String, Value>, b: &Value, depth: usize, work: &Work) -> bool {
        let list = |name: &str| a.get(name).and_then(Value::as_array);
        let is_disjoint = |part: &Value| self.disjoint(part, b, depth, work);
        let target = a
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| self.target(reference));
        target.is_some_and(is_disjoint)
            || list("allOf").is_some_and(|parts| parts.iter().any(is_disjoint))
            || list("anyOf").is_some_and(|parts| parts.iter().all(is_disjoint))
            || list("oneOf").is_some_and(|parts| parts.iter().all(is_disjoint))
    }

    /// Whether a property that one of two kinds of objects must have differs in them.
    fn properties_disjoint(
        &self,
        a: &Map<String, Value>,
        b: &Map<String, Value>,
        depth: usize,
        work: &Work,
    ) -> bool {
        let is_object =
            |schema: &Map<String, Value>| schema.get("type").is_some_and(|name| name == "object");
        if !is_object(a) && !is_object(b) {
            return false;
        }
        let required = |schema: &Map<String, Value>| {
            let names = schema.get("required").and_then(Value::as_array);
            names.cloned().unwrap_or_default()
        };
        let mut names = required(a);
        names.extend(required(b));
        names.iter().filter_map(Value::as_str).any(|name| {
            let (a, b) = (property(a, name, work), property(b, name, work));
            self.disjoint(&a, &b, depth, work)
        })
    }

    pub(super) fn target(&self, reference: &str) -> Option<&Value> {
        let at = self.find(reference)?;
        self.root().pointer(&at)
    }
}

/// The comparisons that are left, and how schemas are read.
struct Work {
    left: Cell<usize>,
    are_closed: bool,
}

/// What a schema says about a property.
fn property(schema: &Map<String, Value>, name: &str, work: &Work) -> Value {
    let listed = schema.get("properties").and_then(|all| all.get(name));
    let is_closed = (schema.get("additionalProperties") == Some(&Value::Bool(false))
        && !schema.contains_key("patternProperties"))
        || (work.are_closed && closing::is_plainly_closed(schema));
    match listed {
        Some(property) => property.clone(),
        None => Value::Bool(!is_closed),
    }
}

fn types_disjoint(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let (Some(a), Some(b)) = (a.get("type"), b.get("type")) else {
        return false;
    };
    let names = |types: &Value| match types {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    let kind = |name: &Value| match name.as_str() {
        Some("integer") => "number".to_owned(),
        name => name.unwrap_or_default().to_owned(),
    };
    let (a, b) = (names(a), names(b));
    !a.iter().any(|a| b.iter().any(|b| kind(a) == kind(b)))
}

/// Whether none of the values of `a` matches `b`.
fn constants_disjoint(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let Some(values) = constants(a) else {
        return false;
    };
    values.iter().all(|value| {
        let elsewhere = constants(b).is_some_and(|others| !others.iter().any(|o| same(o, value)));
        let other_type = b.get("type").is_some_and(|types| match types {
            Value::Array(types) => !types.iter().any(|name| is_of_type(value, name)),
            name => !is_of_type(value, name),
        });
        elsewhere || other_type
    })
}

fn constants(schema: &Map<String, Value>) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

/// Equality of JSON Schema as far as it is sure: 1 is 1.0; lists and objects may be equal.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => true,
        _ => a == b,
    }
}

fn is_of_type(value: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("number" | "integer") => value.is_number(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    }
}

const MAX_DEPTH: usize = 12;
const MAX_COMPARISONS: usize = 20_000;

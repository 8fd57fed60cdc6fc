//! Keywords that are enforced by saying the same with others.

use llguidance::derivre::RegexBuilder;
use serde_json::{Map, Number, Value, json};

use super::{super::one_line, Output, SchemaError, Site, Walk, formats, join};

type Outcome = Result<(), SchemaError>;

/// `$ref`: to a definition of our own names, so that pointers and anchors of any spelling work.
pub(super) fn reference(walk: &mut Walk<'_>, site: &Site<'_>, output: &mut Output) -> Outcome {
    let Some(reference) = site.value.as_str() else {
        return Err(site.error("must be a string"));
    };
    let Some(at) = walk.references.find(reference) else {
        return Err(site.error(format!(
            "leads to {reference:?}, which is not in the schema; only references inside it are followed"
        )));
    };
    let name = walk.references.name(&at, site.closing.is_shared());
    output
        .fields
        .insert("$ref".into(), format!("#/$defs/{name}").into());
    Ok(())
}

/// `$id`: the name of the whole schema; inside, it would change what references mean.
pub(super) fn identifier(_: &mut Walk<'_>, site: &Site<'_>, _: &mut Output) -> Outcome {
    let is_anchor = site.value.as_str().is_some_and(|id| id.starts_with('#'));
    if site.at == "/$id" || is_anchor {
        return Ok(());
    }
    Err(site.error("cannot be followed inside a schema; remove it and refer with #/$defs/…"))
}

/// `const` and `enum`.
pub(super) fn constants(_: &mut Walk<'_>, site: &Site<'_>, output: &mut Output) -> Outcome {
    if !is_exact(site.value) {
        return Err(site.error("has a number with more digits than can be compared"));
    }
    if site.keyword == "enum" && !site.value.is_array() {
        return Err(site.error("must be a list"));
    }
    output
        .fields
        .insert(site.keyword.into(), site.value.clone());
    Ok(())
}

/// `oneOf` is `anyOf` when no value can match two of the schemas. If that cannot be seen here, a strict
/// schema leaves the last word to the grammar engine; otherwise it is `anyOf`, too.
pub(super) fn one_of(walk: &mut Walk<'_>, site: &Site<'_>, output: &mut Output) -> Outcome {
    let schemas = walk.list(site)?;
    let options = site.value.as_array().map_or(&[][..], Vec::as_slice);
    let are_closed = !site.closing.is_shared();
    if options.len() == 1 || walk.references.are_disjoint(options, are_closed) {
        output.all.push(json!({ "anyOf": schemas }));
    } else if walk.mode == super::Mode::Strict {
        output.fields.insert("oneOf".into(), schemas);
    } else {
        output.all.push(json!({ "anyOf": schemas }));
        return Err(
            site.unenforced("is not enforced: a value may match more than one of its schemas")
        );
    }
    Ok(())
}

/// `not` of what nothing matches says nothing.
pub(super) fn not(_: &mut Walk<'_>, site: &Site<'_>, _: &mut Output) -> Outcome {
    if site.value == &Value::Bool(false) {
        return Ok(());
    }
    Err(site.unenforced("cannot be enforced; say what is allowed instead"))
}

/// `if` says something only with `then` or `else`.
pub(super) fn condition(_: &mut Walk<'_>, site: &Site<'_>, _: &mut Output) -> Outcome {
    if site.schema.contains_key("then") || site.schema.contains_key("else") {
        return Err(site.unenforced("cannot be enforced; write the cases as anyOf"));
    }
    Ok(())
}

/// `pattern`, if it is a regular expression without look-around and back-references.
pub(super) fn pattern(_: &mut Walk<'_>, site: &Site<'_>, output: &mut Output) -> Outcome {
    let Some(pattern) = site.value.as_str() else {
        return Err(site.error("must be a string"));
    };
    let regex = llguidance::regex_to_lark(pattern, "dw");
    if let Err(error) = RegexBuilder::new().mk_regex_for_serach(&regex) {
        let error = one_line(&format!("{error:#}"));
        return Err(site.unenforced(format!("cannot be enforced: {error}")));
    }
    output
        .fields
        .insert(site.keyword.into(), site.value.clone());
    Ok(())
}

/// `format`: a pattern, a range, or nothing.
pub(super) fn format(_: &mut Walk<'_>, site: &Site<'_>, output: &mut Output) -> Outcome {
    let Some(name) = site.value.as_str() else {
        return Err(site.error("must be a string"));
    };
    match formats::find(name) {
        Some(format) if !format.applies.to(site.schema) => {}
        Some(format) => match format.rule {
            formats::Rule::Native => {
                output.fields.insert("format".into(), name.into());
            }
            formats::Rule::Pattern(pattern) => {
                output.all.push(json!({ "pattern": pattern() }));
            }
            formats::Rule::Range(minimum, maximum) => {
                output
                    .all
                    .push(json!({ "minimum": minimum, "maximum": maximum }));
            }
            formats::Rule::Annotation => {}
        },
        None if super::keywords::Applies::Strings.to(site.schema) => {
            return Err(site.unenforced(format!(
                "cannot be enforced: {name:?} is not a known format; use pattern or remove it"
            )));
        }
        None => {}
    }
    Ok(())
}

/// `minimum` and the like. Integers that a double cannot hold are moved inwards, to the next one
/// that it can; limits of integers that are out of reach become the outermost ones. A limit that is
/// exclusive becomes the next double: of 0.5, readers of JSON cannot tell 0.50000000000000001.
pub(super) fn limit(_: &mut Walk<'_>, site: &Site<'_>, output: &mut Output) -> Outcome {
    let is_lower = site.keyword.ends_with("inimum");
    let of_integers = match site.schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(|name| name == "integer"),
        Some(name) => name == "integer",
        None => false,
    };
    let is_exclusive = site.keyword.starts_with("exclusive") && !of_integers;
    let limit = site.value.as_f64().filter(|limit| *limit != 0.0);
    if let Some(limit) = limit.filter(|_| is_exclusive && is_exact(site.value)) {
        let next = if is_lower {
            limit.next_up()
        } else {
            limit.next_down()
        };
        if next.is_finite() {
            let keyword = if is_lower { "minimum" } else { "maximum" };
            output.all.push(json!({ keyword: next }));
            return Ok(());
        }
    }
    let reached = |limit: &f64| of_integers && limit.abs() > formats::MAX_INTEGER;
    let value = match (site.value.as_f64().filter(reached), site.value) {
        (Some(limit), _) if is_lower == (limit > 0.0) => {
            return Err(site.error("is beyond the integers of 64 bits"));
        }
        (Some(limit), _) => formats::MAX_INTEGER.copysign(limit).into(),
        (None, Value::Number(number)) if !is_exact(site.value) => inwards(number, is_lower),
        (None, value) => value.clone(),
    };
    output.fields.insert(site.keyword.into(), value);
    Ok(())
}

/// `items`: a schema, or a list of them in older drafts.
pub(super) fn items(walk: &mut Walk<'_>, site: &Site<'_>, output: &mut Output) -> Outcome {
    let (keyword, value) = if site.value.is_array() {
        ("prefixItems", walk.list(site)?)
    } else {
        ("items", walk.schema(site.value, &site.at)?)
    };
    output.fields.insert(keyword.into(), value);
    Ok(())
}

/// `additionalItems` has a meaning only beside a list of `items`.
pub(super) fn additional_items(
    walk: &mut Walk<'_>,
    site: &Site<'_>,
    output: &mut Output,
) -> Outcome {
    if site.schema.get("items").is_some_and(Value::is_array) {
        let value = walk.schema(site.value, &site.at)?;
        output.fields.insert("items".into(), value);
    }
    Ok(())
}

/// `unevaluatedItems` and `unevaluatedProperties` without applicators beside them are about what
/// the plain keywords leave.
pub(super) fn unevaluated(walk: &mut Walk<'_>, site: &Site<'_>, output: &mut Output) -> Outcome {
    const APPLICATORS: [&str; 8] = [
        "$ref",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "dependentSchemas",
        "dependencies",
        "contains",
    ];
    let (rest, other) = match site.keyword {
        "unevaluatedItems" => ("items", "additionalItems"),
        _ => ("additionalProperties", "additionalProperties"),
    };
    if site.value == &Value::Bool(true) {
        return Ok(());
    }
    if APPLICATORS
        .iter()
        .any(|name| site.schema.contains_key(*name))
    {
        if site.keyword == "unevaluatedProperties" && site.closing.is_exact() {
            return Ok(());
        }
        return Err(site.unenforced(format!(
            "cannot be enforced beside allOf, anyOf, oneOf or $ref; use {rest} in each part"
        )));
    }
    let is_list = site.schema.get("items").is_some_and(Value::is_array);
    if (!site.schema.contains_key(rest) || is_list) && !site.schema.contains_key(other) {
        let value = walk.schema(site.value, &site.at)?;
        output.fields.insert(rest.into(), value);
    }
    Ok(())
}

/// `uniqueItems` is kept by itself when there are no two items.
pub(super) fn unique_items(_: &mut Walk<'_>, site: &Site<'_>, _: &mut Output) -> Outcome {
    if site.value == &Value::Bool(false) || site.count("maxItems").is_some_and(|most| most <= 1) {
        return Ok(());
    }
    Err(site.unenforced("cannot be enforced; remove it or set it to false"))
}

/// `contains` asks for nothing when none of the items need match.
pub(super) fn contains(_: &mut Walk<'_>, site: &Site<'_>, _: &mut Output) -> Outcome {
    if site.count("minContains") == Some(0) && !site.schema.contains_key("maxContains") {
        return Ok(());
    }
    Err(site.unenforced("cannot be enforced; describe the items with prefixItems and items"))
}

/// `propertyNames`: what else there may be is `false`.
pub(super) fn property_names(walk: &mut Walk<'_>, site: &Site<'_>, output: &mut Output) -> Outcome {
    const HINT: &str = "can be enforced only with enum, const, pattern, minLength and maxLength";
    let Some(names) = walk.references.follow(site.value) else {
        return Err(site.unenforced(HINT));
    };
    let names = match names {
        Value::Bool(true) => return Ok(()),
        Value::Object(names) => names,
        _ => return Err(site.unenforced(HINT)),
    };
    let listed = |names: &[Value]| {
        let names = names.iter().filter_map(Value::as_str);
        let names: Map<String, Value> = names.map(|name| (name.to_owned(), json!(true))).collect();
        json!({ "properties": names, "additionalProperties": false })
    };
    let matching = |pattern: &str| json!({ "patternProperties": { pattern: true }, "additionalProperties": false });
    for (keyword, value) in names {
        let also = match (keyword.as_str(), value) {
            ("type", value) if value == "string" => continue,
            ("enum", Value::Array(names)) => listed(names),
            ("const", name) => listed(std::slice::from_ref(name)),
            ("pattern", Value::String(pattern)) => matching(pattern),
            ("minLength", value) if value.is_u64() => matching(&format!("^[\\s\\S]{{{value},}}$")),
            ("maxLength", value) if value.is_u64() => matching(&format!("^[\\s\\S]{{0,{value}}}$")),
            (keyword, _) if !super::constrains(keyword) => continue,
            _ => return Err(site.unenforced(HINT)),
        };
        output.all.push(also);
    }
    Ok(())
}

/// `minProperties` and `maxProperties`. Names beyond the required ones could be repeated, so only
/// one more counts; which optional ones are there can be counted only up to one.
pub(super) fn property_count(_: &mut Walk<'_>, site: &Site<'_>, output: &mut Output) -> Outcome {
    let required = site.schema.get("required").and_then(Value::as_array);
    let required = required.map_or(&[][..], Vec::as_slice);
    let beyond = |count: u64| count.saturating_sub(required.len() as u64);
    let least = site.count("minProperties").map_or(0, beyond);
    let most = site.count("maxProperties").map(beyond);
    if site.keyword == "minProperties" && least > 1 {
        return Err(site.unenforced(
            "can be enforced only up to one more than the properties in required; require them by name",
        ));
    }
    let listed = site.schema.get("properties").and_then(Value::as_object);
    let has_optional = listed.is_some_and(|listed| {
        listed
            .keys()
            .any(|name| !required.iter().any(|other| other == name))
    });
    let is_closed = site.closing.is_own()
        || (site.schema.get("additionalProperties") == Some(&Value::Bool(false))
            && !site.schema.contains_key("patternProperties"));
    let counts_to_one = least <= 1 && most.unwrap_or(1) == 1 && is_closed;
    if has_optional && (least > 0 || most.is_some()) && !counts_to_one {
        return Err(site.unenforced("cannot be enforced beside optional properties"));
    }
    output
        .fields
        .insert(site.keyword.into(), site.value.clone());
    Ok(())
}

/// `{"dependentRequired": {"a": ["b"]}}` is: no `a`, or both. `dependencies` has both kinds.
pub(super) fn dependencies(walk: &mut Walk<'_>, site: &Site<'_>, output: &mut Output) -> Outcome {
    let Value::Object(dependencies) = site.value else {
        return Err(site.error("must be an object"));
    };
    if dependencies.len() > MAX_DEPENDENCIES {
        return Err(site.unenforced(format!(
            "can be enforced for up to {MAX_DEPENDENCIES} properties"
        )));
    }
    for (name, dependency) in dependencies {
        let present = match dependency {
            Value::Array(others) => {
                let mut required = vec![json!(name)];
                required.extend(others.iter().filter(|other| *other != name).cloned());
                json!({ "required": required })
            }
            schema => {
                let at = join(&site.at, name);
                let schema = walk.member(schema, &at, true)?;
                json!({ "required": [name], "allOf": [schema] })
            }
        };
        let absent = json!({ "properties": { name: false } });
        output.all.push(json!({ "anyOf": [absent, present] }));
    }
    Ok(())
}

/// Whether all numbers in a value are the same as doubles, with which the grammar engine computes.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => integer.unsigned_abs() <= EXACT,
            (None, Some(integer)) => integer <= EXACT,
            (None, None) => true,
        },
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(fields) => fields.values().all(is_exact),
        _ => true,
    }
}

/// The next double above an integer (if `up`) or below it.
fn inwards(number: &Number, up: bool) -> Value {
    let exact = number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
        .unwrap_or_default();
    let double = exact as f64;
    let moved = match (double as i128).cmp(&exact) {
        std::cmp::Ordering::Less if up => double.next_up(),
        std::cmp::Ordering::Greater if !up => double.next_down(),
        _ => double,
    };
    moved.into()
}

/// Integers up to 2^53 are doubles.
const EXACT: u64 = 1 << 53;
/// Each dependency doubles the ways to write the object.
const MAX_DEPENDENCIES: usize = 6;

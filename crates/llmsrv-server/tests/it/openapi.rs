//! The document against the router and the parsers.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use crate::host::host;

/// Follows a reference.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(path) => document
            .pointer(path.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{path} leads nowhere")),
        None => schema,
    }
}

#[tokio::test]
async fn every_route_is_in_the_document_and_no_other() {
    let document = host().get("/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
    let mut documented = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, _) in item.as_object().unwrap() {
            if method != "head" {
                documented.insert(format!("{method} {path}"));
            }
        }
    }
    let source: String = include_str!("../../src/routes/mod.rs")
        .split_whitespace()
        .collect();
    let mut routed = BTreeSet::new();
    for route in source.split(".route(\"").skip(1) {
        let (path, rest) = route.split_once("\",").unwrap();
        let end = rest.find(".route(").unwrap_or(rest.len());
        let path = path.replace("{*", "{");
        for method in ["get", "post", "delete", "head", "put"] {
            let handler = rest[..end].split(".fallback").next().unwrap();
            let is_there = handler.starts_with(&format!("{method}("))
                || handler.contains(&format!(").{method}("));
            if is_there && method != "head" {
                routed.insert(format!("{method} {path}"));
            }
        }
    }
    assert!(routed.len() > 10, "{routed:?}");
    assert_eq!(documented, routed);
}

#[tokio::test]
async fn references_and_names_are_sound() {
    let document = host().get("/openapi.json").await;
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"").skip(1) {
        let path = reference.split('"').next().unwrap();
        assert!(
            document.pointer(path.trim_start_matches('#')).is_some(),
            "{path} leads nowhere"
        );
    }
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id), "{id} twice");
            assert!(operation["summary"].is_string(), "{method} {path}");
        }
    }
}

/// Returns the JSON types that a schema allows, or nothing when it allows all.
fn types<'a>(document: &'a Value, schema: &'a Value, out: &mut BTreeSet<&'a str>) -> bool {
    let schema = resolve(document, schema);
    match &schema["type"] {
        Value::String(name) => {
            out.insert(name);
            return true;
        }
        Value::Array(names) => {
            out.extend(names.iter().filter_map(Value::as_str));
            return true;
        }
        _ => {}
    }
    let alternatives = ["oneOf", "anyOf", "allOf"]
        .iter()
        .find_map(|kind| schema[kind].as_array());
    alternatives.is_some_and(|all| all.iter().all(|one| types(document, one, out)))
}

/// A member with a value of a type that the document does not allow is refused: so the parser reads
/// the member, and reads it as the document says.
#[tokio::test]
async fn the_parsers_read_what_the_document_says() {
    let host = host();
    let document = host.get("/openapi.json").await;
    let mut n_members = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            if body.is_null() {
                continue;
            }
            let members = resolve(&document, body)["properties"].as_object().unwrap();
            for (member, schema) in members {
                let mut allowed = BTreeSet::new();
                if !types(&document, schema, &mut allowed) {
                    continue;
                }
                let wrong = [
                    ("object", json!({"no_such_thing": []})),
                    ("array", json!([{"no_such_thing": []}])),
                    ("boolean", json!(true)),
                    ("string", json!("no such thing")),
                ];
                let Some((_, wrong)) = wrong.iter().find(|(name, _)| !allowed.contains(name))
                else {
                    continue;
                };
                let mut request =
                    json!({"model": "plain", "source": "plain", "destination": "plain2"});
                for required in resolve(&document, body)["required"]
                    .as_array()
                    .into_iter()
                    .flatten()
                {
                    let name = required.as_str().unwrap();
                    if request.get(name).is_none() {
                        request[name] = match resolve(&document, &members[name])["type"].as_str() {
                            Some("array") => json!([]),
                            _ => json!("x"),
                        };
                    }
                }
                request[member] = wrong.clone();
                let method: Method = method.to_uppercase().parse().unwrap();
                let (status, answer) = host.text(method, path, request.to_string()).await;
                assert_eq!(status, 400, "{path} {request}: {answer}");
                n_members += 1;
            }
        }
    }
    assert!(n_members > 40, "{n_members}");
}

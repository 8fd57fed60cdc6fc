//! The keywords of JSON Schema, each with schemas and values.

use serde_json::{Value, json};

/// A keyword, a schema with it, a value it must let through and one it must not.
pub(super) struct Row(
    pub(super) &'static str,
    pub(super) Value,
    pub(super) Value,
    pub(super) Value,
);

pub(super) fn enforced() -> Vec<Row> {
    let names = |name: &str| json!({"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]});
    let cat = json!({"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"], "additionalProperties": false});
    let dog = json!({"type": "object", "properties": {"kind": {"const": "dog"}, "age": {"type": "integer"}}, "required": ["kind"], "additionalProperties": false});
    let tree = json!({"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}, "required": ["v"], "additionalProperties": false});
    vec![
        Row(
            "$ref",
            json!({"$ref": "#/definitions/a~1b%20c", "definitions": {"a/b c": {"type": "null"}}}),
            json!(null),
            json!(1),
        ),
        Row(
            "$ref",
            json!({"$ref": "#/$defs/tree", "$defs": {"tree": tree}}),
            json!({"v": 1, "kids": [{"v": 2}]}),
            json!({"v": 1, "kids": [{"v": "2"}]}),
        ),
        Row(
            "$ref",
            json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["id"], "additionalProperties": {"type": "boolean"}}),
            json!({"next": {"id": true}, "id": false}),
            json!({"next": {"id": 1}, "id": true}),
        ),
        Row(
            "$ref",
            json!({"$id": "https://example.org/s", "$ref": "https://example.org/s#/$defs/n", "$defs": {"n": {"type": "integer"}}}),
            json!(7),
            json!("7"),
        ),
        Row(
            "$ref",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"p": {"type": "integer"}}, "items": [{"$ref": "#/definitions/p"}], "additionalItems": false, "type": "array"}),
            json!([1]),
            json!(["a"]),
        ),
        Row(
            "$defs",
            json!({"$defs": {"unused": {"uniqueItems": true}}, "type": "null"}),
            json!(null),
            json!(0),
        ),
        Row(
            "definitions",
            json!({"definitions": {"a": {"minimum": 3}}, "type": "integer", "allOf": [{"$ref": "#/definitions/a"}]}),
            json!(3),
            json!(2),
        ),
        Row(
            "$anchor",
            json!({"type": "array", "items": {"$ref": "#item"}, "$defs": {"x": {"$anchor": "item", "type": "boolean"}}}),
            json!([true]),
            json!([1]),
        ),
        Row(
            "$dynamicAnchor",
            json!({"type": "array", "items": {"$ref": "#node"}, "$defs": {"x": {"$dynamicAnchor": "node", "type": "boolean"}}}),
            json!([true]),
            json!([1]),
        ),
        Row(
            "$recursiveAnchor",
            json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true, "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "$id",
            json!({"$id": "https://example.org/s", "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "id",
            json!({"id": "https://example.org/s", "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "$schema",
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "$vocabulary",
            json!({"$vocabulary": {}, "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "$comment",
            json!({"$comment": "c", "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "title",
            json!({"title": "t", "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "description",
            json!({"description": "d", "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "default",
            json!({"default": "x", "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "examples",
            json!({"examples": [1], "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "deprecated",
            json!({"deprecated": true, "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "readOnly",
            json!({"readOnly": true, "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "writeOnly",
            json!({"writeOnly": true, "type": "boolean"}),
            json!(true),
            json!(1),
        ),
        Row(
            "contentEncoding",
            json!({"contentEncoding": "base64", "type": "string"}),
            json!("YQ=="),
            json!(1),
        ),
        Row(
            "contentMediaType",
            json!({"contentMediaType": "text/plain", "type": "string"}),
            json!("x"),
            json!(1),
        ),
        Row(
            "contentSchema",
            json!({"contentSchema": {"type": "null"}, "type": "string"}),
            json!("x"),
            json!(1),
        ),
        Row(
            "type",
            json!({"type": ["integer", "null"]}),
            json!(12),
            json!(1.5),
        ),
        Row("type", json!({"type": "number"}), json!(-1.5), json!("x")),
        Row(
            "enum",
            json!({"enum": ["a", 1, 2.5, null, true, [1, {"x": "y"}], {"k": [0]}]}),
            json!([1, {"x": "y"}]),
            json!("b"),
        ),
        Row(
            "const",
            json!({"const": {"a": ["\u{e9}\"\n", 3]}}),
            json!({"a": ["\u{e9}\"\n", 3]}),
            json!({"a": 3}),
        ),
        Row(
            "allOf",
            json!({"allOf": [names("a"), names("b"), {"minProperties": 1}]}),
            json!({"a": 1, "b": 2}),
            json!({"a": 1}),
        ),
        Row(
            "anyOf",
            json!({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "string", "maxLength": 2}]}),
            json!("ab"),
            json!("abc"),
        ),
        Row(
            "oneOf",
            json!({"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "$defs": {"cat": cat, "dog": dog}, "discriminator": {"propertyName": "kind"}}),
            json!({"kind": "dog", "age": 3}),
            json!({"kind": "dog", "lives": 3}),
        ),
        Row(
            "oneOf",
            json!({"oneOf": [{"type": "string"}, {"type": "null"}]}),
            json!(null),
            json!(1),
        ),
        Row(
            "oneOf",
            json!({"anyOf": [{"minLength": 2, "type": "string"}, {"type": "array"}], "oneOf": [{"type": "string", "maxLength": 4}, {"type": "integer"}]}),
            json!("abc"),
            json!("a"),
        ),
        Row(
            "not",
            json!({"not": false, "type": "null"}),
            json!(null),
            json!(1),
        ),
        Row(
            "if",
            json!({"if": {"type": "string"}, "type": "null"}),
            json!(null),
            json!(1),
        ),
        Row(
            "then",
            json!({"then": {"type": "string"}, "type": "null"}),
            json!(null),
            json!(1),
        ),
        Row(
            "else",
            json!({"else": {"type": "string"}, "type": "null"}),
            json!(null),
            json!(1),
        ),
        Row(
            "minLength",
            json!({"type": "string", "minLength": 3}),
            json!("a\u{20ac}\n"),
            json!("a\u{1f600}"),
        ),
        Row(
            "maxLength",
            json!({"type": "string", "maxLength": 2}),
            json!("\u{1f600}\u{1f600}"),
            json!("abc"),
        ),
        Row(
            "pattern",
            json!({"type": "string", "pattern": "^[A-Z]{2}\\d+$"}),
            json!("AB12"),
            json!("A12"),
        ),
        Row(
            "pattern",
            json!({"type": "string", "pattern": "b+", "maxLength": 5}),
            json!("xbbx"),
            json!("xx"),
        ),
        Row(
            "format",
            json!({"type": "string", "format": "date", "pattern": "^20"}),
            json!("2024-02-29"),
            json!("1999-01-01"),
        ),
        Row(
            "minimum",
            json!({"type": "integer", "minimum": -3}),
            json!(-3),
            json!(-4),
        ),
        Row(
            "minimum",
            json!({"type": "number", "minimum": 0.5, "maximum": 0.75}),
            json!(0.6),
            json!(0.8),
        ),
        Row(
            "maximum",
            json!({"type": "integer", "maximum": i64::MAX, "minimum": i64::MAX - 4096}),
            json!(9_223_372_036_854_773_760_u64),
            json!(u64::MAX),
        ),
        Row(
            "minimum",
            json!({"type": "integer", "minimum": i64::MIN, "maximum": -5}),
            json!(-9_223_372_036_854_774_784_i64),
            json!(0),
        ),
        Row(
            "maximum",
            json!({"type": "number", "maximum": 10}),
            json!(10),
            json!(11),
        ),
        Row(
            "exclusiveMinimum",
            json!({"type": "integer", "exclusiveMinimum": 3}),
            json!(4),
            json!(3),
        ),
        Row(
            "exclusiveMinimum",
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 3, "exclusiveMinimum": true}),
            json!(4),
            json!(3),
        ),
        Row(
            "exclusiveMaximum",
            json!({"type": "integer", "exclusiveMaximum": 3, "minimum": 0}),
            json!(2),
            json!(3),
        ),
        Row(
            "exclusiveMinimum",
            json!({"type": "number", "exclusiveMinimum": -1000.5, "exclusiveMaximum": -1.5}),
            json!(-1_000.499_999_999_999_9),
            json!(-1000.5),
        ),
        Row(
            "exclusiveMaximum",
            json!({"type": ["number", "null"], "exclusiveMaximum": 0.25, "minimum": 0}),
            json!(0.249_999_999_999_999_97),
            json!(0.25),
        ),
        Row(
            "multipleOf",
            json!({"type": "integer", "multipleOf": 7}),
            json!(21),
            json!(22),
        ),
        Row(
            "prefixItems",
            json!({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": {"type": "boolean"}}),
            json!([1, null, true]),
            json!([null]),
        ),
        Row(
            "items",
            json!({"type": "array", "items": {"enum": [1, 2]}}),
            json!([1, 2, 1]),
            json!([3]),
        ),
        Row(
            "items",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"const": 1}, {"const": 2}]}),
            json!([1, 2, "x"]),
            json!([2]),
        ),
        Row(
            "additionalItems",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"const": 1}], "additionalItems": {"type": "null"}}),
            json!([1, null]),
            json!([1, 2]),
        ),
        Row(
            "additionalItems",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": {"const": 1}, "additionalItems": false}),
            json!([1, 1]),
            json!([2]),
        ),
        Row(
            "unevaluatedItems",
            json!({"type": "array", "prefixItems": [{"type": "null"}], "unevaluatedItems": false}),
            json!([null]),
            json!([null, 1]),
        ),
        Row(
            "minItems",
            json!({"type": "array", "items": {"type": "null"}, "minItems": 2}),
            json!([null, null]),
            json!([null]),
        ),
        Row(
            "maxItems",
            json!({"type": "array", "items": {"type": "null"}, "maxItems": 1}),
            json!([null]),
            json!([null, null]),
        ),
        Row(
            "uniqueItems",
            json!({"type": "array", "items": {"type": "null"}, "uniqueItems": true, "maxItems": 1}),
            json!([null]),
            json!([null, null]),
        ),
        Row(
            "uniqueItems",
            json!({"type": "string", "uniqueItems": true}),
            json!("a"),
            json!([]),
        ),
        Row(
            "contains",
            json!({"type": "array", "items": {"type": "null"}, "contains": {"type": "string"}, "minContains": 0}),
            json!([null]),
            json!([1]),
        ),
        Row(
            "minContains",
            json!({"type": "array", "items": {"type": "null"}, "minContains": 2}),
            json!([]),
            json!([1]),
        ),
        Row(
            "maxContains",
            json!({"type": "array", "items": {"type": "null"}, "maxContains": 2}),
            json!([null, null, null]),
            json!([1]),
        ),
        Row(
            "properties",
            json!({"type": "object", "properties": {"a": {"type": "integer"}, "b\"\u{e9}": {"type": "null"}}}),
            json!({"a": 1, "b\"\u{e9}": null}),
            json!({"a": "1"}),
        ),
        Row(
            "patternProperties",
            json!({"type": "object", "properties": {"xa": {"maximum": 3}}, "patternProperties": {"^x": {"type": "integer"}, "^y": {"type": "null"}}, "additionalProperties": false}),
            json!({"xa": 1, "y": null}),
            json!({"xa": 4}),
        ),
        Row(
            "patternProperties",
            json!({"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "anyOf": [{"required": ["x1"]}, {"required": ["x2"]}], "additionalProperties": false}),
            json!({"x2": 1}),
            json!({"y": 4}),
        ),
        Row(
            "additionalProperties",
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "null"}}),
            json!({"a": 1, "b": null}),
            json!({"b": 1}),
        ),
        Row(
            "additionalProperties",
            json!({"allOf": [{"properties": {"b": {"type": "null"}}}], "properties": {"a": {"type": "integer"}}, "additionalProperties": false, "type": "object"}),
            json!({"a": 1}),
            json!({"b": null}),
        ),
        Row(
            "unevaluatedProperties",
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "unevaluatedProperties": false}),
            json!({"a": 1}),
            json!({"b": 1}),
        ),
        Row(
            "propertyNames",
            json!({"type": "object", "propertyNames": {"$ref": "#/$defs/e"}, "additionalProperties": {"type": "integer"}, "$defs": {"e": {"enum": ["x", "y"], "type": "string"}}}),
            json!({"x": 1, "y": 2}),
            json!({"z": 1}),
        ),
        Row(
            "propertyNames",
            json!({"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": {"type": "integer"}}),
            json!({"abc": 1}),
            json!({"A": 1}),
        ),
        Row(
            "propertyNames",
            json!({"type": "object", "propertyNames": {"maxLength": 2}, "additionalProperties": {"type": "null"}}),
            json!({"ab": null}),
            json!({"abc": null}),
        ),
        Row(
            "required",
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "z"]}),
            json!({"a": 1, "z": 2}),
            json!({"z": 1}),
        ),
        Row(
            "minProperties",
            json!({"type": "object", "required": ["a"], "minProperties": 2, "additionalProperties": {"type": "integer"}}),
            json!({"a": 1, "b": 2}),
            json!({"a": 1}),
        ),
        Row(
            "minProperties",
            json!({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "minProperties": 1, "additionalProperties": false}),
            json!({"b": null}),
            json!({}),
        ),
        Row(
            "maxProperties",
            json!({"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 1}),
            json!({"a": null}),
            json!({"a": null, "b": null}),
        ),
        Row(
            "dependentRequired",
            json!({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "dependentRequired": {"a": ["b"]}, "additionalProperties": false}),
            json!({"a": null, "b": null}),
            json!({"a": null}),
        ),
        Row(
            "dependentSchemas",
            json!({"type": "object", "properties": {"a": {"type": "null"}, "b": {}}, "dependentSchemas": {"a": {"properties": {"b": {"const": 3}}}}, "additionalProperties": false}),
            json!({"a": null, "b": 3}),
            json!({"a": null, "b": 4}),
        ),
        Row(
            "dependencies",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "dependencies": {"a": ["b"], "b": {"required": ["a"]}}, "additionalProperties": false}),
            json!({"a": null, "b": null}),
            json!({"b": null}),
        ),
        // Names cannot be spelled in another way to get around their schema.
        Row(
            "properties",
            json!({"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": {"type": "string"}}),
            json!({"a": 1, "b": ""}),
            json!({"a": ""}),
        ),
    ]
}

/// A schema that says nothing about other properties, and texts of which the first must be let through
/// and the second must not.
pub(super) fn closed() -> Vec<(Value, &'static str, &'static str)> {
    let a = json!({"properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let b = json!({"properties": {"b": {"type": "null"}}});
    let defs = json!({"a": a, "b": b});
    vec![
        (a.clone(), r#"{"a":1}"#, r#"{"a":1,"b":1}"#),
        (
            json!({"type": "object", "properties": {}}),
            "{}",
            r#"{"a":1}"#,
        ),
        (
            json!({"properties": {"a": {}}, "required": ["z"]}),
            r#"{"a":1,"z":2}"#,
            r#"{"z":1,"y":2}"#,
        ),
        (
            json!({"type": "object", "allOf": [a, b]}),
            r#"{"a":1,"b":null}"#,
            r#"{"a":1,"c":null}"#,
        ),
        (
            json!({"allOf": [{"$ref": "#/$defs/a"}], "properties": {"c": {"const": 1}}, "$defs": defs}),
            r#"{"a":1,"c":1}"#,
            r#"{"a":1,"d":1}"#,
        ),
        (
            json!({"$ref": "#/$defs/a", "description": "x", "$defs": defs}),
            r#"{"a":1}"#,
            r#"{"a":1,"c":1}"#,
        ),
        (
            json!({"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}, "$defs": defs}),
            r#"[{"a":1},{"b":null}]"#,
            r#"[{"a":1,"b":null}]"#,
        ),
        // Who lists properties or items wants objects and lists.
        (a.clone(), r#"{"a":1}"#, "7"),
        (json!({"items": {"type": "integer"}}), "[1]", r#""text""#),
        // The same definition, alone and as a part.
        (
            json!({"type": "array", "prefixItems": [{"$ref": "#/$defs/a"}], "items": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}, "$defs": defs}),
            r#"[{"a":1},{"a":1,"b":null}]"#,
            r#"[{"a":1,"b":null}]"#,
        ),
        (
            json!({"properties": {"c": {"const": 1}}, "required": ["c"], "anyOf": [a, b]}),
            r#"{"c":1,"b":null}"#,
            r#"{"c":1,"b":null,"d":1}"#,
        ),
        (
            json!({"unevaluatedProperties": false, "allOf": [a, b]}),
            r#"{"a":1,"b":null}"#,
            r#"{"a":1,"c":null}"#,
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"properties": {"b": {"const": 1}}}}}]}),
            r#"{"a":{"b":1}}"#,
            r#"{"a":{"c":1}}"#,
        ),
        (
            json!({"type": ["object", "null"], "properties": {"a": {"const": 1}}}),
            "null",
            r#"{"b":1}"#,
        ),
        (
            json!({"properties": {"a": {"const": 1}, "b": {"const": 1}}, "dependentSchemas": {"a": {"properties": {"c": {"const": 2}}, "required": ["c"]}}}),
            r#"{"a":1,"c":2}"#,
            r#"{"a":1,"b":1}"#,
        ),
    ]
}

/// A schema that says that there may be other properties, and a text with some.
pub(super) fn open() -> Vec<(Value, &'static str)> {
    let a = json!({"properties": {"a": {"type": "integer"}}});
    let with = |keyword: &str, value: Value| {
        let mut schema = a.clone();
        schema[keyword] = value;
        schema
    };
    vec![
        (
            with("additionalProperties", json!(true)),
            r#"{"a":1,"b":1}"#,
        ),
        (
            with("additionalProperties", json!({"type": "null"})),
            r#"{"b":null}"#,
        ),
        (
            with("unevaluatedProperties", json!(true)),
            r#"{"a":1,"b":1}"#,
        ),
        (
            with("patternProperties", json!({"^x": {"const": 1}})),
            r#"{"a":1,"x1":1}"#,
        ),
        (
            with("propertyNames", json!({"maxLength": 2})),
            r#"{"a":1,"bc":1}"#,
        ),
        (with("minProperties", json!(2)), r#"{"a":1,"b":1}"#),
        (json!({"type": "object"}), r#"{"b":1}"#),
        (
            json!({"type": "object", "required": ["z"]}),
            r#"{"z":1,"b":1}"#,
        ),
        (
            json!({"allOf": [a, {"additionalProperties": {"type": "integer"}}]}),
            r#"{"a":1,"b":1}"#,
        ),
    ]
}

/// A keyword, a schema with it that is refused, and where the keyword is.
pub(super) fn refused() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        (
            "$ref",
            json!({"items": {"$ref": "https://example.org/other"}}),
            "/items/$ref",
        ),
        ("$ref", json!({"$ref": "#/$defs/absent"}), "/$ref"),
        ("$ref", json!({"$ref": "#absent"}), "/$ref"),
        (
            "$id",
            json!({"properties": {"a": {"$id": "other"}}}),
            "/properties/a/$id",
        ),
        ("$dynamicRef", json!({"$dynamicRef": "#a"}), "/$dynamicRef"),
        (
            "$recursiveRef",
            json!({"$recursiveRef": "#"}),
            "/$recursiveRef",
        ),
        (
            "const",
            json!({"const": 9_007_199_254_740_993_u64}),
            "/const",
        ),
        (
            "enum",
            json!({"enum": [1, [9_007_199_254_740_993_u64]]}),
            "/enum",
        ),
        (
            "enum",
            json!({"properties": {"a": {"enum": "x"}}}),
            "/properties/a/enum",
        ),
        (
            "oneOf",
            json!({"type": "object", "properties": {"a/b": {"oneOf": [{"minimum": 1}, {"maximum": 5}]}}}),
            "/properties/a~1b/oneOf",
        ),
        ("not", json!({"not": {"type": "string"}}), "/not"),
        (
            "if",
            json!({"allOf": [{"if": {"const": 1}, "then": {"type": "string"}}]}),
            "/allOf/0/if",
        ),
        (
            "pattern",
            json!({"type": "array", "items": {"type": "string", "pattern": "(?=a)b"}}),
            "/items/pattern",
        ),
        (
            "pattern",
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string", "pattern": "("}}}),
            "/$defs/a/pattern",
        ),
        (
            "format",
            json!({"type": "string", "format": "regex"}),
            "/format",
        ),
        (
            "format",
            json!({"type": "string", "format": "phone"}),
            "/format",
        ),
        (
            "unevaluatedItems",
            json!({"unevaluatedItems": false, "anyOf": [{}]}),
            "/unevaluatedItems",
        ),
        (
            "unevaluatedProperties",
            json!({"unevaluatedProperties": false, "$ref": "#/$defs/a", "$defs": {"a": {}}}),
            "/unevaluatedProperties",
        ),
        (
            "uniqueItems",
            json!({"properties": {"tags": {"type": "array", "uniqueItems": true}}}),
            "/properties/tags/uniqueItems",
        ),
        (
            "contains",
            json!({"type": "array", "contains": {"type": "null"}}),
            "/contains",
        ),
        (
            "propertyNames",
            json!({"propertyNames": {"format": "date"}}),
            "/propertyNames",
        ),
        (
            "minProperties",
            json!({"minProperties": 3}),
            "/minProperties",
        ),
        (
            "minProperties",
            json!({"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1, "additionalProperties": true}),
            "/minProperties",
        ),
        (
            "minimum",
            json!({"type": "integer", "minimum": 1e19}),
            "/minimum",
        ),
        (
            "maxProperties",
            json!({"properties": {"a": {}, "b": {}}, "maxProperties": 1, "additionalProperties": {}}),
            "/maxProperties",
        ),
        (
            "dependencies",
            json!({"dependencies": [1]}),
            "/dependencies",
        ),
        (
            "minLength",
            json!({"type": "string", "minLength": "3"}),
            "/minLength",
        ),
        (
            "maxItems",
            json!({"type": "array", "maxItems": -1}),
            "/maxItems",
        ),
        (
            "type",
            json!({"properties": {"a": {"type": "text"}}, "required": ["a"]}),
            "/properties/a/type",
        ),
        ("items", json!({"items": 3}), "/items"),
        ("properties", json!({"properties": []}), "/properties"),
        ("allOf", json!({"allOf": {}}), "/allOf"),
        (
            "patternProperties",
            json!({"type": "object", "patternProperties": {"a": {}, "b": {}}}),
            "/patternProperties",
        ),
    ]
}

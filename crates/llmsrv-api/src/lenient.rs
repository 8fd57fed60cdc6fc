//! How forgiving the API is about request bodies, so that every existing client is understood.
//!
//! The `Content-Type` does not matter, bytes after the first JSON value are ignored, unknown members
//! too, `null` means absent, and names of members are compared without case. A member of the wrong
//! type is an error that names it. Nesting is bounded by the JSON parser.

use serde_json::{Map, Value};

/// A request body that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// There are no bytes.
    #[error("missing request body")]
    Missing,
    /// The bytes do not begin with a JSON object.
    #[error("invalid request body: {0}")]
    Json(String),
    /// A member has another type than it must have.
    #[error("{member} must be {expected}")]
    Type {
        /// Name of the member.
        member: String,
        /// What it must be.
        expected: &'static str,
    },
}

/// The members of a request by their lower-case names; `null` members are gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Reads the first JSON value of a body, which must be an object.
    pub fn parse(body: &[u8]) -> Result<Fields, BodyError> {
        if body.trim_ascii().is_empty() {
            return Err(BodyError::Missing);
        }
        match serde_json::Deserializer::from_slice(body)
            .into_iter()
            .next()
        {
            Some(Ok(Value::Object(members))) => Ok(Fields::from(members)),
            Some(Ok(_)) => Err(BodyError::Json("it is not a JSON object".into())),
            Some(Err(error)) => Err(BodyError::Json(error.to_string())),
            None => Err(BodyError::Missing),
        }
    }

    /// Takes a member as it is.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name)
    }

    /// Puts a member in unless it is there. `name` is in lower case.
    pub fn put_default(&mut self, name: &str, value: Value) {
        self.0.entry(name.to_owned()).or_insert(value);
    }

    /// Takes a text.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, BodyError> {
        self.take_as(name, "a string", |value| match value {
            Value::String(text) => Some(text),
            _ => None,
        })
    }

    /// Takes a truth value.
    pub fn bool(&mut self, name: &str) -> Result<Option<bool>, BodyError> {
        self.take_as(name, "a boolean", |value| value.as_bool())
    }

    /// Takes an integer; a fraction is cut off.
    pub fn integer(&mut self, name: &str) -> Result<Option<i64>, BodyError> {
        self.take_as(name, "a number", |value| cut(&value))
    }

    /// Takes an object.
    pub fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, BodyError> {
        self.take_as(name, "an object", |value| match value {
            Value::Object(members) => Some(members),
            _ => None,
        })
    }

    /// Takes a list.
    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, BodyError> {
        self.take_as(name, "a list", |value| match value {
            Value::Array(values) => Some(values),
            _ => None,
        })
    }

    /// Takes a list of texts.
    pub fn texts(&mut self, name: &str) -> Result<Vec<String>, BodyError> {
        let values = self.list(name)?.unwrap_or_default();
        let texts = values.into_iter().map(|value| match value {
            Value::String(text) => Ok(text),
            _ => Err(BodyError::Type {
                member: name.to_owned(),
                expected: "a list of strings",
            }),
        });
        texts.collect()
    }

    /// Takes a list of objects.
    pub fn objects(&mut self, name: &str) -> Result<Vec<Fields>, BodyError> {
        let values = self.list(name)?.unwrap_or_default();
        let objects = values.into_iter().map(|value| match value {
            Value::Object(members) => Ok(Fields::from(members)),
            _ => Err(BodyError::Type {
                member: name.to_owned(),
                expected: "a list of objects",
            }),
        });
        objects.collect()
    }

    fn take_as<T>(
        &mut self,
        name: &str,
        expected: &'static str,
        convert: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Option<T>, BodyError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match convert(value) {
            Some(value) => Ok(Some(value)),
            None => Err(BodyError::Type {
                member: name.to_owned(),
                expected,
            }),
        }
    }
}

impl From<Map<String, Value>> for Fields {
    fn from(members: Map<String, Value>) -> Fields {
        let known = members.into_iter().filter(|(_, value)| !value.is_null());
        Fields(
            known
                .map(|(name, value)| (name.to_lowercase(), value))
                .collect(),
        )
    }
}

/// Returns a number as an integer, its fraction cut off.
pub fn cut(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        value
            .as_f64()
            .filter(|number| number.is_finite())
            .map(|number| number as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_with_patience() {
        let mut fields = Fields::parse(br#" {"MODEL":"m","prompt":null,"x":1} trailing"#).unwrap();
        assert_eq!(fields.text("model"), Ok(Some("m".into())));
        assert_eq!(fields.text("prompt"), Ok(None));
        assert_eq!(Fields::parse(b" \n"), Err(BodyError::Missing));
        for body in [&b"{"[..], b"[]", b"\"x\"", b"nonsense", b"\xff\xfe"] {
            assert!(
                matches!(Fields::parse(body), Err(BodyError::Json(_))),
                "{body:?}"
            );
        }
        let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
        assert!(Fields::parse(&deep).is_err());
    }

    #[test]
    fn wrong_types_name_the_member() {
        let mut fields =
            Fields::parse(br#"{"stream":"yes","images":[1],"n":1.9,"messages":["x"]}"#).unwrap();
        assert_eq!(
            fields.bool("stream").unwrap_err().to_string(),
            "stream must be a boolean"
        );
        assert_eq!(
            fields.texts("images").unwrap_err().to_string(),
            "images must be a list of strings"
        );
        assert_eq!(fields.integer("n"), Ok(Some(1)));
        assert!(fields.objects("messages").is_err());
    }
}

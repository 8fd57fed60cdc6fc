//! Requests as types: what is read of a body, and what the document of the API says of it, is what
//! the type has.
//!
//! | macro | what it defines |
//! |---|---|
//! | [`request!`](crate::request) | a request, an object in one, or a part of several |
//! | [`one_of!`](crate::one_of) | a value of one of several types |
//! | [`tagged!`](crate::tagged) | an object whose `type` says what else it has |
//! | [`words!`](crate::words) | a text that is one of a few |

use serde_json::{Map, Value};

use crate::lenient::{BodyError, Fields, Ids, cut};

/// Reads a request. Returns also what its values take besides its texts, in bytes.
///
/// # Errors
/// If the body is no object, has too many values, or a member is not what it must be.
pub fn parse<R: Member>(body: &[u8]) -> Result<(R, usize), BodyError> {
    let mut names = Names::default();
    R::names("", &mut names);
    let mut fields = Fields::parse(body, &names.all, &names.ids)?;
    Ok((fields.get("")?, fields.weight()))
}

/// The names of the members of a request, in lower case.
#[derive(Debug, Default)]
pub struct Names {
    /// All of them.
    pub all: Vec<&'static str>,
    /// Those that may be lists of token ids.
    pub ids: Vec<&'static str>,
}

/// Something that is taken from among the members of an object: one of them, or, where it is a request
/// or a part of one, those that it has.
pub trait Member: Sized {
    /// Adds the names that it is taken by.
    fn names(name: &'static str, names: &mut Names) {
        names.all.push(name);
    }

    /// Takes it.
    ///
    /// # Errors
    /// If it is not what it must be.
    fn take(fields: &mut Fields, name: &str) -> Result<Self, BodyError>;
}

/// Something that is made of a value.
pub trait FromValue: Sized {
    /// What a list of these is called in refusals.
    const LIST: &'static str = "a list of objects";

    /// Tells whether a value has the type that this is made of.
    fn fits(value: &Value) -> bool;

    /// Makes it of the value of the member `name`.
    ///
    /// # Errors
    /// If the value is not what it must be.
    fn from_value(value: Value, name: &str) -> Result<Self, BodyError>;
}

impl Fields {
    /// Takes a member.
    ///
    /// # Errors
    /// If it is not what it must be.
    pub fn get<T: Member>(&mut self, name: &str) -> Result<T, BodyError> {
        T::take(self, name)
    }
}

impl<T: FromValue> Member for Option<T> {
    fn take(fields: &mut Fields, name: &str) -> Result<Option<T>, BodyError> {
        let value = fields.take(name);
        value.map(|value| T::from_value(value, name)).transpose()
    }
}

/// No list is an empty one.
impl<T: FromValue> Member for Vec<T> {
    fn take(fields: &mut Fields, name: &str) -> Result<Vec<T>, BodyError> {
        Ok(fields.get::<Option<Vec<T>>>(name)?.unwrap_or_default())
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn fits(value: &Value) -> bool {
        value.as_array().is_some_and(|all| all.iter().all(T::fits))
    }

    fn from_value(value: Value, name: &str) -> Result<Vec<T>, BodyError> {
        let Value::Array(values) = value else {
            return Err(BodyError::of_type(name, "a list"));
        };
        let elements = values.into_iter().map(|value| {
            if T::fits(&value) {
                T::from_value(value, name)
            } else {
                Err(BodyError::of_type(name, T::LIST))
            }
        });
        elements.collect()
    }
}

/// What may be ids of tokens: many of them take few bytes.
#[derive(Debug)]
pub enum IdsOr {
    /// It is.
    Ids(Ids),
    /// Something else.
    Other(Value),
}

impl Member for Option<IdsOr> {
    fn names(name: &'static str, names: &mut Names) {
        names.all.push(name);
        names.ids.push(name);
    }

    fn take(fields: &mut Fields, name: &str) -> Result<Option<IdsOr>, BodyError> {
        let ids = fields.ids(name).map(IdsOr::Ids);
        Ok(ids.or_else(|| fields.take(name).map(IdsOr::Other)))
    }
}

/// Types that are one kind of JSON value; what is not there is the default.
macro_rules! kinds {
    ($($kind:ty: $pattern:pat if $fits:ident => $value:expr, $one:literal, $list:literal;)+) => {$(
        impl FromValue for $kind {
            const LIST: &'static str = $list;

            fn fits(value: &Value) -> bool {
                value.$fits()
            }

            fn from_value(value: Value, name: &str) -> Result<$kind, BodyError> {
                match value {
                    $pattern => Ok($value),
                    _ => Err(BodyError::of_type(name, $one)),
                }
            }
        }

        impl Member for $kind {
            fn take(fields: &mut Fields, name: &str) -> Result<$kind, BodyError> {
                Ok(fields.get::<Option<$kind>>(name)?.unwrap_or_default())
            }
        }
    )+};
}

kinds! {
    String: Value::String(text) if is_string => text, "a string", "a list of strings";
    bool: Value::Bool(value) if is_boolean => value, "a boolean", "a list of booleans";
    // A fraction is cut off.
    i64: Value::Number(number) if is_number => cut(&number.into()).unwrap_or_default(),
        "a number", "a list of numbers";
    // One that is too small or too large is 0.
    usize: Value::Number(number) if is_number =>
        cut(&number.into()).and_then(|number| number.try_into().ok()).unwrap_or_default(),
        "a number", "a list of numbers";
    Map<String, Value>: Value::Object(members) if is_object => members,
        "an object", "a list of objects";
    Fields: Value::Object(members) if is_object => Fields::from(members),
        "an object", "a list of objects";
}

impl FromValue for Value {
    fn fits(_value: &Value) -> bool {
        true
    }

    fn from_value(value: Value, _name: &str) -> Result<Value, BodyError> {
        Ok(value)
    }
}

/// Null is what is not there.
impl Member for Value {
    fn take(fields: &mut Fields, name: &str) -> Result<Value, BodyError> {
        Ok(fields.take(name).unwrap_or_default())
    }
}

/// Says what a type is made of: whether a value fits, and what comes of one.
#[macro_export]
macro_rules! from_value {
    ($name:ty, $fits:expr, |$value:ident, $member:ident| $make:expr) => {
        impl $crate::members::FromValue for $name {
            fn fits(value: &::serde_json::Value) -> bool {
                let fits: fn(&::serde_json::Value) -> bool = $fits;
                fits(value)
            }

            fn from_value(
                $value: ::serde_json::Value,
                $member: &str,
            ) -> Result<$name, $crate::lenient::BodyError> {
                $make
            }
        }
    };
}

/// Defines requests, as `struct`, and objects in them: types, their schemas, and how they are read. What
/// may be missing is an `Option`; of any other type it is then the default. A request may be a part of
/// others: those that are defined `with` it have its members among theirs.
#[macro_export]
macro_rules! request {
    (@struct $name:ident { $($part:ident: $part_type:ty,)* } { $($member:ident: $kind:ty,)* }) => {
        impl $crate::members::Member for $name {
            fn names(_name: &'static str, names: &mut $crate::members::Names) {
                $(<$part_type as $crate::members::Member>::names("", names);)*
                $(<$kind as $crate::members::Member>::names($crate::request!(@name $member), names);)*
            }

            fn take(
                fields: &mut $crate::lenient::Fields,
                _name: &str,
            ) -> Result<$name, $crate::lenient::BodyError> {
                Ok($name {
                    $($part: fields.get("")?,)*
                    $($member: fields.get($crate::request!(@name $member))?,)*
                })
            }
        }
    };
    (@object $name:ident {} { $($member:ident: $kind:ty,)* }) => {
        $crate::from_value!($name, ::serde_json::Value::is_object, |value, name| {
            let mut fields = $crate::lenient::Fields::from_value(value, name)?;
            Ok($name { $($member: fields.get($crate::request!(@name $member))?,)* })
        });

        impl $crate::members::Member for $name {
            fn take(
                fields: &mut $crate::lenient::Fields,
                name: &str,
            ) -> Result<$name, $crate::lenient::BodyError> {
                let value = fields.take(name).unwrap_or_else(|| ::serde_json::json!({}));
                $crate::members::FromValue::from_value(value, name)
            }
        }
    };
    (@name $member:ident) => {
        stringify!($member).trim_start_matches("r#")
    };
    ($(
        $(#[$about:meta])* $vis:vis $defines:ident $name:ident
        $(with $($part:ident: $part_type:ty),+)?
        { $($(#[$doc:meta])* $at:vis $member:ident: $kind:ty,)* }
    )+) => {$(
        $(#[$about])*
        #[derive(::utoipa::ToSchema)]
        $vis struct $name {
            $($(#[serde(flatten)] #[schema(inline)] $part: $part_type,)+)?
            $($(#[$doc])* $at $member: $kind,)*
        }

        $crate::request!(@$defines $name { $($($part: $part_type,)+)? } { $($member: $kind,)* });
    )+};
}

/// Defines a value of one of several types; `else` words the refusal of a value of another, from the
/// member's name and the value.
#[macro_export]
macro_rules! one_of {
    (
        $(#[$about:meta])* $vis:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident($kind:ty),)+
        } else $refusal:expr
    ) => {
        $(#[$about])*
        #[derive(::utoipa::ToSchema)]
        #[serde(untagged)]
        $vis enum $name { $($(#[$doc])* $variant($kind),)+ }

        // What it refuses it words itself.
        $crate::from_value!($name, |_| true, |value, name| {
            $(if <$kind as $crate::members::FromValue>::fits(&value) {
                let value = <$kind as $crate::members::FromValue>::from_value(value, name);
                return value.map($name::$variant);
            })+
            let refusal: fn(&str, &::serde_json::Value) -> String = $refusal;
            Err($crate::lenient::BodyError::Meaning(refusal(name, &value)))
        });
    };
}

/// Defines an object whose `type` says which other members it has. One of another type is `Other`, of
/// which nothing else is read.
#[macro_export]
macro_rules! tagged {
    (
        $vis:vis enum $name:ident {
            $($word:tt => $variant:ident { $($(#[$doc:meta])* $member:ident: $kind:ty,)* })+
        }
    ) => {
        #[derive(::utoipa::ToSchema)]
        #[serde(tag = "type")]
        $vis enum $name {
            $(#[serde(rename = $word)] $variant { $($(#[$doc])* $member: $kind,)* },)+
            #[serde(skip)]
            Other(String),
        }

        $crate::from_value!($name, ::serde_json::Value::is_object, |value, name| {
            let mut fields = $crate::lenient::Fields::from_value(value, name)?;
            let kind: String = fields.get("type")?;
            Ok(match kind.as_str() {
                $($word => $name::$variant { $($member: fields.get(stringify!($member))?,)* },)+
                _ => $name::Other(kind),
            })
        });
    };
}

/// Defines a text that is one of a few, and what each stands for; `else` words the refusal of another.
#[macro_export]
macro_rules! words {
    (
        $vis:vis struct $name:ident($of:ty) { $($word:literal => $value:expr,)+ } else $refusal:expr
    ) => {
        $vis struct $name($vis $of);

        $crate::from_value!($name, ::serde_json::Value::is_string, |value, name| {
            let text = String::from_value(value, name)?;
            let refusal: fn(&str) -> String = $refusal;
            match text.as_str() {
                $($word => Ok($name($value)),)+
                other => Err($crate::lenient::BodyError::Meaning(refusal(other))),
            }
        });

        impl ::utoipa::PartialSchema for $name {
            fn schema() -> ::utoipa::openapi::RefOr<::utoipa::openapi::Schema> {
                let text = ::utoipa::openapi::ObjectBuilder::new();
                let text = text.schema_type(::utoipa::openapi::Type::String);
                text.enum_values(Some([$($word),+])).into()
            }
        }

        impl ::utoipa::ToSchema for $name {}
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use utoipa::{PartialSchema as _, ToSchema as _};

    use super::*;

    request! {
        struct Request with part: Part {
            /// A text or several.
            input: Option<OneOrMore>,
            #[schema(value_type = Option<Vec<u32>>)] ids: Option<IdsOr>,
            inner: Inner,
            blocks: Vec<Block>,
        }

        struct Part {
            stream: Option<bool>,
            images: Vec<String>,
            n: Option<i64>,
        }

        object Inner {
            r#type: String,
        }
    }

    one_of! {
        enum OneOrMore {
            One(String),
            More(Vec<String>),
        } else |name, value| format!("{name} must not be {value}")
    }

    tagged! {
        enum Block {
            "text" => Text { text: String, }
        }
    }

    words! {
        struct Level(u8) {
            "low" => 1,
        } else |word| format!("{word} is no level")
    }

    fn read(body: &Value) -> Result<Request, String> {
        let parsed = parse(body.to_string().as_bytes());
        parsed
            .map(|(request, _)| request)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn members_are_read_as_the_type_has_them() {
        let request = read(&json!({
            "STREAM": true, "images": ["a"], "n": 1.9, "input": ["b"], "ids": [1, 2],
            "inner": {"TYPE": "c", "other": 1}, "other": {},
            "blocks": [{"type": "text", "text": "d"}, {"type": "new", "text": 5}],
        }))
        .unwrap();
        assert_eq!(request.part.stream, Some(true));
        assert_eq!(request.part.images, ["a"]);
        assert_eq!(request.part.n, Some(1));
        assert!(matches!(request.input, Some(OneOrMore::More(texts)) if texts == ["b"]));
        assert!(matches!(request.ids, Some(IdsOr::Ids(Ids::One(ids))) if ids == [1, 2]));
        assert_eq!(request.inner.r#type, "c");
        let [Block::Text { text }, Block::Other(kind)] = &request.blocks[..] else {
            panic!("other blocks");
        };
        assert_eq!((text.as_str(), kind.as_str()), ("d", "new"));
        let request = read(&json!({"input": "b", "stream": null, "ids": "x"})).unwrap();
        assert!(matches!(request.input, Some(OneOrMore::One(text)) if text == "b"));
        assert!(matches!(request.ids, Some(IdsOr::Other(other)) if other == "x"));
        assert_eq!((request.part.stream, request.part.images), (None, vec![]));
        assert!(request.inner.r#type.is_empty() && request.blocks.is_empty());
        assert_eq!(Level::from_value("low".into(), "level").unwrap().0, 1);
    }

    #[test]
    fn wrong_types_name_the_member() {
        for (body, text) in [
            (json!({"stream": "yes"}), "stream must be a boolean"),
            (json!({"images": "x"}), "images must be a list"),
            (json!({"images": [1]}), "images must be a list of strings"),
            (json!({"n": "1"}), "n must be a number"),
            (json!({"input": [1]}), "input must not be [1]"),
            (json!({"inner": 1}), "inner must be an object"),
            (json!({"inner": {"type": 1}}), "type must be a string"),
            (json!({"blocks": ["x"]}), "blocks must be a list of objects"),
            (
                json!({"blocks": [{"type": "text", "text": 1}]}),
                "text must be a string",
            ),
        ] {
            assert_eq!(read(&body).err(), Some(text.to_owned()), "{body}");
        }
        let error = Level::from_value("odd".into(), "level").err();
        assert_eq!(error, Some(BodyError::Meaning("odd is no level".into())));
    }

    #[test]
    fn names_and_schemas_are_those_of_the_type() {
        let mut names = Names::default();
        Request::names("", &mut names);
        let all = ["stream", "images", "n", "input", "ids", "inner", "blocks"];
        assert_eq!((names.all, names.ids), (all.to_vec(), vec!["ids"]));
        assert_eq!(
            json!(Level::schema()),
            json!({"type": "string", "enum": ["low"]})
        );
        assert_eq!(Level::name(), "Level");
        let block = json!({
            "type": "object",
            "properties": {"text": {"type": "string"}, "type": {"type": "string", "enum": ["text"]}},
            "required": ["text", "type"],
        });
        assert_eq!(json!(Block::schema()), json!({"oneOf": [block]}));
        let mut schemas = Vec::new();
        Request::schemas(&mut schemas);
        let names: Vec<String> = schemas.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["OneOrMore", "Inner", "Block"]);
    }
}

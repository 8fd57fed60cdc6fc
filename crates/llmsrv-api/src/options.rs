//! The `options` of a request: one table of names, types and places.

use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::lenient::cut;

/// Defines the options: their type, and the table of their names and places.
macro_rules! options {
    ($(
        effective { $($(#[$about:meta])* $name:ident: $place:ident($kind:ty),)+ }
        ignored { $($old:ident: $old_place:ident,)+ }
    )+) => {
        /// How tokens are chosen and memory is used; unknown options are ignored. What nobody gave is `None`.
        #[derive(Clone, Debug, Default, PartialEq, ToSchema)]
        pub struct Options {
            $($($(#[$about])* pub $name: Option<$kind>,)+)+
        }

        const TABLE: &[(&str, Place)] = &[$(
            $((stringify!($name), Place::$place(|options| &mut options.$name)),)+
            $((stringify!($old), Place::$old_place),)+
        )+];
    };
}

options! {
    effective {
        /// Context in tokens.
        num_ctx: Integer(i64),
        /// Tokens kept at the start when the context is full.
        num_keep: Integer(i64),
        /// Most tokens to generate; negative = until the model ends.
        num_predict: Integer(i64),
        /// The same seed gives the same text; negative = random.
        seed: Integer(i64),
        /// 0 = always the most probable token.
        temperature: Float(f32),
        /// Only tokens whose logit is at most so many standard deviations of all logits below that of the
        /// most probable one; 0 or less = all.
        top_n_sigma: Float(f32),
        /// Only so many of the most probable tokens; 0 = all.
        top_k: Integer(i64),
        /// Only the most probable tokens that together have this probability.
        top_p: Float(f32),
        /// Only tokens with at least this part of the probability of the most probable one.
        min_p: Float(f32),
        /// Only the most typical tokens that together have this probability.
        typical_p: Float(f32),
        /// Tokens before the next one that are looked at for repetitions; 0 = none, negative = the whole context.
        repeat_last_n: Integer(i64),
        /// Divides the logits of tokens that were there; 1 = nothing.
        repeat_penalty: Float(f32),
        /// Taken from the logits of tokens that were there.
        presence_penalty: Float(f32),
        /// Taken from the logits of tokens as often as they were there.
        frequency_penalty: Float(f32),
        /// Texts that end the answer.
        #[schema(value_type = Option<Stop>)] stop: Texts(Vec<String>),
    }
    ignored { num_batch: IgnoredInteger, }
    effective {
        /// Layers computed on GPUs, from the end; negative = as many as fit.
        num_gpu: Integer(i64),
        /// Layers, from the first on, whose experts stay with the CPU.
        num_cpu_moe: Integer(i64),
        /// The GPU that is tried first.
        main_gpu: Integer(i64),
    }
    ignored { num_thread: IgnoredInteger, draft_num_predict: IgnoredInteger, use_mmap: IgnoredBool, }
}

crate::one_of! {
    /// A text or several.
    #[derive(Clone, Debug)]
    pub enum Stop {
        /// One.
        One(String),
        /// Any of them.
        Several(Vec<String>),
    } else |name, _| format!("{name} must be a string or a list of strings")
}

/// An option of the wrong type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("option {name:?} must be {expected}")]
pub struct OptionError {
    name: String,
    expected: &'static str,
}

impl Options {
    /// Reads options. Returns also the names of those that have no effect.
    ///
    /// # Errors
    /// If one has the wrong type.
    pub fn read(given: &Map<String, Value>) -> Result<(Options, Vec<String>), OptionError> {
        let mut options = Options::default();
        let ignored = options.merge(given)?;
        Ok((options, ignored))
    }

    /// Reads the options that a model brings, as far as they can be read; what is wrong stands beside them.
    pub fn of_model(parameters: &Map<String, Value>) -> (Options, Option<OptionError>) {
        let mut options = Options::default();
        let wrong = options.merge(parameters).err();
        (options, wrong)
    }

    /// Returns them with those of `defaults` where nothing was given.
    #[must_use]
    pub fn or(mut self, defaults: &Options) -> Options {
        let mut defaults = defaults.clone();
        for (_, place) in TABLE {
            match place {
                Place::Integer(place) => fill(place(&mut self), place(&mut defaults)),
                Place::Float(place) => fill(place(&mut self), place(&mut defaults)),
                Place::Texts(place) => fill(place(&mut self), place(&mut defaults)),
                Place::IgnoredInteger | Place::IgnoredBool => {}
            }
        }
        self
    }

    /// Returns those that were given, by name.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut options = self.clone();
        let mut value = |place: &Place| match place {
            Place::Integer(place) => place(&mut options).map(Value::from),
            // Its shortest digits: what a client wrote as 0.7 is no 0.699999988.
            Place::Float(place) => place(&mut options)
                .and_then(|value| value.to_string().parse::<f64>().ok().map(Value::from)),
            Place::Texts(place) => place(&mut options).take().map(Value::from),
            Place::IgnoredInteger | Place::IgnoredBool => None,
        };
        TABLE
            .iter()
            .filter_map(|(name, place)| Some(((*name).to_owned(), value(place)?)))
            .collect()
    }

    /// Puts `given` over what is there. `null` counts as not given. Returns the names of options that
    /// have no effect: unknown ones, and those of older servers that many clients still send.
    pub fn merge(&mut self, given: &Map<String, Value>) -> Result<Vec<String>, OptionError> {
        let mut ignored = Vec::new();
        for (name, value) in given {
            if value.is_null() {
                continue;
            }
            let Some((_, place)) = TABLE.iter().find(|(known, _)| known == name) else {
                ignored.push(name.clone());
                continue;
            };
            let (done, expected) = match place {
                Place::Integer(place) => (
                    cut(value).map(|value| *place(self) = Some(value)),
                    "of type integer",
                ),
                Place::Float(place) => (
                    value
                        .as_f64()
                        .map(|value| *place(self) = Some(value as f32)),
                    "of type float32",
                ),
                Place::Texts(place) => (
                    texts(value).map(|value| *place(self) = Some(value)),
                    if value.is_array() {
                        "of an array of strings"
                    } else {
                        "of type array"
                    },
                ),
                Place::IgnoredInteger => (cut(value).map(drop), "of type integer"),
                Place::IgnoredBool => (value.as_bool().map(drop), "of type boolean"),
            };
            done.ok_or_else(|| OptionError {
                name: name.clone(),
                expected,
            })?;
        }
        Ok(ignored)
    }
}

/// The value of an option that was written as text.
#[derive(Clone, Debug, PartialEq)]
pub enum TypedValue {
    /// The value of the option.
    One(Value),
    /// One element of a list: the option may be written several times.
    Element(Value),
    /// The option has no effect any more.
    Legacy,
}

/// Reads an option as it is written in a Modelfile or on a command line. The error says what is
/// wrong.
pub fn value_from_text(name: &str, text: &str) -> Result<TypedValue, String> {
    if is_legacy(name) {
        return Ok(TypedValue::Legacy);
    }
    let Some((_, place)) = TABLE.iter().find(|(known, _)| *known == name) else {
        return Err(format!("unknown parameter '{name}'"));
    };
    let number = text.trim();
    let (value, kind) = match place {
        // A stop text may well begin or end with spaces.
        Place::Texts(_) if !text.is_empty() => return Ok(TypedValue::Element(text.into())),
        Place::Texts(_) => (None, "string"),
        Place::Integer(_) | Place::IgnoredInteger => {
            (number.parse::<i64>().ok().map(Value::from), "int")
        }
        Place::Float(_) => (
            // What JSON cannot hold is no number of the API.
            text.parse()
                .ok()
                .filter(|n: &f64| n.is_finite())
                .map(Value::from),
            "float",
        ),
        Place::IgnoredBool => (bool_from_text(number).map(Value::from), "bool"),
    };
    value
        .map(TypedValue::One)
        .ok_or_else(|| format!("invalid {kind} value [{text}] of parameter '{name}'"))
}

/// Returns the names of all options that have an effect or had one: what may be written.
pub fn names() -> impl Iterator<Item = &'static str> {
    let known = TABLE.iter().map(|(name, _)| *name);
    known.chain(LEGACY.iter().copied())
}

/// Tells whether an option of older servers is meant, which has no effect.
pub fn is_legacy(name: &str) -> bool {
    LEGACY.contains(&name)
}

fn fill<T>(value: &mut Option<T>, default: &mut Option<T>) {
    if value.is_none() {
        *value = default.take();
    }
}

fn bool_from_text(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "t" | "true" => Some(true),
        "0" | "f" | "false" => Some(false),
        _ => None,
    }
}

/// A list of texts, or one text alone.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(values) => values
            .iter()
            .map(|value| value.as_str().map(str::to_owned))
            .collect(),
        _ => None,
    }
}

/// Where an option goes, and so its type.
enum Place {
    Integer(fn(&mut Options) -> &mut Option<i64>),
    Float(fn(&mut Options) -> &mut Option<f32>),
    Texts(fn(&mut Options) -> &mut Option<Vec<String>>),
    /// Decided by the server itself, checked all the same.
    IgnoredInteger,
    IgnoredBool,
}

const LEGACY: &[&str] = &[
    "numa",
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
    "tfs_z",
    "penalize_newline",
    "low_vram",
    "f16_kv",
    "vocab_only",
    "use_mlock",
    "num_gqa",
    "logits_all",
    "embedding_only",
    "rope_frequency_base",
    "rope_frequency_scale",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(layers: &[Value]) -> Result<Options, String> {
        let mut options = Options::default();
        for layer in layers {
            options
                .merge(layer.as_object().unwrap())
                .map_err(|error| error.to_string())?;
        }
        Ok(options)
    }

    #[test]
    fn later_layers_win_and_null_is_absent() {
        let options = merged(&[
            json!({"temperature": 0.2, "stop": ["a", "b"], "num_ctx": 40.9}),
            json!({"temperature": null, "stop": "c", "top_k": 7}),
        ])
        .unwrap();
        let expected = Options {
            temperature: Some(0.2),
            stop: Some(vec!["c".into()]),
            num_ctx: Some(40),
            top_k: Some(7),
            ..Options::default()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn defaults_fill_what_was_not_given_and_names_come_back() {
        let read = |given: Value| Options::read(given.as_object().unwrap()).unwrap().0;
        let given = read(json!({"temperature": 0.7, "stop": "a", "seed": null, "numa": true}));
        let options = given.or(&read(
            json!({"temperature": 0.1, "top_k": 5, "stop": ["b"]}),
        ));
        let expected = json!({"temperature": 0.7, "top_k": 5, "stop": ["a"]});
        assert_eq!(Value::Object(options.to_json()), expected);
        assert_eq!(read(expected), options);
    }

    #[test]
    fn wrong_types_are_refused_with_the_texts_clients_know() {
        for (given, text) in [
            (
                json!({"num_ctx": "big"}),
                "option \"num_ctx\" must be of type integer",
            ),
            (
                json!({"temperature": true}),
                "option \"temperature\" must be of type float32",
            ),
            (
                json!({"use_mmap": 1}),
                "option \"use_mmap\" must be of type boolean",
            ),
            (
                json!({"stop": [1]}),
                "option \"stop\" must be of an array of strings",
            ),
            (json!({"stop": 1}), "option \"stop\" must be of type array"),
        ] {
            assert_eq!(merged(&[given]), Err(text.to_owned()));
        }
    }

    #[test]
    fn options_of_older_servers_are_named_and_ignored() {
        let given = json!({"mirostat": 1, "low_vram": true, "made_up": {}});
        let ignored = Options::default()
            .merge(given.as_object().unwrap())
            .unwrap();
        assert_eq!(ignored, ["mirostat", "low_vram", "made_up"]);
    }
}

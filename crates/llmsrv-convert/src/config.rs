//! `config.json`: typed access, complaints that name the key.

use serde_json::{Map, Value};

use crate::{Error, files::Files};

/// The configuration of a model's language part.
#[derive(Clone, Debug)]
pub(crate) struct Config(Map<String, Value>);

impl Config {
    /// Reads `config.json`. What a model that also sees says about its language part counts as said
    /// about the model.
    pub(crate) fn read(files: &Files<'_>) -> Result<Config, Error> {
        let mut object = files
            .json("config.json")?
            .ok_or(Error::MissingFile("config.json"))?;
        if let Some(Value::Object(text)) = object.remove("text_config") {
            for (key, value) in text {
                if key != "architectures" {
                    object.insert(key, value);
                }
            }
        }
        Ok(Config(object))
    }

    /// Wraps an object.
    pub(crate) fn new(object: Map<String, Value>) -> Config {
        Config(object)
    }

    /// Tells whether there are no keys.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets keys that are absent.
    pub(crate) fn defaults(&mut self, defaults: &[(&str, f64)]) {
        for (key, value) in defaults {
            if self.get(key).is_none() {
                self.0.insert((*key).to_owned(), Value::from(*value));
            }
        }
    }

    /// Returns a value; `null` counts as absent.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// Returns a text.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// Returns an object.
    pub(crate) fn object(&self, key: &str) -> Option<Config> {
        self.get(key)?.as_object().cloned().map(Config)
    }

    /// Returns a number of things under the first of these keys that is there.
    pub(crate) fn count(&self, keys: &[&str]) -> Result<Option<u32>, Error> {
        let Some((key, value)) = keys.iter().find_map(|key| Some((key, self.get(key)?))) else {
            return Ok(None);
        };
        let whole = value.as_u64().or_else(|| {
            let number = value.as_f64()?;
            (number.fract() == 0.0 && (0.0..1e15).contains(&number)).then_some(number as u64)
        });
        match whole.map(i32::try_from) {
            Some(Ok(count)) => Ok(Some(count as u32)),
            _ => Err(Error::Invalid(format!(
                "config.json: {key} is not a sensible number"
            ))),
        }
    }

    /// Returns a number of things that is at least 1.
    pub(crate) fn required_count(&self, keys: &[&str]) -> Result<u32, Error> {
        match self.count(keys)? {
            Some(0) | None => Err(Error::Invalid(format!(
                "config.json: {} is missing",
                keys[0]
            ))),
            Some(count) => Ok(count),
        }
    }

    /// Returns a finite number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f32>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_f64().map(|number| number as f32) {
            Some(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(Error::Invalid(format!(
                "config.json: {key} is not a number"
            ))),
        }
    }

    /// Returns a list of finite numbers.
    pub(crate) fn numbers(&self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let number = |value: &Value| {
            let number = value.as_f64()? as f32;
            number.is_finite().then_some(number)
        };
        let list = value
            .as_array()
            .map(|list| list.iter().map(number).collect());
        match list {
            Some(Some(numbers)) => Ok(Some(numbers)),
            _ => Err(Error::Invalid(format!(
                "config.json: {key} is not a list of numbers"
            ))),
        }
    }

    /// Returns a yes or no.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    /// Returns the name of the class that computes the model.
    pub(crate) fn architecture(&self) -> Result<&str, Error> {
        self.get("architectures")
            .and_then(|list| list.get(0))
            .and_then(Value::as_str)
            .ok_or_else(|| Error::Invalid("config.json: architectures is missing".into()))
    }
}

//! What constructors take.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use llmsrv_config::{Ambient, LogkitConfig};
use logkit::{Durability, Level, Rotation, repr, spec};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBool, PyDelta, PyDeltaAccess, PyString},
};

use super::live::notice;
use super::{
    Child,
    handle::{Made, Making, Recipe, Traits},
    tee::Tee,
};

/// The settings of this process; those that cannot be read are told of and left aside.
pub(crate) fn settings() -> Option<LogkitConfig> {
    logkit::load_env(None)
        .map_err(|error| notice(&format!("settings: {error}")))
        .ok()
}

/// What the environment says about where the program runs.
pub(crate) fn ambient() -> Ambient {
    settings().map(|config| config.ambient).unwrap_or_default()
}

/// A path that stays the same when the folder of the process changes.
pub(crate) fn place(path: PathBuf) -> PyResult<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(PyValueError::new_err("the path of a file is empty"));
    }
    if path.as_os_str() == ":memory:" {
        return Ok(path); // SQLite's name for no file
    }
    std::path::absolute(path).map_err(Into::into)
}

/// A path between the brackets of a repr.
pub(crate) fn quoted(path: &Path) -> String {
    repr::repr_str(&path.to_string_lossy())
}

/// A delegate, if one is given.
pub(crate) fn delegate(delegate: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Child>> {
    delegate.map(Child::of).transpose()
}

/// Levels from a list of names, or from one name.
pub(crate) fn levels(given: &Bound<'_, PyAny>) -> PyResult<Vec<Level>> {
    if let Ok(name) = given.cast::<PyString>() {
        return Ok(vec![Level::parse(&name.to_string_lossy())]);
    }
    let parsed: PyResult<Vec<Level>> = given
        .try_iter()?
        .map(|name| {
            let name = name?;
            let name = name
                .cast::<PyString>()
                .map_err(|_| PyTypeError::new_err("levels are names, such as \"ERROR\""))?;
            Ok(Level::parse(&name.to_string_lossy()))
        })
        .collect();
    parsed
}

/// Seconds, more than none.
pub(crate) fn seconds(name: &str, given: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(given)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| {
            PyValueError::new_err(format!(
                "{name} is a number of seconds above 0, not {given}"
            ))
        })
}

/// A number that is not below `least`.
pub(crate) fn at_least(name: &str, least: i64, given: i64) -> PyResult<u64> {
    if given < least {
        return Err(PyValueError::new_err(format!(
            "{name} is at least {least}, not {given}"
        )));
    }
    Ok(given as u64)
}

/// When a database's entries are safe.
pub(crate) fn durability(given: Option<&str>) -> PyResult<Option<Durability>> {
    given
        .map(|name| {
            Durability::parse(name).ok_or_else(|| {
                PyValueError::new_err(format!(
                    "durability is 'buffered', 'crash', 'sync' or 'full', not '{name}'"
                ))
            })
        })
        .transpose()
}

/// How long rows are kept: `"30d"`, or a timedelta.
pub(crate) fn age(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(given) = given else {
        return Ok(None);
    };
    let age = if let Ok(text) = given.cast::<PyString>() {
        spec::duration(&text.to_string_lossy())
    } else if let Ok(delta) = given.cast::<PyDelta>() {
        let seconds = i64::from(delta.get_days()) * 86_400 + i64::from(delta.get_seconds());
        u64::try_from(seconds).ok().map(Duration::from_secs)
    } else {
        None
    };
    age.map(Some).ok_or_else(|| {
        PyValueError::new_err("retain is a duration such as \"30d\", \"12h\", or a timedelta")
    })
}

/// A number of bytes: `1048576`, `"10m"`.
fn bytes(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    let wrong = || {
        PyValueError::new_err("max_bytes is a number of bytes above 0, such as 1048576 or \"10m\"")
    };
    let number = match given.cast::<PyString>() {
        Ok(text) => {
            let text = text.to_string_lossy().trim().to_lowercase();
            let text = text.trim_end_matches('b').trim_end_matches('i');
            let digits = text.trim_end_matches(['k', 'm', 'g']);
            let factor: u64 = match &text[digits.len()..] {
                "" => 1,
                "k" => 1 << 10,
                "m" => 1 << 20,
                "g" => 1 << 30,
                _ => return Err(wrong()),
            };
            let number = digits.trim().parse::<u64>().ok();
            number.and_then(|number| number.checked_mul(factor))
        }
        Err(_) => given.extract::<u64>().ok(),
    };
    number.filter(|number| *number > 0).ok_or_else(wrong)
}

/// Headers of requests, from any mapping.
pub(crate) fn headers(given: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let wrong = || PyTypeError::new_err("headers is a mapping of names and texts");
    let items = given.call_method0("items").map_err(|_| wrong())?;
    items
        .try_iter()?
        .map(|item| item?.extract().map_err(|_| wrong()))
        .collect()
}

/// When a file is put aside.
pub(crate) fn rotation(
    max_bytes: Option<&Bound<'_, PyAny>>,
    backups: Option<i64>,
    daily: bool,
    compress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Rotation> {
    let compress = match compress {
        None => false,
        Some(given) => match given.cast::<PyBool>() {
            Ok(given) => given.is_true(),
            Err(_) if given.eq("zstd")? => true,
            Err(_) => {
                return Err(PyValueError::new_err(
                    "compress is \"zstd\" or None: files are compressed with nothing else",
                ));
            }
        },
    };
    Ok(Rotation {
        max_bytes: max_bytes.map(bytes).transpose()?,
        backups: match backups {
            Some(backups) => at_least("backups", 0, backups)? as usize,
            None => Rotation::default().backups,
        },
        daily,
        compress,
    })
}

/// A recipe for a sink with a delegate, if there is one, and what is known of both.
pub(crate) fn with_delegate(
    traits: Traits,
    delegate: Option<&Child>,
    recipe: impl Fn(Making) -> Result<Made, logkit::SinkError> + Send + Sync + 'static,
) -> (Traits, Recipe) {
    let Some(delegate) = delegate.cloned() else {
        return (traits, Box::new(recipe));
    };
    let traits = traits.and(&delegate.traits());
    let recipe: Recipe = Box::new(move |making| {
        let made = recipe(making)?;
        Ok(Made {
            sink: Box::new(Tee::new(made.sink, delegate.sink())),
            ..made
        })
    });
    (traits, recipe)
}

/// A Python function that a sink calls.
pub(crate) fn function(name: &str, given: Bound<'_, PyAny>) -> PyResult<Arc<Py<PyAny>>> {
    if !given.is_callable() {
        return Err(PyTypeError::new_err(format!("{name} is not callable")));
    }
    Ok(Arc::new(given.unbind()))
}

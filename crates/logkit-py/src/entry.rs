//! `LogEntry` objects and the entries they stand for.

mod json;

use logkit::{Entry, Level, Text, Timestamp, repr};
use pyo3::{
    exceptions::PyTypeError,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDateTime, PyDict, PyList, PyString, PyTuple, PyType, PyTzInfo},
};

use crate::render::{Renderer, json_map};

/// Characters that a field has unless its entry says so.
const LIMIT: usize = 2048;

/// A `LogEntry` of that entry: with those objects where there are some, else with its texts.
///
/// Its dictionary keeps the texts of what was rendered already under `_texts`, beside the objects they
/// belong to: `(args, text, kwargs, text, return value, text)`.
pub(crate) fn log_entry<'py>(
    py: Python<'py>,
    entry: &Entry,
    args: Option<&Bound<'py, PyAny>>,
    kwargs: Option<&Bound<'py, PyAny>>,
    return_value: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let text = |text: &str| PyString::new(py, text).into_any();
    let args_text = text(&entry.args);
    let args = match args {
        None if entry.args == "()" => PyTuple::empty(py).into_any(),
        args => args.unwrap_or(&args_text).clone(),
    };
    let kwargs_text = text(&entry.kwargs);
    let kwargs = match kwargs {
        None if entry.kwargs == "{}" => PyDict::new(py).into_any(),
        kwargs => kwargs.unwrap_or(&kwargs_text).clone(),
    };
    let return_text = text(&entry.return_value);
    let return_value = match return_value {
        None if entry.return_value == "None" => py.None().into_bound(py),
        value => value.unwrap_or(&return_text).clone(),
    };
    let arg_types = PyList::empty(py);
    for name in entry.arg_types.split(", ").filter(|name| !name.is_empty()) {
        arg_types.append(name)?;
    }
    let kwarg_types = PyDict::new(py);
    if entry.kwarg_types.len() > 2 {
        for (name, kind) in repr::parse_dict(&entry.kwarg_types).unwrap_or_default() {
            kwarg_types.set_item(name, repr::parse_str(&kind).unwrap_or(kind))?;
        }
    }
    let fields = PyDict::new(py);
    fields.set_item(intern!(py, "timestamp"), moment(py, entry.timestamp)?)?;
    fields.set_item(intern!(py, "level"), entry.level.as_str())?;
    fields.set_item(intern!(py, "function_name"), &*entry.function_name)?;
    fields.set_item(intern!(py, "module"), &*entry.module)?;
    fields.set_item(intern!(py, "args"), &args)?;
    fields.set_item(intern!(py, "kwargs"), &kwargs)?;
    fields.set_item(intern!(py, "arg_types"), arg_types)?;
    fields.set_item(intern!(py, "kwarg_types"), kwarg_types)?;
    fields.set_item(intern!(py, "return_value"), &return_value)?;
    fields.set_item(intern!(py, "return_type"), &*entry.return_type)?;
    fields.set_item(intern!(py, "exception"), &*entry.exception)?;
    fields.set_item(intern!(py, "exception_type"), &*entry.exception_type)?;
    fields.set_item(intern!(py, "traceback"), &*entry.traceback)?;
    fields.set_item(intern!(py, "duration_ms"), entry.duration_ms)?;
    fields.set_item(intern!(py, "environment"), &*entry.environment)?;
    fields.set_item(intern!(py, "trace_id"), &*entry.trace_id)?;
    fields.set_item(intern!(py, "version"), &*entry.version)?;
    fields.set_item(intern!(py, "llm_analysis"), &*entry.llm_analysis)?;
    let extra = if entry.has_extra() {
        json::dict_of(py, &entry.full_extra())?
    } else {
        PyDict::new(py)
    };
    fields.set_item(intern!(py, "extra"), extra)?;
    fields.set_item(intern!(py, "max_repr_length"), LIMIT)?;
    let texts = (
        args,
        args_text,
        kwargs,
        kwargs_text,
        return_value,
        return_text,
    );
    fields.set_item(intern!(py, "_texts"), texts)?;
    let class = class(py)?;
    let live = class.call_method1(intern!(py, "__new__"), (class,))?;
    live.setattr(intern!(py, "__dict__"), fields)?;
    Ok(live)
}

fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "logkit.models", "LogEntry")
}

/// Adds to a `LogEntry` what wrappers added to its entry.
pub(crate) fn write_back(live: &Bound<'_, PyAny>, entry: &Entry) -> PyResult<()> {
    let py = live.py();
    for (name, text) in [
        (intern!(py, "environment"), &entry.environment),
        (intern!(py, "trace_id"), &entry.trace_id),
        (intern!(py, "version"), &entry.version),
        (intern!(py, "llm_analysis"), &entry.llm_analysis),
    ] {
        if !text.is_empty() {
            live.setattr(name, &**text)?;
        }
    }
    if entry.extra.is_empty() {
        return Ok(());
    }
    let extra = live.getattr(intern!(py, "extra"))?;
    let Ok(extra) = extra.cast::<PyDict>() else {
        return live.setattr(intern!(py, "extra"), json::dict_of(py, &entry.extra)?);
    };
    for (key, value) in &entry.extra {
        if !extra.contains(key)? {
            extra.set_item(key, json::to_python(py, value)?)?;
        }
    }
    Ok(())
}

/// The entry of a `LogEntry`: its objects rendered, unless that was done before the call.
pub(crate) fn entry_of<'py>(live: &Bound<'py, PyAny>) -> PyResult<Entry> {
    let py = live.py();
    let get = |name: &Bound<'py, PyString>| live.getattr_opt(name);
    let Some(function_name) = get(intern!(py, "function_name"))? else {
        return Err(PyTypeError::new_err(format!(
            "a LogEntry is wanted, not an object of type {}",
            live.get_type().name()?
        )));
    };
    let limit = match get(intern!(py, "max_repr_length"))? {
        Some(limit) if limit.is_none() => 0,
        Some(limit) => limit.extract::<i64>().map_or(LIMIT, |n| n.max(0) as usize),
        None => LIMIT,
    };
    let renderer = Renderer::plain(limit);
    let text = |name: &Bound<'py, PyString>| -> PyResult<Text> {
        Ok(get(name)?.map_or(Text::Borrowed(""), |value| text_of(&value)))
    };
    let texts = get(intern!(py, "_texts"))?;
    let texts = texts
        .as_ref()
        .and_then(|texts| texts.cast::<PyTuple>().ok());
    // What was rendered already, if it is still that object.
    let known = |at: usize, object: &Bound<'_, PyAny>| -> Option<Text> {
        let texts = texts?;
        let is_same = texts.get_item(at).is_ok_and(|then| then.is(object));
        let text = is_same.then(|| texts.get_item(at + 1).ok()).flatten()?;
        Some(json::text(text.cast::<PyString>().ok()?).into())
    };
    let level = match get(intern!(py, "level"))? {
        Some(level) => Level::parse(&text_of(&level)),
        None => Level::Info,
    };
    let mut entry = Entry {
        timestamp: match get(intern!(py, "timestamp"))? {
            Some(timestamp) => micros_of(&timestamp)?,
            None => Timestamp::now(),
        },
        level,
        function_name: text_of(&function_name),
        module: text(intern!(py, "module"))?,
        return_type: text(intern!(py, "return_type"))?,
        exception: text(intern!(py, "exception"))?,
        exception_type: text(intern!(py, "exception_type"))?,
        traceback: text(intern!(py, "traceback"))?,
        environment: text(intern!(py, "environment"))?,
        trace_id: text(intern!(py, "trace_id"))?,
        version: text(intern!(py, "version"))?,
        llm_analysis: text(intern!(py, "llm_analysis"))?,
        ..Entry::default()
    };
    if let Some(args) = get(intern!(py, "args"))? {
        entry.args = known(0, &args).unwrap_or_else(|| args_text(&args, &renderer));
    }
    if let Some(kwargs) = get(intern!(py, "kwargs"))? {
        entry.kwargs = known(2, &kwargs).unwrap_or_else(|| match kwargs.cast::<PyDict>() {
            Ok(kwargs) => renderer.kwargs(kwargs).into(),
            Err(_) if kwargs.is_none() => "{}".into(),
            Err(_) => renderer.value(&kwargs).into(),
        });
    }
    if let Some(value) = get(intern!(py, "return_value"))? {
        entry.return_value = known(4, &value).unwrap_or_else(|| renderer.value(&value).into());
    }
    if let Some(types) = get(intern!(py, "arg_types"))? {
        entry.arg_types = types_text(&types)?;
    }
    if let Some(types) = get(intern!(py, "kwarg_types"))? {
        entry.kwarg_types = match types.cast::<PyDict>() {
            Ok(types) => renderer.value(types.as_any()).into(),
            Err(_) if types.is_none() => "{}".into(),
            Err(_) => text_of(&types),
        };
    }
    if let Some(duration) = get(intern!(py, "duration_ms"))? {
        entry.duration_ms = duration.extract::<f64>().ok();
    }
    if let Some(extra) = get(intern!(py, "extra"))?
        && let Ok(extra) = extra.cast::<PyDict>()
        && !extra.is_empty()
    {
        entry.set_full_extra(json_map(extra, &renderer));
    }
    Ok(entry)
}

/// A string as it is, `None` as nothing, anything else as its `str`.
fn text_of(value: &Bound<'_, PyAny>) -> Text {
    if value.is_none() {
        return Text::Borrowed("");
    }
    let text = match value.cast::<PyString>() {
        Ok(text) => Ok(json::text(text)),
        Err(_) => value.str().map(|text| json::text(&text)),
    };
    text.unwrap_or_else(|_| "<str failed>".to_owned()).into()
}

fn args_text(args: &Bound<'_, PyAny>, renderer: &Renderer) -> Text {
    if let Ok(args) = args.cast::<PyTuple>() {
        return renderer.args(args, &[]).into();
    }
    if let Ok(args) = args.cast::<PyList>() {
        return renderer.args(&args.to_tuple(), &[]).into();
    }
    if args.is_none() {
        return "()".into();
    }
    renderer.value(args).into()
}

fn types_text(types: &Bound<'_, PyAny>) -> PyResult<Text> {
    if types.is_none() || types.is_instance_of::<PyString>() {
        return Ok(text_of(types));
    }
    let mut out = String::new();
    for kind in types.try_iter()? {
        if !out.is_empty() {
            out.push_str(", ");
        }
        out.push_str(&text_of(&kind?));
    }
    Ok(out.into())
}

/// The moment as an aware datetime, UTC.
fn moment(py: Python<'_>, timestamp: Timestamp) -> PyResult<Bound<'_, PyAny>> {
    static FROM_TIMESTAMP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    // Within these bounds a double keeps microseconds.
    const EXACT: std::ops::Range<i64> = 0..4_000_000_000_000_000;
    let utc = PyTzInfo::utc(py)?;
    if EXACT.contains(&timestamp.micros()) {
        let from_timestamp = FROM_TIMESTAMP.get_or_try_init(py, || {
            let class = py.import("datetime")?.getattr("datetime")?;
            class.getattr("fromtimestamp").map(Bound::unbind)
        })?;
        return from_timestamp.bind(py).call1((timestamp.seconds(), utc));
    }
    let datetime = py.import("datetime")?;
    let since = datetime
        .getattr("timedelta")?
        .call1((0, 0, timestamp.micros()))?;
    epoch(py)?.add(since)
}

/// 1970-01-01, UTC.
fn epoch(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || {
        let utc = PyTzInfo::utc(py)?;
        PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&*utc))
            .map(|epoch| epoch.into_any().unbind())
    })?;
    Ok(epoch.bind(py))
}

/// A datetime as microseconds since 1970, a naive one as UTC; a number is seconds, a text ISO 8601.
fn micros_of(value: &Bound<'_, PyAny>) -> PyResult<Timestamp> {
    let py = value.py();
    if value.is_none() {
        return Ok(Timestamp::now());
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(json::text(text)
            .parse()
            .unwrap_or_else(|_| Timestamp::now()));
    }
    if let Ok(seconds) = value.extract::<f64>() {
        return Ok(Timestamp::from_micros((seconds * 1e6).round() as i64));
    }
    let is_naive = value.call_method0(intern!(py, "utcoffset"))?.is_none();
    let value = if is_naive {
        let zone = PyDict::new(py);
        zone.set_item(intern!(py, "tzinfo"), PyTzInfo::utc(py)?)?;
        value.call_method(intern!(py, "replace"), (), Some(&zone))?
    } else {
        value.clone()
    };
    let since = value.sub(epoch(py)?)?;
    let part = |name: &Bound<'_, PyString>| since.getattr(name)?.extract::<i64>();
    let days = part(intern!(py, "days"))?;
    let seconds = part(intern!(py, "seconds"))?;
    let micros = part(intern!(py, "microseconds"))?;
    Ok(Timestamp::from_micros(
        (days * 86_400 + seconds) * 1_000_000 + micros,
    ))
}

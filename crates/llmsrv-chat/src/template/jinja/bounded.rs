//! Bounds the memory of a template that means harm.
//!
//! Fuel bounds the steps of a rendering, but one step can double a text: forty times
//! `{% set a = a ~ a %}` make a terabyte. So each expression that makes something new is wrapped in a
//! filter which weighs the result ([`weighed`]), in the syntax tree, before it is compiled (compiling
//! computes with constants): `a ~ a` becomes `(a ~ a)|llmsrv_weighed`. Raw text and what is output are
//! weighed, too, because blocks capture them. Filters that can multiply their input in one step are
//! looked at before they run ([`checked`]).

mod tree;

use std::cell::Cell;

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

pub(super) use tree::tree;

/// Adds the filters of this module.
pub(super) fn add_filters(environment: &mut Environment<'_>) {
    environment.add_filter(WEIGHED, weighed);
    environment.add_filter(WRITTEN, written);
    environment.add_filter("llmsrv_replace", filters::replace);
    environment.add_filter("llmsrv_join", filters::join);
    environment.add_filter("llmsrv_indent", filters::indent);
    environment.add_filter("llmsrv_batch", filters::batch);
    environment.add_filter("llmsrv_slice", filters::slice);
    environment.add_filter("llmsrv_format", filters::format);
    for (name, original) in CHECKED {
        let bounded = move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            if let Some((value, args)) = args.split_first() {
                checked(name, value, args)?;
            }
            state.apply_filter(original, &args)
        };
        environment.add_filter(*name, bounded);
    }
}

/// Begins the account of one rendering.
pub(super) fn begin() {
    MADE.set(0);
    OUTPUT.set(0);
}

/// A text or a list that is too large, or all of them together.
#[derive(Debug, thiserror::Error)]
#[error("too much text")]
pub(super) struct TooMuch;

/// Takes note of a new value; fails if it is too large.
pub(super) fn weighed(value: Value) -> Result<Value, Error> {
    let is_list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    let value = if is_list && value.len().is_none() {
        materialised(&value)?
    } else {
        value
    };
    weight(&value, MAX_VALUE_BYTES, MAX_DEPTH)?;
    // What is in a list was paid for when it was made.
    let own = match value.as_str() {
        Some(text) => text.len(),
        None => value.len().unwrap_or(0).saturating_mul(VALUE_BYTES),
    };
    MADE.set(MADE.get().saturating_add(own));
    if MADE.get() > MAX_MADE_BYTES {
        return Err(too_much());
    }
    Ok(value)
}

/// Takes note of what is output, or captured by a block; fails if it is too much.
fn written(value: Value) -> Result<Value, Error> {
    let size = match value.as_str() {
        Some(text) => text.len(),
        None => weight(&value, MAX_VALUE_BYTES, MAX_DEPTH)?,
    };
    OUTPUT.set(OUTPUT.get().saturating_add(size));
    if OUTPUT.get() > MAX_OUTPUT_BYTES {
        return Err(too_much());
    }
    Ok(value)
}

/// The list that an iterable stands for, such as two lists that were added.
fn materialised(value: &Value) -> Result<Value, Error> {
    let mut items = Vec::new();
    for item in value.try_iter()?.checked() {
        if items.len() > MAX_VALUE_BYTES / VALUE_BYTES {
            return Err(too_much());
        }
        items.push(item?);
    }
    Ok(items.into())
}

/// Fails if a filter or a method would multiply its input beyond bounds.
pub(super) fn checked(name: &str, value: &Value, args: &[Value]) -> Result<(), Error> {
    let text = value.as_str().unwrap_or_default();
    let arg = |idx: usize| args.get(idx).and_then(Value::as_str).unwrap_or_default();
    let size = match name {
        "replace" => {
            let n_found = text.matches(arg(0)).count();
            text.len()
                .saturating_add(n_found.saturating_mul(arg(1).len()))
        }
        "join" => {
            // As a method it is called on the joiner.
            let (items, joiner) = match value.as_str() {
                Some(joiner) => (args.first().unwrap_or(value), joiner),
                None => (value, arg(0)),
            };
            let n_items = items.len().unwrap_or(0);
            weight(items, MAX_VALUE_BYTES, MAX_DEPTH)?
                .saturating_add(n_items.saturating_mul(joiner.len()))
        }
        "indent" => text.lines().count().saturating_mul(largest(args)),
        "batch" | "slice" => largest(args).saturating_mul(VALUE_BYTES),
        "format" => {
            let is_long = |digits: &str| digits.len() > MAX_FORMAT_DIGITS;
            let is_wide = text.split(|c: char| !c.is_ascii_digit()).any(is_long);
            if is_wide { usize::MAX } else { 0 }
        }
        _ => 0,
    };
    if size > MAX_VALUE_BYTES {
        return Err(too_much());
    }
    Ok(())
}

/// Bytes of a value and everything in it; stops when there are too many.
fn weight(value: &Value, most: usize, depth: usize) -> Result<usize, Error> {
    let mut sum = VALUE_BYTES;
    match value.kind() {
        ValueKind::String => sum += value.as_str().map_or(0, str::len),
        ValueKind::Bytes => sum += value.len().unwrap_or(0),
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            let Some(n_items) = value.len() else {
                return Ok(sum);
            };
            if depth == 0 || n_items > most / VALUE_BYTES {
                return Err(too_much());
            }
            let is_map = value.kind() == ValueKind::Map;
            for item in value.try_iter()?.checked() {
                let item = item?;
                if is_map {
                    sum += weight(&value.get_item(&item)?, most.saturating_sub(sum), depth - 1)?;
                }
                sum += weight(&item, most.saturating_sub(sum), depth - 1)?;
                if sum > most {
                    return Err(too_much());
                }
            }
        }
        _ => {}
    }
    if sum > most {
        return Err(too_much());
    }
    Ok(sum)
}

fn largest(args: &[Value]) -> usize {
    let named = args
        .iter()
        .filter_map(|arg| Kwargs::try_from(arg.clone()).ok())
        .flat_map(|kwargs| {
            let values = kwargs.args().map(|name| kwargs.get::<Value>(name).ok());
            values.flatten().collect::<Vec<_>>()
        });
    let number = |value: &Value| value.as_i64().and_then(|n| usize::try_from(n).ok());
    let all = args.iter().cloned().chain(named);
    all.filter_map(|value| number(&value)).max().unwrap_or(0)
}

fn too_much() -> Error {
    Error::new(ErrorKind::InvalidOperation, "too much text").with_source(TooMuch)
}

thread_local! {
    /// Bytes of all values that the rendering on this thread made.
    static MADE: Cell<usize> = const { Cell::new(0) };
    /// Bytes that it output or captured.
    static OUTPUT: Cell<usize> = const { Cell::new(0) };
}

const WEIGHED: &str = "llmsrv_weighed";
const WRITTEN: &str = "llmsrv_written";
/// Filters whose input is looked at before they run, and their own names here.
const CHECKED: &[(&str, &str)] = &[
    ("replace", "llmsrv_replace"),
    ("join", "llmsrv_join"),
    ("indent", "llmsrv_indent"),
    ("batch", "llmsrv_batch"),
    ("slice", "llmsrv_slice"),
    ("format", "llmsrv_format"),
];
/// Largest text or list, with all that is in it.
const MAX_VALUE_BYTES: usize = 32 << 20;
/// All texts and lists that one rendering makes.
const MAX_MADE_BYTES: usize = 256 << 20;
/// All that one rendering outputs or captures: far more than any context holds.
const MAX_OUTPUT_BYTES: usize = 64 << 20;
/// What a value takes beside its text.
const VALUE_BYTES: usize = 24;
const MAX_DEPTH: usize = 200;
/// Digits of a width in a format text.
const MAX_FORMAT_DIGITS: usize = 4;

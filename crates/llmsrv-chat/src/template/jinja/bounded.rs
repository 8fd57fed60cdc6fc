//! Bounds the memory and the time of a template that means harm.
//!
//! Fuel bounds the steps of a rendering, but one step can double a text, or read all of it: forty
//! times `{% set a = a ~ a %}` make a terabyte, and comparing two long texts a million times takes
//! hours. So everything that makes or reads values passes through functions of this module which take
//! note of it: in the syntax tree, before it is compiled (compiling computes with constants), filters
//! are put around what is made and in the place of comparisons ([`tree`]), and all filters, tests and
//! methods that read much stand behind a function that looks at their operands first ([`call`],
//! [`test`], [`method`]). Where something is noted it is also looked at whether the rendering has to
//! end: because of its deadline, or because nobody waits for it.

mod tree;

use std::cell::RefCell;

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters, tests};

use super::python;
use crate::limits::{Bound, Watch};
pub(super) use tree::tree;

/// Puts the functions of this module in the place of those that read or make much.
pub(super) fn guard(environment: &mut Environment<'_>) {
    environment.add_filter(WEIGHED, weighed);
    environment.add_filter(WRITTEN, written);
    environment.add_filter(READ, read);
    environment.add_filter(INDEXED, indexed);
    environment.add_filter(ITERATED, iterated);
    environment.add_filter(ASSIGNED, assigned);
    environment.add_filter(EQ, |a: Value, b: Value| compared(a, b, |a, b| a == b));
    environment.add_filter(NE, |a: Value, b: Value| compared(a, b, |a, b| a != b));
    environment.add_filter(LT, |a: Value, b: Value| compared(a, b, |a, b| a < b));
    environment.add_filter(LE, |a: Value, b: Value| compared(a, b, |a, b| a <= b));
    environment.add_filter(GT, |a: Value, b: Value| compared(a, b, |a, b| a > b));
    environment.add_filter(GE, |a: Value, b: Value| compared(a, b, |a, b| a >= b));
    environment.add_filter(IN, |state: &State<'_, '_>, a: Value, b: Value| {
        charge(searching(&a, &b)?)?;
        tests::is_in(state, &a, &b)
    });
    // Both write every level of a value on lines of its own, and no chat template uses them.
    environment.remove_filter("pprint");
    environment.remove_global("debug");

    macro_rules! filters {
        ($($name:literal = $original:expr),* $(,)?) => {$(
            environment.add_filter(concat!("llmsrv:", $name), $original);
            environment.add_filter($name, |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
                call(state, $name, concat!("llmsrv:", $name), &args.into_values())
            });
        )*};
    }
    filters![
        "safe" = filters::safe,
        "escape" = filters::escape,
        "e" = filters::escape,
        "lower" = filters::lower,
        "upper" = filters::upper,
        "title" = filters::title,
        "capitalize" = filters::capitalize,
        "replace" = filters::replace,
        "length" = filters::length,
        "count" = filters::length,
        "dictsort" = filters::dictsort,
        "items" = filters::items,
        "reverse" = filters::reverse,
        "trim" = filters::trim,
        "join" = filters::join,
        "split" = filters::split,
        "lines" = filters::lines,
        "default" = filters::default,
        "d" = filters::default,
        "round" = filters::round,
        "abs" = filters::abs,
        "int" = filters::int,
        "float" = filters::float,
        "attr" = filters::attr,
        "first" = filters::first,
        "last" = filters::last,
        "min" = filters::min,
        "max" = filters::max,
        "sort" = filters::sort,
        "list" = filters::list,
        "string" = filters::string,
        "bool" = filters::bool,
        "batch" = filters::batch,
        "slice" = filters::slice,
        "sum" = filters::sum,
        "indent" = filters::indent,
        "select" = filters::select,
        "reject" = filters::reject,
        "selectattr" = filters::selectattr,
        "rejectattr" = filters::rejectattr,
        "map" = filters::map,
        "groupby" = filters::groupby,
        "unique" = filters::unique,
        "chain" = filters::chain,
        "zip" = filters::zip,
        "format" = filters::format,
        "tojson" = python::to_json_filter,
    ];

    macro_rules! tests {
        ($($names:tt = $original:expr),* $(,)?) => {$(
            tests!(@each $names $original);
        )*};
        (@each [$($name:literal),*] $original:expr) => {$(
            environment.add_test(concat!("llmsrv:", $name), $original);
            environment.add_test($name, |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
                test(state, concat!("llmsrv:", $name), &args.into_values())
            });
        )*};
    }
    tests![
        ["eq", "equalto", "=="] = tests::is_eq,
        ["ne", "!="] = tests::is_ne,
        ["lt", "lessthan", "<"] = tests::is_lt,
        ["le", "<="] = tests::is_le,
        ["gt", "greaterthan", ">"] = tests::is_gt,
        ["ge", ">="] = tests::is_ge,
        ["in"] = tests::is_in,
        ["startingwith"] = tests::is_startingwith,
        ["endingwith"] = tests::is_endingwith,
        ["lower"] = tests::is_lower,
        ["upper"] = tests::is_upper,
        ["sameas"] = tests::is_sameas,
    ];
}

/// What the rendering on this thread has done.
#[derive(Debug, Default)]
struct Account {
    /// Bytes of all values that were made.
    made: usize,
    /// Bytes that were output, or captured by blocks.
    output: usize,
    /// Bytes of all values that were read.
    read: usize,
    /// Notes, and bytes read, since the watch was looked at.
    unwatched: usize,
    watch: Option<Watch>,
}

thread_local! {
    static ACCOUNT: RefCell<Account> = RefCell::default();
}

/// The account of one rendering, closed when this is dropped.
pub(super) struct Open(());

/// Begins the account of one rendering.
pub(super) fn begin(watch: Watch) -> Open {
    ACCOUNT.replace(Account {
        watch: Some(watch),
        ..Account::default()
    });
    Open(())
}

impl Drop for Open {
    fn drop(&mut self) {
        ACCOUNT.take();
    }
}

/// Takes note of bytes and looks whether the rendering has to end.
fn note(
    n_bytes: usize,
    most: usize,
    bound: Bound,
    sum: impl Fn(&mut Account) -> &mut usize,
) -> Result<(), Error> {
    ACCOUNT.with_borrow_mut(|account| {
        let sum = sum(account);
        *sum = sum.saturating_add(n_bytes);
        if *sum > most {
            return Err(reached(bound));
        }
        account.unwatched = account.unwatched.saturating_add(n_bytes + NOTE_BYTES);
        if account.unwatched >= WATCH_BYTES {
            account.unwatched = 0;
            if let Some(watch) = &account.watch {
                watch.check().map_err(reached)?;
            }
        }
        Ok(())
    })
}

/// Takes note of operands that are about to be read.
fn charge(n_bytes: usize) -> Result<(), Error> {
    note(n_bytes, MAX_READ_BYTES, Bound::Work, |account| {
        &mut account.read
    })
}

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
    note(own(&value), MAX_MADE_BYTES, Bound::Text, |account| {
        &mut account.made
    })?;
    Ok(value)
}

/// Takes note of what is output, or captured by a block; fails if it is too much.
fn written(value: Value) -> Result<Value, Error> {
    let size = match value.as_str() {
        Some(text) => text.len(),
        None => weight(&value, MAX_VALUE_BYTES, MAX_DEPTH)?,
    };
    note(size, MAX_OUTPUT_BYTES, Bound::Text, |account| {
        &mut account.output
    })?;
    Ok(value)
}

/// Takes note of a value that is read as a whole.
fn read(value: Value) -> Result<Value, Error> {
    charge(weight(&value, MAX_SCAN_BYTES, MAX_DEPTH)?)?;
    Ok(value)
}

/// Takes note of a value of which a part is taken: to find a character, a text is read.
fn indexed(value: Value) -> Result<Value, Error> {
    let is_read = matches!(
        value.kind(),
        ValueKind::String | ValueKind::Bytes | ValueKind::Iterable
    );
    charge(if is_read { own(&value) } else { 0 })?;
    Ok(value)
}

/// Takes note of what a loop runs over.
fn iterated(value: Value) -> Result<Value, Error> {
    itemised(&value)?;
    charge(own(&value))?;
    Ok(value)
}

/// Takes note of what becomes a member of a namespace. Only namespaces change after they were made: if
/// they could hold each other, nothing would ever be freed, or all of it at once, as deep as it is.
fn assigned(value: Value) -> Result<Value, Error> {
    if is_namespace(&value) {
        return Err(nested_namespace());
    }
    charge(0)?;
    Ok(value)
}

/// Compares two values that are not larger than they may be.
fn compared(a: Value, b: Value, is: impl Fn(&Value, &Value) -> bool) -> Result<bool, Error> {
    charge(comparing(&a, &b)?)?;
    Ok(is(&a, &b))
}

/// What comparing two values reads: no more than the smaller of them.
fn comparing(a: &Value, b: &Value) -> Result<usize, Error> {
    let least = own(a).min(own(b));
    if least == 0 || a.kind() == ValueKind::String || b.kind() == ValueKind::String {
        return Ok(least);
    }
    let (a, b) = (
        weight(a, MAX_SCAN_BYTES, MAX_DEPTH)?,
        weight(b, MAX_SCAN_BYTES, MAX_DEPTH)?,
    );
    Ok(a.min(b))
}

/// What looking for one value in another reads.
fn searching(needle: &Value, hay: &Value) -> Result<usize, Error> {
    let n_items = match hay.kind() {
        ValueKind::Seq | ValueKind::Iterable => hay.len().unwrap_or(MAX_VALUE_BYTES / VALUE_BYTES),
        _ => 1,
    };
    let needle = weight(needle, MAX_SCAN_BYTES, MAX_DEPTH)?;
    Ok(match hay.kind() {
        // A text is looked for in time that grows with both lengths, a key with its own.
        ValueKind::String | ValueKind::Bytes => own(hay).saturating_add(needle),
        ValueKind::Map => needle,
        _ => {
            let all = weight(hay, MAX_SCAN_BYTES, MAX_DEPTH)?;
            all.min(n_items.saturating_mul(needle))
                .saturating_add(own(hay))
        }
    })
}

/// Calls a filter with operands that were looked at.
fn call(
    state: &mut State<'_, '_>,
    name: &str,
    original: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some((value, rest)) = args.split_first() {
        if !OF_TEXT.contains(&name) {
            itemised(value)?;
        }
        let mut size = if SHALLOW.contains(&name) {
            own(value)
        } else {
            weight(value, MAX_SCAN_BYTES, MAX_DEPTH)?
        };
        let operands = total(rest)?;
        let n_times = if PER_ITEM.contains(&name) {
            value.len().unwrap_or(MAX_VALUE_BYTES / VALUE_BYTES).max(1)
        } else {
            1
        };
        size = size.saturating_add(operands.saturating_mul(n_times));
        charge(size)?;
        checked(name, value, rest)?;
    }
    weighed(state.apply_filter(original, args)?)
}

/// Calls a test with operands that were looked at.
fn test(state: &mut State<'_, '_>, original: &str, args: &[Value]) -> Result<bool, Error> {
    charge(match args {
        [needle, hay] if original == "llmsrv:in" => searching(needle, hay)?,
        [a, b] => comparing(a, b)?,
        others => total(others)?,
    })?;
    state.perform_test(original, args)
}

/// Takes note of what a method of Python's reads, and fails if it would make too much.
pub(super) fn method(name: &str, value: &Value, args: &[Value]) -> Result<(), Error> {
    let size = match (value.kind(), name) {
        (ValueKind::Map, "get") => 0,
        (ValueKind::Map | ValueKind::String, _) => own(value),
        _ => weight(value, MAX_SCAN_BYTES, MAX_DEPTH)?,
    };
    charge(size.saturating_add(total(args)?))?;
    checked(name, value, args)
}

/// The list that an iterable stands for, such as two lists that were added.
fn materialised(value: &Value) -> Result<Value, Error> {
    let mut items = Vec::new();
    for item in value.try_iter()?.checked() {
        if items.len() > MAX_VALUE_BYTES / VALUE_BYTES {
            return Err(reached(Bound::Text));
        }
        items.push(item?);
    }
    Ok(items.into())
}

/// Fails if a filter or a method would multiply its input beyond bounds.
fn checked(name: &str, value: &Value, args: &[Value]) -> Result<(), Error> {
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
        "split" | "rsplit" => {
            let n_parts = match arg(0) {
                "" => text.split_whitespace().count(),
                separator => text.matches(separator).count() + 1,
            };
            text.len()
                .saturating_add(n_parts.saturating_mul(VALUE_BYTES))
        }
        "lines" | "splitlines" => text
            .len()
            .saturating_add(text.lines().count().saturating_mul(VALUE_BYTES)),
        "indent" => text.lines().count().saturating_mul(largest(args)),
        "batch" | "slice" => largest(args).saturating_mul(VALUE_BYTES),
        "format" => {
            let is_long = |digits: &str| digits.len() > MAX_FORMAT_DIGITS;
            if text.split(|c: char| !c.is_ascii_digit()).any(is_long) {
                return Err(reached(Bound::Text));
            }
            // Every mark may name any operand.
            let n_marks = text.matches(['%', '{']).count();
            text.len()
                .saturating_add(n_marks.saturating_mul(total(args)?))
        }
        _ => 0,
    };
    if size > MAX_VALUE_BYTES {
        return Err(reached(Bound::Text));
    }
    Ok(())
}

/// Fails if a text has more characters than a list may have items.
fn itemised(value: &Value) -> Result<(), Error> {
    let is_text = matches!(value.kind(), ValueKind::String | ValueKind::Bytes);
    if is_text && own(value).saturating_mul(VALUE_BYTES) > MAX_VALUE_BYTES {
        return Err(reached(Bound::Text));
    }
    Ok(())
}

/// Bytes of a value without what is in it.
fn own(value: &Value) -> usize {
    match value.as_str() {
        Some(text) => text.len(),
        None => value.len().unwrap_or(0).saturating_mul(VALUE_BYTES),
    }
}

/// Bytes of operands and everything in them.
fn total(operands: &[Value]) -> Result<usize, Error> {
    operands.iter().try_fold(0_usize, |sum, operand| {
        Ok(sum.saturating_add(weight(operand, MAX_SCAN_BYTES, MAX_DEPTH)?))
    })
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
                return Err(reached(Bound::Text));
            }
            let is_map = value.kind() == ValueKind::Map;
            for item in value.try_iter()?.checked() {
                let item = item?;
                if is_map {
                    let member = value.get_item(&item)?;
                    if is_namespace(&member) {
                        return Err(nested_namespace());
                    }
                    sum += weight(&member, most.saturating_sub(sum), depth - 1)?;
                } else if is_namespace(&item) {
                    return Err(nested_namespace());
                }
                sum += weight(&item, most.saturating_sub(sum), depth - 1)?;
                if sum > most {
                    return Err(reached(Bound::Text));
                }
            }
        }
        _ => {}
    }
    if sum > most {
        return Err(reached(Bound::Text));
    }
    Ok(sum)
}

fn is_namespace(value: &Value) -> bool {
    value.kind() == ValueKind::Map
        && value
            .as_object()
            .is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

fn nested_namespace() -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        "a namespace cannot be a part of another value",
    )
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

fn reached(bound: Bound) -> Error {
    Error::new(ErrorKind::InvalidOperation, bound.to_string()).with_source(bound)
}

// No template can spell these names.
const WEIGHED: &str = "llmsrv:weighed";
const WRITTEN: &str = "llmsrv:written";
const READ: &str = "llmsrv:read";
const INDEXED: &str = "llmsrv:indexed";
const ITERATED: &str = "llmsrv:iterated";
const ASSIGNED: &str = "llmsrv:assigned";
const EQ: &str = "llmsrv:eq";
const NE: &str = "llmsrv:ne";
const LT: &str = "llmsrv:lt";
const LE: &str = "llmsrv:le";
const GT: &str = "llmsrv:gt";
const GE: &str = "llmsrv:ge";
const IN: &str = "llmsrv:in";

/// Filters that make no list of a text's characters.
const OF_TEXT: &[&str] = &[
    "abs",
    "attr",
    "bool",
    "capitalize",
    "count",
    "d",
    "default",
    "e",
    "escape",
    "float",
    "format",
    "indent",
    "int",
    "length",
    "lines",
    "lower",
    "replace",
    "round",
    "safe",
    "split",
    "string",
    "title",
    "tojson",
    "trim",
    "upper",
];
/// Filters that do not look into the items of a list.
const SHALLOW: &[&str] = &[
    "attr",
    "batch",
    "bool",
    "chain",
    "count",
    "d",
    "default",
    "first",
    "items",
    "last",
    "length",
    "list",
    "map",
    "reject",
    "rejectattr",
    "reverse",
    "select",
    "selectattr",
    "slice",
    "zip",
];
/// Filters that use their operands for each item.
const PER_ITEM: &[&str] = &["map", "reject", "rejectattr", "select", "selectattr"];
/// Largest text or list, with all that is in it.
const MAX_VALUE_BYTES: usize = 32 << 20;
/// All texts and lists that one rendering makes.
const MAX_MADE_BYTES: usize = 256 << 20;
/// All that one rendering outputs or captures: far more than any context holds.
const MAX_OUTPUT_BYTES: usize = 64 << 20;
/// All that one rendering compares, searches and counts.
const MAX_READ_BYTES: usize = 512 << 20;
/// Largest value, with all that is in it, that is read at once.
const MAX_SCAN_BYTES: usize = 256 << 20;
/// The watch is looked at after so many bytes; a note alone counts as some.
const WATCH_BYTES: usize = 1 << 16;
const NOTE_BYTES: usize = 1 << 10;
/// What a value takes beside its text.
const VALUE_BYTES: usize = 24;
const MAX_DEPTH: usize = 200;
/// Digits of a width in a format text.
const MAX_FORMAT_DIGITS: usize = 4;

//! Functions of the Go dialect, and the bounds on their work.

use std::cmp::Ordering as Ordered;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gotmpl::{Template, TemplateError, Value};
use jiff::{ToSpan, Zoned};

use super::values::{TYPE_SCRIPT, Values, text};
use crate::error::Error;
use crate::limits::{Bound, Watch};

/// Every function a template may name.
pub(super) const NAMES: &[&str] = &[
    "and",
    "call",
    "currentDate",
    "eq",
    "ge",
    "gt",
    "html",
    "index",
    "js",
    "json",
    "le",
    "len",
    "lt",
    "ne",
    "not",
    "or",
    "print",
    "printf",
    "println",
    "slice",
    "toTypeScriptType",
    "urlquery",
    "yesterdayDate",
];

/// Turns a printed value into its text. No template can spell this name.
pub(super) const PRINT: &str = " print";
/// Pays for the nodes of a block.
pub(super) const STEP: &str = " step";

/// The work one rendering may do.
#[derive(Debug)]
pub(super) struct Budget {
    steps: AtomicI64,
    bytes: AtomicI64,
    watch: Watch,
    reached: Mutex<Option<Bound>>,
}

impl Budget {
    pub(super) fn new(watch: Watch) -> Budget {
        Budget {
            steps: AtomicI64::new(5_000_000),
            bytes: AtomicI64::new(256 << 20),
            watch,
            reached: Mutex::new(None),
        }
    }

    /// The error of a rendering that ran out of its budget.
    pub(super) fn exhausted(&self) -> Option<Error> {
        let reached = *self.reached.lock();
        reached.map(Error::from)
    }

    fn pay_steps(&self, steps: i64) -> gotmpl::Result<()> {
        self.pay(&self.steps, steps)
    }

    fn pay_bytes(&self, bytes: usize) -> gotmpl::Result<()> {
        self.pay(&self.bytes, i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    fn pay(&self, account: &AtomicI64, amount: i64) -> gotmpl::Result<()> {
        if account.load(Ordering::Relaxed) < amount {
            return Err(self.end(Bound::Work));
        }
        account.fetch_sub(amount, Ordering::Relaxed);
        self.watch.check().map_err(|bound| self.end(bound))
    }

    fn end(&self, bound: Bound) -> TemplateError {
        *self.reached.lock() = Some(bound);
        TemplateError::Exec(bound.to_string())
    }
}

/// Adds the functions to a template that is about to run.
pub(super) fn register(
    mut template: Template,
    budget: &Arc<Budget>,
    values: Arc<Values>,
    now: &Zoned,
) -> Template {
    for (name, cost) in COSTLY {
        let (budget, values) = (budget.clone(), values.clone());
        template = template.func(name, move |args| {
            budget.pay_steps(CALL_STEPS)?;
            budget.pay_bytes(cost(args))?;
            let args = args.iter().map(|arg| printable(&values, arg)).collect();
            call_builtin(name, args)
        });
    }
    for (name, holds) in COMPARISONS {
        let budget = budget.clone();
        template = template.func(name, move |args| {
            budget.pay_steps(1)?;
            budget.pay_bytes(compared(args))?;
            match (name, args) {
                ("eq", [Value::String(first), others @ ..]) if all_texts(others) => {
                    let is_first =
                        |other: &Value| matches!(other, Value::String(text) if text == first);
                    Ok(Value::Bool(others.iter().any(is_first)))
                }
                (_, [Value::String(a), Value::String(b)]) => Ok(Value::Bool(holds(a.cmp(b)))),
                (_, args) => {
                    budget.pay_steps(CALL_STEPS)?;
                    call_builtin(name, args.to_vec())
                }
            }
        });
    }
    let slice_budget = budget.clone();
    template = template.func("slice", move |args| {
        slice_budget.pay_bytes(args.first().and_then(Value::len).unwrap_or(0))?;
        slice(args)
    });
    let (print_budget, print_values) = (budget.clone(), values.clone());
    let (json_budget, json_values) = (budget.clone(), values);
    let step_budget = budget.clone();
    let today = now.date().to_string();
    let yesterday = now.date().saturating_sub(1.day()).to_string();
    template
        .func(PRINT, move |args| {
            let printed = printable(&print_values, args.last().unwrap_or(&Value::Nil));
            print_budget.pay_bytes(printed.len().unwrap_or(0))?;
            Ok(printed)
        })
        .func(STEP, move |args| {
            step_budget.pay_steps(args.first().and_then(Value::as_int).unwrap_or(1))?;
            Ok(text(""))
        })
        .func("json", move |args| {
            let [value] = args else {
                return Err(TemplateError::ArgCount {
                    name: "json".into(),
                    expected: 1,
                    got: args.len(),
                });
            };
            let mut json = String::new();
            json_values.write_json(value, &mut json);
            json_budget.pay_bytes(json.len())?;
            Ok(text(&json))
        })
        .func("currentDate", move |_| Ok(text(&today)))
        .func("yesterdayDate", move |_| Ok(text(&yesterday)))
        .func("toTypeScriptType", |args| {
            let name = args.first().and_then(|schema| schema.field(TYPE_SCRIPT));
            Ok(name.cloned().unwrap_or_else(|| text("any")))
        })
}

type Cost = fn(&[Value]) -> usize;

/// Builtins that make text, with an upper bound of its bytes.
const COSTLY: [(&str, Cost); 6] = [
    ("print", |args| bytes(args)),
    ("println", |args| bytes(args)),
    ("printf", |args| {
        let Some((Value::String(format), rest)) = args.split_first() else {
            return 0;
        };
        // Every verb may name any argument, and every number may be a width.
        let n_verbs = format.matches('%').count();
        format.len() + widths(format) + n_verbs.saturating_mul(bytes(rest))
    }),
    ("html", |args| bytes(args).saturating_mul(6)),
    ("js", |args| bytes(args).saturating_mul(6)),
    ("urlquery", |args| bytes(args).saturating_mul(3)),
];

/// Whether a comparison holds for an order of its operands.
type Holds = fn(Ordered) -> bool;

/// Builtins that read texts, and when they hold for two of them.
const COMPARISONS: [(&str, Holds); 6] = [
    ("eq", Ordered::is_eq),
    ("ne", Ordered::is_ne),
    ("lt", Ordered::is_lt),
    ("le", Ordered::is_le),
    ("gt", Ordered::is_gt),
    ("ge", Ordered::is_ge),
];

/// Whether there are operands, all of them texts.
fn all_texts(operands: &[Value]) -> bool {
    let is_text = |operand: &Value| matches!(operand, Value::String(_));
    !operands.is_empty() && operands.iter().all(is_text)
}

/// Bytes that comparing the first operand with each of the others reads, at most.
fn compared(operands: &[Value]) -> usize {
    let text = |operand: &Value| match operand {
        Value::String(text) => text.len(),
        _ => 0,
    };
    let Some((first, others)) = operands.split_first() else {
        return 0;
    };
    let first = text(first);
    others.iter().map(|other| text(other).min(first)).sum()
}

/// Length of the values' texts, roughly.
fn bytes(values: &[Value]) -> usize {
    let length = |value: &Value| match value {
        Value::String(s) => s.len(),
        Value::List(items) => bytes(items),
        Value::Map(map) => map
            .iter()
            .map(|(key, v)| key.len() + bytes(std::slice::from_ref(v)))
            .sum(),
        _ => 24,
    };
    values.iter().map(length).sum()
}

/// Sum of all numbers in a format that could be widths or precisions, as gotmpl clamps them.
fn widths(format: &str) -> usize {
    let numbers = format
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty());
    let stars = format.matches('*').count() * MAX_WIDTH;
    stars
        + numbers
            .map(|digits| {
                digits
                    .parse()
                    .map_or(MAX_WIDTH, |n: usize| n.min(MAX_WIDTH))
            })
            .sum::<usize>()
}

/// Lists and maps become JSON, a missing key becomes nothing.
fn printable(values: &Values, value: &Value) -> Value {
    match value {
        Value::Nil => text(""),
        Value::List(_) | Value::Map(_) => {
            let mut json = String::new();
            values.write_json(value, &mut json);
            text(&json)
        }
        other => other.clone(),
    }
}

/// `slice x`, `slice x from`, `slice x from to`; a capacity as the last operand changes nothing.
fn slice(args: &[Value]) -> gotmpl::Result<Value> {
    let (Some(value), 1..=4) = (args.first(), args.len()) else {
        return Err(TemplateError::ArgCount {
            name: "slice".into(),
            expected: 1,
            got: args.len(),
        });
    };
    let mut bounds = [None; 3];
    for (bound, arg) in bounds.iter_mut().zip(&args[1..]) {
        match arg {
            Value::Int(n) => *bound = Some(*n),
            other => {
                let text = format!("slice: index must be integer, got {}", other.type_name());
                return Err(TemplateError::Exec(text));
            }
        }
    }
    value.slice(bounds[0], bounds[1])
}

/// Calls gotmpl's own function, which it does not export, through a small template.
fn call_builtin(name: &str, args: Vec<Value>) -> gotmpl::Result<Value> {
    use std::fmt::Write as _;

    let mut source = format!("{{{{ result ({name}");
    for i in 0..args.len() {
        let _ = write!(source, " (index . {i})");
    }
    source.push_str(") }}");
    let result = Arc::new(Mutex::new(Value::Nil));
    let slot = result.clone();
    Template::new("")
        .func("result", move |args| {
            let value = args.first().cloned().unwrap_or(Value::Nil);
            *slot.lock() = value;
            Ok(text(""))
        })
        .parse(&source)?
        .execute_to_string(&Value::List(args.into()))?;
    let value = result.lock().clone();
    Ok(value)
}

/// What a call through a template of its own costs.
const CALL_STEPS: i64 = 10;
/// gotmpl's bound on a width or precision.
const MAX_WIDTH: usize = u16::MAX as usize;

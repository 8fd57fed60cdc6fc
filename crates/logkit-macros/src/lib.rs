//! Attribute macros of the call logger; use them through the crate `logkit`, whose front page has an
//! example.

mod args;
mod function;
mod items;

use proc_macro::TokenStream;

use crate::args::Kind;

/// Logs each call of a function: arguments, result or error, duration. An `Err` and a panic are
/// ERRORs, and reach the caller unchanged.
///
/// | word | meaning |
/// |---|---|
/// | `level = "info"` | level of calls that go well: `debug` unless set |
/// | `name = "shown"` | a name other than the function's own |
/// | `skip(a, b)`, `skip_all` | parameters that are not rendered |
/// | `redact(pin)` | parameters that are blanked whatever they are called |
/// | `fields(size = list.len())` | more facts, for `extra` |
/// | `max_repr_length = 512` | characters kept of all arguments together, and of the result: 2048 unless set; 0 keeps all |
/// | `ret = false` | does not render the result |
/// | `err = Debug` | renders errors with `Debug` instead of `Display` |
/// | `sample = 0.01` | logs one call of a hundred, and every error |
/// | `slow_ms = 100` | logs calls that take that many milliseconds, and every error |
/// | `logger = expr` | another logger than the default one |
#[proc_macro_attribute]
pub fn log_call(args: TokenStream, item: TokenStream) -> TokenStream {
    function::expand(Kind::LogCall, args.into(), item.into()).into()
}

/// Like [`macro@log_call`], and the caller gets `default = expr` (or the type's default) instead of a
/// panic or an `Err`; of a function that returns a `Result`, `Ok` of it.
#[proc_macro_attribute]
pub fn catch(args: TokenStream, item: TokenStream) -> TokenStream {
    function::expand(Kind::Catch, args.into(), item.into()).into()
}

/// Logs the public functions of an `impl` block, and all functions of an implementation of a trait.
///
/// It takes the words of [`macro@log_call`] that name no parameter: all but `name`, `skip`, `redact`
/// and `fields`. A `const fn`, and a function whose name begins with `_`, is left alone.
#[proc_macro_attribute]
pub fn logged(args: TokenStream, item: TokenStream) -> TokenStream {
    items::expand_impl(args.into(), item.into()).into()
}

/// Leaves a function out of [`macro@logged`] and [`macro@auto_log`].
#[proc_macro_attribute]
pub fn skip(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// Logs the public functions of a module that is written in braces.
///
/// It takes the words of [`macro@logged`], `catch` and `default = expr` to treat the functions as
/// [`macro@catch`] does, and `recursive` for the modules within.
#[proc_macro_attribute]
pub fn auto_log(args: TokenStream, item: TokenStream) -> TokenStream {
    items::expand_module(args.into(), item.into()).into()
}

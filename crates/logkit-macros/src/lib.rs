//! Attribute macros of the call logger; use them through the crate `logkit`.

mod args;
mod function;
mod items;

use proc_macro::TokenStream;

use crate::args::Kind;

/// Logs each call of a function: arguments, result or error, duration.
///
/// `level = "info"`, `name = "shown"`, `max_repr_length = 512`, `skip(a, b)`, `skip_all`,
/// `fields(x = expr)`, `ret = false`, `err = Debug`, `redact(a)`, `sample = 0.01`, `logger = expr`.
#[proc_macro_attribute]
pub fn log_call(args: TokenStream, item: TokenStream) -> TokenStream {
    function::expand(Kind::LogCall, args.into(), item.into()).into()
}

/// Like `log_call`, and a panic or an `Err` gives `default = expr` (or the type's default) instead.
#[proc_macro_attribute]
pub fn catch(args: TokenStream, item: TokenStream) -> TokenStream {
    function::expand(Kind::Catch, args.into(), item.into()).into()
}

/// Logs the public functions of an `impl` block, and all functions of an implementation of a trait.
#[proc_macro_attribute]
pub fn logged(args: TokenStream, item: TokenStream) -> TokenStream {
    items::expand_impl(args.into(), item.into()).into()
}

/// Leaves a function out of `logged` and `auto_log`.
#[proc_macro_attribute]
pub fn skip(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// Logs the public functions of a module: `level = "info"`, `catch`, `default = expr`, `recursive`,
/// and what `log_call` takes for every function.
#[proc_macro_attribute]
pub fn auto_log(args: TokenStream, item: TokenStream) -> TokenStream {
    items::expand_module(args.into(), item.into()).into()
}

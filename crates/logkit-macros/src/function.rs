//! One function, logged.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{
    Error, FnArg, Ident, ItemFn, Pat, Path, Result, ReturnType, Safety, Type, parse_quote, parse2,
    spanned::Spanned,
};

use crate::args::{Args, Kind, LEVELS};

pub(crate) fn expand(kind: Kind, args: TokenStream, item: TokenStream) -> TokenStream {
    let logged =
        Args::parse(kind, args).and_then(|args| logged(kind, &args, parse_function(item.clone())?));
    match logged {
        Ok(function) => function.into_token_stream(),
        Err(error) => {
            // The function as it was keeps other messages away.
            let error = error.into_compile_error();
            quote! { #error #item }
        }
    }
}

fn parse_function(item: TokenStream) -> Result<ItemFn> {
    parse2(item).map_err(|error| {
        Error::new(
            error.span(),
            "this goes on a function with a body; for an `impl` block there is #[logged], for a \
             module #[auto_log]",
        )
    })
}

/// A parameter that is rendered.
struct Param {
    name: String,
    /// The variable that holds it.
    variable: Ident,
    kind: String,
}

fn logged(kind: Kind, args: &Args, mut function: ItemFn) -> Result<ItemFn> {
    if let Some(constness) = &function.sig.constness {
        return Err(Error::new(
            constness.span(),
            "a `const fn` can run in the compiler, where nothing can be logged; remove `const` or \
             the attribute",
        ));
    }
    let (all, bindings) = params(&mut function);
    for name in args.skip.iter().chain(&args.redact) {
        if !all.iter().any(|param| *name == param.name) {
            return Err(Error::new(
                name.span(),
                format!("there is no parameter `{name}`"),
            ));
        }
    }
    let shown: Vec<Param> = all
        .into_iter()
        .filter(|param| !args.skip_all && !args.skip.iter().any(|name| *name == param.name))
        .collect();

    let rank = rank(args);
    let site = site(args, &shown, &function.sig.output);
    let variables: Vec<_> = shown.iter().map(|param| &param.variable).collect();
    let field_names = args.fields.iter().map(|(name, _)| name.to_string());
    let field_values = args.fields.iter().map(|(_, value)| value);
    let logger = if let Some(logger) = &args.logger {
        quote! { ::core::option::Option::Some(&(#logger)) }
    } else {
        quote! { ::core::option::Option::None }
    };
    let tell = if args.debug_error {
        quote! { (&__p::Shown(__error)).show(__out) }
    } else {
        quote! { (&&&__p::Told(__error)).tell(__out) }
    };
    let (on_error, on_panic) = outcomes(kind, args, &function.sig.output);
    let whole = &function.block;
    // rustc warns of braces within those of a closure, so only an `unsafe` block keeps its own; it may do nothing unsafe.
    let statements = &whole.stmts;
    let block = match function.sig.safety {
        Safety::Unsafe(_) => quote! { #[allow(unused_unsafe)] unsafe #whole },
        Safety::Safe(_) | Safety::Default => quote! { #(#statements)* },
    };
    let declared = declared_type(&function.sig.output);
    // Lints that an expansion would raise for a body that never returns, one whose value is `()`, and `_unused` parameters.
    let allowed = quote! {
        #[allow(
            unreachable_code, unused_variables, clippy::diverging_sub_expression, clippy::let_unit_value,
            clippy::used_underscore_binding
        )]
    };
    let start = quote! {
        __p::Call::start(
            &__SITE,
            #rank,
            || __p::type_name_of_val(&__logkit_here),
            __logger,
            &|__args| {
                #( __args.arg(|__out| (&__p::Shown(&#variables)).show(__out)); )*
                #( __args.field(#field_names, |__out| (&__p::Shown(&(#field_values))).show(__out)); )*
            },
        )
    };
    let outcome = quote! {
        ::core::result::Result::Ok(__value) => {
            if let ::core::option::Option::Some(__error) = (&__p::Outcome(&__value)).failure() {
                __call.failed(__p::type_name_of(__error), |__out| #tell);
                #on_error
            } else {
                __call.returned(|__out| (&__p::Shown(&__value)).show(__out));
            }
            __value
        }
        ::core::result::Result::Err(__panic) => {
            __call.panicked(&*__panic);
            #on_panic
        }
    };
    let is_async = function.sig.asyncness.is_some();
    let logged = if !is_async && args.fields.is_empty() {
        // The address of a parameter is taken, and a stack frame made, only beyond `out_of_line`.
        let typed = declared.map(|kind| quote! { -> #kind });
        quote! {
            #allowed
            let (__args, __body) = __p::body_of(
                (#(#variables,)*),
                move |(#(#variables,)*)| #typed { #(#bindings)* #block },
            );
            #allowed
            if __p::Call::is_off(#rank, __logger) {
                return __body(__args);
            }
            __p::out_of_line(move || #typed {
                let (#(#variables,)*) = __args;
                #allowed
                let __call = #start;
                #allowed
                let __args = (#(#variables,)*);
                #allowed
                let ::core::option::Option::Some(__call) = __call else {
                    return __body(__args);
                };
                #allowed
                match __call.run_with(__args, __body) { #outcome }
            })
        }
    } else {
        // A field may use what the body takes away, such as `self`: the body is made after `start`.
        let (body, run, plain) = if is_async {
            let typed = declared.map(|kind| {
                quote! {
                    if false {
                        let __typed: #kind = ::core::unreachable!();
                        return __typed;
                    }
                }
            });
            (
                quote! { __p::pin!(async move { #typed #(#bindings)* #block }) },
                quote! { __call.run_async(__body).await },
                quote! { __body.await },
            )
        } else {
            let typed = declared.map(|kind| quote! { -> #kind });
            (
                quote! { __p::once(move || #typed { #(#bindings)* #block }) },
                quote! { __call.run(__body) },
                quote! { __body() },
            )
        };
        quote! {
            #allowed
            let __call = if __p::Call::is_off(#rank, __logger) { ::core::option::Option::None } else { #start };
            #allowed
            let __body = #body;
            #allowed
            let ::core::option::Option::Some(__call) = __call else {
                return #plain;
            };
            #allowed
            match #run { #outcome }
        }
    };
    function.block = parse_quote! {{
        #[allow(unused_imports)]
        use ::logkit::__private::{
            self as __p, CannotFail as _, MayFail as _, ShowDebug as _, ShowName as _,
            TellDebug as _, TellDisplay as _, TellName as _,
        };
        fn __logkit_here() {}
        #site
        let __logger: ::core::option::Option<&::logkit::Logger> = #logger;
        #logged
    }};
    Ok(function)
}

/// The parameters but `self`. Patterns get a variable, which the body takes apart.
fn params(function: &mut ItemFn) -> (Vec<Param>, Vec<TokenStream>) {
    let mut params = Vec::new();
    let mut bindings = Vec::new();
    for (idx, input) in function.sig.inputs.iter_mut().enumerate() {
        let FnArg::Typed(input) = input else {
            continue;
        };
        let kind = type_text(&input.ty);
        let (name, variable) = match &*input.pat {
            Pat::Ident(pattern) if pattern.subpat.is_none() && pattern.by_ref.is_none() => {
                let variable = pattern.ident.clone();
                // `mut` is for the body, which takes the parameter anew.
                if pattern.mutability.is_some() {
                    bindings.push(quote! { let #pattern = #variable; });
                    *input.pat = parse_quote! { #variable };
                }
                (variable.to_string(), variable)
            }
            pattern => {
                let variable = format_ident!("__arg{idx}");
                let name = match pattern {
                    Pat::Wild(_) => "_".to_owned(),
                    other => other.to_token_stream().to_string(),
                };
                bindings.push(quote! { let #pattern = #variable; });
                *input.pat = parse_quote! { #variable };
                (name, variable)
            }
        };
        params.push(Param {
            name: name.trim_start_matches("r#").to_owned(),
            variable,
            kind,
        });
    }
    (params, bindings)
}

/// The rank of the level.
fn rank(args: &Args) -> u8 {
    let level = args.level.as_ref().map(syn::LitStr::value);
    let place = LEVELS.iter().position(|name| {
        level
            .as_deref()
            .is_some_and(|level| level.eq_ignore_ascii_case(name))
    });
    10 * (place.unwrap_or(0) as u8 + 1)
}

/// The static that describes the function.
fn site(args: &Args, shown: &[Param], output: &ReturnType) -> TokenStream {
    let level = args
        .level
        .as_ref()
        .map_or_else(|| "debug".into(), |level| level.value().to_lowercase());
    let level = format_ident!("{}{}", level[..1].to_uppercase(), &level[1..]);
    let name = args
        .name
        .as_ref()
        .map(syn::LitStr::value)
        .unwrap_or_default();
    let max_repr_length = args.max_repr_length.unwrap_or(2048);
    let sample = args.sample.map_or(u64::MAX, |share| {
        // As a share of all numbers; the largest stands for "always".
        (share * u64::MAX as f64) as u64
    });
    let slow_ms = args.slow_ms.unwrap_or(0.0);
    let render_result = !args.hide_result;
    let param_names = shown.iter().map(|param| &param.name);
    let redacted = args.redact.iter().map(Ident::to_string);
    let types: Vec<&str> = shown.iter().map(|param| param.kind.as_str()).collect();
    let arg_types = types.join(", ");
    let return_type = match output {
        ReturnType::Default => "()".to_owned(),
        ReturnType::Type(_, kind) => type_text(kind),
    };
    quote! {
        static __SITE: __p::Site = __p::Site {
            module: __p::module_path!(),
            name: #name,
            params: &[#(#param_names),*],
            redacted: &[#(#redacted),*],
            arg_types: #arg_types,
            return_type: #return_type,
            level: ::logkit::Level::#level,
            max_repr_length: #max_repr_length,
            sample: #sample,
            slow_ms: #slow_ms,
            render_result: #render_result,
            resolved: __p::OnceLock::new(),
        };
    }
}

/// What happens after an error, and after a panic, is logged.
fn outcomes(kind: Kind, args: &Args, output: &ReturnType) -> (TokenStream, TokenStream) {
    if kind != Kind::Catch {
        return (TokenStream::new(), quote! { __p::resume_unwind(__panic) });
    }
    let default = if let Some(default) = &args.default {
        quote! { #default }
    } else {
        quote! { ::core::default::Default::default() }
    };
    if is_result(output) {
        let default = quote! { ::core::result::Result::Ok(#default) };
        (quote! { return #default; }, default)
    } else {
        (TokenStream::new(), default)
    }
}

/// True if the type is called `Result`.
fn is_result(output: &ReturnType) -> bool {
    let ReturnType::Type(_, kind) = output else {
        return false;
    };
    matches!(&**kind, Type::Path(path) if last_name(&path.path) == "Result")
}

fn last_name(path: &Path) -> String {
    path.segments
        .last()
        .map(|segment| segment.ident.to_string())
        .unwrap_or_default()
}

/// The declared type, if it can be written down once more.
fn declared_type(output: &ReturnType) -> Option<TokenStream> {
    match output {
        ReturnType::Default => Some(quote! { () }),
        ReturnType::Type(_, kind) => {
            let tokens = kind.to_token_stream();
            let opaque = has_word(tokens.clone(), "impl");
            (!opaque).then_some(tokens)
        }
    }
}

fn has_word(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        proc_macro2::TokenTree::Ident(ident) => ident == word,
        proc_macro2::TokenTree::Group(group) => has_word(group.stream(), word),
        _ => false,
    })
}

/// A type as people write it.
fn type_text(kind: &Type) -> String {
    let mut text = kind.to_token_stream().to_string();
    for (spaced, tight) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" < ", "<"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        ("& ", "&"),
        ("* ", "*"),
        (" ;", ";"),
        ("( ", "("),
        (" )", ")"),
        ("[ ", "["),
        (" ]", "]"),
    ] {
        text = text.replace(spaced, tight);
    }
    text
}

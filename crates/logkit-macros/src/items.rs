//! Many functions at once: those of an `impl` block or of a module.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{
    Attribute, Error, ImplItem, Item, ItemImpl, ItemMod, Result, Visibility, parse_quote, parse2,
};

use crate::args::{Args, Kind};

pub(crate) fn expand_impl(args: TokenStream, item: TokenStream) -> TokenStream {
    or_error(item.clone(), || {
        // Mistakes are told once, not for each function.
        Args::parse(Kind::Logged, args.clone())?;
        let mut block: ItemImpl = parse2(item)
            .map_err(|error| Error::new(error.span(), "#[logged] goes on an `impl` block"))?;
        let of_trait = block.trait_.is_some();
        for item in &mut block.items {
            let ImplItem::Fn(function) = item else {
                continue;
            };
            let wanted = of_trait || is_public(&function.vis);
            let name = function.sig.ident.to_string();
            let skipped = take_skip(&mut function.attrs);
            let left_alone = skipped
                || name.starts_with('_')
                || function.sig.constness.is_some()
                || is_logged(&function.attrs);
            if wanted && !left_alone {
                function
                    .attrs
                    .push(parse_quote! { #[::logkit::log_call(#args)] });
            }
        }
        Ok(block.into_token_stream())
    })
}

pub(crate) fn expand_module(args: TokenStream, item: TokenStream) -> TokenStream {
    or_error(item.clone(), || {
        let parsed = Args::parse(Kind::AutoLog, args.clone())?;
        let attribute = function_attribute(&parsed, args)?;
        let mut module: ItemMod = parse2(item)
            .map_err(|error| Error::new(error.span(), "#[auto_log] goes on a module"))?;
        if module.content.is_none() {
            return Err(Error::new(
                module.ident.span(),
                "#[auto_log] sees only modules with their content in braces: \
                 `mod name { ... }`",
            ));
        }
        log_module(&mut module, &attribute, parsed.recursive);
        Ok(module.into_token_stream())
    })
}

fn log_module(module: &mut ItemMod, attribute: &TokenStream, recursive: bool) {
    let Some((_, items)) = &mut module.content else {
        return;
    };
    for item in items {
        match item {
            Item::Fn(function) => {
                let skipped = take_skip(&mut function.attrs);
                let left_alone =
                    skipped || function.sig.constness.is_some() || is_logged(&function.attrs);
                if is_public(&function.vis) && !left_alone {
                    function.attrs.push(parse_quote! { #[#attribute] });
                }
            }
            Item::Mod(inner) if recursive => log_module(inner, attribute, recursive),
            _ => {}
        }
    }
}

/// The attribute of each function: what was said, but the words for modules.
fn function_attribute(args: &Args, tokens: TokenStream) -> Result<TokenStream> {
    if args.default.is_some() && !args.catch {
        return Err(Error::new(
            Span::call_site(),
            "`default` is what a caught failure gives: it needs `catch`",
        ));
    }
    let mut kept = TokenStream::new();
    let mut word = TokenStream::new();
    let mut flush = |word: &mut TokenStream| {
        let word = std::mem::take(word);
        if !word.is_empty() && !matches!(word.to_string().as_str(), "catch" | "recursive") {
            kept.extend(quote! { #word, });
        }
    };
    for token in tokens {
        match &token {
            proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ',' => flush(&mut word),
            _ => word.extend([token]),
        }
    }
    flush(&mut word);
    Ok(if args.catch {
        quote! { ::logkit::catch(#kept) }
    } else {
        quote! { ::logkit::log_call(#kept) }
    })
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn last_name(attribute: &Attribute) -> String {
    attribute
        .path()
        .segments
        .last()
        .map(|segment| segment.ident.to_string())
        .unwrap_or_default()
}

/// Removes `#[skip]`; true if it was there.
fn take_skip(attributes: &mut Vec<Attribute>) -> bool {
    let n_before = attributes.len();
    attributes.retain(|attribute| last_name(attribute) != "skip");
    attributes.len() < n_before
}

fn is_logged(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| matches!(last_name(attribute).as_str(), "log_call" | "catch"))
}

fn or_error(item: TokenStream, expand: impl FnOnce() -> Result<TokenStream>) -> TokenStream {
    expand().unwrap_or_else(|error| {
        let error = error.into_compile_error();
        quote! { #error #item }
    })
}

//! The words in an attribute.

use proc_macro2::TokenStream;
use syn::{
    Error, Expr, Ident, Lit, LitStr, Result, Token, parenthesized,
    parse::{ParseStream, Parser},
    punctuated::Punctuated,
};

/// Which attribute it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    LogCall,
    Catch,
    Logged,
    AutoLog,
}

/// What an attribute says.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) level: Option<LitStr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) max_repr_length: Option<usize>,
    pub(crate) skip: Vec<Ident>,
    pub(crate) skip_all: bool,
    pub(crate) redact: Vec<Ident>,
    pub(crate) fields: Vec<(Ident, Expr)>,
    pub(crate) hide_result: bool,
    pub(crate) debug_error: bool,
    pub(crate) sample: Option<f64>,
    pub(crate) slow_ms: Option<f64>,
    pub(crate) logger: Option<Expr>,
    pub(crate) default: Option<Expr>,
    pub(crate) catch: bool,
    pub(crate) recursive: bool,
}

const ALL: &[Kind] = &[Kind::LogCall, Kind::Catch, Kind::Logged, Kind::AutoLog];

/// All words, and whose they are.
const WORDS: &[(&str, &[Kind])] = &[
    ("level", ALL),
    ("max_repr_length", ALL),
    ("logger", ALL),
    ("ret", ALL),
    ("err", ALL),
    ("sample", ALL),
    ("slow_ms", ALL),
    ("skip_all", ALL),
    ("name", &[Kind::LogCall, Kind::Catch]),
    ("skip", &[Kind::LogCall, Kind::Catch]),
    ("redact", &[Kind::LogCall, Kind::Catch]),
    ("fields", &[Kind::LogCall, Kind::Catch]),
    ("default", &[Kind::Catch, Kind::AutoLog]),
    ("catch", &[Kind::AutoLog]),
    ("recursive", &[Kind::AutoLog]),
];

/// The levels, lowest first.
pub(crate) const LEVELS: [&str; 5] = ["debug", "info", "warning", "error", "critical"];

impl Args {
    pub(crate) fn parse(kind: Kind, tokens: TokenStream) -> Result<Args> {
        let parser = |input: ParseStream<'_>| -> Result<Args> {
            let mut args = Args::default();
            while !input.is_empty() {
                args.word(kind, input)?;
                if !input.is_empty() {
                    input.parse::<Token![,]>()?;
                }
            }
            Ok(args)
        };
        parser.parse2(tokens)
    }

    fn word(&mut self, kind: Kind, input: ParseStream<'_>) -> Result<()> {
        let word: Ident = input.parse()?;
        let text = word.to_string();
        let mine: Vec<&str> = WORDS
            .iter()
            .filter(|(_, kinds)| kinds.contains(&kind))
            .map(|(name, _)| *name)
            .collect();
        if !mine.contains(&text.as_str()) {
            return Err(Error::new(
                word.span(),
                format!("`{text}` means nothing here; there is {}", mine.join(", ")),
            ));
        }
        match text.as_str() {
            "skip_all" => self.skip_all = true,
            "catch" => self.catch = true,
            "recursive" => self.recursive = true,
            "skip" => self.skip = names(input)?,
            "redact" => self.redact = names(input)?,
            "fields" => {
                let content;
                parenthesized!(content in input);
                while !content.is_empty() {
                    let name = content.parse()?;
                    content.parse::<Token![=]>()?;
                    self.fields.push((name, content.parse()?));
                    if !content.is_empty() {
                        content.parse::<Token![,]>()?;
                    }
                }
            }
            _ => {
                input.parse::<Token![=]>()?;
                self.value(&text, input)?;
            }
        }
        Ok(())
    }

    fn value(&mut self, word: &str, input: ParseStream<'_>) -> Result<()> {
        match word {
            "level" => {
                let level: LitStr = input.parse()?;
                if !LEVELS.contains(&level.value().to_lowercase().as_str()) {
                    return Err(Error::new(
                        level.span(),
                        format!("a level is one of {}", LEVELS.join(", ")),
                    ));
                }
                self.level = Some(level);
            }
            "name" => self.name = Some(input.parse()?),
            "max_repr_length" => {
                self.max_repr_length = Some(input.parse::<syn::LitInt>()?.base10_parse()?);
            }
            "ret" => self.hide_result = !input.parse::<syn::LitBool>()?.value,
            "err" => {
                let form: Ident = input.parse()?;
                self.debug_error = match form.to_string().as_str() {
                    "Debug" => true,
                    "Display" => false,
                    _ => return Err(Error::new(form.span(), "`err` is Display or Debug")),
                };
            }
            "sample" => {
                let is_share = |number: &f64| (0.0..=1.0).contains(number);
                let wanted = "`sample` is a number from 0 to 1";
                self.sample = Some(number(&input.parse()?, is_share, wanted)?);
            }
            "slow_ms" => {
                let wanted = "`slow_ms` is a number of milliseconds";
                self.slow_ms = Some(number(&input.parse()?, |time| time.is_finite(), wanted)?);
            }
            "logger" => self.logger = Some(input.parse()?),
            _ => self.default = Some(input.parse()?),
        }
        Ok(())
    }
}

/// `(a, b)`
fn names(input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let content;
    parenthesized!(content in input);
    let names = Punctuated::<Ident, Token![,]>::parse_terminated(&content)?;
    Ok(names.into_iter().collect())
}

/// A number that is right, or the error that says what it has to be.
fn number(literal: &Lit, is_right: fn(&f64) -> bool, wanted: &str) -> Result<f64> {
    let number = match literal {
        Lit::Float(number) => Some(number.base10_parse()?),
        Lit::Int(number) => Some(number.base10_parse()?),
        _ => None,
    };
    let number = number.filter(is_right);
    number.ok_or_else(|| Error::new(literal.span(), wanted))
}

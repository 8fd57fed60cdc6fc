//! What is done with each `format`: one table.

use super::keywords::Applies;

/// A format and its treatment.
pub(super) struct Format {
    pub(super) name: &'static str,
    pub(super) applies: Applies,
    pub(super) rule: Rule,
}

/// How a format is treated.
pub(super) enum Rule {
    /// The grammar engine knows it.
    Native,
    /// Texts that match this pattern have the format (there may be others).
    Pattern(fn() -> String),
    /// Numbers from the first to the second.
    Range(f64, f64),
    /// Says nothing about what is valid.
    Annotation,
}

/// Returns a format; nothing if it is not known.
pub(super) fn find(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// RFC 3339, without leap seconds, and February 29 in leap years only.
fn date() -> String {
    format!("^{DATE}$")
}

fn date_time() -> String {
    format!("^{DATE}T{TIME}$")
}

fn time() -> String {
    format!("^{TIME}$")
}

/// RFC 5321 as far as libraries with patterns of their own let it through: no odd signs, and a top-level
/// domain of letters. A local part has up to 64 bytes.
fn email() -> String {
    let atom = "[a-zA-Z0-9_+\\-]{1,20}";
    format!(
        "^{atom}(?:\\.{atom}){{0,2}}@{}\\.[a-zA-Z]{{2,12}}$",
        labels()
    )
}

/// RFC 1123, labels without two hyphens in a row (those that begin with `xn--` have rules of their
/// own) and never near the limit of 253 bytes.
fn hostname() -> String {
    format!("^{}$", labels())
}

fn labels() -> String {
    const LABEL: &str = "[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,29}";
    format!("{LABEL}(?:\\.{LABEL}){{0,3}}")
}

/// RFC 3986 with a host name or without an authority.
fn uri() -> String {
    format!("^{}$", absolute())
}

fn absolute() -> String {
    format!(
        "[a-zA-Z][a-zA-Z0-9+.\\-]{{0,19}}:(?://{}(?::[0-9]{{1,4}})?(?:/{SEGMENT}{{0,60}}){{0,9}}|/?{SEGMENT}{{1,60}}(?:/{SEGMENT}{{0,60}}){{0,9}}){TAIL}",
        labels()
    )
}

fn uri_reference() -> String {
    let first = SEGMENT.replace("=:@", "=@");
    format!(
        "^(?:{}|{first}{{0,60}}(?:/{SEGMENT}{{1,60}}){{0,9}}/?{TAIL})$",
        absolute()
    )
}

/// RFC 3339, appendix A.
fn duration() -> String {
    const TIME: &str =
        "T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S)";
    const DAYS: &str =
        "(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)";
    format!("^P(?:{DAYS}(?:{TIME})?|{TIME}|[0-9]{{1,4}}W)$")
}

/// RFC 6901.
fn json_pointer() -> String {
    "^(?:/(?:[^/~]|~[01]){0,60}){0,20}$".into()
}

fn relative_json_pointer() -> String {
    "^(?:0|[1-9][0-9]{0,3})(?:#|(?:/(?:[^/~]|~[01]){0,60}){0,20})$".into()
}

/// RFC 4648.
fn base64() -> String {
    "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$".into()
}

const DATE: &str = concat!(
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))",
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)",
);
const TIME: &str = concat!(
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?",
    "(?:Z|[+\\-](?:[01][0-9]|2[0-3]):[0-5][0-9])",
);
const SEGMENT: &str = "(?:[a-zA-Z0-9\\-._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})";
const TAIL: &str = concat!(
    "(?:\\?(?:[a-zA-Z0-9\\-._~!$&'()*+,;=:@/?]|%[0-9a-fA-F]{2}){0,100})?",
    "(?:#(?:[a-zA-Z0-9\\-._~!$&'()*+,;=:@/?]|%[0-9a-fA-F]{2}){0,60})?",
);

/// The largest double below 2^63: the grammar engine computes with integers of 64 bits.
pub(super) const MAX_INTEGER: f64 = 9_223_372_036_854_774_784.0;

const fn row(name: &'static str, applies: Applies, rule: Rule) -> Format {
    Format {
        name,
        applies,
        rule,
    }
}

/// The formats of the drafts and of OpenAPI, and names in use for what has no form.
pub(super) static FORMATS: &[Format] = {
    use Applies::{Numbers, Strings};
    use Rule::{Annotation, Native, Pattern, Range};
    &[
        row("date-time", Strings, Pattern(date_time)),
        row("date", Strings, Pattern(date)),
        row("time", Strings, Pattern(time)),
        row("duration", Strings, Pattern(duration)),
        row("email", Strings, Pattern(email)),
        row("idn-email", Strings, Pattern(email)),
        row("hostname", Strings, Pattern(hostname)),
        row("idn-hostname", Strings, Pattern(hostname)),
        row("ipv4", Strings, Native),
        row("ipv6", Strings, Native),
        row("uuid", Strings, Native),
        row("uri", Strings, Pattern(uri)),
        row("iri", Strings, Pattern(uri)),
        row("url", Strings, Pattern(uri)),
        row("uri-template", Strings, Pattern(uri)),
        row("uri-reference", Strings, Pattern(uri_reference)),
        row("iri-reference", Strings, Pattern(uri_reference)),
        row("json-pointer", Strings, Pattern(json_pointer)),
        row(
            "relative-json-pointer",
            Strings,
            Pattern(relative_json_pointer),
        ),
        row("byte", Strings, Pattern(base64)),
        row("int32", Numbers, Range(-2_147_483_648.0, 2_147_483_647.0)),
        row("uint32", Numbers, Range(0.0, 4_294_967_295.0)),
        row("int64", Numbers, Range(-MAX_INTEGER, MAX_INTEGER)),
        row("float", Numbers, Annotation),
        row("double", Numbers, Annotation),
        row("binary", Strings, Annotation),
        row("password", Strings, Annotation),
        row("path", Strings, Annotation),
        row("file-path", Strings, Annotation),
        row("directory-path", Strings, Annotation),
        row("markdown", Strings, Annotation),
        row("textarea", Strings, Annotation),
    ]
};

//! Tokens that show by their form who issued them.

use std::ops::Range;

/// Which characters the rest of a token has.
#[derive(Clone, Copy)]
enum Body {
    Alphanumeric,
    Upper,
    /// Letters, digits, `_` and `-`.
    Word,
    /// The same and `.`.
    Dotted,
}

/// What tokens of an issuer start with, what follows, and the least length of that.
type Form = (&'static [u8], Body, usize);

const FORMS: &[Form] = &[
    (b"llmsrv_", Body::Alphanumeric, 12),
    // Amazon
    (b"AKIA", Body::Upper, 16),
    (b"ASIA", Body::Upper, 16),
    (b"ABIA", Body::Upper, 16),
    (b"ACCA", Body::Upper, 16),
    (b"AROA", Body::Upper, 16),
    (b"AIDA", Body::Upper, 16),
    // Google
    (b"AIza", Body::Word, 30),
    (b"ya29.", Body::Word, 16),
    (b"GOCSPX-", Body::Word, 16),
    // GitHub, GitLab
    (b"ghp_", Body::Alphanumeric, 16),
    (b"gho_", Body::Alphanumeric, 16),
    (b"ghu_", Body::Alphanumeric, 16),
    (b"ghs_", Body::Alphanumeric, 16),
    (b"ghr_", Body::Alphanumeric, 16),
    (b"github_pat_", Body::Word, 16),
    (b"glpat-", Body::Dotted, 12),
    (b"gldt-", Body::Word, 16),
    (b"glrt-", Body::Dotted, 16),
    (b"glptt-", Body::Word, 16),
    (b"glcbt-", Body::Word, 16),
    // OpenAI, Anthropic and others of that kind
    (b"sk-", Body::Word, 16),
    (b"gsk_", Body::Alphanumeric, 20),
    (b"xai-", Body::Alphanumeric, 20),
    (b"pplx-", Body::Alphanumeric, 20),
    (b"nvapi-", Body::Word, 20),
    (b"hf_", Body::Alphanumeric, 16),
    (b"r8_", Body::Alphanumeric, 20),
    // Slack
    (b"xoxa-", Body::Word, 10),
    (b"xoxb-", Body::Word, 10),
    (b"xoxc-", Body::Word, 10),
    (b"xoxd-", Body::Word, 10),
    (b"xoxe-", Body::Word, 10),
    (b"xoxe.", Body::Dotted, 10),
    (b"xoxo-", Body::Word, 10),
    (b"xoxp-", Body::Word, 10),
    (b"xoxr-", Body::Word, 10),
    (b"xoxs-", Body::Word, 10),
    (b"xapp-", Body::Word, 10),
    // Stripe, Square, Shopify, Twilio, SendGrid
    (b"sk_live_", Body::Alphanumeric, 10),
    (b"sk_test_", Body::Alphanumeric, 10),
    (b"rk_live_", Body::Alphanumeric, 10),
    (b"rk_test_", Body::Alphanumeric, 10),
    (b"whsec_", Body::Alphanumeric, 16),
    (b"sq0atp-", Body::Word, 16),
    (b"sq0csp-", Body::Word, 16),
    (b"shpat_", Body::Alphanumeric, 16),
    (b"shpca_", Body::Alphanumeric, 16),
    (b"shppa_", Body::Alphanumeric, 16),
    (b"shpss_", Body::Alphanumeric, 16),
    (b"SG.", Body::Dotted, 30),
    // Registries of packages and images
    (b"npm_", Body::Alphanumeric, 30),
    (b"pypi-", Body::Word, 30),
    (b"rubygems_", Body::Alphanumeric, 30),
    (b"dckr_pat_", Body::Word, 16),
    // Clouds and tools
    (b"dop_v1_", Body::Alphanumeric, 20),
    (b"doo_v1_", Body::Alphanumeric, 20),
    (b"dor_v1_", Body::Alphanumeric, 20),
    (b"hvs.", Body::Word, 16),
    (b"hvb.", Body::Word, 16),
    (b"tskey-", Body::Word, 12),
    (b"glc_", Body::Alphanumeric, 20),
    (b"glsa_", Body::Word, 20),
    (b"sntrys_", Body::Word, 20),
    (b"lin_api_", Body::Alphanumeric, 20),
    (b"ntn_", Body::Alphanumeric, 20),
    (b"figd_", Body::Word, 20),
    (b"AGE-SECRET-KEY-", Body::Word, 16),
];
/// What of a token decides whether it is one.
const MAX_LOOK: usize = 256;
/// The longest first part of a signed token.
const MAX_HEAD: usize = 2048;
/// A signed token: three parts with dots between.
const SIGNED: &[u8] = b"eyJ";

/// The places of all tokens, in order.
pub(super) fn find(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        at += 1;
        if !FIRST[usize::from(byte)] || (start > 0 && bytes[start - 1].is_ascii_alphanumeric()) {
            continue;
        }
        if let Some(end) = token_end(bytes, start) {
            at = end;
            found.push(start..end);
        }
    }
    found
}

/// What the forms start with.
const FIRST: [bool; 256] = {
    let mut first = [false; 256];
    let mut at = 0;
    while at < FORMS.len() {
        first[FORMS[at].0[0] as usize] = true;
        at += 1;
    }
    first[SIGNED[0] as usize] = true;
    first
};

fn token_end(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = &bytes[start..];
    if rest.starts_with(SIGNED) {
        return signed_end(rest).map(|length| start + length);
    }
    let (prefix, body, least) = *FORMS.iter().find(|(prefix, ..)| rest.starts_with(prefix))?;
    let rest = &rest[prefix.len()..];
    let holds = |rest: &[u8], most: usize| {
        let rest = rest.iter().take(most);
        rest.take_while(|byte| body.holds(**byte)).count()
    };
    let length = holds(rest, MAX_LOOK);
    let start_of_rest = &rest[..length];
    // Names and words start with these, too.
    let is_random =
        start_of_rest.iter().any(u8::is_ascii_digit) || !matches!(prefix, b"llmsrv_" | b"sk-");
    let is_whole = match body {
        // Longer words are none.
        Body::Upper => length == least,
        _ => length >= least,
    };
    (is_whole && is_random).then(|| start + prefix.len() + holds(rest, usize::MAX))
}

fn signed_end(rest: &[u8]) -> Option<usize> {
    let part = |from: usize, most: usize| {
        let rest = rest.get(from..).unwrap_or_default();
        rest.iter()
            .take(most)
            .take_while(|byte| Body::Word.holds(**byte))
            .count()
    };
    let head = part(0, MAX_HEAD);
    if head < 8 || rest.get(head) != Some(&b'.') {
        return None;
    }
    let claims = part(head + 1, usize::MAX);
    let signature = head + 1 + claims + 1;
    let is_signed = claims >= 5 && rest.get(signature - 1) == Some(&b'.');
    is_signed.then(|| signature + part(signature, usize::MAX))
}

impl Body {
    fn holds(self, byte: u8) -> bool {
        match self {
            Body::Alphanumeric => byte.is_ascii_alphanumeric(),
            Body::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Body::Word => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Body::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
        }
    }
}

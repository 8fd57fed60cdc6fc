//! GBNF, the grammars of llama.cpp, as Lark.
//!
//! ```text
//! root ::= "yes" | [0-9]{1,3} list?        start: "yes" | /[\x{30}-\x{39}]/{1,3} g1?
//! list ::= ("," [^,]+)*                    g1: ("," /[^\x{2c}]/+)*
//! ```

use std::{collections::HashMap, fmt::Write as _, iter::Peekable, str::Chars};

use serde_json::Value;

/// Why a text is no grammar.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GbnfError {
    /// No rule is called `root`.
    #[error("the grammar has no rule \"root\"")]
    NoRoot,
    /// A rule is used but not there.
    #[error("the grammar has no rule {0:?}")]
    NoRule(String),
    /// Something is where it does not belong.
    #[error("the grammar has {0} where it does not belong")]
    Unexpected(String),
    /// A text, a class or a group does not end.
    #[error("the grammar ends within {0}")]
    Unfinished(&'static str),
}

/// Translates a grammar.
pub(super) fn to_lark(grammar: &str) -> Result<String, GbnfError> {
    let tokens = tokens(grammar)?;
    let names: HashMap<&str, String> = tokens
        .iter()
        .filter_map(|token| match token {
            Token::Rule(name) => Some(name.as_str()),
            _ => None,
        })
        .enumerate()
        .map(|(idx, name)| (name, lark_name(idx, name)))
        .collect();
    if !names.contains_key("root") {
        return Err(GbnfError::NoRoot);
    }
    let mut lark = String::new();
    for token in &tokens {
        match token {
            Token::Rule(name) => {
                let _ = write!(lark, "\n{}:", names[name.as_str()]);
            }
            _ if lark.is_empty() => return Err(GbnfError::Unexpected("an expression".into())),
            Token::Name(name) => {
                let name = names.get(name.as_str());
                let name = name.ok_or_else(|| GbnfError::NoRule(token.text()))?;
                let _ = write!(lark, " {name}");
            }
            Token::Text(text) => {
                let _ = write!(lark, " {}", Value::from(text.as_str()));
            }
            Token::Class(class) => {
                let _ = write!(lark, " /{class}/");
            }
            Token::Sign(sign @ ('(' | '|')) => {
                let _ = write!(lark, " {sign}");
            }
            Token::Sign(sign) => lark.push(*sign),
            Token::Count(count) => lark.push_str(count),
        }
    }
    Ok(lark)
}

fn lark_name(idx: usize, name: &str) -> String {
    if name == "root" {
        "start".into()
    } else {
        format!("g{idx}")
    }
}

#[derive(Debug)]
enum Token {
    /// The name of a rule and `::=`.
    Rule(String),
    Name(String),
    Text(String),
    /// A character class as a regular expression.
    Class(String),
    Sign(char),
    /// `{1,3}`.
    Count(String),
}

impl Token {
    fn text(&self) -> String {
        match self {
            Token::Name(name) => name.clone(),
            _ => String::new(),
        }
    }
}

fn tokens(grammar: &str) -> Result<Vec<Token>, GbnfError> {
    let mut tokens = Vec::new();
    let mut chars = grammar.chars().peekable();
    while let Some(c) = chars.next() {
        let token = match c {
            c if c.is_whitespace() => continue,
            '#' => {
                while chars.next().is_some_and(|c| c != '\n') {}
                continue;
            }
            '"' => Token::Text(text(&mut chars)?),
            '[' => Token::Class(class(&mut chars)?),
            '.' => Token::Class("(?s:.)".into()),
            '(' | ')' | '|' | '*' | '+' | '?' => Token::Sign(c),
            '{' => {
                let count: String = chars.by_ref().take_while(|c| *c != '}').collect();
                let is_count = |c: char| c.is_ascii_digit() || c == ',' || c == ' ';
                if count.is_empty() || !count.chars().all(is_count) {
                    return Err(GbnfError::Unexpected(format!("{{{count}")));
                }
                Token::Count(format!("{{{count}}}"))
            }
            ':' => match (chars.next(), chars.next(), tokens.pop()) {
                (Some(':'), Some('='), Some(Token::Name(name))) => Token::Rule(name),
                _ => return Err(GbnfError::Unexpected("\":\"".into())),
            },
            c if is_name(c) => {
                let mut name = String::from(c);
                while let Some(c) = chars.next_if(|c| is_name(*c)) {
                    name.push(c);
                }
                Token::Name(name)
            }
            c => return Err(GbnfError::Unexpected(format!("{c:?}"))),
        };
        tokens.push(token);
    }
    Ok(tokens)
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn text(chars: &mut Peekable<Chars<'_>>) -> Result<String, GbnfError> {
    let mut text = String::new();
    loop {
        match chars.next().ok_or(GbnfError::Unfinished("a text"))? {
            '"' => return Ok(text),
            '\\' => text.push(escaped(chars)?),
            c => text.push(c),
        }
    }
}

/// A class as a regular expression in which every character is a number.
fn class(chars: &mut Peekable<Chars<'_>>) -> Result<String, GbnfError> {
    let mut class = String::from("[");
    if chars.next_if_eq(&'^').is_some() {
        class.push('^');
    }
    let mut is_first = true;
    loop {
        let c = match chars.next().ok_or(GbnfError::Unfinished("a class"))? {
            ']' if !is_first => break,
            '-' if !is_first && chars.peek().is_some_and(|next| *next != ']') => {
                class.push('-');
                continue;
            }
            '\\' => escaped(chars)?,
            c => c,
        };
        is_first = false;
        let _ = write!(class, "\\x{{{:x}}}", u32::from(c));
    }
    class.push(']');
    Ok(class)
}

fn escaped(chars: &mut Peekable<Chars<'_>>) -> Result<char, GbnfError> {
    let c = chars.next().ok_or(GbnfError::Unfinished("an escape"))?;
    let n_digits = match c {
        'n' => return Ok('\n'),
        't' => return Ok('\t'),
        'r' => return Ok('\r'),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        c => return Ok(c),
    };
    let digits: String = chars.by_ref().take(n_digits).collect();
    let code = u32::from_str_radix(&digits, 16).ok();
    code.and_then(char::from_u32)
        .ok_or_else(|| GbnfError::Unexpected(format!("\\{c}{digits}")))
}

#[cfg(test)]
mod tests {
    use llmsrv_engine::{
        EngineOptions, Event, GenRequest, GrammarSpec, SamplingParams,
        fake::{self, Answer, FakeOptions},
        spawn,
    };

    use super::*;

    /// What a model says that wants to say `wish`.
    fn say(gbnf: &str, wish: &str) -> String {
        let options = FakeOptions {
            answer: Answer::Text(wish.into()),
            ..FakeOptions::default()
        };
        let engine = spawn(fake::loaded(options), EngineOptions::default());
        let request = GenRequest {
            tokens: vec![0],
            params: SamplingParams {
                temperature: 0.0,
                ..SamplingParams::default()
            },
            num_ctx: 512,
            max_tokens: Some(64),
            stop: Vec::new(),
            num_keep: 0,
            shift: false,
            grammar: Some(GrammarSpec::Lark(to_lark(gbnf).unwrap())),
            grammar_after: None,
            grammar_unless: None,
            logprobs: None,
            images: Vec::new(),
        };
        let mut generation = engine.submit(request).unwrap();
        let mut text = String::new();
        while let Some(Event::Text { text: more, .. }) = generation.blocking_next() {
            text.push_str(&more);
        }
        text
    }

    const ARITHMETIC: &str = r#"
        # Sums in brackets.
        root  ::= (expr "=" ws term "\n")+
        expr  ::= term ([-+*/] term)*
        term  ::= ident | num | "(" ws expr ")" ws
        ident ::= [a-z] [a-z0-9_]* ws
        num   ::= [0-9]{1,3}
            ws
        ws    ::= [ \t\n]*
    "#;

    #[test]
    fn grammars_say_the_same_as_lark() {
        for (gbnf, wish) in [
            (ARITHMETIC, "a+(b2*3)=12\n"),
            (r#"root ::= "\"\\\x41" [^\]a-c] ."#, "\"\\A]"),
            (r#"root ::= yes-or | "no"  yes-or ::= "yes" | "ja""#, "ja"),
            (r"root ::= [\u00e9] [-] ", "\u{e9}-"),
        ] {
            let said = say(gbnf, wish);
            if wish.ends_with(']') {
                // The class does not hold what the model wants here.
                assert!(
                    said.starts_with("\"\\A") && !said.ends_with(']'),
                    "{said:?}"
                );
            } else {
                assert_eq!(said, wish, "{gbnf}");
            }
        }
    }

    #[test]
    fn what_is_no_grammar_is_refused() {
        let cases = [
            ("", GbnfError::NoRoot),
            ("a ::= \"x\"", GbnfError::NoRoot),
            ("root ::= a", GbnfError::NoRule("a".into())),
            ("root ::= \"x", GbnfError::Unfinished("a text")),
            ("root ::= [a", GbnfError::Unfinished("a class")),
            ("root ::= \"\\xzz\"", GbnfError::Unexpected("\\xzz".into())),
            ("root := \"a\"", GbnfError::Unexpected("\":\"".into())),
            ("root ::= \"a\"{x}", GbnfError::Unexpected("{x".into())),
            ("root ::= %", GbnfError::Unexpected("'%'".into())),
        ];
        for (gbnf, error) in cases {
            assert_eq!(to_lark(gbnf), Err(error), "{gbnf}");
        }
    }
}

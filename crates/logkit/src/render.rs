//! Values as the attribute macros show them: bounded, and whatever their types can do.

use std::fmt::{self, Debug, Display, Write as _};

/// Text that stops growing at a number of characters, and knows how many it left out.
#[derive(Debug)]
pub struct Bounded {
    out: String,
    limit: usize,
    n_chars: usize,
    n_cut: usize,
}

/// What is cut is counted up to that many times the limit.
const COUNTED: usize = 16;

impl Bounded {
    /// No limit with 0.
    pub(crate) fn new(limit: usize) -> Bounded {
        Bounded {
            out: String::with_capacity(64),
            limit: if limit == 0 { usize::MAX } else { limit },
            n_chars: 0,
            n_cut: 0,
        }
    }

    pub(crate) fn push_str(&mut self, text: &str) {
        let room = self.limit - self.n_chars;
        if text.len() <= room {
            // As many bytes are at least as many characters.
            self.out.push_str(text);
            self.n_chars += if text.is_ascii() {
                text.len()
            } else {
                text.chars().count()
            };
            return;
        }
        let cut = text
            .char_indices()
            .nth(room)
            .map_or(text.len(), |(cut, _)| cut);
        self.out.push_str(&text[..cut]);
        self.n_chars += text[..cut].chars().count();
        self.n_cut += text[cut..].chars().count();
    }

    pub(crate) fn finish(mut self) -> String {
        if self.n_cut > 0 {
            let most = self.limit.saturating_mul(COUNTED - 1);
            let (more, n_cut) = if self.n_cut > most {
                (">", most)
            } else {
                ("", self.n_cut)
            };
            // Writing to a string does not fail.
            let _ = write!(self.out, "... [truncated {more}{n_cut} chars]");
        }
        self.out
    }
}

impl fmt::Write for Bounded {
    /// Fails when so much was cut that it is not counted any more: whoever formats can stop.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        if self.n_cut > self.limit.saturating_mul(COUNTED - 1) {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

/// A value to be rendered, as well as its type allows: with `Debug`, or else by its type's name.
pub struct Shown<'a, T: ?Sized>(pub &'a T);

/// For types with `Debug`.
pub trait ShowDebug {
    /// Writes the value.
    fn show(&self, out: &mut Bounded);
}

impl<T: Debug + ?Sized> ShowDebug for Shown<'_, T> {
    #[inline]
    fn show(&self, out: &mut Bounded) {
        // An error means that there is no more room.
        let _ = write!(out, "{:?}", self.0);
    }
}

/// For all other types.
pub trait ShowName {
    /// Writes the name of the value's type.
    fn show(&self, out: &mut Bounded);
}

impl<T: ?Sized> ShowName for &Shown<'_, T> {
    fn show(&self, out: &mut Bounded) {
        let _ = write!(out, "<{}>", short_type(std::any::type_name::<T>()));
    }
}

/// An error to be rendered: with `Display`, or `Debug`, or else by its type's name.
pub struct Told<'a, T: ?Sized>(pub &'a T);

/// For types with `Display`.
pub trait TellDisplay {
    /// Writes the message.
    fn tell(&self, out: &mut Bounded);
}

impl<T: Display + ?Sized> TellDisplay for &&Told<'_, T> {
    fn tell(&self, out: &mut Bounded) {
        let _ = write!(out, "{}", self.0);
    }
}

/// For types with `Debug` only.
pub trait TellDebug {
    /// Writes the value.
    fn tell(&self, out: &mut Bounded);
}

impl<T: Debug + ?Sized> TellDebug for &Told<'_, T> {
    fn tell(&self, out: &mut Bounded) {
        let _ = write!(out, "{:?}", self.0);
    }
}

/// For all other types.
pub trait TellName {
    /// Writes the name of the value's type.
    fn tell(&self, out: &mut Bounded);
}

impl<T: ?Sized> TellName for Told<'_, T> {
    fn tell(&self, out: &mut Bounded) {
        let _ = write!(out, "<{}>", short_type(std::any::type_name::<T>()));
    }
}

/// A result to be looked at: an `Err`, or anything else.
pub struct Outcome<'a, T: ?Sized>(pub &'a T);

/// For `Result`s.
pub trait MayFail {
    /// Type of the error.
    type Error: ?Sized;
    /// The error of an `Err`.
    fn failure(&self) -> Option<&Self::Error>;
}

impl<T, E> MayFail for Outcome<'_, Result<T, E>> {
    type Error = E;

    #[inline]
    fn failure(&self) -> Option<&E> {
        self.0.as_ref().err()
    }
}

/// For all other types.
pub trait CannotFail {
    /// Always `None`.
    fn failure(&self) -> Option<&std::convert::Infallible>;
}

impl<T: ?Sized> CannotFail for &Outcome<'_, T> {
    #[inline]
    fn failure(&self) -> Option<&std::convert::Infallible> {
        None
    }
}

/// `a::b::Type<c::D>` as `Type<D>`.
pub(crate) fn short_type(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut word_start = 0;
    for c in name.chars() {
        if c == ':' {
            out.truncate(word_start);
        } else {
            out.push(c);
            if !(c.is_alphanumeric() || c == '_') {
                word_start = out.len();
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_counted_to_a_point() {
        let mut out = Bounded::new(4);
        assert!(write!(out, "żółć{}", "x".repeat(60)).is_ok());
        assert_eq!(out.finish(), "żółć... [truncated 60 chars]");
        let mut out = Bounded::new(4);
        assert!(write!(out, "{:?}", vec![1; 1000]).is_err());
        assert_eq!(out.finish(), "[1, ... [truncated >60 chars]");
    }
}

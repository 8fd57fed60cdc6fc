//! Writes values that hold no others.

use std::{borrow::Cow, fmt::Write};

use logkit::repr;
use pyo3::{
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PySlice, PyString},
};

use super::walk::Walk;

/// `bytes` longer than that are told by their digest, where that is wanted.
pub(super) const MAX_BINARY: usize = 8 << 10;

/// The first characters of a string and a note of how many were cut.
pub(crate) fn cut(text: &Bound<'_, PyString>, limit: usize) -> String {
    let (mut text, n_cut) = start_of(text, limit);
    if n_cut > 0 {
        let _ = write!(text, "... [truncated {n_cut} chars]");
    }
    text
}

/// The first characters of a string, and how many others it has: those are not even copied.
pub(super) fn start_of(text: &Bound<'_, PyString>, limit: usize) -> (String, usize) {
    let length = text.code_point_len().unwrap_or_default();
    if length <= limit {
        return (text.to_string_lossy().into_owned(), 0);
    }
    let py = text.py();
    // As `str` does it: a type of the user's own may give anything.
    let start = py.get_type::<PyString>().call_method1(
        intern!(py, "__getitem__"),
        (text, PySlice::new(py, 0, limit as isize, 1)),
    );
    match start.as_ref().map(|start| start.cast::<PyString>()) {
        Ok(Ok(start)) => (start.to_string_lossy().into_owned(), length - limit),
        _ => (String::new(), length),
    }
}

impl Walk<'_> {
    pub(super) fn string(&mut self, text: &Bound<'_, PyString>) {
        let horizon = self.out.horizon();
        if text.code_point_len().is_ok_and(|length| length > horizon) {
            return self.long(text.as_any());
        }
        let Ok(bytes) = text.encode_utf8() else {
            return self.foreign(text.as_any()); // half of a pair
        };
        let text_utf8 = str::from_utf8(bytes.as_bytes()).unwrap_or_default();
        let redacted = match &self.renderer.redactor {
            Some(redactor) => redactor.redact_string(text_utf8),
            None => Cow::Borrowed(text_utf8),
        };
        match redacted {
            Cow::Borrowed(text) if text.is_ascii() => self.literal(text),
            // Python knows best which characters can be printed.
            Cow::Borrowed(_) => self.foreign(text.as_any()),
            Cow::Owned(text) => self.out.push(&repr::repr_str(&text)),
        }
    }

    /// A string of ASCII characters.
    #[inline]
    pub(super) fn literal(&mut self, text: &str) {
        let is_simple = text
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\'));
        if is_simple {
            self.out.push("'");
            self.out.push(text);
            self.out.push("'");
        } else {
            self.out.push(&repr::repr_str(text));
        }
    }

    /// The start of a string or of bytes of which the most is cut.
    fn long(&mut self, value: &Bound<'_, PyAny>) {
        let limit = self.out.limit();
        let length = value.len().unwrap_or_default();
        match value.get_item(PySlice::new(value.py(), 0, limit as isize, 1)) {
            Ok(start) => {
                self.foreign(&start);
                self.out.leave_out(length - limit);
            }
            Err(error) => self.failed(value.py(), &error),
        }
    }

    pub(super) fn bytes(&mut self, bytes: &Bound<'_, PyBytes>) {
        let length = bytes.as_bytes().len();
        if self.renderer.binary_meta && length > MAX_BINARY {
            self.digest(bytes.as_any(), "bytes", length);
        } else if length > self.out.horizon() {
            self.long(bytes.as_any());
        } else {
            self.foreign(bytes.as_any());
        }
    }

    pub(super) fn digest(&mut self, bytes: &Bound<'_, PyAny>, kind: &str, length: usize) {
        static SHA256: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let digest = SHA256
            .import(bytes.py(), "hashlib", "sha256")
            .and_then(|sha256| sha256.call1((bytes,))?.call_method0("hexdigest"))
            .and_then(|digest| digest.extract::<String>());
        match digest {
            Ok(digest) => {
                let digest = digest.get(..16).unwrap_or_default();
                let _ = write!(self.out, "<{kind} len={length} sha256={digest}>");
            }
            Err(error) => self.failed(bytes.py(), &error),
        }
    }

    /// As Python writes it: the shortest digits that give the same number.
    pub(super) fn float(&mut self, number: f64) {
        if !number.is_finite() {
            let text = if number.is_nan() {
                "nan"
            } else if number > 0.0 {
                "inf"
            } else {
                "-inf"
            };
            return self.out.push(text);
        }
        let size = number.abs();
        if size != 0.0 && !(1e-4..1e16).contains(&size) {
            // `1e16` and `1.5e-7` here are `1e+16` and `1.5e-07` there.
            let text = format!("{number:e}");
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            let _ = write!(self.out, "{digits}e{sign}{exponent:0>2}");
        } else if number.fract() == 0.0 {
            let _ = write!(self.out, "{number:.1}");
        } else {
            let _ = write!(self.out, "{number}");
        }
    }
}

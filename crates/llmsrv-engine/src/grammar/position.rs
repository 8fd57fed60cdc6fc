//! Where in JSON an output is, byte by byte: what is open, which names there are, and whether a byte
//! leads out of the bounds of what a schema leaves free.

use std::sync::Arc;

/// Where in JSON the output is.
#[derive(Clone, Default)]
pub(super) struct Position {
    /// What is open, the outermost first.
    pub(super) levels: Vec<Level>,
    pub(super) place: Place,
    /// Digits that integers may have.
    pub(super) integer_digits: usize,
    /// Whether all that was opened is closed.
    pub(super) is_closed: bool,
}

/// An object or a list that is open.
#[derive(Clone, Default)]
pub(super) struct Level {
    is_object: bool,
    /// Whether a text would be the name of a property.
    at_name: bool,
    /// Members before the one that the output is at.
    pub(super) n_before: usize,
    pub(super) names: Vec<Arc<[u8]>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Place {
    /// Between texts and numbers.
    #[default]
    Between,
    /// In the name of a property.
    Name { seen: Vec<u8>, escaped: bool },
    /// In another text.
    Text { escaped: bool },
    /// In a part of a number, which has so many digits of the most that it may have.
    Number { n_digits: usize, most: usize },
}

/// A byte that leads out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// The name is there already.
    Name,
    /// There are as many digits, members or levels as there may be.
    Count,
}

impl Position {
    /// A position at the start of an output.
    pub(super) fn new(integer_digits: usize) -> Position {
        Position {
            integer_digits,
            ..Position::default()
        }
    }

    /// Moves on by a byte, out of bounds or not.
    pub(super) fn push(&mut self, byte: u8) -> Result<(), Excess> {
        match &mut self.place {
            Place::Text { escaped } | Place::Name { escaped, .. } if *escaped => {
                *escaped = false;
                if let Place::Name { seen, .. } = &mut self.place {
                    seen.push(byte);
                }
                Ok(())
            }
            Place::Text { escaped } => {
                match byte {
                    b'\\' => *escaped = true,
                    b'"' => {
                        self.place = Place::Between;
                        self.is_closed = self.levels.is_empty();
                    }
                    _ => {}
                }
                Ok(())
            }
            Place::Name { seen, .. } if byte == b'"' => {
                let name: Arc<[u8]> = std::mem::take(seen).into();
                self.place = Place::Between;
                let Some(level) = self.levels.last_mut() else {
                    return Ok(());
                };
                level.at_name = false;
                if level.names.contains(&name) {
                    return Err(Excess::Name);
                }
                level.names.push(name);
                Ok(())
            }
            Place::Name { seen, escaped } => {
                *escaped = byte == b'\\';
                seen.push(byte);
                Ok(())
            }
            Place::Number { n_digits, most } => match byte {
                b'0'..=b'9' => {
                    *n_digits += 1;
                    if *n_digits > *most {
                        Err(Excess::Count)
                    } else {
                        Ok(())
                    }
                }
                b'.' | b'e' | b'E' => {
                    self.place = Place::Number {
                        n_digits: 0,
                        most: if byte == b'.' {
                            MAX_FRACTION_DIGITS
                        } else {
                            MAX_EXPONENT_DIGITS
                        },
                    };
                    Ok(())
                }
                b'+' | b'-' => Ok(()),
                _ => {
                    self.place = Place::Between;
                    self.push(byte)
                }
            },
            Place::Between => self.structure(byte),
        }
    }

    /// Whether the next byte is one of a text, or of a name.
    pub(super) fn is_inside_text(&self) -> bool {
        matches!(self.place, Place::Text { .. } | Place::Name { .. })
    }

    /// Whether nothing is open and something was. A number may go on.
    pub(super) fn is_whole(&self) -> bool {
        let is_number = matches!(self.place, Place::Number { n_digits, .. } if n_digits > 0);
        self.levels.is_empty() && (self.is_closed || is_number)
    }

    /// Whether a name comes next, or is being written, that may be one of those that are there.
    pub(super) fn may_repeat_name(&self) -> bool {
        let Some(level) = self.levels.last() else {
            return false;
        };
        match &self.place {
            Place::Between => level.at_name && !level.names.is_empty(),
            Place::Name { seen, .. } => level.is_taken(seen),
            Place::Text { .. } | Place::Number { .. } => false,
        }
    }

    fn structure(&mut self, byte: u8) -> Result<(), Excess> {
        match byte {
            b'{' | b'[' => {
                let is_object = byte == b'{';
                self.levels.push(Level {
                    is_object,
                    at_name: is_object,
                    ..Level::default()
                });
                if self.levels.len() > MAX_DEPTH {
                    return Err(Excess::Count);
                }
            }
            b'}' | b']' => {
                self.levels.pop();
                self.is_closed = self.levels.is_empty();
            }
            b',' => {
                if let Some(level) = self.levels.last_mut() {
                    level.n_before += 1;
                    level.at_name = level.is_object;
                    if level.n_before >= level.most_members() {
                        return Err(Excess::Count);
                    }
                }
            }
            b'"' => {
                let at_name = self.levels.last().is_some_and(|level| level.at_name);
                self.place = if at_name {
                    Place::Name {
                        seen: Vec::new(),
                        escaped: false,
                    }
                } else {
                    Place::Text { escaped: false }
                };
            }
            b'-' | b'0'..=b'9' => {
                self.place = Place::Number {
                    n_digits: usize::from(byte != b'-'),
                    most: self.integer_digits,
                };
            }
            _ => {}
        }
        Ok(())
    }
}

impl Level {
    pub(super) fn most_members(&self) -> usize {
        if self.is_object {
            MAX_MEMBERS
        } else {
            MAX_ITEMS
        }
    }

    /// Whether a name that is there begins with `seen`.
    pub(super) fn is_taken(&self, seen: &[u8]) -> bool {
        self.names.iter().any(|name| name.starts_with(seen))
    }

    /// Whether a name that goes on with `bytes` is one that is there already.
    pub(super) fn has_name(&self, seen: &[u8], mut escaped: bool, bytes: &[u8]) -> bool {
        let end = bytes.iter().position(|byte| {
            let ends = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            ends
        });
        end.is_some_and(|end| {
            let is_same = |name: &Arc<[u8]>| {
                name.strip_prefix(seen)
                    .is_some_and(|rest| rest == &bytes[..end])
            };
            self.names.iter().any(is_same)
        })
    }
}

/// Members of an object, where the schema does not ask for more.
const MAX_MEMBERS: usize = 128;
/// Items of a list, where the schema does not ask for more.
const MAX_ITEMS: usize = 1024;
/// Objects and lists within each other, where the schema does not ask for more.
pub(super) const MAX_DEPTH: usize = 32;
const MAX_FRACTION_DIGITS: usize = 16;
/// Every reader of JSON takes these.
const MAX_EXPONENT_DIGITS: usize = 2;

//! When entries are safe, and what happens when there is no room for them.

use crate::{Level, queue::Full};

/// What happens when the queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// Callers wait for room while the sinks keep up, up to a second; for sinks that are slow or stand still
    /// ERROR and above wait up to 100 ms, and the rest is dropped.
    #[default]
    ByLevel,
    /// Every entry waits up to 100 ms, or up to a second for sinks that keep up.
    Block,
    /// New entries are dropped.
    DropNew,
    /// The oldest entries make room.
    DropOld,
}

impl OnFull {
    /// Reads `block`, `drop_new` or `drop_old`.
    pub fn parse(name: &str) -> Option<OnFull> {
        Some(match name {
            "block" => OnFull::Block,
            "drop_new" => OnFull::DropNew,
            "drop_old" => OnFull::DropOld,
            _ => return None,
        })
    }

    pub(crate) fn for_level(self, level: &Level) -> Full {
        match self {
            OnFull::ByLevel if level.is_error() => Full::Wait,
            OnFull::ByLevel => Full::KeepUp,
            OnFull::DropNew => Full::Refuse,
            OnFull::Block => Full::Wait,
            OnFull::DropOld => Full::DropOldest,
        }
    }
}

/// When an entry is safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Within 50 ms; ERROR at once.
    #[default]
    Buffered,
    /// In a journal before the call returns: a killed process loses nothing.
    Crash,
    /// Committed before the call returns.
    Sync,
    /// Committed and on the disk before the call returns.
    Full,
}

impl Durability {
    /// Reads `buffered`, `crash`, `sync` or `full`.
    pub fn parse(name: &str) -> Option<Durability> {
        Some(match name {
            "buffered" => Durability::Buffered,
            "crash" => Durability::Crash,
            "sync" => Durability::Sync,
            "full" => Durability::Full,
            _ => return None,
        })
    }
}

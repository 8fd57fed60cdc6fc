//! The machine and its language-model server, live in a terminal.
//!
//! Three layers: [`Sampler`] collects ([`Sample`]: the figures of one interval), `state` keeps
//! histories and what the user has chosen, `view` draws. [`watch`] joins them on a terminal;
//! [`plain`] writes one sample as text. HTTP is unknown here: what the server says is handed in
//! through a [`Feed`]. Of the terminal only [`watch`] knows.

#![forbid(unsafe_code)]

mod accelerators;
mod feed;
mod nvidia;
pub mod parse;
mod plain;
mod rates;
mod raw;
mod reader;
mod root;
mod sample;
mod sampler;
mod screen;
mod state;
mod units;
mod view;
mod watch;

pub use feed::{Feed, Report};
pub use plain::plain;
pub use raw::Raw;
pub use root::{Lack, Root};
pub use sample::*;
pub use sampler::Sampler;
pub use state::{Choice, State};
pub use view::{Look, draw};
pub use watch::{Options, watch};

use std::{io, path::PathBuf, time::Duration};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder cannot be used.
    #[error("cannot use {} as the root of proc and sys", root.display())]
    Root {
        /// The folder.
        root: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No figure of any kind was found.
    #[error("there is nothing to see: neither proc nor sys has any figure")]
    Nothing,
    /// The terminal failed.
    #[error("cannot draw on the terminal")]
    Terminal(#[source] io::Error),
    /// A thread panicked, and has said why.
    #[error("a part of the program panicked")]
    Panicked,
}

/// How long an interval may be.
pub const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_hours(1);

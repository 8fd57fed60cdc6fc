//! Logging in to other machines with the system's `ssh`: a key where there is none, its copying to
//! hosts that refuse it, tunnels, and what is wrong when it fails.
//!
//! `ssh` makes every connection, so the user's settings, agent and known hosts count. One
//! connection (a control master, see [`control`]) serves all steps and the session: who types a
//! password types it once. Nothing here prints or reads the environment.

#![forbid(unsafe_code)]

pub mod control;
pub mod destination;
pub mod doctor;
pub mod forward;
pub mod install;
pub mod key;
pub mod known_errors;
pub mod login;
pub mod plan;
pub mod session;
pub mod ssh;

mod children;
mod error;

pub use children::Interrupt;
pub use destination::{Destination, Jump};
pub use error::Error;
pub use forward::Forward;
pub use session::Session;
pub use ssh::{NewHosts, Settings, Ssh};

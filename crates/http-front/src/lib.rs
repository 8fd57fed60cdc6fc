//! What keeps one client of a server from disturbing the others: places for connections, and threads
//! for work that takes long. Both servers have it from here.
#![forbid(unsafe_code)]

mod accept;
mod background;
mod connection_limits;

pub use accept::{AcceptFailures, is_out_of_files};
pub use background::{Failed, run_in_background};
pub use connection_limits::{ConnectionLimits, ConnectionPermit, Running, network};

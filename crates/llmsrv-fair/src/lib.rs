//! What keeps one client of a server from disturbing the others: places for connections, and threads
//! for work that takes long. Both servers have it from here.
#![forbid(unsafe_code)]

mod apart;
mod crowd;

pub use apart::{Failed, apart};
pub use crowd::{Crowd, Place, Running, network};

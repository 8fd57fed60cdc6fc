//! A model in a process of its own: what a driver does to it, it does not do to the server.
//!
//! The server has a [`Launcher`], whose models look like any other [`Model`](llmsrv_engine::Model): each sends its
//! plans through a socket to a worker, a process of the same program that calls [`serve`]. Read in this order:
//! `message` (what is said), `frame` (how it is written), `process` (a worker's life and end), `remote` (the server's
//! side), `serve` (the worker's).
//!
//! Whatever a worker does, the server gets an error that says so, by a deadline, and the worker is gone.

mod frame;
mod message;
mod process;
mod remote;
mod serve;

pub use remote::{Launcher, Limits};
pub use serve::serve;

//! Whole-binary tests: the real `llmsrv` over real sockets.
//!
//! One file for each area; [`util`] has the sandbox and the server every test starts from.

mod api;
mod cli;
mod clients;
mod determinism;
mod generated;
mod hostile;
mod interrupted;
mod tidy;
mod util;

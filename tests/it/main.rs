//! Whole-binary tests: the real `llmsrv` over real sockets.
//!
//! One file for each area; [`util`] has the sandbox and the server every test starts from.

#![expect(
    unreachable_pub,
    reason = "one test crate: everything in it is private"
)]
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking and says why"
)]

mod analysis;
mod api;
#[path = "../../crates/llmsrv-server/tests/it/app.rs"]
mod app;
mod attack;
mod background;
mod bench;
mod book;
mod chat;
mod circles;
mod cli;
mod clients;
mod container;
mod create;
mod dependencies;
mod determinism;
mod devices;
mod documents;
mod examples;
mod faults;
mod firewall;
mod first_steps;
mod generated;
mod gpu;
mod host;
mod hostile;
mod install_model;
mod interrupted;
mod launch;
mod load;
mod logkit;
mod machine;
mod many_clients;
mod monitor;
mod npu;
mod openapi;
mod packaging;
mod quality;
mod real;
mod registry;
mod search;
mod secure;
mod service;
#[path = "../../crates/llmsrv-ssh/tests/it/signals.rs"]
mod signals;
mod ssh;
#[path = "../../crates/llmsrv-ssh/tests/it/sshd.rs"]
mod sshd;
mod stress;
#[path = "../../crates/logkit-server/tests/it/tab.rs"]
mod tab;
mod tidy;
#[path = "../../crates/llmsrv-monitor/tests/it/tmux.rs"]
mod tmux;
mod upstream;
mod util;
mod web;

//! 64 streaming clients for a minute on the embedded model, through the real program.
//!
//! `cargo bench --bench load` prints what they saw; `-- --seconds 10` makes it shorter. A lost or
//! malformed stream stops it.
#![expect(
    unreachable_pub,
    dead_code,
    reason = "the modules are those of the tests, which use all of them"
)]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints, and stops when it cannot measure"
)]
#![allow(missing_docs, reason = "a program")]

#[path = "../tests/it/many_clients.rs"]
mod many_clients;
#[path = "../crates/llmsrv-ssh/tests/it/signals.rs"]
mod signals;
#[path = "../tests/it/util.rs"]
mod util;

use std::{sync::Arc, time::Duration};

use many_clients::{leave_together, metric, stream_for};

const CLIENTS: usize = 64;

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--seconds");
    let seconds = arguments.nth(1).and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(60));
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(run(time));
}

async fn run(time: Duration) {
    let sandbox = util::Sandbox::new();
    let server = Arc::new(sandbox.serve_with(&["--parallel", "16"], &[]));
    let mut sights = stream_for(&server, CLIENTS, time).await;
    let tokens = metric(&server, "llmsrv_generated_tokens_total").await;
    let seconds = sights.resident.last().unwrap().0.as_secs_f64();
    println!(
        "{CLIENTS} clients for {seconds:.1} s: {} streams whole, {} left on purpose, {} refused, none lost",
        sights.whole, sights.left, sights.refused
    );
    println!("tokens: {:.0} a second", tokens / seconds);
    for (what, times) in [
        ("first line", &mut sights.first_line),
        ("between lines", &mut sights.between),
    ] {
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "{what}: median {:?}, 99 % {:?}, most {:?}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    let settled = Duration::from_secs(10).min(time / 2);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "resident memory: at most {:.1} MiB in the first {settled:?}, {:.1} MiB after",
        mib(sights.most_resident(Duration::ZERO, settled)),
        mib(sights.most_resident(settled, time * 2)),
    );
    let mut frees = Vec::new();
    for _ in 0..10 {
        frees.push(leave_together(&server, 16).await);
    }
    frees.sort_unstable();
    println!(
        "16 clients leave at once, nothing is computed for them after: median {:?}, most {:?} of 10",
        frees[5], frees[9]
    );
}

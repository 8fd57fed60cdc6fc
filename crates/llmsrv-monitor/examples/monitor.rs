//! The monitor without the program around it: `cargo run -p llmsrv-monitor --example monitor [ROOT]`.
//! With `panic` as second word a part of it panics after a second, for a test.

use std::{io, path::PathBuf, thread, time::Duration};

use llmsrv_monitor::{Feed, Options, watch};

fn main() -> Result<(), llmsrv_monitor::Error> {
    let mut args = std::env::args().skip(1);
    let root = args.next().unwrap_or_else(|| "/".into());
    if args.next().is_some_and(|word| word == "panic") {
        thread::spawn(|| {
            thread::sleep(Duration::from_secs(1));
            panic!("asked to panic");
        });
    }
    let options = Options {
        root: PathBuf::from(root),
        interval: Duration::from_secs(1),
        ascii: false,
        color: true,
        clock: |_| "12:34:56".into(),
    };
    watch(&options, Feed::default(), io::stdout)
}

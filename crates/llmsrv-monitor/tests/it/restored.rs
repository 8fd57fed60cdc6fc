//! The terminal is as before, whatever ended the monitor.

use std::path::PathBuf;

use crate::{
    fixture::{BEFORE, write},
    tmux::Tmux,
};

/// The example beside the tests, which cargo builds with them.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(|deps| deps.parent()).unwrap();
    folder.join("examples/monitor")
}

#[test]
fn after_a_panic() {
    let tmux = Tmux::open(80, 24);
    write(tmux.path(), BEFORE);
    let example = example();
    tmux.line(&format!(
        "stty -g >{0}/before; {1} {0} panic; echo ended with $?; stty -g >{0}/after",
        tmux.path().display(),
        example.display(),
    ));
    tmux.wait_until("alternate screen", |_| tmux.flags().0);
    tmux.wait_for("memory");
    // A thread that is none of the monitor's has panicked: the message can be read.
    tmux.wait_until("screen of before", |_| !tmux.flags().0);
    let screen = tmux.wait_for("asked to panic");
    assert!(screen.contains("ready> stty"), "{screen}");
}

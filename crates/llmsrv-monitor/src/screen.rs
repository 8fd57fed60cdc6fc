//! The terminal as it is borrowed: taken for the monitor, and given back as it was, whatever ends.

use std::{
    io::{self, Write},
    panic,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
};

use ratatui::crossterm::{
    cursor::{Hide, Show},
    execute,
    terminal::{
        Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
        enable_raw_mode,
    },
};

/// There is one terminal, so one flag: it is ours.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the terminal: no echo, the alternate screen, no cursor. What was taken and lost meanwhile,
/// as by a shell after a stop, is taken anew.
pub(crate) fn take(out: &mut impl Write) -> io::Result<()> {
    if TAKEN.swap(true, Ordering::SeqCst) {
        disable_raw_mode()?;
    }
    enable_raw_mode()?;
    execute!(out, EnterAlternateScreen, Hide, Clear(ClearType::All))
}

/// Gives the terminal back; nothing happens if it is not ours.
pub(crate) fn give_back(out: &mut impl Write) -> io::Result<()> {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return Ok(());
    }
    let shown = execute!(out, Show, LeaveAlternateScreen);
    disable_raw_mode().and(shown)
}

/// Gives the terminal back when it is dropped.
pub(crate) struct Borrowed<W: Write, F: Fn() -> W>(pub(crate) F);

impl<W: Write, F: Fn() -> W> Drop for Borrowed<W, F> {
    fn drop(&mut self) {
        // Whoever took the terminal away has restored it.
        let _ = give_back(&mut (self.0)());
    }
}

/// Lets panics of all threads give the terminal back before they are reported, and be told of then:
/// `tell` gets a receiver that is disconnected once the report is written.
pub(crate) fn give_back_on_panic<W: Write>(
    open: impl Fn() -> W + Send + Sync + 'static,
    tell: impl Fn(Receiver<()>) + Send + Sync + 'static,
) {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let _ = give_back(&mut open());
        let (_reported, report_end) = mpsc::channel();
        tell(report_end);
        report(info);
    }));
}

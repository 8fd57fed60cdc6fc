//! The monitor on a terminal: waits for keys, samples and signals, and draws when one came.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant, SystemTime},
};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        event::{self, KeyEvent},
        execute, style,
        terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate},
    },
};
use rustix::process;
use signal_hook::{
    consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP},
    iterator::Signals,
    low_level::emulate_default_handler,
};

use crate::{
    Error,
    feed::Feed,
    sample::Sample,
    sampler::Sampler,
    screen,
    state::{Choice, State},
    view::{self, Look},
};

/// What a monitor is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder that stands for `/`.
    pub root: PathBuf,
    /// Time between samples.
    pub interval: Duration,
    /// Draw with the characters of ASCII alone.
    pub ascii: bool,
    /// Draw with colours.
    pub color: bool,
    /// Writes the time of day for people.
    pub clock: fn(SystemTime) -> String,
}

/// Shows the monitor until its user has seen enough. `open` gives what is drawn on, which is the
/// terminal of this process, as often as it is asked.
///
/// The terminal is restored when this returns, when a thread panics, and when a signal ends or stops
/// the process, which then dies or stops by that signal as it would without. The thread that reads
/// keys stays, so this is for once in the life of a process.
pub fn watch<W: Write + 'static>(
    options: &Options,
    feed: Feed,
    open: impl Fn() -> W + Clone + Send + Sync + 'static,
) -> Result<(), Error> {
    let sampler = Sampler::new(&options.root, feed, options.interval)?;
    let (events, received) = mpsc::channel();
    let (intervals, asked) = mpsc::channel();
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT]);
    let signals = signals.map_err(Error::Terminal)?;

    let panicked = events.clone();
    screen::give_back_on_panic(open.clone(), move |report_end| {
        let _ = panicked.send(Event::Panicked(report_end));
    });
    style::force_color_output(options.color);
    let borrowed = screen::Borrowed(open.clone());
    screen::take(&mut open()).map_err(Error::Terminal)?;

    let first = options.interval;
    let samples = events.clone();
    let sampling = thread::spawn(move || take_samples(sampler, first, &asked, &samples));
    let keys = events.clone();
    thread::spawn(move || read_keys(&keys));
    let ending = open.clone();
    thread::spawn(move || {
        pass_on_signals(signals, &events, || {
            let _ = screen::give_back(&mut ending());
        });
    });

    let mut monitor = Monitor {
        terminal: Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(
            1 << 16,
            open(),
        )))
        .map_err(Error::Terminal)?,
        state: State::new(options.interval, options.ascii),
        options: options.clone(),
        intervals,
        open,
    };
    let end = monitor.run(&received);
    // Samples end when nobody can ask for another interval; with them what they started.
    drop(monitor);
    let _ = sampling.join();
    drop(borrowed);
    if let Some(signal) = end? {
        let _ = emulate_default_handler(signal);
    }
    Ok(())
}

enum Event {
    Key(KeyEvent),
    Resize,
    Sample(Box<Sample>),
    Signal(i32),
    Failed(io::Error),
    /// Disconnected once the panic has been reported.
    Panicked(Receiver<()>),
}

struct Monitor<W: Write, F: Fn() -> W> {
    terminal: Terminal<CrosstermBackend<BufWriter<W>>>,
    state: State,
    options: Options,
    intervals: Sender<Duration>,
    open: F,
}

impl<W: Write, F: Fn() -> W> Monitor<W, F> {
    /// Returns the signal by which to die, if one asked for the end.
    fn run(&mut self, events: &Receiver<Event>) -> Result<Option<i32>, Error> {
        self.draw().map_err(Error::Terminal)?;
        loop {
            let mut must_draw = false;
            // Everything that has come by now is one picture.
            let mut event = Some(events.recv().map_err(|_| Error::Panicked)?);
            while let Some(it) = event {
                match it {
                    Event::Key(key) => match self.state.key(key) {
                        Choice::Nothing => {}
                        Choice::Draw => must_draw = true,
                        Choice::Interval(interval) => {
                            must_draw = true;
                            let _ = self.intervals.send(interval);
                        }
                        Choice::Quit => return Ok(None),
                        Choice::Redraw => self.resume().map_err(Error::Terminal)?,
                        Choice::Suspend => self.suspend().map_err(Error::Terminal)?,
                    },
                    Event::Resize => must_draw = true,
                    Event::Sample(sample) => {
                        self.state.add(*sample);
                        must_draw |= !self.state.is_frozen();
                    }
                    Event::Signal(SIGTSTP) => self.suspend().map_err(Error::Terminal)?,
                    Event::Signal(SIGCONT) => self.resume().map_err(Error::Terminal)?,
                    Event::Signal(signal) => return Ok(Some(signal)),
                    Event::Failed(error) => return Err(Error::Terminal(error)),
                    Event::Panicked(report_end) => {
                        // The end of the process would cut the report off.
                        let _ = report_end.recv();
                        return Err(Error::Panicked);
                    }
                }
                event = events.try_recv().ok();
            }
            if must_draw {
                self.draw().map_err(Error::Terminal)?;
            }
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let look = Look {
            color: self.options.color,
        };
        let time = (self.options.clock)(SystemTime::now());
        // A terminal that knows this shows the picture at once, others ignore it.
        execute_quietly(self.terminal.backend_mut(), true)?;
        self.terminal.draw(|frame| {
            view::draw(
                frame.area(),
                frame.buffer_mut(),
                &mut self.state,
                look,
                &time,
            );
        })?;
        execute_quietly(self.terminal.backend_mut(), false)
    }

    /// Stops the process as if it had no handler, and goes on when it is continued. Where nobody
    /// would continue it, it goes on at once.
    fn suspend(&mut self) -> io::Result<()> {
        if !has_shell() {
            return Ok(());
        }
        screen::give_back(&mut (self.open)())?;
        emulate_default_handler(SIGTSTP)?;
        self.resume()
    }

    fn resume(&mut self) -> io::Result<()> {
        screen::take(&mut (self.open)())?;
        // `clear` would ask the terminal where its cursor is, and the thread that reads keys would
        // get the answer. The screen is empty; so is the picture it is compared with.
        self.terminal.swap_buffers();
        self.draw()
    }
}

fn execute_quietly(out: &mut impl Write, begin: bool) -> io::Result<()> {
    if begin {
        ratatui::crossterm::queue!(out, BeginSynchronizedUpdate)
    } else {
        execute!(out, EndSynchronizedUpdate)
    }
}

/// Tells whether a shell with job control has started this process: the parent is of the same
/// session and leads another group. Without one a stopped process stays stopped.
fn has_shell() -> bool {
    let Some(parent) = process::getppid() else {
        return false;
    };
    let same_session = process::getsid(None).ok() == process::getsid(Some(parent)).ok();
    let same_group = process::getpgid(None).ok() == process::getpgid(Some(parent)).ok();
    same_session && !same_group
}

fn take_samples(
    mut sampler: Sampler,
    mut interval: Duration,
    asked: &Receiver<Duration>,
    events: &Sender<Event>,
) {
    // The first picture does not wait for a long interval.
    let mut next = Instant::now() + interval.min(FIRST);
    loop {
        let wait = next.saturating_duration_since(Instant::now());
        match asked.recv_timeout(wait) {
            Ok(other) => {
                interval = other;
                next = next.min(Instant::now() + interval);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if events
            .send(Event::Sample(Box::new(sampler.sample())))
            .is_err()
        {
            return;
        }
        // After a pause samples go on from now, they are not made up for.
        next = (next + interval).max(Instant::now() + interval / 2);
    }
}

fn read_keys(events: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(event::Event::Key(key)) => Event::Key(key),
            Ok(event::Event::Resize(..)) => Event::Resize,
            Ok(_) => continue,
            Err(error) => Event::Failed(error),
        };
        let failed = matches!(event, Event::Failed(_));
        if events.send(event).is_err() || failed {
            return;
        }
    }
}

/// Passes signals on. One that ends the process does so by itself when the monitor does not get to
/// it, as when nobody reads what it draws.
fn pass_on_signals(mut signals: Signals, events: &Sender<Event>, give_back: impl Fn()) {
    for signal in signals.forever() {
        if events.send(Event::Signal(signal)).is_err() {
            return;
        }
        if signal != SIGTSTP && signal != SIGCONT {
            thread::sleep(GRACE);
            give_back();
            let _ = emulate_default_handler(signal);
        }
    }
}

/// The length of the first sample, at most.
const FIRST: Duration = Duration::from_millis(300);
/// How long a signal waits for the monitor.
const GRACE: Duration = Duration::from_secs(1);

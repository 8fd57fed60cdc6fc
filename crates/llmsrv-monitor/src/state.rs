//! What the monitor remembers: histories of the figures, and what its user has chosen.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::{INTERVALS, sample::Sample};

/// What a key asks of the one who runs the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Nothing.
    Nothing,
    /// Drawing again.
    Draw,
    /// Drawing again from nothing, as the screen was spoiled.
    Redraw,
    /// Drawing again, and samples at another interval.
    Interval(Duration),
    /// An end.
    Quit,
    /// To go into the background.
    Suspend,
}

/// The state of a monitor.
#[derive(Debug)]
pub struct State {
    live: Seen,
    /// What was seen when the user froze it; the rest goes on.
    frozen: Option<Box<Seen>>,
    interval: Duration,
    /// Which of the panels are shown.
    pub(crate) panels: [bool; 4],
    pub(crate) cores: bool,
    pub(crate) help: bool,
    pub(crate) ascii: bool,
    /// Lines that a short screen has been moved down.
    pub(crate) scroll: usize,
}

/// The last sample and the histories up to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) sample: Option<Sample>,
    histories: BTreeMap<Series, History>,
}

/// Figures with a history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Series {
    Cpu,
    Heat,
    Memory,
    Swap,
    Read,
    Write,
    Receive,
    Send,
    /// How busy an accelerator is, by its id.
    Busy(String),
    /// Its frequency, where it does not say how busy it is.
    Frequency(String),
    /// Its memory.
    Vram(String),
    ServerCpu,
    ServerMemory,
    Tokens,
}

/// The last values of a figure, the newest last; none where there was none.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    values: VecDeque<Option<f32>>,
    /// Intervals since the last value.
    silent: usize,
}

impl State {
    /// Begins with all panels and no figures.
    pub fn new(interval: Duration, ascii: bool) -> State {
        State {
            live: Seen::default(),
            frozen: None,
            interval,
            panels: [true; 4],
            cores: true,
            help: false,
            ascii,
            scroll: 0,
        }
    }

    /// Takes a sample. One of a much longer time than the interval, as after the process was stopped,
    /// leaves a gap in the histories.
    pub fn add(&mut self, sample: Sample) {
        let expected = self.interval.as_secs_f64();
        if sample.interval_seconds > expected * 3.0 + 1.0 {
            self.live.push(&BTreeMap::new());
        }
        self.live.push(&values(&sample));
        self.live.sample = Some(sample);
    }

    /// Does what a key stands for.
    pub fn key(&mut self, key: KeyEvent) -> Choice {
        if key.kind == KeyEventKind::Release {
            return Choice::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'C') => Choice::Quit,
                KeyCode::Char('z' | 'Z') => Choice::Suspend,
                KeyCode::Char('l' | 'L') => Choice::Redraw,
                _ => Choice::Nothing,
            };
        }
        match key.code {
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return Choice::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = !self.help,
            KeyCode::Char('c') => self.cores = !self.cores,
            KeyCode::Char('b') => self.ascii = !self.ascii,
            KeyCode::Char(' ') => {
                self.frozen = match self.frozen {
                    Some(_) => None,
                    None => Some(Box::new(self.live.clone())),
                };
            }
            KeyCode::Char(digit @ '1'..='4') => {
                let panel = &mut self.panels[digit as usize - '1' as usize];
                *panel = !*panel;
            }
            KeyCode::Char('+' | '=') => {
                return self.step(|steps, now| steps.iter().copied().find(|step| *step > now));
            }
            KeyCode::Char('-' | '_') => {
                return self
                    .step(|steps, now| steps.iter().rev().copied().find(|step| *step < now));
            }
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            // The view takes back what is too far.
            KeyCode::Down | KeyCode::Char('j') => self.scroll = (self.scroll + 1).min(MAX_SCROLL),
            KeyCode::Home => self.scroll = 0,
            _ => return Choice::Nothing,
        }
        Choice::Draw
    }

    fn step(&mut self, next: fn(&[Duration], Duration) -> Option<Duration>) -> Choice {
        let Some(interval) = next(&STEPS, self.interval).filter(|it| INTERVALS.contains(it)) else {
            return Choice::Nothing;
        };
        self.interval = interval;
        Choice::Interval(interval)
    }

    /// Returns the interval between samples.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Tells whether the picture stands still.
    pub fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    pub(crate) fn seen(&self) -> &Seen {
        self.frozen.as_deref().unwrap_or(&self.live)
    }
}

impl Seen {
    fn push(&mut self, values: &BTreeMap<Series, f64>) {
        for series in values.keys() {
            self.histories.entry(series.clone()).or_default();
        }
        for (series, history) in &mut self.histories {
            history.push(values.get(series).copied());
        }
        // A device that is gone for long is forgotten.
        self.histories.retain(|_, history| history.silent < KEPT);
    }

    pub(crate) fn history(&self, series: &Series) -> Option<&History> {
        self.histories.get(series)
    }
}

impl History {
    fn push(&mut self, value: Option<f64>) {
        if self.values.len() == KEPT {
            self.values.pop_front();
        }
        self.silent = if value.is_some() { 0 } else { self.silent + 1 };
        self.values.push_back(value.map(|value| value as f32));
    }

    /// Returns the newest `n` values, the newest last.
    pub(crate) fn last(&self, n: usize) -> impl DoubleEndedIterator<Item = Option<f64>> {
        let skipped = self.values.len().saturating_sub(n);
        let values = self.values.iter().skip(skipped);
        values.map(|value| value.map(f64::from))
    }
}

/// Returns the figures of a sample that have a history.
fn values(sample: &Sample) -> BTreeMap<Series, f64> {
    let mut values = BTreeMap::new();
    let mut put = |series, value: Option<f64>| {
        values.extend(value.map(|value| (series, value)));
    };
    put(Series::Cpu, sample.cpu.as_ref().and_then(|cpu| cpu.percent));
    put(
        Series::Heat,
        sample.temperature.as_ref().map(|heat| heat.max_celsius),
    );
    put(Series::Memory, sample.memory.and_then(|it| it.percent));
    put(Series::Swap, sample.swap.and_then(|it| it.percent));
    if let Some(disk) = &sample.disk {
        put(Series::Read, Some(disk.read_bytes_per_second as f64));
        put(Series::Write, Some(disk.write_bytes_per_second as f64));
    }
    if let Some(net) = &sample.network {
        put(Series::Receive, Some(net.receive_bytes_per_second as f64));
        put(Series::Send, Some(net.transmit_bytes_per_second as f64));
    }
    for device in &sample.accelerators {
        let id = || device.id.clone();
        put(Series::Busy(id()), device.percent);
        put(
            Series::Frequency(id()),
            device.frequency_mhz.map(|it| it as f64),
        );
        put(
            Series::Vram(id()),
            device.memory_used_bytes.map(|it| it as f64),
        );
    }
    if let Some(server) = &sample.server {
        put(Series::ServerCpu, server.cpu_percent);
        put(
            Series::ServerMemory,
            server.resident_bytes.map(|it| it as f64),
        );
        put(Series::Tokens, server.generated_tokens_per_second);
    }
    values
}

/// Values of a history: two for each column of a wide terminal.
const KEPT: usize = 600;
/// More lines than a screen ever has.
const MAX_SCROLL: usize = 10_000;
const STEPS: [Duration; 9] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(1),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Cpu;

    fn sample(percent: f64, interval_seconds: f64) -> Sample {
        Sample {
            interval_seconds,
            cpu: Some(Cpu {
                percent: Some(percent),
                cores: Vec::new(),
            }),
            ..Sample::default()
        }
    }

    fn press(state: &mut State, code: KeyCode) -> Choice {
        state.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let mut state = State::new(Duration::from_secs(1), false);
        let slower = press(&mut state, KeyCode::Char('+'));
        assert_eq!(slower, Choice::Interval(Duration::from_secs(2)));
        press(&mut state, KeyCode::Char('-'));
        let faster = press(&mut state, KeyCode::Char('-'));
        assert_eq!(faster, Choice::Interval(Duration::from_millis(500)));
        for _ in 0..5 {
            press(&mut state, KeyCode::Char('-'));
        }
        assert_eq!(state.interval(), Duration::from_millis(100));
        press(&mut state, KeyCode::Char('3'));
        press(&mut state, KeyCode::Char('c'));
        assert_eq!(state.panels, [true, true, false, true]);
        assert!(!state.cores);
        press(&mut state, KeyCode::F(1));
        assert!(state.help);
        assert_eq!(press(&mut state, KeyCode::Esc), Choice::Draw);
        assert!(!state.help);
        for quit in [KeyCode::Esc, KeyCode::Char('q'), KeyCode::Char('Q')] {
            assert_eq!(press(&mut state, quit), Choice::Quit);
        }
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        assert_eq!(state.key(control('c')), Choice::Quit);
        assert_eq!(state.key(control('z')), Choice::Suspend);
        assert_eq!(press(&mut state, KeyCode::Char('x')), Choice::Nothing);
    }

    #[test]
    fn what_is_frozen_stands_still_and_misses_nothing() {
        let mut state = State::new(Duration::from_secs(1), false);
        state.add(sample(1.0, 1.0));
        press(&mut state, KeyCode::Char(' '));
        state.add(sample(2.0, 1.0));
        let seen = |state: &State| -> Vec<_> {
            let history = state.seen().history(&Series::Cpu).unwrap();
            history.last(10).collect()
        };
        assert_eq!(seen(&state), [Some(1.0)]);
        press(&mut state, KeyCode::Char(' '));
        assert_eq!(seen(&state), [Some(1.0), Some(2.0)]);
    }

    #[test]
    fn a_pause_is_a_gap_and_what_is_gone_is_forgotten() {
        let mut state = State::new(Duration::from_secs(1), false);
        state.add(sample(1.0, 1.0));
        state.add(sample(2.0, 60.0));
        let history = state.seen().history(&Series::Cpu).unwrap();
        assert_eq!(
            history.last(9).collect::<Vec<_>>(),
            [Some(1.0), None, Some(2.0)]
        );
        for _ in 0..KEPT {
            state.add(Sample::default());
        }
        assert!(state.seen().history(&Series::Cpu).is_none());
    }
}

//! The lines above and below the panels, and the help over them.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    widgets::{Block, Clear, Widget as _},
};
use unicode_width::UnicodeWidthStr as _;

use super::{paint::Brush, rows::Level};
use crate::{state::State, units};

/// Writes whose figures these are, and when they were taken.
pub(super) fn header(area: Rect, buf: &mut Buffer, brush: Brush, state: &State, time: &str) {
    let interval = units::interval(state.interval());
    let mut right = format!("{interval}  {time} ");
    if state.is_frozen() {
        right.insert_str(0, "FROZEN  ");
    }
    let right_width = right.width() as u16;
    let at = (area.right().saturating_sub(right_width), area.y);
    brush.text(buf, at, right_width, &right, Brush::faint());
    if state.is_frozen() {
        let style = Brush::strong().add_modifier(Modifier::REVERSED);
        brush.text(buf, at, 6, "FROZEN", style);
    }
    let mut x = brush.text(
        buf,
        (area.x + 1, area.y),
        14,
        "llmsrv monitor",
        Brush::strong(),
    );
    let Some(sample) = &state.seen().sample else {
        return;
    };
    let host = &sample.host;
    let load = host
        .load_average
        .map(|[one, five, fifteen]| format!("load {one:.2} {five:.2} {fifteen:.2}"));
    let uptime = host
        .uptime_seconds
        .map(|seconds| format!("up {}", units::uptime(seconds)));
    for part in [host.name.clone(), uptime, load].into_iter().flatten() {
        if x + 2 + part.width() as u16 + 2 > at.0 {
            return;
        }
        x = brush.text(buf, (x + 2, area.y), area.width, &part, Brush::faint());
    }
}

/// Names the most useful keys, and the lines that are below the screen.
pub(super) fn footer(area: Rect, buf: &mut Buffer, brush: Brush, n_panels: usize, below: usize) {
    let y = area.bottom() - 1;
    let mut end = area.right();
    if below > 0 {
        let arrow = if brush.ascii { 'v' } else { '↓' };
        let more = format!("{arrow}{below} ");
        end -= more.width() as u16;
        brush.text(buf, (end, y), area.right() - end, &more, Brush::strong());
    }
    let mut x = area.x + 1;
    for (key, meaning) in [
        ("q", "quit"),
        ("?", "help"),
        ("c", "cores"),
        ("space", "freeze"),
        ("+/-", "interval"),
        ("1-4", "panels"),
        ("b", "plain characters"),
    ] {
        let width = (key.len() + 1 + meaning.len()) as u16;
        if x + width >= end {
            return;
        }
        // What is hidden can be found again.
        let style = if key == "1-4" && n_panels < 4 {
            brush.level(Level::Warm)
        } else {
            Brush::strong()
        };
        x = brush.text(buf, (x, y), width, key, style);
        x = brush.text(buf, (x + 1, y), width, meaning, Brush::faint()) + 2;
    }
}

/// Draws the list of all keys over everything.
pub(super) fn help(area: Rect, buf: &mut Buffer, brush: Brush) {
    let (width, height) = (38, KEYS.len() as u16 + 2);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height.saturating_sub(height)) / 2,
        width,
        height: height.min(area.height),
    };
    Clear.render(place, buf);
    Block::bordered()
        .border_set(brush.border())
        .border_style(brush.level(Level::Plain))
        .title(" keys ")
        .render(place, buf);
    for (y, (key, meaning)) in (place.y + 1..place.bottom() - 1).zip(KEYS) {
        brush.text(buf, (place.x + 2, y), 10, key, Brush::strong());
        brush.text(buf, (place.x + 13, y), width - 15, meaning, Style::new());
    }
}

const KEYS: [(&str, &str); 9] = [
    ("q Esc ^C", "quit"),
    ("? F1", "this help"),
    ("c", "each processor"),
    ("space", "freeze the picture"),
    ("+ -", "slower, faster"),
    ("1 2 3 4", "hide or show a panel"),
    ("b", "plain characters"),
    ("Up Down", "scroll a short screen"),
    ("^Z", "into the background"),
];

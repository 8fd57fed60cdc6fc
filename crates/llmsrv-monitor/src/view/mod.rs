//! Draws a state: panels in a grid where there is room, else one line for each figure.

mod cells;
mod edges;
mod figures;
mod paint;
mod rows;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    widgets::{Block, Widget as _},
};
use unicode_width::UnicodeWidthStr as _;

use self::{
    cells::{Line, cell_lines, cells},
    edges::{footer, header, help},
    figures::{Columns, figure, with_chart},
    paint::Brush,
    rows::{Panel, Row},
};
use crate::state::State;

/// How a terminal wants to be drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// With colours.
    pub color: bool,
}

/// Draws everything into `area`; `time` is the time of day. Takes back what the user scrolled too far.
pub fn draw(area: Rect, buf: &mut Buffer, state: &mut State, look: Look, time: &str) {
    let brush = Brush {
        color: look.color,
        ascii: state.ascii,
    };
    if area.width < LEAST.0 || area.height < LEAST.1 {
        too_small(area, buf, brush);
        return;
    }
    header(area, buf, brush, state, time);
    let body = Rect {
        y: area.y + 1,
        height: area.height - 2,
        ..area
    };
    let panels = rows::panels(state);
    let (mut scroll, mut below) = (0, 0);
    if panels.is_empty() {
        let text = match &state.seen().sample {
            Some(_) => "All panels are hidden: 1 to 4 show them.",
            None => "Measuring...",
        };
        let x = body.x + body.width.saturating_sub(text.width() as u16) / 2;
        let middle = body.y + body.height / 2;
        brush.text(buf, (x, middle), body.width, text, Brush::faint());
    } else if let Some(places) = grid(body, panels.len()) {
        for (panel, place) in panels.iter().zip(places) {
            framed(buf, place, brush, panel);
        }
    } else {
        (scroll, below) = list(buf, body, brush, &panels, state.scroll);
    }
    let n_panels = panels.len();
    drop(panels);
    state.scroll = scroll;
    footer(area, buf, brush, n_panels, below);
    if state.help {
        help(area, buf, brush);
    }
}

/// Returns the places of `n` panels, if they can be large enough to hold charts.
fn grid(area: Rect, n: usize) -> Option<Vec<Rect>> {
    let columns = if area.width < 70 || n < 3 { 1 } else { 2 };
    let n_lines = n.div_ceil(columns);
    let height = area.height / n_lines as u16;
    if height < 8 || area.width < 50 {
        return None;
    }
    let place = |idx: usize| {
        let (line, column) = (idx / columns, idx % columns);
        let (width, y) = (area.width / 2, area.y + line as u16 * height);
        // The last ones take what is left.
        let is_alone = columns == 1 || (idx == n - 1 && column == 0);
        let is_bottom = line == n_lines - 1;
        let x = area.x + if column == 1 { width } else { 0 };
        Rect {
            x,
            y,
            width: if is_alone || column == 1 {
                area.right() - x
            } else {
                width
            },
            height: if is_bottom { area.bottom() - y } else { height },
        }
    };
    Some((0..n).map(place).collect())
}

/// Draws a panel with its frame: rows with charts below them, then the cells.
fn framed(buf: &mut Buffer, area: Rect, brush: Brush, panel: &Panel<'_>) {
    Block::bordered()
        .border_set(brush.border())
        .border_style(Brush::faint())
        .render(area, buf);
    let title = (area.x + 2, area.y);
    let number = format!(" {} ", panel.number);
    let x = brush.text(buf, title, 3, &number, brush.level(rows::Level::Plain));
    let name = format!("{} ", panel.title);
    brush.text(buf, (x, area.y), area.width - 6, &name, Brush::strong());

    let inner = Rect {
        x: area.x + 2,
        y: area.y + 1,
        width: area.width - 4,
        height: area.height - 2,
    };
    let n_charts = panel
        .rows
        .iter()
        .filter(|row| row.history.is_some())
        .count() as u16;
    let free = inner.height.saturating_sub(panel.rows.len() as u16);
    // Where there is no line for each chart they are drawn beside the bars.
    let has_cells = panel.groups.iter().any(|group| !group.is_empty());
    let is_roomy = free >= n_charts + u16::from(has_cells);
    let for_charts = if is_roomy { n_charts } else { 0 };
    let lines = cell_lines(&panel.groups, inner.width, (free - for_charts) as usize);
    let n_lines = (lines.len() as u16).min(free);
    let columns = Columns::of(&panel.rows, inner.width);
    let chart_lines = free - n_lines;
    let mut y = inner.y;
    let mut chart_idx = 0;
    for row in &panel.rows {
        if y >= inner.bottom() {
            return;
        }
        let line = Rect {
            y,
            height: 1,
            ..inner
        };
        y += 1;
        if row.history.is_none() || for_charts == 0 {
            with_chart(buf, line, brush, row, &columns);
            continue;
        }
        // What cannot be shared out evenly goes to the first ones.
        let height = chart_lines / n_charts + u16::from(chart_idx < chart_lines % n_charts);
        chart_idx += 1;
        let chart = brush.axis(buf, Rect { y, height, ..inner }, row);
        let top = row.top(brush.n_values(chart.width));
        figure(buf, line, brush, row, &columns, top);
        brush.chart(buf, chart, row);
        y += height;
    }
    for line in lines.iter().take(n_lines as usize) {
        cells(buf, (inner.x, y), inner.width, brush, line);
        y += 1;
    }
}

/// Draws rows with small charts, then the cells, as far as they fit from `scroll` on; returns the
/// line that is the first, and how many are below the last.
fn list(
    buf: &mut Buffer,
    area: Rect,
    brush: Brush,
    panels: &[Panel<'_>],
    scroll: usize,
) -> (usize, usize) {
    let rows: Vec<&Row<'_>> = panels.iter().flat_map(|panel| &panel.rows).collect();
    let columns = Columns::of(rows.iter().copied(), 0);
    let area = Rect {
        x: area.x + 1,
        width: area.width - 2,
        ..area
    };
    let groups = panels
        .iter()
        .flat_map(|panel| cell_lines(&panel.groups, area.width, usize::MAX));
    let groups: Vec<Line<'_>> = groups.collect();
    let hidden = (rows.len() + groups.len()).saturating_sub(area.height as usize);
    let scroll = scroll.min(hidden);
    for (idx, y) in (scroll..).zip(area.y..area.bottom()) {
        if let Some(row) = rows.get(idx) {
            let line = Rect {
                y,
                height: 1,
                ..area
            };
            with_chart(buf, line, brush, row, &columns);
        } else if let Some(line) = groups.get(idx - rows.len()) {
            cells(buf, (area.x, y), area.width, brush, line);
        }
    }
    (scroll, hidden - scroll)
}

fn too_small(area: Rect, buf: &mut Buffer, brush: Brush) {
    let needed = format!("needs {}x{},", LEAST.0, LEAST.1);
    let given = format!("has {}x{}; q quits", area.width, area.height);
    for (y, text) in (area.y..area.bottom()).zip(["llmsrv monitor", &needed, &given]) {
        brush.text(buf, (area.x, y), area.width, text, Brush::strong());
    }
}

/// The smallest terminal on which everything can be reached.
const LEAST: (u16, u16) = (40, 12);

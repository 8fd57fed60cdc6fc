//! Colours and characters: text, bars and charts, with and without either.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    symbols::border,
};
use unicode_width::UnicodeWidthStr as _;

use super::rows::{Level, Row};

/// How everything is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brush {
    pub(crate) color: bool,
    pub(crate) ascii: bool,
}

impl Brush {
    /// Returns the style of a value. Without colours what is hot is bold.
    pub(crate) fn level(self, level: Level) -> Style {
        let (color, modifier) = match level {
            Level::Good => (Color::Green, Modifier::empty()),
            Level::Warm => (Color::Yellow, Modifier::empty()),
            Level::Hot => (Color::Red, Modifier::BOLD),
            Level::Plain => (Color::Cyan, Modifier::empty()),
            Level::Wrong => (Color::Magenta, Modifier::BOLD),
        };
        let style = Style::new().add_modifier(modifier);
        if self.color { style.fg(color) } else { style }
    }

    /// Returns the style of what matters less.
    pub(crate) fn faint() -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Returns the style of names and numbers of panels.
    pub(crate) fn strong() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the lines around panels.
    pub(crate) fn border(self) -> border::Set<'static> {
        if self.ascii {
            border::Set {
                top_left: "+",
                top_right: "+",
                bottom_left: "+",
                bottom_right: "+",
                vertical_left: "|",
                vertical_right: "|",
                horizontal_top: "-",
                horizontal_bottom: "-",
            }
        } else {
            border::ROUNDED
        }
    }

    /// Writes text from `x` on, at most `width` columns of it; returns the column after it.
    pub(crate) fn text(
        self,
        buf: &mut Buffer,
        (x, y): (u16, u16),
        width: u16,
        text: &str,
        style: Style,
    ) -> u16 {
        if !buf.area.contains((x, y).into()) || width == 0 {
            return x;
        }
        let mut shown: String = text.to_owned();
        if self.ascii {
            shown = shown
                .chars()
                .map(|c| if c.is_ascii() { c } else { '?' })
                .collect();
        }
        let width = width.min(buf.area.right() - x);
        if shown.width() > width as usize {
            let (end, _) = buf.set_stringn(x, y, &shown, width as usize - 1, style);
            let sign = if self.ascii { "~" } else { "…" };
            return buf.set_stringn(end, y, sign, 1, style).0;
        }
        buf.set_stringn(x, y, &shown, width as usize, style).0
    }

    /// Writes text so that it ends before the column `x + width`.
    pub(crate) fn text_right(
        self,
        buf: &mut Buffer,
        (x, y): (u16, u16),
        width: u16,
        text: &str,
        style: Style,
    ) {
        let free = width.saturating_sub(text.width() as u16);
        self.text(buf, (x + free, y), width - free, text, style);
    }

    /// Draws a bar that is full to `share` (0 to 1) of its width.
    pub(crate) fn bar(
        self,
        buf: &mut Buffer,
        (x, y): (u16, u16),
        width: u16,
        share: f64,
        style: Style,
    ) {
        let (full, empty) = if self.ascii {
            ("#", ".")
        } else {
            ("█", "░")
        };
        let share = if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.0
        };
        let mut n_full = (share * f64::from(width)).round() as u16;
        // What is not nothing is seen.
        if share > 0.005 {
            n_full = n_full.max(1);
        }
        for column in 0..width {
            let (symbol, style) = if column < n_full {
                (full, style)
            } else {
                (empty, Self::faint())
            };
            Self::symbol(buf, (x + column, y), symbol, style);
        }
    }

    /// Returns how many values a chart of this width shows.
    pub(crate) fn n_values(self, width: u16) -> usize {
        width as usize * if self.ascii { 1 } else { 2 }
    }

    /// Returns the place of a chart's curve, and draws the values at its top and bottom to the left
    /// of it if there is room for them.
    pub(crate) fn axis(self, buf: &mut Buffer, area: Rect, row: &Row<'_>) -> Rect {
        if area.width < WITH_AXIS.0 || area.height < WITH_AXIS.1 {
            return area;
        }
        let curve = Rect {
            x: area.x + AXIS,
            width: area.width - AXIS,
            ..area
        };
        let top = row.top(self.n_values(curve.width));
        for (y, value) in [(area.y, top), (area.bottom() - 1, 0.0)] {
            let label = (row.unit)(value);
            self.text_right(buf, (area.x, y), AXIS - 1, &label, Self::faint());
        }
        curve
    }

    /// Draws the newest values, the last at the right edge: two in each column as dots of braille
    /// characters, four of them high; in ASCII one, of three heights.
    pub(crate) fn chart(self, buf: &mut Buffer, area: Rect, row: &Row<'_>) {
        let Some(history) = row.history else { return };
        let per_column = if self.ascii { 1 } else { 2 };
        let steps = if self.ascii { 3 } else { 4 };
        let n_values = self.n_values(area.width);
        let top = row.top(n_values);
        let most = steps * area.height as usize;
        let height = |value: f64| ((value / top * most as f64).round() as usize).clamp(1, most);
        let mut values = history.last(n_values).rev();
        for column in (0..area.width).rev() {
            let mut pair = [None; 2];
            for value in pair.iter_mut().take(per_column) {
                *value = values.next().flatten();
            }
            let Some(highest) = pair.into_iter().flatten().reduce(f64::max) else {
                continue;
            };
            // A flat line of nothing says that time went by.
            let style = if highest / top * (most as f64) < 0.5 {
                Self::faint()
            } else {
                self.level(row.scale.level(highest))
            };
            let [right, left] = pair.map(|value| value.map_or(0, height));
            for row in 0..area.height {
                let below = steps * row as usize;
                let filled = |height: usize| height.saturating_sub(below).min(steps);
                let symbol = if self.ascii {
                    [' ', '.', ':', '#'][filled(right)]
                } else {
                    braille(filled(left), filled(right))
                };
                if symbol != ' ' && symbol != '\u{2800}' {
                    let at = (area.x + column, area.bottom() - 1 - row);
                    Self::symbol(buf, at, symbol.encode_utf8(&mut [0; 4]), style);
                }
            }
        }
    }

    /// Draws one character for each value, as high as it is.
    pub(crate) fn strip(self, buf: &mut Buffer, (x, y): (u16, u16), values: &[(f64, Level)]) {
        const UNICODE: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
        const ASCII: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        let symbols: &[&str] = if self.ascii { &ASCII } else { &UNICODE };
        for (column, (percent, level)) in (0..).zip(values) {
            let idx = (percent / 100.0 * symbols.len() as f64) as usize;
            let symbol = symbols[idx.min(symbols.len() - 1)];
            Self::symbol(buf, (x + column, y), symbol, self.level(*level));
        }
    }

    fn symbol(buf: &mut Buffer, at: (u16, u16), symbol: &str, style: Style) {
        if let Some(cell) = buf.cell_mut(at) {
            cell.set_symbol(symbol).set_style(style);
        }
    }
}

/// Columns of the values beside a chart, and the least size of a chart that has them.
const AXIS: u16 = 10;
const WITH_AXIS: (u16, u16) = (60, 3);

/// Returns the braille character whose two columns are filled from below.
fn braille(left: usize, right: usize) -> char {
    const LEFT: [u32; 5] = [0, 0x40, 0x44, 0x46, 0x47];
    const RIGHT: [u32; 5] = [0, 0x80, 0xa0, 0xb0, 0xb8];
    let dots = LEFT[left.min(4)] | RIGHT[right.min(4)];
    char::from_u32(0x2800 + dots).unwrap_or(' ')
}

//! Small figures side by side.

use ratatui::buffer::Buffer;
use unicode_width::UnicodeWidthStr as _;

use super::{
    paint::Brush,
    rows::{Cell, Level},
};

/// A line of cells side by side, or of many small ones as one strip.
pub(super) enum Line<'a> {
    /// Cells, the columns of each, and how many more there are.
    Cells(Vec<&'a Cell>, u16, usize),
    Strip(&'a [Cell]),
}

/// Lays cells out in lines, each group from a new one on. What needs more lines than there are is
/// drawn smaller if it can be, else counted.
pub(super) fn cell_lines(groups: &[Vec<Cell>], width: u16, most: usize) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut n_left_out = 0;
    let n_groups = groups.iter().filter(|group| !group.is_empty()).count();
    for (idx, group) in groups.iter().filter(|group| !group.is_empty()).enumerate() {
        let widest = group.iter().map(Cell::width).max().unwrap_or(1);
        let columns = (width as usize + GAP)
            .checked_div(widest + GAP)
            .unwrap_or(1);
        let columns = columns.clamp(1, group.len());
        // The groups after this one get a line each, too.
        let rest = most
            .saturating_sub(lines.len() + (n_groups - idx - 1))
            .max(1);
        let wanted = group.len().div_ceil(columns);
        if wanted > rest.min(MANY) && group.iter().all(|cell| cell.share.is_some()) {
            lines.extend(group.chunks(width.max(1) as usize).map(Line::Strip));
            continue;
        }
        let shown = group.len().min(rest.saturating_mul(columns));
        n_left_out += group.len() - shown;
        let column = width / columns as u16;
        lines.extend(
            group[..shown]
                .chunks(columns)
                .map(|line| Line::Cells(line.iter().collect(), column, 0)),
        );
    }
    if lines.len() > most {
        n_left_out += lines
            .drain(most..)
            .map(|line| line.n_cells())
            .sum::<usize>();
    }
    if n_left_out > 0
        && let Some(Line::Cells(cells, column, more)) = lines.last_mut()
    {
        // The sign needs the place of a cell.
        if cells.len() > 1 && (cells.len() + 1) * *column as usize > width as usize {
            cells.pop();
            n_left_out += 1;
        }
        *more = n_left_out;
    }
    lines
}

impl Line<'_> {
    fn n_cells(&self) -> usize {
        match self {
            Line::Cells(cells, ..) => cells.len(),
            Line::Strip(cells) => cells.len(),
        }
    }
}

impl Cell {
    fn width(&self) -> usize {
        let bar = if self.share.is_some() {
            SMALL_BAR as usize + 1
        } else {
            0
        };
        let value = if self.share.is_some() {
            5
        } else {
            self.value.width()
        };
        self.label.width() + bar + usize::from(value > 0) + value
    }
}

/// Draws a line of cells.
pub(super) fn cells(
    buf: &mut Buffer,
    (x, y): (u16, u16),
    width: u16,
    brush: Brush,
    line: &Line<'_>,
) {
    match line {
        Line::Strip(cells) => {
            let values: Vec<_> = cells
                .iter()
                .map(|cell| (cell.share.unwrap_or(0.0), cell.level))
                .collect();
            brush.strip(buf, (x, y), &values);
        }
        Line::Cells(cells, column, more) => {
            if *more > 0 {
                let more = format!("+{more}");
                brush.text_right(buf, (x, y), width, &more, Brush::faint());
            }
            let label_width = cells.iter().map(|cell| cell.label.width()).max();
            for (idx, cell) in (0..).zip(cells) {
                let begin = x + idx * column;
                let mut end = begin + column;
                if *column < width {
                    end -= GAP as u16;
                } else if *more > 0 {
                    end -= MORE;
                }
                let style = brush.level(cell.level);
                let Some(share) = cell.share else {
                    let label_style = match cell.level {
                        Level::Wrong => style,
                        _ => Brush::faint(),
                    };
                    let after = brush.text(buf, (begin, y), end - begin, &cell.label, label_style);
                    let room = end.saturating_sub(after + 1);
                    brush.text(buf, (after + 1, y), room, &cell.value, style);
                    continue;
                };
                let label = label_width.unwrap_or(0) as u16;
                brush.text_right(buf, (begin, y), label, &cell.label, Brush::faint());
                let value = 5;
                let bar = (end - begin).saturating_sub(label + value + 2);
                brush.bar(buf, (begin + label + 1, y), bar, share / 100.0, style);
                let at = (begin + label + bar + 2, y);
                brush.text_right(buf, at, value, &cell.value, style);
            }
        }
    }
}

/// Columns between cells.
const GAP: usize = 2;
/// Columns of the bar in a cell.
const SMALL_BAR: u16 = 4;
/// Columns of the sign that there are more.
const MORE: u16 = 5;
/// Lines of cells from which on they are drawn as a strip.
const MANY: usize = 16;

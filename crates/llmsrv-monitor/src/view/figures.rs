//! A figure in one line: its name, its bar, its value, and beside them a note or its chart.

use ratatui::{buffer::Buffer, layout::Rect};
use unicode_width::UnicodeWidthStr as _;

use super::{paint::Brush, rows::Row};

/// Widths that the rows of a panel share.
pub(super) struct Columns {
    label: u16,
    value: u16,
    note: u16,
}

impl Columns {
    /// Measures the rows; notes have a place if a bar is left beside them in `width`.
    pub(super) fn of<'a, 'b: 'a>(
        rows: impl IntoIterator<Item = &'a Row<'b>>,
        width: u16,
    ) -> Columns {
        let mut columns = Columns {
            label: 4,
            // Nothing moves when a rate gets another digit.
            value: 9,
            note: 0,
        };
        for row in rows {
            columns.label = columns.label.max(row.label.width() as u16);
            columns.value = columns.value.max(row.value.width() as u16);
            columns.note = columns.note.max(row.note.width() as u16);
        }
        if columns.label + columns.value + columns.note + LEAST_BAR + 3 > width {
            columns.note = 0;
        }
        columns
    }
}

/// Draws a figure with its chart beside it, in one line.
pub(super) fn with_chart(
    buf: &mut Buffer,
    line: Rect,
    brush: Brush,
    row: &Row<'_>,
    columns: &Columns,
) {
    let columns = Columns {
        note: 0,
        ..*columns
    };
    let fixed = columns.label + columns.value + 2;
    let rest = line.width.saturating_sub(fixed);
    let bar = rest / 3;
    let chart = Rect {
        x: line.x + fixed + bar + 1,
        width: rest.saturating_sub(bar + 1),
        ..line
    };
    let top = row.top(brush.n_values(chart.width));
    let left = Rect {
        width: fixed + bar,
        ..line
    };
    figure(buf, left, brush, row, &columns, top);
    brush.chart(buf, chart, row);
}

/// Draws label, bar, value and note of a figure in one line.
pub(super) fn figure(
    buf: &mut Buffer,
    line: Rect,
    brush: Brush,
    row: &Row<'_>,
    columns: &Columns,
    top: f64,
) {
    let style = brush.level(row.scale.level(row.now));
    brush.text(
        buf,
        (line.x, line.y),
        columns.label,
        &row.label,
        Brush::strong(),
    );
    let mut end = line.right();
    if columns.note > 0 {
        end = end.saturating_sub(columns.note);
        brush.text_right(buf, (end, line.y), columns.note, &row.note, Brush::faint());
        end = end.saturating_sub(1);
    }
    let begin = line.x + columns.label + 1;
    end = end.saturating_sub(columns.value).max(begin);
    brush.text_right(buf, (end, line.y), columns.value, &row.value, style);
    let width = end.saturating_sub(begin + 1);
    brush.bar(buf, (begin, line.y), width, row.now / top, style);
}

/// Columns of a bar beside a note, at least.
const LEAST_BAR: u16 = 6;

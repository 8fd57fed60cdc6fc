//! `logkit tree`: the entries of a trace under the calls they were made in.

use std::{collections::HashMap, io::Write};

use logkit::query::{Filter, Row};
use serde_json::Value;

use crate::{
    args::TreeArgs,
    failure::Failure,
    logs,
    render::{self, LogLine},
    settings::Database,
};

/// Most entries shown; a trace with more is no tree one could read.
const MOST: usize = 100_000;
/// Deepest level drawn with its own indentation.
const DEEPEST: usize = 200;

/// Does `tree`.
pub(crate) fn run(args: &TreeArgs) -> Result<(), Failure> {
    let database = Database::find(&args.database)?;
    let mut rows = database.reader()?.rows(&Filter {
        trace_id: Some(args.trace.clone()),
        limit: Some(MOST),
        ..Filter::default()
    })?;
    if rows.is_empty() && !args.json {
        render::line("No logs found.")?;
        return Ok(());
    }
    rows.sort_by_key(|row| (row.entry.timestamp, row.id));
    let forest = Forest::new(&rows);
    render::results(|out| {
        for root in &forest.roots {
            if args.json {
                writeln!(out, "{}", forest.json(*root))?;
            } else {
                forest.draw(out, *root)?;
            }
        }
        if !args.json {
            writeln!(
                out,
                "\n({} entries of trace {} from {})",
                rows.len(),
                args.trace,
                database.path.display()
            )?;
        }
        Ok(())
    })
}

/// Entries and who called whom, by index.
struct Forest<'a> {
    rows: &'a [Row],
    roots: Vec<usize>,
    children: Vec<Vec<usize>>,
}

impl Forest<'_> {
    /// Hangs every entry under its parent. Whose parent is not there is a root; so is one of each
    /// circle, which only a broken writer makes.
    fn new(rows: &[Row]) -> Forest<'_> {
        let by_span: HashMap<_, usize> = rows
            .iter()
            .enumerate()
            .rev()
            .filter_map(|(idx, row)| Some((row.entry.span_id?, idx)))
            .collect();
        let parent = |idx: usize| {
            let parent = rows[idx].entry.parent_id?;
            by_span.get(&parent).copied().filter(|found| *found != idx)
        };
        let mut children = vec![Vec::new(); rows.len()];
        let mut roots = Vec::new();
        // 0 not seen, 1 on the way up now, 2 hangs below a root.
        let mut state = vec![0_u8; rows.len()];
        for start in 0..rows.len() {
            let mut way = Vec::new();
            let mut at = Some(start);
            while let Some(idx) = at.filter(|idx| state[*idx] == 0) {
                state[idx] = 1;
                way.push(idx);
                at = parent(idx);
            }
            // The way ended at a root, at something known, or bit its own tail.
            let bites = at.is_some_and(|idx| state[idx] == 1);
            for (above, idx) in way.iter().rev().enumerate() {
                state[*idx] = 2;
                match parent(*idx) {
                    Some(parent) if !(bites && above == 0) => children[parent].push(*idx),
                    _ => roots.push(*idx),
                }
            }
        }
        roots.sort_unstable();
        for list in &mut children {
            list.sort_unstable();
        }
        Forest {
            rows,
            roots,
            children,
        }
    }

    fn draw(&self, out: &mut dyn Write, root: usize) -> Result<(), Failure> {
        // Each open entry with the text before its line and before those of its children.
        let mut open = vec![(root, String::new(), String::new(), 0)];
        while let Some((idx, before, below, depth)) = open.pop() {
            writeln!(out, "{before}{}", LogLine(&self.rows[idx].entry))?;
            let children = &self.children[idx];
            for (place, child) in children.iter().enumerate().rev() {
                let (branch, stem) = if place + 1 == children.len() {
                    ("└─ ", "   ")
                } else {
                    ("├─ ", "│  ")
                };
                let deeper = if depth < DEEPEST {
                    format!("{below}{stem}")
                } else {
                    below.clone()
                };
                open.push((*child, format!("{below}{branch}"), deeper, depth + 1));
            }
        }
        Ok(())
    }

    /// One object with its calls in `children`. Built from the leaves, as a trace may be deeper than
    /// our stack.
    fn json(&self, root: usize) -> Value {
        let mut order = vec![root];
        let mut next = 0;
        while let Some(idx) = order.get(next).copied() {
            order.extend(&self.children[idx]);
            next += 1;
        }
        let mut made: HashMap<usize, Value> = HashMap::new();
        for idx in order.into_iter().rev() {
            let mut value = logs::as_json(&self.rows[idx]);
            let children: Vec<Value> = self.children[idx]
                .iter()
                .filter_map(|child| made.remove(child))
                .collect();
            if !children.is_empty() {
                value["children"] = children.into();
            }
            made.insert(idx, value);
        }
        made.remove(&root).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use logkit::{Entry, SpanId};
    use proptest::prelude::*;

    use super::*;

    fn row(id: u64, parent: u64) -> Row {
        let span = |id| NonZeroU64::new(id).map(SpanId);
        Row {
            id: id as i64,
            entry: Entry {
                function_name: format!("f{id}").into(),
                span_id: span(id),
                parent_id: span(parent),
                ..Entry::default()
            },
        }
    }

    fn drawn(rows: &[Row]) -> Vec<String> {
        let forest = Forest::new(rows);
        let mut out = Vec::new();
        for root in &forest.roots {
            forest.draw(&mut out, *root).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        text.lines()
            .map(|line| {
                let (start, name) = line.split_once('f').unwrap();
                let stem = start.split(|c: char| c.is_ascii_digit()).next().unwrap();
                format!("{stem}f{}", name.split(' ').next().unwrap())
            })
            .collect()
    }

    #[test]
    fn calls_hang_under_their_callers() {
        let rows = [row(1, 0), row(2, 1), row(3, 2), row(4, 1), row(5, 99)];
        assert_eq!(drawn(&rows), ["f1", "├─ f2", "│  └─ f3", "└─ f4", "f5"]);
        let json = Forest::new(&rows).json(0);
        assert_eq!(json["children"][0]["children"][0]["function_name"], "f3");
    }

    proptest! {
        #[test]
        fn every_entry_is_drawn_once_whatever_their_parents(parents in prop::collection::vec(0_u64..8, 1..8)) {
            let rows: Vec<Row> = parents.iter().enumerate().map(|(idx, parent)| row(idx as u64 + 1, *parent)).collect();
            let mut names: Vec<String> = drawn(&rows)
                .iter()
                .map(|line| line.trim_start_matches(|c: char| c != 'f').to_owned())
                .collect();
            names.sort();
            let mut expected: Vec<String> = rows.iter().map(|row| row.entry.function_name.to_string()).collect();
            expected.sort();
            prop_assert_eq!(names, expected);
        }
    }
}

//! Chooses what the next step computes. Pure: it reads sequences and moves block ids.
//!
//! Sequences are served in the order of their arrival, so the running ones come first and the
//! waiting ones follow, first come, first served. Each gets some of its uncomputed tokens until
//! the budget of the step is spent. When blocks run out, the youngest running sequence gives its
//! own back and is computed again later; the oldest can therefore always go on.
//!
//! A sequence that begins as an older one does waits until that is computed, and finds it then: so
//! several answers to one question read it once.
//!
//! A prompt that does not fit into a step leaves a quarter of it to those behind: a short question
//! does not wait until a book is read, and the book is read three quarters as fast at worst.

use std::borrow::BorrowMut;

use crate::{
    BlockId, ImageRows, ImageSpan, Span, StepPlan, blocks::Blocks, image, sequence::Sequence,
};

/// The limits of a step.
#[derive(Clone, Copy, Debug)]
pub struct Scheduler {
    /// Most sequences in a step, at least 1.
    pub max_sequences: usize,
    /// Most tokens in a step, at least 1; an image that cannot be cut may exceed it.
    pub step_tokens: usize,
}

/// A plan and whose it is. Its buffers are used again for each step.
#[derive(Debug, Default)]
pub struct Step {
    /// What the model computes.
    pub plan: StepPlan,
    /// Index of the sequence of each span, ascending.
    pub sequences: Vec<usize>,
    /// Sequences that lost their blocks while this step was planned.
    pub n_preempted: usize,
    spare_tables: Vec<Vec<BlockId>>,
}

impl Scheduler {
    /// Plans a step for `sequences`, oldest first, into `step`. The plan is empty only when there
    /// is no sequence, or not even the oldest fits into the blocks there may be.
    pub fn plan<S: BorrowMut<Sequence>>(
        &self,
        sequences: &mut [S],
        blocks: &mut Blocks,
        step: &mut Step,
    ) {
        step.clear();
        let mut budget = self.step_tokens.max(1);
        for seq_idx in 0..sequences.len().min(self.max_sequences.max(1)) {
            let (older, others) = sequences.split_at_mut(seq_idx);
            let Some((sequence, younger)) = others.split_first_mut() else {
                break;
            };
            let sequence = sequence.borrow_mut();
            let is_ahead = |other: &S| sequence.waits_for(other.borrow(), blocks);
            if older.iter().any(is_ahead) {
                continue;
            }
            while !sequence.acquire(blocks) {
                let running = |other: &&mut S| Sequence::is_running((**other).borrow());
                let Some(youngest) = younger.iter_mut().rev().find(running) else {
                    return;
                };
                youngest.borrow_mut().release(blocks);
                step.n_preempted += 1;
            }
            // A long prompt leaves each younger sequence that runs already its next token, and some
            // of the rest to those that have more to compute.
            let beside = younger
                .iter()
                .take(self.max_sequences.saturating_sub(seq_idx + 1));
            let (mut n_running, mut n_more) = (0, 0);
            for other in beside {
                let other: &Sequence = (*other).borrow();
                if other.waits_for(sequence, blocks) {
                    continue;
                }
                let next = usize::from(other.is_running());
                n_running += next;
                n_more += other.pending().saturating_sub(next);
            }
            let n_free = budget.saturating_sub(n_running);
            let n_free = n_free.saturating_sub(n_more.min(n_free / SHARE)).max(1);
            let n_rows = sequence.uncut(sequence.pending().min(n_free));
            let n_for_draft = if n_rows == sequence.pending() {
                n_free.saturating_sub(n_rows)
            } else {
                0
            };
            sequence.fit_draft(n_for_draft, blocks);
            sequence.plan_state(n_rows, blocks);
            step.add(seq_idx, sequence, n_rows);
            budget = budget.saturating_sub(n_rows + sequence.draft().len());
            if budget == 0 {
                return;
            }
        }
    }
}

impl Step {
    pub(crate) fn clear(&mut self) {
        self.spare_tables
            .extend(self.plan.spans.drain(..).map(|span| span.blocks));
        self.plan.clear();
        self.sequences.clear();
        self.n_preempted = 0;
    }

    /// Adds the next `n_rows` tokens of a sequence, and its draft tokens after them.
    fn add(&mut self, seq_idx: usize, sequence: &Sequence, n_rows: usize) {
        let (start, first_row) = (sequence.computed(), self.plan.tokens.len());
        let end = start + n_rows;
        let draft = sequence.draft();
        let n_rows = n_rows + draft.len();
        self.plan
            .tokens
            .extend_from_slice(&sequence.tokens()[start..end]);
        self.plan.tokens.extend_from_slice(draft);
        let last = (start + n_rows) as u32;
        self.plan.positions.extend(start as u32..last);
        self.plan.ends.extend(start as u32 + 1..=last);
        self.add_images(sequence, start, end, first_row);
        self.add_coordinates(sequence, start, first_row);
        if end == sequence.tokens().len() {
            let next = first_row + n_rows;
            self.plan
                .logit_rows
                .extend((next - 1 - draft.len()) as u32..next as u32);
        }
        let mut table = self.spare_tables.pop().unwrap_or_default();
        table.clear();
        table.extend_from_slice(sequence.blocks());
        self.plan.spans.push(Span {
            rows: first_row..first_row + n_rows,
            start: start as u32,
            blocks: table,
            tail: sequence.tail(),
            state: sequence.span_state(),
        });
        self.sequences.push(seq_idx);
    }

    /// Notes which of the tokens `start..end`, from row `first_row` on, are images.
    fn add_images(&mut self, sequence: &Sequence, start: usize, end: usize, first_row: usize) {
        let seen = |span: &&ImageSpan| span.at < end && span.end() > start;
        for span in sequence.images().iter().filter(seen) {
            let (from, to) = (span.at.max(start), span.end().min(end));
            let rows = first_row + from - start..first_row + to - start;
            if span.image.whole {
                self.plan.ends[rows.clone()].fill(span.end() as u32);
            }
            self.plan.images.push(ImageRows {
                rows,
                first: span.rows.start + from - span.at,
                image: span.image.clone(),
            });
        }
    }

    /// Notes the coordinates of the rows from `first_row` on, the first of which is token `start`, once
    /// those of any row of the step are not its position.
    fn add_coordinates(&mut self, sequence: &Sequence, start: usize, first_row: usize) {
        let plan = &mut self.plan;
        let with_grid = |span: &ImageSpan| span.image.grid.is_some();
        if plan.coordinates.is_empty() && !sequence.images().iter().any(with_grid) {
            return;
        }
        let before = plan.positions[plan.coordinates.len()..first_row].iter();
        plan.coordinates
            .extend(before.map(|position| [*position; 3]));
        let end = start + plan.positions.len() - first_row;
        let own = image::coordinates(sequence.images(), start..end);
        plan.coordinates.extend(own);
    }
}

/// The part of a step that a long prompt leaves to younger sequences.
const SHARE: usize = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(step: &Step) -> Vec<(usize, usize)> {
        step.sequences
            .iter()
            .zip(&step.plan.spans)
            .map(|(idx, span)| (*idx, span.rows.len()))
            .collect()
    }

    fn sequences(lengths: &[usize]) -> Vec<Sequence> {
        // Tokens of their own, so that the prefix cache finds nothing.
        (0..)
            .zip(lengths)
            .map(|(idx, length)| Sequence::new(vec![idx; *length], Vec::new()))
            .collect()
    }

    fn commit(step: &Step, sequences: &mut [Sequence], blocks: &mut Blocks) {
        for (idx, span) in step.sequences.iter().zip(&step.plan.spans) {
            sequences[*idx].commit(span.rows.len(), blocks);
            if sequences[*idx].pending() == 0 {
                sequences[*idx].push(0);
            }
        }
    }

    #[test]
    fn prompts_are_cut_to_the_budget() {
        let scheduler = Scheduler {
            max_sequences: 4,
            step_tokens: 10,
        };
        let mut blocks = Blocks::new(4, 100, 100, true);
        let mut sequences = sequences(&[3, 25, 4]);
        let mut step = Step::default();
        let mut seen = Vec::new();
        for _ in 0..5 {
            scheduler.plan(&mut sequences, &mut blocks, &mut step);
            seen.push(rows(&step));
            commit(&step, &mut sequences, &mut blocks);
        }
        let expected: [&[(usize, usize)]; 5] = [
            &[(0, 3), (1, 6), (2, 1)],
            &[(0, 1), (1, 6), (2, 3)],
            &[(0, 1), (1, 8), (2, 1)],
            &[(0, 1), (1, 5), (2, 1)],
            &[(0, 1), (1, 1), (2, 1)],
        ];
        // The short prompt behind the long one has its first token after the second step.
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_is_the_same_is_read_once() {
        let scheduler = Scheduler {
            max_sequences: 8,
            step_tokens: 100,
        };
        let mut blocks = Blocks::new(4, 100, 100, true);
        let same: Vec<u32> = (0..22).collect();
        let other: Vec<u32> = (0..9).chain(50..80).collect();
        let mut sequences =
            [&same, &same, &other, &same].map(|tokens| Sequence::new(tokens.clone(), Vec::new()));
        let mut step = Step::default();
        scheduler.plan(&mut sequences, &mut blocks, &mut step);
        assert_eq!(
            rows(&step),
            [(0, 22), (2, 39)],
            "too little is the same to wait for"
        );
        commit(&step, &mut sequences, &mut blocks);
        scheduler.plan(&mut sequences, &mut blocks, &mut step);
        assert_eq!(rows(&step), [(0, 1), (1, 2), (2, 1), (3, 2)]);
        // Nobody waits for what will not be found.
        let mut blocks = Blocks::new(4, 100, 100, false);
        let mut sequences = [&same, &same].map(|tokens| Sequence::new(tokens.clone(), Vec::new()));
        scheduler.plan(&mut sequences, &mut blocks, &mut step);
        assert_eq!(rows(&step), [(0, 22), (1, 22)]);
    }

    #[test]
    fn a_long_prompt_does_not_starve_younger_sequences() {
        let scheduler = Scheduler {
            max_sequences: 4,
            step_tokens: 10,
        };
        let mut blocks = Blocks::new(4, 100, 100, true);
        let mut sequences = sequences(&[3, 3]);
        let mut step = Step::default();
        scheduler.plan(&mut sequences, &mut blocks, &mut step);
        commit(&step, &mut sequences, &mut blocks);
        // As after a context shift: the oldest has everything to compute again.
        for _ in 0..30 {
            sequences[0].push(0);
        }
        sequences[0].release(&mut blocks);
        scheduler.plan(&mut sequences, &mut blocks, &mut step);
        assert_eq!(rows(&step), [(0, 9), (1, 1)]);
        assert_eq!(step.plan.logit_rows, [9]);
    }

    #[test]
    fn the_youngest_gives_way() {
        let scheduler = Scheduler {
            max_sequences: 4,
            step_tokens: 100,
        };
        let mut blocks = Blocks::new(4, 0, 4, true);
        let mut sequences = sequences(&[8, 4, 4]);
        let mut step = Step::default();
        scheduler.plan(&mut sequences, &mut blocks, &mut step);
        assert_eq!(rows(&step), [(0, 8), (1, 4), (2, 4)]);
        commit(&step, &mut sequences, &mut blocks);
        scheduler.plan(&mut sequences, &mut blocks, &mut step);
        assert_eq!((rows(&step), step.n_preempted), (vec![(0, 1)], 1));
        let running: Vec<bool> = sequences.iter().map(Sequence::is_running).collect();
        assert_eq!(
            running,
            [true, true, false],
            "the second waits for a block, but keeps what it has"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn plans_keep_the_rules(
            lengths in prop::collection::vec(1usize..30, 1..10),
            max_sequences in 1usize..6,
            step_tokens in 1usize..20,
            spare in 0usize..6,
        ) {
            let scheduler = Scheduler { max_sequences, step_tokens };
            let mut blocks = Blocks::new(4, 0, 10 + spare, true);
            let mut sequences = sequences(&lengths);
            let mut step = Step::default();
            for _ in 0..30 {
                let oldest = sequences[0].computed();
                let oldest_ran = sequences[0].is_running();
                scheduler.plan(&mut sequences, &mut blocks, &mut step);
                let plan = &step.plan;
                prop_assert!(plan.tokens.len() <= step_tokens.max(max_sequences));
                prop_assert!(plan.spans.len() <= max_sequences);
                prop_assert_eq!(step.sequences.first(), Some(&0), "the head of the queue makes progress");
                prop_assert!(!oldest_ran || sequences[0].computed() == oldest, "the oldest is never preempted");
                for (idx, span) in step.sequences.iter().zip(&plan.spans) {
                    prop_assert!(!span.rows.is_empty());
                    prop_assert_eq!(&plan.tokens[span.rows.clone()], &sequences[*idx].tokens()[span.start as usize..span.kv_len()]);
                    prop_assert_eq!(span.blocks.as_slice(), sequences[*idx].blocks());
                }
                blocks.assert_consistent(sequences.iter().flat_map(Sequence::held));
                commit(&step, &mut sequences, &mut blocks);
                if sequences[0].tokens().len() >= 40 {
                    break;
                }
            }
        }
    }
}

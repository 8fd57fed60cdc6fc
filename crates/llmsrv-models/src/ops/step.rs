//! What all layers of a step have in common on the CPU: made once, in memory that is used again.

use llmsrv_engine::StepPlan;
use llmsrv_kernels::{Queries, Query, Slot};

use super::Attention;
use crate::arch::BLOCK_SIZE;

/// The rows of a step.
#[derive(Default)]
pub(crate) struct Step {
    /// Where the keys and values of each row go; `None` if a span has too few blocks for them.
    pub(crate) slots: Option<Vec<Slot>>,
    /// The blocks of all spans.
    blocks: Vec<u32>,
    /// What rows see, for each kind of layer that asked since the step began.
    seen: Vec<(Kind, Vec<Query>)>,
    n_seen: usize,
}

/// What of an attention decides which positions a row sees, beside its window: the chunk, and whether rows see no row
/// behind them.
type Kind = (Option<usize>, bool);

impl Step {
    /// Begins with the rows of `plan`.
    pub(crate) fn begin(&mut self, plan: &StepPlan) {
        self.n_seen = 0;
        self.blocks.clear();
        let mut slots = self.slots.take().unwrap_or_default();
        slots.clear();
        for span in &plan.spans {
            let blocks = span.blocks.iter().map(|block| block.0);
            self.blocks.extend(blocks);
            let positions = (span.start as usize..).take(span.rows.len());
            slots.extend(positions.map_while(|position| {
                Some(Slot {
                    block: span.blocks.get(position / BLOCK_SIZE)?.0,
                    slot: position % BLOCK_SIZE,
                })
            }));
        }
        self.slots = (slots.len() == plan.tokens.len()).then_some(slots);
    }

    /// Returns the queries of the rows of `plan`, with which the step began.
    pub(crate) fn queries(&mut self, plan: &StepPlan, attention: &Attention) -> Queries<'_> {
        let kind = (attention.chunk, attention.causal);
        let mut known = self.seen[..self.n_seen].iter();
        let known = known.position(|(of, _)| *of == kind);
        let at = known.unwrap_or_else(|| self.add(kind, plan, attention));
        Queries {
            rows: &self.seen[at].1,
            blocks: &self.blocks,
        }
    }

    fn add(&mut self, kind: Kind, plan: &StepPlan, attention: &Attention) -> usize {
        let at = self.n_seen;
        self.n_seen += 1;
        if self.seen.len() == at {
            self.seen.push((kind, Vec::new()));
        }
        let (of, rows) = &mut self.seen[at];
        *of = kind;
        rows.clear();
        // What sees its chunk from the first position on is as a query there with a window of one.
        let first = |position: usize| match attention.chunk {
            Some(chunk) => position - position % chunk,
            None => position,
        };
        let mut first_block = 0;
        for span in &plan.spans {
            let n_blocks = span.blocks.len();
            let ends = plan.ends.get(span.rows.clone()).unwrap_or_default();
            rows.extend((span.start..).zip(ends).map(|(position, end)| Query {
                position: first(position as usize),
                end: attention.end(position, *end) as usize,
                first_block,
                n_blocks,
            }));
            first_block += n_blocks;
        }
        at
    }
}

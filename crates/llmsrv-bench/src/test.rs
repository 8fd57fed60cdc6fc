//! What is measured.

use std::fmt;

/// One thing whose speed is measured, in tokens per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Reads a prompt of `n` tokens after `depth` earlier ones.
    Prefill {
        /// Tokens of the prompt.
        n: usize,
        /// Tokens before it.
        depth: usize,
    },
    /// Generates `n` tokens for each of `batch` sequences together, each after `depth` earlier ones.
    Decode {
        /// Tokens for each sequence.
        n: usize,
        /// Tokens before them.
        depth: usize,
        /// Sequences.
        batch: usize,
    },
}

impl Test {
    /// Makes the tests of some sizes: every length at every depth, and batches at depth 128.
    pub fn matrix(
        prompts: &[usize],
        generated: &[usize],
        depths: &[usize],
        batches: &[usize],
    ) -> Vec<Test> {
        let mut tests = Vec::new();
        for &depth in depths {
            tests.extend(prompts.iter().map(|&n| Test::Prefill { n, depth }));
        }
        for &depth in depths {
            let alone = |&n: &usize| Test::Decode { n, depth, batch: 1 };
            tests.extend(generated.iter().map(alone));
        }
        for &batch in batches.iter().filter(|batch| **batch > 1) {
            let depth = BATCH_DEPTH;
            tests.extend(generated.iter().map(|&n| Test::Decode { n, depth, batch }));
        }
        tests.retain(|test| test.tokens() > 0);
        tests
    }

    /// Returns the tokens that one round computes.
    pub fn tokens(self) -> usize {
        match self {
            Test::Prefill { n, .. } => n,
            Test::Decode { n, batch, .. } => n * batch,
        }
    }

    /// Returns the sequences of a round.
    pub fn sequences(self) -> usize {
        match self {
            Test::Prefill { .. } => 1,
            Test::Decode { batch, .. } => batch,
        }
    }

    /// Returns the tokens that are there before a round.
    pub fn depth(self) -> usize {
        match self {
            Test::Prefill { depth, .. } | Test::Decode { depth, .. } => depth,
        }
    }

    /// Returns the positions that a sequence of a round needs.
    pub fn positions(self) -> usize {
        match self {
            Test::Prefill { n, depth } | Test::Decode { n, depth, .. } => n + depth,
        }
    }
}

impl fmt::Display for Test {
    /// Writes the name that llama-bench would give it: `pp512`, `tg128 @ d2048`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, n, depth, batch) = match *self {
            Test::Prefill { n, depth } => ("pp", n, depth, 1),
            Test::Decode { n, depth, batch } => ("tg", n, depth, batch),
        };
        write!(f, "{name}{n}")?;
        if batch > 1 {
            write!(f, " x{batch}")?;
        }
        if depth > 0 {
            write!(f, " @ d{depth}")?;
        }
        Ok(())
    }
}

/// Tokens before each sequence of a batch.
const BATCH_DEPTH: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_named_as_people_know_them() {
        let tests = Test::matrix(&[512, 0], &[128], &[0, 2048], &[1, 8]);
        let names: Vec<String> = tests.iter().map(Test::to_string).collect();
        assert_eq!(
            names,
            [
                "pp512",
                "pp512 @ d2048",
                "tg128",
                "tg128 @ d2048",
                "tg128 x8 @ d128"
            ]
        );
        assert_eq!(tests[4].tokens(), 1024);
        assert_eq!(tests[3].positions(), 2176);
    }
}

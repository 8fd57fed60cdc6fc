//! Figures of an engine.

/// Figures of an engine: the present state and totals since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sequences that hold KV blocks.
    pub running: usize,
    /// Sequences that wait for room.
    pub waiting: usize,
    /// KV blocks in use by running sequences.
    pub kv_blocks_used: usize,
    /// KV blocks that hold a reusable prefix nobody uses at the moment.
    pub kv_blocks_cached: usize,
    /// KV blocks with memory behind them.
    pub kv_blocks_total: usize,
    /// Recurrent states with memory behind them.
    pub states_total: usize,
    /// Recurrent states that are checkpoints of what is in the prefix cache.
    pub checkpoints: usize,
    /// Steps that the model has computed, failed ones too.
    pub steps: u64,
    /// Requests that the engine's thread has taken: texts, and calls for vectors.
    pub requests: u64,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Prompt tokens that the prefix cache made free.
    pub prefix_hit_tokens: u64,
    /// Tokens of all answers.
    pub generated_tokens: u64,
    /// Draft tokens that were computed, accepted or not.
    pub drafted_tokens: u64,
    /// Those of them that came true; they are among the generated ones.
    pub accepted_tokens: u64,
    /// Sequences that gave up their blocks for an older one.
    pub preemptions: u64,
    /// Inputs turned into vectors; their tokens count as tokens of prompts.
    pub embeddings: u64,
}

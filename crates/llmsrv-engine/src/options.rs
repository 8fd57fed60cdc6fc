//! What an engine is told when it starts, and the memory that it may take.

use std::time::Duration;

use crate::PlacedBytes;

/// Limits of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Most sequences computed together in a step.
    pub max_sequences: usize,
    /// Most tokens computed in a step; a longer prompt is computed in several steps.
    pub step_tokens: usize,
    /// Target latency of a step that mixes prefill and decode, which bounds the time between two tokens of
    /// the sequences that decode. The prefill tokens of a step are cut to what the measured throughput allows.
    pub step_target: Duration,
    /// KV blocks reserved before the first step.
    pub kv_blocks: usize,
    /// Bound of the KV blocks; the pool grows up to it when needed.
    pub max_kv_blocks: usize,
    /// Keep computed prompts and reuse what a new prompt begins with.
    pub prefix_cache: bool,
    /// KV blocks up to which the pool grows rather than forgets a computed prompt. Beyond, it grows
    /// only for what running sequences need.
    pub prefix_cache_blocks: usize,
    /// Bound of the recurrent states, for models that keep some: one for each running sequence, the
    /// others are checkpoints of what is in the prefix cache.
    pub max_states: usize,
    /// Speculative decoding; the output is the same. It is off for models that keep a recurrent state.
    pub speculation: Speculation,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            max_sequences: 16,
            step_tokens: 512,
            step_target: Duration::from_millis(250),
            kv_blocks: 256,
            max_kv_blocks: 4096,
            prefix_cache: true,
            prefix_cache_blocks: usize::MAX,
            max_states: 32,
            speculation: Speculation::Auto,
        }
    }
}

/// Whether and how far the engine drafts tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculation {
    /// No token is drafted.
    Off,
    /// As many tokens as pay, by what steps and accepted tokens were measured.
    #[default]
    Auto,
    /// Always so many tokens, where there is something to draft from.
    Always(usize),
}

/// Who is asked before the KV cache of a model grows. It is dropped when the model's memory is free.
pub trait MemoryAccount: Send {
    /// Takes so many bytes more; `false` = they cannot be had.
    fn grow(&mut self, bytes: &PlacedBytes) -> bool;

    /// Gives back bytes that were taken and could not be used.
    fn shrink(&mut self, bytes: &PlacedBytes);
}

/// All memory that the system gives.
pub(crate) struct Unlimited;

impl MemoryAccount for Unlimited {
    fn grow(&mut self, _: &PlacedBytes) -> bool {
        true
    }

    fn shrink(&mut self, _: &PlacedBytes) {}
}

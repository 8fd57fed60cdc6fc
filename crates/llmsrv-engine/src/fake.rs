//! A deterministic model without weights, for the tests of this crate and of the layers above.
//!
//! It is sharp: the value it stores for a position depends on everything before it *as stored in
//! the KV blocks*, and its logits depend on all stored values, as attention's would. A wrong,
//! stale or foreign block changes the output; a malformed plan panics.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    thread,
    time::Duration,
};

use llmsrv_tokenizer::{Algorithm, Special, TokenKind, Tokenizer, Vocab};

use crate::{
    BlockId, EmbeddingSpec, Grid, Image, ImageError, Loaded, Model, ModelError, ModelSpec, Part,
    Pooling, StepPlan, TokenId, Vision,
};

/// What the fake model says.
#[derive(Clone, Debug)]
pub enum Answer {
    /// This text, then the end. If the prompt itself ends with a beginning of the text, only the
    /// rest of it.
    Text(String),
    /// The text beside the first of these words that the prompt contains (of a ChatML prompt:
    /// what comes before the last assistant part); `""` matches always. No match: the end at once.
    Rules(Vec<(String, String)>),
    /// The text of the last user message of a ChatML prompt, or `""`.
    Echo,
    /// One sentence over and over, without an end.
    Endless,
    /// The letters `a` and `b` in an order that depends on every token before; sometimes the end.
    Random,
}

/// How the fake model behaves.
#[derive(Clone, Debug)]
pub struct FakeOptions {
    /// The text that it generates.
    pub answer: Answer,
    /// Time that each step takes.
    pub step_delay: Duration,
    /// Time that each row of a step takes on top of that.
    pub row_delay: Duration,
    /// Tokens in a KV block.
    pub block_size: usize,
    /// Positions the model claims to be trained for.
    pub context_length: usize,
    /// Memory that the weights claim to take, in bytes.
    pub weight_bytes: u64,
    /// KV blocks there is memory for.
    pub memory_blocks: usize,
    /// It keeps a recurrent state, on which everything depends that it says.
    pub recurrent: bool,
    /// Recurrent states there is memory for.
    pub memory_states: usize,
    /// Rows that an image has; 0 = the model cannot read images.
    pub image_rows: usize,
    /// A step fails when a sequence contains this text.
    pub fail_on: Option<String>,
    /// The model panics when a sequence contains this text.
    pub panic_on: Option<String>,
    /// How it makes vectors. Their values depend on every token that a row sees, except those of
    /// [`Pooling::Rank`]: how many bytes of what comes before the first end mark are also after it.
    pub embedding: Option<EmbeddingSpec>,
    /// Vectors are not a number when a sequence contains this text.
    pub nan_on: Option<String>,
}

impl FakeOptions {
    /// A model that makes nothing but vectors.
    pub fn embedding_only(pooling: Pooling) -> FakeOptions {
        FakeOptions {
            embedding: Some(EmbeddingSpec {
                width: if pooling == Pooling::Rank { 1 } else { WIDTH },
                pooling,
                bidirectional: true,
            }),
            ..FakeOptions::default()
        }
    }
}

impl Default for FakeOptions {
    fn default() -> Self {
        FakeOptions {
            answer: Answer::Text("Hello! How can I help you?".into()),
            step_delay: Duration::ZERO,
            row_delay: Duration::ZERO,
            block_size: 16,
            context_length: 4096,
            weight_bytes: 0,
            memory_blocks: usize::MAX,
            recurrent: false,
            memory_states: usize::MAX,
            image_rows: 0,
            fail_on: None,
            panic_on: None,
            embedding: Some(EmbeddingSpec {
                width: WIDTH,
                pooling: Pooling::Last,
                bidirectional: false,
            }),
            nan_on: None,
        }
    }
}

/// Makes a fake model with its tokenizer: one token for each byte, ChatML's `<|im_start|>` and
/// `<|im_end|>`, and `<|endoftext|>`.
pub fn loaded(options: FakeOptions) -> Loaded {
    let tokenizer = Arc::new(tokenizer());
    let vision = (options.image_rows > 0).then(|| {
        let vision: Arc<dyn Vision> = Arc::new(FakeVision {
            rows: options.image_rows,
        });
        vision
    });
    Loaded {
        vision,
        draft: None,
        model: Box::new(FakeModel::new(options, tokenizer.clone())),
        tokenizer,
    }
}

/// Makes the tokenizer of [`loaded`].
pub fn tokenizer() -> Tokenizer {
    let mut tokens: Vec<String> = (0..=u8::MAX)
        .map(|byte| byte_letter(byte).to_string())
        .collect();
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    for special in [END_OF_TEXT, START, END] {
        tokens.push(special.into());
        kinds.push(TokenKind::Control);
    }
    let vocab = Vocab {
        algorithm: Algorithm::Bpe,
        tokens,
        kinds,
        pre: "gpt-2".into(),
        eos: Some(258),
        eot: Some(258),
        pad: Some(256),
        ..Vocab::default()
    };
    Tokenizer::new(vocab).expect("the vocabulary above is sound")
}

/// Takes every text that begins with `image`, and every PNG file, for an image. Each `+` in the text makes
/// it larger, each `/` adds rows behind a text.
struct FakeVision {
    rows: usize,
}

impl FakeVision {
    /// Returns the rows of a part, and how many parts there are.
    fn parts(&self, bytes: &[u8]) -> (usize, usize) {
        let text = bytes.strip_prefix(b"image").unwrap_or_default();
        let count = |sign: u8| text.split(|byte| *byte == sign).count() - 1;
        (self.rows * (1 + count(b'+')), 1 + count(b'/'))
    }
}

impl Vision for FakeVision {
    fn encode(&self, bytes: &[u8]) -> Result<Arc<Image>, ImageError> {
        if !bytes.starts_with(b"image") && !bytes.starts_with(b"\x89PNG") {
            return Err(ImageError::Invalid("no image".into()));
        }
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&hasher.finish().to_le_bytes());
        let (rows, n_parts) = self.parts(bytes);
        let is_one = n_parts == 1;
        Ok(Arc::new(Image {
            digest,
            rows: rows * n_parts,
            embedding: vec![0.0; rows * n_parts],
            whole: is_one,
            grid: (is_one && rows.is_multiple_of(2)).then_some(Grid {
                width: 2,
                height: rows / 2,
            }),
        }))
    }

    fn layout(&self, bytes: &[u8]) -> Result<Vec<Part>, ImageError> {
        let (rows, n_parts) = self.parts(bytes);
        let mut layout = vec![Part::text("<"), Part::Rows(rows)];
        for _ in 1..n_parts {
            layout.extend([Part::text("/"), Part::Rows(rows)]);
        }
        layout.push(Part::text(">"));
        Ok(layout)
    }
}

/// The model of [`loaded`].
#[derive(Debug)]
pub struct FakeModel {
    options: FakeOptions,
    spec: ModelSpec,
    tokenizer: Arc<Tokenizer>,
    kv: Vec<Slot>,
    states: Vec<State>,
}

/// A recurrent state: a hash of all rows so far, and how many they were.
#[derive(Clone, Copy, Debug)]
struct State {
    n_rows: usize,
    hash: u64,
}

/// What is stored for one position.
#[derive(Clone, Copy, Debug)]
struct Slot {
    token: TokenId,
    value: u64,
}

/// Memory nobody has written.
const GARBAGE: Slot = Slot {
    token: 255,
    value: 0xdead_beef,
};
const NO_STATE: State = State {
    n_rows: usize::MAX,
    hash: 0xdead_beef,
};
const END_OF_TEXT: &str = "<|endoftext|>";
const START: &str = "<|im_start|>";
const END: &str = "<|im_end|>";

impl FakeModel {
    /// Makes a model that speaks the tokens of `tokenizer`.
    pub fn new(options: FakeOptions, tokenizer: Arc<Tokenizer>) -> FakeModel {
        let spec = ModelSpec {
            vocab_size: tokenizer.vocab_size(),
            block_size: options.block_size,
            context_length: options.context_length,
            kv_block_bytes: options.block_size * size_of::<Slot>(),
            state_bytes: if options.recurrent {
                size_of::<State>()
            } else {
                0
            },
            weight_bytes: options.weight_bytes,
            embedding: options.embedding,
            n_layers: 0,
            gpus: Vec::new(),
            npu: false,
        };
        FakeModel {
            options,
            spec,
            tokenizer,
            kv: Vec::new(),
            states: Vec::new(),
        }
    }

    fn slot(&mut self, table: &[BlockId], position: usize) -> &mut Slot {
        let block_size = self.spec.block_size;
        &mut self.kv[table[position / block_size].0 as usize * block_size + position % block_size]
    }

    /// Returns the stored tokens of a sequence and a value that depends on all that is stored.
    fn read(&mut self, table: &[BlockId], n: usize) -> (Vec<TokenId>, u64) {
        let slots = (0..n).map(|position| *self.slot(table, position));
        let (mut tokens, mut value) = (Vec::with_capacity(n), 1);
        for slot in slots {
            tokens.push(slot.token);
            value = mix(value ^ slot.value);
        }
        (tokens, value)
    }

    fn say(&self, tokens: &[TokenId], value: u64, logits: &mut [f32]) {
        for (token, logit) in logits.iter_mut().enumerate() {
            // Noise far below the answer, so that sampling with a temperature still says it.
            *logit = -60.0 - (mix(value ^ token as u64) % 1024) as f32 / 256.0;
        }
        let end = self.tokenizer.eos().unwrap_or_default();
        let text = |reply: &str| self.tokenizer.encode(reply, Special::Plain);
        let next = match &self.options.answer {
            Answer::Text(reply) => continuation(tokens, &text(reply)),
            Answer::Rules(rules) => {
                let prompt = self.tokenizer.decode_with_special(tokens);
                let prompt = prompt
                    .rsplit_once(&format!("{START}assistant"))
                    .map_or(prompt.as_str(), |(before, _)| before);
                let rule = rules
                    .iter()
                    .find(|(word, _)| prompt.contains(word.as_str()));
                rule.and_then(|(_, reply)| continuation(tokens, &text(reply)))
            }
            Answer::Echo => {
                let prompt = self.tokenizer.decode_with_special(tokens);
                let message = prompt
                    .rsplit_once(&format!("{START}user\n"))
                    .map_or("", |(_, rest)| rest);
                let message = message.split(END).next().unwrap_or_default();
                continuation(tokens, &text(message))
            }
            Answer::Endless => Some(ENDLESS.as_bytes()[tokens.len() % ENDLESS.len()].into()),
            Answer::Random => {
                for token in [u32::from(b'a'), u32::from(b'b'), end] {
                    let rare = if token == end { 3.0 } else { 0.0 };
                    logits[token as usize] =
                        (mix(value ^ u64::from(token)) % 1024) as f32 / 256.0 - rare;
                }
                return;
            }
        };
        logits[next.unwrap_or(end) as usize] = 0.0;
    }
}

impl Model for FakeModel {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<(), ModelError> {
        if n_blocks > self.options.memory_blocks {
            return Err(ModelError::OutOfMemory(n_blocks));
        }
        self.kv
            .resize(self.kv.len().max(n_blocks * self.spec.block_size), GARBAGE);
        Ok(())
    }

    fn reserve_states(&mut self, n_states: usize) -> Result<(), ModelError> {
        if n_states > self.options.memory_states {
            return Err(ModelError::OutOfStates(n_states));
        }
        let n_states = self.states.len().max(n_states);
        self.states.resize(n_states, NO_STATE);
        Ok(())
    }

    fn forward(&mut self, plan: &StepPlan, logits: &mut [f32]) -> Result<(), ModelError> {
        assert!(self.spec.generates(), "the model makes only vectors");
        check(
            plan,
            self.spec.block_size,
            self.kv.len() / self.spec.block_size,
        );
        check_states(plan, self.options.recurrent, self.states.len());
        assert_eq!(
            logits.len(),
            plan.logit_rows.len() * self.spec.vocab_size,
            "size of the logits"
        );
        let rows = self.compute(plan)?;
        let outputs = logits.chunks_exact_mut(self.spec.vocab_size);
        for ((tokens, value), output) in rows.iter().zip(outputs) {
            self.say(tokens, *value, output);
        }
        Ok(())
    }

    fn embed(&mut self, plan: &StepPlan, rows: &mut [f32]) -> Result<(), ModelError> {
        let Some(spec) = self.spec.embedding else {
            return Err(ModelError::NoEmbeddings);
        };
        assert_eq!(
            rows.len(),
            plan.logit_rows.len() * spec.width,
            "size of the rows"
        );
        if spec.bidirectional {
            let whole = |span: &crate::Span| span.start == 0 && span.blocks.is_empty();
            assert!(plan.spans.iter().all(whole), "inputs are computed whole");
            // Memory of its own for this step.
            let mut own = plan.clone();
            let mut n_blocks = 0;
            for span in &mut own.spans {
                let n = span.kv_len().div_ceil(self.spec.block_size) as u32;
                span.blocks = (n_blocks..n_blocks + n).map(BlockId).collect();
                n_blocks += n;
            }
            self.reserve_blocks(n_blocks as usize)?;
            check(&own, self.spec.block_size, n_blocks as usize);
            own.logit_rows = own
                .spans
                .iter()
                .map(|span| span.rows.end as u32 - 1)
                .collect();
            let ends = self.compute(&own)?;
            let mut outputs = rows.chunks_exact_mut(spec.width);
            for (span, (tokens, value)) in plan.spans.iter().zip(&ends) {
                let wanted = plan.logit_rows.iter();
                for row in wanted.filter(|row| span.rows.contains(&(**row as usize))) {
                    let output = outputs.next().expect("one output for each wanted row");
                    let position = *row as usize - span.rows.start;
                    self.vector(tokens, mix(value ^ position as u64), output);
                }
            }
        } else {
            check(
                plan,
                self.spec.block_size,
                self.kv.len() / self.spec.block_size,
            );
            check_states(plan, self.options.recurrent, self.states.len());
            let computed = self.compute(plan)?;
            let outputs = rows.chunks_exact_mut(spec.width);
            for ((tokens, value), output) in computed.iter().zip(outputs) {
                self.vector(tokens, *value, output);
            }
        }
        Ok(())
    }
}

impl FakeModel {
    /// Stores all rows of a checked plan. Returns for each wanted row the tokens up to it and a value
    /// that depends on all that is stored for them.
    fn compute(&mut self, plan: &StepPlan) -> Result<Vec<(Vec<TokenId>, u64)>, ModelError> {
        let n_rows = u32::try_from(plan.tokens.len()).unwrap_or(u32::MAX);
        let delay = self.options.step_delay + self.options.row_delay * n_rows;
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        let block_size = self.spec.block_size;
        let copies = plan.spans.iter().filter_map(|span| span.copy(block_size));
        for (from, to, n_positions) in copies {
            let (from, to) = (from.0 as usize * block_size, to.0 as usize * block_size);
            self.kv.copy_within(from..from + n_positions, to);
            // A model may copy more than it is asked for, or less of what is not to be read.
            self.kv[to + n_positions..to + block_size].fill(GARBAGE);
        }
        for state in plan.spans.iter().filter_map(|span| span.state.as_ref()) {
            if let Some(from) = state.from {
                self.states[state.slot.0 as usize] = self.states[from.0 as usize];
            }
        }
        let mut wanted = Vec::new();
        for span in &plan.spans {
            let start = span.start as usize;
            let (mut tokens, mut value) = self.read(&span.blocks, start);
            let mut state = self.start_state(span);
            for row in span.rows.clone() {
                let token = plan.tokens[row];
                assert!(
                    (token as usize) < self.spec.vocab_size,
                    "token {token} is not in the vocabulary"
                );
                let image = plan.images.iter().find(|image| image.rows.contains(&row));
                let input = image.map_or(u64::from(token), |image| {
                    let mut hasher = DefaultHasher::new();
                    (image.image.digest, image.first + row - image.rows.start).hash(&mut hasher);
                    hasher.finish()
                });
                // As a rotation would, by all three, which for text say no more than the position.
                let input = match plan.coordinate(row) {
                    place if place == [tokens.len() as u32; 3] => input,
                    place => place
                        .into_iter()
                        .fold(input, |input, part| mix(input ^ u64::from(part))),
                };
                let before = state.map_or(value, |state| mix(value ^ state.hash));
                let stored = Slot {
                    token,
                    value: mix(before ^ mix(input << 32 ^ input >> 32 ^ tokens.len() as u64)),
                };
                *self.slot(&span.blocks, tokens.len()) = stored;
                tokens.push(token);
                value = mix(value ^ stored.value);
                if let (Some(state), Some(plan)) = (&mut state, &span.state) {
                    state.n_rows += 1;
                    state.hash = mix(state.hash ^ stored.value);
                    self.states[plan.slot.0 as usize] = *state;
                    for (n_rows, to) in &plan.saves {
                        if row + 1 == span.rows.start + n_rows {
                            self.states[to.0 as usize] = *state;
                        }
                    }
                }
                if plan.logit_rows.contains(&(row as u32)) {
                    let seen = state.map_or(value, |state| mix(value ^ state.hash));
                    wanted.push((tokens.clone(), seen));
                }
            }
            assert!(
                !self.contains(&tokens, self.options.panic_on.as_deref()),
                "the fake model was told to panic"
            );
            if self.contains(&tokens, self.options.fail_on.as_deref()) {
                return Err(ModelError::Compute(
                    "the fake model was told to fail".into(),
                ));
            }
        }
        Ok(wanted)
    }

    /// Returns the recurrent state before a span.
    fn start_state(&self, span: &crate::Span) -> Option<State> {
        let plan = span.state.as_ref()?;
        if span.start == 0 {
            return Some(State { n_rows: 0, hash: 7 });
        }
        let state = self.states[plan.slot.0 as usize];
        assert_eq!(
            state.n_rows, span.start as usize,
            "the state of another position"
        );
        Some(state)
    }

    fn contains(&self, tokens: &[TokenId], text: Option<&str>) -> bool {
        text.is_some_and(|text| self.tokenizer.decode_with_special(tokens).contains(text))
    }

    fn vector(&self, tokens: &[TokenId], value: u64, output: &mut [f32]) {
        let is_rank = self
            .spec
            .embedding
            .is_some_and(|spec| spec.pooling == Pooling::Rank);
        let text = self.tokenizer.decode_with_special(tokens);
        let (before, after) = text.split_once(END).unwrap_or((text.as_str(), ""));
        let n_shared = before.chars().filter(|c| after.contains(*c)).count();
        for (idx, output) in (0..).zip(output) {
            *output = if self.contains(tokens, self.options.nan_on.as_deref()) {
                f32::NAN
            } else if is_rank {
                n_shared as f32
            } else {
                (mix(value ^ idx) % 4096) as f32 / 2048.0 - 1.0
            };
        }
    }
}

/// Panics unless `plan` keeps all that is said about it.
fn check(plan: &StepPlan, block_size: usize, n_blocks: usize) {
    assert!(!plan.spans.is_empty(), "an empty step");
    assert_eq!(
        plan.tokens.len(),
        plan.positions.len(),
        "one position for each token"
    );
    assert_eq!(plan.tokens.len(), plan.ends.len(), "one end for each token");
    assert!(
        plan.coordinates.is_empty() || plan.coordinates.len() == plan.tokens.len(),
        "coordinates for each token, or for none"
    );
    for image in &plan.images {
        assert!(
            !image.rows.is_empty()
                && image.rows.end <= plan.tokens.len()
                && image.first + image.rows.len() <= image.image.rows,
            "an image that is not there"
        );
        let first_end = plan.positions[image.rows.start] as usize - image.first + image.image.rows;
        assert!(
            !image.image.whole
                || plan.ends[image.rows.clone()]
                    .iter()
                    .all(|end| *end as usize == first_end),
            "rows of a whole image see all of it"
        );
    }
    let mut next_row = 0;
    let mut written = Vec::new();
    for span in &plan.spans {
        assert!(!span.rows.is_empty(), "an empty span");
        assert_eq!(span.rows.start, next_row, "spans follow each other");
        next_row = span.rows.end;
        let positions = &plan.positions[span.rows.clone()];
        assert!(
            positions
                .iter()
                .copied()
                .eq(span.start..span.kv_len() as u32),
            "positions count from the start"
        );
        for (position, end) in positions.iter().zip(&plan.ends[span.rows.clone()]) {
            assert!(
                position < end && *end as usize <= span.kv_len(),
                "a row attends to what is not stored yet"
            );
        }
        assert!(
            span.blocks.len() * block_size >= span.kv_len(),
            "too few blocks"
        );
        assert!(
            span.blocks.iter().all(|id| (id.0 as usize) < n_blocks),
            "a block without memory"
        );
        written.extend_from_slice(&span.blocks[span.start as usize / block_size..]);
        assert_eq!(
            span.tail.is_some(),
            span.copy(block_size).is_some(),
            "nothing to copy"
        );
        if let Some(from) = span.tail {
            assert!((from.0 as usize) < n_blocks, "a copy of no memory");
        }
    }
    assert_eq!(next_row, plan.tokens.len(), "spans cover all rows");
    for span in &plan.spans {
        let n_read = span.start as usize / block_size;
        assert!(
            span.blocks[..n_read]
                .iter()
                .chain(&span.tail)
                .all(|id| !written.contains(id)),
            "a block is read and written in one step"
        );
    }
    written.sort_unstable();
    assert!(
        written.windows(2).all(|pair| pair[0] != pair[1]),
        "a block is written twice in one step"
    );
    assert!(
        plan.logit_rows.is_sorted_by(|a, b| a < b),
        "wanted rows ascend"
    );
    assert!(
        plan.logit_rows
            .iter()
            .all(|row| (*row as usize) < plan.tokens.len()),
        "a wanted row that is not there"
    );
}

/// Panics unless `plan` keeps all that is said about its recurrent states.
fn check_states(plan: &StepPlan, recurrent: bool, n_states: usize) {
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for span in &plan.spans {
        assert_eq!(
            span.state.is_some(),
            recurrent,
            "a state where there is none, or the other way round"
        );
        let Some(state) = &span.state else {
            continue;
        };
        assert!(
            state.saves.is_sorted_by(|a, b| a.0 < b.0)
                && state
                    .saves
                    .iter()
                    .all(|(n_rows, _)| (1..=span.rows.len()).contains(n_rows)),
            "a checkpoint outside of the span"
        );
        assert!(
            state.from.is_none() || span.start > 0,
            "a copy of nothing computed"
        );
        read.extend(state.from);
        written.push(state.slot);
        written.extend(state.saves.iter().map(|(_, to)| *to));
    }
    assert!(
        read.iter()
            .chain(&written)
            .all(|id| (id.0 as usize) < n_states),
        "a state without memory"
    );
    written.sort_unstable();
    assert!(
        written.windows(2).all(|pair| pair[0] != pair[1]),
        "a state is written twice in one step"
    );
    assert!(
        read.iter().all(|id| !written.contains(id)),
        "a state is read and written in one step"
    );
}

/// Returns the token of `reply` that follows when `tokens` end with the longest beginning of it;
/// nothing once they end with all of it.
fn continuation(tokens: &[TokenId], reply: &[TokenId]) -> Option<TokenId> {
    let n_said = (0..=reply.len().min(tokens.len()))
        .rev()
        .find(|n| tokens.ends_with(&reply[..*n]))?;
    reply.get(n_said).copied()
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns the letter that byte-level BPE writes for a byte: itself if printable, else one from
/// U+0100 on (the alphabet of GPT-2).
pub(crate) fn byte_letter(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return char::from(byte);
    }
    let n_before = (0..byte).filter(|other| !is_printable(*other)).count();
    char::from_u32(0x100 + n_before as u32).unwrap_or_default()
}

/// Elements of a vector.
const WIDTH: usize = 8;
const ENDLESS: &str = "and the river went on to the sea, and the wind went on over the hills, ";

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the model speak after `prompt`, one token in each step.
    fn say(answer: Answer, prompt: &str) -> String {
        let Loaded {
            mut model,
            tokenizer,
            ..
        } = loaded(FakeOptions {
            answer,
            ..FakeOptions::default()
        });
        model.reserve_blocks(20).unwrap();
        let blocks: Vec<BlockId> = (0..20).map(BlockId).collect();
        let mut tokens = tokenizer.encode(prompt, Special::Parse);
        let n_prompt = tokens.len();
        let mut start = 0;
        while tokens.len() < 300 {
            let n_rows = tokens.len() - start;
            let plan = StepPlan {
                tokens: tokens[start..].to_vec(),
                positions: (start as u32..tokens.len() as u32).collect(),
                ends: (start as u32 + 1..=tokens.len() as u32).collect(),
                coordinates: Vec::new(),
                images: Vec::new(),
                spans: vec![crate::Span {
                    rows: 0..n_rows,
                    start: start as u32,
                    blocks: blocks.clone(),
                    tail: None,
                    state: None,
                }],
                logit_rows: vec![n_rows as u32 - 1],
            };
            let mut logits = vec![0.0; model.spec().vocab_size];
            model.forward(&plan, &mut logits).unwrap();
            let best = (0..)
                .zip(&logits)
                .max_by(|a, b| a.1.total_cmp(b.1))
                .map_or(0, |(token, _)| token);
            if tokenizer.is_end_of_generation(best) {
                break;
            }
            start = tokens.len();
            tokens.push(best);
        }
        tokenizer.decode(&tokens[n_prompt..])
    }

    #[test]
    fn answers_are_what_was_asked_for() {
        let chat = |user: &str| format!("{START}user\n{user}{END}\n{START}assistant\n");
        let rules = Answer::Rules(vec![
            ("weather".into(), "It rains.".into()),
            ("name".into(), "weather or not".into()),
            (String::new(), "What?".into()),
        ]);
        for (answer, prompt, said) in [
            (Answer::Text("Hällo".into()), chat("x"), "Hällo"),
            (Answer::Text("Hello".into()), "He".into(), "llo"),
            (Answer::Text(String::new()), chat("x"), ""),
            (rules.clone(), chat("the weather?"), "It rains."),
            (rules.clone(), chat("your name?"), "weather or not"),
            (rules, chat("?"), "What?"),
            (Answer::Echo, chat("one\ntwo €"), "one\ntwo €"),
            (Answer::Echo, "no chat".into(), ""),
        ] {
            assert_eq!(say(answer.clone(), &prompt), said, "{answer:?} {prompt:?}");
        }
        assert!(say(Answer::Endless, "a").contains("and the river went on"));
        assert!(
            say(Answer::Random, "a")
                .bytes()
                .all(|byte| matches!(byte, b'a' | b'b'))
        );
    }

    #[test]
    #[should_panic(expected = "an empty span")]
    fn a_malformed_plan_panics() {
        let span = crate::Span {
            rows: 0..0,
            start: 0,
            blocks: vec![BlockId(0)],
            tail: None,
            state: None,
        };
        check(
            &StepPlan {
                spans: vec![span],
                ..StepPlan::default()
            },
            16,
            1,
        );
    }
}

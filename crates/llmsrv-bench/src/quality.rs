//! How well a model predicts a text, and how far it is from another model of the same vocabulary.
//!
//! Perplexity and divergence as llama.cpp's `llama-perplexity` defines them: the text is cut into windows of equal
//! length, each of which begins anew, with the begin token in place of its first token where the model wants one, and
//! the second half of each window is scored. Logits are there for some rows at a time, and two models are loaded at
//! once: a text of any length needs no more memory than one window.

use std::{ops::Range, path::Path};

use llmsrv_engine::{
    BlockId, LoadOptions, Loaded, Loader, Model, ModelError, ModelSpec, Span, SpanState, StateId,
    StepPlan, TokenId,
};
use llmsrv_kernels::Pool;
use llmsrv_tokenizer::Special;
use serde::Serialize;

use crate::{Error, cost::STEP_TOKENS};

/// What is read, and how.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// Tokens of a window.
    pub window: usize,
    /// Windows at most; `None` = all of the text.
    pub most_windows: Option<usize>,
    /// How models are loaded.
    pub load: LoadOptions,
}

/// A figure of a sample of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// How well a model predicts a text.
#[derive(Clone, Debug, Serialize)]
pub struct Quality {
    /// Tokens of the text.
    pub tokens: usize,
    /// Tokens of a window.
    pub window: usize,
    /// Windows that were read.
    pub windows: usize,
    /// Tokens that were predicted.
    pub scored: usize,
    /// The perplexity.
    pub perplexity: Estimate,
    /// How far the model is from a reference, if there was one.
    pub divergence: Option<Divergence>,
}

/// How far the predictions of a model are from those of a reference.
#[derive(Clone, Debug, Serialize)]
pub struct Divergence {
    /// The perplexity of the reference.
    pub reference_perplexity: Estimate,
    /// The perplexity of the model divided by that of the reference.
    pub perplexity_ratio: Estimate,
    /// Mean of the Kullback-Leibler divergence of the model's probabilities from those of the reference, in nats.
    pub mean: Estimate,
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The largest.
    pub max: f64,
    /// The share of tokens for which both think the same token most likely.
    pub same_top: Estimate,
}

/// Measures the model of a file and, with a reference, how far it is from that. `progress` gets the windows that were
/// read, and the number of all.
///
/// # Errors
///
/// [`Error::Invalid`] if the text is shorter than a window, if a window is longer than the context of a model, or if
/// the models have other vocabularies; else what loading or computing says.
pub fn measure(
    model: &Path,
    reference: Option<&Path>,
    text: &str,
    loader: &Loader,
    options: &TextOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Quality, Error> {
    let load = |path: &Path| Reader::new(loader(path, &options.load)?, text, options.window);
    let mut reader = load(model)?;
    let mut reference = reference.map(load).transpose()?;
    if let Some(reference) = &reference {
        reader.check_same_vocabulary(reference)?;
    }
    let windows = reader.n_windows(options.most_windows);
    let pool = Pool::new(options.load.n_threads);
    let first = options.window / 2;
    let mut scores = Vec::with_capacity(windows * (options.window - first));
    progress(0, windows);
    for idx in 0..windows {
        let pieces = pieces(first..options.window - 1, reader.spec().vocab_size);
        for rows in std::iter::once(0..first).chain(pieces) {
            let is_scored = rows.start >= first;
            reader.compute(idx, rows.clone(), Wanted::logits_if(is_scored))?;
            if let Some(reference) = &mut reference {
                reference.compute(idx, rows.clone(), Wanted::logits_if(is_scored))?;
            }
            if is_scored {
                let theirs = reference.as_ref().map(|reader| reader.results.as_slice());
                let targets = reader.targets(idx, rows);
                score(&reader.results, theirs, targets, &pool, &mut scores);
            }
        }
        progress(idx + 1, windows);
    }
    Ok(Quality {
        tokens: reader.tokens.len(),
        window: options.window,
        windows,
        scored: scores.len(),
        perplexity: exp(mean(scores.iter().map(|score| score.loss))),
        divergence: reference.map(|_| divergence(&scores)),
    })
}

/// Sends a text through all layers of a model, window after window, for what is to be seen on the way; with `logits`
/// through its last product, too. Returns the number of windows.
///
/// # Errors
///
/// As [`measure`].
pub fn read(
    loaded: Loaded,
    text: &str,
    options: &TextOptions,
    logits: bool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<usize, Error> {
    let mut reader = Reader::new(loaded, text, options.window)?;
    let windows = reader.n_windows(options.most_windows);
    let (wanted, width) = match reader.spec().embedding {
        Some(spec) if !logits => (Wanted::Hidden, spec.width),
        _ => (Wanted::Logits, reader.spec().vocab_size),
    };
    progress(0, windows);
    for idx in 0..windows {
        for rows in pieces(0..options.window, width) {
            reader.compute(idx, rows, wanted)?;
        }
        progress(idx + 1, windows);
    }
    Ok(windows)
}

/// Cuts rows into pieces whose results, of `width` elements each, are not too large.
fn pieces(rows: Range<usize>, width: usize) -> impl Iterator<Item = Range<usize>> {
    let n_rows = (RESULT_ELEMENTS / width.max(1)).clamp(1, STEP_TOKENS);
    let starts = rows.clone().step_by(n_rows);
    starts.map(move |start| start..rows.end.min(start + n_rows))
}

/// What of the rows of a step is wanted.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    Nothing,
    /// What the logits would be made of.
    Hidden,
    Logits,
}

impl Wanted {
    fn logits_if(wanted: bool) -> Wanted {
        if wanted {
            Wanted::Logits
        } else {
            Wanted::Nothing
        }
    }
}

/// A model, and a text as its tokens.
struct Reader {
    model: Box<dyn Model>,
    tokens: Vec<TokenId>,
    /// Stands in place of the first token of each window.
    begin: Option<TokenId>,
    window: usize,
    /// What the last step gave.
    results: Vec<f32>,
}

impl Reader {
    fn new(loaded: Loaded, text: &str, window: usize) -> Result<Reader, Error> {
        let Loaded {
            mut model,
            tokenizer,
            ..
        } = loaded;
        let spec = model.spec().clone();
        if !spec.generates() {
            return Err(ModelError::NoText.into());
        }
        let invalid = |message: String| Err(Error::Invalid(message));
        if window < LEAST_WINDOW || window > spec.context_length {
            return invalid(format!(
                "a window has {LEAST_WINDOW} to {} tokens for this model, not {window}",
                spec.context_length
            ));
        }
        let begin = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        let mut tokens: Vec<TokenId> = begin.into_iter().collect();
        tokens.extend(tokenizer.encode(text, Special::Plain));
        if tokens.len() < window {
            return invalid(format!(
                "the text has {} tokens, fewer than a window of {window}",
                tokens.len()
            ));
        }
        model.reserve_blocks(window.div_ceil(spec.block_size))?;
        if spec.state_bytes > 0 {
            model.reserve_states(1)?;
        }
        Ok(Reader {
            model,
            tokens,
            begin,
            window,
            results: Vec::new(),
        })
    }

    fn spec(&self) -> &ModelSpec {
        self.model.spec()
    }

    fn n_windows(&self, most: Option<usize>) -> usize {
        let windows = self.tokens.len() / self.window;
        most.map_or(windows, |most| windows.min(most.max(1)))
    }

    fn check_same_vocabulary(&self, other: &Reader) -> Result<(), Error> {
        let (ours, theirs) = (self.spec().vocab_size, other.spec().vocab_size);
        if ours != theirs {
            return Err(Error::Invalid(format!(
                "the vocabularies differ: the model has {ours} tokens, the reference {theirs}"
            )));
        }
        if self.tokens != other.tokens || self.begin != other.begin {
            let message = "the vocabularies differ: the reference cuts the text into other tokens";
            return Err(Error::Invalid(message.into()));
        }
        Ok(())
    }

    /// Computes rows of a window; those before them have been.
    fn compute(&mut self, idx: usize, rows: Range<usize>, wanted: Wanted) -> Result<(), Error> {
        for rows in pieces(rows, 1) {
            let mut plan = StepPlan::default();
            for position in rows.clone() {
                let token = self.tokens.get(idx * self.window + position).copied();
                let token = self.begin.filter(|_| position == 0).or(token);
                plan.tokens.extend(token);
                plan.positions.push(position as u32);
                plan.ends.push(position as u32 + 1);
            }
            let spec = self.model.spec();
            let n_blocks = rows.end.div_ceil(spec.block_size);
            plan.spans.push(Span {
                rows: 0..rows.len(),
                start: rows.start as u32,
                blocks: (0..n_blocks).map(|id| BlockId(id as u32)).collect(),
                tail: None,
                state: (spec.state_bytes > 0).then(|| SpanState::new(StateId(0))),
            });
            let width = match wanted {
                Wanted::Nothing => 0,
                Wanted::Hidden => spec.embedding.map_or(0, |spec| spec.width),
                Wanted::Logits => spec.vocab_size,
            };
            if wanted != Wanted::Nothing {
                plan.logit_rows = (0..rows.len() as u32).collect();
            }
            self.results.resize(rows.len() * width, 0.0);
            if wanted == Wanted::Hidden {
                self.model.embed(&plan, &mut self.results)?;
            } else {
                self.model.forward(&plan, &mut self.results)?;
            }
        }
        Ok(())
    }

    /// Returns the tokens that rows of a window predict.
    fn targets(&self, idx: usize, rows: Range<usize>) -> &[TokenId] {
        let first = idx * self.window + 1;
        let targets = self.tokens.get(first + rows.start..first + rows.end);
        targets.unwrap_or_default()
    }
}

/// What is known of a predicted token.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    /// Minus the logarithm of its probability.
    loss: f64,
    /// The same of the reference.
    reference_loss: f64,
    divergence: f64,
    same_top: bool,
}

/// Looks at rows of logits, each of which predicts one of `targets`.
fn score(
    logits: &[f32],
    reference: Option<&[f32]>,
    targets: &[TokenId],
    pool: &Pool,
    scores: &mut Vec<Score>,
) {
    let width = (logits.len() / targets.len().max(1)).max(1);
    let start = scores.len();
    scores.resize(start + targets.len(), Score::default());
    pool.for_each_chunk_mut(&mut scores[start..], 1, true, |row, score| {
        let of_row = row * width..(row + 1) * width;
        let target = targets[row] as usize;
        let ours = Distribution::new(&logits[of_row.clone()]);
        let theirs = reference.map(|logits| Distribution::new(&logits[of_row]));
        score[0] = Score {
            loss: ours.loss(target),
            reference_loss: theirs.as_ref().map_or(0.0, |theirs| theirs.loss(target)),
            divergence: theirs
                .as_ref()
                .map_or(0.0, |theirs| theirs.divergence(&ours)),
            same_top: theirs.is_some_and(|theirs| theirs.top == ours.top),
        };
    });
}

/// The softmax of a row of logits.
struct Distribution<'a> {
    logits: &'a [f32],
    /// The most likely token.
    top: usize,
    /// The logarithm of the sum of the exponentials of all logits.
    log_sum: f64,
}

impl<'a> Distribution<'a> {
    fn new(logits: &'a [f32]) -> Distribution<'a> {
        let (mut top, mut largest) = (0, f32::NEG_INFINITY);
        for (token, logit) in logits.iter().enumerate() {
            if *logit > largest {
                (top, largest) = (token, *logit);
            }
        }
        let sum: f64 = logits
            .iter()
            .map(|logit| f64::from((logit - largest).exp()))
            .sum();
        Distribution {
            logits,
            top,
            log_sum: f64::from(largest) + sum.ln(),
        }
    }

    fn loss(&self, token: usize) -> f64 {
        self.log_sum - self.logits.get(token).copied().map_or(0.0, f64::from)
    }

    /// Returns the Kullback-Leibler divergence of `other` from this one.
    fn divergence(&self, other: &Distribution<'_>) -> f64 {
        let shift = other.log_sum - self.log_sum;
        let pairs = self.logits.iter().zip(other.logits);
        let terms = pairs.map(|(ours, theirs)| {
            let (ours, theirs) = (f64::from(*ours), f64::from(*theirs));
            f64::from(((ours - self.log_sum) as f32).exp()) * (ours - theirs + shift)
        });
        // Rounding may leave less than nothing.
        terms.sum::<f64>().max(0.0)
    }
}

fn divergence(scores: &[Score]) -> Divergence {
    let mut sorted: Vec<f64> = scores.iter().map(|score| score.divergence).collect();
    sorted.sort_by(f64::total_cmp);
    let same = mean(scores.iter().map(|score| f64::from(score.same_top)));
    let losses = || scores.iter().map(|score| score.loss - score.reference_loss);
    Divergence {
        reference_perplexity: exp(mean(scores.iter().map(|score| score.reference_loss))),
        perplexity_ratio: exp(mean(losses())),
        mean: mean(sorted.iter().copied()),
        median: percentile(&sorted, 0.5),
        p90: percentile(&sorted, 0.9),
        p99: percentile(&sorted, 0.99),
        p999: percentile(&sorted, 0.999),
        max: percentile(&sorted, 1.0),
        same_top: same,
    }
}

/// The mean of numbers, with its standard error.
fn mean(values: impl Iterator<Item = f64>) -> Estimate {
    // Welford's recurrence: no small difference of large sums.
    let (mut n, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        n += 1.0;
        let delta = value - mean;
        mean += delta / n;
        squares += delta * (value - mean);
    }
    Estimate {
        value: mean,
        error: if n > 1.0 {
            (squares / n / (n - 1.0)).sqrt()
        } else {
            0.0
        },
    }
}

/// The exponential of an estimate.
fn exp(of: Estimate) -> Estimate {
    let value = of.value.exp();
    Estimate {
        value,
        error: value * of.error,
    }
}

/// The value below which this share of sorted numbers lies, between two of them in proportion.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = share * sorted.len().saturating_sub(1) as f64;
    let at = |idx: usize| sorted.get(idx).copied().unwrap_or(0.0);
    let (below, above) = (at(place.floor() as usize), at(place.ceil() as usize));
    below + (above - below) * place.fract()
}

/// Fewer tokens have no half to be scored.
const LEAST_WINDOW: usize = 4;
/// Logits, or hidden elements, that are there at a time: 64 MiB.
const RESULT_ELEMENTS: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_knows_its_losses_and_how_far_it_is_from_another() {
        let ours = Distribution::new(&[1.0, 2.0, 0.5]);
        let theirs = Distribution::new(&[1.5, 1.0, 0.0]);
        let softmax = |logits: [f64; 3]| {
            let sum: f64 = logits.iter().map(|x| x.exp()).sum();
            logits.map(|x| x.exp() / sum)
        };
        let (p, q) = (softmax([1.5, 1.0, 0.0]), softmax([1.0, 2.0, 0.5]));
        let expected: f64 = p.iter().zip(q).map(|(p, q)| p * (p / q).ln()).sum();
        assert!((theirs.divergence(&ours) - expected).abs() < 1e-6);
        assert!((ours.loss(2) + q[2].ln()).abs() < 1e-6);
        assert!(ours.divergence(&ours).abs() < 1e-12);
        assert_eq!((ours.top, theirs.top), (1, 0));
    }

    #[test]
    fn estimates_have_the_standard_error_of_their_mean() {
        let found = mean([1.0, 2.0, 4.0].into_iter());
        assert!((found.value - 7.0 / 3.0).abs() < 1e-12);
        // The mean of squares less the square of the mean, by one less than there are.
        let error = ((21.0 / 3.0 - 49.0 / 9.0) / 2.0_f64).sqrt();
        assert!((found.error - error).abs() < 1e-12);
        assert_eq!(percentile(&[0.0, 1.0, 2.0, 4.0], 0.5), 1.5);
        assert_eq!(percentile(&[3.0], 0.99), 3.0);
    }

    #[test]
    fn pieces_cover_all_rows_and_hold_few_logits() {
        let cut: Vec<_> = pieces(256..511, 262_144).collect();
        assert_eq!(cut.first().unwrap(), &(256..320));
        assert_eq!(cut.last().unwrap(), &(448..511));
        assert_eq!(pieces(0..1024, 8).count(), 2);
    }
}

//! What a run found.

use serde::Serialize;

use crate::{Figure, FirstToken, Test};

/// Everything that one run measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the program.
    pub version: String,
    /// Threads of the arithmetic.
    pub threads: usize,
    /// What the machine can do at most; the median of samples taken between the tests.
    pub limits: Limits,
    /// The models, in the order asked for.
    pub models: Vec<ModelReport>,
}

/// What the machine can do at most.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Limits {
    /// Bytes that all threads together read from memory in a second.
    pub read: Figure,
    /// Operations on 8-bit integers in a second.
    pub int8: Figure,
    /// The instruction that does them.
    pub int8_instruction: &'static str,
    /// Operations on floats in a second.
    pub float: Figure,
    /// The instruction that does them.
    pub float_instruction: &'static str,
}

/// What was measured of one model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// As it was named on the command line.
    pub model: String,
    /// `general.architecture` of the file.
    pub architecture: String,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// Number of its weights.
    pub n_weights: u64,
    /// Seconds from the call to a model in memory, within this process.
    pub load: Figure,
    /// Speeds.
    pub tests: Vec<TestReport>,
    /// Times to the first token of a prompt, if they were measured.
    pub first_token: Option<FirstToken>,
    /// Streaming, if it was measured.
    pub stream: Option<Stream>,
    /// What a new process takes, if it was measured.
    pub process: Option<Process>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

/// A new process that loads the model.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Seconds from starting the process to the model's first computed token.
    pub ready: Figure,
    /// Resident bytes after it, mapped file included; 0 = unknown.
    pub resident_bytes: u64,
}

/// One speed, with what it is compared to.
#[derive(Clone, Debug, Serialize)]
pub struct TestReport {
    /// What was measured, for example `pp512`.
    pub test: String,
    #[serde(skip)]
    /// The same, for programs.
    pub kind: Option<Test>,
    /// Tokens per second.
    pub speed: Figure,
    /// Tokens per second that the machine allows.
    pub limit: f64,
    /// The part of the limit that was reached, by the medians.
    pub share: f64,
    /// Other engines in the same rounds.
    pub peers: Vec<PeerFigure>,
}

/// Another engine's speed in the same test.
#[derive(Clone, Debug, Serialize)]
pub struct PeerFigure {
    /// Its name.
    pub name: String,
    /// Tokens per second.
    pub speed: Figure,
    /// Ours divided by theirs, by the medians.
    pub ratio: f64,
}

/// Tokens per second of one stream of text, from the first to the last.
#[derive(Clone, Debug, Serialize)]
pub struct Stream {
    /// Events from the engine, within the process.
    pub engine: Figure,
    /// Lines over HTTP on loopback.
    pub http: Figure,
    /// The part that HTTP loses: 0.03 = 3 %.
    pub lost: f64,
}

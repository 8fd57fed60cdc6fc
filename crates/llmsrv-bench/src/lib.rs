//! How fast a model runs: measured beside the limits of the machine and beside other engines, all in
//! the same run, because absolute figures belong to one machine on one day.
//!
//! Read in this order: `test` (what is measured), `cost` (the least it can take, from the tensors of
//! the file), `raw` (the model alone), `gpu` (a GPU that computes it), `serving` (the model behind its engine), `peer` (other
//! engines), `run` (one round of everything after the other), `report` (what comes of it). `quality` is not about
//! speed: how well a model predicts a text.

mod cost;
mod error;
mod figure;
mod gpu;
mod peer;
mod quality;
mod raw;
mod report;
mod run;
mod serving;
mod test;

pub use cost::Cost;
pub use error::Error;
pub use figure::{Figure, median};
pub use peer::PeerSpec;
pub use quality::{Divergence, Estimate, Quality, TextOptions, measure, read};
pub use report::{
    GpuReport, KernelReport, Limits, ModelReport, PeerFigure, Process, Report, Stream, TestReport,
};
pub use run::{Options, Step, bandwidth, bench_model, limits};
pub use serving::{FirstToken, Streamer, stream_rate};
pub use test::Test;

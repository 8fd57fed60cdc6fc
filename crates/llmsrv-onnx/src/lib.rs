//! ONNX models and what runs them: headers of files, graphs made in memory, ONNX Runtime with its execution providers.
//!
//! The library of ONNX Runtime is loaded while the program runs. It and the drivers below it may crash, so all that
//! calls it ([`run`], [`Runtime`]) belongs into a process of its own.

mod graph;
mod header;
mod measure;
mod runtime;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use graph::{Attribute, Constant, Graph, LARGEST, Value};
pub use header::{Header, read};
pub use measure::run;
pub use runtime::{Runtime, Session};

/// Formats of models, told by the ends of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ONNX: can be checked and run.
    Onnx,
    /// The intermediate representation of OpenVINO.
    OpenVino,
    /// Compiled for NPUs of Rockchip.
    Rknn,
    /// Compiled for accelerators of Hailo.
    Hef,
    /// TensorFlow Lite, also compiled for the Edge TPU.
    TfLite,
}

impl Format {
    /// Tells the format of a file by its name.
    pub fn of(file: &Path) -> Option<Format> {
        match file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "onnx" => Some(Format::Onnx),
            "xml" => Some(Format::OpenVino),
            "rknn" => Some(Format::Rknn),
            "hef" => Some(Format::Hef),
            "tflite" => Some(Format::TfLite),
            _ => None,
        }
    }

    /// Why models of a format cannot be run here, and what can run them.
    pub fn needs(self) -> Option<&'static str> {
        match self {
            Format::Onnx => None,
            Format::OpenVino => Some(
                "OpenVINO's benchmark_app runs it (-d NPU); give this command the ONNX file it was made of",
            ),
            Format::Rknn => Some(
                "rknn_benchmark of rknn-toolkit2 runs it on the board; give this command the ONNX file it was made of",
            ),
            Format::Hef => {
                Some("`hailortcli run` runs it; give this command the ONNX file it was made of")
            }
            Format::TfLite => Some("benchmark_model of TensorFlow Lite runs it (with libedgetpu)"),
        }
    }
}

/// What computes in ONNX Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Processor {
    /// The CPU: never counted as work of an NPU.
    Cpu,
    /// An NPU of Intel, through OpenVINO.
    OpenVino,
    /// An NPU of AMD, through Vitis AI.
    Vitis,
    /// An NPU of Qualcomm, through QNN.
    Qnn,
}

impl Processor {
    /// Returns the processor of a name: `cpu`, `openvino`, `vitis` or `qnn`.
    pub fn named(name: &str) -> Option<Processor> {
        let all = [
            Processor::Cpu,
            Processor::OpenVino,
            Processor::Vitis,
            Processor::Qnn,
        ];
        all.into_iter().find(|processor| processor.name() == name)
    }

    /// Returns the name that [`Processor::named`] knows.
    pub fn name(self) -> &'static str {
        match self {
            Processor::Cpu => "cpu",
            Processor::OpenVino => "openvino",
            Processor::Vitis => "vitis",
            Processor::Qnn => "qnn",
        }
    }

    /// The name of its execution provider.
    pub fn provider(self) -> &'static str {
        match self {
            Processor::Cpu => "CPU",
            Processor::OpenVino => "OpenVINO",
            Processor::Vitis => "Vitis AI",
            Processor::Qnn => "QNN",
        }
    }
}

/// How a run of a model went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Inputs with types and shapes, as they were given.
    pub inputs: Vec<String>,
    /// Seconds to load the model.
    pub load_seconds: f64,
    /// Seconds of each run, without the first.
    pub seconds: Vec<f64>,
}

impl Run {
    /// Shortest, median and longest run, in milliseconds.
    pub fn milliseconds(&self) -> (f64, f64, f64) {
        let mut sorted: Vec<f64> = self.seconds.iter().map(|seconds| seconds * 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        (
            at(0),
            at(sorted.len() / 2),
            at(sorted.len().saturating_sub(1)),
        )
    }
}

/// Why a model cannot be read or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    File(PathBuf, #[source] std::io::Error),
    /// The file is no model.
    #[error("this is no ONNX model: {0}")]
    Header(String),
    /// It is larger than the format can be.
    #[error(
        "{0} bytes is more than an ONNX file can have (2 GiB); weights belong into files beside it"
    )]
    TooLarge(u64),
    /// ONNX Runtime refuses it.
    #[error("{0}: {1}")]
    Runtime(&'static str, String),
    /// Inputs that cannot be made up.
    #[error("input {0}: {1}")]
    Input(String, String),
}

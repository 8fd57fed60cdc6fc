//! The outer part of ONNX files, so that a broken file gets a clear answer before any library reads it.

use std::{fs, io::Read as _, path::Path};

use prost::Message;
use serde::Serialize;

use super::{Error, graph::Opset};

/// What a model says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Header {
    /// Version of the format.
    pub ir_version: i64,
    /// Version of the standard operators.
    pub opset: i64,
    /// The program that wrote it.
    pub producer: String,
    /// Number of operations.
    pub n_nodes: usize,
    /// Names of the inputs, without those that are weights.
    pub inputs: Vec<String>,
}

/// Reads the header of a file.
pub fn read(file: &Path) -> Result<Header, Error> {
    let error = |error| Error::File(file.to_owned(), error);
    let metadata = fs::metadata(file).map_err(error)?;
    if !metadata.is_file() {
        return Err(Error::Header("it is not a file".into()));
    }
    if metadata.len() > LARGEST {
        return Err(Error::TooLarge(metadata.len()));
    }
    let mut bytes = Vec::new();
    fs::File::open(file)
        .and_then(|file| file.take(LARGEST).read_to_end(&mut bytes))
        .map_err(error)?;
    parse(&bytes)
}

/// Protocol buffers cannot be longer.
const LARGEST: u64 = 1 << 31;

/// Checks the outer part of a model.
fn parse(bytes: &[u8]) -> Result<Header, Error> {
    let refuse = |why: &str| Err(Error::Header(why.to_owned()));
    if bytes.is_empty() {
        return refuse("it is empty");
    }
    let model = match Model::decode(bytes) {
        Ok(model) => model,
        Err(error) => return refuse(&format!("it breaks off or is no protocol buffer ({error})")),
    };
    let Some(graph) = model.graph else {
        return refuse("it has no graph");
    };
    if model.ir_version < 1 {
        return refuse("it has no version of the format");
    }
    let standard = model
        .opsets
        .iter()
        .find(|opset| opset.domain.is_empty() || opset.domain == "ai.onnx");
    let Some(standard) = standard else {
        return refuse("it does not say which operators it uses");
    };
    if graph.nodes.is_empty() {
        return refuse("its graph has no operation");
    }
    let weights: Vec<&str> = graph
        .initializers
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    let names = graph.inputs.iter().map(|input| input.name.clone());
    Ok(Header {
        ir_version: model.ir_version,
        opset: standard.version,
        producer: model.producer.trim().to_owned(),
        n_nodes: graph.nodes.len(),
        inputs: names
            .filter(|name| !weights.contains(&name.as_str()))
            .collect(),
    })
}

// The parts of onnx.proto that are read; all else, above all the weights, is skipped.

#[derive(Clone, PartialEq, Message)]
struct Model {
    #[prost(int64, tag = "1")]
    ir_version: i64,
    #[prost(string, tag = "2")]
    producer: String,
    #[prost(message, optional, tag = "7")]
    graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    opsets: Vec<Opset>,
}

#[derive(Clone, PartialEq, Message)]
struct Graph {
    #[prost(message, repeated, tag = "1")]
    nodes: Vec<Node>,
    #[prost(message, repeated, tag = "5")]
    initializers: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    inputs: Vec<ValueInfo>,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(string, tag = "4")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(string, tag = "8")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ValueInfo {
    #[prost(string, tag = "1")]
    name: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model() -> Model {
        Model {
            ir_version: 8,
            producer: "test".into(),
            graph: Some(Graph {
                nodes: vec![Node {
                    kind: "MatMul".into(),
                }],
                initializers: vec![Tensor { name: "w".into() }],
                inputs: vec![
                    ValueInfo { name: "x".into() },
                    ValueInfo { name: "w".into() },
                ],
            }),
            opsets: vec![Opset {
                domain: String::new(),
                version: 17,
            }],
        }
    }

    #[test]
    fn a_model_tells_its_inputs_and_not_its_weights() {
        let header = parse(&model().encode_to_vec()).unwrap();
        assert_eq!(
            (header.ir_version, header.opset, header.n_nodes),
            (8, 17, 1)
        );
        assert_eq!(header.inputs, ["x"]);
    }

    #[test]
    fn what_is_no_model_is_refused_with_the_reason() {
        let whole = model().encode_to_vec();
        let check = |bytes: &[u8], why: &str| {
            let error = parse(bytes).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        check(&[], "empty");
        check(&whole[..whole.len() - 1], "breaks off");
        check(b"\x89PNG\r\n\x1a\n", "protocol buffer");
        check(
            &Model {
                graph: None,
                ..model()
            }
            .encode_to_vec(),
            "no graph",
        );
        check(
            &Model {
                opsets: Vec::new(),
                ..model()
            }
            .encode_to_vec(),
            "operators",
        );
        check(
            &Model {
                graph: Some(Graph::default()),
                ..model()
            }
            .encode_to_vec(),
            "no operation",
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>, at: prop::sample::Index, with: u8) {
            let _ = parse(&bytes);
            let mut broken = model().encode_to_vec();
            let at = at.index(broken.len());
            broken[at] = with;
            if let Ok(header) = parse(&broken) {
                prop_assert!(header.n_nodes > 0);
            }
        }
    }
}

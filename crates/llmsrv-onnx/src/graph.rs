//! Graphs of operations, written as ONNX models (<https://github.com/onnx/onnx/blob/main/docs/IR.md>, operators of
//! version 17).

use prost::Message;

use crate::Error;

/// A value in a graph: an input, a constant, or what an operation makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value(u32);

impl Value {
    /// Returns its name in the model.
    pub(crate) fn name(self) -> String {
        format!("v{}", self.0)
    }
}

/// Numbers that belong to a graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// The numbers themselves.
    F32(Vec<f32>),
    /// Shapes, and positions of cuts.
    I64(Vec<i64>),
    /// Numbers that somebody else holds under a key and writes when the model is written, so that a graph is small.
    Held {
        /// The key.
        key: usize,
        /// They are written as f16, and made f32 where they are used. All else is f32.
        narrow: bool,
    },
}

/// An attribute of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f32),
    /// A list of whole numbers.
    Ints(Vec<i64>),
}

/// Operations with their inputs and constants. Two graphs that are equal are the same model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    n_values: u32,
    inputs: Vec<(Value, Vec<usize>)>,
    constants: Vec<(Value, Vec<usize>, Constant)>,
    operations: Vec<Operation>,
}

#[derive(Clone, Debug, PartialEq)]
struct Operation {
    kind: &'static str,
    inputs: Vec<Value>,
    output: Value,
    attributes: Vec<(&'static str, Attribute)>,
}

/// Protocol buffers cannot be longer.
pub const LARGEST: u64 = (1 << 31) - 1;

impl Graph {
    /// Adds an input of f32.
    pub fn input(&mut self, shape: &[usize]) -> Value {
        let value = self.value();
        self.inputs.push((value, shape.to_vec()));
        value
    }

    /// Adds a constant. One that is there already is taken again.
    pub fn constant(&mut self, shape: &[usize], constant: Constant) -> Value {
        let known = self
            .constants
            .iter()
            .find(|(_, its_shape, known)| its_shape == shape && *known == constant);
        if let Some((value, ..)) = known {
            return *value;
        }
        let value = self.value();
        self.constants.push((value, shape.to_vec(), constant));
        value
    }

    /// Adds an operation with one output.
    pub fn operation(
        &mut self,
        kind: &'static str,
        inputs: &[Value],
        attributes: &[(&'static str, Attribute)],
    ) -> Value {
        let output = self.value();
        self.operations.push(Operation {
            kind,
            inputs: inputs.to_vec(),
            output,
            attributes: attributes.to_vec(),
        });
        output
    }

    fn value(&mut self) -> Value {
        self.n_values += 1;
        Value(self.n_values)
    }

    /// Writes the model that computes `output`, of `shape`. `held` writes the numbers of a key, little end first.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the format cannot hold it.
    pub fn to_bytes(
        &self,
        output: Value,
        shape: &[usize],
        held: &dyn Fn(usize) -> Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        let bytes = self.constants.iter().map(|(_, shape, constant)| {
            let n: u64 = shape.iter().map(|n| *n as u64).product();
            match constant {
                Constant::F32(_) | Constant::Held { narrow: false, .. } => 4 * n,
                Constant::I64(_) => 8 * n,
                Constant::Held { narrow: true, .. } => 2 * n,
            }
        });
        let bytes: u64 = bytes.sum();
        // Names and operations are little beside them.
        if bytes > LARGEST - (1 << 24) {
            return Err(Error::TooLarge(bytes));
        }
        let mut nodes = Vec::new();
        let mut initializers = Vec::new();
        for (value, shape, constant) in &self.constants {
            let mut name = value.name();
            let (kind, raw) = match constant {
                Constant::F32(values) => {
                    (F32, values.iter().flat_map(|v| v.to_le_bytes()).collect())
                }
                Constant::I64(values) => {
                    (I64, values.iter().flat_map(|v| v.to_le_bytes()).collect())
                }
                Constant::Held { key, narrow: false } => (F32, held(*key)),
                Constant::Held { key, narrow: true } => {
                    let narrow = format!("{name}h");
                    nodes.push(Node {
                        inputs: vec![narrow.clone()],
                        outputs: vec![std::mem::replace(&mut name, narrow)],
                        name: format!("n{}", value.0),
                        kind: "Cast".into(),
                        attributes: vec![attribute("to", &Attribute::Int(i64::from(F32)))],
                    });
                    (F16, held(*key))
                }
            };
            initializers.push(Tensor {
                dims: shape.iter().map(|n| *n as i64).collect(),
                data_type: kind,
                name,
                raw,
            });
        }
        nodes.extend(self.operations.iter().map(|operation| {
            Node {
                inputs: operation.inputs.iter().map(|value| value.name()).collect(),
                outputs: vec![operation.output.name()],
                name: format!("n{}", operation.output.0),
                kind: operation.kind.to_owned(),
                attributes: operation
                    .attributes
                    .iter()
                    .map(|(name, value)| attribute(name, value))
                    .collect(),
            }
        }));
        let model = Model {
            ir_version: IR_VERSION,
            producer: "llmsrv".into(),
            graph: Some(GraphProto {
                nodes,
                name: "model".into(),
                initializers,
                inputs: self
                    .inputs
                    .iter()
                    .map(|(value, shape)| info(*value, shape))
                    .collect(),
                outputs: vec![info(output, shape)],
            }),
            opsets: vec![Opset {
                domain: String::new(),
                version: OPSET,
            }],
        };
        Ok(model.encode_to_vec())
    }
}

/// The version of the format that came with the operators.
const IR_VERSION: i64 = 8;
/// The first one with `LayerNormalization`; later ones bring nothing that is needed, and fewer providers have them.
const OPSET: i64 = 17;
// `TensorProto.DataType`.
const F32: i32 = 1;
const I64: i32 = 7;
const F16: i32 = 10;

fn attribute(name: &str, value: &Attribute) -> AttributeProto {
    let mut attribute = AttributeProto {
        name: name.to_owned(),
        ..AttributeProto::default()
    };
    // `AttributeProto.AttributeType`.
    match value {
        Attribute::Float(number) => (attribute.float, attribute.kind) = (Some(*number), 1),
        Attribute::Int(number) => (attribute.int, attribute.kind) = (Some(*number), 2),
        Attribute::Ints(numbers) => (attribute.ints, attribute.kind) = (numbers.clone(), 7),
    }
    attribute
}

fn info(value: Value, shape: &[usize]) -> ValueInfo {
    let dims = shape.iter().map(|n| Dim {
        value: Some(*n as i64),
    });
    ValueInfo {
        name: value.name(),
        kind: Some(Type {
            tensor: Some(TensorType {
                element: F32,
                shape: Some(Shape {
                    dims: dims.collect(),
                }),
            }),
        }),
    }
}

// The parts of onnx.proto that are written.

#[derive(Clone, PartialEq, Message)]
struct Model {
    #[prost(int64, tag = "1")]
    ir_version: i64,
    #[prost(string, tag = "2")]
    producer: String,
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    opsets: Vec<Opset>,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    nodes: Vec<Node>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "5")]
    initializers: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    outputs: Vec<ValueInfo>,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(string, repeated, tag = "1")]
    inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    outputs: Vec<String>,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    kind: String,
    #[prost(message, repeated, tag = "5")]
    attributes: Vec<AttributeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(float, optional, tag = "2")]
    float: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    int: Option<i64>,
    #[prost(int64, repeated, tag = "8")]
    ints: Vec<i64>,
    #[prost(int32, tag = "20")]
    kind: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "vec", tag = "9")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ValueInfo {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    kind: Option<Type>,
}

#[derive(Clone, PartialEq, Message)]
struct Type {
    #[prost(message, optional, tag = "1")]
    tensor: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorType {
    #[prost(int32, tag = "1")]
    element: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<Shape>,
}

#[derive(Clone, PartialEq, Message)]
struct Shape {
    #[prost(message, repeated, tag = "1")]
    dims: Vec<Dim>,
}

#[derive(Clone, PartialEq, Message)]
struct Dim {
    #[prost(int64, optional, tag = "1")]
    value: Option<i64>,
}

/// A set of operators and its version, as files name it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Opset {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(int64, tag = "2")]
    pub(crate) version: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_written_with_its_numbers() {
        let mut graph = Graph::default();
        let x = graph.input(&[2, 4]);
        let weights = graph.constant(
            &[3, 4],
            Constant::Held {
                key: 7,
                narrow: true,
            },
        );
        let bias = graph.constant(&[3], Constant::F32(vec![1.0; 3]));
        assert_eq!(
            graph.constant(
                &[3, 4],
                Constant::Held {
                    key: 7,
                    narrow: true
                }
            ),
            weights
        );
        let y = graph.operation(
            "Gemm",
            &[x, weights, bias],
            &[("transB", Attribute::Int(1))],
        );
        let held = |key: usize| vec![key as u8; 24];
        let bytes = graph.to_bytes(y, &[2, 3], &held).unwrap();
        let model = Model::decode(&bytes[..]).unwrap();
        let written = model.graph.unwrap();
        let kinds: Vec<&str> = written.nodes.iter().map(|node| &*node.kind).collect();
        assert_eq!(kinds, ["Cast", "Gemm"]);
        assert_eq!(written.nodes[0].outputs, written.nodes[1].inputs[1..2]);
        assert_eq!(written.initializers[0].raw, [7; 24]);
        assert_eq!(written.inputs.len(), 1, "weights are no inputs");
    }

    #[test]
    fn what_the_format_cannot_hold_is_refused() {
        let mut graph = Graph::default();
        let weights = graph.constant(
            &[1 << 20, 1 << 10],
            Constant::Held {
                key: 0,
                narrow: true,
            },
        );
        let held = |_: usize| panic!("nothing is written");
        let error = graph.to_bytes(weights, &[1], &held).unwrap_err();
        assert!(error.to_string().contains("2 GiB"), "{error}");
    }
}

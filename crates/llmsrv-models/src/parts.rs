//! The parts of a decoder that may lie apart from each other, and where they lie.

/// A part of a decoder that may lie apart from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What comes before the first layer.
    Input,
    /// A layer.
    Layer(usize),
    /// The experts of a layer, but for what all rows go through.
    Experts(usize),
    /// What comes after the last layer.
    Output,
}

/// Where a part of a model lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// In the memory of the machine.
    Host,
    /// On one of the GPUs.
    Gpu(usize),
}

/// Where all parts of a model lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// What comes before the first layer.
    pub input: At,
    /// The layers.
    pub layers: Vec<At>,
    /// Their experts.
    pub experts: Vec<At>,
    /// What comes after the last layer.
    pub output: At,
}

impl Placement {
    /// Returns where a part lies.
    pub(crate) fn of(&self, part: Part) -> At {
        let of = |list: &[At], layer: usize| list.get(layer).copied().unwrap_or(At::Host);
        match part {
            Part::Input => self.input,
            Part::Layer(layer) => of(&self.layers, layer),
            Part::Experts(layer) => of(&self.experts, layer),
            Part::Output => self.output,
        }
    }

    /// Returns whether the CPU computes any part.
    pub(crate) fn uses_host(&self) -> bool {
        let mut all = self.layers.iter().chain(&self.experts);
        all.any(|at| *at == At::Host) || self.output == At::Host
    }
}

//! What comes to the engine's thread.

use tokio::sync::mpsc::UnboundedSender;

use crate::{Event, GenRequest, embed::EmbedInput, grammar::Constraint};

/// What is sent to the engine thread.
pub(crate) enum Work {
    Generate(Box<Submission>),
    Embed(Vec<EmbedInput>),
    /// What computes the model is gone, and why.
    DeviceLost(String),
}

/// A checked request on its way to the engine thread.
pub(crate) struct Submission {
    pub(crate) request: GenRequest,
    pub(crate) constraint: Option<Constraint>,
    pub(crate) events: UnboundedSender<Event>,
}

//! The binary form of the protocol, record by record: what a record holds is counted before it is
//! decoded, for an empty value takes two bytes there and a hundred in memory.

use logkit_proto::{
    otlp::{Resource, Scope},
    wire::{Fields, Malformed},
};
use prost::Message;

use super::{Origin, too_large, unreadable};
use crate::{body::SINGLE_BYTES, json::MAX_VALUES, refusal::Refusal};

/// Messages that hold others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Log,
    Span,
    Event,
    Status,
    Resource,
    Scope,
    Pair,
    Any,
    Array,
    List,
}

impl Kind {
    /// What the field of that number holds.
    fn within(self, number: u64) -> Option<Kind> {
        Some(match (self, number) {
            (Kind::Log, 5) | (Kind::Pair, 2) | (Kind::Array, 1) => Kind::Any,
            (Kind::Log, 6)
            | (Kind::Span, 9)
            | (Kind::Event, 3)
            | (Kind::Resource | Kind::List, 1) => Kind::Pair,
            (Kind::Span, 11) => Kind::Event,
            (Kind::Span, 15) => Kind::Status,
            (Kind::Any, 5) => Kind::Array,
            (Kind::Any, 6) => Kind::List,
            _ => return None,
        })
    }
}

/// Decodes a message within the limits of a record.
pub(super) fn read<M: Message + Default>(bytes: &[u8], kind: Kind) -> Result<M, Refusal> {
    if bytes.len() > SINGLE_BYTES {
        return Err(too_large());
    }
    let mut left = MAX_VALUES;
    let mut messages = vec![(kind, bytes)];
    while let Some((kind, bytes)) = messages.pop() {
        for field in Fields::new(bytes) {
            let (number, held) = field.map_err(malformed)?;
            left = left.checked_sub(1).ok_or_else(too_large)?;
            if let (Some(kind), Some(held)) = (kind.within(number), held) {
                messages.push((kind, held));
            }
        }
    }
    // The decoder itself bounds how deep messages lie in each other.
    M::decode(bytes).map_err(|error| unreadable(error.to_string()))
}

/// Calls for the bytes of each record, with what is said of all beside it.
pub(super) fn each(
    body: &[u8],
    mut take: impl FnMut(&Origin, &Scope, &[u8]) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    for of_resource in messages(body, 1) {
        let of_resource = of_resource?;
        let resource: Resource = match messages(of_resource, 1).last().transpose()? {
            Some(bytes) => read(bytes, Kind::Resource)?,
            None => Resource::default(),
        };
        let origin = Origin::new(resource.attributes);
        for of_scope in messages(of_resource, 2) {
            let of_scope = of_scope?;
            let scope: Scope = match messages(of_scope, 1).last().transpose()? {
                Some(bytes) => read(bytes, Kind::Scope)?,
                None => Scope::default(),
            };
            for record in messages(of_scope, 2) {
                take(&origin, &scope, record?)?;
            }
        }
    }
    Ok(())
}

/// The messages in the field of that number.
fn messages(message: &[u8], wanted: u64) -> impl Iterator<Item = Result<&[u8], Refusal>> {
    Fields::new(message).filter_map(move |field| match field {
        Ok((number, Some(bytes))) if number == wanted => Some(Ok(bytes)),
        Ok((number, None)) if number == wanted => Some(Err(malformed(Malformed))),
        Ok(_) => None,
        Err(error) => Some(Err(malformed(error))),
    })
}

fn malformed(_: Malformed) -> Refusal {
    unreadable("The request is no message of this protocol")
}

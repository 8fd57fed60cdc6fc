//! The codec of the service: messages are measured before they are decoded. Two bytes of an encoded
//! message can become hundreds of bytes of memory.

use std::marker::PhantomData;

use prost::{Message, bytes::Buf as _};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::{
    v1::{BatchLogRequest, BatchLogResponse, LogRequest, LogResponse, QueryRequest, QueryResponse},
    wire::{Fields, Malformed},
};

/// Bytes of an entry, at most; over HTTP it is the same.
pub const ENTRY_BYTES: usize = 1 << 20;
/// Fields of an entry, at most.
const ENTRY_FIELDS: usize = 32_768;
/// Entries of a batch, at most.
const BATCH_ENTRIES: usize = 50_000;
/// Memory of a decoded batch, beside three times its encoded bytes.
const BATCH_SPARE: usize = 8 << 20;
/// Memory of one field, beside its text.
const FIELD_BYTES: usize = 64;
/// Bytes of a query, at most.
const QUERY_BYTES: usize = 64 << 10;

/// Refuses a message that is too large before it is decoded.
pub trait Limited {
    /// Looks at the encoded message.
    ///
    /// # Errors
    ///
    /// The status that the call ends with.
    fn check(encoded: &[u8]) -> Result<(), Status> {
        let _ = encoded;
        Ok(())
    }
}

impl Limited for LogRequest {
    fn check(encoded: &[u8]) -> Result<(), Status> {
        entry(encoded).map(|_| ())
    }
}

impl Limited for BatchLogRequest {
    fn check(encoded: &[u8]) -> Result<(), Status> {
        let (mut n_entries, mut n_fields) = (0_usize, 0);
        for field in Fields::new(encoded) {
            if let (1, Some(request)) = field.map_err(malformed)? {
                n_entries += 1;
                n_fields += entry(request)?;
            }
            if n_entries > BATCH_ENTRIES {
                return Err(Status::invalid_argument(format!(
                    "a batch may have at most {BATCH_ENTRIES} entries"
                )));
            }
        }
        let decoded = n_entries * size_of::<LogRequest>() + n_fields * FIELD_BYTES;
        if decoded > 3 * encoded.len() + BATCH_SPARE {
            return Err(Status::resource_exhausted(
                "the entries of this batch take too much memory; send fewer at a time",
            ));
        }
        Ok(())
    }
}

impl Limited for QueryRequest {
    fn check(encoded: &[u8]) -> Result<(), Status> {
        if encoded.len() > QUERY_BYTES {
            return Err(Status::resource_exhausted(format!(
                "a query may have at most {QUERY_BYTES} bytes"
            )));
        }
        Ok(())
    }
}

impl Limited for LogResponse {}
impl Limited for BatchLogResponse {}
impl Limited for QueryResponse {}

/// The number of fields that an entry has.
fn entry(encoded: &[u8]) -> Result<usize, Status> {
    if encoded.len() > ENTRY_BYTES {
        return Err(Status::resource_exhausted(format!(
            "an entry may have at most {ENTRY_BYTES} bytes"
        )));
    }
    let mut n_fields = 0;
    for field in Fields::new(encoded) {
        field.map_err(malformed)?;
        n_fields += 1;
    }
    if n_fields > ENTRY_FIELDS {
        return Err(Status::resource_exhausted(format!(
            "an entry may have at most {ENTRY_FIELDS} values"
        )));
    }
    Ok(n_fields)
}

fn malformed(_: Malformed) -> Status {
    Status::invalid_argument("the message cannot be decoded")
}

/// Protobuf, within [`Limited`].
#[derive(Clone, Copy, Debug)]
pub struct Bounded<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Bounded<T, U> {
    fn default() -> Self {
        Bounded(PhantomData)
    }
}

impl<T, U> Codec for Bounded<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Limited + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<T, U>::default().decoder())
    }
}

/// Decodes what is within its limits.
#[derive(Debug)]
pub struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default + Limited> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, encoded: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // All of the message lies in one piece.
        U::check(encoded.chunk())?;
        self.0.decode(encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_that_would_take_much_memory_are_refused() {
        let empty_entries = [0x0a, 0].repeat(8 << 20);
        assert!(BatchLogRequest::check(&empty_entries).is_err());
        let empty_entries = [0x0a, 0].repeat(40_000);
        assert!(BatchLogRequest::check(&empty_entries).is_err());
        let empty_args = [0x12, 0].repeat(ENTRY_FIELDS + 1);
        assert!(LogRequest::check(&empty_args).is_err());
        let large = LogRequest {
            output: "x".repeat(ENTRY_BYTES),
            ..LogRequest::default()
        };
        assert!(LogRequest::check(&large.encode_to_vec()).is_err());
        let usual = LogRequest {
            cmd: "backup --all /home/user/documents".into(),
            output: "x".repeat(400),
            ..LogRequest::default()
        };
        let batch = BatchLogRequest {
            entries: vec![usual; BATCH_ENTRIES],
        };
        assert!(BatchLogRequest::check(&batch.encode_to_vec()).is_ok());
    }
}

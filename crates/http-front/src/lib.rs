//! What stands in front of the routes of both servers: connections with or without TLS and how many
//! of them, names and web pages that are refused, keys, bodies that come too slowly or are too large, and
//! threads for work that takes long. One client does not disturb the others.
#![forbid(unsafe_code)]

mod accept;
mod background;
mod body;
mod connection_limits;
mod connections;
mod keys;
mod read;
mod site;
mod tls;

pub use background::{Failed, run_in_background};
pub use body::MinRateBody;
pub use connection_limits::{ConnectionLimits, ConnectionPermit, Running, network};
pub use connections::{Front, Peer};
pub use keys::{KeyDigest, sent_keys, strip_bearer};
pub use read::{
    BodyError, Budget, FREE_BYTES, MAX_DENSITY, Share, bound_decompressed, count_compressed,
    is_too_dense, read_body,
};
pub use site::{Reach, called_host, is_origin_of, is_own_host, is_same_origin};
pub use tls::{PemFiles, Tls, TlsError};

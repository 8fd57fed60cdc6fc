//! Answer of `GET /api/requests`.

use serde::Serialize;
use utoipa::ToSchema;

/// The latest requests, newest first. What the web page itself asks for again and again is not
/// among them, nor are probes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct LatestRequests {
    /// At most 200.
    pub requests: Vec<PastRequest>,
}

/// A request that is over. Never its body, and of its key only the name.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PastRequest {
    /// When it ended: RFC 3339, UTC.
    pub ended_at: String,
    /// Method of HTTP.
    pub method: String,
    /// Path without the query, its first 200 bytes.
    pub path: String,
    /// Status of the answer; 499 if the client left before there was one.
    pub status: u16,
    /// From its arrival until the answer was sent.
    pub milliseconds: u64,
    /// Bytes of the answer's body.
    pub bytes: u64,
    /// Address of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Name of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

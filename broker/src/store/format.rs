//! The lines of the file. The first is the [`Header`]; each session is a line, its messages are the
//! lines behind it in the order in which they are sent; the last line is the end.

use std::num::NonZeroU16;

use push_model::time::UnixMillis;
use serde::{Deserialize, Serialize};

/// What the header calls the file.
pub(super) const FORMAT: &str = "push-mqtt-sessions";

/// The version of these lines.
pub(super) const VERSION: u32 = 1;

/// The longest line, in bytes: the largest message in base64, and the rest of its line.
pub(super) const MAX_LINE: usize =
    (crate::connection::WORKER_PACKET as usize).div_ceil(3) * 4 + 1024;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: String,
    pub(super) version: u32,
}

/// Every other line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Session(SessionLine),
    Message(MessageLine),
    End(EndLine),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SessionLine {
    pub(super) app: String,
    pub(super) generation: u64,
    pub(super) client: String,
    pub(super) registration: String,
    /// The QoS of its subscription, if it has one.
    pub(super) qos: Option<u8>,
    /// When it ends, if its device was away.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) ends_at: Option<UnixMillis>,
    /// How long it is to be kept, in seconds, if its device was connected: from the next start on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) keep: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MessageLine {
    /// Its packet identifier, if it was sent and not acknowledged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) id: Option<NonZeroU16>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) expires_at: Option<UnixMillis>,
    /// In base64.
    pub(super) payload: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EndLine {
    /// Of all bytes before this line.
    pub(super) sha256: String,
}

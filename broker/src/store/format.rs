//! The lines of the file: the [`Header`], then each session followed by its messages in sending order,
//! then the end.

use std::num::NonZeroU16;

use push_model::time::UnixMillis;
use serde::{Deserialize, Serialize};

/// The format's name in the header.
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
    /// The end of the session, if its device was away.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) ends_at: Option<UnixMillis>,
    /// If its device was connected: the seconds for which it is kept after the next start.
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
    /// The hash of all bytes before this line.
    pub(super) sha256: String,
}

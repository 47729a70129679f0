//! The beginning of a request's body, which is the same for all devices: the payload as it is.

use std::io::Write as _;

use bytes::Bytes;
use push_model::{
    device::{MAX_TOKEN_LEN, TransportKind},
    ids::ClientId,
};

use crate::{TooLarge, content::Content};

/// The longest body (Standard Webhooks advises against more than 20 kB).
pub(super) const MAX_BODY_LEN: usize = 20_000;

/// The most bytes that one device adds: each character of its token may need a backslash.
const MAX_DEVICE_LEN: usize = 2 * MAX_TOKEN_LEN + ClientId::MAX_LEN + 32;

/// The bytes behind the devices.
pub(super) const END: &[u8] = b"]}";

/// The longest beginning of a body, with which every device fits in.
pub(super) const MAX_BEGINNING_LEN: usize = MAX_BODY_LEN - MAX_DEVICE_LEN - END.len();

/// A message for a receiver.
#[derive(Debug, Clone)]
pub struct Message {
    /// The body up to the first device.
    pub(super) beginning: Bytes,
}

impl Message {
    /// Builds the beginning of the body.
    ///
    /// # Errors
    /// If a device would not always fit in behind it.
    pub(super) fn new(content: &Content<'_>) -> Result<Self, TooLarge> {
        let id = content.payload.message_id;
        let mut beginning = Vec::with_capacity(content.bytes.len() + 96);
        // Writing to memory does not fail.
        let _ = write!(beginning, r#"{{"type":"push","message_id":"{id}","payload":"#);
        beginning.extend_from_slice(content.bytes);
        beginning.extend_from_slice(br#","devices":["#);
        let (size, limit) = (beginning.len(), MAX_BEGINNING_LEN);
        if size > limit {
            return Err(TooLarge { kind: TransportKind::Webhook, size, limit });
        }
        Ok(Self { beginning: beginning.into() })
    }
}

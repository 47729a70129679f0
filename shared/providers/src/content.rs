//! The content of a payload, read once for all providers.

use push_model::message::Payload;

/// The content of a message: its payload, read.
#[derive(Debug)]
pub struct Content<'a> {
    /// The payload.
    pub payload: Payload<'a>,
    /// Its bytes, as an MQTT device receives them.
    pub bytes: &'a [u8],
}

impl<'a> Content<'a> {
    /// Reads the bytes of a payload.
    ///
    /// # Errors
    /// If they are no payload.
    pub fn read(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        Ok(Self { payload: serde_json::from_slice(bytes)?, bytes })
    }
}

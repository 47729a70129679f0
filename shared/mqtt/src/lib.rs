//! How a client reaches an MQTT 5 broker: its URL, TLS, and the handshake.
//!
//! The worker's transport and the devices that `pushctl` plays use the same code, so that both
//! understand the same URLs and give the same errors.

pub mod handshake;
mod url;

pub use self::url::{BadMqttUrl, MqttUrl};

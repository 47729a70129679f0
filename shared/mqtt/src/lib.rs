//! The client's way to an MQTT 5 broker: its URL, TLS, and the handshake.
//!
//! The worker's transport and the test devices of `pushctl` share this code, so that they accept
//! the same URLs and return the same errors. [`subscriber`] is such a device.

pub mod handshake;
pub mod subscriber;
mod url;

pub use self::url::{BadMqttUrl, MqttUrl};

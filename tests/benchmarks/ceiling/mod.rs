//! Ceilings: programs and clients that do the unavoidable part of the work
//! and nothing else.
//!
//! - `bare_server`: an HTTP server that only parses and answers, beside `ingest`
//! - `ingest_alone`: `ingest` with a queue that takes no processor time
//! - `raw_publisher`: confirmed AMQP publishes
//! - `raw_mqtt_client`: MQTT publishes, beside the worker
//! - `raw_http2_client`: requests over HTTP/2, beside the worker
//! - `raw_encryption`: the encryption of Web Push
//! - `peer_server`: starts the first two as processes of their own
//!
//! The servers and the two clients are this program with hidden flags.

pub(crate) mod bare_server;
pub(crate) mod ingest_alone;
pub(crate) mod peer_server;
pub(crate) mod raw_encryption;
pub(crate) mod raw_http2_client;
pub(crate) mod raw_mqtt_client;
pub(crate) mod raw_publisher;

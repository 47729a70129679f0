//! Delivery by workers.
//!
//! - `settled`: pushes to one device each; `named`: to a thousand each
//! - `fanout`: a broadcast to `discard`; `mqtt`: a broadcast over MQTT
//! - `isolation`: other pushes while a broadcast runs
//! - `tenants`: pushes while another app does its worst
//! - `viewers`: pushes and stores while many watch the console
//! - `transports`: a broadcast while one of two transports is slow, silent or dead
//! - `phones`: broadcasts over FCM and Web Push
//! - `arrivals`: how long pushes to an MQTT device take, for `settled`, `isolation`,
//!   `tenants` and `viewers`

mod arrivals;
pub(super) mod fanout;
pub(super) mod isolation;
pub(super) mod mqtt;
pub(super) mod named;
pub(super) mod phones;
pub(super) mod settled;
pub(super) mod tenants;
pub(super) mod transports;
pub(super) mod viewers;

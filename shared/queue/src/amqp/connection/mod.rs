//! Connections to the server: opened in order, named for the operator, never repaired.
//!
//! Publisher, each consumer, and the operator's requests have a connection of their own: RabbitMQ
//! stops reading from a connection that publishes while it is short of memory or disk, and acks
//! must not wait for that. A connection that breaks is not recovered; its owner opens another one
//! and applies everything again, prefetch included, which automatic recovery in the client library
//! was seen to omit. This is also how it moves to another host of a cluster.
//!
//! - `dialer`: opens a connection, with everything declared on its first channel
//! - `hosts`: the hosts of the URL, and which one is tried first
//! - `socket`: the socket of a connection, encrypted or not
//! - `server_properties`: the server's first frame, read without the client library
//! - `backoff`: the pauses between attempts
//! - `control`: the connection for the operator's requests

mod backoff;
mod control;
mod dialer;
mod hosts;
mod server_properties;
mod socket;

pub use self::hosts::check_url;
pub(super) use self::{
    backoff::ReconnectBackoff,
    control::ControlConnection,
    dialer::{Dialer, Link},
};

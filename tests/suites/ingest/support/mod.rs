//! What the tests of this suite share: a service of their own, and a client that sends any bytes.

pub(crate) mod client;
mod sent;
pub(crate) mod service;

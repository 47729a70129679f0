//! TLS: the certificates of listeners, and connections to servers that must prove who they are.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod files;
mod handshakes;
mod listeners;
mod support;

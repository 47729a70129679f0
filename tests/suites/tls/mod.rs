//! TLS: the certificates of listeners, and connections to servers that must prove who they are.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod doctor;
mod end_to_end;
mod files;
mod handshakes;
mod links;
mod listeners;
mod support;

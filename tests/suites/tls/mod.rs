//! TLS: the certificates of listeners, and connections to servers that must prove who they are.

mod doctor;
mod end_to_end;
mod files;
mod handshakes;
mod links;
mod listeners;
mod support;

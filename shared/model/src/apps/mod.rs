//! Apps, their secrets, and what they may use.

pub mod app;
pub mod id_key;
pub mod pace;
pub mod secret;
pub mod transfer;
pub mod usage;

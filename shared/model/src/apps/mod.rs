//! Apps, their secrets, and what they may use.
//!
//! - `app`: an app's record
//! - `secret`: secrets and their hashes
//! - `pace`: the devices a second that all workers together send to
//! - `usage`: what an app uses of its quotas of messages
//! - `id_key`: derives message ids from idempotency keys
//! - `transfer`: apps that are moved or restored

pub mod app;
pub mod id_key;
pub mod pace;
pub mod secret;
pub mod transfer;
pub mod usage;

//! Apps, and what operators see of all of them.
//!
//! - `records`: an app's record from its creation to its removal
//! - `removal`: a removed app and the next app of its name share nothing
//! - `secret_uses`: when the secrets of an app were last used
//! - `usage`: what an app uses of its quotas of messages
//! - `admin_keys`: keys of the admin API
//! - `audit`: the audit trail
//! - `components`: running programs
//! - `transfer`: apps that come from another store
//! - `pacing`: how many devices of a paced app may be sent to, and when

pub(crate) mod admin_keys;
pub(crate) mod audit;
pub(crate) mod components;
pub(crate) mod pacing;
pub(crate) mod records;
pub(crate) mod removal;
pub(crate) mod secret_uses;
pub(crate) mod transfer;
pub(crate) mod usage;

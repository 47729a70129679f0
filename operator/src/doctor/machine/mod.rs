//! This machine.
//!
//! - `limits`: memory that Redis can rely on, and descriptors
//! - `files`: who can read the embedded engines, keys and passwords

pub(super) mod files;
pub(super) mod limits;

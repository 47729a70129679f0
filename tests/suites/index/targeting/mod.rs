//! Which devices a broadcast reaches.
//!
//! - `scanning`: reading and counting the devices that match, page by page
//! - `model`: random registrations and targetings, compared with a map in memory

pub(crate) mod model;
pub(crate) mod scanning;

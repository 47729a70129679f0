//! What ingest keeps in memory of each app, so that a push costs no round trip to the index.
//!
//! - `cache`: app records, read again every few seconds;
//! - `entry`: what the cache keeps for one App ID;
//! - `rate_limit`: how many pushes a second an app may still send to this process.

mod cache;
mod entry;
mod rate_limit;

pub(crate) use self::{cache::AppCache, entry::CachedApp, rate_limit::Quota};

#[cfg(test)]
mod tests;

//! The memory of `ingest` about each app, so that a push costs no round trip to the index.
//!
//! - `logins`: the app of a request, if the request has its secret;
//! - `cache`: app records, read again every few seconds;
//! - `directory`: which apps exist, for addresses that failed too often;
//! - `entry`: what the cache keeps for one App ID;
//! - `activity`: when its secrets were last used, and how many were wrong;
//! - `carriers`: which transports may carry its messages;
//! - `counts`: the turn to count an audience of it, and the last count;
//! - `device_usage`: how many devices it has, for its quota;
//! - `message_quotas`: how many of its messages wait, and have ledger entries, for its quotas;
//! - `recent_keys`: the bodies that its idempotency keys were used for lately;
//! - `usage_leaks`: what counts as waiting though it does not;
//! - `recalls`: how many recalls of it may be in work;
//! - `rate_limit`: how many pushes and other calls a second an app may still send to this process.

mod activity;
mod cache;
mod carriers;
mod counts;
mod device_usage;
mod directory;
mod entry;
mod logins;
mod message_quotas;
mod rate_limit;
mod recalls;
mod recent_keys;
mod usage_leaks;

pub(crate) use self::{
    counts::CountTurn,
    device_usage::{COUNT_PAUSE, DevicePlace},
    entry::CachedApp,
    logins::{Caller, Logins, app_id},
    message_quotas::{MessagePlaces, MessageUsage},
    recalls::RecallPermit,
    recent_keys::RecentKeys,
    usage_leaks::{LOOK_EVERY, UsageLeaks, claim},
};

#[cfg(test)]
mod tests;

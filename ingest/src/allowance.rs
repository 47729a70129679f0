//! The rest of an app's rate limits and quotas, as answers show it.

use std::num::NonZeroU32;

/// The rest of a rate limit, in the terms of the `RateLimit-*` headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RateStatus {
    /// Pushes per second, or other calls.
    pub(crate) limit: u32,
    /// The number that would be allowed now.
    pub(crate) remaining: u32,
    /// Whole seconds until `remaining` is `limit` again.
    pub(crate) reset: u64,
    /// Whole seconds until the next one is allowed; 0 if one is now.
    pub(crate) retry_after: u64,
}

/// A quota that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaUsedUp {
    /// Its name in `pushctl app set`.
    pub(crate) quota: &'static str,
    /// The things that are counted.
    pub(crate) what: &'static str,
    /// The most of them.
    pub(crate) most: NonZeroU32,
    /// Whole seconds after which another try makes sense.
    pub(crate) retry_after: u64,
}

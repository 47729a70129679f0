//! Accepting requests: `throughput` and `latency` of single pushes, `batch` requests,
//! `registrations`, and `readiness` meanwhile.

pub(super) mod batch;
pub(super) mod latency;
pub(super) mod readiness;
pub(super) mod registrations;
pub(super) mod throughput;

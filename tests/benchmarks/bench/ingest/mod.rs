//! Accepting requests: `throughput` and `latency` of single pushes, `batch` requests,
//! and `registrations`.

pub(super) mod batch;
pub(super) mod latency;
pub(super) mod registrations;
pub(super) mod throughput;

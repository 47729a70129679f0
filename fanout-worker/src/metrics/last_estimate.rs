//! The last estimate of the work that is left of all broadcasts.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};

/// The work that is left of all broadcasts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Estimate {
    /// Broadcasts whose message has not ended.
    pub(crate) open: u64,
    /// Broadcasts whose ledger entry should have closed by now, but which are still listed.
    pub(crate) overdue: u64,
    /// Devices left of the open broadcasts, estimated.
    pub(crate) devices_left: u64,
    /// Time that all workers together need for them, in seconds.
    pub(crate) seconds_left: f64,
    /// Time that one worker would need for them, in seconds.
    pub(crate) work_seconds_left: f64,
    /// Devices a second of this worker.
    pub(crate) rate: f64,
}

/// The last estimate. None if the index did not answer, because an old number would look like a
/// current one.
#[derive(Debug, Clone, Default)]
pub(super) struct LastEstimate(Arc<Mutex<Option<Estimate>>>);

impl LastEstimate {
    pub(super) fn set(&self, estimate: Option<Estimate>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = estimate;
    }
}

impl Collector for LastEstimate {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = last else { return Ok(()) };
        // The numbers are far below 2^53, up to which a float holds every whole number.
        let gauges = [
            ("push_broadcasts_open", "Broadcasts with devices left", left.open as f64),
            (
                "push_broadcasts_overdue",
                "Broadcasts whose ledger entry is open beyond its time",
                left.overdue as f64,
            ),
            (
                "push_broadcast_devices_left",
                "Devices left of all broadcasts, estimated",
                left.devices_left as f64,
            ),
            (
                "push_broadcast_seconds_left",
                "How long all workers together need for them",
                left.seconds_left,
            ),
            (
                "push_broadcast_work_seconds_left",
                "How long one worker would need for them",
                left.work_seconds_left,
            ),
            (
                "push_broadcast_devices_per_second",
                "Devices of broadcasts that this worker settles in a second of work",
                left.rate,
            ),
        ];
        for (name, help, value) in gauges {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(encoder)?;
        }
        Ok(())
    }
}

//! A histogram without a lock.
//!
//! The one of prometheus-client takes a mutex for each observation, and one observation at a time.
//! A worker observes a thousand devices of a batch with the same latency in one call, and all threads
//! of `ingest` observe each push, so here an observation is two additions to atomic numbers, for
//! any number of equal values.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};

/// A histogram. Copies of it count together.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// The upper bounds of the buckets, ascending, without the last one, which has none.
    bounds: Box<[f64]>,
    /// The observations of each bucket.
    buckets: Box<[AtomicU64]>,
    /// The bits of the sum of all observed values.
    sum: AtomicU64,
}

impl Histogram {
    /// With buckets of these upper bounds, ascending, and one for all that is larger.
    pub fn new(bounds: impl IntoIterator<Item = f64>) -> Self {
        let bounds: Box<[f64]> = bounds.into_iter().collect();
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Counts { bounds, buckets, sum: AtomicU64::new(0_f64.to_bits()) }))
    }

    /// For the time of something that is done while a client or a device waits: 0.25 ms to 16 s.
    pub fn of_short_times() -> Self {
        Self::new(doubled(0.000_25, 17))
    }

    /// For the time until something is done that may wait for minutes or hours: 1 ms to 9 hours.
    pub fn of_long_times() -> Self {
        // Each bucket ends at three times the end of the one before, so 17 of them suffice.
        Self::new(std::iter::successors(Some(0.001), |bound| Some(bound * 3.0)).take(17))
    }

    /// For a number of things: 1 to `2^(buckets - 1)`.
    pub fn of_counts(buckets: usize) -> Self {
        Self::new(doubled(1.0, buckets))
    }

    /// Adds one observation.
    pub fn observe(&self, value: f64) {
        self.observe_many(value, 1);
    }

    /// Adds one observation of a time, in seconds.
    pub fn observe_time(&self, time: Duration) {
        self.observe(time.as_secs_f64());
    }

    /// Adds `count` observations of the same value.
    pub fn observe_many(&self, value: f64, count: u64) {
        if count == 0 {
            return;
        }
        let Counts { bounds, buckets, sum } = &*self.0;
        let position = bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = buckets.get(position) {
            bucket.fetch_add(count, Ordering::Relaxed);
        }
        let more = value * count as f64;
        let added = |bits: u64| Some((f64::from_bits(bits) + more).to_bits());
        // Never an error, because `added` always gives a value.
        let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }
}

/// `count` bounds, each twice the one before.
fn doubled(first: f64, count: usize) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(first), |bound| Some(bound * 2.0)).take(count)
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Counts { bounds, buckets, sum } = &*self.0;
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let counts = buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let sum = f64::from_bits(sum.load(Ordering::Relaxed));
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;

    fn text(histogram: &Histogram) -> String {
        let mut registry = Registry::default();
        registry.register("time", "A time", histogram.clone());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn an_observation_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::new([1.0, 2.0]);
        histogram.observe(1.0);
        histogram.observe_many(1.5, 1000);
        histogram.observe_many(7.0, 0);
        histogram.observe_time(Duration::from_secs(3));
        let text = text(&histogram);
        for line in [
            r#"time_bucket{le="1.0"} 1"#,
            r#"time_bucket{le="2.0"} 1001"#,
            r#"time_bucket{le="+Inf"} 1002"#,
            "time_count 1002",
            "time_sum 1504.0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn observations_of_several_threads_are_all_counted() {
        let histogram = Histogram::of_short_times();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| histogram.observe(0.5)));
            }
        });
        let text = text(&histogram);
        assert!(text.contains("time_count 4000") && text.contains("time_sum 2000.0"), "{text}");
    }
}

//! Metrics with one label whose values are known beforehand.

use prometheus_client::metrics::family::Family;

/// One label, with its value.
type Label = [(&'static str, &'static str); 1];

/// A metric of each value of one label. All begin at 0, because an increase from nothing is none for
/// Prometheus.
#[derive(Debug, Clone)]
pub struct ByLabel<M> {
    label: &'static str,
    family: Family<Label, M, fn() -> M>,
}

impl<M: Clone> ByLabel<M> {
    /// Makes the metrics of these values, each with `make`.
    pub fn new(
        label: &'static str,
        values: impl IntoIterator<Item = &'static str>,
        make: fn() -> M,
    ) -> Self {
        let metrics = Self { label, family: Family::new_with_constructor(make) };
        values.into_iter().for_each(|value| drop(metrics.of(value)));
        metrics
    }

    /// Returns the metric of a value, to be kept where it is used often.
    pub fn of(&self, value: &'static str) -> M {
        self.family.get_or_create_owned(&[(self.label, value)])
    }

    /// Returns what is registered.
    pub fn family(&self) -> Family<Label, M, fn() -> M> {
        self.family.clone()
    }
}

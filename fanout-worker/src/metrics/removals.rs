//! Devices that their providers reported as gone: those that were removed or kept, and the apps whose
//! removals are stopped.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::Counter, gauge::ConstGauge},
};
use push_boot::metrics::ByLabel;
use push_model::{app::AppKey, time::UnixMillis};

/// The reports of gone devices.
#[derive(Debug)]
pub(super) struct Removals {
    pub(super) family: ByLabel<Counter>,
    removed: Counter,
    kept: Counter,
    pub(super) stopped: StoppedApps,
}

impl Default for Removals {
    fn default() -> Self {
        let family = ByLabel::new("action", [], Counter::default);
        let (removed, kept) = (family.of("removed"), family.of("kept"));
        Self { family, removed, kept, stopped: StoppedApps::default() }
    }
}

impl Removals {
    pub(super) fn removed(&self, app: &AppKey, devices: u64) {
        self.removed.inc_by(devices);
        self.stopped.lock().remove(app);
    }

    pub(super) fn kept(&self, app: &AppKey, devices: u64, until: UnixMillis) {
        self.kept.inc_by(devices);
        self.stopped.insert(app, until, UnixMillis::now());
    }
}

/// The apps whose removals were stopped when this worker had gone devices of them, and until when.
#[derive(Debug, Clone, Default)]
pub(super) struct StoppedApps(Arc<Mutex<BTreeMap<AppKey, UnixMillis>>>);

impl StoppedApps {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<AppKey, UnixMillis>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, app: &AppKey, until: UnixMillis, now: UnixMillis) {
        let mut apps = self.lock();
        if apps.insert(app.clone(), until) != Some(until) {
            apps.retain(|_, until| *until > now);
        }
    }

    fn count(&self, now: UnixMillis) -> usize {
        self.lock().values().filter(|until| **until > now).count()
    }
}

impl Collector for StoppedApps {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let apps = self.count(UnixMillis::now());
        let name = "push_worker_removals_stopped_apps";
        let help = "Apps whose gone devices are not removed, because too many were reported";
        let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        // Far below 2^53, up to which a float holds every whole number.
        ConstGauge::new(apps as f64).encode(encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_shown_until_its_removals_go_on() {
        let stopped = StoppedApps::default();
        let app = |name: &str| AppKey::first(name.parse().unwrap());
        stopped.insert(&app("a"), UnixMillis(100), UnixMillis(1));
        stopped.insert(&app("a"), UnixMillis(100), UnixMillis(2));
        stopped.insert(&app("b"), UnixMillis(200), UnixMillis(3));
        assert_eq!([99, 100, 200].map(|now| stopped.count(UnixMillis(now))), [2, 1, 0]);
        stopped.insert(&app("c"), UnixMillis(300), UnixMillis(250));
        assert_eq!(stopped.lock().len(), 1, "those whose time is over are forgotten");
    }
}

//! What the handlers of all routes share.

use std::sync::Arc;

use push_boot::engines::Stores;
use push_index::{Index, Ledger};

use super::{broker_auth::BrokerLogins, full_dictionaries::FullDictionaries, sequence::Sequence};
use crate::{
    apps::{Logins, RecentKeys, UsageLeaks},
    body::{AppMemory, BodyMemory},
    index_outage::IndexOutage,
    metrics::{Level, Metrics},
    publisher::Publisher,
    sampling::Sampling,
    settings::Settings,
};

/// Everything that the handlers need.
#[derive(Debug)]
pub(crate) struct Handlers {
    pub(super) settings: Settings,
    pub(super) index: Arc<dyn Index>,
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) index_outage: IndexOutage,
    pub(super) logins: Logins,
    /// The memory for the questions of MQTT brokers: as much as one app may have.
    pub(super) broker_memory: Arc<AppMemory>,
    /// The failed logins that they asked about.
    pub(super) broker_logins: BrokerLogins,
    pub(super) dictionaries_full: FullDictionaries,
    /// The bodies that idempotency keys were used for lately.
    pub(super) recent_keys: RecentKeys,
    pub(super) leaks: UsageLeaks,
    pub(super) publisher: Publisher,
    pub(super) sequence: Sequence,
    pub(super) metrics: Arc<Metrics>,
    /// Which requests are traced; none if there are no traces.
    pub(super) sampling: Option<Sampling>,
}

impl Handlers {
    /// The metrics of this service.
    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    pub(crate) fn new(
        settings: Settings,
        stores: Stores,
        publisher: Publisher,
        metrics: Arc<Metrics>,
    ) -> Self {
        let memory = Arc::new(BodyMemory::new(&settings.http));
        let level = Level::new(settings.http.max_buffered, {
            let memory = Arc::clone(&memory);
            move || memory.used()
        });
        // Set before only if these metrics are those of another service too, which then shows its own.
        let _ = metrics.levels.body_memory.set(level);
        let Stores { index, ledger, .. } = stores;
        let (apps, index_outage) = (settings.apps.clone(), IndexOutage::new());
        let outage = index_outage.clone();
        Self {
            broker_memory: Arc::new(AppMemory::new(&memory)),
            broker_logins: BrokerLogins::default(),
            dictionaries_full: FullDictionaries::default(),
            logins: Logins::new(index.clone(), outage, apps, memory, Arc::clone(&metrics)),
            sampling: settings.is_traced.then(|| Sampling::new(settings.trace_ratio)),
            settings,
            index,
            ledger,
            index_outage,
            recent_keys: RecentKeys::default(),
            leaks: UsageLeaks::default(),
            publisher,
            sequence: Sequence::default(),
            metrics,
        }
    }
}

//! The metrics of a worker as they are published: their names, help texts and labels.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use push_boot::metrics::{ByApp, ByLabel, Histogram};
use push_model::ledger::RetryReason;
use push_queue::WorkLane;

use super::{
    failures::TransportFailures,
    handles::{
        AppCounters, AppOutcomeLabel, ByAudience, DeviceCounters, OutcomeLabel, RetryCounters,
        TransportCounters, TransportLabel,
    },
    last_estimate::LastEstimate,
    removals::Removals,
};

/// Every way in which a run ends.
const RUN_ENDS: [&str; 14] = [
    "finished",
    "stale",
    "superseded",
    "contended",
    "yielded",
    "crowded",
    "transport_unavailable",
    "store_unavailable",
    "paced",
    "retry_due",
    "detached",
    "deferred",
    "interrupted",
    "broken",
];

/// Every state in which a closing check finds an entry.
const CLOSING_CHECKS: [&str; 5] = ["open", "closed", "missing", "forgotten", "overdue"];

/// The metrics as they are published, and the handles of those that are used often.
#[derive(Debug)]
pub(super) struct Families {
    pub(super) device_family: Family<OutcomeLabel, Counter>,
    pub(super) devices: DeviceCounters,
    pub(super) app_family: Family<AppOutcomeLabel, Counter>,
    pub(super) apps: ByApp<AppCounters>,
    pub(super) transport_family: Family<TransportLabel, Counter>,
    pub(super) transports: TransportCounters,
    pub(super) failures: TransportFailures,
    pub(super) retry_family: ByLabel<Counter>,
    pub(super) retries: RetryCounters,
    pub(super) removals: Removals,
    pub(super) store_retries: ByLabel<Counter>,
    pub(super) latency: ByAudience,
    pub(super) targeting: ByAudience,
    pub(super) batch_devices: Histogram,
    pub(super) batch_seconds: Histogram,
    pub(super) run_ends: ByLabel<Counter>,
    pub(super) run_seconds: Histogram,
    pub(super) dispositions: ByLabel<Counter>,
    pub(super) in_work: ByLabel<Gauge>,
    pub(super) dead: ByLabel<Counter>,
    pub(super) isolated: ByLabel<Counter>,
    pub(super) dropped_copies: ByLabel<Counter>,
    pub(super) closing_checks: ByLabel<Counter>,
    pub(super) broadcasts: LastEstimate,
    pub(super) ledger_bytes: Gauge,
    pub(super) ledger_limit: Gauge,
    pub(super) ledger_reach: Gauge,
    pub(super) ledger_evicted: Gauge,
    pub(super) dictionaries_nearly_full: Gauge,
    pub(super) dictionary_values_freed: Counter,
}

impl Families {
    /// Where the first `apps` apps have metrics of their own.
    pub(super) fn new(apps: usize) -> Self {
        let (device_family, app_family) = (Family::default(), Family::default());
        let transport_family = Family::default();
        let retry_family = by("reason", RetryReason::ALL.map(RetryReason::name));
        let lanes = WorkLane::ALL.map(WorkLane::name);
        Self {
            devices: DeviceCounters::new(&device_family),
            device_family,
            apps: AppCounters::by_app(apps, app_family.clone()),
            app_family,
            transports: TransportCounters::new(transport_family.clone()),
            transport_family,
            failures: TransportFailures::default(),
            retries: RetryCounters::new(&retry_family),
            retry_family,
            removals: Removals::default(),
            store_retries: by("store", ["index", "queue"]),
            latency: ByAudience::new(Histogram::of_long_times),
            targeting: ByAudience::new(Histogram::of_short_times),
            batch_devices: Histogram::of_counts(12),
            batch_seconds: Histogram::of_short_times(),
            run_ends: by("end", RUN_ENDS),
            run_seconds: Histogram::of_short_times(),
            dispositions: by("disposition", []),
            in_work: ByLabel::new("lane", lanes, Gauge::default),
            dead: by("lane", lanes),
            isolated: by("lane", lanes),
            dropped_copies: by("body", ["same", "other"]),
            closing_checks: by("found", CLOSING_CHECKS),
            broadcasts: LastEstimate::default(),
            ledger_bytes: Gauge::default(),
            ledger_limit: Gauge::default(),
            ledger_reach: Gauge::default(),
            ledger_evicted: Gauge::default(),
            dictionaries_nearly_full: Gauge::default(),
            dictionary_values_freed: Counter::default(),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        self.register_deliveries(registry);
        self.register_times(registry);
        self.register_ledger(registry);
    }

    fn register_deliveries(&self, registry: &mut Registry) {
        let help = "Devices with a final outcome, by outcome";
        registry.register("devices", help, self.device_family.clone());
        let help = "Devices with a final outcome, by app and outcome";
        registry.register("app_devices", help, self.app_family.clone());
        let help = "Devices handed to a transport, by what it answered";
        registry.register("transport_devices", help, self.transport_family.clone());
        let help = "Tries of a device that gave no outcome, by reason";
        registry.register("retries", help, self.retry_family.family());
        let help = "Devices that their provider reported as gone, by what was done with them";
        registry.register("gone_devices", help, self.removals.family.family());
        let help = "Requests to a store that were made again because they failed";
        registry.register("store_retries", help, self.store_retries.family());
        let help = "Runs on partitions, by how they ended";
        registry.register("runs", help, self.run_ends.family());
        let help = "Runs on partitions, by what happened to their queue message";
        registry.register("dispositions", help, self.dispositions.family());
        registry.register("in_work", "Queue messages in work", self.in_work.family());
        registry.register("dead_letters", "Messages put aside", self.dead.family());
        let help = "Queue messages that were delivered often and are processed alone";
        registry.register("isolated", help, self.isolated.family());
        let help = "Copies of messages with an Idempotency-Key that were dropped, by whether they have the \
                    body of the copy that is sent";
        registry.register("dropped_copies", help, self.dropped_copies.family());
    }

    fn register_times(&self, registry: &mut Registry) {
        let unit = || Unit::Seconds;
        let help = "From the acceptance of a push to the acknowledgement for a device";
        registry.register_with_unit("accepted_to_sent", help, unit(), self.latency.family());
        let help = "Time of a request to the index for devices";
        registry.register_with_unit("targeting", help, unit(), self.targeting.family());
        let help = "Time of a run on a partition";
        registry.register_with_unit("run", help, unit(), self.run_seconds.clone());
        let help = "Time a batch of devices took to be sent";
        registry.register_with_unit("batch_delivery", help, unit(), self.batch_seconds.clone());
        let help = "Devices handed to the transports at once";
        registry.register("batch_devices", help, self.batch_devices.clone());
    }

    fn register_ledger(&self, registry: &mut Registry) {
        let help = "Closing checks of broadcasts, by how they found the ledger entry";
        registry.register("closing_checks", help, self.closing_checks.family());
        let mut bytes = |name, help, gauge: &Gauge| {
            registry.register_with_unit(name, help, Unit::Bytes, gauge.clone());
        };
        bytes("ledger", "What the ledger takes, estimated", &self.ledger_bytes);
        bytes("ledger_limit", "What the ledger may take", &self.ledger_limit);
        let help = "How far back the ledger reaches";
        registry.register_with_unit("ledger_reach", help, Unit::Seconds, self.ledger_reach.clone());
        let help = "Entries that were evicted to keep the ledger within its limit";
        registry.register("ledger_forgotten", help, self.ledger_evicted.clone());
        let help = "Apps whose dictionaries are nearly full, if this worker looks after them";
        registry.register("dictionaries_nearly_full", help, self.dictionaries_nearly_full.clone());
        let help = "Values of dictionaries that were freed because no device had them";
        registry.register("dictionary_values_freed", help, self.dictionary_values_freed.clone());
    }
}

/// Counters by a label with these values.
fn by<const N: usize>(label: &'static str, values: [&'static str; N]) -> ByLabel<Counter> {
    ByLabel::new(label, values, Counter::default)
}

//! The metrics of a worker as they are published: their names, help texts and labels.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use push_boot::metrics::{ByApp, Histogram};
use push_queue::Lane;

use super::{
    failures::TransportFailures,
    handles::{
        AppCounters, AppOutcomeLabel, AudienceLabel, ByAudience, DeviceCounters, OutcomeLabel,
        ReasonLabel, RetryCounters, TransportCounters, TransportLabel,
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct DispositionLabel {
    /// The label's published name.
    pub(super) disposition: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EntryStateLabel {
    /// The label's published name.
    pub(super) found: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BodyLabel {
    pub(super) body: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EndLabel {
    pub(super) end: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LaneLabel {
    pub(super) lane: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StoreLabel {
    pub(super) store: &'static str,
}

type HistogramFamily = Family<AudienceLabel, Histogram, fn() -> Histogram>;

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
    pub(super) retry_family: Family<ReasonLabel, Counter>,
    pub(super) retries: RetryCounters,
    pub(super) removals: Removals,
    pub(super) store_retries: Family<StoreLabel, Counter>,
    pub(super) latency_family: HistogramFamily,
    pub(super) latency: ByAudience,
    pub(super) targeting_family: HistogramFamily,
    pub(super) targeting: ByAudience,
    pub(super) batch_devices: Histogram,
    pub(super) batch_seconds: Histogram,
    pub(super) run_ends: Family<EndLabel, Counter>,
    pub(super) run_seconds: Histogram,
    pub(super) dispositions: Family<DispositionLabel, Counter>,
    pub(super) in_work: Family<LaneLabel, Gauge>,
    pub(super) dead: Family<LaneLabel, Counter>,
    pub(super) isolated: Family<LaneLabel, Counter>,
    pub(super) dropped_copies: Family<BodyLabel, Counter>,
    pub(super) closing_checks: Family<EntryStateLabel, Counter>,
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
        let (transport_family, retry_family) = (Family::default(), Family::default());
        let latency_family = HistogramFamily::new_with_constructor(Histogram::of_long_times);
        let targeting_family = HistogramFamily::new_with_constructor(Histogram::of_short_times);
        let families = Self {
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
            store_retries: Family::default(),
            latency: ByAudience::new(&latency_family),
            latency_family,
            targeting: ByAudience::new(&targeting_family),
            targeting_family,
            batch_devices: Histogram::of_counts(12),
            batch_seconds: Histogram::of_short_times(),
            run_ends: Family::default(),
            run_seconds: Histogram::of_short_times(),
            dispositions: Family::default(),
            in_work: Family::default(),
            dead: Family::default(),
            isolated: Family::default(),
            dropped_copies: Family::default(),
            closing_checks: Family::default(),
            broadcasts: LastEstimate::default(),
            ledger_bytes: Gauge::default(),
            ledger_limit: Gauge::default(),
            ledger_reach: Gauge::default(),
            ledger_evicted: Gauge::default(),
            dictionaries_nearly_full: Gauge::default(),
            dictionary_values_freed: Counter::default(),
        };
        families.begin_all_series();
        families
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        self.register_deliveries(registry);
        self.register_times(registry);
        self.register_ledger(registry);
    }

    /// Makes the series whose label values are known beforehand.
    fn begin_all_series(&self) {
        for end in RUN_ENDS {
            self.run_ends.get_or_create_owned(&EndLabel { end });
        }
        for lane in Lane::ALL.map(Lane::name) {
            self.in_work.get_or_create_owned(&LaneLabel { lane });
            self.dead.get_or_create_owned(&LaneLabel { lane });
            self.isolated.get_or_create_owned(&LaneLabel { lane });
        }
        for body in ["same", "other"] {
            self.dropped_copies.get_or_create_owned(&BodyLabel { body });
        }
        for found in ["open", "closed", "missing", "forgotten", "overdue"] {
            self.closing_checks.get_or_create_owned(&EntryStateLabel { found });
        }
    }

    fn register_deliveries(&self, registry: &mut Registry) {
        let help = "Devices with a final outcome, by outcome";
        registry.register("devices", help, self.device_family.clone());
        let help = "Devices with a final outcome, by app and outcome";
        registry.register("app_devices", help, self.app_family.clone());
        let help = "Devices handed to a transport, by what it answered";
        registry.register("transport_devices", help, self.transport_family.clone());
        let help = "Tries of a device that gave no outcome, by reason";
        registry.register("retries", help, self.retry_family.clone());
        let help = "Devices that their provider reported as gone, by what was done with them";
        registry.register("gone_devices", help, self.removals.family.clone());
        let help = "Requests to a store that were made again because they failed";
        registry.register("store_retries", help, self.store_retries.clone());
        let help = "Runs on partitions, by how they ended";
        registry.register("runs", help, self.run_ends.clone());
        let help = "Runs on partitions, by what happened to their queue message";
        registry.register("dispositions", help, self.dispositions.clone());
        registry.register("in_work", "Queue messages in work", self.in_work.clone());
        registry.register("dead_letters", "Messages put aside", self.dead.clone());
        let help = "Queue messages that were delivered often and are processed alone";
        registry.register("isolated", help, self.isolated.clone());
        let help = "Copies of messages with an Idempotency-Key that were dropped, by whether they have the \
                    body of the copy that is sent";
        registry.register("dropped_copies", help, self.dropped_copies.clone());
    }

    fn register_times(&self, registry: &mut Registry) {
        let unit = || Unit::Seconds;
        let help = "From the acceptance of a push to the acknowledgement for a device";
        registry.register_with_unit("accepted_to_sent", help, unit(), self.latency_family.clone());
        let help = "Time of a request to the index for devices";
        registry.register_with_unit("targeting", help, unit(), self.targeting_family.clone());
        let help = "Time of a run on a partition";
        registry.register_with_unit("run", help, unit(), self.run_seconds.clone());
        let help = "Time a batch of devices took to be sent";
        registry.register_with_unit("batch_delivery", help, unit(), self.batch_seconds.clone());
        let help = "Devices handed to the transports at once";
        registry.register("batch_devices", help, self.batch_devices.clone());
    }

    fn register_ledger(&self, registry: &mut Registry) {
        let help = "Closing checks of broadcasts, by how they found the ledger entry";
        registry.register("closing_checks", help, self.closing_checks.clone());
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

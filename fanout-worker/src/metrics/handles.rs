//! Handles of the counters whose label values are known beforehand, so that hot paths look nothing
//! up.

use std::{collections::BTreeMap, sync::OnceLock};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Metric,
};
use push_boot::metrics::{ByApp, ByLabel, Histogram};
use push_model::{
    device::TransportKind,
    ids::AudienceKind,
    ledger::{FailReason, Outcomes, Retried, RetryReason},
};

use push_transports::Outcome;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabel {
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AppOutcomeLabel {
    app: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TransportLabel {
    transport: &'static str,
    outcome: &'static str,
}

/// Devices by their outcome in the ledger.
#[derive(Debug)]
pub(super) struct DeviceCounters {
    sent: Counter,
    expired: Counter,
    recalled: Counter,
    failed: BTreeMap<FailReason, Counter>,
}

impl DeviceCounters {
    pub(super) fn new(family: &Family<OutcomeLabel, Counter>) -> Self {
        let of = |outcome, reason| family.get_or_create_owned(&OutcomeLabel { outcome, reason });
        let failed = FailReason::ALL.map(|reason| (reason, of("failed", reason.name())));
        Self {
            sent: of("sent", ""),
            expired: of("expired", ""),
            recalled: of("recalled", ""),
            failed: failed.into_iter().collect(),
        }
    }

    pub(super) fn add(&self, outcomes: &Outcomes) {
        add(&self.sent, outcomes.sent);
        add(&self.expired, outcomes.expired);
        add(&self.recalled, outcomes.recalled);
        for (reason, count) in &outcomes.failed {
            self.failed.get(reason).into_iter().for_each(|counter| add(counter, *count));
        }
    }

    pub(super) fn failed(&self, reason: FailReason) -> u64 {
        self.failed.get(&reason).map_or(0, Counter::get)
    }
}

/// The same of one app, whatever the reason of a failure.
#[derive(Debug)]
pub(super) struct AppCounters {
    sent: Counter,
    expired: Counter,
    recalled: Counter,
    failed: Counter,
}

impl AppCounters {
    /// The handles of each app, up to a limit.
    pub(super) fn by_app(limit: usize, family: Family<AppOutcomeLabel, Counter>) -> ByApp<Self> {
        ByApp::new(limit, move |app| {
            let of = |outcome| {
                let label = AppOutcomeLabel { app: app.to_owned(), outcome };
                family.get_or_create_owned(&label)
            };
            Self {
                sent: of("sent"),
                expired: of("expired"),
                recalled: of("recalled"),
                failed: of("failed"),
            }
        })
    }

    pub(super) fn add(&self, outcomes: &Outcomes) {
        add(&self.sent, outcomes.sent);
        add(&self.expired, outcomes.expired);
        add(&self.recalled, outcomes.recalled);
        add(&self.failed, outcomes.failed.values().sum());
    }
}

/// Tries without an outcome, by reason.
#[derive(Debug)]
pub(super) struct RetryCounters(BTreeMap<RetryReason, Counter>);

impl RetryCounters {
    pub(super) fn new(counters: &ByLabel<Counter>) -> Self {
        Self(RetryReason::ALL.map(|reason| (reason, counters.of(reason.name()))).into())
    }

    pub(super) fn add(&self, retried: &Retried) {
        for (reason, count) in retried {
            self.0.get(reason).into_iter().for_each(|counter| add(counter, *count));
        }
    }
}

/// The answers that a transport may give for a device, in the order of [`position`].
const ANSWERS: [&str; 7] = ["sent", "gone", "expired", "later", "failed", "undecided", "not_sent"];

const fn position(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Sent => 0,
        Outcome::Gone { .. } => 1,
        Outcome::Expired => 2,
        Outcome::Later(..) => 3,
        Outcome::Failed(_) => 4,
        Outcome::Undecided => 5,
        Outcome::NotSent => 6,
    }
}

/// The answers of transports. The series of a transport begin with its first device, because most
/// workers have only one or two transports.
#[derive(Debug)]
pub(super) struct TransportCounters {
    family: Family<TransportLabel, Counter>,
    by_kind: [(TransportKind, OnceLock<[Counter; ANSWERS.len()]>); TransportKind::ALL.len()],
}

impl TransportCounters {
    pub(super) fn new(family: Family<TransportLabel, Counter>) -> Self {
        Self { family, by_kind: TransportKind::ALL.map(|kind| (kind, OnceLock::new())) }
    }

    /// Counts the outcomes of a batch, and returns how many devices were sent to. The devices of a
    /// batch mostly have one transport, so one addition counts all that have the same outcome.
    pub(super) fn add(&self, answered: impl Iterator<Item = (TransportKind, Outcome)>) -> u64 {
        let mut sent = 0;
        let mut rest = answered.peekable();
        while let Some(kind) = rest.peek().map(|(kind, _)| *kind) {
            let mut counts = [0; ANSWERS.len()];
            while let Some((_, outcome)) = rest.next_if(|(of, _)| *of == kind) {
                counts[position(outcome)] += 1;
            }
            sent += counts[position(Outcome::Sent)];
            let counters = self.of(kind).into_iter().flatten();
            counters.zip(counts).for_each(|(counter, count)| add(counter, count));
        }
        sent
    }

    /// The devices that each transport acknowledged.
    pub(super) fn sent(&self) -> impl Iterator<Item = (TransportKind, u64)> {
        let used = self.by_kind.iter().filter_map(|(kind, of)| Some((*kind, of.get()?)));
        used.map(|(kind, counters)| (kind, counters[position(Outcome::Sent)].get()))
    }

    fn of(&self, kind: TransportKind) -> Option<&[Counter; ANSWERS.len()]> {
        let (_, counters) = self.by_kind.iter().find(|(of, _)| *of == kind)?;
        let of = |outcome| TransportLabel { transport: kind.name(), outcome };
        Some(
            counters.get_or_init(|| {
                ANSWERS.map(|outcome| self.family.get_or_create_owned(&of(outcome)))
            }),
        )
    }
}

/// A histogram for pushes to named devices, and one for broadcasts.
#[derive(Debug)]
pub(super) struct ByAudience {
    all: ByLabel<Histogram>,
    named: Histogram,
    broadcast: Histogram,
}

impl ByAudience {
    pub(super) fn new(make: fn() -> Histogram) -> Self {
        let all = ByLabel::new("audience", [], make);
        Self { named: all.of("named"), broadcast: all.of("broadcast"), all }
    }

    pub(super) fn family(&self) -> impl Metric + use<> {
        self.all.family()
    }

    pub(super) fn of(&self, kind: AudienceKind) -> &Histogram {
        match kind {
            AudienceKind::Named => &self.named,
            AudienceKind::Broadcast => &self.broadcast,
        }
    }
}

fn add(counter: &Counter, count: u64) {
    if count > 0 {
        counter.inc_by(count);
    }
}

//! A program makes itself known in the index: every few seconds it writes a record of its state and of
//! its work of the last hour, and removes the record when it stops. The record of a program that was
//! killed ends by itself.
//!
//! Nothing depends on it: a record that cannot be written is logged once per outage.
//!
//! - `settings`: the times

mod settings;

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc, time::Duration};

use push_index::Index;
use push_model::{
    causes::with_causes,
    components::{
        Component, ComponentState, Hour, IngestActivity, IngestCount, WorkerActivity, WorkerCount,
    },
    time::UnixMillis,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::settings::PresenceSettings;
use crate::{
    build_info,
    health::{Health, PartStatus, Report, Status},
    log_failure,
    outage::Outage,
};

/// The time between two looks at the state. A change of the state is reported at the next look.
const LOOK: Duration = Duration::from_secs(1);

/// The time limit for removing the record when the program stops.
const REMOVAL: Duration = Duration::from_secs(2);

/// The kinds of failures, for the outage in the log.
const NO_ANSWER: &str = "no answer";
const NO_ROOM: &str = "no room";

/// Reads counters that only grow, as they are now.
pub type Counters<K> = Box<dyn Fn() -> BTreeMap<K, u64> + Send + Sync>;

/// What a program makes known of itself beside its name, state and operations listener.
#[derive(Default)]
pub struct Announcement {
    /// The addresses that it listens on, by their purpose.
    pub listens: Vec<(&'static str, SocketAddr)>,
    /// The counters of an `ingest`.
    pub ingest: Option<Counters<IngestCount>>,
    /// The counters of a worker.
    pub worker: Option<Counters<WorkerCount>>,
}

impl fmt::Debug for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announcement").field("listens", &self.listens).finish_non_exhaustive()
    }
}

/// A program that is known in the index until [`Presence::end`].
#[derive(Debug)]
pub(crate) struct Presence {
    stop: CancellationToken,
    reporting: JoinHandle<()>,
}

impl Presence {
    /// Makes a program known from now on.
    ///
    /// Must be called within a Tokio runtime.
    pub(crate) fn begin(
        program: &'static str,
        announcement: Announcement,
        index: Arc<dyn Index>,
        health: Health,
        settings: PresenceSettings,
    ) -> Self {
        let Announcement { listens, ingest, worker } = announcement;
        let now = UnixMillis::now();
        let listens = listens.into_iter().map(|(name, at)| (name.to_owned(), at.to_string()));
        let record = Component {
            id: format!("{:016x}", rand::random::<u64>()),
            kind: program.to_owned(),
            version: build_info::NUMBER.to_owned(),
            revision: build_info::REVISION.to_owned(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            listens: listens.collect(),
            started_at: health.started_at(),
            reported_at: now,
            state: ComponentState::Ready,
            ingest: None,
            worker: None,
        };
        let reporter = Reporter {
            record,
            index,
            health,
            settings,
            begun: Instant::now(),
            ingest: ingest.map(Sampled::new),
            worker: worker.map(Sampled::new),
            outage: Outage::default(),
        };
        let stop = CancellationToken::new();
        let reporting = tokio::spawn(reporter.keep_reporting(stop.clone()));
        Self { stop, reporting }
    }

    /// Removes the record.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        // It fails only if it panicked; then the record ends by itself.
        let _ = self.reporting.await;
    }
}

/// Counters, and their growth within the last hour.
struct Sampled<K> {
    counters: Counters<K>,
    hour: Hour<K>,
}

impl<K: Ord + Clone> Sampled<K> {
    fn new(counters: Counters<K>) -> Self {
        Self { counters, hour: Hour::default() }
    }

    fn sample(&mut self, at: Duration) -> &Hour<K> {
        self.hour.sample(at, (self.counters)());
        &self.hour
    }
}

struct Reporter {
    /// The last record.
    record: Component,
    index: Arc<dyn Index>,
    health: Health,
    settings: PresenceSettings,
    begun: Instant,
    ingest: Option<Sampled<IngestCount>>,
    worker: Option<Sampled<WorkerCount>>,
    outage: Outage,
}

impl Reporter {
    async fn keep_reporting(mut self, stop: CancellationToken) {
        let PresenceSettings { interval, .. } = self.settings;
        let reporting = async {
            let mut due = Instant::now();
            loop {
                let state = state_of(&self.health.report());
                if Instant::now() >= due || state.name() != self.record.state.name() {
                    self.report(state).await;
                    due = Instant::now() + jittered(interval, rand::random());
                }
                sleep(LOOK.min(interval)).await;
            }
        };
        tokio::select! {
            () = reporting => {}
            () = stop.cancelled() => {}
        }
        // If it fails, the record ends by itself.
        let _ = timeout(REMOVAL, self.index.remove_component(&self.record.id)).await;
    }

    async fn report(&mut self, state: ComponentState) {
        let at = self.begun.elapsed();
        self.record.reported_at = UnixMillis::now();
        self.record.state = state;
        self.record.ingest =
            self.ingest.as_mut().map(|ingest| IngestActivity::of(ingest.sample(at)));
        self.record.worker =
            self.worker.as_mut().map(|worker| WorkerActivity::of(worker.sample(at)));
        let written = self.index.report_component(&self.record, self.settings.life).await;
        let (kind, error) = match written {
            Ok(true) => {
                if let Some(ended) = self.outage.answered() {
                    info!(for_ms = ended.for_ms(), "listed among the running programs again");
                }
                return;
            }
            Ok(false) => (NO_ROOM, "too many programs run, or the record is too large".to_owned()),
            Err(error) => (NO_ANSWER, with_causes(&error)),
        };
        log_failure!(
            self.outage.failed(1, kind),
            runbook = "a-store-is-unreachable-or-refuses-writes",
            error,
            "the index does not list this program among the running ones"
        );
    }
}

/// Returns a time between 0.8 and 1.2 times the interval, so that programs that started together do
/// not report together. `chance` is any number.
fn jittered(interval: Duration, chance: u8) -> Duration {
    interval.mul_f64(0.8 + 0.4 * f64::from(chance) / f64::from(u8::MAX))
}

/// Returns the state that `/readyz` tells, with the parts that do not work as the reason.
fn state_of(report: &Report) -> ComponentState {
    let parts = report.parts.iter().filter(|part| part.required && part.status != PartStatus::Ok);
    let parts = parts.map(|part| match &part.detail {
        Some(detail) => format!("{}: {detail}", part.name),
        None => part.name.clone(),
    });
    let parts = parts.collect::<Vec<_>>().join("; ");
    let told = |word: &str| match parts.is_empty() {
        true => word.to_owned(),
        false => format!("{word}: {parts}"),
    };
    match report.status {
        Status::Ready => ComponentState::Ready,
        Status::Degraded => ComponentState::Degraded(parts),
        Status::NotReady => ComponentState::NotReady(parts),
        Status::Starting => ComponentState::NotReady(told("starting")),
        Status::Draining => ComponentState::NotReady("stopping".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::PartReport;

    fn report(status: Status, parts: &[(&str, PartStatus, bool, Option<&str>)]) -> Report {
        let part = |(name, status, required, detail): &(&str, PartStatus, bool, Option<&str>)| {
            PartReport {
                name: (*name).to_owned(),
                status: *status,
                required: *required,
                since: UnixMillis(1),
                checked: None,
                detail: detail.map(ToOwned::to_owned),
            }
        };
        Report {
            status,
            ready: true,
            since: UnixMillis(1),
            parts: parts.iter().map(part).collect(),
        }
    }

    #[test]
    fn the_reason_names_the_parts_that_are_needed_and_do_not_work() {
        let ok = ("queue", PartStatus::Ok, true, None);
        let failed = ("index", PartStatus::Failed, true, Some("refused"));
        let beside = ("disk", PartStatus::Failed, false, Some("full"));
        let degraded = ("transport fcm", PartStatus::Degraded, true, Some("away"));
        let awaited = ("queue", PartStatus::Awaited, true, None);
        let not_ready = |reason: &str| ComponentState::NotReady(reason.to_owned());
        for (status, parts, told) in [
            (Status::Ready, vec![ok, beside], ComponentState::Ready),
            (
                Status::Degraded,
                vec![ok, degraded],
                ComponentState::Degraded("transport fcm: away".to_owned()),
            ),
            (
                Status::NotReady,
                vec![failed, degraded, beside],
                not_ready("index: refused; transport fcm: away"),
            ),
            (Status::Starting, vec![awaited], not_ready("starting: queue")),
            (Status::Starting, vec![], not_ready("starting")),
            (Status::Draining, vec![failed], not_ready("stopping")),
        ] {
            assert_eq!(state_of(&report(status, &parts)), told);
        }
    }

    #[test]
    fn reports_are_spread_around_their_interval() {
        let interval = Duration::from_secs(10);
        let times = [0, u8::MAX].map(|chance| jittered(interval, chance).as_secs_f64().round());
        assert_eq!(times, [8.0, 12.0]);
    }
}

//! Devices that a transport reports as gone: they are removed and listed, unless so many of the app's
//! devices would go that something else must be wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use push_boot::engines::Stores;
use push_fanout_worker::{Dependencies, Metrics, PlanLimits, RunLimits, WorkerSettings};
use push_index::{Apps as _, Devices as _, GoneDevices as _, sqlite::SqliteIndex};
use push_ledger::{Ledger as _, sqlite::SqliteLedger};
use push_model::{
    app::{App, AppKey},
    device::{Device, Target, TransportKind},
    envelope::{JobMarks, encode_job, encode_job_envelope},
    gone::GoneLimit,
    hints::Hints,
    ids::{AudienceKind, MessageId},
    ledger::{Entry, FailReason},
    message::{Audience, Payload},
    secret::Secret,
    time::UnixMillis,
};
use push_queue::{
    Lane, Queue as _,
    sqlite::{SqliteQueue, SqliteQueueSettings},
};
use push_store::sqlite::SqliteStore;
use push_transports::{Outcome, Outgoing, Sending, Transport, Transports};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(60);

/// A provider that reports the devices whose token is `gone`, and refuses those whose token is `refused`.
#[derive(Debug)]
struct Provider;

#[async_trait]
impl Transport for Provider {
    async fn deliver(&self, _: &Outgoing, targets: &[Target], _: &Sending) -> Vec<Outcome> {
        let answer = |target: &Target| match target.token.as_deref() {
            Some("gone") => Outcome::Gone(None),
            Some("refused") => Outcome::Failed(FailReason::Refused),
            _ => Outcome::Sent,
        };
        targets.iter().map(answer).collect()
    }

    async fn ready(&self) -> bool {
        true
    }

    fn longest_silence(&self) -> Duration {
        Duration::ZERO
    }

    async fn close(&self) {}
}

/// A worker and its stores.
struct Service {
    index: Arc<SqliteIndex>,
    ledger: Arc<SqliteLedger>,
    queue: Arc<SqliteQueue>,
    metrics: Metrics,
    app: AppKey,
    stop: CancellationToken,
    worker: tokio::task::JoinHandle<Result<(), push_fanout_worker::RunError>>,
    _folder: TempDir,
}

impl Service {
    /// An app with devices of each token, and a worker with this limit.
    async fn start(devices: &[(&str, usize)], gone_limit: GoneLimit) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("index.sqlite3");
        let store = SqliteStore::open(&file, "test", Default::default()).await.unwrap();
        let index = SqliteIndex::new(store.clone());
        let file = folder.path().join("queue.sqlite3");
        let queue = SqliteQueue::open(&file, "test", SqliteQueueSettings::default()).await.unwrap();
        let (index, queue, metrics) = (Arc::new(index), Arc::new(queue), Metrics::default());
        let app = AppKey::first("app".parse().unwrap());
        let record = App::new(app.id.clone(), &Secret::generate(), UnixMillis::now());
        assert!(index.create_app(&record).await.unwrap());
        let device = |token: &str, n| Device {
            client_id: format!("{token}{n:05}").parse().unwrap(),
            attributes: Default::default(),
            transport: TransportKind::Fcm,
            token: Some(token.into()),
        };
        let registered_at = UnixMillis::now().minus(Duration::from_secs(60));
        for (token, count) in devices {
            let devices: Vec<_> = (0..*count).map(|n| device(token, n)).collect();
            index.put_devices(&app, &devices, registered_at).await.unwrap();
        }
        let ledger = Arc::new(SqliteLedger::open(store).await.unwrap());
        let stores =
            Stores { index: index.clone(), ledger: ledger.clone(), ledger_is_separate: false };
        let transports = Transports::default().with(TransportKind::Fcm, Arc::new(Provider));
        let dependencies = Dependencies {
            metrics: metrics.clone(),
            ..Dependencies::new(queue.clone(), stores, transports)
        };
        let settings = WorkerSettings::default();
        let settings = WorkerSettings {
            run: RunLimits { batch: 50, ..settings.run },
            plan: PlanLimits { partitions: 1, ..settings.plan },
            gone_limit,
            ..settings
        };
        let stop = CancellationToken::new();
        let run = push_fanout_worker::run(settings, dependencies, DEADLINE, stop.clone());
        let worker = tokio::spawn(run);
        Self { index, ledger, queue, metrics, app, stop, worker, _folder: folder }
    }

    /// Sends a broadcast, and returns how many devices failed as gone.
    async fn broadcast(&self) -> u64 {
        let accepted_at = UnixMillis::now();
        let id = MessageId::issue(&self.app.id, AudienceKind::Broadcast);
        let payload = Payload {
            message_id: id,
            app_id: self.app.id.clone(),
            kind: 2,
            notification: None,
            data: Some(BTreeMap::new()),
            hints: Hints::default(),
            accepted_at,
            sequence: 1,
            expires_at: accepted_at.plus_seconds(600),
        };
        let job = encode_job(&payload, &Audience::All, JobMarks::default()).unwrap();
        self.queue.publish(Lane::Jobs, encode_job_envelope(&[job])).await.unwrap();
        let ledger = &self.ledger;
        let closed = async {
            loop {
                let entry = ledger.entry(&self.app, &id).await.unwrap();
                if let Some(entry) = entry.filter(Entry::is_closed) {
                    return entry.outcomes.failed.get(&FailReason::Gone).copied().unwrap_or(0);
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(DEADLINE, closed).await.expect("the broadcast is closed")
    }

    /// Waits until a number of devices is left.
    async fn are_left(&self, devices: u64) {
        let left = async {
            while self.index.count_devices(&self.app).await.unwrap() != devices {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(DEADLINE, left).await.expect("the gone devices are removed");
    }

    /// Waits until the metrics have these lines.
    async fn shows(&self, lines: &[&str]) {
        let mut last = String::new();
        let shown = async {
            while last.is_empty() || !lines.iter().all(|line| last.contains(line)) {
                let mut registry = prometheus_client::registry::Registry::default();
                self.metrics.register(&mut registry);
                last.clear();
                prometheus_client::encoding::text::encode(&mut last, &registry).unwrap();
                sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(DEADLINE, shown).await.is_err() {
            assert_eq!(lines, [last.as_str()], "these lines are shown");
        }
    }

    async fn end(self) {
        self.stop.cancel();
        self.worker.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_are_gone_are_removed_and_listed_and_those_that_are_refused_are_not() {
    let service =
        Service::start(&[("gone", 90), ("refused", 200), ("ok", 10)], GoneLimit::default()).await;
    assert_eq!(service.broadcast().await, 90);
    service.are_left(210).await;
    let since = UnixMillis::now().minus(DEADLINE);
    let page = service.index.removed_devices(&service.app, since, 0, 1000).await.unwrap();
    assert_eq!(page.devices.len(), 90);
    assert!(page.devices.iter().all(|device| device.client_id.as_str().starts_with("gone")));
    service
        .shows(&[
            r#"push_worker_gone_devices_total{action="removed"} 90"#,
            r#"push_worker_gone_devices_total{action="kept"} 0"#,
            "push_worker_removals_stopped_apps 0",
        ])
        .await;
    assert_eq!(service.broadcast().await, 0);
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removals_stop_before_an_app_loses_more_devices_than_its_limit_and_go_on_after_a_rest() {
    let limit = GoneLimit {
        percent: 10,
        least: 100,
        window: Duration::from_secs(2),
        rest: Duration::from_secs(6),
    };
    let service = Service::start(&[("gone", 400), ("ok", 600)], limit).await;
    assert_eq!(service.broadcast().await, 400, "devices that are kept fail all the same");
    // Batches of 50 devices: the first or the second one that exceeds the limit is kept, with all later ones.
    service.shows(&["push_worker_removals_stopped_apps 1"]).await;
    let left = service.index.count_devices(&service.app).await.unwrap();
    assert!((900..1000).contains(&left), "{left} devices are left");
    let stopped = service.index.removals_stopped_until(&service.app).await.unwrap();
    assert!(stopped.is_some_and(|until| until > UnixMillis::now()), "{stopped:?}");
    assert_eq!(service.broadcast().await, left - 600);
    assert_eq!(service.index.count_devices(&service.app).await.unwrap(), left);
    service.shows(&["push_worker_removals_stopped_apps 0"]).await;
    // The rest is over, so further ones are removed, up to the limit again.
    assert_eq!(service.broadcast().await, left - 600);
    service.shows(&["push_worker_removals_stopped_apps 1"]).await;
    let fewer = service.index.count_devices(&service.app).await.unwrap();
    assert!(fewer < left && left - fewer < 100, "{fewer} of {left} devices are left");
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_100_percent_removes_all_devices_that_are_gone() {
    let limit = GoneLimit { percent: 100, ..GoneLimit::default() };
    let service = Service::start(&[("gone", 300), ("ok", 5)], limit).await;
    let stopped = UnixMillis::now().plus_seconds(600);
    assert!(service.index.stop_removals(&service.app, None, stopped).await.unwrap());
    assert_eq!(service.broadcast().await, 300);
    service.are_left(5).await;
    service.end().await;
}

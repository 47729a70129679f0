//! A worker and its stores.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use push_boot::engines::Stores;
use push_fanout_worker::{Dependencies, Metrics, WorkerSettings};
use push_index::{Apps as _, Devices as _, sqlite::SqliteIndex};
use push_ledger::{Ledger as _, sqlite::SqliteLedger};
use push_model::{
    app::{App, AppKey},
    device::{Device, TransportKind},
    envelope::{JobMarks, encode_job, encode_job_envelope},
    hints::Hints,
    ids::{AudienceKind, MessageId},
    ledger::Entry,
    message::{Audience, Payload},
    secret::Secret,
    time::UnixMillis,
};
use push_queue::{
    Lane, Queue as _,
    sqlite::{SqliteQueue, SqliteQueueSettings},
};
use push_store::sqlite::SqliteStore;
use push_transports::{Transport, Transports};
use tempfile::TempDir;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The deadline of everything that is waited for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// A worker, its stores and an app.
pub(crate) struct Service {
    pub(crate) index: Arc<SqliteIndex>,
    pub(crate) metrics: Metrics,
    pub(crate) app: AppKey,
    ledger: Arc<SqliteLedger>,
    queue: Arc<SqliteQueue>,
    stop: CancellationToken,
    worker: tokio::task::JoinHandle<Result<(), push_fanout_worker::RunError>>,
    _folder: TempDir,
}

impl Service {
    /// Starts a worker for an app with these devices, all of which have this transport.
    pub(crate) async fn start(
        kind: TransportKind,
        transport: Arc<dyn Transport>,
        pace: Option<u32>,
        devices: impl IntoIterator<Item = (String, Option<&str>)>,
        settings: WorkerSettings,
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("index.sqlite3");
        let store = SqliteStore::open(&file, "test", Default::default()).await.unwrap();
        let index = Arc::new(SqliteIndex::new(store.clone()));
        let ledger = Arc::new(SqliteLedger::open(store).await.unwrap());
        let file = folder.path().join("queue.sqlite3");
        let queue = SqliteQueue::open(&file, "test", SqliteQueueSettings::default()).await.unwrap();
        let (queue, metrics) = (Arc::new(queue), Metrics::default());
        let app = AppKey::first("app".parse().unwrap());
        let record = App::new(app.id.clone(), &Secret::generate(), UnixMillis::now());
        let record = App { pace: pace.and_then(NonZeroU32::new), ..record };
        assert!(index.create_app(&record).await.unwrap());
        let device = |(client, token): (String, Option<&str>)| Device {
            client_id: client.parse().unwrap(),
            attributes: Default::default(),
            transport: kind,
            token: token.map(Into::into),
            profile: push_model::profile::Profile::default(),
        };
        let devices: Vec<Device> = devices.into_iter().map(device).collect();
        let registered_at = UnixMillis::now().minus(Duration::from_secs(60));
        for some in devices.chunks(1000) {
            index.put_devices(&app, some, registered_at).await.unwrap();
        }
        let stores =
            Stores { index: index.clone(), ledger: ledger.clone(), ledger_is_separate: false };
        let transports = Transports::default().with(kind, transport);
        let dependencies = Dependencies {
            metrics: metrics.clone(),
            ..Dependencies::new(queue.clone(), stores, transports)
        };
        let stop = CancellationToken::new();
        let run = push_fanout_worker::run(settings, dependencies, DEADLINE, stop.clone());
        let worker = tokio::spawn(run);
        Self { index, metrics, app, ledger, queue, stop, worker, _folder: folder }
    }

    /// Publishes a broadcast.
    pub(crate) async fn publish(&self) -> MessageId {
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
        id
    }

    /// Waits until the ledger entry of a broadcast is as it should be, and returns it.
    pub(crate) async fn entry(&self, id: &MessageId, is_right: impl Fn(&Entry) -> bool) -> Entry {
        eventually("the ledger entry is as expected", async || {
            let entry = self.ledger.entry(&self.app, id).await.unwrap();
            entry.clone().filter(&is_right).ok_or(format!("{entry:?}"))
        })
        .await
    }

    /// Ends the worker in the middle of its work.
    pub(crate) fn abandon(self) {
        self.worker.abort();
    }

    /// Stops the worker.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.worker.await.unwrap().unwrap();
    }
}

/// Checks a condition until it holds, and returns its value. The condition returns the state that it saw
/// as long as it does not hold.
pub(crate) async fn eventually<T>(
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let begun = Instant::now();
    loop {
        match condition().await {
            Ok(value) => return value,
            Err(seen) => assert!(begun.elapsed() < DEADLINE, "{what}; last seen: {seen}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

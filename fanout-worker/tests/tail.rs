//! A transport that never answers for a few devices: they hold up no others, be those read for the
//! first time, tried again, or sent at the pace of their app.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use push_boot::engines::Stores;
use push_fanout_worker::{
    BulkLimits, ClosingLimits, Dependencies, LedgerLimits, PlanLimits, RetryLimits, RetryPolicy,
    RunLimits, WorkerSettings,
};
use push_index::{Apps as _, Devices as _, sqlite::SqliteIndex};
use push_ledger::{Ledger as _, sqlite::SqliteLedger};
use push_model::{
    app::{App, AppKey},
    device::{Device, Target, TransportKind},
    envelope::{JobMarks, encode_job, encode_job_envelope},
    gone::GoneLimit,
    hints::Hints,
    ids::{AppId, MessageId},
    ledger::{Retention, RetryReason},
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
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const DEVICES: usize = 24_000;
const LATENCY: Duration = Duration::from_millis(150);
const TIME_OUT: Duration = Duration::from_secs(15);
/// Deadline for a broadcast.
const DEADLINE: Duration = Duration::from_secs(90);

/// A transport that answers after [`LATENCY`], but for some devices only when their time is over.
#[derive(Debug, Default)]
struct Slow {
    unanswered: bool,
    /// The first try of some devices finds it busy.
    busy: bool,
    tries: Mutex<BTreeMap<String, u32>>,
}

impl Slow {
    fn is_silent(&self, target: &Target) -> bool {
        self.unanswered && target.client_id.as_str().ends_with("007")
    }

    fn is_busy(&self, target: &Target) -> bool {
        let client = target.client_id.as_str();
        self.busy && client.ends_with('3') && self.tries.lock().unwrap().get(client) == Some(&1)
    }
}

#[async_trait]
impl Transport for Slow {
    async fn deliver(
        &self,
        _message: &Outgoing,
        targets: &[Target],
        sending: &Sending,
    ) -> Vec<Outcome> {
        for target in targets {
            let client = target.client_id.to_string();
            *self.tries.lock().unwrap().entry(client).or_default() += 1;
        }
        sleep(LATENCY).await;
        let mut outcomes = Vec::new();
        for (device, target) in targets.iter().enumerate() {
            if self.is_silent(target) {
                outcomes.push(Outcome::Undecided);
            } else if self.is_busy(target) {
                sending.answer(device, Outcome::Later(RetryReason::Busy, None));
                outcomes.push(Outcome::Later(RetryReason::Busy, None));
            } else {
                sending.answer(device, Outcome::Sent);
                outcomes.push(Outcome::Sent);
            }
        }
        if outcomes.contains(&Outcome::Undecided) {
            sleep(TIME_OUT - LATENCY).await;
        }
        outcomes
    }

    async fn ready(&self) -> bool {
        true
    }

    fn longest_silence(&self) -> Duration {
        TIME_OUT
    }

    async fn close(&self) {}
}

fn settings(min_slots: u64) -> WorkerSettings {
    let seconds = Duration::from_secs;
    WorkerSettings {
        job_prefetch: 4,
        task_prefetch: 4,
        bulk: BulkLimits { requests: 1, yields: Duration::from_millis(5) },
        run: RunLimits {
            batch: 1000,
            time: Duration::from_millis(500),
            now_window: seconds(5),
            clock_allowance: seconds(1),
        },
        plan: PlanLimits { partitions: 4, min_slots },
        retry: RetryPolicy { first: seconds(1), longest: seconds(60) },
        retry_limits: RetryLimits { attempts: 10, backlog: 1000 },
        gone_limit: GoneLimit::default(),
        closing: ClosingLimits { every: seconds(600), write_off_after: seconds(900) },
        index_pause: RetryPolicy { first: Duration::from_millis(100), longest: seconds(2) },
        hold: seconds(600),
        ledger_retention: Retention::all(seconds(3600)),
        ledger: LedgerLimits { bytes: 1 << 30, every: seconds(10) },
    }
}

struct Broadcast {
    devices: usize,
    transport: Slow,
    pace: Option<u32>,
    /// The fewest slots of a partition; one that is not shared out is [`ALONE`].
    min_slots: u64,
}

/// A broadcast of this many slots has one partition, so that nothing hides the time that it waits.
const ALONE: u64 = 1 << 20;

/// Sends a broadcast, and returns how long it took until all devices that answer were sent to.
async fn broadcast(broadcast: Broadcast) -> Duration {
    let Broadcast { devices: number, transport, pace, min_slots } = broadcast;
    let (unanswered, busy) = (transport.unanswered, transport.busy);
    let dir = TempDir::new().unwrap();
    let store = dir.path().join("index.sqlite3");
    let store = SqliteStore::open(&store, "test", Default::default()).await.unwrap();
    let index = SqliteIndex::new(store.clone());
    let queue = dir.path().join("queue.sqlite3");
    let queue = SqliteQueue::open(&queue, "test", SqliteQueueSettings::default()).await.unwrap();
    let ledger = Arc::new(SqliteLedger::open(store).await.unwrap());
    let (index, queue) = (Arc::new(index), Arc::new(queue));
    let app: AppId = "app".parse().unwrap();
    let record = App::new(app.clone(), &Secret::generate(), UnixMillis::now());
    let record = App { pace: pace.and_then(NonZeroU32::new), ..record };
    assert!(index.create_app(&record).await.unwrap());
    let device = |n: usize| Device {
        client_id: format!("d{n:06}").parse().unwrap(),
        attributes: Default::default(),
        transport: TransportKind::Mqtt,
        token: None,
    };
    let devices: Vec<Device> = (0..number).map(device).collect();
    let key = AppKey::first(app.clone());
    for some in devices.chunks(1000) {
        index.put_devices(&key, some, UnixMillis::now()).await.unwrap();
    }
    let transport = Arc::new(transport);
    let transports = Transports::default().with(TransportKind::Mqtt, transport.clone());
    let stores = Stores { index: index.clone(), ledger: ledger.clone(), ledger_is_separate: false };
    let dependencies = Dependencies::new(queue.clone(), stores, transports);
    let stop = CancellationToken::new();
    let (settings, drain) = (settings(min_slots), Duration::from_secs(30));
    let worker = tokio::spawn(push_fanout_worker::run(settings, dependencies, drain, stop.clone()));
    let (id, accepted_at) =
        (MessageId::issue(&app, push_model::ids::AudienceKind::Broadcast), UnixMillis::now());
    let payload = Payload {
        message_id: id,
        app_id: app.clone(),
        kind: 2,
        notification: None,
        data: Some(BTreeMap::new()),
        hints: Hints::default(),
        accepted_at,
        sequence: 1,
        expires_at: accepted_at.plus_seconds(600),
    };
    let job = encode_job(&payload, &Audience::All, JobMarks::default()).unwrap();
    let begun = Instant::now();
    queue.publish(Lane::Jobs, encode_job_envelope(&[job])).await.unwrap();
    let silent = if unanswered { number.div_ceil(1000) } else { 0 };
    let all_that_answer = async {
        loop {
            let entry = ledger.entry(&AppKey::first(app.clone()), &id).await.unwrap();
            let sent = entry.map_or(0, |entry| entry.outcomes.sent);
            if sent as usize == number - silent {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, all_that_answer).await.expect("those that answer are sent to");
    let took = begun.elapsed();
    if unanswered {
        let entry = ledger.entry(&AppKey::first(app.clone()), &id).await.unwrap().unwrap();
        assert_eq!(entry.pending(), silent as u64, "they are counted and open");
        assert_eq!(entry.targeted, number as u64);
    }
    let tries = transport.tries.lock().unwrap().clone();
    let expected = |client: &str| if busy && client.ends_with('3') { 2 } else { 1 };
    let answering = tries.iter().filter(|(client, _)| !client.ends_with("007"));
    let repeated = answering.filter(|(client, tries)| **tries != expected(client));
    assert_eq!(repeated.count(), 0, "no device that was sent to is sent to again");
    stop.cancel();
    worker.await.unwrap().unwrap();
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn one_device_in_a_thousand_that_is_never_answered_does_not_slow_the_others() {
    let with = |unanswered| Broadcast {
        devices: DEVICES,
        transport: Slow { unanswered, ..Slow::default() },
        pace: None,
        min_slots: ALONE,
    };
    let undisturbed = broadcast(with(false)).await;
    let disturbed = broadcast(with(true)).await;
    let rate = undisturbed.as_secs_f64() / disturbed.as_secs_f64();
    println!("{undisturbed:?} undisturbed, {disturbed:?} with silent devices: {rate:.2}");
    assert!(
        rate > 0.7,
        "{undisturbed:?} undisturbed, {disturbed:?} with silent devices: {rate:.2}"
    );
}

/// A broadcast of one device that is never answered and others that must not wait for it.
async fn hurries(busy: bool, pace: Option<u32>) {
    // Once in the job lane, and once as partitions on the task lane.
    for min_slots in [ALONE, 500] {
        let transport = Slow { unanswered: true, busy, ..Slow::default() };
        let took = broadcast(Broadcast { devices: 1000, transport, pace, min_slots }).await;
        assert!(took < TIME_OUT / 2, "{took:?} with partitions of {min_slots} slots or more");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_are_due_again_do_not_wait_for_one_that_is_never_answered() {
    hurries(true, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_the_pace_of_their_app_holds_back_do_not_wait_for_one_that_is_never_answered()
{
    hurries(false, Some(400)).await;
}

//! A transport that never answers for a few devices: they hold up no others, be those read for the
//! first time, tried again, or sent at the pace of their app.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use push_fanout_worker::{PlanLimits, WorkerSettings};
use push_model::{
    device::{Target, TransportKind},
    ledger::RetryReason,
};
use push_transports::{Outcome, Outgoing, Sending, Transport};
use tokio::time::{Instant, sleep};

use crate::service::Service;

const DEVICES: usize = 24_000;
const LATENCY: Duration = Duration::from_millis(150);
const TIME_OUT: Duration = Duration::from_secs(15);

/// A transport that answers after [`LATENCY`], but for some devices only when their time is over.
#[derive(Debug, Default)]
struct Slow {
    unanswered: bool,
    /// The server of these devices is away instead.
    away: bool,
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
            if self.is_silent(target) && self.away {
                outcomes.push(Outcome::Later(RetryReason::TransportAway, None));
            } else if self.is_silent(target) {
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
    let plan = PlanLimits { partitions: 4, min_slots };
    WorkerSettings { job_prefetch: 4, plan, ..WorkerSettings::default() }
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
    let transport = Arc::new(transport);
    let devices = (0..number).map(|n| (format!("d{n:06}"), None));
    let (kind, settings) = (TransportKind::Mqtt, settings(min_slots));
    let service = Service::start(kind, transport.clone(), pace, devices, settings).await;
    let begun = Instant::now();
    let id = service.publish().await;
    let silent = if unanswered { number.div_ceil(1000) } else { 0 };
    let entry = service.entry(&id, |entry| entry.outcomes.sent == (number - silent) as u64).await;
    let took = begun.elapsed();
    if unanswered {
        assert_eq!(entry.pending(), silent as u64, "they are counted and open");
        assert_eq!(entry.targeted, number as u64);
    }
    let tries = transport.tries.lock().unwrap().clone();
    let expected = |client: &str| if busy && client.ends_with('3') { 2 } else { 1 };
    let answering = tries.iter().filter(|(client, _)| !client.ends_with("007"));
    let repeated = answering.filter(|(client, tries)| **tries != expected(client));
    assert_eq!(repeated.count(), 0, "no device that was sent to is sent to again");
    // A stop would wait for the silent devices.
    service.abandon();
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
async fn devices_whose_server_is_away_hold_up_no_others_of_their_partition() {
    let transport = Slow { unanswered: true, away: true, ..Slow::default() };
    // It lasts longer than the first of them wait.
    broadcast(Broadcast { devices: DEVICES, transport, pace: None, min_slots: ALONE }).await;
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

//! Sessions whose permission ends: after a recall, while the worker stops, and after a sleep of the machine.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use push_model::{ledger::RECALL_CHECK, time::UnixMillis};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    DEADLINE, NOW,
    session::{CHECK, Wire},
};
use crate::{Answers, Lifetime, Outcome, Permission, Sending};
use push_model::time::Clock;

/// A permission for a message, with the answers of some devices, at this time.
fn permission(
    clock: &Arc<AtomicU64>,
    stopping: &CancellationToken,
    devices: usize,
) -> (Arc<Permission>, Arc<Answers>) {
    let clock = clock.clone();
    let clock: Clock = Arc::new(move || UnixMillis(clock.load(Ordering::Relaxed)));
    let lifetime = Lifetime::Until(NOW.plus(DEADLINE * 100));
    let permission = Permission::new(lifetime, clock, stopping.clone(), Instant::now());
    (permission, Arc::new(Answers::new(devices)))
}

/// Sends to 20 devices over a window of 4. The broker acknowledges the first message, then does something, and
/// then acknowledges the others. Returns the outcomes and the number of messages that the broker got.
async fn sent_after(
    what: impl FnOnce(&Arc<Permission>, &Arc<AtomicU64>, &CancellationToken),
) -> (Vec<Option<Outcome>>, usize) {
    let mut wire = Wire::new(4);
    let (clock, stopping) = (Arc::new(AtomicU64::new(NOW.0)), CancellationToken::new());
    let (permission, answers) = permission(&clock, &stopping, 20);
    let sending = Sending::new(permission.clone(), answers.clone());
    let answer = wire.send_if(0..20, DEADLINE * 100, sending).await;
    let mut ids = VecDeque::new();
    for _ in 0..4 {
        ids.push_back(wire.receive().await.1);
    }
    what(&permission, &clock, &stopping);
    let mut received = 4;
    let broker = async {
        loop {
            match ids.pop_front() {
                Some(id) => wire.acknowledge(id).await,
                None => {
                    ids.push_back(wire.receive().await.1);
                    received += 1;
                }
            }
        }
    };
    let outcomes = tokio::select! {
        answers = answer => answers.unwrap(),
        () = broker => unreachable!(),
    };
    assert_eq!(answers.known(), outcomes, "each was reported as it came");
    (outcomes, received)
}

#[tokio::test(start_paused = true)]
async fn what_was_not_written_when_a_message_was_recalled_is_not_sent() {
    let (outcomes, received) = sent_after(|permission, _, _| permission.withdraw()).await;
    assert_eq!(received, 4);
    assert_eq!(outcomes[..4], [Some(Outcome::Sent); 4]);
    assert_eq!(outcomes[4..], [Some(Outcome::NotSent); 16]);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_written_when_the_worker_stops_is_returned() {
    let (outcomes, received) = sent_after(|_, _, stopping| stopping.cancel()).await;
    assert_eq!(received, 4);
    assert_eq!(outcomes[4..], [Some(Outcome::NotSent); 16]);
}

#[tokio::test(start_paused = true)]
async fn what_expired_while_the_machine_slept_is_not_sent() {
    // Only the wall clock runs while a machine sleeps.
    let end = NOW.plus(DEADLINE * 100).0;
    let slept = |_: &Arc<Permission>, clock: &Arc<AtomicU64>, _: &CancellationToken| {
        clock.store(end + 1, Ordering::Relaxed);
    };
    let (outcomes, received) = sent_after(slept).await;
    assert_eq!(received, 4);
    assert_eq!(outcomes[4..], [Some(Outcome::Expired); 16]);
}

#[tokio::test(start_paused = true)]
async fn a_session_waits_for_the_ledger_when_it_was_read_too_long_ago_or_the_machine_slept() {
    for (passes, sleeps) in [(RECALL_CHECK * 2, 0), (Duration::ZERO, 2)] {
        let mut wire = Wire::new(4);
        let (clock, stopping) = (Arc::new(AtomicU64::new(NOW.0)), CancellationToken::new());
        let (permission, answers) = permission(&clock, &stopping, 4);
        sleep(passes).await;
        clock.fetch_add(RECALL_CHECK.as_millis() as u64 * sleeps, Ordering::Relaxed);
        let sending = Sending::new(permission.clone(), answers);
        let answer = wire.send_if(0..4, DEADLINE * 100, sending).await;
        assert!(timeout(CHECK, wire.receive()).await.is_err(), "it was not read again");
        timeout(CHECK, permission.wanted()).await.unwrap();
        permission.renew(Instant::now());
        for _ in 0..4 {
            let (_, id) = wire.receive().await;
            wire.acknowledge(id).await;
        }
        assert_eq!(answer.await.unwrap(), [Some(Outcome::Sent); 4]);
    }
}

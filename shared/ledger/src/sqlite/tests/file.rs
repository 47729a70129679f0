//! The file: reopening, and several handles on it.

use super::*;

fn new_entry(message: MessageId, keep_until: UnixMillis) -> NewEntry {
    NewEntry {
        message_id: message,
        app: key(),
        accepted_at: UnixMillis(1_000),
        expires_at: UnixMillis(5_000),
        dedup_nonce: u64::MAX,
        keep_until,
        plan: None,
        claim: None,
        replaces: None,
        broadcast: None,
    }
}

/// The state of a partition after this many steps.
fn after(step: u64) -> PartitionState {
    let offset = u32::try_from(step).unwrap();
    PartitionState { claim: None, step, checkpoint: Checkpoint::At { range: 0, offset } }
}

fn step(from: PartitionState, to: PartitionState) -> Advance {
    let outcomes = Outcomes { sent: 2, ..Outcomes::default() };
    let counts = Counts { targeted: 3, outcomes, ..Counts::default() };
    Advance {
        dedup_nonce: u64::MAX,
        partition: 0,
        from,
        to,
        leftovers: None,
        counts,
        keep_until: None,
    }
}

#[tokio::test]
async fn a_reopened_file_keeps_the_ledger() {
    let dir = TempDir::new().unwrap();
    let ledger = open(&dir).await;
    let message = MessageId::issue_named(&app());
    ledger.begin(&new_entry(message, UnixMillis::MAX)).await.unwrap();
    let plan = Plan::of(
        push_model::device::TransportKind::Mqtt,
        vec![vec![SlotRange { shard: 0, from: 0, to: 1 }]],
    );
    ledger.plan(&key(), &message, &plan).await.unwrap();
    ledger.advance(&key(), &message, &step(after(0), PartitionState::ENDED)).await.unwrap();
    drop(ledger);

    let ledger = open(&dir).await;
    let entry = ledger.entry(&key(), &message).await.unwrap().unwrap();
    assert_eq!((entry.dedup_nonce, entry.targeted, entry.pending()), (Some(u64::MAX), 3, 1));
    assert_eq!(entry.plan, Some(plan));
    assert_eq!(entry.partition(0).state, PartitionState::ENDED);
}

#[tokio::test]
async fn of_two_processes_at_one_partition_one_saves_and_the_other_is_told() {
    let dir = TempDir::new().unwrap();
    let (one, two) = (open(&dir).await, open(&dir).await);
    let message = MessageId::issue_named(&app());
    one.begin(&new_entry(message, UnixMillis::MAX)).await.unwrap();
    for at in 0..20 {
        let step = step(after(at), after(at + 1));
        let app = key();
        let (a, b) =
            tokio::join!(one.advance(&app, &message, &step), two.advance(&app, &message, &step));
        let saved = AdvanceOutcome::Saved { recalled: false };
        let both = [a.unwrap(), b.unwrap()];
        assert!(both.contains(&saved) && both.contains(&AdvanceOutcome::Conflict), "{both:?}");
    }
    let entry = two.entry(&key(), &message).await.unwrap().unwrap();
    assert_eq!((entry.targeted, entry.outcomes.sent), (60, 40), "each step counts once");
}

#[tokio::test]
async fn namespaces_share_a_file_and_no_ledger() {
    let dir = TempDir::new().unwrap();
    let (ledger, other) = (open(&dir).await, open_of(&dir, "other").await);
    let message = MessageId::issue_named(&app());
    ledger.begin(&new_entry(message, UnixMillis::MAX)).await.unwrap();
    assert_eq!(other.entry(&key(), &message).await.unwrap(), None);
}

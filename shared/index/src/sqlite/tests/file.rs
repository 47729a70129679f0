//! The file: reopening, several handles on it, and files of another kind.

use super::*;

fn new_entry(message: MessageId, keep_until: UnixMillis) -> NewEntry {
    NewEntry {
        message_id: message,
        app: key(),
        accepted_at: T0,
        expires_at: UnixMillis(5_000),
        dedup_nonce: u64::MAX,
        keep_until,
        plan: None,
        claim: None,
        replaces: None,
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
async fn a_reopened_file_keeps_apps_devices_and_ledger() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let record = App::new(app(), &Secret::generate(), T0);
    index.create_app(&record).await.unwrap();
    let mut whole = device(
        "whole",
        &[
            (Attribute::Country, "cn"),
            (Attribute::Language, "zh-Hans"),
            (Attribute::Brand, "Xiao Mi"),
            (Attribute::Model, "M 1"),
            (Attribute::OsVersion, "034"),
            (Attribute::AppVersion, "1.0"),
        ],
    );
    whole.transport = TransportKind::Fcm;
    whole.token = Some("token".into());
    index.put_devices(&key(), std::slice::from_ref(&whole), T0).await.unwrap();
    let message = MessageId::issue_named(&app());
    let ledger = index.ledger();
    ledger.begin(&new_entry(message, UnixMillis::MAX)).await.unwrap();
    let plan = Plan::of(
        push_model::device::TransportKind::Mqtt,
        vec![vec![SlotRange { shard: 0, from: 0, to: 1 }]],
    );
    ledger.plan(&key(), &message, &plan).await.unwrap();
    ledger.advance(&key(), &message, &step(after(0), PartitionState::ENDED)).await.unwrap();
    drop((index, ledger));

    let index = open(&dir).await;
    assert_eq!(index.apps().await.unwrap(), [record]);
    assert_eq!(index.device(&key(), &whole.client_id).await.unwrap(), Some(whole));
    let entry = index.ledger().entry(&key(), &message).await.unwrap().unwrap();
    assert_eq!((entry.dedup_nonce, entry.targeted, entry.pending()), (Some(u64::MAX), 3, 1));
    assert_eq!(entry.plan, Some(plan));
    assert_eq!(entry.partition(0).state, PartitionState::ENDED);
}

#[tokio::test]
async fn of_two_processes_at_one_partition_one_saves_and_the_other_is_told() {
    let dir = TempDir::new().unwrap();
    let (one, two) = (open(&dir).await.ledger(), open(&dir).await.ledger());
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
async fn namespaces_share_a_file_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let settings = SqliteIndexSettings::default();
    let other = SqliteIndex::open(&file(&dir), "other", settings).await.unwrap();
    index.create_app(&App::new(app(), &Secret::generate(), T0)).await.unwrap();
    put(&index, "a", T0).await.unwrap();
    let message = MessageId::issue_named(&app());
    index.ledger().begin(&new_entry(message, UnixMillis::MAX)).await.unwrap();
    assert_eq!(other.apps().await.unwrap(), []);
    assert_eq!(other.count_devices(&key()).await.unwrap(), 0);
    assert_eq!(other.ledger().entry(&key(), &message).await.unwrap(), None);
    assert!(!other.remove_app(&app()).await.unwrap());
    assert_eq!(all_registered_by(&index, T0).await, ["a"]);
}

#[tokio::test]
async fn a_queue_file_or_a_newer_one_is_refused() {
    let dir = TempDir::new().unwrap();
    drop(open(&dir).await);
    Connection::open(file(&dir)).unwrap().pragma_update(None, "user_version", 1_000).unwrap();
    let settings = SqliteIndexSettings::default();
    let error = SqliteIndex::open(&file(&dir), "test", settings.clone()).await.unwrap_err();
    assert!(error.to_string().contains("newer version"), "{error}");

    let queue = dir.path().join("queue.sqlite3");
    let of_queue = push_queue::sqlite::SqliteQueueSettings::default();
    push_queue::sqlite::SqliteQueue::open(&queue, "test", of_queue).await.unwrap();
    let error = SqliteIndex::open(&queue, "test", settings).await.unwrap_err();
    assert!(error.to_string().contains("is not the file of a push index"), "{error}");
}

#[tokio::test]
async fn the_doctor_sees_a_durable_file() {
    let dir = TempDir::new().unwrap();
    let findings = open(&dir).await.inspect().await.unwrap();
    assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:?}");
    let of = |subject| findings.iter().find(|f| f.subject == subject).unwrap().detail.clone();
    assert_eq!(of("journal mode"), "wal");
    assert!(of("synchronous").starts_with("full"));
    assert!(of("sqlite version").starts_with('3'));
}

//! What is peculiar to this engine: slots and their reuse, several handles on one file,
//! reopening, and that targeting on the dictionary is the shared definition; of the ledger, the
//! forms of its entries ([`super::ledger`]). What every engine promises is in the conformance
//! suite.

use std::path::PathBuf;

use proptest::prelude::*;
use push_model::{
    app::{App, AppKey},
    attributes::{Attribute, Attributes},
    device::{Device, TransportKind},
    ids::{AppId, MessageId},
    ledger::{Advance, Advanced, Checkpoint, Counts, Opened, Outcomes, PartitionState, Plan},
    secret::Secret,
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::{Apps, Devices, Ledger, Level, MAX_DISTINCT_VALUES, Put, PutRefused};

const T0: UnixMillis = UnixMillis(1_000);

fn file(dir: &TempDir) -> PathBuf {
    dir.path().join("index.sqlite3")
}

async fn open(dir: &TempDir) -> SqliteIndex {
    open_with(dir, SqliteIndexSettings::default()).await
}

async fn open_with(dir: &TempDir, settings: SqliteIndexSettings) -> SqliteIndex {
    SqliteIndex::open(&file(dir), "test", settings).await.unwrap()
}

fn app() -> AppId {
    "app".parse().unwrap()
}

fn key() -> AppKey {
    AppKey::first(app())
}

fn device(id: &str, values: &[(Attribute, &str)]) -> Device {
    let mut attributes = Attributes::default();
    for (attribute, value) in values {
        attributes.set(*attribute, value).unwrap();
    }
    let client_id = id.parse().unwrap();
    Device { client_id, attributes, transport: TransportKind::Mqtt, token: None }
}

async fn put(index: &SqliteIndex, id: &str, now: UnixMillis) -> Result<Put, PutRefused> {
    index.put_devices(&key(), &[device(id, &[])], now).await.unwrap()[0]
}

/// Everybody in the whole extent who was registered by then, a few devices at a time.
async fn everyone(index: &SqliteIndex, registered_by: UnixMillis) -> Vec<String> {
    let mut ids = Vec::new();
    for slice in index.extent(&key()).await.unwrap() {
        let mut from = Some(slice.from);
        while let Some(at) = from {
            let rest = SlotRange { from: at, ..slice };
            let page =
                index.scan(&key(), rest, &Targeting::everyone(), registered_by, 2).await.unwrap();
            ids.extend(page.items.into_iter().map(|target| target.client_id.to_string()));
            from = page.next;
        }
    }
    ids
}

#[tokio::test]
async fn an_app_that_replaces_its_devices_for_ever_does_not_run_out_of_slots() {
    let dir = TempDir::new().unwrap();
    let settings = SqliteIndexSettings { most_slots: 3, ..SqliteIndexSettings::default() };
    let index = open_with(&dir, settings).await;
    for i in 0..3 {
        assert_eq!(put(&index, &format!("d{i}"), T0).await, Ok(Put::Created));
    }
    assert_eq!(put(&index, "one-too-many", T0).await, Err(PutRefused::IndexFull));
    for i in 3..30 {
        let oldest = format!("d{}", i - 3).parse().unwrap();
        assert!(index.remove_device(&key(), &oldest).await.unwrap());
        assert_eq!(put(&index, &format!("d{i}"), T0).await, Ok(Put::Created));
    }
    assert_eq!(put(&index, "d29", T0).await, Ok(Put::Updated), "an update needs no slot");
    assert_eq!(index.count_devices(&key()).await.unwrap(), 3);
    let extent = SlotRange { shard: 0, from: 0, to: 3 };
    assert_eq!(index.extent(&key()).await.unwrap(), [extent]);
}

#[tokio::test]
async fn a_message_does_not_reach_a_device_that_moved_into_a_slot_after_it_was_accepted() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    for id in ["a", "b", "c", "d"] {
        put(&index, id, T0).await.unwrap();
    }
    let accepted = UnixMillis(2_000);
    index.remove_device(&key(), &"b".parse().unwrap()).await.unwrap();
    put(&index, "late", UnixMillis(2_001)).await.unwrap();
    assert_eq!(everyone(&index, accepted).await, ["a", "c", "d"]);
    assert_eq!(everyone(&index, UnixMillis(2_001)).await, ["a", "late", "c", "d"]);
    put(&index, "a", UnixMillis(3_000)).await.unwrap();
    assert_eq!(everyone(&index, accepted).await, ["a", "c", "d"], "an update is no registration");
}

#[tokio::test]
async fn a_removed_app_is_gone_at_once_and_begins_anew_when_it_is_created_again() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let record = App::new(app(), &Secret::generate(), T0);
    assert!(index.create_app(&record).await.unwrap());
    let devices: Vec<_> = (0..12_000)
        .map(|i| device(&format!("d{i}"), &[(Attribute::Model, &format!("m{}", i % 7))]))
        .collect();
    index.put_devices(&key(), &devices, T0).await.unwrap();
    index.remove_device(&key(), &"d5".parse().unwrap()).await.unwrap();
    assert!(index.remove_app(&app()).await.unwrap());
    assert!(!index.remove_app(&app()).await.unwrap());
    assert_eq!(index.app(&app()).await.unwrap(), None);
    assert_eq!(index.count_devices(&key()).await.unwrap(), 0);
    assert!(index.create_app(&record).await.unwrap());
    assert_eq!(index.extent(&key()).await.unwrap(), []);
    drop(index);
    let sql = Connection::open(file(&dir)).unwrap();
    for table in ["device", "free_slot", "word"] {
        let count = format!("SELECT count(*) FROM {table}");
        let count: i64 = sql.query_row(&count, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0, "{table}");
    }
}

#[tokio::test]
async fn a_full_dictionary_refuses_new_values_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let full: Vec<_> = (0..MAX_DISTINCT_VALUES)
        .map(|i| device(&format!("d{i}"), &[(Attribute::AppVersion, &i.to_string())]))
        .collect();
    for page in full.chunks(10_000) {
        let results = index.put_devices(&key(), page, T0).await.unwrap();
        assert!(results.iter().all(|result| *result == Ok(Put::Created)));
    }
    let new_value = device("new", &[(Attribute::AppVersion, "new")]);
    let new_for_old = device("d1", &[(Attribute::AppVersion, "new")]);
    let known_value = device("known", &[(Attribute::AppVersion, "7")]);
    let other_attribute = device("other", &[(Attribute::Model, "new")]);
    let refused = Err(PutRefused::DictionaryFull(Attribute::AppVersion));
    assert_eq!(
        index
            .put_devices(&key(), &[new_value, new_for_old, known_value, other_attribute], T0)
            .await
            .unwrap(),
        [refused, refused, Ok(Put::Created), Ok(Put::Created)]
    );
    let kept = index.device(&key(), &"d1".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(kept.attributes.get(Attribute::AppVersion), Some("1"), "it stays as it was");
}

fn opened(message: MessageId, keep_until: UnixMillis) -> Opened {
    Opened {
        message_id: message,
        app_id: app(),
        accepted_at: T0,
        expires_at: UnixMillis(5_000),
        copy: u64::MAX,
        keep_until,
        plan: None,
        claim: None,
        replaces: None,
    }
}

/// The state of a partition after so many steps.
fn after(step: u64) -> PartitionState {
    let offset = u32::try_from(step).unwrap();
    PartitionState { claim: None, step, checkpoint: Checkpoint::At { slice: 0, offset } }
}

fn step(from: PartitionState, to: PartitionState) -> Advance {
    let outcomes = Outcomes { sent: 2, ..Outcomes::default() };
    let counts = Counts { targeted: 3, outcomes, ..Counts::default() };
    Advance { copy: u64::MAX, partition: 0, from, to, leftovers: None, counts, keep_until: None }
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
    let message = MessageId::issue(&app());
    index.open(&opened(message, UnixMillis::MAX)).await.unwrap();
    let plan = Plan { partitions: vec![vec![SlotRange { shard: 0, from: 0, to: 1 }]] };
    index.plan(&message, &plan).await.unwrap();
    index.advance(&app(), &message, &step(after(0), PartitionState::ENDED)).await.unwrap();
    drop(index);

    let index = open(&dir).await;
    assert_eq!(index.apps().await.unwrap(), [record]);
    assert_eq!(index.device(&key(), &whole.client_id).await.unwrap(), Some(whole));
    let entry = index.entry(&app(), &message).await.unwrap().unwrap();
    assert_eq!((entry.copy, entry.targeted, entry.pending()), (Some(u64::MAX), 3, 1));
    assert_eq!(entry.plan, Some(plan));
    assert_eq!(entry.partition(0).state, PartitionState::ENDED);
}

#[tokio::test]
async fn of_two_processes_at_one_partition_one_saves_and_the_other_is_told() {
    let dir = TempDir::new().unwrap();
    let (one, two) = (open(&dir).await, open(&dir).await);
    let message = MessageId::issue(&app());
    one.open(&opened(message, UnixMillis::MAX)).await.unwrap();
    for at in 0..20 {
        let step = step(after(at), after(at + 1));
        let app = app();
        let (a, b) =
            tokio::join!(one.advance(&app, &message, &step), two.advance(&app, &message, &step));
        let saved = Advanced::Saved { recalled: false };
        let both = [a.unwrap(), b.unwrap()];
        assert!(both.contains(&saved) && both.contains(&Advanced::Conflict), "{both:?}");
    }
    let entry = two.entry(&app(), &message).await.unwrap().unwrap();
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
    let message = MessageId::issue(&app());
    index.open(&opened(message, UnixMillis::MAX)).await.unwrap();
    assert_eq!(other.apps().await.unwrap(), []);
    assert_eq!(other.count_devices(&key()).await.unwrap(), 0);
    assert_eq!(other.entry(&app(), &message).await.unwrap(), None);
    assert!(!other.remove_app(&app()).await.unwrap());
    assert_eq!(everyone(&index, T0).await, ["a"]);
}

#[tokio::test]
async fn a_queue_file_or_a_newer_one_is_refused() {
    let dir = TempDir::new().unwrap();
    drop(open(&dir).await);
    Connection::open(file(&dir)).unwrap().pragma_update(None, "user_version", 9).unwrap();
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

const LANGUAGES: [&str; 9] =
    ["zh", "zh-CN", "zh-Hans", "zh-Hans-CN", "zha", "en", "en-US", "z", "zh-C"];
const MODELS: [&str; 5] = ["A", "A1", "Ä", "A-1", "A.1"];

fn device_values() -> impl Strategy<Value = (Option<usize>, Option<usize>)> {
    (prop::option::of(0..LANGUAGES.len()), prop::option::of(0..MODELS.len()))
}

fn wanted() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
    // One past the last language asks for any.
    (prop::collection::vec(0..=LANGUAGES.len(), 0..3), prop::collection::vec(0..MODELS.len(), 0..3))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn targeting_on_the_dictionary_is_the_shared_definition(
        devices in prop::collection::vec(device_values(), 0..20),
        wanted in prop::collection::vec(wanted(), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = TempDir::new().unwrap();
            let index = open(&dir).await;
            let devices: Vec<_> = (0..).zip(devices).map(|(i, (language, model))| {
                let mut values = Vec::new();
                values.extend(language.map(|i| (Attribute::Language, LANGUAGES[i])));
                values.extend(model.map(|i| (Attribute::Model, MODELS[i])));
                device(&format!("d{i}"), &values)
            }).collect();
            index.put_devices(&key(), &devices, T0).await.unwrap();
            for (languages, models) in wanted {
                let value = |attribute: Attribute, text: &str| {
                    attribute.normalise_wanted(text).unwrap()
                };
                let language = |i: &usize| LANGUAGES.get(*i).copied().unwrap_or("*");
                let mut targeting = Targeting::everyone();
                targeting.set(
                    Attribute::Language,
                    languages.iter().map(|i| value(Attribute::Language, language(i))).collect(),
                );
                targeting.set(
                    Attribute::Model,
                    models.iter().map(|i| value(Attribute::Model, MODELS[*i])).collect(),
                );
                let slice = SlotRange { shard: 0, from: 0, to: u32::MAX };
                let page = index.scan(&key(), slice, &targeting, T0, 100).await.unwrap();
                let found: Vec<_> = page.items.into_iter().map(|t| t.client_id).collect();
                let meant: Vec<_> = devices.iter()
                    .filter(|device| targeting.matches(&device.attributes))
                    .map(|device| device.client_id.clone())
                    .collect();
                assert_eq!(found, meant);
                let count = index.count_matching(&key(), slice, &targeting, T0).await.unwrap();
                assert_eq!(count, meant.len() as u64);
            }
        });
    }
}

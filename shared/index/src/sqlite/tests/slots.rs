//! Slots and their reuse, removed apps, and dictionaries.

use super::*;

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
    assert_eq!(all_registered_by(&index, accepted).await, ["a", "c", "d"]);
    assert_eq!(all_registered_by(&index, UnixMillis(2_001)).await, ["a", "late", "c", "d"]);
    put(&index, "a", UnixMillis(3_000)).await.unwrap();
    assert_eq!(
        all_registered_by(&index, accepted).await,
        ["a", "c", "d"],
        "an update is no registration"
    );
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
    for table in ["device", "free_slot", "word", "free_code", "dictionary"] {
        let count = format!("SELECT count(*) FROM {table}");
        let count: i64 = sql.query_row(&count, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0, "{table}");
    }
}

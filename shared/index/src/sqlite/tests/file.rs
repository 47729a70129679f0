//! The file: reopening, and several namespaces in it.

use super::*;

#[tokio::test]
async fn a_reopened_file_keeps_apps_and_devices() {
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
    drop(index);

    let index = open(&dir).await;
    assert_eq!(index.apps().await.unwrap(), [record]);
    assert_eq!(index.device(&key(), &whole.client_id).await.unwrap(), Some(whole));
}

#[tokio::test]
async fn namespaces_share_a_file_and_no_app() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let settings = SqliteIndexSettings::default();
    let other = SqliteIndex::open(&file(&dir), "other", settings).await.unwrap();
    index.create_app(&App::new(app(), &Secret::generate(), T0)).await.unwrap();
    put(&index, "a", T0).await.unwrap();
    assert_eq!(other.apps().await.unwrap(), []);
    assert_eq!(other.count_devices(&key()).await.unwrap(), 0);
    assert!(!other.remove_app(&app()).await.unwrap());
    assert_eq!(all_registered_by(&index, T0).await, ["a"]);
}

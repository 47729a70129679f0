//! An app's record: created, updated, listed, removed.

use push_index::{Index, Put};
use push_model::{
    app::{App, AppKey, Scopes},
    secret::Secret,
    targeting::Targeting,
    time::UnixMillis,
};

use crate::index::support::{NOW, device, scan_all};

fn app(id: &str) -> App {
    App::new(id.parse().unwrap(), &Secret::generate(), UnixMillis(1))
}

pub(crate) async fn an_app_is_created_once_and_updated_only_if_it_exists(index: &dyn Index) {
    let mut first = app("a");
    assert_eq!(index.app(&first.app_id).await.unwrap(), None);
    assert!(!index.update_app(&first).await.unwrap());
    assert!(index.create_app(&first).await.unwrap());
    assert!(!index.create_app(&app("a")).await.unwrap());
    assert_eq!(index.app(&first.app_id).await.unwrap().as_ref(), Some(&first));
    first.disabled = true;
    assert!(index.update_app(&first).await.unwrap());
    first.revision += 1;
    assert_eq!(index.app(&first.app_id).await.unwrap(), Some(first));
}

pub(crate) async fn a_record_that_was_changed_since_it_was_read_is_not_replaced(index: &dyn Index) {
    let mut made = app("a");
    let secret = Secret::generate();
    let (name, scopes) = ("phones".parse().unwrap(), Scopes::ALL);
    made.add_secret(name, &secret, scopes, UnixMillis(1), None).unwrap();
    assert!(index.create_app(&made).await.unwrap());
    let read = async || index.app(&made.app_id).await.unwrap().unwrap();
    let (mut revoked, mut disabled) = (read().await, read().await);
    assert!(revoked.revoke_secret(&"phones".parse().unwrap()));
    assert!(index.update_app(&revoked).await.unwrap());
    disabled.disabled = true;
    assert!(!index.update_app(&disabled).await.unwrap(), "it would bring the secret back");
    let mut disabled = read().await;
    assert!(!disabled.disabled && disabled.secrets.is_empty());
    disabled.disabled = true;
    assert!(index.update_app(&disabled).await.unwrap());
    let now = read().await;
    assert!(now.disabled && now.secrets.is_empty() && now.revision == 2);
}

pub(crate) async fn apps_are_listed_by_id(index: &dyn Index) {
    assert!(index.apps().await.unwrap().is_empty());
    for id in ["b", "a.c", "a"] {
        index.create_app(&app(id)).await.unwrap();
    }
    let ids: Vec<_> =
        index.apps().await.unwrap().iter().map(|app| app.app_id.to_string()).collect();
    assert_eq!(ids, ["a", "a.c", "b"]);
}

pub(crate) async fn a_removed_app_leaves_no_device_and_can_come_back(index: &dyn Index) {
    let (gone, other) = (app("a"), app("b"));
    let devices: Vec<_> =
        (0..3000).map(|i| device(&format!("c{i}"), &[("model", &format!("m{i}"))])).collect();
    for app in [&gone, &other] {
        index.create_app(app).await.unwrap();
        index.put_devices(&app.into(), &devices, NOW).await.unwrap();
    }
    assert!(index.remove_app(&gone.app_id).await.unwrap());
    assert!(!index.remove_app(&gone.app_id).await.unwrap());
    assert_eq!(index.app(&gone.app_id).await.unwrap(), None);
    assert_eq!(index.count_devices(&(&gone).into()).await.unwrap(), 0);
    assert_eq!(index.extent(&(&gone).into()).await.unwrap(), []);
    let client = &devices[0].client_id;
    assert_eq!(index.device(&(&gone).into(), client).await.unwrap(), None);
    assert_eq!(index.count_devices(&(&other).into()).await.unwrap(), 3000);

    index.create_app(&gone).await.unwrap();
    let again = AppKey::from(&index.app(&gone.app_id).await.unwrap().unwrap());
    let back = device("c0", &[("model", "another")]);
    let put = index.put_devices(&again, std::slice::from_ref(&back), NOW).await.unwrap();
    assert_eq!(put, [Ok(Put::Created)]);
    assert_eq!(index.device(&again, client).await.unwrap(), Some(back));
    let everyone = scan_all(index, &again, &Targeting::all_devices(), NOW, 100).await;
    assert_eq!(everyone, ["c0"]);
}

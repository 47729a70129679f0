//! Apps: made, shown, limited and removed.

use std::fs;

use push_index::{
    SecretUses as _,
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use push_model::{app::AppKey, time::UnixMillis};
use serde_json::json;

use crate::pushctl::support::Store;

#[tokio::test]
async fn the_store_that_the_first_app_makes_is_named_and_whether_a_service_has_it() {
    let store = Store::new();
    let first = store.run(&["app", "create", "news"]).await;
    let made = format!("made a new store in {}; ", store.dir().display());
    assert!(first.ok && first.err.starts_with(&made), "{}", first.err);
    assert!(first.err.contains("pushctl standalone --data-dir"), "{}", first.err);
    let second = store.run(&["app", "create", "mail"]).await;
    assert!(second.ok && second.err.is_empty(), "{}", second.err);
}

#[tokio::test]
async fn an_app_is_made_once_shown_without_its_secret_and_removed() {
    let store = Store::new();
    let made = store.run(&["app", "create", "news", "--rate-limit", "5", "--json"]).await.json();
    let secret = made["secret"].as_str().unwrap();
    assert_eq!(secret.len(), 64);
    assert!(store.run(&["app", "create", "news"]).await.refused().contains("already"));

    store.run(&["app", "disable", "news"]).await;
    let shown = store.run(&["app", "show", "news", "--json"]).await;
    assert_eq!(shown.json()["disabled"], true);
    assert_eq!(shown.json()["rate_limit"], 5);
    assert!(!shown.out.contains(secret));
    store.run(&["app", "enable", "news"]).await;
    let list = store.run(&["app", "list", "--json"]).await.json();
    assert_eq!((list[0]["app_id"].as_str(), &list[0]["disabled"]), (Some("news"), &json!(false)));

    let stored = fs::read(store.dir().join("index.sqlite3")).unwrap();
    let seen = stored.windows(secret.len()).any(|window| window == secret.as_bytes());
    assert!(!seen, "the secret is in the store in the clear");
    let unasked = store.run(&["app", "remove", "news"]).await;
    let refused = unasked.refused();
    assert!(
        refused.contains("app news with its 0 devices") && refused.contains("--yes"),
        "{refused}"
    );
    assert!(store.run(&["app", "remove", "news", "--yes"]).await.ok);
    assert!(store.run(&["app", "show", "news"]).await.refused().contains("no app news"));
}

#[tokio::test]
async fn the_limits_of_an_app_are_changed_one_by_one_and_given_up() {
    let store = Store::new();
    store.run(&["app", "create", "news", "--rate-limit", "5", "--pace", "1000"]).await;
    let set = store.run(&["app", "set", "news", "--pace", "2000", "--json"]).await.json();
    assert_eq!((&set["rate_limit"], &set["pace"]), (&json!(5), &json!(2000)));
    let set = store.run(&["app", "set", "news", "--rate-limit", "none", "--json"]).await.json();
    assert_eq!((&set["rate_limit"], &set["pace"]), (&json!(null), &json!(2000)));
    let shown = store.run(&["app", "show", "news"]).await.out;
    assert!(shown.contains("PACE") && shown.contains("2000/s"), "{shown}");

    let nothing = store.run(&["app", "set", "news"]).await;
    assert!(!nothing.ok && nothing.err.contains("--pace"), "{}", nothing.err);
    let wrong = store.run(&["app", "set", "news", "--pace", "0"]).await;
    assert!(!wrong.ok && wrong.err.contains("from 1 to 4294967295, or none"), "{}", wrong.err);
    let unknown = store.run(&["app", "set", "old", "--pace", "5"]).await;
    assert!(unknown.refused().contains("no app old"), "{}", unknown.err);
}

#[tokio::test]
async fn an_app_shows_its_quota_of_devices_and_when_each_secret_was_last_used() {
    let store = Store::new();
    store.run(&["app", "create", "news", "--max-devices", "5"]).await;
    let shown = async || store.run(&["app", "show", "news", "--json"]).await.json();
    assert_eq!(shown().await["max_devices"], 5);
    for (given, stored) in [("none", json!("none")), ("default", json!("default")), ("7", json!(7))]
    {
        let set = store.run(&["app", "set", "news", "--max-devices", given, "--json"]).await.json();
        assert_eq!(set["max_devices"], stored);
    }
    let wrong = store.run(&["app", "set", "news", "--max-devices", "0"]).await;
    assert!(!wrong.ok && wrong.err.contains("or none, or default"), "{}", wrong.err);

    assert_eq!(shown().await["secrets"][0]["last_used_at"], json!(null));
    let file = store.dir().join("index.sqlite3");
    let index = SqliteIndex::open(&file, "push", SqliteIndexSettings::default()).await.unwrap();
    let app = AppKey::first("news".parse().unwrap());
    let used_at = UnixMillis::now();
    index.save_secret_uses(&app, &[("default", Some(used_at))]).await.unwrap();
    assert_eq!(shown().await["secrets"][0]["last_used_at"], json!(used_at));
    let listed = store.run(&["app", "secret", "list", "news"]).await.out;
    assert!(listed.contains("LAST USED") && listed.contains(&used_at.to_string()), "{listed}");
    // The next default secret was not used yet.
    store.run(&["app", "rotate-secret", "news"]).await;
    assert_eq!(shown().await["secrets"][0]["last_used_at"], json!(null));
}

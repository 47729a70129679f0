//! Lists of devices and messages, page by page.

use std::collections::BTreeSet;

use push_ledger::{Ledger, sqlite::SqliteLedger};
use push_model::{
    app::AppKey,
    ids::MessageId,
    ledger::{NewEntry, Plan},
    time::UnixMillis,
};
use push_store::sqlite::SqliteStore;

use crate::pushctl::support::Store;

#[tokio::test]
async fn devices_are_listed_page_by_page() {
    let store = Store::new();
    for app in ["a", "b"] {
        store.run(&["app", "create", app]).await;
    }
    let lines: String = (0..25).map(|n| format!("{{\"client_id\":\"d-{n}\"}}\n")).collect();
    let file = store.file("devices", &lines);
    assert!(store.run(&["device", "import", "a", &file]).await.ok);

    let (mut seen, mut cursor) = (BTreeSet::new(), None::<String>);
    for page in 0.. {
        let mut command = vec!["device", "list", "a", "--limit", "10", "--json"];
        if let Some(cursor) = &cursor {
            command.extend(["--cursor", cursor]);
        }
        let listed = store.run(&command).await.json();
        for device in listed["devices"].as_array().unwrap() {
            assert!(seen.insert(device["client_id"].as_str().unwrap().to_owned()), "{device}");
        }
        let Some(next) = listed["next_cursor"].as_str() else { break };
        assert!(page < 10, "the list has no end");
        cursor = Some(next.to_owned());
    }
    assert_eq!(seen.len(), 25);
    let foreign = ["device", "list", "b", "--cursor", cursor.as_deref().unwrap()];
    let refused = store.run(&foreign).await;
    assert!(refused.refused().contains("not one of the devices of b"), "{}", refused.err);
    assert_eq!(store.run(&["device", "list", "b"]).await.out, "no devices\n");
    let text = store.run(&["device", "list", "a", "--limit", "1"]).await;
    assert!(text.out.starts_with("CLIENT"), "{}", text.out);
    assert!(text.err.contains("there are more: --cursor "), "{}", text.err);
}

#[tokio::test]
async fn messages_are_listed_newest_first() {
    let store = Store::new();
    store.run(&["app", "create", "a"]).await;
    assert_eq!(store.run(&["message", "list", "a"]).await.out, "no messages\n");
    let file = store.dir().join("index.sqlite3");
    let sqlite = SqliteStore::open(&file, "push", Default::default()).await.unwrap();
    let ledger = SqliteLedger::open(sqlite).await.unwrap();
    let (app, now) = (AppKey::first("a".parse().unwrap()), UnixMillis::now());
    let mut ids = Vec::new();
    for _ in 0..3 {
        let new = NewEntry {
            message_id: MessageId::issue_named(&app.id),
            app: app.clone(),
            accepted_at: now,
            expires_at: now.plus_seconds(60),
            dedup_nonce: 1,
            keep_until: now.plus_seconds(3600),
            plan: Some(Plan::named()),
            claim: None,
            replaces: None,
            broadcast: None,
        };
        ledger.begin(&new).await.unwrap().unwrap();
        ids.push(new.message_id.to_string());
    }
    ids.sort_unstable_by(|a, b| b.cmp(a));
    let listed = store.run(&["message", "list", "a", "--limit", "2", "--json"]).await.json();
    let of = |at: usize| listed["messages"][at]["message_id"].as_str();
    assert_eq!([of(0), of(1), of(2)], [Some(&*ids[0]), Some(&*ids[1]), None]);
    let cursor = listed["next_cursor"].as_str().unwrap();
    let rest = store.run(&["message", "list", "a", "--cursor", cursor, "--json"]).await.json();
    assert_eq!(rest["messages"][0]["message_id"], ids[2]);
    assert_eq!(rest["next_cursor"], serde_json::Value::Null);
    let done = store.run(&["message", "list", "a", "--state", "done"]).await;
    assert_eq!(done.out, "no messages\n");
    let gone = store.run(&["message", "list", "a", "--state", "gone"]).await;
    assert!(!gone.ok && gone.err.contains("accepted, sending, done"), "{}", gone.err);
}

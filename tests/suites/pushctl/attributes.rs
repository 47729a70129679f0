//! Attributes of an app's own, topics and users of devices.

use serde_json::{Value, json};

use crate::pushctl::support::Store;

/// A data directory with an app that declares `plan` and `level`.
async fn store() -> Store {
    let store = Store::new();
    store.run(&["app", "create", "a"]).await;
    for (name, value_type) in [("plan", "string"), ("level", "number")] {
        let added =
            store.run(&["attribute", "add", "a", name, "--type", value_type, "--json"]).await;
        assert_eq!(added.json(), json!({"name": name, "type": value_type}));
    }
    store
}

async fn show(store: &Store, id: &str) -> Value {
    store.run(&["device", "show", "a", id, "--json"]).await.json()
}

#[tokio::test]
async fn attributes_are_declared_listed_and_removed_with_their_values() {
    let store = store().await;
    let again = store.run(&["attribute", "add", "a", "plan", "--type", "number"]).await;
    assert!(again.refused().contains("remove it first to change its type"), "{}", again.err);
    for wrong in [["plan2", "text"], ["country", "string"], ["1st", "string"]] {
        let [name, value_type] = wrong;
        let refused = store.run(&["attribute", "add", "a", name, "--type", value_type]).await;
        assert!(!refused.ok, "{wrong:?}: {}", refused.out);
    }
    let listed = store.run(&["attribute", "list", "a", "--json"]).await.json();
    let plan = json!({"name": "plan", "type": "string"});
    let level = json!({"name": "level", "type": "number"});
    assert_eq!(listed, json!([plan, level]));

    store.run(&["device", "put", "a", "d", "--attribute", "plan=pro", "level=7"]).await;
    assert_eq!(show(&store, "d").await["attributes"], json!({"plan": "pro", "level": 7}));
    let asked = store.run(&["attribute", "remove", "a", "plan"]).await;
    assert!(asked.refused().contains("add --yes"), "{}", asked.err);
    assert!(store.run(&["attribute", "remove", "a", "plan", "--yes"]).await.ok);
    assert_eq!(show(&store, "d").await["attributes"], json!({"level": 7}));
    let unknown = store.run(&["attribute", "remove", "a", "plan", "--yes"]).await;
    assert!(unknown.refused().contains("a declares no attribute plan"), "{}", unknown.err);

    // A later attribute of the name has none of the earlier values, of whatever type.
    assert!(store.run(&["attribute", "add", "a", "plan", "--type", "string"]).await.ok);
    assert_eq!(show(&store, "d").await["attributes"], json!({"level": 7}));
}

#[tokio::test]
async fn a_device_is_patched_and_keeps_what_a_later_put_does_not_name() {
    let store = store().await;
    let absent = store.run(&["device", "patch", "a", "d", "--add-topic", "f1"]).await;
    assert!(!absent.ok, "{}", absent.out);
    store.run(&["device", "put", "a", "d", "--country", "SG"]).await;
    let patch = ["device", "patch", "a", "d", "--attribute", "plan=pro", "level=7"];
    let more = ["--add-topic", "f2,f1", "--user", "u@1"];
    assert!(store.run(&[&patch[..], &more].concat()).await.ok);
    let expected = json!({
        "client_id": "d", "transport": "mqtt", "country": "SG", "user_id": "u@1",
        "attributes": {"plan": "pro", "level": 7}, "topics": ["f1", "f2"],
    });
    assert_eq!(show(&store, "d").await, expected);

    assert!(store.run(&["device", "put", "a", "d", "--country", "DE"]).await.ok);
    let change = ["--attribute", "plan=", "--remove-topic", "f2", "--no-user"];
    assert!(store.run(&[&["device", "patch", "a", "d"][..], &change].concat()).await.ok);
    let expected = json!({
        "client_id": "d", "transport": "mqtt", "country": "DE",
        "attributes": {"level": 7}, "topics": ["f1"],
    });
    assert_eq!(show(&store, "d").await, expected);

    let wrong =
        store.run(&["device", "patch", "a", "d", "--attribute", "level=high", "plam=x"]).await;
    assert!(
        wrong.ok && wrong.err.contains("warning: ") && wrong.err.contains("plan"),
        "{}",
        wrong.err
    );
    // A value that cannot be read is stored as absent.
    let expected =
        json!({"client_id": "d", "transport": "mqtt", "country": "DE", "topics": ["f1"]});
    assert_eq!(show(&store, "d").await, expected);
}

#[tokio::test]
async fn what_was_exported_is_imported_with_attributes_topics_and_users() {
    let store = store().await;
    let device = |id: &str| {
        json!({
            "client_id": id, "transport": "discard", "attributes": {"plan": "pro", "level": 7},
            "topics": ["f1"], "user_id": "u",
        })
    };
    let file = store.file("devices", &format!("{}\n{}\n", device("d"), device("e")));
    assert!(store.run(&["device", "import", "a", &file]).await.ok);
    let exported = store.run(&["device", "export", "a"]).await;
    let mut lines: Vec<Value> =
        exported.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["client_id"].to_string());
    assert_eq!(lines, [device("d"), device("e")]);

    // A line that does not name them changes none of them.
    let bare = store.file("bare", "{\"client_id\":\"d\",\"transport\":\"discard\"}\n");
    assert!(store.run(&["device", "import", "a", &bare]).await.ok);
    assert_eq!(show(&store, "d").await, device("d"));
}

#[tokio::test]
async fn the_devices_of_a_user_are_shown_and_removed_together() {
    let store = store().await;
    for (id, user) in [("d", "u@1"), ("e", "u@1"), ("f", "v")] {
        assert!(store.run(&["device", "put", "a", id, "--user", user]).await.ok);
    }
    let shown = store.run(&["user", "show", "a", "u@1", "--json"]).await.json();
    let device = |id| json!({"client_id": id, "transport": "mqtt", "user_id": "u@1"});
    assert_eq!(shown, json!({"user_id": "u@1", "devices": [device("d"), device("e")]}));
    let asked = store.run(&["user", "remove", "a", "u@1"]).await;
    assert!(asked.refused().contains("removes the 2 devices of the user u@1"), "{}", asked.err);
    let removed = store.run(&["user", "remove", "a", "u@1", "--yes", "--json"]).await.json();
    assert_eq!(removed, json!({"user_id": "u@1", "removed": ["d", "e"]}));
    for command in [&["user", "show", "a", "u@1"][..], &["user", "remove", "a", "u@1", "--yes"]] {
        let refused = store.run(command).await;
        assert!(refused.refused().contains("a has no device of the user u@1"), "{}", refused.err);
    }
    assert_eq!(show(&store, "f").await["user_id"], "v");
}

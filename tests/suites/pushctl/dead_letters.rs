//! Dead letters.

use bytes::Bytes;
use push_queue::{
    Lane, Queue as _,
    sqlite::{SqliteQueue, SqliteQueueSettings},
};
use serde_json::json;

use crate::pushctl::support::{DEADLINE, Store};

#[tokio::test]
async fn dead_letters_are_listed_replayed_and_dropped() {
    let store = Store::new();
    assert!(store.run(&["app", "create", "news"]).await.ok);
    assert_eq!(store.run(&["dead", "list"]).await.out, "no dead letters\n");
    let file = store.dir().join("queue.sqlite3");
    let queue = SqliteQueue::open(&file, "push", SqliteQueueSettings::default()).await.unwrap();
    for text in ["first", "second"] {
        queue.publish_dead(Lane::Jobs, Bytes::from(text), "for a test").await.unwrap();
    }
    let list = store.run(&["dead", "list", "--json"]).await.json();
    assert_eq!((&list[0]["lane"], &list[0]["reason"]), (&json!("jobs"), &json!("for a test")));
    assert_eq!((&list[0]["payload"], &list[1]["payload"]), (&json!("first"), &json!("second")));

    assert!(store.run(&["dead", "drop"]).await.refused().contains("--all"));
    let unasked = store.run(&["dead", "drop", "--all"]).await;
    assert!(unasked.refused().contains("deletes 2 dead letters"), "{}", unasked.err);
    assert!(store.run(&["dead", "replay", "999"]).await.refused().contains("pushctl dead list"));
    let id = list[0]["id"].as_str().unwrap();
    assert_eq!(store.run(&["dead", "replay", id, "--json"]).await.json()["replayed"], 1);
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    let delivery = tokio::time::timeout(DEADLINE, consumer.next()).await.unwrap().unwrap();
    assert_eq!(delivery.payload, "first");
    assert_eq!(store.run(&["dead", "drop", "--all", "--yes", "--json"]).await.json()["dropped"], 1);
    queue.close().await;
}

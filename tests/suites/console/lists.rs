//! Lists, page by page.

use bytes::Bytes;
use push_queue::Lane;
use serde_json::{Value, json};

use super::support::Console;

/// All entries of a list, read two at a time.
async fn all(console: &Console, key: &str, path: &str, member: &str) -> Vec<Value> {
    let (mut entries, mut cursor) = (Vec::new(), String::new());
    let sign = if path.contains('?') { '&' } else { '?' };
    for _ in 0..20 {
        let page = console.get(key, &format!("{path}{sign}limit=2{cursor}")).await;
        let page = page.result().clone();
        let more = page[member].as_array().unwrap().clone();
        assert!(more.len() <= 2, "{page}");
        entries.extend(more);
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return entries,
        }
    }
    panic!("{path} does not end: {entries:?}")
}

/// An envelope of one push of an app.
fn envelope(app: &str) -> Bytes {
    let payload = json!({
        "message_id": "01890000-0000-7000-8000-00000000000a", "app_id": app,
        "accepted_at": 1, "expires_at": 2,
    });
    Bytes::from(json!({"v": 1, "jobs": [{"payload": payload}]}).to_string())
}

async fn lists_go_on_behind_a_cursor_and_refuse_another(console: &Console) {
    let (key, other) = (console.key("eye", "viewer").await, console.key("ops", "operator").await);
    let apps = ["a", "b", "c", "d", "e"];
    for app in apps {
        console.pushctl(&["app", "create", app]).await;
    }
    let listed = all(console, &key, "/v1/admin/apps", "apps").await;
    let ids: Vec<&str> = listed.iter().map(|app| app["app_id"].as_str().unwrap()).collect();
    assert_eq!(ids, apps);
    let events = all(console, &key, "/v1/admin/audit", "events").await;
    let created: Vec<_> = events.iter().filter(|event| event["action"] == "app_created").collect();
    assert_eq!((events.len(), created.len()), (7, 5), "{events:?}");
    assert_eq!((&created[0]["app"], &created[4]["app"]), (&json!("e"), &json!("a")));
    let of_c = all(console, &key, "/v1/admin/audit?app=c", "events").await;
    assert_eq!(of_c.len(), 1, "{of_c:?}");
    for number in 0..5 {
        let path = format!("/v1/admin/apps/a/devices/phone-{number}");
        let device = json!({"transport": "discard"});
        console.send(&other, "PUT", &path, device).await.result();
    }
    let devices = all(console, &key, "/v1/admin/apps/a/devices", "devices").await;
    assert_eq!(devices.len(), 5, "{devices:?}");
    let gone = all(console, &key, "/v1/admin/apps/a/gone-devices", "devices").await;
    assert_eq!(gone.len(), 0);

    let queue = console.queue().await;
    for app in ["a", "b", "a", "b", "a"] {
        queue.publish_dead(Lane::Jobs, envelope(app), "for a test").await.unwrap();
    }
    let path = "/v1/admin/dead-letters";
    let letters = all(console, &key, path, "dead_letters").await;
    let of: Vec<_> = letters.iter().map(|letter| letter["app_id"].as_str().unwrap()).collect();
    assert_eq!(of, ["a", "b", "a", "b", "a"]);
    let of_b = all(console, &key, &format!("{path}?app=b"), "dead_letters").await;
    assert_eq!(of_b.len(), 2, "{of_b:?}");
    let one = console.get(&key, &format!("{path}/{}", of_b[0]["id"].as_str().unwrap())).await;
    assert!(one.result()["payload"].as_str().unwrap().contains(r#""app_id":"b""#));
    let of_app_b = console.key_of("b", "of-b", "operator").await;
    let own = all(console, &of_app_b, path, "dead_letters").await;
    assert_eq!(own, of_b);
    let foreign = json!({"ids": [letters[0]["id"]]});
    console.send(&of_app_b, "POST", &format!("{path}/drop"), foreign).await.refused(404);
    let mine = json!({"all": true});
    let dropped = console.send(&of_app_b, "POST", &format!("{path}/drop"), mine).await;
    assert_eq!(dropped.result()["dropped"], 2);
    assert_eq!(all(console, &key, path, "dead_letters").await.len(), 3);
    queue.close().await;

    cursors_are_refused_elsewhere(console, &key, &other).await;
}

async fn cursors_are_refused_elsewhere(console: &Console, key: &str, other: &str) {
    for (path, foreign) in [
        ("/v1/admin/apps", "/v1/admin/audit"),
        ("/v1/admin/audit", "/v1/admin/apps"),
        ("/v1/admin/dead-letters", "/v1/admin/audit"),
        ("/v1/admin/apps/a/devices", "/v1/admin/apps/b/devices"),
    ] {
        let page = console.get(key, &format!("{path}?limit=1")).await;
        let cursor = page.result()["next_cursor"].as_str().unwrap().to_owned();
        let with = async |key: &str, path: &str, cursor: &str| {
            console.get(key, &format!("{path}?cursor={cursor}")).await
        };
        with(key, path, &cursor).await.result();
        for at in [0, cursor.len() / 2, cursor.len() - 1] {
            let mut changed = cursor.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(with(key, path, &changed).await.refused(400).contains("cursor"));
        }
        for wrong in ["", "x", &"A".repeat(1000)] {
            with(key, path, wrong).await.refused(400);
        }
        with(key, foreign, &cursor).await.refused(400);
        if !path.contains("/devices") {
            with(other, path, &cursor).await.refused(400);
        }
    }
    for limit in ["0", "201", "-1", "x"] {
        console.get(key, &format!("/v1/admin/apps?limit={limit}")).await.refused(400);
    }
    console.get(key, "/v1/admin/apps?limits=2").await.refused(400);
}

#[tokio::test]
async fn lists_go_on_behind_a_cursor_on_rabbitmq_and_redis() {
    lists_go_on_behind_a_cursor_and_refuse_another(&Console::scaled().await).await;
}

#[tokio::test]
async fn lists_go_on_behind_a_cursor_in_the_standalone_form() {
    lists_go_on_behind_a_cursor_and_refuse_another(&Console::embedded().await).await;
}

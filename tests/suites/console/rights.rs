//! What each key opens.

use serde_json::{Value, json};

use super::{
    description::{Operation, operations},
    support::Console,
};

const MESSAGE: &str = "01890000-0000-7000-8000-00000000000a";

/// The path of an operation, about this app.
fn path(operation: &Operation, app: &str) -> String {
    operation
        .path
        .replace("{app_id}", app)
        .replace("{client_id}", "phone")
        .replace("{user_id}", "u")
        .replace("{message_id}", MESSAGE)
        .replace("{transport}", "webhook")
        .replace("{name}", "other")
        .replace("{id}", "1")
}

/// Calls it with a body that changes nothing, whatever the key may do.
async fn status(console: &Console, key: &str, operation: &Operation, app: &str) -> u16 {
    let body = (operation.method != "GET").then_some(Value::Null);
    console.call(key, &operation.method, &path(operation, app), body).await.status
}

async fn each_role_opens_what_it_is_described_for_and_nothing_else(console: &Console) {
    console.pushctl(&["app", "create", "news"]).await;
    let roles = ["viewer", "operator", "admin"];
    let mut keys = Vec::new();
    for role in roles {
        keys.push(console.key(role, role).await);
    }
    let all = operations();
    let changes = all.iter().filter(|operation| operation.method != "GET");
    assert!(changes.clone().count() >= 18, "{all:?}");
    // No more: an address may present few wrong keys.
    for operation in all.iter().take(5) {
        assert_eq!(status(console, "pak_wrong", operation, "news").await, 401, "{operation:?}");
    }
    for operation in &all {
        let needs = roles.iter().position(|role| *role == operation.role).unwrap();
        assert_eq!(status(console, "", operation, "news").await, 401, "{operation:?}");
        for (has, key) in keys.iter().enumerate() {
            // What is allowed is not tried with the keys that would change something.
            if operation.method == "GET" || has < needs {
                let refused = status(console, key, operation, "news").await == 403;
                assert_eq!(refused, has < needs, "{operation:?} with {}", roles[has]);
            }
        }
    }
    for change in changes {
        assert_eq!(status(console, &keys[0], change, "news").await, 403, "{change:?}");
    }
    let events = console.get(&keys[0], "/v1/admin/audit").await;
    let events = events.result()["events"].as_array().unwrap().clone();
    assert!(events.iter().all(|event| event["key"].is_null()), "{events:?}");
}

#[tokio::test]
async fn each_role_opens_what_it_is_described_for_on_rabbitmq_and_redis() {
    let console = Console::scaled().await;
    each_role_opens_what_it_is_described_for_and_nothing_else(&console).await;
}

#[tokio::test]
async fn each_role_opens_what_it_is_described_for_in_the_standalone_form() {
    let console = Console::embedded().await;
    each_role_opens_what_it_is_described_for_and_nothing_else(&console).await;
}

#[tokio::test]
async fn a_key_of_an_app_opens_that_app_alone_and_lists_show_nothing_else() {
    let console = Console::embedded().await;
    for app in ["news", "shop"] {
        console.pushctl(&["app", "create", app]).await;
    }
    let key = console.key_of("news", "of-news", "admin").await;
    for operation in operations() {
        let own_only = operation.path.contains("{app_id}");
        if own_only {
            assert_eq!(status(&console, &key, &operation, "shop").await, 403, "{operation:?}");
            assert_eq!(status(&console, &key, &operation, "no%20such").await, 403, "{operation:?}");
        }
    }
    for (method, path) in [("GET", "/keys"), ("POST", "/keys"), ("POST", "/apps")] {
        let body = (method != "GET").then(|| json!({"app_id": "mine"}));
        let refused = console.call(&key, method, &format!("/v1/admin{path}"), body).await;
        assert!(refused.refused(403).contains("news"), "{refused:?}");
    }
    let me = console.get(&key, "/v1/admin/me").await;
    assert_eq!(*me.result(), json!({"name": "of-news", "role": "admin", "app_id": "news"}));
    let apps = console.get(&key, "/v1/admin/apps").await;
    let apps = apps.result()["apps"].as_array().unwrap().clone();
    assert_eq!((apps.len(), &apps[0]["app_id"]), (1, &json!("news")));
    let events = console.get(&key, "/v1/admin/audit").await;
    let events = events.result()["events"].as_array().unwrap().clone();
    assert!(events.iter().all(|event| event["app"] == "news"), "{events:?}");
    for list in ["audit", "dead-letters"] {
        let path = format!("/v1/admin/{list}?app=shop");
        console.get(&key, &path).await.refused(403);
    }
    let health = console.get(&key, "/v1/admin/health").await;
    assert!(health.result()["queue"].is_null(), "{health:?}");
    let limits = json!({"rate_limit": 5});
    let changed = console.send(&key, "PATCH", "/v1/admin/apps/news", limits).await;
    assert_eq!(changed.result()["rate_limit"], 5);
}

#[tokio::test]
async fn a_key_that_was_revoked_or_whose_app_was_removed_opens_nothing() {
    for console in [Console::embedded().await, Console::scaled().await] {
        console.pushctl(&["app", "create", "news"]).await;
        let (admin, viewer) =
            (console.key("root", "admin").await, console.key("eye", "viewer").await);
        let of_news = console.key_of("news", "of-news", "viewer").await;
        for key in [&viewer, &of_news] {
            console.get(key, "/v1/admin/me").await.result();
        }
        console.call(&admin, "DELETE", "/v1/admin/keys/eye", None).await.result();
        assert!(console.get(&viewer, "/v1/admin/me").await.refused(401).contains("revoked"));
        console.call(&admin, "DELETE", "/v1/admin/keys/eye", None).await.refused(404);
        let path = "/v1/admin/apps/news";
        assert!(console.call(&admin, "DELETE", path, None).await.refused(400).contains("confirm"));
        let path = "/v1/admin/apps/news?confirm=news";
        console.call(&admin, "DELETE", path, None).await.result();
        console.pushctl(&["app", "create", "news"]).await;
        console.get(&of_news, "/v1/admin/apps/news").await.refused(401);
        let taken = console.pushctl(&["admin-key", "list"]).await;
        assert_eq!(taken.as_array().unwrap().len(), 2, "{taken}");
    }
}

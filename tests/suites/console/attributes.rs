//! Attributes of an app's own, topics and users of its devices.

use serde_json::{Value, json};

use super::support::Console;

const ATTRIBUTES: &str = "/v1/admin/apps/news/attributes";
const PHONE: &str = "/v1/admin/apps/news/devices/phone";
const USER: &str = "/v1/admin/apps/news/users/u";

async fn attributes_topics_and_users_are_managed(console: &Console) {
    console.pushctl(&["app", "create", "news"]).await;
    let admin = console.key("root", "admin").await;
    let operator = console.key("op", "operator").await;
    let viewer = console.key("eye", "viewer").await;
    let plan = json!({"name": "plan", "type": "string"});
    console.send(&operator, "POST", ATTRIBUTES, plan.clone()).await.refused(403);
    let added = console.send(&admin, "POST", ATTRIBUTES, plan.clone()).await;
    assert_eq!(added.result(), &plan);
    console.send(&admin, "POST", ATTRIBUTES, plan.clone()).await.refused(409);
    for wrong in [
        json!({"name": "country", "type": "string"}),
        json!({"name": "level", "type": "text"}),
        json!({"name": "level"}),
    ] {
        console.send(&admin, "POST", ATTRIBUTES, wrong).await.refused(400);
    }
    let listed = console.get(&viewer, ATTRIBUTES).await;
    assert_eq!(listed.result(), &json!({"attributes": [plan]}));

    let put = json!({"transport": "discard", "attributes": {"plan": "pro"}, "user_id": "u"});
    console.send(&operator, "PUT", PHONE, put).await.result();
    let change = json!({"topics": {"add": ["f1"]}, "attributes": {"plam": "pro"}});
    let patched = console.send(&operator, "PATCH", PHONE, change.clone()).await;
    let warnings = patched.result()["warnings"].to_string();
    assert!(warnings.contains("the nearest one is plan"), "{}", patched.body);
    console.send(&viewer, "PATCH", PHONE, change.clone()).await.refused(403);
    let other = "/v1/admin/apps/news/devices/other";
    console.send(&operator, "PATCH", other, change).await.refused(404);

    let phone = json!({
        "client_id": "phone", "transport": "discard", "attributes": {"plan": "pro"},
        "topics": ["f1"], "user_id": "u",
    });
    let shown = console.get(&viewer, USER).await;
    assert_eq!(shown.result(), &json!({"user_id": "u", "devices": [phone]}));
    console.call(&viewer, "DELETE", USER, None).await.refused(403);
    let removed = console.call(&operator, "DELETE", USER, None).await;
    assert_eq!(removed.result(), &json!({"user_id": "u", "removed": ["phone"]}));
    console.call(&operator, "DELETE", USER, None).await.refused(404);
    console.get(&viewer, USER).await.refused(404);
    console.get(&viewer, PHONE).await.refused(404);

    let one = format!("{ATTRIBUTES}/plan");
    console.call(&operator, "DELETE", &one, None).await.refused(403);
    console.call(&admin, "DELETE", &one, None).await.result();
    console.call(&admin, "DELETE", &one, None).await.refused(404);
    let events = console.get(&viewer, "/v1/admin/audit?limit=200").await;
    let events = events.result()["events"].as_array().unwrap().clone();
    let done = |action: &str| {
        let is = |event: &&Value| event["action"] == action && event["done"] == true;
        events.iter().filter(is).count()
    };
    let actions = ["attribute_added", "attribute_removed", "device_stored", "user_removed"];
    assert_eq!(actions.map(done), [1, 1, 2, 1], "{events:?}");
}

#[tokio::test]
async fn attributes_topics_and_users_are_managed_on_rabbitmq_and_redis() {
    attributes_topics_and_users_are_managed(&Console::scaled().await).await;
}

#[tokio::test]
async fn attributes_topics_and_users_are_managed_in_the_standalone_form() {
    attributes_topics_and_users_are_managed(&Console::embedded().await).await;
}

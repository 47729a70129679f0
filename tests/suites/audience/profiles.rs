//! Registrations of phones beside changes by their backend, and limits.

use futures::future::{join, join_all};
use push_tests::stack::APP;
use serde_json::{Value, json};

use super::{in_both_forms, service::Service};

/// The devices that are changed from both sides at a time.
const DEVICES: usize = 16;

/// The changes of each side.
const CHANGES: usize = 15;

in_both_forms! {
    a_phone_that_registers_takes_away_nothing_that_its_backend_sets_meanwhile
    no_limit_of_topics_keeps_one_from_being_taken_away
}

async fn a_phone_that_registers_takes_away_nothing_that_its_backend_sets_meanwhile(
    service: &Service,
) {
    let ids: Vec<String> = (0..DEVICES).map(|n| format!("phone-{n}")).collect();
    for id in &ids {
        service.device("PUT", id, json!({"topics": ["first"], "user_id": id})).await;
    }
    let phone = async |id: &str| {
        for n in 0..CHANGES {
            let put = json!({"country": "SG", "app_version": format!("1.{n}")});
            service.device("PUT", id, put).await;
        }
    };
    let backend = async |id: &str| {
        for n in 0..CHANGES {
            let change = json!({
                "attributes": {"level": n, "plan": if n % 2 == 0 { json!("pro") } else { Value::Null }},
                "topics": {"add": [format!("t{n:02}")], "remove": ["first"]},
                "user_id": format!("{id}-{n}"),
            });
            service.device("PATCH", id, change).await;
        }
    };
    join_all(ids.iter().map(|id| join(phone(id), backend(id)))).await;
    let topics: Vec<String> = (0..CHANGES).map(|n| format!("t{n:02}")).collect();
    let last = CHANGES - 1;
    for id in &ids {
        let device = service.device("GET", id, Value::Null).await;
        let expected = json!({
            "client_id": id, "transport": "mqtt", "country": "SG", "app_version": format!("1.{last}"),
            "attributes": {"level": last, "plan": "pro"}, "topics": topics,
            "user_id": format!("{id}-{last}"),
        });
        assert_eq!(device, expected);
    }
}

async fn no_limit_of_topics_keeps_one_from_being_taken_away(service: &Service) {
    // As many topics as an app may have, on devices that have as many as a device may have.
    let topics =
        |device: usize| (0..100).map(|n| format!("t{device:02}-{n:02}")).collect::<Vec<_>>();
    let device = |n| json!({"client_id": format!("device-{n:02}"), "transport": "discard", "topics": topics(n)});
    let devices: Vec<Value> = (0..100).map(device).collect();
    service.import(&devices).await;
    let warnings = |result: &Value| result["warnings"].as_array().map_or(0, Vec::len);
    let change = async |add: &[&str], remove: &[&str]| {
        let change = json!({"topics": {"add": add, "remove": remove}});
        service.device("PATCH", "device-00", change).await
    };
    let full = change(&["t01-00"], &[]).await;
    assert_eq!(warnings(&full), 1, "the device is full: {full}");
    let removed = change(&[], &["t00-00", "never-there"]).await;
    assert_eq!(warnings(&removed), 0, "{removed}");
    let full = change(&["new"], &["t00-01"]).await;
    assert_eq!(warnings(&full), 1, "the app is full: {full}");
    let swapped = change(&["t01-00"], &["t00-02"]).await;
    assert_eq!(warnings(&swapped), 0, "a topic that the app has: {swapped}");
    let stored = service.device("GET", "device-00", Value::Null).await;
    let stored = stored["topics"].as_array().unwrap();
    assert_eq!(stored.len(), 98, "97 of the first ones, and another");
    assert!(!stored.contains(&json!("new")) && stored.contains(&json!("t01-00")), "{stored:?}");

    let none =
        service.device("PUT", "device-00", json!({"transport": "discard", "topics": []})).await;
    assert_eq!((warnings(&none), none.get("topics")), (0, None), "{none}");
    let targeting = |topic: &str| json!({"type": 1, "targeting": {"filter": {"topic": topic}}});
    for (topic, devices) in [("t00-50", 0), ("t01-00", 1)] {
        let question = json!({"condition": targeting(topic)});
        let (_, counted) = service.call("POST", &format!("/v1/audience/{APP}"), &question).await;
        assert_eq!(counted["result"]["devices"], devices, "{topic}: {counted}");
    }
}

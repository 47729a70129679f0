//! The audit trail.

use push_model::time::UnixMillis;
use serde_json::{Value, json};

use crate::pushctl::support::Store;

#[tokio::test]
async fn the_audit_trail_says_who_did_what_to_which_app_and_when() {
    let store = Store::new();
    assert!(store.run(&["audit", "list"]).await.refused().contains("no store in"));
    let before = UnixMillis::now();
    let made = store.run(&["app", "create", "news", "--json"]).await.json();
    let add = ["app", "secret", "add", "news", "phones", "--scope", "devices", "--json"];
    let added = store.run(&add).await.json();
    for done in [
        &["app", "set", "news", "--max-devices", "5"][..],
        &["app", "disable", "news"],
        &["app", "enable", "news"],
        &["app", "secret", "revoke", "news", "phones"],
        &["app", "rotate-secret", "news"],
        &["app", "create", "other"],
        &["app", "remove", "news", "--yes"],
        &["dead", "drop", "--all", "--yes"],
    ] {
        let ran = store.run(done).await;
        assert!(ran.ok, "{}", ran.err);
    }
    assert!(!store.run(&["app", "remove", "news", "--yes"]).await.ok, "it is removed already");
    for reads in [&["app", "list"][..], &["app", "show", "other"], &["dead", "list"]] {
        assert!(store.run(reads).await.ok);
    }

    let listed = store.run(&["audit", "list", "--json"]).await;
    for secret in [&made["secret"], &added["secret"]] {
        assert!(!listed.out.contains(secret.as_str().unwrap()), "{}", listed.out);
    }
    let events = listed.json();
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or("-").to_owned();
    let told: Vec<String> = events
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|event| {
            assert!((before.0..=UnixMillis::now().0).contains(&event["at"].as_u64().unwrap()));
            assert_eq!(event["program"], "pushctl");
            assert!(event["user"].is_string() && event["host"].is_string(), "{event}");
            let (action, app) = (text(event, "action"), text(event, "app"));
            format!("{action} {app} {} {}", text(event, "secret"), event["done"])
        })
        .collect();
    assert_eq!(
        told,
        [
            "app_created news - true",
            "secret_added news phones true",
            "app_changed news - true",
            "app_disabled news - true",
            "app_enabled news - true",
            "secret_revoked news phones true",
            "secret_rotated news default true",
            "app_created other - true",
            "app_removed news - true",
            "dead_letters_dropped - - true",
            "app_removed news - false",
        ]
    );
    let of_other = store.run(&["audit", "list", "--app", "other", "--json"]).await.json();
    assert_eq!(
        (of_other.as_array().unwrap().len(), &of_other[0]["action"]),
        (1, &json!("app_created"))
    );
    let newest = store.run(&["audit", "list", "--limit", "2"]).await.out;
    assert!(newest.lines().count() == 3 && newest.contains("app_removed"), "{newest}");
}

//! The keys that sign the MQTT logins of devices, and those logins.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use push_credentials::{KeyFile, Purpose, TokenError};
use push_model::time::UnixMillis;
use push_tests::free_port;
use serde_json::{Value, json};

use crate::pushctl::support::Store;

const KEY_FILE: &str = "device-keys.json";

#[tokio::test]
async fn device_keys_are_made_once_replaced_with_an_overlap_and_never_shown() {
    let store = Store::new();
    let missing = store.run(&["key", "list"]).await;
    assert!(missing.refused().contains("device-keys.json does not exist"), "{}", missing.err);
    let made = store.run(&["key", "create", "--json"]).await;
    assert_eq!(made.json()[0]["state"], "signs");
    let file = store.dir().join(KEY_FILE);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(store.run(&["key", "create"]).await.refused().contains("pushctl key rotate"));

    let rotated = store.run(&["key", "rotate", "--lead", "1h", "--overlap", "2h", "--json"]).await;
    let keys = rotated.json();
    let states: Vec<_> = keys.as_array().unwrap().iter().map(|key| &key["state"]).collect();
    assert_eq!(states, ["signs", "next"]);
    let from = keys[1]["signs_from"].as_u64().unwrap();
    assert_eq!(from, keys[1]["created_at"].as_u64().unwrap() + 3_600_000);
    assert_eq!(keys[0]["verifies_until"], json!(from + 2 * 3_600_000));
    assert_eq!(keys[1]["verifies_until"], Value::Null);
    let sooner = store.run(&["key", "rotate", "--lead", "0s", "--overlap", "2h", "--json"]).await;
    let states: Vec<_> =
        sooner.json().as_array().unwrap().iter().map(|key| key["state"].clone()).collect();
    assert_eq!(states, ["accepted", "accepted", "signs"], "what was next is replaced");

    let pem = store.run(&["key", "public"]).await;
    assert_eq!(pem.out.matches("-----BEGIN PUBLIC KEY-----\n").count(), 3, "{}", pem.out);
    let jwks = store.run(&["key", "public", "--json"]).await;
    let first = &jwks.json()["keys"][0];
    assert_eq!(first["kid"], keys[0]["kid"]);
    assert_eq!(
        (&first["kty"], &first["crv"], &first["alg"]),
        (&json!("EC"), &json!("P-256"), &json!("ES256"))
    );
    assert_eq!(first["d"], Value::Null, "the private part");

    let list = store.run(&["key", "list"]).await;
    let stored: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    for key in stored["keys"].as_array().unwrap() {
        let private = key["private_key"].as_str().unwrap();
        assert!(private.len() > 100);
        for shown in [&made, &rotated, &pem, &jwks, &list] {
            assert!(!shown.out.contains(private) && !shown.err.contains(private));
        }
    }

    let ended =
        store.run(&["key", "rotate", "--lead", "0s", "--overlap", "0s", "--yes", "--json"]).await;
    let left = ended.json();
    assert_eq!(left.as_array().unwrap().len(), 1, "the earlier keys end at once: {left}");
    assert_eq!(left[0]["state"], "signs");
}

#[tokio::test]
async fn without_an_overlap_of_its_own_a_rotation_keeps_every_token_that_was_issued() {
    let store = Store::new();
    store.run(&["key", "create"]).await;
    let rotate = ["key", "rotate", "--lead", "0s", "--device-token-ttl", "3days", "--json"];
    let keys = store.run(&rotate).await.json();
    let from = keys[1]["signs_from"].as_u64().unwrap();
    assert_eq!(keys[0]["verifies_until"], json!(from + 3 * 86_400_000));
    let wrong = store.run(&["key", "list", "--device-token-ttl", "1s"]).await;
    assert!(wrong.err.contains("PUSH_DEVICE_TOKEN_TTL"), "{}", wrong.err);
}

#[tokio::test]
async fn the_login_of_a_device_is_issued_for_its_app_as_it_is_now() {
    let store = Store::new();
    let login = ["device", "credentials", "news", "phone:1", "--json"];
    assert!(store.run(&login).await.refused().contains("pushctl key create"));
    store.run(&["key", "create"]).await;
    assert!(store.run(&login).await.refused().contains("pushctl app create news"));
    store.run(&["app", "create", "news"]).await;
    assert!(store.run(&login).await.refused().contains("pushctl device put"));
    store.run(&["device", "put", "news", "phone:1"]).await;

    let keys = KeyFile::open(&store.dir().join(KEY_FILE)).unwrap().current();
    let now = UnixMillis::now();
    let issued = store.run(&login).await.json();
    let text = |field: &str| issued[field].as_str().unwrap();
    assert_eq!((text("client_id"), text("username")), ("news:phone:1", "news:phone:1"));
    let password = text("password").as_bytes();
    let identity = keys.authenticate("news:phone:1", "news:phone:1", password, now).unwrap();
    assert_eq!(issued["expires_at"], json!(identity.expires_at));
    let life = identity.expires_at.since(now);
    assert!(life > Duration::from_hours(167) && life <= Duration::from_hours(169), "{life:?}");
    assert_eq!(identity.generation, 0);
    let other = keys.authenticate("news:phone:2", "news:phone:2", password, now);
    assert_eq!(other, Err(TokenError::OtherDevice));

    store.run(&["app", "remove", "news", "--yes"]).await;
    store.run(&["app", "create", "news"]).await;
    store.run(&["device", "put", "news", "phone:1"]).await;
    let again = store.run(&login).await.json();
    let again = again["password"].as_str().unwrap().as_bytes();
    let again = keys.verify(again, Purpose::MqttLogin, now).unwrap();
    assert_eq!(again.generation, 1, "a token of the removed app can be told apart");
}

#[tokio::test]
async fn the_audit_trail_and_the_log_say_who_changed_the_device_keys() {
    let store = Store::new();
    let file = store.dir().join(KEY_FILE);
    let made = store.run(&["key", "create"]).await;
    assert!(made.err.contains("action=\"device_key_made\""), "{}", made.err);
    store.run(&["key", "create"]).await.refused();
    let rotated = store.run(&["key", "rotate", "--json"]).await;
    let logged: Value = serde_json::from_str(rotated.err.trim_end()).unwrap();
    assert_eq!(
        (&logged["action"], &logged["target"]),
        (&json!("device_key_rotated"), &json!("audit"))
    );
    assert!(logged["user"].is_string() && logged["host"].is_string(), "{logged}");
    assert!(!store.run(&["key", "list"]).await.err.contains("audit"));
    let trail = store.run(&["audit", "list", "--json"]).await.json();
    let events: Vec<_> =
        trail.as_array().unwrap().iter().map(|e| (&e["action"], &e["done"])).collect();
    let (made, rotated) = (json!("device_key_made"), json!("device_key_rotated"));
    let expected = [(&rotated, &json!(true)), (&made, &json!(false)), (&made, &json!(true))];
    assert_eq!(events, expected, "the newest first");
    let stored: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    for key in stored["keys"].as_array().unwrap() {
        assert!(!trail.to_string().contains(key["private_key"].as_str().unwrap()));
    }
}

#[tokio::test]
async fn device_keys_are_made_without_an_index_and_none_is_made_for_the_trail() {
    let (store, elsewhere) = (Store::new(), Store::new());
    let file = elsewhere.dir().join("keys.json");
    let file = file.to_str().unwrap();
    let made = store.run(&["key", "create", "--device-keys", file]).await;
    assert!(made.ok && made.err.contains("name one with --index-url"), "{}", made.err);
    assert!(made.err.contains("device_key_made"), "{}", made.err);
    assert_eq!(fs::read_dir(store.dir()).unwrap().count(), 0, "no file but the keys");
    let port = free_port().unwrap();
    let gone = format!("redis://{}", port.address());
    let rotate = ["key", "rotate", "--device-keys", file, "--index-url", &gone];
    let rotated = store.run(&[&rotate[..], &["--queue-url", "amqp://127.0.0.1:1"]].concat()).await;
    assert!(
        rotated.ok && rotated.err.contains("not recorded in the audit trail"),
        "{}",
        rotated.err
    );
    assert_eq!(KeyFile::open(file.as_ref()).unwrap().current().keys().len(), 2);
}

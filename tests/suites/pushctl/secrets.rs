//! The secrets of apps.

use serde_json::json;

use crate::pushctl::support::Store;

#[tokio::test]
async fn a_secret_of_the_operators_own_must_not_be_guessable() {
    let store = Store::new();
    let weak = store.file("weak", "hunter2\n");
    let refused = store.run(&["app", "create", "a", "--secret-file", &weak]).await;
    assert!(refused.refused().contains("32 to 256 visible ASCII"), "{}", refused.err);
    assert!(!refused.err.contains("hunter2"));
    for guessable in ["x".repeat(32), "0123456789abcdef0123456789abcdef".to_owned()] {
        let file = store.file("guessable", &guessable);
        let refused = store.run(&["app", "create", "a", "--secret-file", &file]).await;
        assert!(refused.refused().contains("openssl rand -hex 32"), "{}", refused.err);
        assert!(!refused.err.contains(&guessable), "{}", refused.err);
    }
    let own = "9b1f4c07d2e86a35f0c4b7d91e6a2835";
    let good = store.file("good", &format!("{own}\n"));
    let made = store.run(&["app", "create", "a", "--secret-file", &good, "--json"]).await.json();
    assert_eq!(made["secret"], own);
}

#[tokio::test]
async fn named_secrets_are_added_with_scopes_listed_without_the_secret_and_revoked() {
    let store = Store::new();
    let made = store.run(&["app", "create", "news", "--json"]).await.json();
    let add = ["app", "secret", "add", "news", "phones", "--scope"];
    let with = [&add[..], &["devices,read", "--expires", "90d", "--json"]].concat();
    let added = store.run(&with).await.json();
    let secret = added["secret"].as_str().unwrap().to_owned();
    assert_eq!((secret.len(), &added["name"]), (64, &json!("phones")));

    let listed = store.run(&["app", "secret", "list", "news", "--json"]).await;
    for secret in [&secret, made["secret"].as_str().unwrap()] {
        assert!(!listed.out.contains(secret), "{}", listed.out);
    }
    let listed = listed.json();
    assert_eq!(listed[0]["name"], "default");
    assert_eq!(listed[0]["scopes"], json!(["push", "devices", "read", "recall"]));
    assert_eq!((&listed[1]["name"], &listed[1]["valid"]), (&json!("phones"), &json!(true)));
    assert_eq!(listed[1]["scopes"], json!(["devices", "read"]));
    let lives = listed[1]["expires_at"].as_u64().unwrap() - listed[1]["made_at"].as_u64().unwrap();
    let days = lives.div_ceil(24 * 3600 * 1000);
    assert!((90..=91).contains(&days), "{listed}");

    let again = store.run(&[&add[..], &["push"]].concat()).await;
    assert!(again.refused().contains("a secret named phones already"), "{}", again.err);
    let same = store.file("same", &secret);
    let other = ["app", "secret", "add", "news", "other", "--scope", "push"];
    let same = store.run(&[&other[..], &["--secret-file", &same]].concat()).await;
    assert!(same.refused().contains("the app's secret phones already"), "{}", same.err);
    let weak = store.file("weak", &"ab".repeat(20));
    let weak = store.run(&[&other[..], &["--secret-file", &weak]].concat()).await;
    assert!(weak.refused().contains("could be guessed"), "{}", weak.err);
    let unknown = store.run(&["app", "secret", "add", "news", "x", "--scope", "everything"]).await;
    assert!(!unknown.ok && unknown.err.contains("push, devices, read, recall"), "{}", unknown.err);
    let past = [&other[..], &["--expires", "2001-01-01T00:00:00Z"]].concat();
    let past = store.run(&past).await;
    assert!(!past.ok && past.err.contains("in the future"), "{}", past.err);

    // A rotation of the default secret leaves the named ones.
    assert!(store.run(&["app", "rotate-secret", "news", "--overlap", "1h"]).await.ok);
    let names = async || {
        let listed = store.run(&["app", "secret", "list", "news", "--json"]).await.json();
        let names = listed.as_array().unwrap().iter().map(|secret| secret["name"].to_string());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names().await, r#""default" "previous" "phones""#);
    assert!(store.run(&["app", "secret", "revoke", "news", "phones"]).await.ok);
    assert_eq!(names().await, r#""default" "previous""#);
    let gone = store.run(&["app", "secret", "revoke", "news", "default"]).await;
    assert!(gone.refused().contains("pushctl app rotate-secret"), "{}", gone.err);
}

//! The token with which a device reads and changes its own record.

use std::{sync::Arc, time::Duration};

use push_credentials::KeyFile;
use push_model::{
    app::{App, AppKey},
    device::TargetFields,
    time::UnixMillis,
};
use serde_json::{Value, json};

use crate::ingest::support::{
    client::{Answer, Request},
    service::{APP, Service},
};

const TTL: Duration = Duration::from_secs(3600);

/// An `ingest` with keys, and the keys.
async fn service(flags: &[&str]) -> (Service, Arc<KeyFile>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let keys = KeyFile::open_or_create(&folder.path().join("keys"), UnixMillis::now()).unwrap();
    let keys = Arc::new(keys);
    (Service::start_with_keys(Arc::clone(&keys), TTL, flags).await, keys, folder)
}

/// A call with this `Authorization`.
fn request(authorization: &str, method: &str, id: &str, body: &Value) -> Request {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    Request::new(method, &format!("/v1/device/{APP}/{id}"), body)
        .header("Content-Type", "application/json")
        .header("Authorization", authorization)
}

async fn call(service: &Service, token: &str, method: &str, id: &str, body: Value) -> Answer {
    request(&format!("Bearer {token}"), method, id, &body).send(service).await
}

/// Registers a device with the secret of its app, and returns its token.
async fn register(service: &Service, id: &str, body: Value) -> String {
    let put = request(&service.secret, "PUT", id, &body).send(service).await;
    let access = &put.body["result"]["access"];
    assert!(access["expires_at"].as_u64() > Some(UnixMillis::now().0), "{}", put.text);
    access["token"].as_str().unwrap_or_else(|| panic!("{}", put.text)).to_owned()
}

#[tokio::test]
async fn a_device_of_any_transport_reads_changes_and_removes_its_own_record() {
    let (service, ..) = service(&[]).await;
    let webhook = json!({"transport": "webhook", "token": "+353", "user_id": "u"});
    for (id, body) in [("mqtt", json!({})), ("hook", webhook)] {
        let token = register(&service, id, body).await;
        let scheme = request(&format!("bearer  {token}"), "GET", id, &Value::Null);
        assert_eq!(scheme.send(&service).await.http, 200, "the scheme has no case");
        let put = call(&service, &token, "PUT", id, json!({"country": "SG"})).await;
        assert_eq!(put.body["result"]["country"], "SG", "{}", put.text);
        let token = put.body["result"]["access"]["token"].as_str().unwrap();
        let patched = call(&service, token, "PATCH", id, json!({"topics": {"add": ["f1"]}})).await;
        assert_eq!(patched.http, 200, "{}", patched.text);
        assert_eq!(
            call(&service, token, "GET", id, Value::Null).await.body["result"]["topics"][0],
            "f1"
        );

        // Whose it is, only its backend may say. That it is no one's, it may say itself.
        let named = json!({"user_id": "boss"});
        for method in ["PUT", "PATCH"] {
            let refused = call(&service, token, method, id, named.clone()).await;
            refused.expect(403, 403, "a device may not set its user_id");
        }
        assert_eq!(call(&service, token, "PATCH", id, json!({"user_id": null})).await.http, 200);

        assert_eq!(call(&service, token, "DELETE", id, Value::Null).await.http, 200);
        // It cannot come back by itself.
        for method in ["GET", "PUT", "DELETE"] {
            let body = if method == "PUT" { json!({}) } else { Value::Null };
            call(&service, token, method, id, body).await.expect(
                404,
                404,
                "this app has no such device",
            );
        }
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_token_opens_nothing_but_the_record_of_its_registration() {
    let (service, keys, _folder) =
        service(&["--tune=app-fresh=0s", "--max-failed-logins=1000"]).await;
    let token = register(&service, "one", json!({})).await;
    register(&service, "two", json!({})).await;
    let refused = |answer: Answer, why: &str| {
        let told =
            format!("App Secret illegal: the bearer token is not valid for this device: {why}");
        answer.expect(401, 21004, &told);
    };
    refused(
        call(&service, &token, "GET", "two", Value::Null).await,
        "it belongs to another device",
    );
    for wrong in ["x", &token[..token.len() - 2], service.secret.as_str()] {
        let answer = call(&service, wrong, "GET", "one", Value::Null).await;
        refused(answer, "this service did not issue it for that");
    }
    // Neither does an MQTT password open the record, nor is the token a secret of the app.
    let put =
        request(&service.secret, "PUT", "one", &json!({"transport": "mqtt"})).send(&service).await;
    let password = put.body["result"]["mqtt"]["password"].as_str().unwrap();
    let answer = call(&service, password, "GET", "one", Value::Null).await;
    refused(answer, "this service did not issue it for that");
    let bearer = format!("Bearer {token}");
    for path in [format!("/v1/user/{APP}/u"), format!("/v1/message/{APP}")] {
        let other = Request::new("GET", &path, "").header("Authorization", &bearer);
        other.send(&service).await.expect(401, 21004, "App Secret illegal: it is not a secret");
    }
    let bare = request(&token, "GET", "one", &Value::Null);
    bare.send(&service).await.expect(401, 21004, "App Secret illegal: it is not a secret");

    let (app, one) = (AppKey::first(APP.parse().unwrap()), "one".parse().unwrap());
    let target =
        service.index.targets(&app, &[one], TargetFields::Address).await.unwrap().remove(0);
    let epoch = target.unwrap().epoch;
    let now = UnixMillis::now();
    let issue = |app: &AppKey, ttl| {
        let client = "one".parse().unwrap();
        keys.current().issue_for_record(app, &client, epoch, now, ttl).unwrap().text
    };
    assert_eq!(call(&service, &issue(&app, TTL), "GET", "one", Value::Null).await.http, 200);
    let expired = issue(&app, Duration::ZERO);
    refused(call(&service, &expired, "GET", "one", Value::Null).await, "it expired");
    let later = AppKey { generation: 7, ..app.clone() };
    let answer = call(&service, &issue(&later, TTL), "GET", "one", Value::Null).await;
    refused(answer, "its app was removed");

    // A disabled app sends no pushes, but its devices stay registered, and register again.
    service.change_app(|app: &mut App| app.disabled = true).await;
    assert_eq!(call(&service, &token, "PUT", "one", json!({})).await.http, 200);

    let removed = request(&service.secret, "DELETE", "one", &Value::Null).send(&service).await;
    assert_eq!(removed.http, 200, "{}", removed.text);
    register(&service, "one", json!({})).await;
    let answer = call(&service, &token, "GET", "one", Value::Null).await;
    refused(answer, "the device was removed, and registered again");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn wrong_tokens_count_as_failed_logins_and_a_device_that_calls_too_often_is_told_to_wait() {
    let (service, ..) = service(&["--max-failed-logins=2"]).await;
    let token = register(&service, "one", json!({})).await;
    for _ in 0..2 {
        assert_eq!(call(&service, "wrong", "GET", "one", Value::Null).await.http, 401);
    }
    let many = call(&service, "wrong", "GET", "one", Value::Null).await;
    assert_eq!(many.http, 429, "{}", many.text);
    assert_eq!(service.counter("push_ingest_failed_logins_total"), 3);
    assert_eq!(
        call(&service, &token, "GET", "one", Value::Null).await.http,
        200,
        "the right one opens"
    );

    let mut served = 1;
    let told = loop {
        let answer = call(&service, &token, "GET", "one", Value::Null).await;
        if answer.http != 200 {
            break answer;
        }
        served += 1;
    };
    told.expect(429, 429, "this device makes too many calls");
    assert!(told.header("retry-after").is_some(), "{}", told.text);
    assert!((120..240).contains(&served), "{served}");
    let other = register(&service, "two", json!({})).await;
    assert_eq!(call(&service, &other, "GET", "two", Value::Null).await.http, 200);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn without_keys_no_token_is_issued_and_none_is_accepted() {
    let service = Service::start(&[]).await;
    let put = request(&service.secret, "PUT", "one", &json!({})).send(&service).await;
    assert_eq!(put.body["result"].get("access"), None, "{}", put.text);
    let answer = call(&service, "x.y.z", "GET", "one", Value::Null).await;
    answer.expect(401, 21004, "App Secret illegal: the bearer token is not valid");
    service.stop().await.unwrap();
}

use push_model::{ids::MessageId, time::UnixMillis};

use super::*;
use crate::{
    Provider as _,
    apns::Apns,
    testing::{ACCEPTED_AT, MESSAGE_ID, RANDOM, apns_account, bearer, content, delivery, payload},
};

fn account() -> Account {
    Apns::account(&apns_account(&serde_json::json!({"sandbox": true})), &*RANDOM).unwrap()
}

fn request(seconds: u64) -> Request {
    let payload = payload(1, r#""notification":{"notification_type":1,"title":"T"}"#);
    let account = account();
    let message = Apns::message(&content(&payload), Some(&account)).unwrap();
    let token = Apns::token(&"0a".repeat(32)).unwrap();
    let id: MessageId = MESSAGE_ID.parse().unwrap();
    let device = Device { client_id: "c1", token: &token };
    let delivery = delivery(&id, seconds);
    Apns::request(&account, &bearer("bearer j.w.t"), &message, &delivery, &[device]).unwrap()
}

#[test]
fn a_request_names_device_topic_and_everything_that_apns_decides_by() {
    let request = request(60);
    assert_eq!(request.to, Destination::Apns { sandbox: true });
    assert_eq!(
        (request.method, &*request.path),
        (Method::POST, &*format!("/3/device/{}", "0a".repeat(32)))
    );
    let mut headers: Vec<_> = request
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    headers.sort_unstable();
    assert_eq!(
        headers,
        [
            ("apns-collapse-id", MESSAGE_ID),
            ("apns-expiration", "1790000060"),
            ("apns-id", MESSAGE_ID),
            ("apns-priority", "10"),
            ("apns-push-type", "alert"),
            ("apns-topic", "com.example.news"),
            ("authorization", "bearer j.w.t"),
            ("content-type", "application/json"),
        ]
    );
    assert!(request.headers[AUTHORIZATION].is_sensitive());
}

#[test]
fn apns_keeps_a_message_until_it_expires_and_for_30_days_at_most() {
    let now = ACCEPTED_AT.0 / 1000;
    for (seconds, expiration) in
        [(0, 0), (1, now + 1), (2_592_000, now + 2_592_000), (u64::MAX, now + 2_592_000)]
    {
        assert_eq!(request(seconds).headers[EXPIRATION], expiration.to_string());
    }
    let id: MessageId = MESSAGE_ID.parse().unwrap();
    let mut early = delivery(&id, 1);
    early.expires_at = UnixMillis(5);
    assert_eq!(super::expiration(&early), 1);
}

#[test]
fn a_message_goes_to_one_device_a_request() {
    let payload = payload(2, r#""data":{}"#);
    let message = Apns::message(&content(&payload), None).unwrap();
    let id: MessageId = MESSAGE_ID.parse().unwrap();
    let refused = Apns::request(&account(), &bearer("b"), &message, &delivery(&id, 1), &[]);
    assert!(matches!(refused, Err(Verdict::MessageRefused { .. })));
}

#[test]
fn an_account_is_tried_without_a_device() {
    let request = Apns::probe(&account(), &bearer("bearer j.w.t"), UnixMillis(0)).unwrap();
    assert_eq!(request.path, format!("/3/device/{}", "0".repeat(64)));
    assert_eq!(request.headers[EXPIRATION], "0");
}

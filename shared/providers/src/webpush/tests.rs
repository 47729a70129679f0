use push_model::ids::{AppId, MessageId};
use ring::rand::SystemRandom;
use serde_json::json;

use super::{
    account::tests::{account, credential},
    message::tests::payload,
    token::tests::{registered, subscription},
    *,
};
use crate::{exchange::Destination, testing};

const NOW: UnixMillis = testing::ACCEPTED_AT;

fn send(hints: &serde_json::Value, seconds: u64, now_or_never: bool) -> Request {
    let random = SystemRandom::new();
    let token = registered(&subscription("https://push.example:8443/a?b=c")).unwrap();
    let payload = payload(hints);
    let message = WebPush::message(&Content::read(&payload).unwrap(), None).unwrap();
    let bearer = match WebPush::authorize(&account(), WebPush::audience(&token), NOW, &random) {
        Ok(Authorization::Made(bearer)) => bearer,
        other => panic!("{other:?}"),
    };
    let message_id: MessageId = testing::MESSAGE_ID.parse().unwrap();
    let delivery = Delivery { now_or_never, ..testing::delivery(&message_id, seconds) };
    let devices = [Device { client_id: "a", token: &token }];
    let request = WebPush::request(&account(), &bearer, &message, &delivery, &devices).unwrap();
    assert_eq!(request.body.len(), payload.len() + encryption::OVERHEAD);
    request
}

#[test]
fn a_message_is_posted_to_the_endpoint_with_the_headers_of_rfc_8030() {
    let request = send(&json!({ "priority": "high" }), 60, false);
    assert_eq!(request.to, Destination::Outside("https://push.example:8443".into()));
    assert_eq!((request.method.as_str(), &*request.path), ("POST", "/a?b=c"));
    let header = |name: &str| request.headers[name].to_str().unwrap();
    assert_eq!(header("ttl"), "60");
    assert_eq!(header("urgency"), "high");
    assert_eq!(header("topic"), "AZLwwSs6fE2OX2BxgpOktQ");
    assert_eq!(header("content-encoding"), "aes128gcm");
    assert!(header("authorization").starts_with("vapid t=eyJ"));
    assert!(request.headers["authorization"].is_sensitive());
    assert_eq!(request.headers.len(), 6);
    assert!(!format!("{request:?}").contains("/a"), "the path is as good as the token");
}

#[test]
fn the_time_to_live_is_0_to_30_days() {
    let ttl = |seconds, now_or_never| {
        send(&json!({}), seconds, now_or_never).headers["ttl"].to_str().unwrap().to_owned()
    };
    assert_eq!(ttl(0, false), "0");
    assert_eq!(ttl(60, true), "0");
    assert_eq!(ttl(2_592_000, false), "2592000");
    assert_eq!(ttl(40 * 86_400, false), "2592000");
    assert!(!send(&json!({}), 1, false).headers.contains_key("urgency"));
}

#[test]
fn a_device_with_a_key_that_is_not_on_the_curve_is_refused_alone() {
    let random = SystemRandom::new();
    let mut token = registered(&subscription("https://push.example/a")).unwrap();
    token.p256dh[64] ^= 1;
    let payload = payload(&json!({}));
    let message = WebPush::message(&Content::read(&payload).unwrap(), None).unwrap();
    let bearer = vapid::authorize(&account(), token.origin(), NOW, &random).unwrap();
    let message_id: MessageId = testing::MESSAGE_ID.parse().unwrap();
    let delivery = testing::delivery(&message_id, 0);
    let devices = [Device { client_id: "a", token: &token }];
    let verdict = WebPush::request(&account(), &bearer, &message, &delivery, &devices).unwrap_err();
    assert_eq!(verdict, Verdict::DeviceRefused { code: "bad_key", suspicious: false });
}

#[test]
fn a_subscription_is_stored_and_shown_through_the_contract() {
    let random = SystemRandom::new();
    let text = subscription("https://push.example/a");
    let stored = WebPush::stored(&text, &random).unwrap();
    assert_eq!(WebPush::token(&stored).unwrap(), registered(&text).unwrap());
    assert_eq!(WebPush::stored(&WebPush::shown(&stored), &random).unwrap(), stored);
    assert_eq!(WebPush::shown("damaged"), "damaged");
    assert!(WebPush::token(&text).is_err());
}

#[test]
fn a_credential_is_read_and_apps_with_the_same_key_are_one_account() {
    let json = serde_json::to_vec(&credential()).unwrap();
    let account = WebPush::account(&json, &SystemRandom::new()).unwrap();
    let key = |name: &str| AppKey::first(name.parse::<AppId>().unwrap());
    assert_eq!(
        WebPush::identity(&account, &key("one")),
        WebPush::identity(&account, &key("other"))
    );
    for bad in ["", "{}", "[]", r#"{"private_key":1}"#] {
        let error = WebPush::account(bad.as_bytes(), &SystemRandom::new()).unwrap_err();
        assert_eq!(error.field, "credential");
    }
}

#[test]
fn every_device_of_a_request_has_a_verdict() {
    let token = registered(&subscription("https://push.example/a")).unwrap();
    let devices = [Device { client_id: "a", token: &token }];
    let verdicts = testing::answered(410, None, b"", |answer| WebPush::answer(answer, &devices));
    assert_eq!(verdicts, [Verdict::Gone { since: None, code: "410" }]);
}

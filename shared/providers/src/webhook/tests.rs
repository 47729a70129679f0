use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use proptest::prelude::*;
use push_model::ids::MessageId;
use ring::{hmac, rand::SystemRandom};
use serde_json::{Value, json};

use super::{
    account::tests::{SECRET, credential},
    message::{MAX_BEGINNING_LEN, MAX_BODY_LEN},
    *,
};
use crate::{
    exchange::Destination,
    testing::{self, ACCEPTED_AT, MESSAGE_ID},
    verdict::{AccountFault, Whom},
};

const NOW: UnixMillis = ACCEPTED_AT;

fn payload(desc: &str) -> Vec<u8> {
    testing::payload(1, &format!(r#""notification":{{"notification_type":1,"desc":"{desc}"}}"#))
}

fn message(desc: &str) -> Result<Message, TooLarge> {
    Webhook::message(&Content::read(&payload(desc)).unwrap(), None)
}

fn named(tokens: &[(&str, &str)]) -> Vec<(String, Token)> {
    tokens.iter().map(|(id, text)| ((*id).into(), Token::read(text).unwrap())).collect()
}

fn numbered(count: usize, token: &str) -> Vec<(String, Token)> {
    (0..count).map(|number| (format!("c{number:03}"), Token::read(token).unwrap())).collect()
}

fn devices(named: &[(String, Token)]) -> Vec<Device<'_, Token>> {
    named.iter().map(|(client_id, token)| Device { client_id, token }).collect()
}

fn send(account: &Account, message: &Message, devices: &[Device<'_, Token>]) -> Request {
    let message_id: MessageId = MESSAGE_ID.parse().unwrap();
    let delivery = testing::delivery(&message_id, 60);
    let bearer = match Webhook::authorize(account, "", NOW, &SystemRandom::new()) {
        Ok(Authorization::Made(bearer)) => bearer,
        other => panic!("{other:?}"),
    };
    Webhook::request(account, &bearer, message, &delivery, devices).unwrap()
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request.headers[name].to_str().unwrap()
}

/// The signature of a request with a secret.
fn signature(request: &Request, secret: &str) -> String {
    let secret = BASE64_STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let head = [header(request, "webhook-id"), header(request, "webhook-timestamp"), ""].join(".");
    let signed = [head.as_bytes(), &request.body[..]].concat();
    format!("v1,{}", BASE64_STANDARD.encode(hmac::sign(&key, &signed)))
}

fn judge(status: u16, body: &[u8], devices: &[Device<'_, Token>]) -> Vec<Verdict> {
    testing::answered(status, Some(7), body, |answer| Webhook::answer(answer, devices))
}

#[test]
fn a_request_carries_the_payload_once_and_every_device() {
    let account = credential().check().unwrap();
    let named = named(&[("a", "+353 1"), ("b", "say \"hi\" ☃")]);
    let request = send(&account, &message("there").unwrap(), &devices(&named));
    assert_eq!(request.to, Destination::Outside("https://app.example".into()));
    assert_eq!((request.method.as_str(), &*request.path), ("POST", "/push?app=1"));
    assert_eq!(header(&request, "content-type"), "application/json");
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(
        body,
        json!({
            "type": "push",
            "message_id": MESSAGE_ID,
            "payload": serde_json::from_slice::<Value>(&payload("there")).unwrap(),
            "devices": [
                { "client_id": "a", "token": "+353 1" },
                { "client_id": "b", "token": "say \"hi\" ☃" },
            ],
        })
    );
}

#[test]
fn a_request_is_signed_with_the_secret_and_while_they_overlap_with_the_one_before() {
    let (old, named) = (credential(), named(&[("a", "1")]));
    let request = send(&old.check().unwrap(), &message("a").unwrap(), &devices(&named));
    assert_eq!(header(&request, "webhook-timestamp"), "1790000000");
    assert_eq!(header(&request, "webhook-signature"), signature(&request, SECRET));

    let random = SystemRandom::new();
    let new = old.rotate(NOW, Duration::from_secs(1), &random).unwrap();
    let request = send(&new.check().unwrap(), &message("a").unwrap(), &devices(&named));
    let both = [signature(&request, &new.secret), signature(&request, SECRET)].join(" ");
    assert_eq!(header(&request, "webhook-signature"), both);
}

#[test]
fn a_request_is_named_alike_when_the_same_devices_are_sent_the_same_message_again() {
    let account = credential().check().unwrap();
    let message = message("a").unwrap();
    let named = named(&[("a", "1"), ("b", "2"), ("ab", "3")]);
    let all = devices(&named);
    let id = |devices: &[Device<'_, Token>]| {
        header(&send(&account, &message, devices), "webhook-id").to_owned()
    };
    let swapped: Vec<_> =
        all.iter().rev().map(|d| Device { client_id: d.client_id, token: d.token }).collect();
    assert_eq!(id(&all), id(&swapped));
    let ids = [id(&all), id(&all[..2]), id(&all[1..]), id(&all[2..])];
    assert!((1..4).all(|at| !ids[..at].contains(&ids[at])), "{ids:?}");
    assert!(ids[0].starts_with("msg_") && ids[0].len() == 28, "{ids:?}");
}

#[test]
fn a_hundred_devices_fit_into_a_request_unless_their_tokens_are_long() {
    let message = message("a").unwrap();
    let batch = |count, token: &str| Webhook::batch(&message, &devices(&numbered(count, token)));
    assert_eq!(batch(0, "a"), 0);
    assert_eq!(batch(99, "a"), 99);
    assert_eq!(batch(250, "a"), 100);
    assert_eq!(batch(250, &"x".repeat(4096)), 4);
    assert_eq!(batch(250, &"\"".repeat(4096)), 2);
}

#[test]
fn a_payload_that_leaves_no_room_for_a_device_is_too_large() {
    let room = MAX_BEGINNING_LEN - message("").unwrap().beginning.len();
    let largest = message(&"x".repeat(room)).unwrap();
    let named = vec![("c".repeat(128), Token::read(&"\"".repeat(4096)).unwrap())];
    let request = send(&credential().check().unwrap(), &largest, &devices(&named));
    assert!((MAX_BODY_LEN - 32..=MAX_BODY_LEN).contains(&request.body.len()));
    assert_eq!(Webhook::batch(&largest, &devices(&named)), 1);
    let error = message(&"x".repeat(room + 3)).unwrap_err();
    assert_eq!(error.size - error.limit, 3);
}

#[test]
fn a_receiver_answers_for_each_device() {
    let named = named(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "5"), ("f", "6")]);
    let body = json!({ "devices": {
        "a": { "status": "sent" },
        "b": { "status": "gone" },
        "c": { "status": "refused", "reason": "unknown number" },
        "d": { "status": "retry", "after": 30 },
        "e": { "status": "retry" },
        "z": { "status": "gone" },
    } });
    let retry = |wait| Verdict::Throttled { whom: Whom::Device, wait };
    assert_eq!(
        judge(200, body.to_string().as_bytes(), &devices(&named)),
        [
            Verdict::Sent,
            Verdict::Gone { since: None, code: "gone" },
            Verdict::DeviceRefused { code: "refused", suspicious: false },
            retry(Some(Duration::from_secs(30))),
            retry(None),
            Verdict::Sent,
        ]
    );
}

#[test]
fn a_receiver_that_says_nothing_of_devices_has_taken_the_message_for_all() {
    let named = named(&[("a", "1"), ("b", "2")]);
    for body in ["", "ok", "{}", "[]", "null", r#"{"devices":[]}"#, r#"{"devices":{"a":"#] {
        for status in [200, 201, 202, 204] {
            let verdicts = judge(status, body.as_bytes(), &devices(&named));
            assert_eq!(verdicts, [Verdict::Sent; 2], "{body}");
        }
    }
}

#[test]
fn an_outcome_with_an_unknown_status_is_no_success() {
    let named = named(&[("a", "1")]);
    let refused = Verdict::DeviceRefused { code: "unknown_status", suspicious: false };
    for outcome in [r#"{"status":"Gone"}"#, r#"{"status":1}"#, "{}", "null", r#""gone""#] {
        let body = format!(r#"{{"devices":{{"a":{outcome}}}}}"#);
        assert_eq!(judge(200, body.as_bytes(), &devices(&named)), [refused], "{outcome}");
    }
    for after in ["-1", "1.5", "\"30\"", "null", "1e99"] {
        let body = format!(r#"{{"devices":{{"a":{{"status":"retry","after":{after}}}}}}}"#);
        let later = Verdict::Throttled { whom: Whom::Device, wait: None };
        assert_eq!(judge(200, body.as_bytes(), &devices(&named)), [later], "{after}");
    }
}

#[test]
fn a_status_other_than_2xx_is_about_all_devices() {
    let named = named(&[("a", "1"), ("b", "2")]);
    let wait = Some(Duration::from_secs(7));
    let refused = |code| Verdict::MessageRefused { code };
    for (status, verdict) in [
        (302, Verdict::Account(AccountFault::Suspect { code: "redirect" })),
        (400, refused("bad_request")),
        (401, refused("unauthorized")),
        (404, refused("not_found")),
        (408, Verdict::Unavailable { wait }),
        (410, Verdict::Account(AccountFault::Stop { code: "disabled" })),
        (418, refused("client_error")),
        (429, Verdict::Throttled { whom: Whom::Account, wait }),
        (500, Verdict::Unavailable { wait }),
        (502, Verdict::Unavailable { wait }),
        (503, Verdict::Unavailable { wait }),
        (504, Verdict::Unavailable { wait }),
    ] {
        let body = br#"{"devices":{"a":{"status":"gone"}}}"#;
        assert_eq!(judge(status, body, &devices(&named)), [verdict; 2], "{status}");
    }
}

proptest! {
    #[test]
    fn any_answer_gives_one_verdict_for_each_device(
        status in 100..1000_u16,
        body in prop::collection::vec(any::<u8>(), 0..200),
        json in r#"(\{"devices":\{"a":)?[\[\]{}:,"a-z0-9]{0,40}"#,
    ) {
        let named = named(&[("a", "1"), ("b", "2")]);
        prop_assert_eq!(judge(status, &body, &devices(&named)).len(), 2);
        prop_assert_eq!(judge(status, json.as_bytes(), &devices(&named)).len(), 2);
    }

    #[test]
    fn no_request_has_a_longer_body_than_is_allowed(
        (unit, repeats) in (prop::sample::select(vec!["a", "\"", "\\", "☃", "+3 "]), 1..1000_usize),
        (count, desc) in (1..150_usize, 0..9000_usize),
    ) {
        let message = message(&"x".repeat(desc)).unwrap();
        let named = numbered(count, &unit.repeat(repeats));
        let devices = devices(&named);
        let count = Webhook::batch(&message, &devices);
        prop_assert!((1..=100).contains(&count));
        let request = send(&credential().check().unwrap(), &message, &devices[..count]);
        prop_assert!(request.body.len() <= MAX_BODY_LEN);
    }
}

#[test]
fn a_receiver_is_tried_with_a_signed_request_that_names_no_device_and_answers_with_any_2xx() {
    let account = credential().check().unwrap();
    let bearer = testing::bearer("");
    let Request { to, path, headers, body, .. } = Webhook::probe(&account, &bearer, NOW).unwrap();
    assert_eq!(to, Destination::Outside("https://app.example".into()));
    assert_eq!((&*path, &*body), ("/push?app=1", br#"{"type":"test","devices":[]}"#.as_slice()));
    let header = |name: &str| headers[name].to_str().unwrap();
    let signed = format!("{}.{}.", header("webhook-id"), header("webhook-timestamp"));
    let key = BASE64_STANDARD.decode(&SECRET[6..]).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signature = BASE64_STANDARD.decode(&header("webhook-signature")[3..]).unwrap();
    hmac::verify(&key, &[signed.as_bytes(), &body].concat(), &signature).unwrap();
    let later = Webhook::probe(&account, &bearer, NOW.plus_seconds(1)).unwrap();
    assert_ne!(later.headers["webhook-id"], headers["webhook-id"], "a receiver drops repeats");
    for status in [200, 202, 204] {
        assert_eq!(testing::answered(status, None, b"", Webhook::probed), Ok(()), "{status}");
    }
    for status in [301, 400, 401, 404, 410, 429, 500] {
        assert!(testing::answered(status, None, b"", Webhook::probed).is_err(), "{status}");
    }
}

//! Answers and payloads made of the corpora `provider-answer` and `payload`. The first three bytes of an answer
//! are its status.

use std::collections::BTreeMap;

use http::{HeaderMap, StatusCode, header};
use proptest::{prelude::*, test_runner::TestCaseResult};
use push_model::ids::MessageId;
use serde_json::{Value, json};

use crate::{
    Bearer, Device, Provider,
    apns::Apns,
    content::Content,
    exchange::Answer,
    fcm::Fcm,
    testing::{ACCEPTED_AT, RANDOM, apns_account, bearer, delivery, service_account},
    verdict::Verdict,
};

const FCM_TOKEN: &str = "cFyGJqxnT3mVhZ_8-wZ0aB:APA91bHPRgkF3JUikC4ENAHEeMrd41Zxv3hVZjC9KtT8";

#[test]
fn no_answer_removes_a_device_without_its_status_and_every_device_gets_a_verdict() {
    const TOKENS: [&str; 12] = [
        "404",
        "410",
        "429",
        "FcmError",
        "UNREGISTERED",
        "Unregistered",
        "fieldViolations",
        "message.token",
        "\"timestamp\":",
        "18446744073709551616",
        "null",
        "[[[[",
    ];
    push_fuzz::fuzz("provider-answer", &TOKENS, |input| {
        judged::<Fcm>(input, FCM_TOKEN, StatusCode::NOT_FOUND)?;
        judged::<Apns>(input, &"0a".repeat(32), StatusCode::GONE)
    });
}

fn judged<P: Provider>(input: &[u8], token: &str, gone: StatusCode) -> TestCaseResult {
    let (status, body) = input.split_at(input.len().min(3));
    let status = StatusCode::from_bytes(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut headers = HeaderMap::new();
    if let Ok(value) = body.get(..8).unwrap_or(body).try_into() {
        headers.insert(header::RETRY_AFTER, value);
    }
    let answer = Answer { status, headers: &headers, body, at: ACCEPTED_AT };
    let token = P::token(token).unwrap();
    let devices =
        [Device { client_id: "a", token: &token }, Device { client_id: "b", token: &token }];
    for count in 0..=devices.len() {
        let verdicts = P::answer(&answer, &devices[..count]);
        prop_assert_eq!(verdicts.len(), count);
        let removed = verdicts.iter().any(|verdict| matches!(verdict, Verdict::Gone { .. }));
        prop_assert!(!removed || status == gone);
        let sent = verdicts.contains(&Verdict::Sent);
        prop_assert_eq!(sent, count > 0 && status.is_success());
    }
    if let Ok(Bearer { renew_at, expires_at, .. }) = P::authorized(&answer, ACCEPTED_AT) {
        prop_assert!(ACCEPTED_AT.plus_seconds(30) <= renew_at && renew_at < expires_at);
    }
    Ok(())
}

#[test]
fn every_payload_becomes_a_body_that_is_json_and_keeps_its_data() {
    const TOKENS: [&str; 8] = [
        "\\ud83d\\ude00",
        "\\u0000",
        "\"data\":{",
        "\"from\":",
        "\"title\":",
        "data.",
        "4294967295",
        "\u{2028}",
    ];
    let fcm = Fcm::account(&service_account(&json!({})), &*RANDOM).unwrap();
    let apns = Apns::account(&apns_account(&json!({})), &*RANDOM).unwrap();
    push_fuzz::fuzz("payload", &TOKENS, |payload| {
        let Ok(content) = Content::read(payload) else { return Ok(()) };
        let data: BTreeMap<String, String> = content
            .payload
            .data
            .iter()
            .flatten()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        if let Some(body) = body::<Fcm>(&content, &fcm, FCM_TOKEN) {
            let sent = body["message"]["data"].as_object().unwrap();
            for (name, value) in &data {
                let value = Some(&json!(value));
                let prefixed = format!("data.{name}");
                prop_assert!([name, &prefixed].map(|name| sent.get(name)).contains(&value));
            }
        }
        if let Some(body) = body::<Apns>(&content, &apns, &"0a".repeat(32)) {
            prop_assert!(body["aps"].is_object());
            prop_assert!(content.payload.data.is_none() || body["data"] == json!(data));
        }
        Ok(())
    });
}

/// Returns the body of a request with this content, if the provider can carry it.
fn body<P: Provider>(content: &Content<'_>, account: &P::Account, token: &str) -> Option<Value> {
    let message = P::message(content, Some(account)).ok()?;
    let token = P::token(token).unwrap();
    let id: MessageId = content.payload.message_id;
    let device = Device { client_id: "c1", token: &token };
    let request = P::request(account, &bearer("Bearer a"), &message, &delivery(&id, 60), &[device]);
    Some(serde_json::from_slice(&request.unwrap().body).unwrap())
}

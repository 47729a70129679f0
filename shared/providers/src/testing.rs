//! Payloads, accounts and answers for the tests of the providers.

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use push_model::{device::TransportKind, ids::MessageId, time::UnixMillis};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use serde_json::json;

use crate::{Bearer, Delivery, content::Content, exchange::Answer};

/// The message id of [`payload`].
pub(crate) const MESSAGE_ID: &str = "0192f0c1-2b3a-7c4d-8e5f-60718293a4b5";
/// The time at which it was accepted.
pub(crate) const ACCEPTED_AT: UnixMillis = UnixMillis(1_790_000_000_000);
pub(crate) static RANDOM: LazyLock<SystemRandom> = LazyLock::new(SystemRandom::new);
/// A subscription with the key and the secret of RFC 8291, section 5.
const SUBSCRIPTION: &str = r#"{"endpoint":"https://push.example/a","keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}"#;
/// A key for tests alone.
const RSA_KEY: &str = include_str!("../testdata/rsa_key_of_tests.pem");

/// A token of each provider.
pub(crate) fn tokens() -> impl Iterator<Item = (TransportKind, &'static str)> {
    TransportKind::ALL.into_iter().filter_map(|kind| Some((kind, token(kind)?)))
}

fn token(kind: TransportKind) -> Option<&'static str> {
    match kind {
        TransportKind::Fcm => {
            Some("cFyGJqxnT3mVhZ_8-wZ0aB:APA91bHPRgkF3JUikC4ENAHEeMrd41Zxv3hVZjC9KtT8OvPVGJ")
        }
        TransportKind::Apns => {
            Some("0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a")
        }
        TransportKind::Webpush => Some(SUBSCRIPTION),
        TransportKind::Webhook => Some("+353 1 234"),
        TransportKind::Mqtt | TransportKind::Discard => None,
    }
}

/// Writes a payload with this type and these fields.
pub(crate) fn payload(kind: u8, fields: &str) -> Vec<u8> {
    let comma = if fields.is_empty() { "" } else { "," };
    format!(
        r#"{{"message_id":"{MESSAGE_ID}","app_id":"news","type":{kind}{comma}{fields},"accepted_at":{at},"sequence":1790000000000001,"expires_at":{at}}}"#,
        at = ACCEPTED_AT.0
    )
    .into_bytes()
}

/// Reads a payload.
pub(crate) fn content(payload: &[u8]) -> Content<'_> {
    Content::read(payload).expect("a payload")
}

/// Has a message delivered at the time of acceptance, with so many seconds to live.
pub(crate) fn delivery(id: &MessageId, seconds: u64) -> Delivery<'_> {
    Delivery {
        message_id: id,
        now: ACCEPTED_AT,
        expires_at: ACCEPTED_AT.plus_seconds(seconds),
        now_or_never: seconds == 0,
        random: &*RANDOM,
    }
}

pub(crate) fn bearer(value: &str) -> Bearer {
    let never = UnixMillis::MAX;
    Bearer { value: value.to_owned().into(), renew_at: never, expires_at: never }
}

/// Writes the file of a service account, with changes.
pub(crate) fn service_account(changes: &serde_json::Value) -> Vec<u8> {
    let file = json!({
        "type": "service_account",
        "project_id": "news-1f3a5",
        "private_key_id": "5d1e",
        "private_key": RSA_KEY,
        "client_email": "push@news-1f3a5.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token",
    });
    changed(file, changes)
}

/// Writes the stored form of an APNs account, with changes.
pub(crate) fn apns_account(changes: &serde_json::Value) -> Vec<u8> {
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &*RANDOM);
    let account = json!({
        "key_pem": pem(key.expect("a key").as_ref()),
        "key_id": "ABC123DEFG",
        "team_id": "TEAM123456",
        "topic": "com.example.news",
        "sandbox": false,
    });
    changed(account, changes)
}

/// Writes a private key as PEM.
pub(crate) fn pem(key: &[u8]) -> String {
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(key))
}

fn changed(mut object: serde_json::Value, changes: &serde_json::Value) -> Vec<u8> {
    for (name, value) in changes.as_object().expect("an object") {
        object[name] = value.clone();
    }
    object.to_string().into_bytes()
}

/// Judges an answer, with `Retry-After` in seconds if there is one.
pub(crate) fn answered<T>(
    status: u16,
    retry_after: Option<u32>,
    body: &[u8],
    judge: impl FnOnce(&Answer<'_>) -> T,
) -> T {
    let mut headers = HeaderMap::new();
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    let status = StatusCode::from_u16(status).expect("a status");
    judge(&Answer { status, headers: &headers, body, at: ACCEPTED_AT })
}

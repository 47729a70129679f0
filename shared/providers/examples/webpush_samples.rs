//! Writes requests for verifiers that are not ours: `tests/providers/webpush.py` runs it.
//!
//! Reads the subscriptions of devices from standard input, a JSON list, and writes a JSON object:
//! Web Push requests for each of them, and webhook requests during the rotation of a secret.

use std::io;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use push_model::{ids::MessageId, time::UnixMillis};
use push_providers::{
    Authorization, Delivery, Device, Provider,
    content::Content,
    exchange::{Destination, Request},
    webhook::{self, Webhook},
    webpush::{self, WebPush},
};
use ring::rand::SystemRandom;
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let subscriptions: Vec<Value> = serde_json::from_reader(io::stdin())?;
    let samples = json!({ "webpush": web_push(&subscriptions)?, "webhook": webhook()? });
    serde_json::to_writer(io::stdout(), &samples)?;
    Ok(())
}

/// A payload of at least this length.
fn payload(len: usize) -> Vec<u8> {
    let now = UnixMillis::now().0;
    let payload = |desc: &str| {
        json!({
            "message_id": "0192f0c1-2b3a-7c4d-8e5f-60718293a4b5",
            "app_id": "shop",
            "type": 1,
            "notification": { "notification_type": 1, "title": "Hi ☃", "desc": desc },
            "accepted_at": now,
            "sequence": now * 1000,
            "expires_at": now + 60_000,
        })
        .to_string()
    };
    let missing = len.saturating_sub(payload("").len());
    payload(&"x".repeat(missing)).into_bytes()
}

fn web_push(subscriptions: &[Value]) -> Result<Vec<Value>, Failure> {
    let random = SystemRandom::new();
    let mut credential = webpush::Credential::generate("mailto:push@app.example", &random)?;
    let mut samples = Vec::new();
    for (len, declarative) in [(0, None), (0, Some("https://app.example/")), (3993, None)] {
        credential.declarative = declarative.map(Into::into);
        let account = WebPush::account(&serde_json::to_vec(&credential)?, &random)?;
        for subscription in subscriptions {
            let stored = WebPush::stored(&subscription.to_string(), &random)?.into_owned();
            let sample = send::<WebPush>(&account, &payload(len), &[("phone", &stored)])?;
            samples.push(json!({
                "subscription": subscription,
                "shown": serde_json::from_str::<Value>(&WebPush::shown(&stored))?,
                "declarative": declarative,
                "payload": String::from_utf8(payload(len))?,
                "public_key": account.public_key(),
                "request": sample,
            }));
        }
    }
    Ok(samples)
}

fn webhook() -> Result<Value, Failure> {
    let random = SystemRandom::new();
    let first = webhook::Credential::generate("https://app.example/push", &random)?;
    let hour = std::time::Duration::from_hours(1);
    let second = first.clone().rotate(UnixMillis::now(), hour, &random)?;
    let devices = [("phone-1", "+353 1 234 5678"), ("phone-2", "nobody"), ("phone-3", "+1 \"☃\"")];
    let mut requests = Vec::new();
    for credential in [&first, &second] {
        let account = Webhook::account(&serde_json::to_vec(credential)?, &random)?;
        requests.push(send::<Webhook>(&account, &payload(0), &devices)?);
    }
    Ok(json!({ "secrets": [first.secret, second.secret], "requests": requests }))
}

fn send<P: Provider>(
    account: &P::Account,
    payload: &[u8],
    devices: &[(&str, &str)],
) -> Result<Value, Failure> {
    let random = SystemRandom::new();
    let content = Content::read(payload)?;
    let message = P::message(&content, Some(account))?;
    let tokens = devices.iter().map(|(_, token)| P::token(token)).collect::<Result<Vec<_>, _>>()?;
    let devices: Vec<_> = devices
        .iter()
        .zip(&tokens)
        .map(|((client_id, _), token)| Device { client_id, token })
        .collect();
    let message_id: MessageId = content.payload.message_id;
    let now = UnixMillis::now();
    let delivery = Delivery {
        message_id: &message_id,
        now,
        expires_at: content.payload.expires_at,
        now_or_never: false,
        random: &random,
    };
    let audience = tokens.first().map(P::audience).unwrap_or_default();
    let Authorization::Made(bearer) = P::authorize(account, audience, now, &random)? else {
        return Err("an authorization that is fetched".into());
    };
    let request = P::request(account, &bearer, &message, &delivery, &devices)
        .map_err(|verdict| format!("{verdict:?}"))?;
    written(&request)
}

fn written(request: &Request) -> Result<Value, Failure> {
    let Destination::Outside(origin) = &request.to else {
        return Err("a request to a provider of the operator's".into());
    };
    let mut headers = serde_json::Map::new();
    for (name, value) in &request.headers {
        headers.insert(name.to_string(), value.to_str()?.into());
    }
    Ok(json!({
        "url": format!("{origin}{}", request.path),
        "method": request.method.as_str(),
        "headers": headers,
        "body": BASE64_STANDARD.encode(&request.body),
    }))
}

//! A message and its devices as a signed request (Standard Webhooks).

use std::io;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{CONTENT_TYPE, InvalidHeaderValue},
};
use push_model::{ids::MessageId, time::UnixMillis};
use ring::{
    digest::{self, SHA256},
    hmac,
};
use serde::Serialize;

use super::{
    account::Account,
    message::{END, MAX_BODY_LEN, Message},
    token::Token,
};
use crate::{
    Delivery, Device, base64url,
    exchange::{Destination, Request},
    verdict::Verdict,
};

/// The most devices in one request.
pub(super) const MAX_DEVICES: usize = 100;

/// The body of a request that tries the receiver.
const PROBE: &[u8] = br#"{"type":"test","devices":[]}"#;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

#[derive(Serialize)]
struct Entry<'a> {
    client_id: &'a str,
    token: &'a str,
}

/// Returns the number of these devices whose body is not too long, at least 1 if there are any.
pub(super) fn batch(message: &Message, devices: &[Device<'_, Token>]) -> usize {
    let mut body = Length(message.beginning.len() + END.len());
    let fits = devices.iter().take(MAX_DEVICES).take_while(|device| {
        write_device(&mut body, device);
        // The comma before it.
        body.0 += 1;
        body.0 <= MAX_BODY_LEN
    });
    fits.count().max(devices.len().min(1))
}

/// Writes and signs the request.
///
/// # Errors
/// If a signature is no header, which base64 always is.
pub(super) fn request(
    account: &Account,
    message: &Message,
    delivery: &Delivery<'_>,
    devices: &[Device<'_, Token>],
) -> Result<Request, Verdict> {
    let mut body = Vec::with_capacity(MAX_BODY_LEN);
    body.extend_from_slice(&message.beginning);
    for (index, device) in devices.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        write_device(&mut body, device);
    }
    body.extend_from_slice(END);

    let id = request_id(delivery.message_id, devices);
    signed(account, &id, delivery.now, body).map_err(|_| Verdict::Unavailable { wait: None })
}

/// Writes and signs the request that tries the receiver: one without a message and without devices.
///
/// # Errors
/// If a signature is no header, which base64 always is.
pub(super) fn probe(account: &Account, now: UnixMillis) -> Result<Request, InvalidHeaderValue> {
    signed(account, &format!("test_{}", now.0), now, PROBE.to_vec())
}

fn signed(
    account: &Account,
    id: &str,
    now: UnixMillis,
    body: Vec<u8>,
) -> Result<Request, InvalidHeaderValue> {
    Ok(Request {
        to: Destination::Outside(account.origin.clone()),
        method: Method::POST,
        path: account.path.clone(),
        headers: headers(account, id, now, &body)?,
        body: Bytes::from(body),
    })
}

fn write_device(out: &mut impl io::Write, device: &Device<'_, Token>) {
    let entry = Entry { client_id: device.client_id, token: &device.token.0 };
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, &entry);
}

/// Counts the bytes that are written.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the id of a request: the same whenever the message is sent to the same devices, in any order.
fn request_id(message_id: &MessageId, devices: &[Device<'_, Token>]) -> String {
    let mut clients: Vec<&str> = devices.iter().map(|device| device.client_id).collect();
    clients.sort_unstable();
    let mut hash = digest::Context::new(&SHA256);
    hash.update(message_id.as_uuid().as_bytes());
    for client in clients {
        hash.update(client.as_bytes());
        hash.update(b"\0");
    }
    let mut id = String::from("msg_");
    base64url::encode_into(hash.finish().as_ref().get(..18).unwrap_or_default(), &mut id);
    id
}

fn headers(
    account: &Account,
    id: &str,
    now: UnixMillis,
    body: &[u8],
) -> Result<HeaderMap, InvalidHeaderValue> {
    let timestamp = (now.0 / 1000).to_string();
    let mut signatures = String::with_capacity(96);
    for key in account.keys(now) {
        let separator = if signatures.is_empty() { "" } else { " " };
        signatures.push_str(separator);
        signatures.push_str("v1,");
        BASE64_STANDARD.encode_string(sign(key, id, &timestamp, body), &mut signatures);
    }
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(WEBHOOK_ID, id.try_into()?);
    headers.insert(WEBHOOK_TIMESTAMP, timestamp.try_into()?);
    headers.insert(WEBHOOK_SIGNATURE, signatures.try_into()?);
    Ok(headers)
}

fn sign(key: &hmac::Key, id: &str, timestamp: &str, body: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        context.update(part);
    }
    context.sign()
}

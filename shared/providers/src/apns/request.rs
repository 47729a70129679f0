//! Requests to APNs.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{AUTHORIZATION, CONTENT_TYPE},
};

use super::{account::Account, message::Message, token::Token};
use crate::{
    Bearer, Delivery, Device,
    exchange::{Destination, Request},
    verdict::{AccountFault, Verdict},
};

/// The longest time in seconds for which APNs keeps a notification.
const LONGEST_LIFE: u64 = 30 * 24 * 60 * 60;
/// A device token that no device has: an accepted account is told that it is bad.
const NO_DEVICE: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// The payload for it.
const PROBE: &[u8] = br#"{"aps":{"content-available":1}}"#;

const COLLAPSE_ID: HeaderName = HeaderName::from_static("apns-collapse-id");
const EXPIRATION: HeaderName = HeaderName::from_static("apns-expiration");
const ID: HeaderName = HeaderName::from_static("apns-id");
const PRIORITY: HeaderName = HeaderName::from_static("apns-priority");
const PUSH_TYPE: HeaderName = HeaderName::from_static("apns-push-type");
const TOPIC: HeaderName = HeaderName::from_static("apns-topic");

/// Writes the request that sends a message to a device.
pub(super) fn send(
    account: &Account,
    bearer: &Bearer,
    message: &Message,
    delivery: &Delivery<'_>,
    devices: &[Device<'_, Token>],
) -> Result<Request, Verdict> {
    let [device] = devices else {
        return Err(Verdict::MessageRefused { code: "one_device_a_request" });
    };
    let mut request = to_device(account, bearer, device.token.as_str(), message.body.clone())?;
    request.headers.extend([
        (PUSH_TYPE, HeaderValue::from_static(message.push_type)),
        (PRIORITY, HeaderValue::from_static(message.priority)),
        (COLLAPSE_ID, message.collapse_id.clone()),
        (ID, message.id.clone()),
        (EXPIRATION, HeaderValue::from(expiration(delivery))),
    ]);
    Ok(request)
}

/// Writes a request that shows if the account may send.
pub(super) fn probe(account: &Account, bearer: &Bearer) -> Result<Request, Verdict> {
    let mut request = to_device(account, bearer, NO_DEVICE, Bytes::from_static(PROBE))?;
    request.headers.extend([
        (PUSH_TYPE, HeaderValue::from_static("background")),
        (PRIORITY, HeaderValue::from_static("5")),
        (EXPIRATION, HeaderValue::from_static("0")),
    ]);
    Ok(request)
}

/// Returns the time in seconds until which APNs may keep the message; 0 if it must not.
fn expiration(delivery: &Delivery<'_>) -> u64 {
    if delivery.now_or_never {
        return 0;
    }
    let latest = delivery.now.0 / 1000 + LONGEST_LIFE;
    (delivery.expires_at.0 / 1000).clamp(1, latest)
}

fn to_device(
    account: &Account,
    bearer: &Bearer,
    token: &str,
    body: Bytes,
) -> Result<Request, Verdict> {
    let mut authorization = HeaderValue::from_maybe_shared(bearer.value.clone())
        .map_err(|_| Verdict::Account(AccountFault::Renew { code: "bad_provider_token" }))?;
    authorization.set_sensitive(true);
    Ok(Request {
        to: Destination::Apns { sandbox: account.sandbox },
        method: Method::POST,
        path: format!("/3/device/{token}"),
        headers: HeaderMap::from_iter([
            (AUTHORIZATION, authorization),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (TOPIC, account.topic.clone()),
        ]),
        body,
    })
}

#[cfg(test)]
mod tests;

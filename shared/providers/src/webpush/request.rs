//! A message to one device as a request (RFC 8030, section 5).

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE},
};

use super::{
    encryption::{NotEncrypted, encrypt},
    message::Message,
    token::Token,
};
use crate::{
    Bearer, Delivery,
    exchange::{Destination, Request},
    verdict::{AccountFault, Verdict},
};

/// The longest time to live that push services take, in seconds: 30 days.
const MAX_TTL: u64 = 2_592_000;

const TTL: HeaderName = HeaderName::from_static("ttl");
const TOPIC: HeaderName = HeaderName::from_static("topic");
const URGENCY: HeaderName = HeaderName::from_static("urgency");

/// Encrypts a message for a device and writes the request.
///
/// # Errors
/// If the key of the device is not on the curve, or there are no random bytes.
pub(super) fn request(
    bearer: &Bearer,
    message: &Message,
    delivery: &Delivery<'_>,
    token: &Token,
) -> Result<Request, Verdict> {
    let body = encrypt(&message.plaintext, &token.p256dh, &token.auth, delivery.random).map_err(
        |problem| match problem {
            NotEncrypted::Random => Verdict::Unavailable { wait: None },
            NotEncrypted::DeviceKey => {
                Verdict::DeviceRefused { code: "bad_key", suspicious: false }
            }
        },
    )?;
    let mut authorization = HeaderValue::from_maybe_shared(bearer.value.clone())
        .map_err(|_| Verdict::Account(AccountFault::Renew { code: "bad_bearer" }))?;
    authorization.set_sensitive(true);

    let mut headers = HeaderMap::with_capacity(6);
    headers.insert(TTL, delivery.seconds_left().min(MAX_TTL).into());
    headers.insert(TOPIC, message.topic.clone());
    if let Some(urgency) = &message.urgency {
        headers.insert(URGENCY, urgency.clone());
    }
    headers.insert(AUTHORIZATION, authorization);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("aes128gcm"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(Request {
        to: Destination::Outside(token.origin().into()),
        method: Method::POST,
        path: token.path().into(),
        headers,
        body: Bytes::from(body),
    })
}

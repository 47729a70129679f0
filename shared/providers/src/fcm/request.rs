//! Requests to FCM and to the service of its access tokens.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use push_model::time::UnixMillis;
use ring::rand::SecureRandom;

use super::{
    account::{Account, bad},
    message::Message,
    token::Token,
};
use crate::{
    BadAccount, Bearer, Delivery, Device,
    exchange::{Destination, Request},
    verdict::{AccountFault, Verdict},
};

/// The longest time in seconds for which FCM keeps a message.
const LONGEST_LIFE: u64 = 28 * 24 * 60 * 60;
/// The beginning of the body of an exchange: the grant type of RFC 7523, section 2.1.
const GRANT: &str = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";
/// A message for no device, of which FCM only checks if the account may send it.
const PROBE: &[u8] =
    br#"{"validate_only":true,"message":{"token":"cccccccccccccccccccccc:account-test","data":{}}}"#;

/// Writes the request that exchanges an assertion for an access token (RFC 7523).
pub(super) fn exchange(
    account: &Account,
    now: UnixMillis,
    random: &dyn SecureRandom,
) -> Result<Request, BadAccount> {
    let assertion =
        account.assertion(now.0 / 1000, random).ok_or_else(|| bad("private_key", "cannot sign"))?;
    let (origin, path) = account.token_service.clone();
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    Ok(Request {
        to: Destination::Outside(origin),
        method: Method::POST,
        path,
        headers: HeaderMap::from_iter([(CONTENT_TYPE, form)]),
        body: format!("{GRANT}{assertion}").into(),
    })
}

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
    let (field, token) = device.token.field();
    let seconds = delivery.seconds_left().min(LONGEST_LIFE).to_string();
    let parts = [
        br#"{"message":{""#.as_slice(),
        field.as_bytes(),
        br#"":""#,
        token.as_bytes(),
        br#"","android":{"ttl":""#,
        seconds.as_bytes(),
        br#"s""#,
        &message.tail,
        b"}",
    ];
    to_fcm(account, bearer, parts.concat().into())
}

/// Writes a request that shows if the account may send.
pub(super) fn probe(account: &Account, bearer: &Bearer) -> Result<Request, Verdict> {
    to_fcm(account, bearer, Bytes::from_static(PROBE))
}

fn to_fcm(account: &Account, bearer: &Bearer, body: Bytes) -> Result<Request, Verdict> {
    let mut authorization = HeaderValue::from_maybe_shared(bearer.value.clone())
        .map_err(|_| Verdict::Account(AccountFault::Renew { code: "bad_access_token" }))?;
    authorization.set_sensitive(true);
    let json = HeaderValue::from_static("application/json");
    Ok(Request {
        to: Destination::Fcm,
        method: Method::POST,
        path: account.path.clone(),
        headers: HeaderMap::from_iter([(AUTHORIZATION, authorization), (CONTENT_TYPE, json)]),
        body,
    })
}

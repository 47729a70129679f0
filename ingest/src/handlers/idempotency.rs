//! Message ids, and the idempotency keys that they can be derived from.

use push_model::{
    app::App,
    ids::{AudienceKind, MessageId},
};

use crate::{head::Head, rejection::Rejection};

/// The longest idempotency key, in characters.
const MAX_KEY: usize = 128;

/// The id of a push, and its deduplication nonce. With an idempotency key, several accepted jobs
/// of the message share one id. The nonce tells them apart, so that only one of them is sent.
pub(super) fn identify(
    app: &App,
    key: Option<&[u8]>,
    audience_kind: AudienceKind,
    dry_run: bool,
) -> (MessageId, u64) {
    match key {
        Some(key) => (app.message_id(key), rand::random()),
        None if dry_run => (MessageId::void(&app.app_id), 0),
        None => (MessageId::issue(&app.app_id, audience_kind), 0),
    }
}

/// The key in the `Idempotency-Key` header of a single push.
pub(super) fn header_key<'a>(head: &Head<'a>) -> Result<Option<&'a [u8]>, Rejection> {
    let key = head.idempotency_key;
    key.map(|key| checked_key(key, "the header Idempotency-Key")).transpose()
}

/// Checks a key; `field` names it to the caller.
pub(super) fn checked_key<'a>(key: &'a [u8], field: &str) -> Result<&'a [u8], Rejection> {
    if (1..=MAX_KEY).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic) {
        Ok(key)
    } else {
        let problem = format!("{field} must be 1 to {MAX_KEY} visible ASCII characters");
        Err(Rejection::MessageIllegal(problem))
    }
}

//! Message ids, and the idempotency keys that they can be derived from.
//!
//! A key that comes again must come with the same body ([`Fingerprint`]). The ledger knows the first body
//! once a worker has begun that push, and this process remembers those that it took lately. Where neither
//! knows it, the worker finds two bodies, and drops the second.

use std::{collections::HashMap, sync::Arc};

use futures::{StreamExt, stream};
use push_model::{
    app::{App, AppKey},
    fingerprint::Fingerprint,
    ids::{AppId, AudienceKind, MessageId},
};
use tokio::time::Instant;

use crate::{
    apps::RecentKeys,
    head::Head,
    index_client::{IndexClient, Subject},
    rejection::Rejection,
};

/// The longest idempotency key, in characters.
const MAX_KEY: usize = 128;
/// The most ledger entries that are asked for concurrently on behalf of one request.
const ENTRIES_AT_ONCE: usize = 64;

/// Makes the id of a push. With an idempotency key, several accepted jobs of the message share one id.
pub(super) fn identify(
    app: &App,
    key: Option<&[u8]>,
    audience_kind: AudienceKind,
    dry_run: bool,
) -> MessageId {
    match key {
        Some(key) => app.message_id(key),
        None if dry_run => MessageId::void(&app.app_id),
        None => MessageId::issue(&app.app_id, audience_kind).for_app(&AppKey::from(app)),
    }
}

/// Returns the key in the `Idempotency-Key` header of a single push.
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

/// The deduplication nonces of the messages that the ledger has.
pub(super) type KnownNonces = HashMap<MessageId, u64>;

/// The bodies that idempotency keys were used for.
#[derive(Debug)]
pub(in crate::handlers) struct IdempotencyKeys {
    pub(in crate::handlers) index: Arc<IndexClient>,
    pub(in crate::handlers) recent: RecentKeys,
}

impl IdempotencyKeys {
    /// Returns the time until which a request that begins now asks the ledger for the messages of its keys.
    pub(super) fn ledger_deadline(&self) -> Instant {
        Instant::now() + self.index.timeout
    }

    /// Asks the ledger for messages of an app with idempotency keys, at most until this time. While it does
    /// not answer, none is known: a key is then compared with what this process took, and by the worker.
    pub(super) async fn known_nonces(
        &self,
        app: &App,
        messages: impl IntoIterator<Item = MessageId>,
        until: Instant,
    ) -> KnownNonces {
        let key = &AppKey::from(app);
        let ask = async |message: MessageId| {
            let subject = Subject::message(&app.app_id, &message);
            let entry = self.index.ask(subject, self.index.ledger.entry(key, &message));
            Some((message, entry.await.ok()??.dedup_nonce?))
        };
        // Boxed: few pushes have a key, and its future would be part of every connection.
        let asked = stream::iter(messages).map(ask).buffer_unordered(ENTRIES_AT_ONCE);
        let known = asked.filter_map(async |known| known);
        // The worker compares the keys that are not known by then.
        let until = Box::pin(tokio::time::sleep_until(until));
        Box::pin(known.take_until(until).collect()).await
    }

    /// Makes the deduplication nonce of a push with an idempotency key: it tells copies of the message
    /// apart, so that only one of them is sent. A push is remembered unless it is a dry run.
    ///
    /// # Errors
    /// If the key was used for another body.
    pub(super) fn keyed_nonce(
        &self,
        app: &AppId,
        message: MessageId,
        fingerprint: Fingerprint,
        known: &KnownNonces,
        dry_run: bool,
    ) -> Result<u64, Rejection> {
        let nonce = fingerprint.nonce(rand::random());
        let (keys, now) = (&self.recent, Instant::now());
        let is_used = known.get(&message).is_some_and(|first| Fingerprint::differs(*first, nonce))
            || keys.conflicts(app, &message, fingerprint, now)
            || !dry_run && !keys.remember(app, message, fingerprint, now);
        if is_used { Err(Rejection::KeyUsed(message)) } else { Ok(nonce) }
    }
}

//! The ids of messages, which show when and for which app they were issued.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    AppId,
    pages::{self, AppTag, AudienceKind, LedgerPage, PageField, PageSpan},
};
use crate::{app::AppKey, id_key::IdKey, time::UnixMillis};

/// One accepted push. A UUIDv7 (RFC 9562), or a UUIDv8 derived from app and `Idempotency-Key`.
///
/// The last 32 bits are a checksum over the app and the other bits, so that ingest recognises an id
/// of the app before any worker has written an entry for it: one in 4 billion ids of other apps
/// passes. It is no signature: it needs no secret. The ledger keeps the entries of each app apart by
/// its [`AppTag`]. A recall of a made-up id begins an entry, and the ledger's limit bounds how many
/// of them there are ([`may_be_evicted`](crate::ledger::may_be_evicted)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(Uuid);

impl MessageId {
    /// Wraps an id that was issued earlier.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// A new id for a push to named devices. Ids sort by their time of issue, to the millisecond.
    pub fn issue_named(app: &AppId) -> Self {
        Self::issue(app, AudienceKind::Named)
    }

    /// A new id for a push with this kind of audience.
    pub fn issue(app: &AppId, kind: AudienceKind) -> Self {
        Self::issue_at(app, kind, UnixMillis::now())
    }

    /// As [`MessageId::issue`], with the caller's clock.
    pub fn issue_at(app: &AppId, kind: AudienceKind, now: UnixMillis) -> Self {
        Self::with_checksum(app, pages::next_id(now, kind), 0)
    }

    /// An id that looks like any other and that [`MessageId::origin`] recognises as no message's:
    /// for the answer to a dry run.
    pub fn void(app: &AppId) -> Self {
        Self::with_checksum(app, Uuid::now_v7(), u32::MAX)
    }

    /// The id of every push of this app with this idempotency key. Only who has the app's key for
    /// ids can compute it ([`IdKey`]). The keys of apps of different generations with the same name
    /// differ.
    pub fn derive(app: &AppId, id_key: &IdKey, key: &[u8]) -> Self {
        let data = [id_key.bytes(), key].concat();
        let digest = digest(b"push-message-id\0", app.as_str(), &data);
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self::with_checksum(app, Uuid::new_v8(id), 0)
    }

    /// The same id for an app that may not be the first of its name.
    pub fn for_app(self, app: &AppKey) -> Self {
        let name = app.to_string();
        Self::with_checksum_of(&name, self.0, 0)
    }

    /// Returns the origin of the id, as far as the id itself shows it.
    pub fn origin(&self, app: &AppKey) -> Origin {
        if *self != self.for_app(app) {
            return Origin::Foreign;
        }
        self.time().map_or(Origin::Derived, Origin::Issued)
    }

    /// When it was issued, read from the id; none for a derived one.
    pub fn time(&self) -> Option<UnixMillis> {
        let time = self.0.get_timestamp().filter(|_| self.0.get_version_num() == 7)?;
        let (seconds, nanos) = time.to_unix();
        let millis = seconds.saturating_mul(1000).saturating_add(u64::from(nanos / 1_000_000));
        Some(UnixMillis(millis))
    }

    /// The id with its checksum in the last four bytes. `mask` is 0 except for [`MessageId::void`].
    fn with_checksum(app: &AppId, id: Uuid, mask: u32) -> Self {
        Self::with_checksum_of(app.as_str(), id, mask)
    }

    /// As [`MessageId::with_checksum`], for an app by the text of its key.
    fn with_checksum_of(app: &str, id: Uuid, mask: u32) -> Self {
        let mut bytes = id.into_bytes();
        let digest = digest(b"push-message-seal\0", app, &bytes[..12]);
        let checksum = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) ^ mask;
        bytes[12..].copy_from_slice(&checksum.to_be_bytes());
        Self(Uuid::from_bytes(bytes))
    }

    /// The kind of the message's audience, read from the id; none for a derived one.
    pub fn audience_kind(&self) -> Option<AudienceKind> {
        pages::audience_kind(&self.0)
    }

    /// The span of the ids on its page, read from the id; none for a derived one.
    pub fn page_span(&self) -> Option<PageSpan> {
        pages::page_span(&self.0)
    }

    /// The page on which the ledger keeps the record of an app's message, and the record's field
    /// there.
    pub fn page_and_field(&self, app: AppTag) -> (LedgerPage, PageField) {
        pages::page_and_field(&self.0, app)
    }

    /// The id of the record in this field of a page, with zeros in place of the checksum.
    pub fn from_page(page: LedgerPage, in_page: PageField) -> Self {
        Self(pages::id_at(page, in_page))
    }

    /// The id as a UUID.
    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }
}

/// The origin of a [`MessageId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was issued for this app at this time.
    Issued(UnixMillis),
    /// It was derived from an `Idempotency-Key` of this app; when is unknown.
    Derived,
    /// This app has no message with this id.
    Foreign,
}

fn digest(purpose: &[u8], app: &str, data: &[u8]) -> [u8; 32] {
    use sha2::{Digest, Sha256};

    let mut hash = Sha256::new();
    hash.update(purpose);
    hash.update(app);
    hash.update([0]);
    hash.update(data);
    hash.finalize().into()
}

impl FromStr for MessageId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::try_parse(text).map(Self)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_idempotency_key_gives_the_same_id_within_one_app_only() {
        let (a, b): (AppId, AppId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let (of_first, of_later) = (IdKey::generate(), IdKey::generate());
        let id = MessageId::derive(&a, &of_first, b"k");
        assert_eq!(id, MessageId::derive(&a, &of_first, b"k"));
        assert_ne!(id, MessageId::derive(&a, &of_first, b"l"));
        assert_ne!(id, MessageId::derive(&b, &of_first, b"k"));
        assert_ne!(id, MessageId::derive(&a, &of_later, b"k"), "another app of that name");
        assert_eq!(id.origin(&AppKey::first(a.clone())), Origin::Derived);
    }

    #[test]
    fn an_id_tells_whether_and_when_it_was_issued_for_an_app() {
        let (a, b): (AppId, AppId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let before = UnixMillis::now();
        let ids: Vec<_> = (0..100).map(|_| MessageId::issue_named(&a)).collect();
        for id in &ids {
            let Origin::Issued(at) = id.origin(&AppKey::first(a.clone())) else { panic!("{id}") };
            assert!((before..=UnixMillis::now()).contains(&at), "{id}");
        }
        assert_eq!(
            MessageId::derive(&a, &IdKey::from([0; 16]), b"k").origin(&AppKey::first(a.clone())),
            Origin::Derived
        );
        assert_eq!(MessageId::void(&a).origin(&AppKey::first(a.clone())), Origin::Foreign);
        assert!(ids.iter().all(|id| id.origin(&AppKey::first(b.clone())) == Origin::Foreign));
        let later = AppKey { id: a.clone(), generation: 1 };
        assert!(ids.iter().all(|id| id.origin(&later) == Origin::Foreign), "a later app");
        assert!(ids.iter().all(|id| id.for_app(&later).origin(&later) != Origin::Foreign));
        let random = (0..100).map(|_| MessageId::from_uuid(Uuid::now_v7()));
        assert_eq!(
            random.filter(|id| id.origin(&AppKey::first(a.clone())) == Origin::Foreign).count(),
            100
        );
    }

    #[test]
    fn no_app_has_a_name_by_which_it_passes_for_the_owner_of_another_apps_message() {
        let id = MessageId::issue_named(&"owner".parse().unwrap());
        // With a checksum of 16 bits, three of them would pass.
        let names = (0..200_000).map(|n| format!("attacker-{n}").parse::<AppId>().unwrap());
        assert_eq!(
            names
                .filter(|name| id.origin(&AppKey::first((*name).clone())) != Origin::Foreign)
                .count(),
            0
        );
        for bit in 96..128 {
            let changed =
                MessageId::from_uuid(Uuid::from_u128(id.as_uuid().as_u128() ^ 1 << (127 - bit)));
            assert_eq!(
                changed.origin(&AppKey::first("owner".parse().unwrap())),
                Origin::Foreign,
                "bit {bit}"
            );
        }
    }
}

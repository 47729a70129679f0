//! Cursors: where the next page of a list begins, as a text that only this service can make.
//!
//! A cursor is the bytes of a place and a digest of them with a secret: for the lists of an app its key for ids,
//! for those of the whole store the digest of the caller's admin key. So no client can make one up, and one of
//! another list, another app, a later app of the name or another admin key is refused.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use crate::{admin_key::KeyDigest, app::AppKey, id_key::IdKey};

/// The bytes of the digest in a cursor.
const DIGEST: usize = 8;

/// The most characters of a cursor that are read.
const MOST_CHARACTERS: usize = 512;

/// The list of an app that a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    /// The messages of an app.
    Messages,
    /// The devices of an app.
    Devices,
    /// The devices of an app that were removed as gone.
    GoneDevices,
}

/// The list of the whole store that a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreList {
    /// The apps.
    Apps,
    /// The audit trail.
    Audit,
    /// The dead letters.
    DeadLetters,
}

/// Makes the cursor of a place in a list of an app.
pub fn seal(list: ListKind, app: &AppKey, key: &IdKey, place: &[u8]) -> String {
    with_digest(place, digest(list, app, key, place))
}

/// Makes the cursor of a place in a list of the store, for the caller with this admin key.
pub fn seal_in_store(list: StoreList, key: &KeyDigest, place: &[u8]) -> String {
    with_digest(place, digest_in_store(list, key, place))
}

fn with_digest(place: &[u8], digest: [u8; DIGEST]) -> String {
    URL_SAFE_NO_PAD.encode([place, &digest].concat())
}

/// Returns the place of a cursor; none if it is not one of this app's list.
pub fn open(list: ListKind, app: &AppKey, key: &IdKey, cursor: &str) -> Option<Vec<u8>> {
    opened(cursor, |place| digest(list, app, key, place))
}

/// Returns the place of a cursor; none if it is not one of this list and admin key.
pub fn open_in_store(list: StoreList, key: &KeyDigest, cursor: &str) -> Option<Vec<u8>> {
    opened(cursor, |place| digest_in_store(list, key, place))
}

fn opened(cursor: &str, digest: impl Fn(&[u8]) -> [u8; DIGEST]) -> Option<Vec<u8>> {
    if cursor.len() > MOST_CHARACTERS {
        return None;
    }
    let mut place = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let found = place.split_off(place.len().checked_sub(DIGEST)?);
    (found == digest(&place)).then_some(place)
}

fn digest(list: ListKind, app: &AppKey, key: &IdKey, place: &[u8]) -> [u8; DIGEST] {
    let mut hash = Sha256::new();
    hash.update(match list {
        ListKind::Messages => b"push-cursor-messages\0",
        ListKind::Devices => b"push-cursor-devices\0\0",
        ListKind::GoneDevices => b"push-cursor-gone\0\0\0\0\0",
    });
    hash.update(key.bytes());
    hash.update(app.to_string());
    hash.update([0]);
    hash.update(place);
    first_bytes(hash)
}

fn digest_in_store(list: StoreList, key: &KeyDigest, place: &[u8]) -> [u8; DIGEST] {
    let mut hash = Sha256::new();
    hash.update(match list {
        StoreList::Apps => b"push-cursor-of-store-apps\0",
        StoreList::Audit => b"push-cursor-of-store-audit",
        StoreList::DeadLetters => b"push-cursor-of-store-dead\0",
    });
    hash.update(key.bytes());
    hash.update(place);
    first_bytes(hash)
}

fn first_bytes(hash: Sha256) -> [u8; DIGEST] {
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hash.finalize().into();
    [a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin_key::AdminKeyText;

    #[test]
    fn a_cursor_is_read_by_the_list_of_its_app_only() {
        let (app, key) = (AppKey::first("a".parse().unwrap()), IdKey::from([1; 16]));
        let cursor = seal(ListKind::Messages, &app, &key, b"place");
        assert_eq!(open(ListKind::Messages, &app, &key, &cursor).as_deref(), Some(&b"place"[..]));
        let later = AppKey { generation: 1, ..app.clone() };
        assert_eq!(open(ListKind::Devices, &app, &key, &cursor), None);
        assert_eq!(open(ListKind::Messages, &later, &key, &cursor), None);
        assert_eq!(open(ListKind::Messages, &app, &IdKey::from([2; 16]), &cursor), None);
    }

    #[test]
    fn a_cursor_of_the_store_is_read_with_the_same_admin_key_only() {
        let key = || KeyDigest::of(&AdminKeyText::generate());
        let (one, other) = (key(), key());
        let cursor = seal_in_store(StoreList::Apps, &one, b"place");
        let open = |list, key| open_in_store(list, key, &cursor);
        assert_eq!(open(StoreList::Apps, &one).as_deref(), Some(&b"place"[..]));
        assert_eq!(open(StoreList::Audit, &one), None);
        assert_eq!(open(StoreList::Apps, &other), None);
    }

    #[test]
    fn a_changed_cursor_is_refused() {
        let (app, key) = (AppKey::first("a".parse().unwrap()), IdKey::from([1; 16]));
        let cursor = seal(ListKind::Messages, &app, &key, b"place");
        for at in 0..cursor.len() {
            let mut changed = cursor.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(open(ListKind::Messages, &app, &key, &changed), None, "{changed}");
        }
        for bad in ["", "A", "%", &"A".repeat(10_000), &cursor[1..], &format!("{cursor}A")] {
            assert_eq!(open(ListKind::Messages, &app, &key, bad), None, "{bad}");
        }
    }
}

//! Cursors: where the next page of a list begins, as a text that only this service can make.
//!
//! A cursor is the bytes of a place and a digest of them with the app's key for ids. So no client can
//! make one up, and one of another list, another app or a later app of the name is refused.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use crate::{app::AppKey, id_key::IdKey};

/// The bytes of the digest in a cursor.
const DIGEST: usize = 8;

/// The most characters of a cursor that are read.
const MOST_CHARACTERS: usize = 512;

/// The list that a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    /// The messages of an app.
    Messages,
    /// The devices of an app.
    Devices,
}

/// Makes the cursor of a place in a list.
pub fn seal(list: ListKind, app: &AppKey, key: &IdKey, place: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode([place, &digest(list, app, key, place)].concat())
}

/// Returns the place of a cursor; none if it is not one of this app's list.
pub fn open(list: ListKind, app: &AppKey, key: &IdKey, cursor: &str) -> Option<Vec<u8>> {
    if cursor.len() > MOST_CHARACTERS {
        return None;
    }
    let mut place = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let found = place.split_off(place.len().checked_sub(DIGEST)?);
    (found == digest(list, app, key, &place)).then_some(place)
}

fn digest(list: ListKind, app: &AppKey, key: &IdKey, place: &[u8]) -> [u8; DIGEST] {
    let mut hash = Sha256::new();
    hash.update(match list {
        ListKind::Messages => b"push-cursor-messages\0",
        ListKind::Devices => b"push-cursor-devices\0\0",
    });
    hash.update(key.bytes());
    hash.update(app.to_string());
    hash.update([0]);
    hash.update(place);
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hash.finalize().into();
    [a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Places in an app's list of messages, which is sorted by time, the newest first.

use super::Entry;
use crate::{
    app::AppKey,
    cursor::{self, ListKind},
    id_key::IdKey,
    ids::MessageId,
    time::UnixMillis,
};

/// The bytes of a message id without its checksum.
pub const ID_BYTES: usize = 12;

/// The place of a message in the list of its app. Places of newer messages are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListPlace {
    /// The time in the id; if the id was derived from an `Idempotency-Key`, when the message was
    /// accepted.
    pub at: UnixMillis,
    /// The id without its checksum.
    pub id: [u8; ID_BYTES],
}

impl ListPlace {
    /// The place of a message that was accepted at this time.
    pub fn of(message: &MessageId, accepted_at: UnixMillis) -> Self {
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&message.as_uuid().as_bytes()[..ID_BYTES]);
        Self { at: message.time().unwrap_or(accepted_at), id }
    }

    /// The place of an entry.
    pub fn of_entry(entry: &Entry) -> Self {
        Self::of(&entry.message_id, entry.accepted_at)
    }

    /// The place before which there are only messages older than this.
    pub const fn start_of(at: UnixMillis) -> Self {
        Self { at, id: [0; ID_BYTES] }
    }

    /// The cursor of the page that goes on behind this place.
    pub fn cursor(&self, app: &AppKey, key: &IdKey) -> String {
        let place = [&self.at.0.to_be_bytes()[..], &self.id].concat();
        cursor::seal(ListKind::Messages, app, key, &place)
    }

    /// Reads a cursor; none if it is not one of this app's list of messages.
    pub fn of_cursor(app: &AppKey, key: &IdKey, cursor: &str) -> Option<Self> {
        let place = cursor::open(ListKind::Messages, app, key, cursor)?;
        let (at, id) = place.split_first_chunk()?;
        let at = UnixMillis(u64::from_be_bytes(*at));
        Some(Self { at, id: id.try_into().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place() {
        let (app, key) = (AppKey::first("a".parse().unwrap()), IdKey::from([1; 16]));
        for id in [MessageId::issue_named(&app.id), MessageId::derive(&app.id, &key, b"k")] {
            let place = ListPlace::of(&id, UnixMillis(5));
            assert_eq!(ListPlace::of_cursor(&app, &key, &place.cursor(&app, &key)), Some(place));
            assert!(ListPlace::start_of(place.at) <= place);
        }
    }
}

//! Pages of lists that belong to no app: how much a caller asks for, and where the next page begins.

use push_model::{
    admin_key::KeyDigest,
    cursor::{self, StoreList},
};

use crate::refusal::Refusal;

/// A page that a caller with a key of the admin API asks for.
#[derive(Debug, Clone, Copy)]
pub struct PageQuery<'a> {
    /// The most entries.
    pub limit: usize,
    /// The cursor of the page before; none for the first page.
    pub cursor: Option<&'a str>,
    /// The caller's key. Its cursors are refused with every other key.
    pub key: &'a KeyDigest,
}

impl PageQuery<'_> {
    /// Returns the place at which the page begins; none for the first page.
    ///
    /// # Errors
    /// If the cursor is not one of this list and key.
    pub(crate) fn place(&self, list: StoreList) -> Result<Option<Vec<u8>>, Refusal> {
        let wrong = || Refusal::Invalid("the cursor is not one of this list".to_owned());
        let open = |text| cursor::open_in_store(list, self.key, text).ok_or_else(wrong);
        self.cursor.map(open).transpose()
    }

    /// Makes the cursor of a place.
    pub(crate) fn cursor(&self, list: StoreList, place: &[u8]) -> String {
        cursor::seal_in_store(list, self.key, place)
    }
}

/// Says that a cursor is genuine, but cannot be read: another version made it.
pub(crate) fn unreadable() -> Refusal {
    Refusal::Invalid("the cursor is not one of this list".to_owned())
}

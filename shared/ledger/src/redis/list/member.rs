//! Members of an app's lists of entries, and the times that they stand for.
//!
//! An entry that begins as a record is found by its page: the page is a member, whatever number of the
//! app's entries it has. Its place in the list is when the span of its ids is over ([`PageSpan`]), so the
//! entries that are newer than some time are on the pages from there on. Entries that have no page in
//! common with others are members themselves: expanded entries, and those with derived ids.

use push_model::{
    app::AppKey,
    ids::{AudienceKind, LedgerPage, MessageId, PageField, Window},
    ledger::{ID_BYTES, ListPlace, NewEntry, Plan},
    time::UnixMillis,
};
use push_store::redis::keys::{EntryList, MessageKeys, StripeKeys};
use uuid::Uuid;

/// The bytes of a time in a member.
const TIME_BYTES: usize = 6;

/// A member of a list, which begins with its time, so that members are sorted by time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::redis) struct ListMember {
    pub(in crate::redis) list: EntryList,
    pub(in crate::redis) member: Vec<u8>,
}

/// What a member leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// A page of pushes to named devices.
    Page(Window, [u8; 2]),
    /// One entry.
    Entry(ListPlace),
}

impl ListMember {
    /// The member for an entry that begins as a record.
    pub(in crate::redis) fn of_record(keys: &MessageKeys, new: &NewEntry) -> Self {
        let (page, _) = new.message_id.page_and_field(keys.field.app());
        Self::of_page(page, &new.message_id).unwrap_or_else(|| Self::of_expanded(new))
    }

    /// The member of a page that is listed instead of its entries; none if it is not.
    fn of_page(page: LedgerPage, message: &MessageId) -> Option<Self> {
        let LedgerPage::Shared(AudienceKind::Named, _, [_, a, b]) = page else { return None };
        let (span, time) = (message.page_span()?, message.time()?);
        let mut member = time_bytes(span.end(time)).to_vec();
        member.extend([a, b]);
        Some(Self { list: EntryList::Pages(span), member })
    }

    fn of_place(list: EntryList, ListPlace { at, id }: ListPlace) -> Self {
        Self { list, member: [&time_bytes(at)[..], &id].concat() }
    }

    /// The members that lead to an entry in this field of a page, each with what the page no longer has
    /// when the member leads to nothing: the field, or all fields that end with the tag of the app.
    pub(in crate::redis) fn of_evicted(
        page: LedgerPage,
        field: PageField,
        accepted_at: UnixMillis,
        is_stub: bool,
    ) -> impl Iterator<Item = (Self, Vec<u8>)> {
        let message = MessageId::from_page(page, field);
        let place = ListPlace::of(&message, accepted_at);
        let of_page = Self::of_page(page, &message);
        let lists = match (is_stub, &of_page) {
            (true, _) => &[EntryList::Named, EntryList::Broadcasts][..],
            (false, None) => &[EntryList::Named][..],
            (false, Some(_)) => &[][..],
        };
        let of_entry = lists.iter().map(move |list| Self::of_place(*list, place));
        let of_entry = of_entry.map(move |member| (member, field.0.to_vec()));
        of_page.into_iter().map(move |member| (member, field.app().0.to_vec())).chain(of_entry)
    }

    /// The member for an entry that begins expanded.
    pub(in crate::redis) fn of_expanded(new: &NewEntry) -> Self {
        let is_named = new.plan.as_ref() == Some(&Plan::named());
        let list = if is_named { EntryList::Named } else { EntryList::Broadcasts };
        Self::of_place(list, ListPlace::of(&new.message_id, new.accepted_at))
    }
}

/// The lists that may lead to an entry, whatever its form was when it began.
fn lists_of(keys: &MessageKeys, message: &MessageId) -> impl Iterator<Item = EntryList> {
    let pages = match message.page_and_field(keys.field.app()).0 {
        LedgerPage::Shared(AudienceKind::Named, ..) => message.page_span().map(EntryList::Pages),
        LedgerPage::Shared(AudienceKind::Broadcast, ..) | LedgerPage::Own(_) => None,
    };
    pages.into_iter().chain([EntryList::Named, EntryList::Broadcasts])
}

/// The keys of the lists that a step keeps if it keeps the entry longer; none if it does not.
pub(in crate::redis) fn kept_lists(
    keys: &MessageKeys,
    message: &MessageId,
    keep_until: Option<UnixMillis>,
) -> Vec<String> {
    let key = |list| StripeKeys::entry_list_of(&keys.page, list, keys.field.app());
    let keys = keep_until.map(|_| lists_of(keys, message).map(key));
    keys.into_iter().flatten().collect()
}

fn time_bytes(time: UnixMillis) -> [u8; TIME_BYTES] {
    let [_, _, bytes @ ..] = time.0.min((1 << 48) - 1).to_be_bytes();
    bytes
}

/// The members of a list that may lead to entries older than a place are below this.
pub(super) fn bound(list: EntryList, before: &ListPlace) -> Vec<u8> {
    match list {
        EntryList::Pages(span) => time_bytes(UnixMillis(span.end(before.at).0 + 1)).to_vec(),
        EntryList::Named | EntryList::Broadcasts => {
            [&time_bytes(before.at)[..], &before.id].concat()
        }
    }
}

/// The latest time that the entries of a member can have, and what it leads to; none if it is not in a
/// form that this version knows.
pub(super) fn parse(list: EntryList, member: &[u8]) -> Option<(UnixMillis, Target)> {
    let (&[a, b, c, d, e, f], rest) = member.split_first_chunk::<TIME_BYTES>()?;
    let time = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    match list {
        EntryList::Pages(_) => {
            let last = UnixMillis(time.checked_sub(1)?);
            Some((last, Target::Page(Window::of(last), rest.try_into().ok()?)))
        }
        EntryList::Named | EntryList::Broadcasts => {
            let at = UnixMillis(time);
            Some((at, Target::Entry(ListPlace { at, id: rest.try_into().ok()? })))
        }
    }
}

/// The app's message id that begins with these bytes.
pub(super) fn message_of(app: &AppKey, id: [u8; ID_BYTES]) -> MessageId {
    let mut bytes = [0; 16];
    bytes[..ID_BYTES].copy_from_slice(&id);
    MessageId::from_uuid(Uuid::from_bytes(bytes)).for_app(app)
}

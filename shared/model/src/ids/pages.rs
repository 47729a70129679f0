//! Pages of the ledger: ids that are issued one after the other are on the same page.
//!
//! The ledger keeps the entry of a small push as a record of a few bytes, and many records in one
//! key, a page. The page must follow from the id alone, and pushes that are published together
//! should share it, so that they begin and end in one step of the store. Pages by time alone would
//! have no bound and put all pushes of an instant on one server; pages by hash would separate
//! pushes that are published together. So the issuer fills pages: up to 100 ids in a row have the
//! same 24 random bits, and these bits together with the window of the id's time are the page.
//!
//! An app's messages are listed by pages ([`PageSpan`]), so to find the newest ones it must be known
//! which time a page covers. The issuer begins a new page when the page's span is over, and puts the
//! span into the id. It chooses the span by the time in which the page before was filled: so few pages
//! cover the same time, however fast they are filled.
//!
//! In bytes 0 to 15 of the id (RFC 9562, version 7):
//!
//! | bytes | content |
//! |---|---|
//! | 0–5 | Unix time in milliseconds |
//! | 6 | version, two random bits, the span of the page |
//! | 7, 9, 10 | the page |
//! | 8 | variant, five random bits, and whether it is a broadcast |
//! | 11 | the id's number on its page, so that no two ids of one issuer are equal |
//! | 12–15 | checksum |
//!
//! On a page the checksum is replaced by the [`AppTag`], so entries of two apps never share a field.

use std::sync::{Mutex, PoisonError};

use rand::RngExt;
use uuid::Uuid;

use crate::{app::AppKey, time::UnixMillis};

/// The times of one page's ids differ in the lowest 20 bits only, a window of 17 minutes, so that
/// the whole page expires at one time.
const WINDOW_BITS: u32 = 20;

/// The most ids that one issuer puts on a page. Redis stores a hash of up to 128 fields packed
/// (`hash-max-listpack-entries`); the difference is for ids of other issuers with the same random
/// bits.
const PAGE_IDS: u8 = 100;

/// An id that comes when its page has fewer ids than this at the end of its span makes the span of the
/// next page longer.
const FEW_IDS: u8 = 25;

/// UUID version 7, in byte 6.
const VERSION: u8 = 0x70;
/// The variant of RFC 9562, in byte 8.
const VARIANT: u8 = 0x80;

/// The bit of byte 8 that marks a broadcast.
const BROADCAST: u8 = 1;

/// The kind of a message's audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AudienceKind {
    /// Devices that it names.
    Named,
    /// All devices of its app, or those that match its targeting.
    Broadcast,
}

/// The pages that this process is filling: one for pushes to named devices and one for broadcasts,
/// whose entries have another retention.
static FILLING: [Mutex<Filling>; 2] = [const { Mutex::new(Filling::NONE) }; 2];

struct Filling {
    page: [u8; 3],
    span: PageSpan,
    /// The end of the span.
    end: UnixMillis,
    begun: UnixMillis,
    issued: u8,
}

impl Filling {
    const NONE: Self = Self {
        page: [0; 3],
        span: PageSpan::LONGEST,
        end: UnixMillis(0),
        begun: UnixMillis(0),
        issued: 0,
    };

    /// The page of the next id, and how many ids it has so far.
    fn next(&mut self, now: UnixMillis) -> ([u8; 3], u8) {
        let is_full = self.issued >= PAGE_IDS;
        if is_full || self.end != self.span.end(now) {
            let span = match is_full {
                true => PageSpan::for_pages_filled_in(now.0.saturating_sub(self.begun.0)),
                false if self.issued < FEW_IDS => self.span.longer(),
                false => self.span,
            };
            let (page, end) = (rand::rng().random(), span.end(now));
            *self = Self { page, span, end, begun: now, issued: 0 };
        }
        let number = self.issued;
        self.issued += 1;
        (self.page, number)
    }
}

/// The length of the time that the ids of a page cover, at most; the time begins at a multiple of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageSpan(u8);

impl PageSpan {
    /// Lengths in milliseconds, as powers of two: 128 ms, 2 s, 33 s, and the window.
    const BITS: [u32; 4] = [7, 11, 15, WINDOW_BITS];

    /// All spans, the shortest first.
    pub const ALL: [Self; 4] = [Self(0), Self(1), Self(2), Self(3)];

    const LONGEST: Self = Self(3);

    /// The span of pages that are filled in so many milliseconds: half of it at most, if there is one.
    fn for_pages_filled_in(millis: u64) -> Self {
        let is_long = |span: &Self| 1 << span.bits() >= millis.saturating_mul(2);
        Self::ALL.into_iter().find(is_long).unwrap_or(Self::LONGEST)
    }

    fn longer(self) -> Self {
        Self::ALL.into_iter().find(|span| *span > self).unwrap_or(Self::LONGEST)
    }

    fn bits(self) -> u32 {
        Self::BITS.get(usize::from(self.0)).copied().unwrap_or(WINDOW_BITS)
    }

    /// The index in [`PageSpan::ALL`].
    pub const fn index(self) -> u8 {
        self.0
    }

    /// When the span that contains this time is over.
    pub fn end(self, time: UnixMillis) -> UnixMillis {
        UnixMillis(((time.0 >> self.bits()) + 1) << self.bits())
    }
}

/// A new id without its checksum.
pub(super) fn next_id(now: UnixMillis, kind: AudienceKind) -> Uuid {
    let [named, broadcasts] = &FILLING;
    let (filling, bit) = match kind {
        AudienceKind::Named => (named, 0),
        AudienceKind::Broadcast => (broadcasts, BROADCAST),
    };
    let mut filling = filling.lock().unwrap_or_else(PoisonError::into_inner);
    let (page, number) = filling.next(now);
    let PageSpan(span) = filling.span;
    drop(filling);
    let [_, _, t0, t1, t2, t3, t4, t5] = now.0.to_be_bytes();
    let [r0, r1]: [u8; 2] = rand::rng().random();
    let [p0, p1, p2] = page;
    let (r0, r1) = (VERSION | r0 & 0x0c | span, VARIANT | r1 & 0x3e | bit);
    Uuid::from_bytes([t0, t1, t2, t3, t4, t5, r0, p0, r1, p1, p2, number, 0, 0, 0, 0])
}

/// The number of a span of time in which ids share pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window(pub u64);

impl Window {
    /// The window of this time.
    pub const fn of(time: UnixMillis) -> Self {
        Self(time.0 >> WINDOW_BITS)
    }

    /// The next window.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// When it begins.
    pub const fn start(self) -> UnixMillis {
        UnixMillis(self.0 << WINDOW_BITS)
    }
}

/// The page of a message's record in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LedgerPage {
    /// The page of the ids with this kind of audience, window, and random bits.
    Shared(AudienceKind, Window, [u8; 3]),
    /// A page of its own, for a derived id: it does not tell when the message was accepted.
    Own([u8; 16]),
}

/// A digest of an app, by which the ledger tells the entries of apps apart.
///
/// An app reads another one's entry only if its name and generation have the same tag and the same
/// checksum of ids, 80 bits together. Unlike a number it needs no register, which a store could lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppTag(pub [u8; 6]);

impl AppTag {
    /// The tag of this app, which differs from that of a later app of its name.
    pub fn of(app: &AppKey) -> Self {
        use sha2::{Digest, Sha256};

        let mut hash = Sha256::new();
        hash.update(b"push-ledger-app\0");
        hash.update(app.id.as_str());
        hash.update([0]);
        hash.update(app.generation.to_be_bytes());
        let [a, b, c, d, e, f, ..]: [u8; 32] = hash.finalize().into();
        Self([a, b, c, d, e, f])
    }
}

/// The bytes of an id that are not in its page, and the tag of its app in place of the checksum: the
/// field of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageField(pub [u8; 12]);

impl PageField {
    /// The tag of the record's app.
    pub fn app(&self) -> AppTag {
        let [.., a, b, c, d, e, f] = self.0;
        AppTag([a, b, c, d, e, f])
    }
}

pub(super) fn page_and_field(id: &Uuid, AppTag(tag): AppTag) -> (LedgerPage, PageField) {
    let bytes = *id.as_bytes();
    let [t0, t1, t2, t3, t4, t5, a, p0, b, p1, p2, c, ..] = bytes;
    let [d, e, f, g, h, i] = tag;
    let field = PageField([t3, t4, t5, a, b, c, d, e, f, g, h, i]);
    match audience_kind(id) {
        Some(kind) => {
            let time = u64::from_be_bytes([0, 0, t0, t1, t2, t3, t4, t5]);
            (LedgerPage::Shared(kind, Window::of(UnixMillis(time)), [p0, p1, p2]), field)
        }
        None => (LedgerPage::Own(bytes), field),
    }
}

/// The id for which [`page_and_field`] returns these, with zeros in place of the checksum.
pub(super) fn id_at(page: LedgerPage, PageField([t3, t4, t5, a, b, c, ..]): PageField) -> Uuid {
    match page {
        LedgerPage::Shared(_, window, [p0, p1, p2]) => {
            let [.., t0, t1, t2, _, _, _] = window.start().0.to_be_bytes();
            Uuid::from_bytes([t0, t1, t2, t3, t4, t5, a, p0, b, p1, p2, c, 0, 0, 0, 0])
        }
        LedgerPage::Own([head @ .., _, _, _, _]) => {
            let mut bytes = [0; 16];
            bytes[..12].copy_from_slice(&head);
            Uuid::from_bytes(bytes)
        }
    }
}

/// The span of the id's page, if the id was issued and not derived.
pub(super) fn page_span(id: &Uuid) -> Option<PageSpan> {
    (id.get_version_num() == 7).then_some(PageSpan(id.as_bytes()[6] & 3))
}

/// The kind of the audience, if the id was issued and not derived.
pub(super) fn audience_kind(id: &Uuid) -> Option<AudienceKind> {
    let is_broadcast = id.as_bytes()[8] & BROADCAST != 0;
    let kind = if is_broadcast { AudienceKind::Broadcast } else { AudienceKind::Named };
    (id.get_version_num() == 7).then_some(kind)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn issue(filling: &mut Filling, count: u32, now: UnixMillis) -> Vec<([u8; 3], u8)> {
        (0..count).map(|_| filling.next(now)).collect()
    }

    #[test]
    fn ids_of_one_window_fill_pages_one_after_the_other() {
        let mut filling = Filling::NONE;
        let issued = issue(&mut filling, 250, UnixMillis(5));
        let mut pages: BTreeMap<[u8; 3], Vec<u8>> = BTreeMap::new();
        issued.iter().for_each(|(page, number)| pages.entry(*page).or_default().push(*number));
        let mut sizes: Vec<_> = pages.values().map(Vec::len).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [50, 100, 100]);
        assert!(
            pages
                .values()
                .all(|numbers| numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len())
        );
    }

    #[test]
    fn a_new_window_begins_a_new_page() {
        let mut filling = Filling::NONE;
        let (first, _) = filling.next(UnixMillis(1));
        let end_of_window = UnixMillis((1 << WINDOW_BITS) - 1);
        assert_eq!(filling.next(end_of_window), (first, 1));
        assert_eq!(filling.next(UnixMillis(1 << WINDOW_BITS)).1, 0);
    }

    #[test]
    fn few_pages_cover_the_same_time_however_fast_ids_are_issued() {
        for millis_for_ten in [1, 10, 100, 1000, 10_000] {
            let (mut filling, mut pages) = (Filling::NONE, BTreeMap::<[u8; 3], Vec<u64>>::new());
            let mut spans = BTreeMap::new();
            for number in 0..5000 {
                let now = UnixMillis((1 << 30) + number * millis_for_ten / 10);
                let (page, _) = filling.next(now);
                pages.entry(page).or_default().push(now.0);
                assert!(filling.span.end(now) == filling.end, "the span covers its ids");
                spans.insert(page, (filling.span, filling.end));
            }
            let mut together = BTreeMap::<_, u32>::new();
            spans.values().for_each(|span| *together.entry(span).or_default() += 1);
            assert!(together.values().all(|pages| *pages <= 35), "{millis_for_ten}: {together:?}");
            assert!(
                pages.len() <= 5000 / usize::from(FEW_IDS),
                "{millis_for_ten}: {}",
                pages.len()
            );
        }
    }

    #[test]
    fn an_id_is_a_uuid_of_version_7_with_its_page_and_field() {
        let now = UnixMillis(0x0123_4567_89ab);
        let ids: BTreeSet<_> = (0..1000).map(|_| next_id(now, AudienceKind::Named)).collect();
        assert_eq!(ids.len(), 1000);
        let tag = AppTag::of(&AppKey::first("a".parse().unwrap()));
        let mut fields = BTreeSet::new();
        for id in &ids {
            assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
            let (page, field) = page_and_field(id, tag);
            assert!(
                page == LedgerPage::Shared(
                    AudienceKind::Named,
                    Window::of(now),
                    [id.as_bytes()[7], id.as_bytes()[9], id.as_bytes()[10]]
                )
            );
            assert_eq!((id_at(page, field), field.app()), (*id, tag));
            fields.insert((page, field));
        }
        assert_eq!(fields.len(), 1000);
        let pages: BTreeSet<_> = fields.iter().map(|(page, _)| *page).collect();
        assert!(pages.len() <= 12, "{}", pages.len());
        let broadcast = next_id(now, AudienceKind::Broadcast);
        assert!(
            !pages.contains(&page_and_field(&broadcast, tag).0),
            "broadcasts have pages of their own"
        );
        assert_eq!(audience_kind(&broadcast), Some(AudienceKind::Broadcast));
        assert!(ids.iter().all(|id| audience_kind(id) == Some(AudienceKind::Named)));
        let derived = Uuid::new_v8([7; 16]);
        assert_eq!(audience_kind(&derived), None);
        assert_eq!(page_and_field(&derived, tag).0, LedgerPage::Own(*derived.as_bytes()));
    }
}

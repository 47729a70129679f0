//! Pages: ids that are issued one after the other name the same page.
//!
//! The ledger keeps what became of a small push in a few bytes, many pushes to a key. Which key
//! that is must follow from the id alone, and pushes that are published together should share it,
//! so that they are begun and finished in one step. A page by time alone would hold any number of
//! pushes and put all of an instant on one server; a page by hash would tear apart what comes
//! together. So the issuer fills pages: so many ids in a row carry the same 24 random bits, and
//! those bits with the window of the id's time are the page.
//!
//! In bytes 0 to 15 of the id (RFC 9562, version 7):
//!
//! | bytes | what |
//! |---|---|
//! | 0–5 | Unix time in milliseconds |
//! | 6 | version, four random bits |
//! | 7, 9, 10 | the page |
//! | 8 | variant, five random bits, and whether it is a broadcast |
//! | 11 | the id's place among those of its page: no two of one issuer are ever equal |
//! | 12, 13 | random |
//! | 14, 15 | checksum |

use std::sync::{Mutex, PoisonError};

use rand::RngExt;
use uuid::Uuid;

use crate::time::UnixMillis;

/// Ids of one page have times that agree but for so many bits, so that a page is over at one time:
/// a window of 17 minutes.
const WINDOW_BITS: u32 = 20;

/// The most ids that one issuer gives a page. A Redis hash of up to 128 fields is stored packed
/// (`hash-max-listpack-entries`); what other issuers add by chance must have room.
const PAGE_IDS: u8 = 100;

/// The version of an id that was issued: a time, then bits of our own.
const VERSION: u8 = 0x70;
const VARIANT: u8 = 0x80;

/// In byte 8: the message is a broadcast.
const BROADCAST: u8 = 1;

/// Whom a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reach {
    /// Devices that it names.
    Named,
    /// All devices of its app, or those that its targeting finds.
    Broadcast,
}

/// The pages that are being filled by this process: for named devices, and for broadcasts, whose
/// entries are kept for another time.
static FILLING: [Mutex<Filling>; 2] = [const { Mutex::new(Filling::NONE) }; 2];

struct Filling {
    page: [u8; 3],
    window: Window,
    issued: u8,
}

impl Filling {
    const NONE: Self = Self { page: [0; 3], window: Window(0), issued: PAGE_IDS };

    /// The next place: the page's bits, and how many were issued of it before.
    fn next(&mut self, now: UnixMillis) -> ([u8; 3], u8) {
        let window = Window::of(now);
        if self.issued >= PAGE_IDS || self.window != window {
            *self = Self { page: rand::rng().random(), window, issued: 0 };
        }
        let place = self.issued;
        self.issued += 1;
        (self.page, place)
    }
}

/// A new id without its checksum.
pub(super) fn next_id(now: UnixMillis, reach: Reach) -> Uuid {
    let [named, broadcasts] = &FILLING;
    let (filling, bit) = match reach {
        Reach::Named => (named, 0),
        Reach::Broadcast => (broadcasts, BROADCAST),
    };
    let (page, place) = filling.lock().unwrap_or_else(PoisonError::into_inner).next(now);
    let [_, _, t0, t1, t2, t3, t4, t5] = now.0.to_be_bytes();
    let [r0, r1, r2, r3]: [u8; 4] = rand::rng().random();
    let [p0, p1, p2] = page;
    let (r0, r1) = (VERSION | r0 & 0x0f, VARIANT | r1 & 0x3e | bit);
    Uuid::from_bytes([t0, t1, t2, t3, t4, t5, r0, p0, r1, p1, p2, place, r2, r3, 0, 0])
}

/// A span of time in which ids share pages, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window(pub u64);

impl Window {
    /// The one that this time is in.
    pub const fn of(time: UnixMillis) -> Self {
        Self(time.0 >> WINDOW_BITS)
    }

    /// The one after it.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// When it begins.
    pub const fn start(self) -> UnixMillis {
        UnixMillis(self.0 << WINDOW_BITS)
    }
}

/// Where the ledger keeps what became of a message, as its id says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Page {
    /// That of the ids with this reach, window, and bits.
    Shared(Reach, Window, [u8; 3]),
    /// One of its own: the id says nothing of when it was accepted.
    Own([u8; 16]),
}

/// What tells an id from the others of its page.
pub type InPage = [u8; 10];

/// The page of an id, and what tells it from the others there.
pub(super) fn place(id: &Uuid) -> (Page, InPage) {
    let bytes = *id.as_bytes();
    let [t0, t1, t2, t3, t4, t5, a, p0, b, p1, p2, c, d, e, f, g] = bytes;
    let in_page = [t3, t4, t5, a, b, c, d, e, f, g];
    match reach(id) {
        Some(reach) => {
            let time = u64::from_be_bytes([0, 0, t0, t1, t2, t3, t4, t5]);
            (Page::Shared(reach, Window::of(UnixMillis(time)), [p0, p1, p2]), in_page)
        }
        None => (Page::Own(bytes), in_page),
    }
}

/// The id of which [`place`] says this.
pub(super) fn id_at(page: Page, [t3, t4, t5, a, b, c, d, e, f, g]: InPage) -> Uuid {
    match page {
        Page::Shared(_, window, [p0, p1, p2]) => {
            let [.., t0, t1, t2, _, _, _] = window.start().0.to_be_bytes();
            Uuid::from_bytes([t0, t1, t2, t3, t4, t5, a, p0, b, p1, p2, c, d, e, f, g])
        }
        Page::Own(bytes) => Uuid::from_bytes(bytes),
    }
}

/// Whom the message of an id is for, if the id says so.
pub(super) fn reach(id: &Uuid) -> Option<Reach> {
    let is_broadcast = id.as_bytes()[8] & BROADCAST != 0;
    let reach = if is_broadcast { Reach::Broadcast } else { Reach::Named };
    (id.get_version_num() == 7).then_some(reach)
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
        issued.iter().for_each(|(page, place)| pages.entry(*page).or_default().push(*place));
        let mut sizes: Vec<_> = pages.values().map(Vec::len).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [50, 100, 100]);
        assert!(
            pages
                .values()
                .all(|places| places.iter().collect::<BTreeSet<_>>().len() == places.len())
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
    fn an_id_is_a_uuid_of_version_7_and_says_its_page_and_place() {
        let now = UnixMillis(0x0123_4567_89ab);
        let ids: BTreeSet<_> = (0..1000).map(|_| next_id(now, Reach::Named)).collect();
        assert_eq!(ids.len(), 1000);
        let mut places = BTreeSet::new();
        for id in &ids {
            assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
            let (page, in_page) = place(id);
            assert!(
                page == Page::Shared(
                    Reach::Named,
                    Window::of(now),
                    [id.as_bytes()[7], id.as_bytes()[9], id.as_bytes()[10]]
                )
            );
            assert_eq!(id_at(page, in_page), *id);
            places.insert((page, in_page));
        }
        assert_eq!(places.len(), 1000);
        let pages: BTreeSet<_> = places.iter().map(|(page, _)| *page).collect();
        assert!(pages.len() <= 12, "{}", pages.len());
        let broadcast = next_id(now, Reach::Broadcast);
        assert!(!pages.contains(&place(&broadcast).0), "broadcasts have pages of their own");
        assert_eq!(reach(&broadcast), Some(Reach::Broadcast));
        assert!(ids.iter().all(|id| reach(id) == Some(Reach::Named)));
        let derived = Uuid::new_v8([7; 16]);
        assert_eq!(reach(&derived), None);
        assert_eq!(place(&derived).0, Page::Own(*derived.as_bytes()));
    }
}

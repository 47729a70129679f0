//! The keys of the ledger.
//!
//! The names of ledger pages are not only built here but also read back: the list of pages holds
//! them as text, and an eviction round must learn from a name which ids the page has
//! ([`page_of_name`]). The other keys of a page's stripe are derived from the page's key
//! ([`stripe_of`]), so that a call on a page needs no other value than that key. `pages.lua` cuts
//! the name out of the page's key for the same reason: the script gets the key anyway, and the list
//! must hold the same text.

use push_model::{
    app::AppKey,
    ids::{AppTag, AudienceKind, LedgerPage, MessageId, PageField, PageSpan, Window},
    time::UnixMillis,
};

use super::Keys;

/// Precedes the window in the name of a page of broadcasts. Not a hexadecimal digit.
const BROADCAST_MARK: &str = "x";

impl Keys {
    pub fn message(&self, app: &AppKey, message: &MessageId) -> MessageKeys {
        let (page, field) = message.page_and_field(AppTag::of(app));
        let stripe = match page {
            LedgerPage::Shared(_, _, [first, ..]) | LedgerPage::Own([first, ..]) => first,
        };
        let StripeKeys { base } = self.stripe(stripe);
        let page = match page {
            LedgerPage::Shared(kind, window, [_, a, b]) => shared_page(&base, kind, window, [a, b]),
            LedgerPage::Own(_) => format!("{base}:p{message}"),
        };
        MessageKeys { page, field, message: *message }
    }

    /// The keys of one of the [`STRIPES`] of the ledger.
    pub fn stripe(&self, stripe: u8) -> StripeKeys {
        StripeKeys { base: format!("{}:{{l/{stripe}}}", self.namespace) }
    }

    pub fn history(&self) -> String {
        format!("{}:ledger", self.namespace)
    }

    pub fn measuring_lease(&self) -> String {
        format!("{}:ledger:turn", self.namespace)
    }
}

/// The stripes of the ledger, each with a hash tag of its own: many more stripes than a cluster has
/// masters, so that the masters share the ledger evenly.
pub const STRIPES: std::ops::RangeInclusive<u8> = 0..=u8::MAX;

/// A list of entries of an app in one stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryList {
    /// Pages with entries of pushes to named devices.
    Pages(PageSpan),
    /// Further pushes to named devices, one by one.
    Named,
    /// Broadcasts, one by one.
    Broadcasts,
}

impl EntryList {
    pub fn all() -> impl Iterator<Item = Self> {
        PageSpan::ALL.into_iter().map(Self::Pages).chain([Self::Named, Self::Broadcasts])
    }
}

/// Names the keys of one stripe of the ledger.
#[derive(Debug, Clone)]
pub struct StripeKeys {
    base: String,
}

impl StripeKeys {
    /// The list of the pages that began with a record.
    pub fn pages(&self) -> String {
        format!("{}:o", self.base)
    }

    /// The list of the pages that began with an expanded entry.
    pub fn expanded_pages(&self) -> String {
        format!("{}:b", self.base)
    }

    pub fn evicted_until(&self) -> String {
        format!("{}:h", self.base)
    }

    /// The list of the pages that a round has read and that have entries left.
    pub fn kept_pages(&self) -> String {
        format!("{}:k", self.base)
    }

    /// A list of the entries of the app with this tag.
    pub fn entry_list(&self, list: EntryList, app: AppTag) -> String {
        entry_list(&self.base, list, app)
    }

    /// The same list, of the stripe that has the page with this key.
    pub fn entry_list_of(page: &str, list: EntryList, app: AppTag) -> String {
        entry_list(stripe_of(page), list, app)
    }

    /// The page with the ids of pushes to named devices that have this window and these bits.
    pub fn named_page(&self, window: Window, bits: [u8; 2]) -> String {
        shared_page(&self.base, AudienceKind::Named, window, bits)
    }

    /// The expanded entry whose stub is in this field of a page of the stripe.
    pub fn expanded_entry(&self, page: LedgerPage, field: PageField) -> String {
        expanded_entry(&self.base, &MessageId::from_page(page, field), field)
    }

    /// The marks of entries that were evicted lately, the last first.
    pub fn evicted(&self) -> String {
        format!("{}:e", self.base)
    }

    /// The same list, of the stripe that has the page with this key.
    pub fn evicted_of(page: &str) -> String {
        format!("{}:e", stripe_of(page))
    }

    /// A page by its name in a list of pages.
    pub fn page(&self, name: &str) -> String {
        format!("{}:p{name}", self.base)
    }

    /// The list to which the page with this key is added if it begins with a record.
    pub fn pages_of(page: &str) -> String {
        format!("{}:o", stripe_of(page))
    }
}

/// The base of the keys of a stripe, from the key of one of its pages.
fn stripe_of(page: &str) -> &str {
    page.rsplit_once(":p").map_or(page, |(stripe, _)| stripe)
}

fn shared_page(
    stripe: &str,
    kind: AudienceKind,
    Window(window): Window,
    [a, b]: [u8; 2],
) -> String {
    let mark = if kind == AudienceKind::Broadcast { BROADCAST_MARK } else { "" };
    format!("{stripe}:p{mark}{window:x}.{a:02x}{b:02x}")
}

fn entry_list(stripe: &str, list: EntryList, AppTag(tag): AppTag) -> String {
    let [a, b, c, d, e, f] = tag;
    let tag = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    match list {
        EntryList::Pages(span) => format!("{stripe}:n{}.{tag:012x}", span.index()),
        EntryList::Named => format!("{stripe}:n.{tag:012x}"),
        EntryList::Broadcasts => format!("{stripe}:a.{tag:012x}"),
    }
}

fn expanded_entry(stripe: &str, message: &MessageId, field: PageField) -> String {
    let AppTag(tag) = field.app();
    let mut key = format!("{stripe}:m");
    for byte in &message.as_uuid().as_bytes()[..12] {
        key.push_str(&format!("{byte:02x}"));
    }
    key.push('.');
    for byte in tag {
        key.push_str(&format!("{byte:02x}"));
    }
    key
}

/// Parses an element of a list of pages: when the page was begun, and its name.
pub fn parse_listed_page(element: &str) -> Option<(UnixMillis, &str)> {
    let (begun, name) = element.split_once(' ')?;
    Some((UnixMillis(u64::from_str_radix(begun, 16).ok()?), name))
}

/// The page of a stripe that has this name.
pub fn page_of_name(stripe: u8, name: &str) -> Option<LedgerPage> {
    let Some((window, bits)) = name.split_once('.') else {
        let id: MessageId = name.parse().ok()?;
        return Some(LedgerPage::Own(*id.as_uuid().as_bytes()));
    };
    let (kind, window) = match window.strip_prefix(BROADCAST_MARK) {
        Some(window) => (AudienceKind::Broadcast, window),
        None => (AudienceKind::Named, window),
    };
    let window = Window(u64::from_str_radix(window, 16).ok()?);
    let [a, b] = u16::from_str_radix(bits, 16).ok()?.to_be_bytes();
    Some(LedgerPage::Shared(kind, window, [stripe, a, b]))
}

/// The keys under which the ledger keeps a message.
#[derive(Debug, Clone)]
pub struct MessageKeys {
    message: MessageId,
    /// The page that has its record.
    pub page: String,
    /// The record's field in the page.
    pub field: PageField,
}

impl MessageKeys {
    /// The hash of the entry if it is expanded.
    pub fn expanded_entry(&self) -> String {
        expanded_entry(stripe_of(&self.page), &self.message, self.field)
    }

    /// The page that the entry has if its own page is full.
    pub fn overflow_page(&self) -> String {
        format!("{}:p{}", stripe_of(&self.page), self.message)
    }

    /// The latest times of acceptance among the evicted entries of the same stripe.
    pub fn evicted_until(&self) -> String {
        format!("{}:h", stripe_of(&self.page))
    }

    /// The list to which the page is added if it begins with an expanded entry.
    pub fn expanded_pages(&self) -> String {
        format!("{}:b", stripe_of(&self.page))
    }
}

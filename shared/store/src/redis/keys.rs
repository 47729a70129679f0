//! Every Redis key of the index, and nothing else: look here for what a key on a server means.
//!
//! | key | what |
//! |---|---|
//! | `push:apps` | hash: app id → the app as JSON; `@` and app id → how many apps of it were removed; `@+` and app id → what is known of an app on its way here, as JSON |
//! | `push:audit` | list: the audit trail, newest first, each event as JSON |
//! | `push:admin-keys` | hash: name of a key of the admin API → its digest; `@` and a digest → the key as JSON; `+` and a name → when it was last used |
//! | `push:components` | hash: the id of a running program → when its record ends (server time in milliseconds), a blank, and the record as JSON; expires with the last record |
//! | `push:{app}:u` | hash: name of a secret of the app → when it was last used |
//! | `push:{app}:c` | hash: an hour → how many messages of the app were accepted and closed, if it has a quota of them |
//! | `push:{app}:x` | list: devices of the app that were removed as gone, newest first ([`push_model::gone`]) |
//! | `push:{app}:y` | hash: a part of a window → how many of its devices were reported as gone in it; `stopped` → until when they are not removed |
//! | `push:{app}:v2` | list: the values of attribute 2 of this app, code 1 first; empty for a free code |
//! | `push:{app}:s2` | hash: the same values, each with its code |
//! | `push:{app}:f2` | list: its free codes |
//! | `push:{app}:r2` | string: a bit for each of its retired codes |
//! | `push:{app}:l2` | list: its free codes that were given to other values since the epoch began |
//! | `push:{app}:d` | hash: the state of the app's dictionaries: `bytes`, `epoch`, what was `grown` and `refused` since a sweep, the number of the last `batch` of retired codes, and the times `retired_at`, `reuse_at`, `swept_at` in seconds |
//! | `push:{app}:p` | string: the app's theoretical arrival (microseconds), if it has a pace |
//! | `push:{app}:g` | string: exists for a while after the app was removed |
//! | `push:{app/7}` | hash: `layout`, `height`, `buckets`, `live` of shard 7; `t1` and so on: how many of its devices belong to the partition of the transport with code 0 and so on; `gone` while the shard is being removed, and for a while after |
//! | `push:{app/7}:2.0` | string: codes of attribute 2 in segment 0, the low byte of each slot |
//! | `push:{app/7}:h2.0` | string: the high bytes, up to the last slot whose high byte was not 0 when it was written |
//! | `push:{app/7}:t.0` | string: the transport of each slot in segment 0 |
//! | `push:{app/7}:d5` | string: the records of chunk 5 |
//! | `push:{app/7}:m3` | string: bucket 3 of the map from client id to slot |
//! | `push:{app/7}:n` | string: the newest registration of each segment, six bytes a segment |
//! | `push:{app/7}:f` | list: slots that are free |
//! | `push:{l/7}:p<window>.<bits>` | hash: a ledger page, for the ids with this window and these bits ([`LedgerPage`]); the rest of an id and its app's tag ([`PageField`]) → its record; `+` if the page was full, so that further entries have pages of their own. With an `x` after the `p`: for the ids of broadcasts |
//! | `push:{l/7}:p<uuid>` | the same, a page for this id alone |
//! | `push:{l/7}:o` | list: the pages of stripe 7 that began with a record, in the order in which they were begun, each as that time, a blank, and the key's text behind the `p` |
//! | `push:{l/7}:b` | list: the same, for pages that began with an expanded entry |
//! | `push:{l/7}:k` | list: the same, for pages that were read by an eviction round and have entries left |
//! | `push:{l/7}:e` | list: the marks of entries of this stripe that were evicted lately, the last first, so that their jobs do not begin again |
//! | `push:{l/7}:h` | hash: an app's tag → the latest time of acceptance among its entries of this stripe that were evicted to keep the ledger within its bound; `*` → the same for apps without a field |
//! | `push:{l/7}:n0.<tag>` to `push:{l/7}:n3.<tag>` | sorted set: the pages of stripe 7 with entries of pushes of the app with this tag to named devices, for each [`PageSpan`]; a member is when the span is over and the page's bits, and the empty member says that older ones were removed |
//! | `push:{l/7}:n.<tag>` | sorted set: the same for entries that are not found by their page; a member is the time of acceptance and the id without the checksum |
//! | `push:{l/7}:a.<tag>` | sorted set: the same for broadcasts |
//! | `push:{l/7}:m<id>.<tag>` | hash: the expanded ledger entry of a message, by its id without the checksum and the tag of its app |
//! | `push:ledger` | hash: what the ledger held when it was last measured, and its bound |
//! | `push:ledger:turn` | string: the program that holds the lease for measuring the ledger; expires after some seconds |
//! | `push:dictionaries:turn` | string: the program that sweeps dictionaries; expires after a minute |
//! | `push:broadcasts` | hash: a broadcast that is not finished â its app, its end, and the devices left of each partition |
//! | `push:writable` | string: written to see whether writes are stored; expires after a minute |
//! | `push:{3}:writable` | the same, in a cluster: one key on every master, whose number is chosen so that it is there |
//!
//! The text in braces is the hash tag of Redis Cluster: a script touches the keys of one tag only.
//! No id contains a brace, a slash or an `@`. `app` stands for the first app of a name; in the keys
//! of the second one it is `app@1`, and so on, so that two apps of one name never share a key.
//!
//! The names of ledger pages are not only built here but also read back: the list of pages holds
//! them as text, and an eviction round must learn from a name which ids the page has
//! ([`page_of_name`]). The other keys of a page's stripe are derived from the page's key
//! ([`stripe_of`]), so that a call on a page needs no other value than that key. `pages.lua` cuts
//! the name out of the page's key for the same reason: the script gets the key anyway, and the list
//! must hold the same text.

#![expect(missing_docs, reason = "the table above says what is under each key")]

use push_model::{
    app::AppKey,
    attributes::Attribute,
    ids::{AppTag, AudienceKind, LedgerPage, MessageId, PageField, PageSpan, Window},
    time::UnixMillis,
};

/// The Lua functions with which a script names the keys of its shard, whose base is `KEYS[1]`.
pub const SHARD_KEYS_LUA: &str = r"
local base = KEYS[1]
-- Lua numbers are floats. Without %d they are formatted as such, which takes several times as long.
local function digits(number) return string.format('%d', number) end
local function low_key(attribute, segment) return base .. ':' .. attribute .. '.' .. segment end
local function high_key(attribute, segment) return base .. ':h' .. attribute .. '.' .. segment end
local function transport_key(segment) return base .. ':t.' .. segment end
local function chunk_key(chunk) return base .. ':d' .. digits(chunk) end
local function bucket_key(bucket) return base .. ':m' .. digits(bucket) end
local function newest_key() return base .. ':n' end
local function free_key() return base .. ':f' end
";

/// Precedes the window in the name of a page of broadcasts. Not a hexadecimal digit.
const BROADCAST_MARK: &str = "x";

/// Names the keys of one namespace.
#[derive(Debug, Clone)]
pub struct Keys {
    namespace: Box<str>,
}

/// Hash slots of every Redis Cluster.
const SLOTS: u16 = 16_384;

/// The hash slot of a key, as Redis Cluster computes it: of the key's hash tag if it has one, which
/// is the text between the first `{` and the next `}`.
pub(super) fn hash_slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        rest.get(..rest.iter().position(|byte| *byte == b'}')?).filter(|tag| !tag.is_empty())
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS
}

/// The hash slot of [`Keys::write_probe_of`].
pub(super) fn write_probe_slot(number: u32) -> u16 {
    hash_slot(number.to_string().as_bytes())
}

impl Keys {
    pub(super) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.into() }
    }

    pub fn apps(&self) -> String {
        format!("{}:apps", self.namespace)
    }

    pub(super) fn write_probe(&self) -> String {
        format!("{}:writable", self.namespace)
    }

    /// The same key in the hash slot of a number ([`write_probe_slot`]).
    pub(super) fn write_probe_of(&self, number: u32) -> String {
        format!("{}:{{{number}}}:writable", self.namespace)
    }

    /// The key on which each command is tried.
    pub(super) fn rights_probe(&self) -> String {
        format!("{}:rights", self.namespace)
    }

    /// Returns what all keys look like, in a rule of an ACL.
    pub(super) fn pattern(&self) -> String {
        format!("{}:*", self.namespace)
    }

    pub fn audit(&self) -> String {
        format!("{}:audit", self.namespace)
    }

    pub fn admin_keys(&self) -> String {
        format!("{}:admin-keys", self.namespace)
    }

    pub fn components(&self) -> String {
        format!("{}:components", self.namespace)
    }

    pub fn broadcasts(&self) -> String {
        format!("{}:broadcasts", self.namespace)
    }

    pub fn secret_uses(&self, app: &AppKey) -> String {
        format!("{}:{{{app}}}:u", self.namespace)
    }

    pub fn usage(&self, app: &AppKey) -> String {
        format!("{}:{{{app}}}:c", self.namespace)
    }

    pub fn removed_devices(&self, app: &AppKey) -> String {
        format!("{}:{{{app}}}:x", self.namespace)
    }

    pub fn gone_reports(&self, app: &AppKey) -> String {
        format!("{}:{{{app}}}:y", self.namespace)
    }

    pub fn dictionary(&self, app: &AppKey, attribute: Attribute) -> DictionaryKeys {
        let key = |kind| format!("{}:{{{app}}}:{kind}{}", self.namespace, attribute.index());
        DictionaryKeys {
            codes: key('s'),
            values: key('v'),
            free: key('f'),
            retired: key('r'),
            reused: key('l'),
        }
    }

    pub fn dictionary_state(&self, app: &AppKey) -> String {
        format!("{}:{{{app}}}:d", self.namespace)
    }

    pub fn sweeping_lease(&self) -> String {
        format!("{}:dictionaries:turn", self.namespace)
    }

    pub fn removed(&self, app: &AppKey) -> String {
        format!("{}:{{{app}}}:g", self.namespace)
    }

    pub fn theoretical_arrival(&self, app: &AppKey) -> String {
        format!("{}:{{{app}}}:p", self.namespace)
    }

    pub fn shard(&self, app: &AppKey, shard: u32) -> ShardKeys {
        ShardKeys { base: format!("{}:{{{app}/{shard}}}", self.namespace) }
    }

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

/// The keys of an app's dictionary of one attribute.
#[derive(Debug, Clone)]
pub struct DictionaryKeys {
    pub codes: String,
    pub values: String,
    pub free: String,
    pub retired: String,
    pub reused: String,
}

impl DictionaryKeys {
    pub fn all(&self) -> [&str; 5] {
        [&self.codes, &self.values, &self.free, &self.retired, &self.reused]
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

/// Names the keys of one shard, like [`SHARD_KEYS_LUA`].
#[derive(Debug, Clone)]
pub struct ShardKeys {
    base: String,
}

impl ShardKeys {
    /// The key of the shard's own hash, which scripts take as `KEYS[1]`.
    pub fn base(&self) -> &str {
        &self.base
    }

    pub fn low(&self, attribute: Attribute, segment: u32) -> String {
        format!("{}:{}.{segment}", self.base, attribute.index())
    }

    pub fn high(&self, attribute: Attribute, segment: u32) -> String {
        format!("{}:h{}.{segment}", self.base, attribute.index())
    }

    pub fn transports(&self, segment: u32) -> String {
        format!("{}:t.{segment}", self.base)
    }

    pub fn chunk(&self, chunk: u32) -> String {
        format!("{}:d{chunk}", self.base)
    }

    pub fn bucket(&self, bucket: u32) -> String {
        format!("{}:m{bucket}", self.base)
    }

    pub fn newest(&self) -> String {
        format!("{}:n", self.base)
    }
}

#[cfg(test)]
mod tests;

//! Every Redis key of the index, and nothing else: here stands what a key on a server means.
//!
//! | key | what |
//! |---|---|
//! | `push:apps` | hash: app id → the app as JSON; `@` and app id → how many apps of it were removed |
//! | `push:{app}:v2` | list: the values of attribute 2 of this app, code 1 first |
//! | `push:{app}:s2` | set: the same values, to keep them different |
//! | `push:{app}:p` | string: until when what the app sent is paid for, if it has a pace |
//! | `push:{app}:g` | string: there for a while after the app was removed |
//! | `push:{app/7}` | hash: `layout`, `height`, `buckets`, `live` of shard 7; `gone` while it is removed, and for a while after |
//! | `push:{app/7}:2.0` | string: codes of attribute 2 in segment 0, the low byte of each slot |
//! | `push:{app/7}:h2.0` | string: the high bytes, as far as one of them was not 0 |
//! | `push:{app/7}:r5` | string: the records of chunk 5 |
//! | `push:{app/7}:m3` | string: bucket 3 of the map from client id to slot |
//! | `push:{app/7}:n` | string: the newest registration of each segment, six bytes a segment |
//! | `push:{app/7}:f` | list: slots that are free |
//! | `push:{l/7}:p<window>.<bits>` | hash: a page of the ledger, of ids with this window and these bits ([`Page`]); the rest of an id → its record. An `x` after the `p`: ids of broadcasts |
//! | `push:{l/7}:p<uuid>` | the same for an id that has a page of its own |
//! | `push:{l/7}:o` | list: the pages of this part of the ledger in the order in which they were begun, each as the time of that, a blank, and what stands behind the `p` |
//! | `push:{l/7}:b` | list: the same of pages that began with an entry with fields |
//! | `push:{l/7}:h` | string: the latest time of acceptance among the entries of this part that were forgotten to keep the ledger's bound |
//! | `push:{l/7}:m<uuid>` | hash: the ledger entry of a message that has fields of its own |
//! | `push:ledger` | hash: what the ledger held when it was last looked at, and its bound |
//! | `push:ledger:turn` | string: which program looks at it, there for some seconds |
//!
//! What stands in braces is the hash tag of Redis Cluster: a script touches the keys of one tag
//! only. No id contains a brace, a slash or an `@`. `app` stands for the first app of a name; in
//! keys of the second it is `app@1`, and so on, so that no key of one is ever one of another.

use push_model::{
    app::AppKey,
    attributes::Attribute,
    ids::{InPage, MessageId, Page, Reach, Window},
    time::UnixMillis,
};

/// The functions with which a script names the keys of its shard: `KEYS[1]`, unless it says another.
pub(super) const SHARD_KEYS_LUA: &str = r"
local base = KEYS[1]
-- Without it Lua writes a number as the float that it is, which takes Redis several times as long.
local function digits(number) return string.format('%d', number) end
local function low_key(attribute, segment) return base .. ':' .. attribute .. '.' .. segment end
local function high_key(attribute, segment) return base .. ':h' .. attribute .. '.' .. segment end
local function chunk_key(chunk) return base .. ':r' .. digits(chunk) end
local function bucket_key(bucket) return base .. ':m' .. digits(bucket) end
local function newest_key() return base .. ':n' end
local function free_key() return base .. ':f' end
";

/// In front of the window, in the name of a page of broadcasts. No digit of a number.
const BROADCAST_MARK: &str = "x";

/// Names keys within one namespace.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    namespace: Box<str>,
}

impl Keys {
    pub(super) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.into() }
    }

    pub(super) fn apps(&self) -> String {
        format!("{}:apps", self.namespace)
    }

    pub(super) fn dictionary_list(&self, app: &AppKey, attribute: Attribute) -> String {
        format!("{}:{{{app}}}:v{}", self.namespace, attribute.index())
    }

    pub(super) fn dictionary_set(&self, app: &AppKey, attribute: Attribute) -> String {
        format!("{}:{{{app}}}:s{}", self.namespace, attribute.index())
    }

    pub(super) fn removed(&self, app: &AppKey) -> String {
        format!("{}:{{{app}}}:g", self.namespace)
    }

    pub(super) fn paid_until(&self, app: &AppKey) -> String {
        format!("{}:{{{app}}}:p", self.namespace)
    }

    pub(super) fn shard(&self, app: &AppKey, shard: u32) -> ShardKeys {
        ShardKeys { base: format!("{}:{{{app}/{shard}}}", self.namespace) }
    }

    pub(super) fn message(&self, message: &MessageId) -> MessageKeys {
        let (page, field) = message.place();
        let part = match page {
            Page::Shared(_, _, [first, ..]) | Page::Own([first, ..]) => first,
        };
        let PartKeys { base } = self.part(part);
        let page = match page {
            Page::Shared(reach, Window(window), [_, a, b]) => {
                let mark = if reach == Reach::Broadcast { BROADCAST_MARK } else { "" };
                format!("{base}:p{mark}{window:x}.{a:02x}{b:02x}")
            }
            Page::Own(_) => format!("{base}:p{message}"),
        };
        MessageKeys { page, field, message: *message }
    }

    /// The keys of one of the [`PARTS`] of the ledger.
    pub(super) fn part(&self, part: u8) -> PartKeys {
        PartKeys { base: format!("{}:{{l/{part}}}", self.namespace) }
    }

    pub(super) fn history(&self) -> String {
        format!("{}:ledger", self.namespace)
    }

    pub(super) fn history_turn(&self) -> String {
        format!("{}:ledger:turn", self.namespace)
    }
}

/// The parts of the ledger, each with a hash tag of its own: many more than masters, so that they
/// share it evenly.
pub(super) const PARTS: std::ops::RangeInclusive<u8> = 0..=u8::MAX;

/// Names the keys of one part of the ledger.
#[derive(Debug, Clone)]
pub(super) struct PartKeys {
    base: String,
}

impl PartKeys {
    /// The pages that began with a record, in order.
    pub(super) fn pages(&self) -> String {
        format!("{}:o", self.base)
    }

    /// The pages that began with an entry with fields, in order.
    pub(super) fn rich_pages(&self) -> String {
        format!("{}:b", self.base)
    }

    pub(super) fn forgotten_until(&self) -> String {
        format!("{}:h", self.base)
    }

    /// A page by what a list of pages calls it.
    pub(super) fn page(&self, name: &str) -> String {
        format!("{}:p{name}", self.base)
    }

    /// The list of pages that one with this key goes to if it begins with a record.
    pub(super) fn pages_of(page: &str) -> String {
        format!("{}:o", part_of(page))
    }
}

/// The part of a page by its key.
fn part_of(page: &str) -> &str {
    page.rsplit_once(":p").map_or(page, |(part, _)| part)
}

/// What a list of pages says of one: when it was begun, and its name.
pub(super) fn listed_page(element: &str) -> Option<(UnixMillis, &str)> {
    let (begun, name) = element.split_once(' ')?;
    Some((UnixMillis(u64::from_str_radix(begun, 16).ok()?), name))
}

/// Which page of a part has this name.
pub(super) fn named_page(part: u8, name: &str) -> Option<Page> {
    let Some((window, bits)) = name.split_once('.') else {
        let id: MessageId = name.parse().ok()?;
        return Some(Page::Own(*id.as_uuid().as_bytes()));
    };
    let (reach, window) = match window.strip_prefix(BROADCAST_MARK) {
        Some(window) => (Reach::Broadcast, window),
        None => (Reach::Named, window),
    };
    let window = Window(u64::from_str_radix(window, 16).ok()?);
    let [a, b] = u16::from_str_radix(bits, 16).ok()?.to_be_bytes();
    Some(Page::Shared(reach, window, [part, a, b]))
}

/// Where the ledger keeps a message.
#[derive(Debug, Clone)]
pub(super) struct MessageKeys {
    message: MessageId,
    /// The page with its record.
    pub(super) page: String,
    /// The record's field there.
    pub(super) field: InPage,
}

impl MessageKeys {
    /// The entry's own fields, if it has any.
    pub(super) fn entry(&self) -> String {
        format!("{}:m{}", part_of(&self.page), self.message)
    }

    /// Until when messages beside this one were accepted of which some were forgotten.
    pub(super) fn forgotten_until(&self) -> String {
        format!("{}:h", part_of(&self.page))
    }

    /// The list that the page goes to if it begins with an entry with fields.
    pub(super) fn rich_pages(&self) -> String {
        format!("{}:b", part_of(&self.page))
    }
}

/// Names the keys of one shard, like [`SHARD_KEYS_LUA`].
#[derive(Debug, Clone)]
pub(super) struct ShardKeys {
    base: String,
}

impl ShardKeys {
    /// The shard's own hash, and what scripts take as `KEYS[1]`.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    pub(super) fn low(&self, attribute: Attribute, segment: u32) -> String {
        format!("{}:{}.{segment}", self.base, attribute.index())
    }

    pub(super) fn high(&self, attribute: Attribute, segment: u32) -> String {
        format!("{}:h{}.{segment}", self.base, attribute.index())
    }

    pub(super) fn chunk(&self, chunk: u32) -> String {
        format!("{}:r{chunk}", self.base)
    }

    pub(super) fn bucket(&self, bucket: u32) -> String {
        format!("{}:m{bucket}", self.base)
    }

    pub(super) fn newest(&self) -> String {
        format!("{}:n", self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_page_says_which_it_is() {
        let (keys, app) = (Keys::new("push"), "a".parse().unwrap());
        let ids = [
            MessageId::issue(&app),
            MessageId::issue_for(&app, Reach::Broadcast),
            MessageId::from_idempotency_key(&app, 0, b"k"),
        ];
        for id in ids {
            let (page, field) = id.place();
            let part = match page {
                Page::Shared(_, _, [part, ..]) | Page::Own([part, ..]) => part,
            };
            let MessageKeys { page: key, .. } = keys.message(&id);
            let (_, name) = key.split_once("}:p").unwrap();
            assert_eq!(keys.part(part).page(name), key);
            assert_eq!(PartKeys::pages_of(&key), keys.part(part).pages());
            let named = named_page(part, name).unwrap();
            assert_eq!((named, MessageId::at(named, field)), (page, id));
        }
        assert_eq!(listed_page("1a p.q"), Some((UnixMillis(26), "p.q")));
        assert_eq!(
            (listed_page("1a"), listed_page("x y"), named_page(0, "zz.0000")),
            (None, None, None)
        );
    }

    #[test]
    fn all_keys_of_a_shard_share_one_hash_tag_and_shards_do_not() {
        let keys = Keys::new("push");
        let shard = keys.shard(&AppKey::first("a.b".parse().unwrap()), 7);
        let (low, high) = (shard.low(Attribute::Brand, 1), shard.high(Attribute::Brand, 1));
        for key in [shard.base(), &low, &high, &shard.chunk(5), &shard.newest()] {
            assert!(key.starts_with("push:{a.b/7}"), "{key}");
        }
        assert_eq!([low, high], ["push:{a.b/7}:2.1", "push:{a.b/7}:h2.1"]);
        let other = AppKey { id: "a.b".parse().unwrap(), generation: 2 };
        assert_eq!(keys.shard(&other, 7).base(), "push:{a.b@2/7}");
        assert_ne!(keys.shard(&AppKey::first("a".parse().unwrap()), 1).base(), shard.base());
    }
}

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
//! | `push:{app}:v2` | list: the values of attribute 2 of this app, code 1 first; empty for a free code. `c7` in place of `2`: of its custom attribute 7; `w`: its topics |
//! | `push:{app}:s2` | hash: the same values, each with its code |
//! | `push:{app}:f2` | list: its free codes |
//! | `push:{app}:r2` | string: a bit for each of its retired codes |
//! | `push:{app}:l2` | list: its free codes that were given to other values since the epoch began |
//! | `push:{app}:d` | hash: the state of the app's dictionaries: `bytes`, `epoch`, what was `grown` and `refused` since a sweep, the number of the last `batch` of retired codes, and the times `retired_at`, `reuse_at`, `swept_at` in seconds; `+c7` and `+w`: it has a dictionary of custom attribute 7, and of topics |
//! | `push:{app}:p` | string: the app's theoretical arrival (microseconds), if it has a pace |
//! | `push:{app}:g` | string: exists for a while after the app was removed |
//! | `push:{app/7}` | hash: `layout`, `height`, `buckets`, `live` of shard 7; `t1` and so on: how many of its devices belong to the partition of the transport with code 0 and so on; `gone` while the shard is being removed, and for a while after |
//! | `push:{app/7}:2.0` | string: codes of attribute 2 in segment 0, the low byte of each slot |
//! | `push:{app/7}:h2.0` | string: the high bytes, up to the last slot whose high byte was not 0 when it was written |
//! | `push:{app/7}:c7.0`, `push:{app/7}:hc7.0` | string: the same two for custom attribute 7, up to the last slot whose byte was not 0 when it was written |
//! | `push:{app/7}:w0` | hash: code of a topic → the slots of segment 0 whose devices have it |
//! | `push:{app/7}:t.0` | string: the transport of each slot in segment 0 |
//! | `push:{app/7}:d5` | string: the records of chunk 5 |
//! | `push:{app/7}:m3` | string: bucket 3 of the map from client id to slot |
//! | `push:{app/7}:n` | string: the newest registration of each segment, six bytes a segment |
//! | `push:{app/7}:f` | list: slots that are free |
//! | `push:{app/u12}` | hash: a user of the app whose id has hash 12 → the devices that may be his, each with the time at which it was added |
//! | `push:{l/7}:p<window>.<bits>` | hash: a ledger page, for the ids with this window and these bits ([`LedgerPage`](push_model::ids::LedgerPage)); the rest of an id and its app's tag ([`PageField`](push_model::ids::PageField)) → its record; `+` if the page was full, so that further entries have pages of their own. With an `x` after the `p`: for the ids of broadcasts |
//! | `push:{l/7}:p<uuid>` | the same, a page for this id alone |
//! | `push:{l/7}:o` | list: the pages of stripe 7 that began with a record, in the order in which they were begun, each as that time, a blank, and the key's text behind the `p` |
//! | `push:{l/7}:b` | list: the same, for pages that began with an expanded entry |
//! | `push:{l/7}:k` | list: the same, for pages that were read by an eviction round and have entries left |
//! | `push:{l/7}:e` | list: the marks of entries of this stripe that were evicted lately, the last first, so that their jobs do not begin again |
//! | `push:{l/7}:h` | hash: an app's tag → the latest time of acceptance among its entries of this stripe that were evicted to keep the ledger within its bound; `*` → the same for apps without a field |
//! | `push:{l/7}:n0.<tag>` to `push:{l/7}:n3.<tag>` | sorted set: the pages of stripe 7 with entries of pushes of the app with this tag to named devices, for each [`PageSpan`](push_model::ids::PageSpan); a member is when the span is over and the page's bits, and the empty member says that older ones were removed |
//! | `push:{l/7}:n.<tag>` | sorted set: the same for entries that are not found by their page; a member is the time of acceptance and the id without the checksum |
//! | `push:{l/7}:a.<tag>` | sorted set: the same for broadcasts |
//! | `push:{l/7}:m<id>.<tag>` | hash: the expanded ledger entry of a message, by its id without the checksum and the tag of its app |
//! | `push:ledger` | hash: what the ledger held when it was last measured, and its bound |
//! | `push:ledger:turn` | string: the program that holds the lease for measuring the ledger; expires after some seconds |
//! | `push:dictionaries:turn` | string: the program that sweeps dictionaries; expires after a minute |
//! | `push:broadcasts` | hash: a broadcast that is not finished → its app, its end, and the devices left of each partition |
//! | `push:writable` | string: written to see whether writes are stored; expires after a minute |
//! | `push:{3}:writable` | the same, in a cluster: one key on every master, whose number is chosen so that it is there |
//!
//! The text in braces is the hash tag of Redis Cluster: a script touches the keys of one tag only.
//! No id contains a brace, a slash or an `@`. `app` stands for the first app of a name; in the keys
//! of the second one it is `app@1`, and so on, so that two apps of one name never share a key.
//!
//! - `ledger`: the keys of the ledger

#![expect(missing_docs, reason = "the table above says what is under each key")]

mod ledger;

use push_model::{app::AppKey, custom::CustomId, filter::Column};

pub use self::ledger::{
    EntryList, MessageKeys, STRIPES, StripeKeys, page_of_name, parse_listed_page,
};

/// The Lua functions with which a script names the keys of its shard, whose base is `KEYS[1]`.
pub const SHARD_KEYS_LUA: &str = r"
local base = KEYS[1]
-- Lua numbers are floats. Without %d they are formatted as such, which takes several times as long.
local function digits(number) return string.format('%d', number) end
local function low_key(attribute, segment) return base .. ':' .. attribute .. '.' .. segment end
local function high_key(attribute, segment) return base .. ':h' .. attribute .. '.' .. segment end
local function topics_key(segment) return base .. ':w' .. segment end
local function transport_key(segment) return base .. ':t.' .. segment end
local function chunk_key(chunk) return base .. ':d' .. digits(chunk) end
local function bucket_key(bucket) return base .. ':m' .. digits(bucket) end
local function newest_key() return base .. ':n' end
local function free_key() return base .. ':f' end
";

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

    pub fn dictionary(&self, app: &AppKey, column: Column) -> DictionaryKeys {
        let name = column_name(column);
        let key = |kind| format!("{}:{{{app}}}:{kind}{name}", self.namespace);
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

    /// The users of an app whose ids have this hash.
    pub fn users(&self, app: &AppKey, hash: u8) -> String {
        format!("{}:{{{app}/u{hash}}}", self.namespace)
    }
}

/// The name of a column in keys.
pub fn column_name(column: Column) -> String {
    match column {
        Column::BuiltIn(attribute) => attribute.index().to_string(),
        Column::Custom(CustomId(id)) => format!("c{id}"),
        Column::Topic => "w".to_owned(),
    }
}

/// The column beside the six built-in ones that has this name.
pub fn column_of_name(name: &str) -> Option<Column> {
    if name == "w" {
        return Some(Column::Topic);
    }
    Some(Column::Custom(CustomId(name.strip_prefix('c')?.parse().ok()?)))
}

/// The keys of an app's dictionary of one column.
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

    pub fn low(&self, column: Column, segment: u32) -> String {
        format!("{}:{}.{segment}", self.base, column_name(column))
    }

    pub fn high(&self, column: Column, segment: u32) -> String {
        format!("{}:h{}.{segment}", self.base, column_name(column))
    }

    pub fn topics(&self, segment: u32) -> String {
        format!("{}:w{segment}", self.base)
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

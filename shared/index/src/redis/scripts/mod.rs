//! The Lua scripts: each is one atomic step on the keys of one hash tag.
//!
//! A script is called by its hash. A server that does not know the hash is sent the whole text,
//! which it then remembers. So nothing has to be loaded beforehand, not even after a restart, a
//! fail-over or on a node that joined a cluster.
//!
//! Redis does not undo what a script did before it failed, so no script may be refused halfway.
//! Redis reports that a server is a replica, has too few replicas or cannot write to its disk to
//! the first write of a script or to none. It reports that there is no memory only to a command
//! that may need some. So each script here
//!
//! - makes its decisions on what it read before it writes;
//! - begins to write with a command that is refused without memory (`SET`, `MSET`, `SETRANGE`,
//!   `HSET`, `SADD`, `LPUSH`), so that a server without memory refuses all of it. Scripts that begin with a
//!   removal run to their end without memory: `remove_shard`, `evict`, `free`, and `begin_expanded`
//!   where it replaces another entry.
//!
//! Two things can still end a script halfway: a user of Redis who has the permission for some of
//! its commands only, and a slot of a cluster that is being moved, when some of the keys are
//! already at another node. The caller gets an error and repairs what is left by doing the same
//! again; at worst a removal has lost a slot.
//!
//! The Lua files: `apps/` has the scripts on the records, arrivals, paces, secrets, usage and gone devices of apps,
//! `dictionaries/` those on their dictionaries, `broadcasts/` those on what is left of broadcasts, `devices/` those on a shard, `ledger/` those on ledger entries.

use redis::{Arg, Cmd, Script as Hashed, ToRedisArgs, Value};

use super::{
    connection::{CORRUPT, Link},
    keys::SHARD_KEYS_LUA,
    layout::constants_lua,
};
use crate::IndexError;

const IN_TIME_LUA: &str = include_str!("devices/in_time.lua");
const SHARD_LUA: &str = include_str!("devices/shard.lua");
const PAGES_LUA: &str = include_str!("ledger/pages.lua");

/// A script and its hash.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

impl Script {
    fn new(text: &str) -> Self {
        let hash = Hashed::new(text).get_hash().to_owned();
        Self { text: text.to_owned(), hash }
    }

    /// A script on the keys of a shard.
    fn of_shard(text: &str) -> Self {
        Self::new(&[&constants_lua(), SHARD_KEYS_LUA, SHARD_LUA, text].concat())
    }

    /// A script on the keys of a shard that writes codes.
    fn of_shard_in_time(text: &str) -> Self {
        Self::new(&[IN_TIME_LUA, &constants_lua(), SHARD_KEYS_LUA, SHARD_LUA, text].concat())
    }

    /// Another script that writes codes.
    fn in_time(text: &str) -> Self {
        Self::new(&[IN_TIME_LUA, text].concat())
    }

    /// A script that may begin a page of the ledger.
    fn of_page(text: &str) -> Self {
        Self::new(&[PAGES_LUA, text].concat())
    }

    /// A script on an expanded entry that may find it unreadable.
    fn of_entry(text: &str) -> Self {
        Self::new(&format!("local CORRUPT = '{CORRUPT}'\n{text}"))
    }

    /// A call with these keys, to be completed with arguments.
    pub(super) fn call(&self, keys: &[&str]) -> Call<'_> {
        let mut by_hash = redis::cmd("EVALSHA");
        by_hash.arg(&self.hash).arg(keys.len()).arg(keys);
        Call { script: self, by_hash }
    }
}

/// A call of a script.
#[derive(Debug)]
pub(super) struct Call<'a> {
    script: &'a Script,
    by_hash: Cmd,
}

impl Call<'_> {
    pub(super) fn arg(&mut self, value: impl ToRedisArgs) -> &mut Self {
        self.by_hash.arg(value);
        self
    }

    pub(super) async fn run(&self, link: &Link) -> Result<Value, IndexError> {
        Ok(match link.command(&self.by_hash).await {
            Err(failure) if failure.is_unknown_script() => link.command(&self.with_text()).await?,
            answer => answer?,
        })
    }

    /// As [`Call::run`], for a script that only reads: it is sent once more if the connection is
    /// broken.
    pub(super) async fn read(&self, link: &Link) -> Result<Value, IndexError> {
        Ok(match link.repeatable(&self.by_hash).await {
            Err(failure) if failure.is_unknown_script() => {
                link.repeatable(&self.with_text()).await?
            }
            answer => answer?,
        })
    }

    /// The same call for a server that does not know the script.
    fn with_text(&self) -> Cmd {
        let mut with_text = redis::cmd("EVAL");
        with_text.arg(&self.script.text);
        for arg in self.by_hash.args_iter().skip(2) {
            if let Arg::Simple(arg) = arg {
                with_text.arg(arg);
            }
        }
        with_text
    }
}

macro_rules! scripts {
    ($($name:ident: $kind:ident($file:literal)),* $(,)?) => {
        /// All scripts.
        #[derive(Debug)]
        pub(super) struct Scripts {
            $(pub(super) $name: Script,)*
        }

        impl Scripts {
            pub(super) fn new() -> Self {
                Self { $($name: Script::$kind(include_str!($file)),)* }
            }
        }
    };
}

scripts! {
    create_app: new("apps/create_app.lua"),
    update_app: new("apps/update_app.lua"),
    replace_app: new("apps/replace_app.lua"),
    remove_app: new("apps/remove_app.lua"),
    begin_arrival: new("apps/begin_arrival.lua"),
    save_arrival: new("apps/save_arrival.lua"),
    finish_arrival: new("apps/finish_arrival.lua"),
    intern: new("dictionaries/intern.lua"),
    look: new("dictionaries/look.lua"),
    retire: new("dictionaries/retire.lua"),
    begin_batch: new("dictionaries/begin_batch.lua"),
    free: new("dictionaries/free.lua"),
    end_batch: new("dictionaries/end_batch.lua"),
    append_audit: new("apps/append_audit.lua"),
    save_secret_uses: new("apps/save_secret_uses.lua"),
    add_usage: new("apps/add_usage.lua"),
    acquire_pace: new("apps/acquire_pace.lua"),
    count_gone: new("apps/count_gone.lua"),
    stop_removals: new("apps/stop_removals.lua"),
    list_gone: new("apps/list_gone.lua"),
    list_broadcast: new("broadcasts/list.lua"),
    set_devices_left: new("broadcasts/set_left.lua"),
    register: of_shard_in_time("devices/register.lua"),
    change: in_time("devices/change.lua"),
    remove: of_shard("devices/remove.lua"),
    remove_shard: of_shard("devices/remove_shard.lua"),
    begin_records: of_page("ledger/begin_records.lua"),
    swap_records: of_page("ledger/swap_records.lua"),
    begin_expanded: of_page("ledger/begin_expanded.lua"),
    expand: new("ledger/expand.lua"),
    compact: new("ledger/compact.lua"),
    plan: new("ledger/plan.lua"),
    advance: of_entry("ledger/advance.lua"),
    recall: of_page("ledger/recall.lua"),
    evict: new("ledger/evict.lua"),
}

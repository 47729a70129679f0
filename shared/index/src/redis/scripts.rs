//! The Lua scripts: each is one atomic step on the keys of one hash tag.
//!
//! A script is called by its hash; a server that does not know it gets the whole text, which it
//! remembers. So nothing has to be loaded beforehand, also not after a restart, a failover or on
//! a node that joined a cluster.
//!
//! What a script did is not undone when it fails in the middle, so none may be refused there.
//! That a server is a replica, has too few of them, cannot write to its disk or has no memory
//! left, Redis says to the first write of a script or to none; and that it has no memory, only to
//! a command that may need some. So each script of ours
//!
//! - makes its decisions on what it read before it writes;
//! - begins to write with a command that is refused without memory (`SET`, `MSET`,
//!   `SETRANGE`, `HSET`, `SADD`), so that a server without memory refuses all of it. What begins with a removal is
//!   let through whole: `drop`, `forget`, and `open` where it takes the place of another entry.
//!
//! Two things can still end a script halfway: a user of Redis who may call some of its commands
//! and not others, and a slot of a cluster that is being moved, when a part of the keys is at
//! another node already. The caller is told of an error, and mends what is left by doing the same
//! again; at worst a removal has lost a slot.

use redis::{Arg, Cmd, Script as Hashed, ToRedisArgs, Value};

use super::{failure::CORRUPT, keys::SHARD_KEYS_LUA, layout::constants_lua, link::Link};
use crate::IndexError;

const SHARD_LUA: &str = include_str!("scripts/shard.lua");
const PAGES_LUA: &str = include_str!("scripts/pages.lua");

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

    /// A script that works on the keys of a shard.
    fn of_shard(text: &str) -> Self {
        Self::new(&[&constants_lua(), SHARD_KEYS_LUA, SHARD_LUA, text].concat())
    }

    /// A script that may begin a page of the ledger.
    fn of_page(text: &str) -> Self {
        Self::new(&[PAGES_LUA, text].concat())
    }

    /// A script that can find what is stored unreadable.
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
        /// All of them.
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
    register: of_shard("scripts/register.lua"),
    change: new("scripts/change.lua"),
    remove: of_shard("scripts/remove.lua"),
    drop: of_shard("scripts/drop.lua"),
    intern: new("scripts/intern.lua"),
    create_app: new("scripts/create_app.lua"),
    update_app: new("scripts/update_app.lua"),
    remove_app: new("scripts/remove_app.lua"),
    open: of_page("scripts/open.lua"),
    plan: new("scripts/plan.lua"),
    advance: of_entry("scripts/advance.lua"),
    recall: of_page("scripts/recall.lua"),
    begin: of_page("scripts/begin.lua"),
    swap: of_page("scripts/swap.lua"),
    forget: of_page("scripts/forget.lua"),
    promote: new("scripts/promote.lua"),
    demote: new("scripts/demote.lua"),
    take_pace: new("scripts/take_pace.lua"),
}

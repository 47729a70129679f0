//! The Lua scripts: each is one atomic step on the keys of one hash tag.
//!
//! A script is called by its hash. A server that does not know the hash is sent the whole text,
//! which it then remembers. So nothing has to be loaded beforehand, not even after a restart, a
//! fail-over or on a node that joined a cluster.
//!
//! Redis does not undo what a script did before it failed, so no script may be refused halfway.
//! Redis reports that a server is a replica, has too few replicas or cannot write to its disk to
//! the first write of a script or to none. It reports that there is no memory only to a command
//! that may need some. So each script
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

use redis::{Arg, Cmd, Script as Hashed, ToRedisArgs, Value};

use super::connection::Link;
use crate::IndexError;

/// A script and its hash.
#[derive(Debug)]
pub struct Script {
    text: String,
    hash: String,
}

/// Makes a script of its text.
pub fn script(text: &str) -> Script {
    let hash = Hashed::new(text).get_hash().to_owned();
    Script { text: text.to_owned(), hash }
}

impl Script {
    /// A call with these keys, to be completed with arguments.
    pub fn call(&self, keys: &[&str]) -> Call<'_> {
        let mut by_hash = redis::cmd("EVALSHA");
        by_hash.arg(&self.hash).arg(keys.len()).arg(keys);
        Call { script: self, by_hash }
    }
}

/// A call of a script.
#[derive(Debug)]
pub struct Call<'a> {
    script: &'a Script,
    by_hash: Cmd,
}

impl Call<'_> {
    /// Adds an argument.
    pub fn arg(&mut self, value: impl ToRedisArgs) -> &mut Self {
        self.by_hash.arg(value);
        self
    }

    /// Makes the call.
    ///
    /// # Errors
    /// If the script was not run to its end, or its answer was lost.
    pub async fn run(&self, link: &Link) -> Result<Value, IndexError> {
        Ok(match link.command(&self.by_hash).await {
            Err(failure) if failure.is_unknown_script() => link.command(&self.with_text()).await?,
            answer => answer?,
        })
    }

    /// As [`Call::run`], for a script that only reads: it is sent once more if the connection is
    /// broken.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn read(&self, link: &Link) -> Result<Value, IndexError> {
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

/// Declares `Scripts`, the scripts of an engine: for each its name, the function that makes it of a
/// text, and the file with that text.
#[macro_export]
macro_rules! scripts {
    ($($name:ident: $make:ident($file:literal)),* $(,)?) => {
        /// All scripts.
        #[derive(Debug)]
        pub(super) struct Scripts {
            $(pub(super) $name: $crate::redis::script::Script,)*
        }

        impl Scripts {
            pub(super) fn new() -> Self {
                Self { $($name: $make(include_str!($file)),)* }
            }
        }
    };
}

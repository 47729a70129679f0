//! A request: how a server is sent it, and which hash slot of a cluster it is about.

use redis::{Arg, Cmd, Pipeline, RedisError, Value, aio::MultiplexedConnection};

use crate::redis::keys::hash_slot;

/// Commands that are about a server and not about a key.
const WITHOUT_KEY: [&[u8]; 6] = [b"PING", b"TIME", b"INFO", b"ACL", b"CONFIG", b"CLUSTER"];

/// A request to a server.
#[derive(Clone, Copy)]
pub(super) enum Request<'a> {
    Command(&'a Cmd),
    /// A command on a slot that the server is still importing: it serves such a slot only to a
    /// command that follows `ASKING`.
    Asking(&'a Cmd),
    Pipeline(&'a Pipeline),
}

impl Request<'_> {
    /// The hash slot of its keys, which all have one hash tag; none if it has no key.
    pub(super) fn slot(self) -> Option<u16> {
        match self {
            Self::Command(cmd) | Self::Asking(cmd) => first_key(cmd).map(hash_slot),
            Self::Pipeline(pipe) => pipe.cmd_iter().find_map(first_key).map(hash_slot),
        }
    }

    pub(super) async fn send(
        self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Value, RedisError> {
        let answer = match self {
            Self::Command(cmd) => connection.send_packed_command(cmd).await?,
            Self::Asking(cmd) => {
                let mut pipe = Pipeline::with_capacity(2);
                pipe.add_command(redis::cmd("ASKING")).add_command(cmd.clone());
                let mut answers = connection.send_packed_commands(&pipe, 1, 1).await?;
                answers.pop().unwrap_or_default()
            }
            Self::Pipeline(pipe) if pipe.is_transaction() => {
                // The answer of EXEC, which is the last, holds those of all commands.
                let mut exec = connection.send_packed_commands(pipe, pipe.len() + 1, 1).await?;
                exec.pop().unwrap_or_default()
            }
            Self::Pipeline(pipe) => {
                Value::Array(connection.send_packed_commands(pipe, 0, pipe.len()).await?)
            }
        };
        answer.extract_error()
    }
}

fn first_key(cmd: &Cmd) -> Option<&[u8]> {
    let mut words = cmd.args_iter().map(|word| match word {
        Arg::Simple(word) => word,
        _ => &[],
    });
    let name = words.next()?;
    if WITHOUT_KEY.contains(&name) {
        return None;
    }
    match name {
        // The number of keys follows the script.
        b"EVAL" | b"EVALSHA" => words.nth(1).filter(|keys| *keys != b"0").and(words.next()),
        // A subcommand comes before the key.
        b"MEMORY" => words.nth(1),
        _ => words.next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(line: &str) -> Option<String> {
        let mut words = line.split(' ');
        let mut cmd = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            cmd.arg(word);
        });
        first_key(&cmd).map(|key| String::from_utf8(key.to_vec()).unwrap())
    }

    #[test]
    fn the_key_of_a_command_is_found() {
        assert_eq!(key("GET a").as_deref(), Some("a"));
        assert_eq!(key("MGET a b").as_deref(), Some("a"));
        assert_eq!(key("EVALSHA hash 2 a b c").as_deref(), Some("a"));
        assert_eq!(key("MEMORY USAGE a").as_deref(), Some("a"));
        for line in ["PING", "CLUSTER SLOTS", "INFO memory", "EVAL text 0 a", "CONFIG GET a"] {
            assert_eq!(key(line), None, "{line}");
        }
    }

    #[test]
    fn a_pipeline_is_about_the_slot_of_its_keys() {
        let mut pipe = Pipeline::new();
        pipe.cmd("TIME").cmd("GET").arg("x{1}y").cmd("GET").arg("z{1}");
        assert_eq!(Request::Pipeline(&pipe).slot(), Some(hash_slot(b"1")));
        assert_eq!(Request::Command(redis::cmd("GET").arg("{1}")).slot(), Some(hash_slot(b"1")));
    }
}

//! Redis, alone or as one node of a cluster.

use std::{path::Path, process::Command};

use redis::RedisResult;

use super::{Kind, Server, ServerError, program, system};
use crate::ports::{Port, free_port};

/// A Redis server.
pub type Redis = Server<RedisKind>;

/// What a Redis server is made of.
#[derive(Debug)]
pub struct RedisKind {
    port: Port,
    /// Where nodes talk to each other, if this is one of a cluster.
    bus: Option<Port>,
    /// When what was written reaches the disk, in words of Redis.
    sync: &'static str,
}

/// As in production.
const EVERY_SECOND: &str = "everysec";
/// Before it is answered. With [`EVERY_SECOND`] a kill loses answered writes too, if the disk
/// happens to be slow: Redis then holds them back for up to two seconds.
const ALWAYS: &str = "always";

impl Server<RedisKind> {
    /// Starts one on its own.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn start() -> Result<Self, ServerError> {
        let port = free_port().map_err(system::<RedisKind>)?;
        Self::start_kind(RedisKind { port, bus: None, sync: EVERY_SECOND }).await
    }

    /// From now on, also after a restart, it has on disk whatever it answered.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn sync_always(&mut self) -> RedisResult<()> {
        self.kind.sync = ALWAYS;
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("appendfsync").arg(ALWAYS).query_async(&mut connection).await
    }

    /// Starts one that can become part of a cluster.
    pub(super) async fn start_node() -> Result<Self, ServerError> {
        let port = free_port().map_err(system::<RedisKind>)?;
        let bus = free_port().map_err(system::<RedisKind>)?;
        Self::start_kind(RedisKind { port, bus: Some(bus), sync: EVERY_SECOND }).await
    }

    /// `127.0.0.1:port`
    pub(super) fn address(&self) -> String {
        self.kind.port.address()
    }

    /// Its port and its bus port, as `CLUSTER MEET` wants them.
    pub(super) fn ports(&self) -> (u16, Option<u16>) {
        (self.kind.port.number(), self.kind.bus.as_ref().map(Port::number))
    }
}

impl Kind for RedisKind {
    const NAME: &'static str = "Redis";

    fn command(&self, folder: &Path) -> Result<Command, ServerError> {
        let mut command = program("redis-server")?;
        let mut set = |name: &str, value: &str| {
            command.args([&format!("--{name}"), value]);
        };
        set("bind", "127.0.0.1");
        set("port", &self.port.number().to_string());
        set("dir", &folder.to_string_lossy());
        set("save", "");
        // As in production: the index outlives the process, is never evicted, and its small
        // hashes stay in the compact encoding.
        set("appendonly", "yes");
        set("appendfsync", self.sync);
        set("maxmemory-policy", "noeviction");
        set("hash-max-listpack-entries", "512");
        if let Some(bus) = &self.bus {
            set("cluster-enabled", "yes");
            set("cluster-port", &bus.number().to_string());
            set("cluster-announce-ip", "127.0.0.1");
            set("cluster-node-timeout", "5000");
        }
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        let answer = async {
            let client = redis::Client::open(self.url())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            redis::cmd("PING").query_async::<()>(&mut connection).await
        };
        answer.await.map_err(|error| error.to_string())
    }

    fn url(&self) -> String {
        format!("redis://{}", self.port.address())
    }
}

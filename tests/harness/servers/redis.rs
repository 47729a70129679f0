//! Redis, alone or as one node of a cluster.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::Path,
    process::Command,
};

use redis::RedisResult;
use tempfile::TempDir;

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

/// Why a server that answers takes no writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// It became the replica of a master that is never there (`READONLY`).
    Replica,
    /// It has fewer replicas than it wants (`NOREPLICAS`).
    TooFewReplicas,
    /// It has no memory left (`OOM`).
    OutOfMemory,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Replica, Self::TooFewReplicas, Self::OutOfMemory];

    /// The commands that begin and end it.
    fn commands(self) -> [&'static [&'static str]; 2] {
        match self {
            Self::Replica => [&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]],
            Self::TooFewReplicas => [
                &["CONFIG", "SET", "min-replicas-to-write", "1"],
                &["CONFIG", "SET", "min-replicas-to-write", "0"],
            ],
            Self::OutOfMemory => {
                [&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]]
            }
        }
    }
}

/// What a server had on disk at some instant: its files with their lengths then. Each of them
/// only grows or goes away, so nothing has to be copied.
#[derive(Debug)]
pub struct Past {
    /// Second names of the files, which keep them even if the server removes them.
    kept: TempDir,
    files: Vec<(OsString, u64)>,
}

/// The folder of the append-only file, in the server's.
const FILES: &str = "appendonlydir";
/// It is replaced as a whole, never appended to.
const MANIFEST: &str = "appendonly.aof.manifest";

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

    /// From now on it refuses writes, or takes them again.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn refuse_writes(&self, why: Refusal, refuse: bool) -> RedisResult<()> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let [begin, end] = why.commands();
        let words = if refuse { begin } else { end };
        redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await
    }

    /// Notes what it has on disk now.
    ///
    /// # Errors
    /// When its files cannot be read.
    pub fn note_files(&self) -> io::Result<Past> {
        loop {
            let manifest = self.manifest()?;
            match self.link_files() {
                // It began to write them anew meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(past) if self.manifest()? == manifest => return Ok(past),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Says which files belong together.
    fn manifest(&self) -> io::Result<Vec<u8>> {
        fs::read(self.folder().join(FILES).join(MANIFEST))
    }

    fn link_files(&self) -> io::Result<Past> {
        let mut past = Past { kept: TempDir::new_in(self.folder())?, files: Vec::new() };
        for file in fs::read_dir(self.folder().join(FILES))? {
            let file = file?;
            let kept = past.kept.path().join(file.file_name());
            if file.file_name() == MANIFEST {
                fs::copy(file.path(), kept)?;
            } else {
                fs::hard_link(file.path(), kept)?;
            }
            past.files.push((file.file_name(), file.metadata()?.len()));
        }
        Ok(past)
    }

    /// Kills it and gives it back the files it had then: it forgets what it was told since.
    ///
    /// # Errors
    /// When the files cannot be put in place.
    pub fn kill_and_forget_since(&mut self, past: &Past) -> io::Result<()> {
        self.kill();
        let to = self.folder().join(FILES);
        fs::remove_dir_all(&to)?;
        fs::create_dir(&to)?;
        for (name, length) in &past.files {
            let file = to.join(name);
            fs::rename(past.kept.path().join(name), &file)?;
            File::options().write(true).open(&file)?.set_len(*length)?;
        }
        Ok(())
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

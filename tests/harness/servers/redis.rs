//! Redis, alone or as one node of a cluster.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::Path,
    process::Command,
    time::Duration,
};

use redis::{AsyncConnectionConfig, RedisResult, aio::MultiplexedConnection};
use tempfile::TempDir;

use super::{
    Kind, Server, ServerError, program, system,
    tls::{Tls, TlsListener},
};
use crate::ports::{Port, free_port};

/// The deadline of a connection and of each answer: the client's own half second is too short for a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A Redis server.
pub type Redis = Server<RedisKind>;

/// Connects a test to a server. Each answer may take a minute.
///
/// # Errors
/// If the server cannot be reached.
pub async fn redis_connection(client: &redis::Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(DEADLINE))
        .set_response_timeout(Some(DEADLINE));
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// The kind of server that Redis is.
#[derive(Debug)]
pub struct RedisKind {
    port: Port,
    /// The cluster bus port, if this is a node of a cluster.
    bus: Option<Port>,
    /// `appendfsync`: when writes reach the disk.
    sync: &'static str,
    tls: Option<TlsListener>,
}

/// Why a server that answers refuses writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// It became the replica of a master that never answers (`READONLY`).
    Replica,
    /// It has fewer replicas than `min-replicas-to-write` (`NOREPLICAS`).
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

/// The files of a server at some instant, with their lengths then. A file only grows
/// or is removed, so hard links suffice and nothing has to be copied.
#[derive(Debug)]
pub struct FilesSnapshot {
    /// Hard links to the files, which keep them even if the server removes them.
    links: TempDir,
    files: Vec<(OsString, u64)>,
}

/// The folder of the append-only file, inside the server's folder.
const FILES: &str = "appendonlydir";
/// Lists the files that belong together. It is replaced as a whole, never appended to.
const MANIFEST: &str = "appendonly.aof.manifest";

/// Once a second, as in production.
const EVERY_SECOND: &str = "everysec";
/// Before each write is answered. With [`EVERY_SECOND`] a kill may lose answered writes too: if the
/// disk is slow, Redis holds them back for up to two seconds.
const ALWAYS: &str = "always";

impl Server<RedisKind> {
    /// Starts one on its own.
    pub async fn start() -> Result<Self, ServerError> {
        Self::start_kind(RedisKind::new(None, None)?).await
    }

    /// Starts one that has a TLS listener as well.
    pub async fn start_with_tls(tls: Tls) -> Result<Self, ServerError> {
        Self::start_kind(RedisKind::new(None, Some(tls))?).await
    }

    /// From now on, also after a restart, every write is on disk before it is answered.
    pub async fn sync_always(&mut self) -> RedisResult<()> {
        self.kind.sync = ALWAYS;
        let client = redis::Client::open(self.url())?;
        let mut connection = redis_connection(&client).await?;
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("appendfsync").arg(ALWAYS).query_async(&mut connection).await
    }

    /// Sets a limit of its memory, in bytes.
    pub async fn limit_memory(&self, bytes: u64) -> RedisResult<()> {
        let client = redis::Client::open(self.url())?;
        let mut connection = redis_connection(&client).await?;
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory").arg(bytes).query_async(&mut connection).await
    }

    /// Makes it refuse writes from now on (`refuse`), or accept them again.
    pub async fn refuse_writes(&self, why: Refusal, refuse: bool) -> RedisResult<()> {
        let client = redis::Client::open(self.url())?;
        let mut connection = redis_connection(&client).await?;
        let [begin, end] = why.commands();
        let words = if refuse { begin } else { end };
        redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await
    }

    /// Takes a snapshot of what it has on disk now.
    pub fn snapshot_files(&self) -> io::Result<FilesSnapshot> {
        loop {
            let manifest = self.manifest()?;
            match self.link_files() {
                // It began to rewrite its files meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(snapshot) if self.manifest()? == manifest => return Ok(snapshot),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn manifest(&self) -> io::Result<Vec<u8>> {
        fs::read(self.folder().join(FILES).join(MANIFEST))
    }

    fn link_files(&self) -> io::Result<FilesSnapshot> {
        let mut snapshot =
            FilesSnapshot { links: TempDir::new_in(self.folder())?, files: Vec::new() };
        for file in fs::read_dir(self.folder().join(FILES))? {
            let file = file?;
            let link = snapshot.links.path().join(file.file_name());
            if file.file_name() == MANIFEST {
                fs::copy(file.path(), link)?;
            } else {
                fs::hard_link(file.path(), link)?;
            }
            snapshot.files.push((file.file_name(), file.metadata()?.len()));
        }
        Ok(snapshot)
    }

    /// Kills it and restores the files of a snapshot: it loses all writes since then.
    pub fn kill_and_restore(&mut self, snapshot: &FilesSnapshot) -> io::Result<()> {
        self.kill();
        let to = self.folder().join(FILES);
        fs::remove_dir_all(&to)?;
        fs::create_dir(&to)?;
        for (name, length) in &snapshot.files {
            let file = to.join(name);
            fs::rename(snapshot.links.path().join(name), &file)?;
            File::options().write(true).open(&file)?.set_len(*length)?;
        }
        Ok(())
    }

    /// Starts one that can become part of a cluster.
    pub(super) async fn start_node(tls: Option<Tls>) -> Result<Self, ServerError> {
        let bus = free_port().map_err(system::<RedisKind>)?;
        Self::start_kind(RedisKind::new(Some(bus), tls)?).await
    }

    /// `127.0.0.1:port`
    pub(super) fn address(&self) -> String {
        self.kind.port.address()
    }

    /// Its port and its bus port, as `CLUSTER MEET` wants them: with TLS, the nodes use the TLS port
    /// with each other.
    pub(super) fn ports(&self) -> (u16, Option<u16>) {
        let port = self.kind.tls.as_ref().map_or(&self.kind.port, |listener| &listener.port);
        (port.number(), self.kind.bus.as_ref().map(Port::number))
    }
}

impl RedisKind {
    fn new(bus: Option<Port>, tls: Option<Tls>) -> Result<Self, ServerError> {
        let port = free_port().map_err(system::<Self>)?;
        let tls = tls.map(TlsListener::new).transpose().map_err(system::<Self>)?;
        Ok(Self { port, bus, sync: EVERY_SECOND, tls })
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
        // As in production: the index is kept on disk, is never evicted, and its small hashes stay
        // in the compact encoding.
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
        if let Some(listener) = &self.tls {
            let [certificate, key, authority] = listener.files();
            set("tls-port", &listener.port.number().to_string());
            set("tls-cert-file", &certificate);
            set("tls-key-file", &key);
            set("tls-ca-cert-file", &authority);
            set("tls-auth-clients", if listener.tls.clients_must_prove { "yes" } else { "no" });
            if self.bus.is_some() {
                // Without it, the nodes would name each other's ports in clear to clients.
                set("tls-cluster", "yes");
            }
        }
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        let answer = async {
            let client = redis::Client::open(self.url())?;
            let mut connection = redis_connection(&client).await?;
            redis::cmd("PING").query_async::<()>(&mut connection).await
        };
        answer.await.map_err(|error| error.to_string())
    }

    fn url(&self) -> String {
        format!("redis://{}", self.port.address())
    }

    fn tls_url(&self) -> Option<String> {
        Some(self.tls.as_ref()?.url("rediss", ""))
    }
}

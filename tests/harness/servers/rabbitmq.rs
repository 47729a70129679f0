//! RabbitMQ with a node name, Erlang port mapper, cookie and folders of its own.
//!
//! Erlang nodes find each other through a daemon, epmd, which the first node would start and never
//! end. So each server or cluster starts its own, in the foreground and on its own port.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use futures::future::try_join_all;
use lapin::{Connection, ConnectionProperties};
use tokio::time::timeout;

use super::{
    Kind, Server, ServerError, program, system,
    tls::{Tls, TlsListener},
};
use crate::{
    eventually, namespace,
    ports::{Port, free_port},
    process::{Output, Process},
};

/// A RabbitMQ server.
pub type RabbitMq = Server<RabbitMqKind>;

/// The kind of server that RabbitMQ is.
#[derive(Debug)]
pub struct RabbitMqKind {
    port: Port,
    /// For the connections between Erlang nodes. A node that is alone binds it too.
    distribution: Port,
    mapper: Arc<Mapper>,
    /// The nodes of its cluster, including itself; empty if it is alone.
    peers: Vec<String>,
    log: Log,
    tls: Option<TlsListener>,
    /// Where the management plugin listens, if it is on.
    management: Option<Port>,
    /// Where the plugin `rabbitmq_prometheus` listens, if it is on.
    metrics: Option<Port>,
}

/// Size that the write-ahead log of quorum queues may reach before RabbitMQ writes what is still
/// queued a second time.
#[derive(Debug)]
enum Log {
    /// 64 MB, so that many servers at once fit on a small disk.
    Small,
    /// RabbitMQ's default: 512 MB.
    Ordinary,
}

/// Means by which the nodes of a cluster find each other: a port mapper and a cookie.
#[derive(Debug)]
pub(super) struct Mapper {
    port: Port,
    cookie: String,
    _process: Process,
}

impl Mapper {
    pub(super) fn start() -> Result<Arc<Self>, ServerError> {
        let port = free_port().map_err(system::<RabbitMqKind>)?;
        let mut command = program("epmd")?;
        command.args(["-address", "127.0.0.1", "-port", &port.number().to_string()]);
        let log = Path::new("/dev/null");
        let process =
            Process::spawn(&command, Output::Log(log), None).map_err(system::<RabbitMqKind>)?;
        Ok(Arc::new(Self { port, cookie: namespace(), _process: process }))
    }
}

/// Where Debian has the start script itself. The one in Debian's `PATH` refuses every user but the
/// server's own.
const DEBIAN: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// Where Debian has the tool itself, for the same reason.
const DEBIAN_TOOL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";

/// Deadline for the name of a queue to reach the disk. Erlang writes it within about a second.
const NAMED_DEADLINE: Duration = Duration::from_secs(30);
/// Deadline of the tool. It starts an Erlang node of its own, which takes seconds.
const CONTROL_DEADLINE: Duration = Duration::from_secs(60);

impl Server<RabbitMqKind> {
    /// Starts one. This takes 5 s or more.
    pub async fn start() -> Result<Self, ServerError> {
        let kind = RabbitMqKind::new(&Mapper::start()?)?;
        Self::start_kind(kind).await
    }

    /// Starts one that has a TLS listener as well.
    pub async fn start_with_tls(tls: Tls) -> Result<Self, ServerError> {
        let tls = TlsListener::new(tls).map_err(system::<RabbitMqKind>)?;
        let kind = RabbitMqKind { tls: Some(tls), ..RabbitMqKind::new(&Mapper::start()?)? };
        Self::start_kind(kind).await
    }

    /// Starts one with its management plugin.
    pub async fn start_with_management() -> Result<Self, ServerError> {
        let management = Some(free_port().map_err(system::<RabbitMqKind>)?);
        let kind = RabbitMqKind { management, ..RabbitMqKind::new(&Mapper::start()?)? };
        Self::start_kind(kind).await
    }

    /// `http://127.0.0.1:port` of the management plugin.
    pub fn management_url(&self) -> String {
        let port = self.kind.management.as_ref();
        format!("http://{}", port.map(Port::address).unwrap_or_else(|| panic!("not started")))
    }

    /// Starts one with its plugin `rabbitmq_prometheus`.
    pub async fn start_with_metrics() -> Result<Self, ServerError> {
        let metrics = Some(free_port().map_err(system::<RabbitMqKind>)?);
        let kind = RabbitMqKind { metrics, ..RabbitMqKind::new(&Mapper::start()?)? };
        Self::start_kind(kind).await
    }

    /// `127.0.0.1:port` of the plugin `rabbitmq_prometheus`.
    pub fn metrics_address(&self) -> String {
        let port = self.kind.metrics.as_ref();
        port.map(Port::address).unwrap_or_else(|| panic!("not started"))
    }

    /// Starts one for benchmarks, with the default size of the log.
    pub async fn start_to_measure() -> Result<Self, ServerError> {
        let kind = RabbitMqKind { log: Log::Ordinary, ..RabbitMqKind::new(&Mapper::start()?)? };
        Self::start_kind(kind).await
    }

    /// Starts nodes that form a cluster. They start at the same time, because each waits for the
    /// others.
    pub(super) async fn start_cluster(size: usize) -> Result<Vec<Self>, ServerError> {
        let mapper = Mapper::start()?;
        let kinds: Result<Vec<_>, _> = (0..size).map(|_| RabbitMqKind::new(&mapper)).collect();
        let mut kinds = kinds?;
        let peers: Vec<String> = kinds.iter().map(RabbitMqKind::node).collect();
        for kind in &mut kinds {
            kind.peers.clone_from(&peers);
        }
        try_join_all(kinds.into_iter().map(Self::start_kind)).await
    }

    /// `127.0.0.1:port`
    pub(super) fn address(&self) -> String {
        self.kind.port.address()
    }

    /// Its Erlang node name, as lists of queues and connections show it.
    pub fn node(&self) -> String {
        self.kind.node()
    }

    /// Waits until a quorum queue, declared a moment ago, would survive a kill.
    ///
    /// RabbitMQ before 3.13 confirms the declaration up to a second before the name of the new
    /// queue is on disk (rabbitmq/ra pull request 443). If it is killed within that time, the queue
    /// never has a leader again. No client can mend that fault of the broker, so tests that kill it
    /// wait for this first.
    pub async fn wait_until_known_on_disk(&self, queue: &str) {
        let node = self.kind.node();
        let file = self.folder().join("data").join(&node).join("quorum").join(&node);
        let file = file.join("names.dets");
        // The file has it as an Erlang atom: a byte of length, then virtual host and name.
        let name = format!("%2F_{queue}");
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        let atom = [&[length], name.as_bytes()].concat();
        eventually(&format!("{queue} is named on disk"), NAMED_DEADLINE, async || {
            let names = std::fs::read(&file).map_err(|error| error.to_string())?;
            let found = names.windows(atom.len()).any(|window| window == atom);
            found.then_some(()).ok_or_else(|| format!("not in {}", file.display()))
        })
        .await;
    }

    /// Runs `rabbitmqctl` on this server, and returns its standard output.
    ///
    /// # Errors
    /// Its standard error, if it fails.
    pub async fn control(&self, arguments: &[&str]) -> Result<String, String> {
        let tool = PathBuf::from(DEBIAN_TOOL);
        let tool = if tool.is_file() { tool } else { PathBuf::from("rabbitmqctl") };
        let mut command = tokio::process::Command::new(tool);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        command.envs(self.kind.environment(self.folder()));
        let output = timeout(CONTROL_DEADLINE, command.output())
            .await
            .map_err(|_| format!("rabbitmqctl {arguments:?} takes too long"))?
            .map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

impl RabbitMqKind {
    /// The environment that the server and `rabbitmqctl` need in common.
    fn environment(&self, folder: &Path) -> [(&'static str, OsString); 5] {
        [
            ("HOME", folder.into()),
            ("RABBITMQ_NODENAME", self.node().into()),
            ("ERL_EPMD_PORT", self.mapper.port.number().to_string().into()),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
            ("RABBITMQ_CONF_ENV_FILE", "/dev/null".into()),
        ]
    }

    fn node(&self) -> String {
        format!("push-test-{}@localhost", self.port.number())
    }

    fn new(mapper: &Arc<Mapper>) -> Result<Self, ServerError> {
        let port = || free_port().map_err(system::<Self>);
        let (port, distribution) = (port()?, port()?);
        let (peers, log) = (Vec::new(), Log::Small);
        Ok(Self {
            port,
            distribution,
            mapper: mapper.clone(),
            peers,
            log,
            tls: None,
            management: None,
            metrics: None,
        })
    }

    /// The settings files, written anew for every start.
    fn write_settings(&self, folder: &Path) -> io::Result<()> {
        let mut settings = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\n\
             log.console = true\n\
             log.console.level = warning\n\
             log.file = false\n\
             disk_free_limit.absolute = 50MB\n",
            self.port.number(),
        );
        if let Log::Small = self.log {
            settings.push_str("raft.wal_max_size_bytes = 67108864\n");
        }
        if let Some(listener) = &self.tls {
            let [certificate, key, authority] = listener.files();
            let verify = if listener.tls.clients_must_prove { "peer" } else { "none" };
            write!(
                settings,
                "listeners.ssl.1 = 127.0.0.1:{}\n\
                 ssl_options.certfile = {certificate}\n\
                 ssl_options.keyfile = {key}\n\
                 ssl_options.cacertfile = {authority}\n\
                 ssl_options.verify = verify_{verify}\n\
                 ssl_options.fail_if_no_peer_cert = {}\n",
                listener.port.number(),
                listener.tls.clients_must_prove,
            )
            .map_err(io::Error::other)?;
        }
        if !self.peers.is_empty() {
            settings.push_str("cluster_formation.peer_discovery_backend = classic_config\n");
        }
        for (number, peer) in (1..).zip(&self.peers) {
            writeln!(settings, "cluster_formation.classic_config.nodes.{number} = {peer}")
                .map_err(io::Error::other)?;
        }
        let mut plugins = Vec::new();
        for (name, port) in [("management", &self.management), ("prometheus", &self.metrics)] {
            let Some(port) = port else { continue };
            plugins.push(format!("rabbitmq_{name}"));
            writeln!(settings, "{name}.tcp.ip = 127.0.0.1\n{name}.tcp.port = {}", port.number())
                .map_err(io::Error::other)?;
        }
        std::fs::write(folder.join("rabbitmq.conf"), settings)?;
        std::fs::write(folder.join("enabled_plugins"), format!("[{}].", plugins.join(",")))?;
        let cookie = folder.join(".erlang.cookie");
        if !cookie.exists() {
            std::fs::write(&cookie, &self.mapper.cookie)?;
            // Erlang refuses a cookie that other users may read.
            std::fs::set_permissions(&cookie, Permissions::from_mode(0o400))?;
        }
        Ok(())
    }
}

impl Kind for RabbitMqKind {
    const NAME: &'static str = "RabbitMQ";

    fn command(&self, folder: &Path) -> Result<Command, ServerError> {
        self.write_settings(folder).map_err(system::<Self>)?;
        let script = PathBuf::from(DEBIAN);
        let mut command =
            if script.is_file() { Command::new(script) } else { program("rabbitmq-server")? };
        command
            // Makes the start script replace itself by Erlang, so that the process id is
            // Erlang's.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .envs(self.environment(folder))
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", self.port.number().to_string())
            .env("RABBITMQ_DIST_PORT", self.distribution.number().to_string())
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
            )
            .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", folder.join("advanced.config"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("enabled_plugins"))
            .env("RABBITMQ_MNESIA_BASE", folder.join("data"))
            .env("RABBITMQ_PLUGINS_EXPAND_DIR", folder.join("plugins"))
            .env("RABBITMQ_LOG_BASE", folder.join("log"))
            .env("RABBITMQ_PID_FILE", folder.join("rabbitmq.pid"));
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        let answer = async {
            let connection =
                Connection::connect(&self.url(), ConnectionProperties::default()).await?;
            let channel = connection.create_channel().await?;
            channel.close(200, "answered".into()).await?;
            connection.close(200, "answered".into()).await
        };
        answer.await.map_err(|error| error.to_string())
    }

    fn url(&self) -> String {
        format!("amqp://guest:guest@{}/%2f", self.port.address())
    }

    fn tls_url(&self) -> Option<String> {
        Some(self.tls.as_ref()?.url("amqps", "guest:guest@") + "/%2f")
    }
}

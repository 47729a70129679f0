//! Real servers on free ports of loopback, with their own data folders.
//!
//! Their settings are those of production wherever a test could tell the difference. A [`Server`]
//! can be killed, frozen and restarted on the same port and data, and ends with the test. Each kind
//! of server is a [`Kind`], with a file of its own.

mod mosquitto;
mod nghttpd;
mod prometheus;
mod rabbitmq;
mod rabbitmq_cluster;
mod redis;
mod redis_cluster;
mod tls;

use std::{
    future::Future,
    io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::time::{sleep, timeout};

pub use self::{
    mosquitto::Mosquitto,
    nghttpd::Nghttpd,
    prometheus::Prometheus,
    rabbitmq::RabbitMq,
    rabbitmq_cluster::RabbitMqCluster,
    redis::{FilesSnapshot, Redis, Refusal, redis_connection},
    redis_cluster::RedisCluster,
    tls::Tls,
};
use crate::process::{Output, Process, installed, log_tail};

/// Deadline for a server to answer after its start. RabbitMQ takes 5 s on an idle machine with
/// two cores, and test machines are not idle.
const START_DEADLINE: Duration = Duration::from_secs(90);
/// Deadline of one attempt to get an answer from a starting server.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);

/// A kind of server: all that differs from one kind to another.
pub trait Kind {
    /// Its name in error messages.
    const NAME: &'static str;

    /// The command that runs it in the foreground with its data in `folder`; called for every
    /// start.
    fn command(&self, folder: &Path) -> Result<Command, ServerError>;

    /// Makes a request in its own protocol; `Err` says what came instead of an answer.
    fn answers(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// The URL at which it answers.
    fn url(&self) -> String;

    /// The URL of its TLS listener, if it has one.
    fn tls_url(&self) -> Option<String>;
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server<K: Kind> {
    process: Process,
    kind: K,
    folder: TempDir,
}

/// Why a server could not be started.
#[derive(thiserror::Error)]
pub enum ServerError {
    /// It is not installed on this machine.
    #[error("{0} is not installed: ./tests/run installs it or says how")]
    NotInstalled(&'static str),
    /// The system refused a process, a port or a folder.
    #[error("the system refuses to run {name}: {source}")]
    System {
        /// The server.
        name: &'static str,
        /// The refusal.
        source: io::Error,
    },
    /// It ended instead of answering.
    #[error("{name} ended ({status}) instead of answering; its log ends with:\n{log}")]
    Ended {
        /// The server.
        name: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// It runs but never answered.
    #[error("{name} does not answer after {START_DEADLINE:?}: {last}; its log ends with:\n{log}")]
    Silent {
        /// The server.
        name: &'static str,
        /// The failure of the last attempt.
        last: String,
        /// The end of its log.
        log: String,
    },
}

/// The same text as `Display`, because `unwrap` in a test prints this one.
impl std::fmt::Debug for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl<K: Kind> Server<K> {
    /// Starts it in a new folder and waits until it answers.
    async fn start_kind(kind: K) -> Result<Self, ServerError> {
        let folder =
            tempfile::Builder::new().prefix("push-test-server-").tempdir().map_err(system::<K>)?;
        let process = spawn(&kind, folder.path())?;
        let mut server = Self { process, kind, folder };
        server.wait_until_it_answers().await?;
        Ok(server)
    }

    /// The URL at which it answers.
    pub fn url(&self) -> String {
        self.kind.url()
    }

    /// The URL of its TLS listener, with the name `localhost`.
    pub fn tls_url(&self) -> String {
        self.kind.tls_url().unwrap_or_else(|| panic!("this {} has no TLS", K::NAME))
    }

    /// The process id of the server.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns where it keeps its data and its log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills it (SIGKILL). Its data stay for [`restart`](Self::restart).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Kills it if it runs, and starts it again on the same port and data.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.kill();
        self.process = spawn(&self.kind, self.folder.path())?;
        self.wait_until_it_answers().await
    }

    /// Freezes it (SIGSTOP): connections stay open and nothing is answered.
    pub fn freeze(&self) -> io::Result<()> {
        self.process.freeze()
    }

    /// Lets it go on after [`freeze`](Self::freeze).
    pub fn thaw(&self) -> io::Result<()> {
        self.process.thaw()
    }

    async fn wait_until_it_answers(&mut self) -> Result<(), ServerError> {
        let log = || log_tail(&log_file(self.folder.path()));
        let started = Instant::now();
        loop {
            let answer = timeout(ATTEMPT_TIMEOUT, self.kind.answers()).await;
            let last = match answer {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(seen)) => seen,
                Err(_) => format!("nothing in {ATTEMPT_TIMEOUT:?}"),
            };
            if let Some(status) = self.process.ended().map_err(system::<K>)? {
                return Err(ServerError::Ended { name: K::NAME, status, log: log() });
            }
            if started.elapsed() > START_DEADLINE {
                return Err(ServerError::Silent { name: K::NAME, last, log: log() });
            }
            sleep(ATTEMPT_PAUSE).await;
        }
    }
}

fn spawn<K: Kind>(kind: &K, folder: &Path) -> Result<Process, ServerError> {
    let mut command = kind.command(folder)?;
    command.current_dir(folder);
    Process::spawn(&command, Output::Log(&log_file(folder)), Some(folder)).map_err(system::<K>)
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("server.log")
}

fn program(name: &'static str) -> Result<Command, ServerError> {
    installed(name).map(Command::new).ok_or(ServerError::NotInstalled(name))
}

fn system<K: Kind>(source: io::Error) -> ServerError {
    ServerError::System { name: K::NAME, source }
}

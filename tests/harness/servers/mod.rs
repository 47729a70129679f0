//! Real servers on free ports of loopback, with their own data folders.
//!
//! They are set as the production files set them, as far as tests can tell the difference. A
//! [`Server`] can be killed, frozen and restarted on the same port and data, and ends with the
//! test. What differs from one server to another is its [`Kind`]: one file each.

mod mosquitto;
mod rabbitmq;
mod rabbitmq_cluster;
mod redis;
mod redis_cluster;

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
    rabbitmq::RabbitMq,
    rabbitmq_cluster::RabbitMqCluster,
    redis::{Past, Redis, Refusal},
    redis_cluster::RedisCluster,
};
use crate::process::{Output, Process, installed, log_tail};

/// A server has this long to answer after its start. Generous: RabbitMQ takes 5 s on an idle
/// machine with two cores, and test machines are not idle.
const START_DEADLINE: Duration = Duration::from_secs(90);
/// One attempt to have an answer from a starting server.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);

/// What one server is made of.
pub trait Kind {
    /// How messages name it.
    const NAME: &'static str;

    /// The command that runs it in the foreground with its data in `folder`; called for every
    /// start.
    ///
    /// # Errors
    /// When the server is not installed, or its settings cannot be written.
    fn command(&self, folder: &Path) -> Result<Command, ServerError>;

    /// Asks it something in its own protocol: `Err` says what came instead of an answer.
    fn answers(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// Where it answers.
    fn url(&self) -> String;
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server<K: Kind> {
    process: Process,
    kind: K,
    folder: TempDir,
}

/// Why there is no server.
#[derive(thiserror::Error)]
pub enum ServerError {
    /// Not on this machine.
    #[error("{0} is not installed: ./tests/run installs it or says how")]
    NotInstalled(&'static str),
    /// The system refused a process, a port or a folder.
    #[error("the system refuses to run {name}: {source}")]
    System {
        /// Which server.
        name: &'static str,
        /// The refusal.
        source: io::Error,
    },
    /// It ended instead of answering.
    #[error("{name} ended ({status}) instead of answering; its log ends with:\n{log}")]
    Ended {
        /// Which server.
        name: &'static str,
        /// How.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// It runs but never answered.
    #[error("{name} does not answer after {START_DEADLINE:?}: {last}; its log ends with:\n{log}")]
    Silent {
        /// Which server.
        name: &'static str,
        /// What came instead of an answer.
        last: String,
        /// The end of its log.
        log: String,
    },
}

/// As text, since that is what an `unwrap` in a test prints.
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

    /// Where it answers.
    pub fn url(&self) -> String {
        self.kind.url()
    }

    /// The process id of the server.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Where it keeps its data and its log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills it (SIGKILL); its data stay for [`restart`](Self::restart).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, after killing it if it runs, on the same port and data.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.kill();
        self.process = spawn(&self.kind, self.folder.path())?;
        self.wait_until_it_answers().await
    }

    /// Freezes it (SIGSTOP): connections stay open and nothing is answered.
    ///
    /// # Errors
    /// When it has ended.
    pub fn freeze(&self) -> io::Result<()> {
        self.process.freeze()
    }

    /// Lets it go on after [`freeze`](Self::freeze).
    ///
    /// # Errors
    /// When it has ended.
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

/// The program, or that it is not installed.
fn program(name: &'static str) -> Result<Command, ServerError> {
    installed(name).map(Command::new).ok_or(ServerError::NotInstalled(name))
}

fn system<K: Kind>(source: io::Error) -> ServerError {
    ServerError::System { name: K::NAME, source }
}

//! `test-servers -- COMMAND`: runs tests, and starts the real servers that they share.
//!
//! The command's environment has the path of a socket, at which a test asks for the URL of a server
//! (`push_tests::run`). The first one that asks makes it start, so a run starts only what it needs. The
//! servers end with the command, with SIGINT, SIGTERM and SIGHUP, and when this program is killed. A
//! signal is passed on to the command first, which has [`STOP_DEADLINE`] to end by itself. The exit
//! code is the command's, or 128 + signal.

use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitCode, ExitStatus},
    rc::Rc,
    time::Duration,
};

use push_tests::{
    process::{Output, Process},
    run::{SERVERS, Shared},
    servers::{Mosquitto, RabbitMq, Redis, RedisCluster, ServerError},
};
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    signal::unix::{Signal as Signals, SignalKind, signal},
    sync::OnceCell,
    task::{LocalSet, spawn_local},
    time::timeout,
};

/// Time that the command has to end after a signal.
const STOP_DEADLINE: Duration = Duration::from_secs(10);
/// Seconds that the command has to end its tests if this program is killed: it has to do
/// so itself, because they need not be in its process group.
const GRACE: u32 = 10;
/// The longest name of a server that is read from the socket, in bytes.
const LONGEST_NAME: u64 = 100;

/// Why there is no exit code of the command.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("usage: test-servers -- COMMAND [ARGUMENT]...")]
    Usage,
    #[error("the system refuses to run the command: {0}")]
    System(#[from] io::Error),
}

/// The servers of one run, each started when it is first asked for.
#[derive(Default)]
struct Servers {
    redis: OnceCell<Redis>,
    redis_cluster: OnceCell<RedisCluster>,
    rabbitmq: OnceCell<RabbitMq>,
    mosquitto: OnceCell<Mosquitto>,
}

/// The signals that end a run.
struct Interruptions {
    interrupt: Signals,
    terminate: Signals,
    hang_up: Signals,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match LocalSet::new().run_until(run()).await {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            report(&failure);
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<u8, Failure> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(separator), Some(program)) = (arguments.next(), arguments.next()) else {
        return Err(Failure::Usage);
    };
    if separator != "--" {
        return Err(Failure::Usage);
    }
    let mut command = Command::new(program);
    command.args(arguments);

    let mut interruptions = Interruptions::new()?;
    // Temporary files that a killed test leaves are in here, and are removed with it.
    let scratch = tempfile::Builder::new().prefix("push-test-run-").tempdir()?;
    let socket = scratch.path().join("servers");
    let listener = UnixListener::bind(&socket)?;
    // Ends with the set of tasks, and the servers with it.
    spawn_local(serve(listener));
    command.env("TMPDIR", scratch.path()).env(SERVERS, &socket);
    let mut ended = signal(SignalKind::child())?;
    let folder = Some(scratch.path());
    let mut process = Process::spawn_with_grace(&command, Output::Inherited, folder, GRACE)?;
    tokio::select! {
        status = wait(&mut process, &mut ended) => Ok(exit_code(status?)),
        signal = interruptions.next() => {
            process.signal_all(signal);
            tokio::select! {
                // Waits for its end only: the exit code is the signal's.
                _ = timeout(STOP_DEADLINE, wait(&mut process, &mut ended)) => {}
                _ = interruptions.next() => {}
            }
            Ok(exit_code_of(signal))
        }
    }
}

/// Answers tests that ask for servers, each on a task of its own: one may wait for a start.
async fn serve(listener: UnixListener) {
    let servers = Rc::new(Servers::default());
    while let Ok((test, _)) = listener.accept().await {
        let servers = Rc::clone(&servers);
        spawn_local(async move {
            // A test that has ended reads no answer.
            let _ = servers.answer(test).await;
        });
    }
}

impl Servers {
    async fn answer(&self, mut test: UnixStream) -> io::Result<()> {
        let mut name = String::new();
        (&mut test).take(LONGEST_NAME).read_to_string(&mut name).await?;
        let answer = match Shared::ALL.into_iter().find(|server| server.name() == name) {
            None => format!("error no server is called {name:?}"),
            Some(server) => match self.url(server).await {
                Ok(url) => format!("url {url}"),
                Err(error) => format!("error {error}"),
            },
        };
        test.write_all(answer.as_bytes()).await
    }

    async fn url(&self, server: Shared) -> Result<String, ServerError> {
        Ok(match server {
            Shared::Redis => self.redis.get_or_try_init(Redis::start).await?.url(),
            Shared::RedisCluster => {
                self.redis_cluster.get_or_try_init(RedisCluster::start).await?.url()
            }
            Shared::RabbitMq => self.rabbitmq.get_or_try_init(RabbitMq::start).await?.url(),
            Shared::Mosquitto => self.mosquitto.get_or_try_init(Mosquitto::start).await?.url(),
        })
    }
}

impl Interruptions {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}

async fn wait(process: &mut Process, ended: &mut Signals) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = process.ended()? {
            return Ok(status);
        }
        // The end of any child wakes this, also of a server: the check above tells them apart.
        ended.recv().await;
    }
}

/// As shells do: the code, or 128 + signal.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn exit_code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}

#[allow(clippy::print_stderr, reason = "a command-line tool prints why it failed")]
fn report(failure: &Failure) {
    eprintln!("test-servers: {failure}");
}

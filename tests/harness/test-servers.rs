//! `test-servers -- COMMAND`: runs a command with one set of real servers around it.
//!
//! The command finds their URLs in its environment. The servers end with the command, with SIGINT,
//! SIGTERM and SIGHUP, and when this program is killed. A signal is passed on to the command first,
//! which has [`STOP_DEADLINE`] to end by itself. The exit code is the command's, or 128 + signal.

use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitCode, ExitStatus},
    time::Duration,
};

use push_tests::{
    process::{Output, Process},
    run::{AMQP_URL, MQTT_URL, REDIS_CLUSTER_URL, REDIS_URL},
    servers::{Mosquitto, RabbitMq, Redis, RedisCluster, ServerError},
};
use rustix::process::Signal;
use tokio::{
    signal::unix::{Signal as Signals, SignalKind, signal},
    time::timeout,
};

/// How long the command has to end after a signal.
const STOP_DEADLINE: Duration = Duration::from_secs(10);
/// How long the command has, in seconds, to end its tests if this program is killed: it has to do
/// so itself, because they need not be in its process group.
const GRACE: u32 = 10;

/// Why there is no exit code of the command.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("usage: test-servers -- COMMAND [ARGUMENT]...")]
    Usage,
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("the system refuses to run the command: {0}")]
    System(#[from] io::Error),
}

/// The servers of one run.
struct Servers {
    redis: Redis,
    redis_cluster: RedisCluster,
    rabbitmq: RabbitMq,
    mosquitto: Mosquitto,
}

/// The signals that end a run.
struct Interruptions {
    interrupt: Signals,
    terminate: Signals,
    hang_up: Signals,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
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
    let servers = tokio::select! {
        servers = Servers::start() => servers?,
        signal = interruptions.next() => return Ok(exit_code_of(signal)),
    };
    // Temporary files that a killed test leaves are in here, and are removed with it.
    let scratch = tempfile::Builder::new().prefix("push-test-run-").tempdir()?;
    command
        .env("TMPDIR", scratch.path())
        .env(REDIS_URL, servers.redis.url())
        .env(REDIS_CLUSTER_URL, servers.redis_cluster.url())
        .env(AMQP_URL, servers.rabbitmq.url())
        .env(MQTT_URL, servers.mosquitto.url());
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

impl Servers {
    async fn start() -> Result<Self, ServerError> {
        let (redis, redis_cluster, rabbitmq, mosquitto) = tokio::try_join!(
            Redis::start(),
            RedisCluster::start(),
            RabbitMq::start(),
            Mosquitto::start(),
        )?;
        Ok(Self { redis, redis_cluster, rabbitmq, mosquitto })
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

//! Access to the run: the URLs of the shared servers, and a namespace for each test.
//!
//! A test asks for a server over a socket of `test-servers`, which starts the server for the first
//! test that asks. The socket's path is in the environment, because test runners start every test
//! binary (nextest: every test) as a process of its own.

use std::{
    io::{Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use uuid::Uuid;

/// Environment variable with the path of the socket at which the run gives the URLs of its servers.
pub const SERVERS: &str = "PUSH_TEST_SERVERS";
/// Deadline for a server that may be starting: longer than the start may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// A server that the tests of a run share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// `redis://127.0.0.1:port`
    Redis,
    /// `redis-cluster://127.0.0.1:port,127.0.0.1:port,…`
    RedisCluster,
    /// `amqp://guest:guest@127.0.0.1:port/%2f`
    RabbitMq,
    /// `mqtt://127.0.0.1:port`
    Mosquitto,
}

impl Shared {
    /// Every server.
    pub const ALL: [Self; 4] = [Self::Redis, Self::RedisCluster, Self::RabbitMq, Self::Mosquitto];

    /// Its name on the socket.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::RedisCluster => "redis-cluster",
            Self::RabbitMq => "rabbitmq",
            Self::Mosquitto => "mosquitto",
        }
    }

    /// Asks the run with this socket for the server's URL; the server is started if it is not running.
    pub fn url(self, socket: &Path) -> Result<String, String> {
        let ask = || {
            let mut run = UnixStream::connect(socket)?;
            run.set_read_timeout(Some(DEADLINE))?;
            run.write_all(self.name().as_bytes())?;
            run.shutdown(Shutdown::Write)?;
            let mut answer = String::new();
            run.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = ask().map_err(|error| format!("{}: {error}", socket.display()))?;
        match answer.split_once(' ') {
            Some(("url", url)) => Ok(url.to_owned()),
            Some(("error", error)) => Err(error.to_owned()),
            _ => Err(format!("the run gave no URL of {}", self.name())),
        }
    }

    fn url_of_this_run(self) -> String {
        let Some(socket) = std::env::var_os(SERVERS) else {
            panic!("{SERVERS} is not set: run the tests with ./tests/run");
        };
        self.url(Path::new(&socket)).unwrap_or_else(|error| panic!("no {}: {error}", self.name()))
    }
}

/// The URL of the run's Redis.
pub fn redis_url() -> String {
    Shared::Redis.url_of_this_run()
}

/// The URL of the run's Redis Cluster.
pub fn redis_cluster_url() -> String {
    Shared::RedisCluster.url_of_this_run()
}

/// The URL of the run's RabbitMQ.
pub fn amqp_url() -> String {
    Shared::RabbitMq.url_of_this_run()
}

/// The URL of the run's Mosquitto.
pub fn mqtt_url() -> String {
    Shared::Mosquitto.url_of_this_run()
}

/// A unique name for the queues and keys of one test: 17 of `a-z 0-9`.
///
/// It is short because it is part of every key.
pub fn namespace() -> String {
    let (_, random) = Uuid::now_v7().as_u64_pair();
    format!("t{random:016x}")
}

/// A pattern of the keys in Redis that hold the expanded ledger entry of the message with this id.
pub fn ledger_key_pattern(id: &str) -> String {
    let id: String = id.chars().filter(char::is_ascii_hexdigit).take(24).collect();
    format!("*:m{id}.*")
}

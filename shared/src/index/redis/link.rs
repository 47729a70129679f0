//! The connection to Redis or Redis Cluster: one that many callers share, that answers within a
//! bounded time, and that comes back by itself.
//!
//! The reconnecting connections of the `redis` crate are not used as they are. Its
//! `ConnectionManager` does not take a time-out for a reason to reconnect, so that a server that
//! vanished without closing (a host that lost power, a firewall that forgot) is never left; and
//! building a cluster connection can wait without end. So a connection is thrown away here after
//! every error that may be its fault, a time-out included, and made anew under a time-out of its
//! own, by one caller at a time, and not more often than every [`RECONNECT_PAUSE`].

use std::{
    fmt, io,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo},
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::RedisSettings;
use crate::index::IndexError;

/// After a failed connection attempt, calls fail at once for this long instead of trying again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How often the cluster connection follows a redirection or tries another node.
const CLUSTER_RETRIES: u32 = 3;

/// Something to be answered by the server.
#[derive(Clone, Copy)]
enum Request<'a> {
    Command(&'a Cmd),
    Pipeline(&'a Pipeline),
}

/// A shared connection and how to make it anew.
pub(super) struct Link {
    server: Server,
    settings: RedisSettings,
    current: RwLock<Option<Numbered>>,
    /// Held while connecting; holds when and why the last attempt failed.
    connecting: Mutex<Option<(Instant, RedisError)>>,
    made: AtomicU64,
}

#[derive(Clone)]
struct Numbered {
    number: u64,
    connection: Connection,
}

#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

#[derive(Clone)]
pub(super) enum Server {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
}

impl Server {
    /// Reads `redis://…`, `rediss://…` or `redis-cluster://[user:password@]host:port,host:port`.
    pub(super) fn open(url: &str, settings: &RedisSettings) -> Result<Self, IndexError> {
        if url.starts_with("rediss:") {
            // Dependencies bring two providers, and rustls panics where it finds no choice made.
            // An error says that the program chose one before, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let Some(rest) = url.strip_prefix("redis-cluster://") else {
            let client = Client::open(url).map_err(index_error)?;
            return Ok(Self::Single(Box::new(client)));
        };
        let rest = rest.split(['/', '?']).next().unwrap_or_default();
        let (credentials, hosts) = match rest.rsplit_once('@') {
            Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
            None => (String::new(), rest),
        };
        let nodes = hosts.split(',').map(|host| format!("redis://{credentials}{host}"));
        ClusterClient::builder(nodes)
            .connection_timeout(settings.connect_timeout)
            .response_timeout(settings.response_timeout)
            .retries(CLUSTER_RETRIES)
            .build()
            .map(|client| Self::Cluster(Box::new(client)))
            .map_err(index_error)
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    async fn connect(&self, settings: &RedisSettings) -> Result<Connection, RedisError> {
        let connect = async {
            match self {
                Self::Single(client) => {
                    let config = AsyncConnectionConfig::new()
                        .set_connection_timeout(Some(settings.connect_timeout))
                        .set_response_timeout(Some(settings.response_timeout));
                    client
                        .get_multiplexed_async_connection_with_config(&config)
                        .await
                        .map(Connection::Single)
                }
                Self::Cluster(client) => {
                    client.get_async_connection().await.map(Connection::Cluster)
                }
            }
        };
        timeout(settings.connect_timeout, connect).await.unwrap_or_else(|_| Err(timed_out()))
    }
}

impl Connection {
    async fn execute(&mut self, request: Request<'_>) -> Result<Value, RedisError> {
        let answer = match (self, request) {
            (Self::Single(c), Request::Command(cmd)) => c.req_packed_command(cmd).await,
            (Self::Cluster(c), Request::Command(cmd)) => c.req_packed_command(cmd).await,
            (Self::Single(c), Request::Pipeline(pipe)) => execute_pipeline(c, pipe).await,
            (Self::Cluster(c), Request::Pipeline(pipe)) => execute_pipeline(c, pipe).await,
        };
        answer?.extract_error()
    }
}

async fn execute_pipeline(
    connection: &mut impl ConnectionLike,
    pipe: &Pipeline,
) -> Result<Value, RedisError> {
    if pipe.is_transaction() {
        // The answers stand together in that of EXEC, the last one.
        let mut exec = connection.req_packed_commands(pipe, pipe.len() + 1, 1).await?;
        Ok(exec.pop().unwrap_or_default())
    } else {
        connection.req_packed_commands(pipe, 0, pipe.len()).await.map(Value::Array)
    }
}

impl Link {
    pub(super) fn new(server: Server, settings: RedisSettings) -> Self {
        Self {
            server,
            settings,
            current: RwLock::default(),
            connecting: Mutex::default(),
            made: AtomicU64::new(0),
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.server.is_cluster()
    }

    /// Sends a command that may do something.
    pub(super) async fn command(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        self.execute(Request::Command(cmd)).await
    }

    /// Sends a command that only reads. If the connection turns out to be broken, as it is after
    /// a restart of the server, the command is sent once more on a new one.
    pub(super) async fn read(&self, cmd: &Cmd) -> Result<Value, IndexError> {
        self.execute_again(Request::Command(cmd)).await.map_err(index_error)
    }

    /// Sends commands that only read, on keys of one hash tag, in this order; as one step if the
    /// pipeline is atomic.
    pub(super) async fn read_all(&self, pipe: &Pipeline) -> Result<Vec<Value>, IndexError> {
        match self.execute_again(Request::Pipeline(pipe)).await.map_err(index_error)? {
            Value::Array(answers) if answers.len() == pipe.len() => Ok(answers),
            _ => Err(IndexError::Corrupt("a pipeline's answer has another length".to_owned())),
        }
    }

    /// Asks every node that holds data: its address and its answer. A single server has no
    /// address here.
    pub(super) async fn each_node(&self, cmd: &Cmd) -> Result<Vec<(String, Value)>, IndexError> {
        let Numbered { connection, .. } = self.connection().await.map_err(index_error)?;
        let Connection::Cluster(mut cluster) = connection else {
            return Ok(vec![(String::new(), self.read(cmd).await?)]);
        };
        let routing = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let limit = self.settings.connect_timeout + self.settings.response_timeout;
        let answer = timeout(limit, cluster.route_command(cmd.clone(), routing))
            .await
            .unwrap_or_else(|_| Err(timed_out()))
            .map_err(index_error)?;
        let Value::Map(nodes) = answer else {
            return Err(IndexError::Corrupt("an answer that is not by node".to_owned()));
        };
        let named = |(node, value)| (super::reply::text(node).unwrap_or_default(), value);
        Ok(nodes.into_iter().map(named).collect())
    }

    async fn execute_again(&self, request: Request<'_>) -> Result<Value, RedisError> {
        match self.execute(request).await {
            Err(error) if blames_connection(&error) && !error.is_timeout() => {
                self.execute(request).await
            }
            answer => answer,
        }
    }

    async fn execute(&self, request: Request<'_>) -> Result<Value, RedisError> {
        let Numbered { number, mut connection } = self.connection().await?;
        let answer = timeout(self.settings.response_timeout, connection.execute(request))
            .await
            .unwrap_or_else(|_| Err(timed_out()));
        if answer.as_ref().is_err_and(blames_connection) {
            self.discard(number);
        }
        answer
    }

    async fn connection(&self) -> Result<Numbered, RedisError> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let mut last_failure = self.connecting.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        if let Some((when, why)) = &*last_failure
            && when.elapsed() < RECONNECT_PAUSE
        {
            return Err(why.clone());
        }
        match self.server.connect(&self.settings).await {
            Ok(connection) => {
                *last_failure = None;
                let number = self.made.fetch_add(1, Ordering::Relaxed);
                let made = Numbered { number, connection };
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
                Ok(made)
            }
            Err(error) => {
                *last_failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn current(&self) -> Option<Numbered> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Throws a connection away, unless somebody has done so and made another. Calls that are
    /// under way on it keep it until they end.
    fn discard(&self, number: u64) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|c| c.number == number) {
            *current = None;
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = if self.is_cluster() { "Redis Cluster" } else { "Redis" };
        f.debug_tuple("Link").field(&server).finish()
    }
}

fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// Whether a new connection could do better: also one to the node that is master now, or that has
/// what moved in a cluster. The cluster connection follows a redirection by itself, but not that of
/// a step of several commands: it only says that the step was not carried out.
fn blames_connection(error: &RedisError) -> bool {
    let elsewhere = [ServerErrorKind::ReadOnly, ServerErrorKind::ExecAbort];
    error.is_timeout()
        || error.is_unrecoverable_error()
        || match error.kind() {
            ErrorKind::Io => true,
            ErrorKind::Server(kind) => elsewhere.contains(&kind),
            _ => false,
        }
}

/// What the index says of an error: nearly all of them may pass. What can't is data that is not
/// of the expected type, and a script that failed on what it read.
pub(super) fn index_error(error: RedisError) -> IndexError {
    let broken_script = || error.detail().is_some_and(|text| text.contains("user_script"));
    match error.kind() {
        ErrorKind::UnexpectedReturnType => IndexError::Corrupt(error.to_string()),
        _ if error.code() == Some("WRONGTYPE") || broken_script() => {
            IndexError::Corrupt(error.to_string())
        }
        _ => IndexError::Unavailable(Box::new(error)),
    }
}

//! The connection to Redis or Redis Cluster: one that many callers share, that answers within a
//! bounded time, and that comes back by itself.
//!
//! The reconnecting connections of the `redis` crate are not used as they are. Its
//! `ConnectionManager` does not take a time-out for a reason to reconnect, so that a server that
//! vanished without closing (a host that lost power, a firewall that forgot) is never left; and
//! building a cluster connection can wait without end. So a connection is thrown away here after
//! every error that may be its fault, a time-out included, and made anew under a time-out of its
//! own, by one caller at a time, and not more often than every [`RECONNECT_PAUSE`].
//!
//! The cluster connection would send a request again after its connection broke, and say nothing
//! of it: a step that counts would be counted twice, or refused as its own rival. So it is told
//! not to try again, and what it then leaves to its user, to follow redirections, is done here.

use std::{
    fmt, io,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo},
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{
    RedisSettings,
    failure::{Failure, Redirection},
};
use crate::IndexError;

/// After a failed connection attempt, calls fail at once for this long instead of trying again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The part of the time for a connection that one node of a cluster may take of it.
const SHARE_OF_ONE_NODE: u32 = 3;

/// How many redirections of a cluster one request follows.
const REDIRECTIONS: u32 = 3;

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
            let client = Client::open(url).map_err(Failure::before_sending)?;
            return Ok(Self::Single(Box::new(client)));
        };
        let rest = rest.split(['/', '?']).next().unwrap_or_default();
        let (credentials, hosts) = match rest.rsplit_once('@') {
            Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
            None => (String::new(), rest),
        };
        let nodes = hosts.split(',').map(|host| format!("redis://{credentials}{host}"));
        ClusterClient::builder(nodes)
            // All seeds are connected to at once and waited for, and the whole takes no longer than
            // `connect_timeout`: one that does not answer must leave time for the others.
            .connection_timeout(settings.connect_timeout / SHARE_OF_ONE_NODE)
            .response_timeout(settings.response_timeout)
            .retries(0)
            .build()
            .map(|client| Self::Cluster(Box::new(client)))
            .map_err(|error| Failure::before_sending(error).into())
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
    /// Sends a request. `asked` is the node that a cluster told to ask for this once.
    async fn execute(
        &mut self,
        request: Request<'_>,
        asked: Option<(String, u16)>,
    ) -> Result<Value, RedisError> {
        let answer = match (self, request, asked) {
            (Self::Cluster(c), Request::Command(cmd), Some(node)) => {
                execute_asking(c, cmd, node).await
            }
            (Self::Single(c), Request::Command(cmd), _) => c.req_packed_command(cmd).await,
            (Self::Cluster(c), Request::Command(cmd), None) => c.req_packed_command(cmd).await,
            (Self::Single(c), Request::Pipeline(pipe), _) => execute_pipeline(c, pipe).await,
            (Self::Cluster(c), Request::Pipeline(pipe), _) => execute_pipeline(c, pipe).await,
        };
        answer?.extract_error()
    }
}

/// Sends a command to a node that has only a part of a slot yet: it serves what says that it
/// knows that.
async fn execute_asking(
    cluster: &mut ClusterConnection,
    cmd: &Cmd,
    (host, port): (String, u16),
) -> Result<Value, RedisError> {
    let mut pipe = Pipeline::with_capacity(2);
    pipe.add_command(redis::cmd("ASKING")).add_command(cmd.clone());
    let node = SingleNodeRoutingInfo::ByAddress { host, port };
    let mut answers = cluster.route_pipeline(pipe, 1, 1, node).await?;
    Ok(answers.pop().unwrap_or_default())
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

    /// Tells connections apart; none while there is none.
    pub(super) fn connection_number(&self) -> Option<u64> {
        self.current().map(|current| current.number)
    }

    /// Makes a connection if there is none.
    pub(super) async fn connect(&self) -> Result<(), IndexError> {
        self.connection().await?;
        Ok(())
    }

    /// Sends a command that may do something.
    pub(super) async fn command(&self, cmd: &Cmd) -> Result<Value, Failure> {
        self.execute(Request::Command(cmd)).await
    }

    /// Sends a command that only reads. If the connection turns out to be broken, as it is after
    /// a restart of the server, the command is sent once more on a new one.
    pub(super) async fn read(&self, cmd: &Cmd) -> Result<Value, IndexError> {
        Ok(self.execute_again(Request::Command(cmd)).await?)
    }

    /// Sends commands that only read, on keys of one hash tag, in this order; as one step if the
    /// pipeline is atomic.
    pub(super) async fn read_all(&self, pipe: &Pipeline) -> Result<Vec<Value>, IndexError> {
        answers_of(self.execute_again(Request::Pipeline(pipe)).await?, pipe)
    }

    /// Sends commands that may do something, on keys of one hash tag, in this order.
    pub(super) async fn commands(&self, pipe: &Pipeline) -> Result<Vec<Value>, IndexError> {
        answers_of(self.execute(Request::Pipeline(pipe)).await?, pipe)
    }

    /// Asks every node that holds data: its address and its answer. A single server has no
    /// address here.
    pub(super) async fn each_node(&self, cmd: &Cmd) -> Result<Vec<(String, Value)>, IndexError> {
        let Numbered { connection, .. } = self.connection().await?;
        let Connection::Cluster(mut cluster) = connection else {
            return Ok(vec![(String::new(), self.read(cmd).await?)]);
        };
        let routing = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let limit = self.settings.connect_timeout + self.settings.response_timeout;
        let answer = timeout(limit, cluster.route_command(cmd.clone(), routing))
            .await
            .unwrap_or_else(|_| Err(timed_out()))
            .map_err(Failure::after_sending)?;
        let Value::Map(nodes) = answer else {
            return Err(IndexError::Corrupt("an answer that is not by node".to_owned()));
        };
        let named = |(node, value)| (super::reply::text(node).unwrap_or_default(), value);
        Ok(nodes.into_iter().map(named).collect())
    }

    async fn execute_again(&self, request: Request<'_>) -> Result<Value, Failure> {
        match self.execute(request).await {
            Err(failure) if failure.blames_connection() && !failure.is_timeout() => {
                self.execute(request).await
            }
            answer => answer,
        }
    }

    /// Sends a request to where its keys are. A redirection says that nothing was done yet, so
    /// it is followed whatever the request does.
    async fn execute(&self, request: Request<'_>) -> Result<Value, Failure> {
        let mut answer = self.execute_at(request, None).await;
        for _ in 0..REDIRECTIONS {
            let Err(failure) = &answer else { break };
            let node = match (failure.redirection(), request) {
                _ if !self.is_cluster() => break,
                (Some(Redirection::Moved), _) => None,
                (Some(Redirection::Ask { host, port }), Request::Command(_)) => {
                    Some((host.to_owned(), port))
                }
                _ => break,
            };
            answer = self.execute_at(request, node).await;
        }
        answer
    }

    async fn execute_at(
        &self,
        request: Request<'_>,
        asked: Option<(String, u16)>,
    ) -> Result<Value, Failure> {
        let Numbered { number, mut connection } = self.connection().await?;
        let answer = timeout(self.settings.response_timeout, connection.execute(request, asked))
            .await
            .unwrap_or_else(|_| Err(timed_out()))
            .map_err(Failure::after_sending);
        if answer.as_ref().is_err_and(Failure::blames_connection) {
            self.discard(number);
        }
        answer
    }

    async fn connection(&self) -> Result<Numbered, Failure> {
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
            return Err(Failure::before_sending(why.clone()));
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
                Err(Failure::before_sending(error))
            }
        }
    }

    fn current(&self) -> Option<Numbered> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Throws a connection away, unless another call has done so and made a new one. Calls that are
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

fn answers_of(answer: Value, pipe: &Pipeline) -> Result<Vec<Value>, IndexError> {
    match answer {
        Value::Array(answers) if answers.len() == pipe.len() => Ok(answers),
        _ => Err(IndexError::Corrupt("a pipeline's answer has another length".to_owned())),
    }
}

fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

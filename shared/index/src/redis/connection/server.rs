//! The server behind a URL, a single Redis or a cluster, and how each kind is sent a request.

use std::io;

use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::SingleNodeRoutingInfo,
};
use tokio::time::timeout;

use super::failure::Failure;
use crate::{IndexError, redis::RedisSettings};

/// One node of a cluster may take this fraction, one third, of the time for a connection.
const CONNECT_TIMEOUT_OF_ONE_NODE: u32 = 3;

/// What the server is to answer.
#[derive(Clone, Copy)]
pub(super) enum Request<'a> {
    Command(&'a Cmd),
    Pipeline(&'a Pipeline),
}

/// Where to connect to.
#[derive(Clone)]
pub(in crate::redis) enum Server {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
}

#[derive(Clone)]
pub(super) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Server {
    /// Reads `redis://…`, `rediss://…` or `redis-cluster://[user:password@]host:port,host:port`.
    pub(in crate::redis) fn open(url: &str, settings: &RedisSettings) -> Result<Self, IndexError> {
        if url.starts_with("rediss:") {
            // The dependencies enable two crypto providers, and rustls panics if none is chosen.
            // The call fails if the program has chosen one already, which is as good.
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
            // The client connects to all seeds at once and waits for all of them, and the whole
            // must end within `connect_timeout`: a seed that does not answer must leave time for
            // the rest.
            .connection_timeout(settings.connect_timeout / CONNECT_TIMEOUT_OF_ONE_NODE)
            .response_timeout(settings.response_timeout)
            .retries(0)
            .build()
            .map(|client| Self::Cluster(Box::new(client)))
            .map_err(|error| Failure::before_sending(error).into())
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(super) async fn connect(&self, settings: &RedisSettings) -> Result<Connection, RedisError> {
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
    /// Sends a request. `ask_node` is the node that an ASK redirection named for this request.
    pub(super) async fn execute(
        &mut self,
        request: Request<'_>,
        ask_node: Option<(String, u16)>,
    ) -> Result<Value, RedisError> {
        let answer = match (self, request, ask_node) {
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

/// Sends a command to a node that is still importing the hash slot: such a node serves the slot
/// only to a command that follows `ASKING`.
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
        // The answer of EXEC, which is the last, holds those of all commands.
        let mut exec = connection.req_packed_commands(pipe, pipe.len() + 1, 1).await?;
        Ok(exec.pop().unwrap_or_default())
    } else {
        connection.req_packed_commands(pipe, 0, pipe.len()).await.map(Value::Array)
    }
}

pub(super) fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

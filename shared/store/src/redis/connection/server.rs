//! The server behind a URL, a single Redis or a cluster, with or without TLS, and how each kind is
//! sent a request.

use std::io;

use push_tls::{
    client::{ClientFiles, ClientPem, ClientTls},
    failure::TlsFailure,
};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo,
    IntoConnectionInfo as _, Pipeline, RedisError, TlsCertificates, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
    cluster_routing::SingleNodeRoutingInfo,
};
use tokio::time::timeout;

use super::failure::Failure;
use crate::{IndexError, redis::RedisSettings};

/// One node of a cluster may take this fraction, one third, of the time for a connection.
const CONNECT_TIMEOUT_OF_ONE_NODE: u32 = 3;

/// A request to the server.
#[derive(Clone, Copy)]
pub(super) enum Request<'a> {
    Command(&'a Cmd),
    Pipeline(&'a Pipeline),
}

/// The server or cluster to connect to.
#[derive(Clone)]
pub(in crate::redis) struct Server {
    /// The single server, or those nodes of a cluster that the URL names.
    nodes: Vec<ConnectionInfo>,
    is_cluster: bool,
    tls: Option<ClientTls>,
}

#[derive(Clone)]
pub(super) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Server {
    /// Reads `redis://…`, `rediss://…`, `redis-cluster://[user:password@]host:port,host:port` or
    /// `rediss-cluster://…`.
    pub(in crate::redis) fn open(url: &str, settings: &RedisSettings) -> Result<Self, IndexError> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let of_one_node = match scheme {
            "redis-cluster" => Some("redis"),
            "rediss-cluster" => Some("rediss"),
            _ => None,
        };
        let urls = match of_one_node {
            Some(scheme) => each_node(scheme, rest),
            None => vec![url.to_owned()],
        };
        let nodes: Result<Vec<_>, _> =
            urls.iter().map(|url| url.as_str().into_connection_info()).collect();
        let tls = match &settings.tls {
            _ if !scheme.starts_with("rediss") => None,
            Some(tls) => Some(tls.clone()),
            None => Some(
                ClientTls::new(ClientFiles::default())
                    .map_err(|error| IndexError::Unreachable(Box::new(error)))?,
            ),
        };
        if tls.is_some() {
            // The client library builds its own configuration.
            push_tls::install_provider();
        }
        let nodes = nodes.map_err(Failure::before_sending)?;
        let server = Self { nodes, is_cluster: of_one_node.is_some(), tls };
        if server.is_cluster {
            // What the nodes must have in common is checked now rather than by each connection.
            server.cluster(settings).build().map_err(Failure::before_sending)?;
        }
        Ok(server)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    pub(super) async fn connect(&self, settings: &RedisSettings) -> Result<Connection, RedisError> {
        let within = settings.connect_timeout;
        match timeout(within, self.attempt(settings)).await {
            Ok(Err(error)) if let Some(tls) = &self.tls => {
                let failure = TlsFailure::of(&error);
                let failure = match failure {
                    // A cluster's error has only the text of its cause, and the alert with which a
                    // server refuses a certificate after the handshake may be lost.
                    None => timeout(within, self.tls_failure(tls)).await.unwrap_or_default(),
                    known => known,
                };
                Err(failure.map_or(error, |failure| {
                    io::Error::new(io::ErrorKind::InvalidData, failure).into()
                }))
            }
            Ok(connected) => connected,
            Err(_) => Err(timed_out()),
        }
    }

    async fn attempt(&self, settings: &RedisSettings) -> Result<Connection, RedisError> {
        // Read anew for every connection, so that a renewed certificate is shown.
        let certificates = match &self.tls {
            Some(tls) => Some(certificates(&tls.material().await.pem)),
            None => None,
        };
        if self.is_cluster {
            let mut cluster = self.cluster(settings);
            if let Some(certificates) = certificates {
                cluster = cluster.certs(certificates);
            }
            return cluster.build()?.get_async_connection().await.map(Connection::Cluster);
        }
        let Some(node) = self.nodes.first().cloned() else { return Err(no_node()) };
        let client = match certificates {
            Some(certificates) => Client::build_with_tls(node, certificates)?,
            None => Client::open(node)?,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(settings.connect_timeout))
            .set_response_timeout(Some(settings.response_timeout));
        client.get_multiplexed_async_connection_with_config(&config).await.map(Connection::Single)
    }

    fn cluster(&self, settings: &RedisSettings) -> ClusterClientBuilder {
        ClusterClient::builder(self.nodes.clone())
            // The client connects to all seeds at once and waits for all of them, and the whole
            // must end within `connect_timeout`: a seed that does not answer must leave time for
            // the rest.
            .connection_timeout(settings.connect_timeout / CONNECT_TIMEOUT_OF_ONE_NODE)
            .response_timeout(settings.response_timeout)
            .retries(0)
    }

    /// Returns what TLS says of the first node with which it fails.
    async fn tls_failure(&self, tls: &ClientTls) -> Option<TlsFailure> {
        for node in &self.nodes {
            if let ConnectionAddr::TcpTls { host, port, .. } = node.addr()
                && let Err(error) = tls.probe((host, *port)).await
                && let Some(failure) = TlsFailure::of(&error)
            {
                return Some(failure);
            }
        }
        None
    }
}

/// One URL for each node of `[user:password@]host:port,host:port`.
fn each_node(scheme: &str, rest: &str) -> Vec<String> {
    let rest = rest.split(['/', '?']).next().unwrap_or_default();
    let (credentials, hosts) = match rest.rsplit_once('@') {
        Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
        None => (String::new(), rest),
    };
    hosts.split(',').map(|host| format!("{scheme}://{credentials}{host}")).collect()
}

fn certificates(pem: &ClientPem) -> TlsCertificates {
    TlsCertificates {
        client_tls: pem
            .identity
            .clone()
            .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
        root_cert: pem.authorities.clone(),
    }
}

fn no_node() -> RedisError {
    RedisError::from((redis::ErrorKind::InvalidClientConfig, "the URL names no server"))
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

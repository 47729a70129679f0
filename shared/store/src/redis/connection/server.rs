//! The servers behind a URL, a single Redis or the seeds of a cluster, with or without TLS.

use std::{fmt, io};

use push_tls::{
    client::{ClientFiles, ClientPem, ClientTls},
    failure::TlsFailure,
};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo,
    IntoConnectionInfo as _, RedisError, TlsCertificates, aio::MultiplexedConnection,
};
use tokio::time::timeout;

use super::failure::{Failure, timed_out};
use crate::{IndexError, redis::RedisSettings};

/// The server or cluster to connect to.
#[derive(Clone)]
pub(in crate::redis) enum Server {
    One(Endpoint),
    /// The nodes of a cluster that the URL names: the first one, and the others.
    Cluster(Endpoint, Vec<Endpoint>),
}

/// One server, and how to connect to it.
#[derive(Clone)]
pub(in crate::redis) struct Endpoint {
    info: ConnectionInfo,
    tls: Option<ClientTls>,
}

/// The host and the port of a node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
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
        let nodes = nodes.map_err(Failure::before_sending)?.into_iter();
        let mut nodes = nodes.map(|info| Endpoint { info, tls: tls.clone() });
        let no_server = || IndexError::Unreachable("the URL names no server".into());
        let first = nodes.next().ok_or_else(no_server)?;
        Ok(match of_one_node {
            Some(_) => Self::Cluster(first, nodes.collect()),
            None => Self::One(first),
        })
    }
}

impl Endpoint {
    /// The address; none of a Unix socket.
    pub(super) fn address(&self) -> Option<Address> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Address { host: host.clone(), port: *port })
            }
            _ => None,
        }
    }

    /// The server at another address of the same cluster, which has the same users and TLS.
    pub(super) fn at(&self, Address { host, port }: Address) -> Self {
        let address = match self.info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Self { info: self.info.clone().set_addr(address), tls: self.tls.clone() }
    }

    pub(super) async fn connect(
        &self,
        settings: &RedisSettings,
    ) -> Result<MultiplexedConnection, RedisError> {
        let within = settings.connect_timeout;
        match timeout(within, self.attempt(settings)).await {
            Ok(Err(error)) if let Some(tls) = &self.tls => {
                let failure = match TlsFailure::of(&error) {
                    // The alert with which a server refuses a certificate after the handshake may
                    // be lost.
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

    async fn attempt(&self, settings: &RedisSettings) -> Result<MultiplexedConnection, RedisError> {
        let client = match &self.tls {
            // Read anew for every connection, so that a renewed certificate is shown.
            Some(tls) => {
                Client::build_with_tls(self.info.clone(), certificates(&tls.material().await.pem))?
            }
            None => Client::open(self.info.clone())?,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(settings.connect_timeout))
            .set_response_timeout(Some(settings.response_timeout));
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Returns what TLS says of the server.
    async fn tls_failure(&self, tls: &ClientTls) -> Option<TlsFailure> {
        let Address { host, port } = self.address()?;
        tls.probe((&host, port)).await.err().and_then(|error| TlsFailure::of(&error))
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

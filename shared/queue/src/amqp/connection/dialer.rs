//! Opens connections, and declares the topology on the first channel of each.
//!
//! Failures: an attempt to connect to a server that accepts the connection and then
//! sends nothing cannot be cancelled; the client library keeps a thread and a socket for it until
//! the server answers or closes. So after one such attempt the host is tried again only once it has
//! sent its server properties on a plain socket, which *can* be closed.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_compat::CompatExt as _;
use lapin::{
    AsyncTcpStream, Channel, Connection, ConnectionProperties,
    types::{FieldTable, Heartbeat},
    uri::{AMQPScheme, AMQPUri},
};
use push_model::causes::with_causes;
use push_tls::{
    client::{ClientFiles, ClientTls},
    failure::TlsFailure,
};

use super::{
    hosts::{Host, Hosts},
    server_properties, socket,
};
use crate::amqp::{
    error::{AmqpError, within},
    settings::AmqpSettings,
    topology::{Names, declare},
};

/// Range of the random number that chooses the first host. It is divisible by every number up to
/// 10, so that among up to 10 hosts each is equally likely.
const HOST_DRAWS: usize = 5040;

/// The settings that reach the server; cheap to clone.
#[derive(Clone)]
pub(crate) struct Dialer {
    hosts: Arc<Hosts>,
    pub(crate) names: Arc<Names>,
    pub(crate) settings: Arc<AmqpSettings>,
    namespace: Arc<str>,
    /// For `amqps://` only.
    tls: Option<ClientTls>,
}

/// An open connection and its first channel.
pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) channel: Channel,
}

impl Dialer {
    pub(crate) fn new(
        url: &str,
        namespace: &str,
        settings: AmqpSettings,
    ) -> Result<Self, AmqpError> {
        let namespace = push_model::namespace::namespace(namespace)
            .map_err(|problem| AmqpError::Settings(format!("the namespace {problem}")))?;
        let mut hosts = Hosts::parse(url, rand::random_range(0..HOST_DRAWS))
            .map_err(|problem| AmqpError::Settings(format!("the URL {problem}")))?;
        // AMQP counts in whole seconds, and zero would turn heartbeats off.
        let settings =
            AmqpSettings { heartbeat: settings.heartbeat.max(Duration::from_secs(1)), ..settings };
        let heartbeat = Heartbeat::try_from(settings.heartbeat.as_secs()).unwrap_or(Heartbeat::MAX);
        for host in hosts.iter_mut() {
            host.uri.query.heartbeat.get_or_insert(heartbeat);
        }
        let encrypted = hosts.iter_mut().any(|host| host.uri.scheme == AMQPScheme::AMQPS);
        let tls = match &settings.tls {
            _ if !encrypted => None,
            Some(tls) => Some(tls.clone()),
            None => Some(
                ClientTls::new(ClientFiles::default())
                    .map_err(|error| AmqpError::TlsFiles(Arc::new(error)))?,
            ),
        };
        Ok(Self {
            tls,
            hosts: Arc::new(hosts),
            names: Arc::new(Names::new(namespace.clone())),
            settings: Arc::new(settings),
            namespace: namespace.into(),
        })
    }

    /// Product and version of the first host that answers, for example `RabbitMQ 3.10.8`.
    pub(crate) async fn describe(&self) -> Result<String, AmqpError> {
        let mut properties = Err(AmqpError::NoHost);
        for (_, host) in self.hosts.in_order() {
            properties = self.server_properties(host).await;
            if properties.is_ok() {
                break;
            }
        }
        Ok(server_properties::product_and_version(&properties?))
    }

    /// Connects to the first host that answers. `purpose` is part of the connection's name, which
    /// the operator sees.
    pub(crate) async fn connect(&self, purpose: &str) -> Result<Connection, AmqpError> {
        let mut failure = AmqpError::NoHost;
        for (index, host) in self.hosts.in_order() {
            match self.connect_to(host, purpose).await {
                Ok(connection) => {
                    self.hosts.prefer(index);
                    return Ok(connection);
                }
                Err(error) => {
                    let address = &host.uri.authority.host;
                    tracing::debug!(address, error = with_causes(&error), "a host does not answer");
                    failure = error;
                }
            }
        }
        Err(failure)
    }

    async fn connect_to(&self, host: &Host, purpose: &str) -> Result<Connection, AmqpError> {
        if host.timed_out.load(Ordering::Relaxed) {
            self.server_properties(host).await?;
        }
        let name = format!("{} {purpose} ({})", self.settings.program, self.namespace);
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let tls = self.tls.clone();
        let connect = Connection::connector(
            host.uri.clone(),
            socket::runtime(),
            async move |uri: AMQPUri, _| {
                let socket = socket::open(&uri, tls.as_ref()).await?;
                Ok(AsyncTcpStream::Plain(socket.compat()))
            },
            properties,
        );
        let result = within(self.settings.connect_timeout, connect).await;
        host.timed_out.store(matches!(result, Err(AmqpError::Late(_))), Ordering::Relaxed);
        match result.map_err(AmqpError::or_tls) {
            // The client library may lose the alert with which a server refuses a certificate
            // after the handshake.
            Err(AmqpError::Broken(error)) => {
                Err(self.tls_failure(host).await.map_or(AmqpError::Broken(error), AmqpError::Tls))
            }
            result => result,
        }
    }

    /// Returns what TLS says of a host with which the connection broke.
    async fn tls_failure(&self, host: &Host) -> Option<TlsFailure> {
        let authority = &host.uri.authority;
        let address = (authority.host.trim_matches(['[', ']']), authority.port);
        let probe = self.tls.as_ref()?.probe(address);
        let probed = tokio::time::timeout(self.settings.connect_timeout, probe).await.ok()?;
        TlsFailure::of(&probed.err()?)
    }

    async fn server_properties(&self, host: &Host) -> Result<FieldTable, AmqpError> {
        server_properties::read(&host.uri, self.tls.as_ref(), self.settings.connect_timeout).await
    }

    /// Opens a connection and declares everything on its first channel.
    ///
    /// A node that has lost the others of its cluster accepts connections but cannot declare; then
    /// the next attempt begins with another host.
    pub(crate) async fn open(&self, purpose: &str) -> Result<Link, AmqpError> {
        let connection = self.connect(purpose).await?;
        let opened = self.prepare(connection).await;
        if opened.is_err() {
            self.hosts.avoid_first();
        }
        opened
    }

    async fn prepare(&self, connection: Connection) -> Result<Link, AmqpError> {
        let channel = within(self.settings.request_timeout, connection.create_channel()).await?;
        declare(&channel, &self.names.topology(), self.settings.request_timeout).await?;
        Ok(Link { connection, channel })
    }
}

/// Leaves out the URL, because it contains the password.
impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer")
            .field("hosts", &self.hosts)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

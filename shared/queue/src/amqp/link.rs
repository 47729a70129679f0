//! One connection with one channel, on which everything is declared.
//!
//! Publisher, each consumer, and the operator's requests have a connection of their own: RabbitMQ
//! stops reading from a connection that publishes while it is short of memory or disk, and acks
//! must not wait for that. A connection is never repaired; its owner opens another one and so
//! applies everything anew, prefetch included, which automatic recovery in the client library was
//! seen to forget. Where the URL names several hosts of a cluster, that is how it moves to another.
//!
//! Work that gets stuck: an attempt to connect to a server that accepts and then says nothing
//! cannot be called off; the client library keeps a thread and a socket for it until the server
//! speaks or closes. So after one such attempt the server must first show, on a plain socket that
//! *can* be closed, that it speaks again.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use lapin::{Channel, Connection, ConnectionProperties, types::Heartbeat};

use super::{
    AmqpSettings,
    declare::declare,
    error::{AmqpError, chain, within},
    greeting,
    hosts::{Host, Hosts},
};
use crate::topology::Names;

/// Hosts among which the first to be asked is drawn: as many as have a fair chance.
const MOST_HOSTS: usize = 5040;

/// What it takes to reach the server; cheap to clone.
#[derive(Clone)]
pub(super) struct Dialer {
    hosts: Arc<Hosts>,
    pub(super) names: Arc<Names>,
    pub(super) settings: Arc<AmqpSettings>,
    namespace: Arc<str>,
}

/// An open connection and its first channel.
pub(super) struct Link {
    pub(super) connection: Connection,
    pub(super) channel: Channel,
}

impl Dialer {
    pub(super) fn new(
        url: &str,
        namespace: &str,
        settings: AmqpSettings,
    ) -> Result<Self, AmqpError> {
        let namespace = push_model::namespace::namespace(namespace)
            .map_err(|problem| AmqpError::Settings(format!("the namespace {problem}")))?;
        let mut hosts = Hosts::read(url, rand::random_range(0..MOST_HOSTS))
            .map_err(|problem| AmqpError::Settings(format!("the URL {problem}")))?;
        // AMQP counts whole seconds, and to it none means never.
        let settings =
            AmqpSettings { heartbeat: settings.heartbeat.max(Duration::from_secs(1)), ..settings };
        let heartbeat = Heartbeat::try_from(settings.heartbeat.as_secs()).unwrap_or(Heartbeat::MAX);
        for host in hosts.iter_mut() {
            host.uri.query.heartbeat.get_or_insert(heartbeat);
        }
        Ok(Self {
            hosts: Arc::new(hosts),
            names: Arc::new(Names::new(namespace.clone())),
            settings: Arc::new(settings),
            namespace: namespace.into(),
        })
    }

    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Opens a connection for one purpose, which operators see in its name: to the first host
    /// that answers.
    pub(super) async fn connect(&self, purpose: &str) -> Result<Connection, AmqpError> {
        let mut failure = AmqpError::NoHost;
        for (place, host) in self.hosts.in_turn() {
            match self.connect_to(host, purpose).await {
                Ok(connection) => {
                    self.hosts.prefer(place);
                    return Ok(connection);
                }
                Err(error) => {
                    let address = &host.uri.authority.host;
                    tracing::debug!(address, error = chain(&error), "a host does not answer");
                    failure = error;
                }
            }
        }
        Err(failure)
    }

    async fn connect_to(&self, host: &Host, purpose: &str) -> Result<Connection, AmqpError> {
        if host.silent.load(Ordering::Relaxed) {
            greeting::read(&host.uri, self.settings.connect_timeout).await?;
        }
        let name = format!("{} {purpose} ({})", self.settings.program, self.namespace);
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let connect = Connection::connect_uri(host.uri.clone(), properties);
        let result = within(self.settings.connect_timeout, connect).await;
        host.silent.store(matches!(result, Err(AmqpError::Late(_))), Ordering::Relaxed);
        result
    }

    /// Opens a connection and declares everything on its first channel.
    ///
    /// A node may answer and be of no use, because it has lost the others of its cluster; then
    /// the next attempt begins elsewhere.
    pub(super) async fn open(&self, purpose: &str) -> Result<Link, AmqpError> {
        let connection = self.connect(purpose).await?;
        let opened = self.prepare(connection).await;
        if opened.is_err() {
            self.hosts.avoid_first();
        }
        opened
    }

    async fn prepare(&self, connection: Connection) -> Result<Link, AmqpError> {
        let channel = within(self.settings.request_timeout, connection.create_channel()).await?;
        declare(&channel, &self.names.topology(), &self.settings).await?;
        Ok(Link { connection, channel })
    }
}

/// Without the URL, which has the password.
impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer")
            .field("hosts", &self.hosts)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

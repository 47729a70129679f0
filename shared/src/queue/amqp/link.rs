//! One connection with one channel, on which everything is declared.
//!
//! Publisher, each consumer, and the operator's requests have a connection of their own: RabbitMQ
//! stops reading from a connection that publishes while it is short of memory or disk, and acks
//! must not wait for that. A connection is never repaired; its owner opens another one and so
//! applies everything anew, prefetch included, which automatic recovery in the client library was
//! seen to forget.
//!
//! Work that gets stuck: an attempt to connect to a server that accepts and then says nothing
//! cannot be called off; the client library keeps a thread and a socket for it until the server
//! speaks or closes. So after one such attempt the server must first show, on a plain socket that
//! *can* be closed, that it speaks again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lapin::{Channel, Connection, ConnectionProperties, types::Heartbeat, uri::AMQPUri};

use super::{
    AmqpSettings,
    declare::declare,
    error::{AmqpError, within},
    greeting,
};
use crate::queue::topology::Names;

/// What it takes to reach the server; cheap to clone.
#[derive(Clone)]
pub(super) struct Dialer {
    uri: Arc<AMQPUri>,
    pub(super) names: Arc<Names>,
    pub(super) settings: Arc<AmqpSettings>,
    namespace: Arc<str>,
    /// Whether the last attempt to connect ended in silence.
    silent: Arc<AtomicBool>,
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
        let namespace = crate::settings::namespace(namespace)
            .map_err(|problem| AmqpError::Settings(format!("the namespace {problem}")))?;
        let mut uri: AMQPUri = url.parse().map_err(AmqpError::Settings)?;
        // AMQP counts whole seconds, and to it none means never.
        let settings =
            AmqpSettings { heartbeat: settings.heartbeat.max(Duration::from_secs(1)), ..settings };
        let heartbeat = Heartbeat::try_from(settings.heartbeat.as_secs()).unwrap_or(Heartbeat::MAX);
        uri.query.heartbeat.get_or_insert(heartbeat);
        Ok(Self {
            uri: Arc::new(uri),
            names: Arc::new(Names::new(namespace.clone())),
            settings: Arc::new(settings),
            namespace: namespace.into(),
            silent: Arc::new(AtomicBool::new(false)),
        })
    }

    pub(super) fn uri(&self) -> &AMQPUri {
        &self.uri
    }

    /// Opens a connection for one purpose, which operators see in its name.
    pub(super) async fn connect(&self, purpose: &str) -> Result<Connection, AmqpError> {
        if self.silent.load(Ordering::Relaxed) {
            greeting::read(self).await?;
        }
        let name = format!("{} {purpose} ({})", self.settings.program, self.namespace);
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let uri = AMQPUri::clone(&self.uri);
        let connect = Connection::connect_uri(uri, properties);
        let result = within(self.settings.connect_timeout, connect).await;
        self.silent.store(matches!(result, Err(AmqpError::Late(_))), Ordering::Relaxed);
        result
    }

    /// Opens a connection and declares everything on its first channel.
    pub(super) async fn open(&self, purpose: &str) -> Result<Link, AmqpError> {
        let connection = self.connect(purpose).await?;
        let channel = within(self.settings.request_timeout, connection.create_channel()).await?;
        declare(&channel, &self.names.topology(), &self.settings).await?;
        Ok(Link { connection, channel })
    }
}

/// Without the URL, which has the password.
impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer")
            .field("host", &self.uri.authority.host)
            .field("port", &self.uri.authority.port)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

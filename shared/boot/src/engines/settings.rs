//! The checked settings of the engines.

use std::time::Duration;

use push_model::ledger::Retention;
use push_tls::client::ClientTls;

use super::urls::{IndexUrl, QueueUrl};
use crate::tune::{HOUR, MOMENT, Tuning};

/// The checked settings of both engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSettings {
    /// The queue.
    pub queue: QueueUrl,
    /// Authority and certificate of the connections to the queue, if its URL asks for TLS.
    pub queue_tls: Option<ClientTls>,
    /// The index.
    pub index: IndexUrl,
    /// Authority and certificate of the connections to the index and to the ledger's own store, if
    /// one of their URLs asks for TLS.
    pub index_tls: Option<ClientTls>,
    /// Prefix of every queue and key.
    pub namespace: String,
    /// The time limits of requests to the servers.
    pub timeouts: EngineTimeouts,
    /// The most different topics of an app's devices.
    pub max_app_topics: usize,
    /// The ledger's own store, if it is not kept in the index.
    pub ledger: Option<IndexUrl>,
    /// The retention of the ledger.
    pub ledger_retention: Retention,
}

impl EngineSettings {
    /// Returns the URL of the ledger's own store, if it has one. A ledger URL equal to that of the
    /// index names none.
    pub fn separate_ledger(&self) -> Option<&IndexUrl> {
        self.ledger.as_ref().filter(|url| **url != self.index)
    }

    /// Returns the settings of the store at this URL, with the TLS files and time limits of the
    /// index.
    pub(super) fn store(&self, url: &IndexUrl) -> StoreSettings {
        StoreSettings {
            url: url.clone(),
            tls: self.index_tls.clone(),
            namespace: self.namespace.clone(),
            timeouts: self.timeouts,
            max_app_topics: self.max_app_topics,
        }
    }
}

/// The checked settings of one store of apps and devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// Its place.
    pub url: IndexUrl,
    /// Authority and certificate of the connections, if the URL asks for TLS.
    pub tls: Option<ClientTls>,
    /// Prefix of every key.
    pub namespace: String,
    /// The time limits of requests to the server.
    pub timeouts: EngineTimeouts,
    /// The most different topics of an app's devices.
    pub max_app_topics: usize,
}

/// The time limits of requests to the servers of the engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineTimeouts {
    /// Time to connect to the queue's or the index's server.
    pub connect: Duration,
    /// Time for the queue's server to confirm or to answer.
    pub queue: Duration,
    /// Time for the index's server to answer.
    pub index: Duration,
    /// Time between two heartbeats with RabbitMQ.
    pub heartbeat: Duration,
}

impl Default for EngineTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            queue: Duration::from_secs(10),
            index: Duration::from_secs(5),
            heartbeat: Duration::from_secs(10),
        }
    }
}

impl EngineTimeouts {
    /// Returns the constants, or what replaces them.
    pub fn read(tuning: &mut Tuning) -> Self {
        let mut times = Self::default();
        tuning.time("connect-timeout", &mut times.connect, MOMENT..=HOUR);
        tuning.time("queue-timeout", &mut times.queue, MOMENT..=HOUR);
        tuning.time("index-response-timeout", &mut times.index, MOMENT..=HOUR);
        tuning.time("amqp-heartbeat", &mut times.heartbeat, Duration::ZERO..=HOUR);
        times
    }
}

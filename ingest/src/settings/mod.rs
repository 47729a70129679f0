//! The settings of ingest, as the service uses them. Each part of the service has a struct of its
//! own.
//!
//! - `args`: the flags of all parts, and their check
//! - `listener`, `http`, `apps`, `broker_auth`: the flags of one part
//! - `constants`: the constants that `--tune` replaces, and the defaults of flags

mod apps;
mod args;
mod broker_auth;
mod constants;
mod http;
mod listener;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, num::NonZeroU32, time::Duration};

use push_boot::{
    descriptors::{Descriptors, HOW_TO_RAISE},
    proxy_protocol::TrustedProxies,
};
use push_credentials::DeviceCredentials;
use push_model::{ledger::Retention, secret::SecretHash};
use push_tls::server::TlsSettings;

pub use self::args::IngestArgs;

/// The default address for producers.
pub const DEFAULT_LISTEN: &str = "0.0.0.0:8080";

/// The bytes that a line of a batch request may hold in memory beside the line itself: its job is
/// longer by what all jobs have in common, or its answer says what is wrong with it.
pub(crate) const LINE_MEMORY: usize = 1024;

/// All settings of ingest.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address where backends send their requests.
    pub listen: SocketAddr,
    /// The certificate of that address. Without one there is no TLS.
    pub tls: Option<TlsSettings>,
    /// The address of `/livez`, `/readyz` and `/metrics`.
    pub ops_listen: SocketAddr,
    /// The time that a stopping service has to finish what it began.
    pub drain_deadline: Duration,
    /// Bounds on what clients may make the service hold.
    pub http: HttpSettings,
    /// Bounds on the content of a push.
    pub rules: Rules,
    /// The cache of app records, quotas, recalls and failed logins.
    pub apps: AppSettings,
    /// The bounds of batches, and of the pushes that wait for them.
    pub publisher: PublisherSettings,
    /// The time for which workers keep the ledger entry of a message. A message without an entry is
    /// reported as waiting in the queue, but no longer than this.
    pub ledger_retention: Retention,
    /// True if workers reach devices over MQTT.
    pub over_mqtt: bool,
    /// Signs the MQTT logins of devices; if absent, devices get none. The program opens the key
    /// file and fills this in.
    pub device_credentials: Option<DeviceCredentials>,
    /// Authenticates the MQTT brokers that ask about their clients; if absent, none may ask.
    pub broker_auth: Option<BrokerAuthSettings>,
    /// True if the program has a collector for traces.
    pub is_traced: bool,
    /// The share of requests that are traced, from 0 to 1, where the caller has not decided it.
    pub trace_ratio: f64,
}

/// The secrets of the MQTT brokers that ask about their clients, and of the workers there.
#[derive(Debug, Clone)]
pub struct BrokerAuthSettings {
    /// The secret with which a broker authenticates.
    pub secret: SecretHash,
    /// The password of the workers at the broker; if absent, no worker may log in.
    pub worker_password: Option<SecretHash>,
}

/// Serving fewer connections than this is worth a warning.
const FEW_CONNECTIONS: usize = 1000;

/// Bounds on connections and requests.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Connections served at once. One more takes the place of an idle one, or is answered 503.
    /// Over HTTP/2, as many requests of all connections may be in work beside the first one of each
    /// connection; one more is answered 503.
    pub max_connections: usize,
    /// True if the operator set `max_connections`.
    pub max_connections_is_given: bool,
    /// The most of them from one address; half of all, if none.
    pub max_connections_per_address: Option<usize>,
    /// The time for a request's head, from its first byte. For the first head of a connection it
    /// runs from the accept.
    pub header_timeout: Duration,
    /// The time for a request's body, from the end of its head.
    pub body_timeout: Duration,
    /// The longest time that a connection may be idle between requests.
    pub idle_timeout: Duration,
    /// The largest head of a request, in bytes.
    pub max_header: usize,
    /// The largest body of a request with one push, in bytes.
    pub max_body: usize,
    /// The largest body of a request with many pushes, in bytes.
    pub max_batch_body: usize,
    /// The most pushes of one request.
    pub max_batch_lines: usize,
    /// The most requests in work on one HTTP/2 connection.
    pub h2_streams: u32,
    /// The most bytes for the bodies of all requests in work; a request beyond that is answered
    /// 503. A batch request is taken only while half of this is free.
    pub max_buffered: usize,
    /// The most of these bytes for one app; a request of the app beyond that is answered 503. Its
    /// batch requests may have half of this.
    pub max_buffered_per_app: usize,
    /// The fewest bytes a second, on average after the first seconds of a body; 0 means no bound.
    pub min_body_rate: usize,
    /// The proxies that may name the client of a connection or a request. The program reads the
    /// flag and fills this in.
    pub trusted_proxies: TrustedProxies,
}

impl HttpSettings {
    /// Returns the most connections from one address.
    pub(crate) fn max_connections_per_address(&self) -> usize {
        self.max_connections_per_address.unwrap_or(self.max_connections.div_ceil(2))
    }

    /// Serves no more connections than the process has descriptors for.
    pub fn fit(&mut self, descriptors: Descriptors) {
        let fits = descriptors.for_clients.max(1);
        let (wanted, open_files) = (self.max_connections, descriptors.limit);
        if wanted <= fits {
            return;
        }
        self.max_connections = fits;
        if self.is_shortage(fits) {
            tracing::warn!(
                runbook = "open-files-run-low",
                wanted,
                served = fits,
                open_files,
                "fewer connections are served than --max-connections allows: {HOW_TO_RAISE}",
            );
        } else {
            tracing::debug!(
                served = fits,
                open_files,
                "connections follow the limit of open files"
            );
        }
    }

    /// Returns true if the operator must hear that only this many connections are served.
    fn is_shortage(&self, served: usize) -> bool {
        self.max_connections_is_given || served < FEW_CONNECTIONS
    }
}

/// Bounds on the content of a push.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The most different client ids of one push.
    pub max_client_ids: usize,
}

/// The cache of app records, default quotas of apps, and bounds on recalls and failed logins.
#[derive(Debug, Clone)]
pub struct AppSettings {
    /// The time for which a record is used without asking the index again. A disabled app can push
    /// for this time and [`AppSettings::index_timeout`] longer, at most.
    pub fresh: Duration,
    /// The time for which a record is used while the index is unavailable.
    pub stale: Duration,
    /// The most records in the cache.
    pub max_apps: usize,
    /// The most failed logins of one address in a minute; further requests with a wrong secret are
    /// answered 429. None means no bound.
    pub max_failed_logins: Option<NonZeroU32>,
    /// The most devices of an app whose record sets no quota; none means no quota.
    pub max_devices: Option<NonZeroU32>,
    /// The same for its waiting messages.
    pub max_waiting: Option<NonZeroU32>,
    /// The same for the ledger entries of its messages.
    pub max_ledger_entries: Option<NonZeroU32>,
    /// The most recalls in work; one more is answered 503.
    pub max_recalls: usize,
    /// The most recalls in work of one app.
    pub max_recalls_per_app: usize,
    /// The interval at which last uses of secrets and failed logins are written.
    pub activity_interval: Duration,
    /// The time that the index has for an answer.
    pub index_timeout: Duration,
}

/// The bounds of batches, and of the pushes that wait for them.
#[derive(Debug, Clone)]
pub struct PublisherSettings {
    /// The most pushes of one envelope.
    pub batch_jobs: usize,
    /// The most bytes of one envelope; a single push may be larger.
    pub batch_bytes: usize,
    /// The most envelopes that wait for their confirm.
    pub window: usize,
    /// The most pushes that wait for an envelope; one more is answered 503. Pushes of a batch
    /// request are taken only while at most half of this number wait.
    pub waiting: usize,
    /// The time that a push may wait for its confirm; then it is answered 503.
    pub timeout: Duration,
}

impl PublisherSettings {
    /// Returns how many pushes may wait, those of a new batch request included: half of all, so
    /// that the other half stays free for single pushes.
    pub(crate) fn max_waiting_in_groups(&self) -> usize {
        self.waiting.div_ceil(2)
    }
}

//! The settings of ingest, as the service uses them. Each part of the service has a struct of its
//! own.
//!
//! - `args`: the flags of all parts, and their check
//! - `listener`, `http`, `apps`, `broker_auth`: the flags of one part
//! - `constants`: what is no setting, or the default of one

mod apps;
mod args;
mod broker_auth;
mod constants;
mod http;
mod listener;
#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use push_boot::{
    descriptors::{Descriptors, HOW_TO_RAISE},
    proxy_protocol::TrustedProxies,
};
use push_credentials::DeviceCredentials;
use push_model::{ledger::Retention, secret::SecretHash};
use push_tls::server::TlsSettings;

pub use self::args::IngestArgs;
use crate::body::TimeLimits;

/// Where producers connect, if nothing else is set.
pub const DEFAULT_LISTEN: &str = "0.0.0.0:8080";

/// How many bytes a line of a batch request may hold besides its own: its job is longer than the
/// line by what is the same in all jobs, or its answer says what is wrong with it.
pub(crate) const LINE_MEMORY: usize = 1024;

/// All settings of ingest.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address where backends send their requests.
    pub listen: SocketAddr,
    /// The certificate with which they are served. Without one there is no TLS.
    pub tls: Option<TlsSettings>,
    /// The address of `/livez`, `/readyz` and `/metrics`.
    pub ops_listen: SocketAddr,
    /// How long a stopping service may take to finish what it began.
    pub drain_deadline: Duration,
    /// Bounds on what clients may make the service hold.
    pub http: HttpSettings,
    /// What a push may ask for.
    pub rules: Rules,
    /// How app records are cached.
    pub apps: AppSettings,
    /// How accepted pushes reach the queue.
    pub publisher: PublisherSettings,
    /// How long workers keep the ledger entry of a message. A message that has none is reported as
    /// waiting in the queue, but no longer than this.
    pub ledger_retention: Retention,
    /// What signs the MQTT logins of devices; if absent, devices get none. The program opens its file
    /// and puts it here.
    pub device_credentials: Option<DeviceCredentials>,
    /// How MQTT brokers prove that they may ask about their clients; if absent, none may.
    pub broker_auth: Option<BrokerAuthSettings>,
    /// Whether there are traces. The program says so here, if it has a collector.
    pub is_traced: bool,
    /// The share of requests that are traced, from 0 to 1, of those whose caller has not decided.
    pub trace_ratio: f64,
}

/// What MQTT brokers that ask are answered with.
#[derive(Debug, Clone)]
pub struct BrokerAuthSettings {
    /// The secret with which a broker authenticates.
    pub secret: SecretHash,
    /// The password of the workers at the broker; if absent, no worker may log in.
    pub worker_password: Option<SecretHash>,
}

/// Fewer connections than this are too few for many an installation.
const FEW_CONNECTIONS: usize = 1000;

/// Bounds on connections and requests.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Connections served at once. One more takes the place of an idle one, or is answered 503.
    /// Over HTTP/2, as many requests of all connections may be in work beside the first one of each
    /// connection; one more is answered 503.
    pub max_connections: usize,
    /// Whether the operator asked for so many.
    pub max_connections_is_given: bool,
    /// As many of them may come from one address; half of all, if none.
    pub max_connections_per_address: Option<usize>,
    /// How long a request's head may take from its first byte. For the first head of a connection
    /// the time runs from the accept.
    pub header_timeout: Duration,
    /// How long a request's body may take from the end of its head.
    pub body_timeout: Duration,
    /// How long a connection may be idle between requests.
    pub idle_timeout: Duration,
    /// The largest head of a request, in bytes.
    pub max_header: usize,
    /// The largest body of a request with one push, in bytes.
    pub max_body: usize,
    /// The largest body of a request with many pushes, in bytes.
    pub max_batch_body: usize,
    /// How many pushes one request may have.
    pub max_batch_lines: usize,
    /// How many requests may be in work at once on one HTTP/2 connection.
    pub h2_streams: u32,
    /// How many bytes the bodies of all requests in work may have; one more request is answered
    /// 503. A request with many pushes is taken only while half of this is free.
    pub max_buffered: usize,
    /// How many of these bytes one app may have; one more of its requests is answered 503. Its
    /// requests with many pushes may have half of this.
    pub max_buffered_per_app: usize,
    /// How many bytes a second a body must come with on average, after its first seconds; none
    /// means no bound.
    pub min_body_rate: Option<NonZeroUsize>,
    /// The proxies that may say which client a connection or a request is of. The program reads its flag
    /// and puts them here.
    pub trusted_proxies: TrustedProxies,
}

impl HttpSettings {
    /// How long a body may take.
    pub(crate) const fn body_time(&self) -> TimeLimits {
        TimeLimits { whole: self.body_timeout, least_rate: self.min_body_rate }
    }
}

impl HttpSettings {
    /// How many connections of one address are served at once.
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
                wanted,
                served = fits,
                open_files,
                "fewer connections are served than --max-connections allows: {HOW_TO_RAISE}",
            );
        } else {
            tracing::info!(served = fits, open_files, "connections follow the limit of open files");
        }
    }

    /// Whether the operator must hear that only so many connections are served.
    fn is_shortage(&self, served: usize) -> bool {
        self.max_connections_is_given || served < FEW_CONNECTIONS
    }
}

/// Bounds on the content of a push.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// How many different client ids one push may name.
    pub max_client_ids: usize,
}

/// How app records are cached.
#[derive(Debug, Clone)]
pub struct AppSettings {
    /// How long a record is used without asking the index again. An app that is disabled can push
    /// for this time and [`AppSettings::index_timeout`] longer, at most.
    pub fresh: Duration,
    /// How long a record is used while the index is unavailable.
    pub stale: Duration,
    /// How many records are cached.
    pub max_apps: usize,
    /// How many logins of one address may fail in a minute without being refused as too many; none
    /// means no bound.
    pub max_failed_logins: Option<NonZeroU32>,
    /// How many devices an app may have whose record does not say it; none means no quota.
    pub max_devices: Option<NonZeroU32>,
    /// The same for its messages that wait.
    pub max_waiting: Option<NonZeroU32>,
    /// The same for the ledger entries of its messages.
    pub max_ledger_entries: Option<NonZeroU32>,
    /// How many recalls may be in work at once; one more is answered 503.
    pub max_recalls: usize,
    /// How many of them may be of one app.
    pub max_recalls_per_app: usize,
    /// How often last uses of secrets and failed logins are written.
    pub activity_interval: Duration,
    /// How long the index may take for an answer.
    pub index_timeout: Duration,
}

/// How accepted pushes reach the queue.
#[derive(Debug, Clone)]
pub struct PublisherSettings {
    /// How many pushes one envelope may have.
    pub batch_jobs: usize,
    /// How many bytes one envelope may have; a single push may be larger.
    pub batch_bytes: usize,
    /// How many envelopes may wait for their confirm at once.
    pub window: usize,
    /// How many pushes may wait for an envelope; one more is answered 503. Those of a request
    /// with many pushes are taken only while no more than half of this wait.
    pub waiting: usize,
    /// How long a push may wait for its confirm; then it is answered 503.
    pub timeout: Duration,
}

impl PublisherSettings {
    /// How many pushes may wait when those of a request with many pushes come: half of all, so that
    /// the other half stays free for single pushes.
    pub(crate) fn max_waiting_in_groups(&self) -> usize {
        self.waiting.div_ceil(2)
    }
}

//! The flags and environment variables of ingest, as text.

use std::path::PathBuf;

use push_boot::secret::SecretText;

/// Where producers connect, if nothing else is set.
pub const DEFAULT_LISTEN: &str = "0.0.0.0:8080";

const LIMITS: &str = "Limits and quotas of HTTP";
const LOGINS: &str = "Logins of devices";
const TRACES: &str = "Log, metrics and traces";

/// The flags of ingest, as they were given.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Listeners and stop")]
pub struct IngestArgs {
    /// Take the requests of producers on this address
    #[arg(long, env = "PUSH_LISTEN", value_name = "ADDRESS", default_value = DEFAULT_LISTEN)]
    pub(super) listen: String,
    /// Use the certificate of this PEM file, with its chain, for TLS on --listen. It is read again when
    /// the file changes
    #[arg(long, env = "PUSH_TLS_CERT", value_name = "FILE")]
    pub(super) tls_cert: Option<String>,
    /// Use the private key of this PEM file with --tls-cert
    #[arg(long, env = "PUSH_TLS_KEY", value_name = "FILE")]
    pub(super) tls_key: Option<String>,
    /// Let other machines reach --listen without TLS. Secrets then cross the network unencrypted: use
    /// `on` only in a network that you trust, or behind a proxy that ends TLS
    #[arg(long, env = "PUSH_HTTP_IN_CLEAR", value_name = "on|off", default_value = "off")]
    pub(super) http_in_clear: String,
    /// Serve /livez, /readyz and /metrics on this address
    #[arg(
        long = "ops-listen",
        env = "PUSH_OPS_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9080"
    )]
    pub(super) ops_listen: String,
    /// Allow a stop so much time to finish what has begun
    #[arg(long, env = "PUSH_DRAIN_DEADLINE", value_name = "TIME", default_value = "25s")]
    pub(super) drain_deadline: String,
    /// Whether requests in the usual form take a fast path: on or off. Off, hyper reads every
    /// request, with the same answers, which takes more processor time
    #[arg(long, env = "PUSH_FAST_PATH", value_name = "on|off", default_value = "on")]
    pub(super) fast_path: String,
    /// Limit the connections that are served, as far as the limit of open files allows. One more takes
    /// the place of an idle one, or is answered 503. As many HTTP/2 requests of all connections may be
    /// in work beside the first one of each [default: 10000]
    #[arg(long, help_heading = LIMITS, env = "PUSH_MAX_CONNECTIONS", value_name = "N")]
    pub(super) max_connections: Option<String>,
    /// Limit the connections from one address (IPv6: from one /64) [default: half of
    /// --max-connections]
    #[arg(long, help_heading = LIMITS, env = "PUSH_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N")]
    pub(super) max_connections_per_address: Option<String>,
    /// Limit the body of a batch request
    #[arg(long, help_heading = LIMITS, env = "PUSH_MAX_BATCH_BODY", value_name = "SIZE", default_value = "4MiB")]
    pub(super) max_batch_body: String,
    /// Limit the pushes of a batch request
    #[arg(long, help_heading = LIMITS, env = "PUSH_MAX_BATCH_LINES", value_name = "N", default_value = "1000")]
    pub(super) max_batch_lines: String,
    /// Limit the memory for all request bodies in work. A request beyond that is answered 503, a batch
    /// request already beyond half of it
    #[arg(long, help_heading = LIMITS, env = "PUSH_MAX_BUFFERED", value_name = "SIZE", default_value = "128MiB")]
    pub(super) max_buffered: String,
    /// Limit the memory for the request bodies of one app in the same way [default: a quarter of
    /// --max-buffered, or as much as the largest requests need]
    #[arg(long, help_heading = LIMITS, env = "PUSH_MAX_BUFFERED_PER_APP", value_name = "SIZE")]
    pub(super) max_buffered_per_app: Option<String>,
    /// Answer 408 if a body arrives with fewer bytes a second than this, on average after its first 5
    /// seconds. 0B is no bound
    #[arg(long, help_heading = LIMITS, env = "PUSH_MIN_BODY_RATE", value_name = "SIZE", default_value = "1KiB")]
    pub(super) min_body_rate: String,
    /// Limit the client ids that one push may name
    #[arg(long, help_heading = LIMITS, env = "PUSH_MAX_CLIENT_IDS", value_name = "N", default_value = "1000")]
    pub(super) max_client_ids: String,
    /// Limit the devices of an app, unless `pushctl app set --max-devices` sets its own limit
    #[arg(long, help_heading = LIMITS, env = "PUSH_APP_MAX_DEVICES", value_name = "N|none", default_value = "none")]
    pub(super) app_max_devices: String,
    /// Answer 429 while so many messages of an app wait, unless `pushctl app set --max-waiting` sets its
    /// own limit
    #[arg(long, help_heading = LIMITS, env = "PUSH_APP_MAX_WAITING", value_name = "N|none", default_value = "none")]
    pub(super) app_max_waiting: String,
    /// Answer 429 while the messages of an app have so many ledger entries, unless `pushctl app set
    /// --max-ledger-entries` sets its own limit
    #[arg(
        long,
        help_heading = LIMITS,
        env = "PUSH_APP_MAX_LEDGER_ENTRIES",
        value_name = "N|none",
        default_value = "none"
    )]
    pub(super) app_max_ledger_entries: String,
    /// Limit the recalls in work: one more is answered 503. A recall goes on when its client is gone
    #[arg(long, help_heading = LIMITS, env = "PUSH_MAX_RECALLS", value_name = "N", default_value = "1024")]
    pub(super) max_recalls: String,
    /// Limit the recalls of one app in the same way [default: a quarter of --max-recalls]
    #[arg(long, help_heading = LIMITS, env = "PUSH_MAX_RECALLS_PER_APP", value_name = "N")]
    pub(super) max_recalls_per_app: Option<String>,
    /// Answer 429 to an address (IPv6: a /64) that sent so many requests with a wrong secret in a
    /// minute. 0 is no limit
    #[arg(long, help_heading = LIMITS, env = "PUSH_MAX_FAILED_LOGINS", value_name = "N", default_value = "60")]
    pub(super) max_failed_logins: String,
    /// Let an MQTT broker ask about its clients (under /v1/broker/) if it sends this secret: 32 to 256
    /// visible ASCII characters. Without a secret no broker may ask
    #[arg(long, help_heading = LOGINS, env = "PUSH_BROKER_AUTH_SECRET", value_name = "SECRET")]
    pub(super) broker_auth_secret: Option<SecretText>,
    /// Read --broker-auth-secret from this file
    #[arg(long, help_heading = LOGINS, env = "PUSH_BROKER_AUTH_SECRET_FILE", value_name = "FILE")]
    pub(super) broker_auth_secret_file: Option<PathBuf>,
    /// Let workers log in to an MQTT broker with this password, as user `worker`
    #[arg(long, help_heading = LOGINS, env = "PUSH_MQTT_WORKER_PASSWORD", value_name = "PASSWORD")]
    pub(super) mqtt_worker_password: Option<SecretText>,
    /// Read --mqtt-worker-password from this file
    #[arg(long, help_heading = LOGINS, env = "PUSH_MQTT_WORKER_PASSWORD_FILE", value_name = "FILE")]
    pub(super) mqtt_worker_password_file: Option<PathBuf>,
    /// Trace this share of requests, from 0 to 1, if there is --otlp-url. A request with a header
    /// `traceparent` is traced if its caller says so
    #[arg(long, help_heading = TRACES, env = "PUSH_TRACE_RATIO", value_name = "SHARE", default_value = "0.01")]
    pub(super) trace_ratio: String,
}

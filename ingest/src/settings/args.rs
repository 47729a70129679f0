//! The flags and environment variables of ingest, as text.

use std::path::PathBuf;

use push_boot::secret::SecretText;

/// Where producers connect, if nothing else is set.
pub const DEFAULT_LISTEN: &str = "0.0.0.0:8080";

/// The flags of ingest, as they were given.
#[derive(Debug, Clone, clap::Args)]
pub struct IngestArgs {
    /// Where producers connect
    #[arg(long, env = "PUSH_LISTEN", value_name = "ADDRESS", default_value = DEFAULT_LISTEN)]
    pub(super) listen: String,
    /// The certificate for TLS on --listen, with its chain, in a PEM file. It is read again when
    /// the file changes
    #[arg(long, env = "PUSH_TLS_CERT", value_name = "FILE")]
    pub(super) tls_cert: Option<String>,
    /// Its private key, in a PEM file
    #[arg(long, env = "PUSH_TLS_KEY", value_name = "FILE")]
    pub(super) tls_key: Option<String>,
    /// Whether --listen may be reached from other machines without TLS: on or off. On, secrets go
    /// over the network in clear: only for a network that you trust, or behind a proxy that ends
    /// TLS
    #[arg(long, env = "PUSH_HTTP_IN_CLEAR", value_name = "on|off", default_value = "off")]
    pub(super) http_in_clear: String,
    /// Where /livez, /readyz and /metrics are served
    #[arg(
        long = "ops-listen",
        env = "PUSH_OPS_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9080"
    )]
    pub(super) ops_listen: String,
    /// How long a stopping service may take to finish what it began
    #[arg(long, env = "PUSH_DRAIN_DEADLINE", value_name = "TIME", default_value = "25s")]
    pub(super) drain_deadline: String,
    /// Connections served at once, as far as the limit of open files allows; one more takes the
    /// place of an idle one, or is answered 503. As many HTTP/2 requests of all connections may be
    /// in work beside the first one of each. 10000 if it is not given
    #[arg(long, env = "PUSH_MAX_CONNECTIONS", value_name = "N")]
    pub(super) max_connections: Option<String>,
    /// How many of them may come from one address (IPv6: from one /64); half of them if it is not
    /// given
    #[arg(long, env = "PUSH_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N")]
    pub(super) max_connections_per_address: Option<String>,
    /// Time for a request's head; a connection without a first request is closed after it
    #[arg(long, env = "PUSH_HEADER_TIMEOUT", value_name = "TIME", default_value = "10s")]
    pub(super) header_timeout: String,
    /// Time for a request's body
    #[arg(long, env = "PUSH_BODY_TIMEOUT", value_name = "TIME", default_value = "15s")]
    pub(super) body_timeout: String,
    /// How long a connection may lie idle between requests
    #[arg(long, env = "PUSH_IDLE_TIMEOUT", value_name = "TIME", default_value = "75s")]
    pub(super) idle_timeout: String,
    /// The largest head of a request
    #[arg(long, env = "PUSH_MAX_HEADER", value_name = "SIZE", default_value = "16KiB")]
    pub(super) max_header: String,
    /// The largest body of a request
    #[arg(long, env = "PUSH_MAX_BODY", value_name = "SIZE", default_value = "512KiB")]
    pub(super) max_body: String,
    /// The largest body of a request with many pushes
    #[arg(long, env = "PUSH_MAX_BATCH_BODY", value_name = "SIZE", default_value = "4MiB")]
    pub(super) max_batch_body: String,
    /// Pushes in one request, at most
    #[arg(long, env = "PUSH_MAX_BATCH_LINES", value_name = "N", default_value = "1000")]
    pub(super) max_batch_lines: String,
    /// Requests in work at once on one HTTP/2 connection
    #[arg(long, env = "PUSH_H2_STREAMS", value_name = "N", default_value = "256")]
    pub(super) h2_streams: String,
    /// Bytes of all request bodies in work; a request beyond that is answered 503, a batch request
    /// already beyond half of it
    #[arg(long, env = "PUSH_MAX_BUFFERED", value_name = "SIZE", default_value = "128MiB")]
    pub(super) max_buffered: String,
    /// Bytes of the request bodies of one app in work; one more of its requests is answered 503, a
    /// batch request already beyond half of it [default: a quarter of --max-buffered, or as much as
    /// its largest requests need]
    #[arg(long, env = "PUSH_MAX_BUFFERED_PER_APP", value_name = "SIZE")]
    pub(super) max_buffered_per_app: Option<String>,
    /// Bytes a second that a body must come with on average, after its first 5 seconds; a slower
    /// one is answered 408. 0B is no bound
    #[arg(long, env = "PUSH_MIN_BODY_RATE", value_name = "SIZE", default_value = "1KiB")]
    pub(super) min_body_rate: String,
    /// Client ids that one push may name
    #[arg(long, env = "PUSH_MAX_CLIENT_IDS", value_name = "N", default_value = "1000")]
    pub(super) max_client_ids: String,
    /// How long an app's record is used without asking the index again
    #[arg(long, env = "PUSH_APP_FRESH", value_name = "TIME", default_value = "3s")]
    pub(super) app_fresh: String,
    /// How long an app's record, and with it a secret that was revoked meanwhile, is used while the index is unavailable
    #[arg(long, env = "PUSH_APP_STALE", value_name = "TIME", default_value = "5min")]
    pub(super) app_stale: String,
    /// How many apps' records are kept
    #[arg(long, env = "PUSH_MAX_APPS", value_name = "N", default_value = "100000")]
    pub(super) max_apps: String,
    /// The most devices of an app, unless `pushctl app set --max-devices` sets its own; none: no
    /// limit
    #[arg(long, env = "PUSH_APP_MAX_DEVICES", value_name = "N|none", default_value = "none")]
    pub(super) app_max_devices: String,
    /// Messages that may wait of an app for which `pushctl app set --max-waiting` says nothing else: one
    /// more is answered 429; none is no quota
    #[arg(long, env = "PUSH_APP_MAX_WAITING", value_name = "N|none", default_value = "none")]
    pub(super) app_max_waiting: String,
    /// Ledger entries that the messages of an app may have for which `pushctl app set
    /// --max-ledger-entries` says nothing else: one more message is answered 429; none is no quota
    #[arg(
        long,
        env = "PUSH_APP_MAX_LEDGER_ENTRIES",
        value_name = "N|none",
        default_value = "none"
    )]
    pub(super) app_max_ledger_entries: String,
    /// Recalls in work at once; one more is answered 503. A recall goes on when its client is gone
    #[arg(long, env = "PUSH_MAX_RECALLS", value_name = "N", default_value = "1024")]
    pub(super) max_recalls: String,
    /// Recalls of one app in work at once; one more of its recalls is answered 503 [default: a
    /// quarter of --max-recalls]
    #[arg(long, env = "PUSH_MAX_RECALLS_PER_APP", value_name = "N")]
    pub(super) max_recalls_per_app: Option<String>,
    /// How often last uses of secrets are written to the index, and failed logins to the log
    #[arg(long, env = "PUSH_ACTIVITY_INTERVAL", value_name = "TIME", default_value = "1min")]
    pub(super) activity_interval: String,
    /// Requests with a wrong secret that one address (IPv6: one /64) may send in a minute; further
    /// ones are answered 429. 0: no limit
    #[arg(long, env = "PUSH_MAX_FAILED_LOGINS", value_name = "N", default_value = "60")]
    pub(super) max_failed_logins: String,
    /// How long the index may take for an answer
    #[arg(long, env = "PUSH_INDEX_TIMEOUT", value_name = "TIME", default_value = "2s")]
    pub(super) index_timeout: String,
    /// Pushes put into one message to the queue, at most
    #[arg(long, env = "PUSH_BATCH_JOBS", value_name = "N", default_value = "512")]
    pub(super) batch_jobs: String,
    /// Bytes put into one message to the queue, unless a single push is larger
    #[arg(long, env = "PUSH_BATCH_BYTES", value_name = "SIZE", default_value = "1MiB")]
    pub(super) batch_bytes: String,
    /// Messages to the queue that wait for their confirm at once
    #[arg(long, env = "PUSH_PUBLISH_WINDOW", value_name = "N", default_value = "4")]
    pub(super) publish_window: String,
    /// Pushes that wait for an envelope; one more is answered 503, one of a batch request already
    /// beyond half of it
    #[arg(long, env = "PUSH_PUBLISH_WAITING", value_name = "N", default_value = "8192")]
    pub(super) publish_waiting: String,
    /// How long a push may wait until its envelope is sent, and again as long until the queue confirms
    /// it; then it is answered 503
    #[arg(long, env = "PUSH_PUBLISH_TIMEOUT", value_name = "TIME", default_value = "10s")]
    pub(super) publish_timeout: String,
    /// The secret with which an MQTT broker authenticates when it asks about its clients (under
    /// /v1/broker/): 32 to 256 visible ASCII characters. Without it no broker may ask
    #[arg(long, env = "PUSH_BROKER_AUTH_SECRET", value_name = "SECRET")]
    pub(super) broker_auth_secret: Option<SecretText>,
    /// The file that holds the secret of the broker, in place of --broker-auth-secret
    #[arg(long, env = "PUSH_BROKER_AUTH_SECRET_FILE", value_name = "FILE")]
    pub(super) broker_auth_secret_file: Option<PathBuf>,
    /// The password with which the workers log in to an MQTT broker that asks, as user `worker`
    #[arg(long, env = "PUSH_MQTT_WORKER_PASSWORD", value_name = "PASSWORD")]
    pub(super) mqtt_worker_password: Option<SecretText>,
    /// The file that holds the password of the workers, in place of --mqtt-worker-password
    #[arg(long, env = "PUSH_MQTT_WORKER_PASSWORD_FILE", value_name = "FILE")]
    pub(super) mqtt_worker_password_file: Option<PathBuf>,
    /// With --otlp-url: the share of requests that are traced, from 0 to 1. A request with a header
    /// `traceparent` is traced if its caller says so
    #[arg(long, env = "PUSH_TRACE_RATIO", value_name = "SHARE", default_value = "0.01")]
    pub(super) trace_ratio: String,
}

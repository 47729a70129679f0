//! The settings of ingest: flags and environment variables as text, and what they mean once
//! they are checked. Each part owns its small struct.

use std::{net::SocketAddr, time::Duration};

use push_index::REMOVED_APP_REFUSES;
use push_model::ledger::Retention;
use push_service::settings::{Mistakes, address, count, duration, size};

/// What a line of a batch may hold beside its bytes of the body, in bytes: its job is longer than
/// the line by what is the same in all jobs, or its answer says what is wrong with it.
pub(crate) const LINE_MEMORY: usize = 1024;

/// Everything that ingest needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where producers connect.
    pub listen: SocketAddr,
    /// Where operators and probes connect.
    pub ops_listen: SocketAddr,
    /// How long a stopping service may take to finish what it began.
    pub drain_deadline: Duration,
    /// What a client may make the service hold.
    pub http: HttpSettings,
    /// What a push may ask for.
    pub rules: Rules,
    /// How app records are kept.
    pub apps: AppSettings,
    /// How accepted pushes reach the queue.
    pub publisher: PublisherSettings,
    /// How long workers keep the ledger of a message; a message without one is taken for
    /// waiting no longer than this.
    pub ledger_retention: Retention,
}

/// Bounds on connections and requests.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Connections served at once; one more is answered 503.
    pub max_connections: usize,
    /// From the first byte of a request, or from the accept, to the end of its head.
    pub header_timeout: Duration,
    /// From the end of a head to the end of the body.
    pub body_timeout: Duration,
    /// How long a connection may lie idle between requests.
    pub idle_timeout: Duration,
    /// The most bytes of a request's head.
    pub max_header: usize,
    /// The most bytes of a request's body.
    pub max_body: usize,
    /// The most bytes of the body of a request with many pushes.
    pub max_batch_body: usize,
    /// The most pushes of one request.
    pub max_batch_lines: usize,
    /// Requests in work at once on one HTTP/2 connection.
    pub h2_streams: u32,
    /// Bytes of all bodies in work; more are answered 503. Requests with many pushes are taken
    /// while half of it is free.
    pub max_buffered: usize,
}

/// Bounds on the content of a push.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Client ids of one push, after dropping repeats.
    pub max_client_ids: usize,
}

/// How app records are kept.
#[derive(Debug, Clone)]
pub struct AppSettings {
    /// How long a record is used without asking again. With [`AppSettings::index_timeout`] it
    /// bounds how long a disabled app can still push.
    pub fresh: Duration,
    /// How long a record is used while the index is away.
    pub stale: Duration,
    /// How many records are kept.
    pub max_apps: usize,
    /// How long the index may take for an answer.
    pub index_timeout: Duration,
}

/// How accepted pushes reach the queue.
#[derive(Debug, Clone)]
pub struct PublisherSettings {
    /// Pushes of one group commit.
    pub batch_jobs: usize,
    /// Bytes of one group commit; a single push may be larger.
    pub batch_bytes: usize,
    /// Group commits that wait for their confirm at once.
    pub window: usize,
    /// Pushes that wait for a group commit; one more is answered 503. Those of requests with many
    /// are taken while no more than half of that wait.
    pub waiting: usize,
    /// From a push's wait to its confirm; then it is answered 503.
    pub timeout: Duration,
}

impl PublisherSettings {
    /// How many pushes may wait when those of a request with many come: half of all, so that
    /// single pushes still find a place.
    pub(crate) fn waiting_in_bundles(&self) -> usize {
        self.waiting.div_ceil(2)
    }
}

/// The flags of ingest, as they were written.
#[derive(Debug, Clone, clap::Args)]
pub struct IngestArgs {
    /// Where producers connect
    #[arg(long, env = "PUSH_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    listen: String,
    /// Where /livez, /readyz and /metrics are served
    #[arg(
        long = "ops-listen",
        env = "PUSH_OPS_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9080"
    )]
    ops_listen: String,
    /// How long a stopping service may take to finish what it began
    #[arg(long, env = "PUSH_DRAIN_DEADLINE", value_name = "TIME", default_value = "25s")]
    drain_deadline: String,
    /// Connections served at once; one more is answered 503
    #[arg(long, env = "PUSH_MAX_CONNECTIONS", value_name = "N", default_value = "10000")]
    max_connections: String,
    /// Time for a request's head; a connection without a first request is closed after it
    #[arg(long, env = "PUSH_HEADER_TIMEOUT", value_name = "TIME", default_value = "10s")]
    header_timeout: String,
    /// Time for a request's body
    #[arg(long, env = "PUSH_BODY_TIMEOUT", value_name = "TIME", default_value = "15s")]
    body_timeout: String,
    /// How long a connection may lie idle between requests
    #[arg(long, env = "PUSH_IDLE_TIMEOUT", value_name = "TIME", default_value = "75s")]
    idle_timeout: String,
    /// The largest head of a request
    #[arg(long, env = "PUSH_MAX_HEADER", value_name = "SIZE", default_value = "16KiB")]
    max_header: String,
    /// The largest body of a request
    #[arg(long, env = "PUSH_MAX_BODY", value_name = "SIZE", default_value = "512KiB")]
    max_body: String,
    /// The largest body of a request with many pushes
    #[arg(long, env = "PUSH_MAX_BATCH_BODY", value_name = "SIZE", default_value = "4MiB")]
    max_batch_body: String,
    /// Pushes in one request, at most
    #[arg(long, env = "PUSH_MAX_BATCH_LINES", value_name = "N", default_value = "1000")]
    max_batch_lines: String,
    /// Requests in work at once on one HTTP/2 connection
    #[arg(long, env = "PUSH_H2_STREAMS", value_name = "N", default_value = "256")]
    h2_streams: String,
    /// Bytes of all request bodies in work; more are answered 503, and a request with many pushes
    /// is beyond half of it
    #[arg(long, env = "PUSH_MAX_BUFFERED", value_name = "SIZE", default_value = "128MiB")]
    max_buffered: String,
    /// Client ids that one push may name
    #[arg(long, env = "PUSH_MAX_CLIENT_IDS", value_name = "N", default_value = "1000")]
    max_client_ids: String,
    /// How long an app's record is used without asking the index again
    #[arg(long, env = "PUSH_APP_FRESH", value_name = "TIME", default_value = "3s")]
    app_fresh: String,
    /// How long an app's record is used while the index is away
    #[arg(long, env = "PUSH_APP_STALE", value_name = "TIME", default_value = "5min")]
    app_stale: String,
    /// How many apps' records are kept
    #[arg(long, env = "PUSH_MAX_APPS", value_name = "N", default_value = "100000")]
    max_apps: String,
    /// How long the index may take for an answer
    #[arg(long, env = "PUSH_INDEX_TIMEOUT", value_name = "TIME", default_value = "2s")]
    index_timeout: String,
    /// Pushes put into one message to the queue, at most
    #[arg(long, env = "PUSH_BATCH_JOBS", value_name = "N", default_value = "512")]
    batch_jobs: String,
    /// Bytes put into one message to the queue, unless a single push is larger
    #[arg(long, env = "PUSH_BATCH_BYTES", value_name = "SIZE", default_value = "1MiB")]
    batch_bytes: String,
    /// Messages to the queue that wait for their confirm at once
    #[arg(long, env = "PUSH_PUBLISH_WINDOW", value_name = "N", default_value = "4")]
    publish_window: String,
    /// Pushes that wait for their turn; one more is answered 503, and a request with many pushes is
    /// beyond half of it
    #[arg(long, env = "PUSH_PUBLISH_WAITING", value_name = "N", default_value = "8192")]
    publish_waiting: String,
    /// How long a push may wait for the queue's confirm; then it is answered 503
    #[arg(long, env = "PUSH_PUBLISH_TIMEOUT", value_name = "TIME", default_value = "10s")]
    publish_timeout: String,
}

impl IngestArgs {
    /// Checks the flags; what is wrong goes into `mistakes`. `ledger_retention` is set with the
    /// engines, for all programs.
    pub fn check(
        &self,
        ledger_retention: Option<Retention>,
        mistakes: &mut Mistakes,
    ) -> Option<Settings> {
        let listen = mistakes.take("--listen", &self.listen, address);
        let ops_listen = mistakes.take("--ops-listen", &self.ops_listen, address);
        let drain_deadline = mistakes.take("--drain-deadline", &self.drain_deadline, duration);
        let http = self.check_http(mistakes);
        let rules = mistakes
            .take("--max-client-ids", &self.max_client_ids, count(1, 100_000))
            .map(|max_client_ids| Rules { max_client_ids });
        let apps = self.check_apps(mistakes);
        let publisher = self.check_publisher(mistakes);
        Some(Settings {
            listen: listen?,
            ops_listen: ops_listen?,
            drain_deadline: drain_deadline?,
            http: http?,
            rules: rules?,
            apps: apps?,
            publisher: publisher?,
            ledger_retention: ledger_retention?,
        })
    }

    fn check_http(&self, mistakes: &mut Mistakes) -> Option<HttpSettings> {
        let max_connections =
            mistakes.take("--max-connections", &self.max_connections, count(1, 1_000_000));
        let header_timeout = mistakes.take("--header-timeout", &self.header_timeout, some_time);
        let body_timeout = mistakes.take("--body-timeout", &self.body_timeout, some_time);
        let idle_timeout = mistakes.take("--idle-timeout", &self.idle_timeout, some_time);
        let max_header =
            mistakes.take("--max-header", &self.max_header, size_between(1024, 1024 * 1024));
        let max_body =
            mistakes.take("--max-body", &self.max_body, size_between(1024, 64 * 1024 * 1024));
        let max_batch_body = mistakes.take(
            "--max-batch-body",
            &self.max_batch_body,
            size_between(1024, 64 * 1024 * 1024),
        );
        let max_batch_lines =
            mistakes.take("--max-batch-lines", &self.max_batch_lines, count(1, 100_000));
        let h2_streams = mistakes.take("--h2-streams", &self.h2_streams, count(1, 10_000));
        let max_buffered = mistakes.take(
            "--max-buffered",
            &self.max_buffered,
            // A semaphore's permits: the upper end is far below what it can count.
            size_between(1024, 1 << 40),
        );
        if let (Some(body), Some(buffered)) = (max_body, max_buffered)
            && body > buffered
        {
            mistakes.note("--max-buffered (PUSH_MAX_BUFFERED): must hold one body of --max-body");
        }
        if let (Some(body), Some(lines), Some(buffered)) =
            (max_batch_body, max_batch_lines, max_buffered)
            && body + lines * LINE_MEMORY > buffered / 2
        {
            mistakes.note(
                "--max-buffered (PUSH_MAX_BUFFERED): half of it must hold one body of \
                 --max-batch-body and 1KiB for each of --max-batch-lines",
            );
        }
        Some(HttpSettings {
            max_connections: max_connections?,
            header_timeout: header_timeout?,
            body_timeout: body_timeout?,
            idle_timeout: idle_timeout?,
            max_header: max_header?,
            max_body: max_body?,
            max_batch_body: max_batch_body?,
            max_batch_lines: max_batch_lines?,
            h2_streams: h2_streams?,
            max_buffered: max_buffered?,
        })
    }

    fn check_apps(&self, mistakes: &mut Mistakes) -> Option<AppSettings> {
        let fresh = mistakes.take("--app-fresh", &self.app_fresh, duration);
        let stale = mistakes.take("--app-stale", &self.app_stale, duration);
        let max_apps = mistakes.take("--max-apps", &self.max_apps, count(1, 100_000_000));
        let index_timeout = mistakes.take("--index-timeout", &self.index_timeout, some_time);
        if let (Some(fresh), Some(stale)) = (fresh, stale)
            && fresh > stale
        {
            mistakes.note("--app-stale (PUSH_APP_STALE): must not be shorter than --app-fresh");
        }
        // The index recognises what is asked with the record of a removed app for so long only.
        if stale.is_some_and(|stale| stale > REMOVED_APP_REFUSES / 2) {
            mistakes.note("--app-stale (PUSH_APP_STALE): must not be longer than 3h");
        }
        Some(AppSettings {
            fresh: fresh?,
            stale: stale?,
            max_apps: max_apps?,
            index_timeout: index_timeout?,
        })
    }

    fn check_publisher(&self, mistakes: &mut Mistakes) -> Option<PublisherSettings> {
        let batch_jobs = mistakes.take("--batch-jobs", &self.batch_jobs, count(1, 65_536));
        let batch_bytes =
            mistakes.take("--batch-bytes", &self.batch_bytes, size_between(1024, 64 * 1024 * 1024));
        let window = mistakes.take("--publish-window", &self.publish_window, count(1, 1024));
        let waiting =
            mistakes.take("--publish-waiting", &self.publish_waiting, count(1, 1_000_000));
        let timeout = mistakes.take("--publish-timeout", &self.publish_timeout, some_time);
        Some(PublisherSettings {
            batch_jobs: batch_jobs?,
            batch_bytes: batch_bytes?,
            window: window?,
            waiting: waiting?,
            timeout: timeout?,
        })
    }
}

fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be longer than nothing".to_owned()),
        some => Ok(some),
    }
}

fn size_between(min: usize, max: usize) -> impl Fn(&str) -> Result<usize, String> {
    move |text| match size(text)? {
        n if (min..=max).contains(&n) => Ok(n),
        _ => Err(format!("must be from {min} to {max} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: IngestArgs,
    }

    fn check(flags: &[&str]) -> Result<Settings, Mistakes> {
        let cli = Cli::parse_from(std::iter::once(&"ingest").chain(flags));
        let mut mistakes = Mistakes::default();
        let settings = cli.args.check(Some(Retention::all(Duration::from_secs(60))), &mut mistakes);
        mistakes.finish(settings)
    }

    #[test]
    fn the_defaults_are_valid_and_let_a_disabled_app_push_for_at_most_five_seconds() {
        let settings = check(&[]).unwrap();
        assert!(settings.apps.fresh + settings.apps.index_timeout <= Duration::from_secs(5));
        assert!(settings.publisher.timeout < settings.drain_deadline);
    }

    #[test]
    fn every_wrong_setting_is_named_at_once() {
        let mistakes = check(&[
            "--listen=nowhere",
            "--body-timeout=0s",
            "--max-body=1GiB",
            "--batch-jobs=0",
            "--max-batch-body=1",
            "--max-batch-lines=0",
            "--app-stale=1s",
        ])
        .unwrap_err()
        .to_string();
        for env in [
            "PUSH_LISTEN",
            "PUSH_BODY_TIMEOUT",
            "PUSH_MAX_BODY",
            "PUSH_BATCH_JOBS",
            "PUSH_MAX_BATCH_BODY",
            "PUSH_MAX_BATCH_LINES",
            "PUSH_APP_STALE",
        ] {
            assert!(mistakes.contains(env), "{env} in {mistakes}");
        }
    }

    #[test]
    fn a_batch_must_fit_into_half_of_the_memory_for_bodies() {
        let with = |buffered: &str| {
            check(&["--max-batch-body=1MiB", "--max-batch-lines=1024", "--max-body=1KiB", buffered])
        };
        assert!(with("--max-buffered=4MiB").is_ok());
        let mistakes = with("--max-buffered=4194303B").unwrap_err().to_string();
        assert!(mistakes.contains("half of it must hold"), "{mistakes}");
    }
}

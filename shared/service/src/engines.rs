//! Engines are chosen by URL.
//!
//! `amqp://host,host/vhost` or `sqlite:///absolute/path` for the queue, `redis://…`,
//! `redis-cluster://host:port,host:port` or `sqlite:///absolute/path` for the index.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use push_index::{
    Index, IndexError, LedgerApart,
    redis::{RedisIndex, RedisSettings},
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use push_model::{ledger::Retention, namespace::namespace};
use push_queue::{
    Queue, QueueError,
    amqp::{self, AmqpQueue, AmqpSettings},
    sqlite::{SqliteQueue, SqliteQueueSettings},
};

use crate::settings::{Mistakes, duration};

/// The flags that name the engines, as they were written.
#[derive(Debug, Clone, clap::Args)]
pub struct EngineArgs {
    /// The queue: `amqp://user:password@host:5672/%2f` (hosts of a cluster: `a:5672,b:5672`), or
    /// `sqlite:///absolute/path`
    #[arg(long, env = "PUSH_QUEUE_URL", value_name = "URL", hide_env_values = true, global = true)]
    queue_url: Option<String>,
    /// The index: `redis://host:6379`, `redis-cluster://host:6379,host:6379`, or
    /// `sqlite:///absolute/path`
    #[arg(long, env = "PUSH_INDEX_URL", value_name = "URL", hide_env_values = true, global = true)]
    index_url: Option<String>,
    /// Prefix of every queue and key, so that several services can share the servers
    #[arg(
        long,
        env = "PUSH_NAMESPACE",
        value_name = "NAME",
        default_value = "push",
        global = true
    )]
    namespace: String,
    /// How long connecting to the queue's or the index's server may take
    #[arg(
        long,
        env = "PUSH_CONNECT_TIMEOUT",
        value_name = "TIME",
        default_value = "5s",
        global = true
    )]
    connect_timeout: String,
    /// How long the queue's server may take to confirm or to answer
    #[arg(
        long,
        env = "PUSH_QUEUE_TIMEOUT",
        value_name = "TIME",
        default_value = "10s",
        global = true
    )]
    queue_timeout: String,
    /// How long the index's server may take to answer
    #[arg(
        long,
        env = "PUSH_INDEX_RESPONSE_TIMEOUT",
        value_name = "TIME",
        default_value = "5s",
        global = true
    )]
    index_response_timeout: String,
    /// How often a quiet connection to RabbitMQ shows that it lives
    #[arg(
        long,
        env = "PUSH_AMQP_HEARTBEAT",
        value_name = "TIME",
        default_value = "10s",
        global = true
    )]
    amqp_heartbeat: String,
    /// Where the ledger is kept, if not in the index: a URL as for the index
    #[arg(
        long,
        env = "PUSH_LEDGER_URL",
        value_name = "URL",
        hide_env_values = true,
        global = true
    )]
    ledger_url: Option<String>,
    /// How long the ledger of a broadcast is kept
    #[arg(
        long,
        env = "PUSH_LEDGER_RETENTION",
        value_name = "TIME",
        default_value = "7days",
        global = true
    )]
    ledger_retention: String,
    /// How long the ledger of a push to named devices is kept
    #[arg(
        long,
        env = "PUSH_LEDGER_RETENTION_NAMED",
        value_name = "TIME",
        default_value = "2days",
        global = true
    )]
    ledger_retention_named: String,
}

/// How long the servers of the engines may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineTimeouts {
    /// To connect.
    pub connect: Duration,
    /// For the queue to confirm or answer.
    pub queue: Duration,
    /// For the index to answer.
    pub index: Duration,
    /// Between two heartbeats with RabbitMQ.
    pub heartbeat: Duration,
}

/// Which queue.
#[derive(Clone, PartialEq, Eq)]
pub enum QueueUrl {
    /// RabbitMQ, as an `amqp://` or `amqps://` URL with one host or several.
    Amqp(String),
    /// A SQLite file.
    Sqlite(PathBuf),
}

/// Which index.
#[derive(Clone, PartialEq, Eq)]
pub enum IndexUrl {
    /// Redis (`redis://`, `rediss://`) or Redis Cluster (`redis-cluster://`).
    Redis(String),
    /// A SQLite file.
    Sqlite(PathBuf),
}

/// Checked choice of engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineUrls {
    /// The queue.
    pub queue: QueueUrl,
    /// The index.
    pub index: IndexUrl,
    /// Prefix of every queue and key.
    pub namespace: String,
    /// How long their servers may take.
    pub timeouts: EngineTimeouts,
    /// Where the ledger is, if not in the index.
    pub ledger: Option<IndexUrl>,
    /// How long the ledger of a message is kept.
    pub ledger_retention: Retention,
}

const QUEUE: &str = "--queue-url";
const INDEX: &str = "--index-url";
const LEDGER: &str = "--ledger-url";
const NAMESPACE: &str = "--namespace";

impl EngineArgs {
    /// Checks the flags of a program that needs both URLs.
    pub fn check(&self, mistakes: &mut Mistakes) -> Option<EngineUrls> {
        for (flag, url) in [(QUEUE, &self.queue_url), (INDEX, &self.index_url)] {
            if url.is_none() {
                mistakes.missing(flag);
            }
        }
        let queue = self.queue_url.as_deref().and_then(|url| check_queue(url, mistakes));
        let index = self.index_url.as_deref().and_then(|url| check_index(INDEX, url, mistakes));
        self.with_rest(queue, index, mistakes)
    }

    /// Checks the flags of a program that works on the embedded store in `data_dir` wherever no
    /// URL is given.
    pub fn check_or_embedded(
        &self,
        data_dir: &Path,
        mistakes: &mut Mistakes,
    ) -> Option<EngineUrls> {
        let queue = match &self.queue_url {
            Some(url) => check_queue(url, mistakes),
            None => Some(QueueUrl::Sqlite(data_dir.join("queue.sqlite3"))),
        };
        let index = match &self.index_url {
            Some(url) => check_index(INDEX, url, mistakes),
            None => Some(IndexUrl::Sqlite(data_dir.join("index.sqlite3"))),
        };
        self.with_rest(queue, index, mistakes)
    }

    fn with_rest(
        &self,
        queue: Option<QueueUrl>,
        index: Option<IndexUrl>,
        mistakes: &mut Mistakes,
    ) -> Option<EngineUrls> {
        let ledger = match self.ledger_url.as_deref() {
            Some(url) => check_index(LEDGER, url, mistakes).map(Some),
            None => Some(None),
        };
        let namespace = mistakes.take(NAMESPACE, &self.namespace, namespace);
        let mut time = |flag, text| mistakes.take(flag, text, duration);
        let connect = time("--connect-timeout", &self.connect_timeout);
        let for_queue = time("--queue-timeout", &self.queue_timeout);
        let for_index = time("--index-response-timeout", &self.index_response_timeout);
        let heartbeat = time("--amqp-heartbeat", &self.amqp_heartbeat);
        let broadcast = time("--ledger-retention", &self.ledger_retention);
        let named = time("--ledger-retention-named", &self.ledger_retention_named);
        let ledger_retention = Retention { named: named?, broadcast: broadcast? };
        let timeouts = EngineTimeouts {
            connect: connect?,
            queue: for_queue?,
            index: for_index?,
            heartbeat: heartbeat?,
        };
        Some(EngineUrls {
            queue: queue?,
            index: index?,
            ledger: ledger?,
            namespace: namespace?,
            timeouts,
            ledger_retention,
        })
    }
}

/// Opens the queue that was chosen. `program` names the connections for operators.
///
/// # Errors
/// If it cannot be used now.
pub async fn open_queue(engines: &EngineUrls, program: &str) -> Result<Arc<dyn Queue>, QueueError> {
    let (namespace, timeouts) = (&engines.namespace, &engines.timeouts);
    Ok(match &engines.queue {
        QueueUrl::Amqp(url) => {
            let settings = AmqpSettings {
                program: program.to_owned(),
                heartbeat: timeouts.heartbeat,
                connect_timeout: timeouts.connect,
                request_timeout: timeouts.queue,
                publish_timeout: timeouts.queue,
                ..AmqpSettings::default()
            };
            Arc::new(AmqpQueue::connect(url, namespace, settings).await?)
        }
        QueueUrl::Sqlite(path) => {
            Arc::new(SqliteQueue::open(path, namespace, SqliteQueueSettings::default()).await?)
        }
    })
}

/// Opens the index that was chosen, with the ledger where it is to be.
///
/// # Errors
/// If it cannot be used now.
pub async fn open_index(engines: &EngineUrls) -> Result<Arc<dyn Index>, IndexError> {
    let index = open_store(&engines.index, engines).await?;
    match &engines.ledger {
        Some(url) if *url != engines.index => {
            Ok(Arc::new(LedgerApart { index, ledger: open_store(url, engines).await? }))
        }
        _ => Ok(index),
    }
}

async fn open_store(url: &IndexUrl, engines: &EngineUrls) -> Result<Arc<dyn Index>, IndexError> {
    let (namespace, timeouts) = (&engines.namespace, &engines.timeouts);
    Ok(match url {
        IndexUrl::Redis(url) => {
            let settings = RedisSettings {
                connect_timeout: timeouts.connect,
                response_timeout: timeouts.index,
            };
            Arc::new(RedisIndex::connect(url, namespace, settings).await?)
        }
        IndexUrl::Sqlite(path) => {
            Arc::new(SqliteIndex::open(path, namespace, SqliteIndexSettings::default()).await?)
        }
    })
}

fn check_queue(url: &str, mistakes: &mut Mistakes) -> Option<QueueUrl> {
    mistakes.take_secret(QUEUE, url, |url| match scheme(url) {
        "amqp" | "amqps" => {
            amqp::check_url(url)?;
            Ok(QueueUrl::Amqp(url.to_owned()))
        }
        "sqlite" => sqlite_path(url).map(QueueUrl::Sqlite),
        _ => Err("must begin with amqp://, amqps:// or sqlite:///".to_owned()),
    })
}

fn check_index(flag: &'static str, url: &str, mistakes: &mut Mistakes) -> Option<IndexUrl> {
    mistakes.take_secret(flag, url, |url| match scheme(url) {
        "redis" | "rediss" | "redis-cluster" => Ok(IndexUrl::Redis(url.to_owned())),
        "sqlite" => sqlite_path(url).map(IndexUrl::Sqlite),
        _ => Err("must begin with redis://, rediss://, redis-cluster:// or sqlite:///".to_owned()),
    })
}

fn scheme(url: &str) -> &str {
    url.split_once("://").map_or("", |(scheme, _)| scheme)
}

fn sqlite_path(url: &str) -> Result<PathBuf, String> {
    let path = url.strip_prefix("sqlite://").unwrap_or_default();
    if path.len() > 1 && path.starts_with('/') {
        Ok(PathBuf::from(path))
    } else {
        Err("must name a file by its absolute path, like sqlite:///var/lib/push/queue.sqlite3"
            .to_owned())
    }
}

/// Where an engine is, without the user and password that its URL may carry.
fn without_credentials(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

impl fmt::Display for QueueUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Amqp(url) => f.write_str(&without_credentials(url)),
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
        }
    }
}

impl fmt::Display for IndexUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(url) => f.write_str(&without_credentials(url)),
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
        }
    }
}

impl fmt::Debug for QueueUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for IndexUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(queue: Option<&str>, index: Option<&str>) -> EngineArgs {
        EngineArgs {
            queue_url: queue.map(Into::into),
            index_url: index.map(Into::into),
            namespace: "push".into(),
            connect_timeout: "5s".into(),
            queue_timeout: "10s".into(),
            index_response_timeout: "5s".into(),
            amqp_heartbeat: "10s".into(),
            ledger_url: None,
            ledger_retention: "7days".into(),
            ledger_retention_named: "2days".into(),
        }
    }

    #[test]
    fn a_url_chooses_its_engine_and_no_url_chooses_the_embedded_one() {
        let mut mistakes = Mistakes::default();
        let urls = args(Some("amqp://localhost"), None)
            .check_or_embedded(Path::new("/data"), &mut mistakes)
            .unwrap();
        assert_eq!(urls.queue, QueueUrl::Amqp("amqp://localhost".into()));
        assert_eq!(urls.index, IndexUrl::Sqlite("/data/index.sqlite3".into()));
    }

    #[test]
    fn wrong_and_missing_urls_are_reported_together() {
        let mut mistakes = Mistakes::default();
        assert!(args(Some("kafka://x"), None).check(&mut mistakes).is_none());
        let text = mistakes.to_string();
        assert!(
            text.contains("amqp://") && text.contains("PUSH_INDEX_URL): must be set"),
            "{text}"
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        let urls = [
            QueueUrl::Amqp("amqp://user:pa@ss@host:5672/%2f".into()).to_string(),
            format!("{:?}", IndexUrl::Redis("redis://:pass@host:6379".into())),
        ];
        assert_eq!(urls, ["amqp://host:5672/%2f", "redis://host:6379"]);
    }

    #[test]
    fn a_sqlite_url_has_an_absolute_path() {
        assert!(sqlite_path("sqlite://relative/path").is_err());
        assert_eq!(sqlite_path("sqlite:///a/b").unwrap(), Path::new("/a/b"));
    }
}

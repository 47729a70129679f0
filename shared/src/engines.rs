//! Engines are chosen by URL.
//!
//! `amqp://…` or `sqlite:///absolute/path` for the queue, `redis://…`,
//! `redis-cluster://host:port,host:port` or `sqlite:///absolute/path` for the index. Both SQLite
//! engines may live in one directory; [`EngineUrls::embedded`] says which files.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::settings::{Mistakes, Named, namespace};

/// The flags that name the engines, as they were written.
#[derive(Debug, Clone, clap::Args)]
pub struct EngineArgs {
    /// The queue: `amqp://user:password@host:5672/%2f`, or `sqlite:///absolute/path`
    #[arg(long, env = "PUSH_QUEUE_URL", value_name = "URL", hide_env_values = true, global = true)]
    queue_url: Option<String>,
    /// The index: `redis://host:6379`, `redis-cluster://host:6379,host:6379`, or
    /// `sqlite:///absolute/path`
    #[arg(long, env = "PUSH_INDEX_URL", value_name = "URL", hide_env_values = true, global = true)]
    index_url: Option<String>,
    /// Prefix of every queue and key, so that several services can share the servers
    #[arg(long, env = "PUSH_NAMESPACE", value_name = "NAME", default_value = "push", global = true)]
    namespace: String,
}

/// Which queue.
#[derive(Clone, PartialEq, Eq)]
pub enum QueueUrl {
    /// RabbitMQ, as an `amqp://` or `amqps://` URL.
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
}

const QUEUE: Named = Named { flag: "--queue-url", env: "PUSH_QUEUE_URL" };
const INDEX: Named = Named { flag: "--index-url", env: "PUSH_INDEX_URL" };
const NAMESPACE: Named = Named { flag: "--namespace", env: "PUSH_NAMESPACE" };

impl EngineArgs {
    /// Checks the flags of a program that needs both URLs.
    pub fn check(&self, mistakes: &mut Mistakes) -> Option<EngineUrls> {
        for (name, url) in [(QUEUE, &self.queue_url), (INDEX, &self.index_url)] {
            if url.is_none() {
                mistakes.note(format!("{} ({}): must be set", name.flag, name.env));
            }
        }
        let queue = self.queue_url.as_deref().and_then(|url| check_queue(url, mistakes));
        let index = self.index_url.as_deref().and_then(|url| check_index(url, mistakes));
        let namespace = mistakes.take(NAMESPACE, &self.namespace, namespace);
        Some(EngineUrls { queue: queue?, index: index?, namespace: namespace? })
    }

    /// Checks the flags of a program that works on the embedded store in `data_dir` wherever no
    /// URL is given.
    pub fn check_or_embedded(
        &self,
        data_dir: &Path,
        mistakes: &mut Mistakes,
    ) -> Option<EngineUrls> {
        let namespace = mistakes.take(NAMESPACE, &self.namespace, namespace);
        let embedded = EngineUrls::embedded(data_dir, String::new());
        let queue = match &self.queue_url {
            Some(url) => check_queue(url, mistakes),
            None => Some(embedded.queue),
        };
        let index = match &self.index_url {
            Some(url) => check_index(url, mistakes),
            None => Some(embedded.index),
        };
        Some(EngineUrls { queue: queue?, index: index?, namespace: namespace? })
    }
}

impl EngineUrls {
    /// The embedded engines in a data directory.
    pub fn embedded(data_dir: &Path, namespace: String) -> Self {
        Self {
            queue: QueueUrl::Sqlite(data_dir.join("queue.sqlite3")),
            index: IndexUrl::Sqlite(data_dir.join("index.sqlite3")),
            namespace,
        }
    }
}

fn check_queue(url: &str, mistakes: &mut Mistakes) -> Option<QueueUrl> {
    mistakes.take_secret(QUEUE, url, |url| match scheme(url) {
        "amqp" | "amqps" => {
            url::Url::parse(url).map_err(|error| format!("is no URL: {error}"))?;
            Ok(QueueUrl::Amqp(url.to_owned()))
        }
        "sqlite" => sqlite_path(url).map(QueueUrl::Sqlite),
        _ => Err("must begin with amqp://, amqps:// or sqlite:///".to_owned()),
    })
}

fn check_index(url: &str, mistakes: &mut Mistakes) -> Option<IndexUrl> {
    mistakes.take_secret(INDEX, url, |url| match scheme(url) {
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
        assert!(text.contains("amqp://") && text.contains("PUSH_INDEX_URL): must be set"), "{text}");
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

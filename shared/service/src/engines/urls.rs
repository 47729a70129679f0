//! Which queue and which index a URL names.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use push_queue::amqp;

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

impl QueueUrl {
    /// Reads the URL of a queue.
    ///
    /// # Errors
    /// What is wrong with it; never with the password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        match scheme(url) {
            "amqp" | "amqps" => {
                amqp::check_url(url)?;
                Ok(Self::Amqp(url.to_owned()))
            }
            "sqlite" => sqlite_path(url).map(Self::Sqlite),
            _ => Err("must begin with amqp://, amqps:// or sqlite:///".to_owned()),
        }
    }

    /// The embedded queue in the directory for data.
    pub(super) fn embedded(data_dir: &Path) -> Self {
        Self::Sqlite(data_dir.join("queue.sqlite3"))
    }
}

impl IndexUrl {
    /// Reads the URL of an index or of a ledger. The Redis client checks the rest of its URL when
    /// it connects.
    ///
    /// # Errors
    /// What is wrong with it; never with the password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        match scheme(url) {
            "redis" | "rediss" | "redis-cluster" => Ok(Self::Redis(url.to_owned())),
            "sqlite" => sqlite_path(url).map(Self::Sqlite),
            _ => {
                Err("must begin with redis://, rediss://, redis-cluster:// or sqlite:///"
                    .to_owned())
            }
        }
    }

    /// The embedded index in the directory for data.
    pub(super) fn embedded(data_dir: &Path) -> Self {
        Self::Sqlite(data_dir.join("index.sqlite3"))
    }
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

/// The URL without the user and the password that it may contain.
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

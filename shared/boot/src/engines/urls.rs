//! The URLs of queues and indexes.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use percent_encoding::percent_decode_str;
use push_queue::amqp;

use crate::secret::SecretText;

/// The URL of a queue.
#[derive(Clone, PartialEq, Eq)]
pub enum QueueUrl {
    /// RabbitMQ, as an `amqp://` or `amqps://` URL with one host or several.
    Amqp(SecretText),
    /// A SQLite file.
    Sqlite(PathBuf),
}

/// The URL of an index.
#[derive(Clone, PartialEq, Eq)]
pub enum IndexUrl {
    /// Redis (`redis://`, `rediss://`) or Redis Cluster (`redis-cluster://`, `rediss-cluster://`).
    Redis(SecretText),
    /// A SQLite file.
    Sqlite(PathBuf),
}

impl QueueUrl {
    /// Reads the URL of a queue.
    ///
    /// # Errors
    /// Says what is wrong with the URL, without its password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        match scheme(url) {
            "amqp" | "amqps" => {
                amqp::check_url(url)?;
                Ok(Self::Amqp(url.to_owned().into()))
            }
            "sqlite" => sqlite_path(url).map(Self::Sqlite),
            _ => Err("must begin with amqp://, amqps:// or sqlite:///".to_owned()),
        }
    }

    /// Returns true if the connections are encrypted.
    pub fn uses_tls(&self) -> bool {
        matches!(self, Self::Amqp(url) if scheme(url.expose()) == "amqps")
    }

    /// Returns host and port of each server that the URL names.
    pub fn servers(&self) -> Vec<(String, u16)> {
        match self {
            Self::Amqp(url) => servers(url.expose(), if self.uses_tls() { 5671 } else { 5672 }),
            Self::Sqlite(_) => Vec::new(),
        }
    }

    /// Returns `user:password` and the virtual host of RabbitMQ, decoded. RabbitMQ's defaults stand
    /// for parts that the URL leaves out.
    pub fn login_and_vhost(&self) -> Option<(SecretText, String)> {
        let Self::Amqp(url) = self else { return None };
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (_, rest) = url.expose().split_once("://")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let login = authority.rsplit_once('@').map_or("guest:guest", |(login, _)| login);
        let vhost = match path.split('?').next().unwrap_or_default() {
            "" => "/".to_owned(),
            vhost => decode(vhost),
        };
        Some((decode(login).into(), vhost))
    }

    /// Returns the engine and its address as the log names it, without user and password:
    /// `RabbitMQ at 10.0.0.4:5672`.
    pub fn spoken(&self) -> String {
        match self {
            Self::Amqp(_) => format!("RabbitMQ at {}", addresses(&self.servers())),
            Self::Sqlite(path) => format!("the queue file {}", path.display()),
        }
    }

    /// Returns the URL of the embedded queue in the data directory.
    pub(super) fn embedded(data_dir: &Path) -> Self {
        Self::Sqlite(data_dir.join("queue.sqlite3"))
    }
}

impl IndexUrl {
    /// Reads the URL of an index or of a ledger. The Redis client checks the path and the query of
    /// its URL when it connects.
    ///
    /// # Errors
    /// Says what is wrong with the URL, without its password.
    pub fn parse(url: &str) -> Result<Self, String> {
        match scheme(url) {
            "redis" | "rediss" | "redis-cluster" | "rediss-cluster" => {
                check_redis(url)?;
                Ok(Self::Redis(url.to_owned().into()))
            }
            "sqlite" => sqlite_path(url).map(Self::Sqlite),
            _ => {
                Err("must begin with redis://, rediss://, redis-cluster://, rediss-cluster:// or \
                 sqlite:///"
                    .to_owned())
            }
        }
    }

    /// Returns true if the connections are encrypted.
    pub fn uses_tls(&self) -> bool {
        matches!(self, Self::Redis(url) if scheme(url.expose()).starts_with("rediss"))
    }

    /// Returns host and port of each server that the URL names.
    pub fn servers(&self) -> Vec<(String, u16)> {
        match self {
            Self::Redis(url) => servers(url.expose(), 6379),
            Self::Sqlite(_) => Vec::new(),
        }
    }

    /// Returns the engine and its address as the log names it, without user and password:
    /// `Redis at 10.0.0.5:6379`.
    pub fn spoken(&self) -> String {
        match self {
            Self::Redis(url) => {
                let is_cluster = scheme(url.expose()).ends_with("-cluster");
                let engine = if is_cluster { "Redis Cluster" } else { "Redis" };
                format!("{engine} at {}", addresses(&self.servers()))
            }
            Self::Sqlite(path) => format!("the index file {}", path.display()),
        }
    }

    /// Returns the URL of the embedded index in the data directory.
    pub(super) fn embedded(data_dir: &Path) -> Self {
        Self::Sqlite(data_dir.join("index.sqlite3"))
    }
}

fn addresses(servers: &[(String, u16)]) -> String {
    let address = |(host, port): &(String, u16)| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    servers.iter().map(address).collect::<Vec<_>>().join(", ")
}

fn scheme(url: &str) -> &str {
    url.split_once("://").map_or("", |(scheme, _)| scheme)
}

/// Returns the hosts of `scheme://[user:password@]host[:port],host[:port]/…`.
fn servers(url: &str, default_port: u16) -> Vec<(String, u16)> {
    let (_, hosts, _) = parts(url).unwrap_or_default();
    let server = |host: &str| {
        let with_port = host.rsplit_once(':').and_then(|(h, port)| Some((h, port.parse().ok()?)));
        let (host, port) = with_port.unwrap_or((host, default_port));
        (host.trim_matches(['[', ']']).to_owned(), port)
    };
    hosts.split(',').map(server).collect()
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

/// Returns scheme, hosts and path of a URL, without user, password and query.
fn parts(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    Some((scheme, hosts, path.split(['?', '#']).next().unwrap_or_default()))
}

/// Checks the hosts of a Redis URL. A URL whose password has a character that must be encoded is
/// refused, because what is left of it would be taken for a host, and hosts are printed.
fn check_redis(url: &str) -> Result<(), String> {
    const FORM: &str = "must be redis://[user:password@]host[:port], rediss://…, \
                        redis-cluster://[user:password@]host[:port],host[:port], or \
                        rediss-cluster://…";
    let (scheme, hosts, _) = parts(url).ok_or(FORM)?;
    let authority = url.find("://").map_or(0, |at| at + "://".len());
    let behind = url.get(authority..).and_then(|rest| rest.split_once(['/', '?', '#']));
    if behind.is_some_and(|(_, behind)| behind.contains('@')) {
        return Err("has an @ behind its hosts: write / ? # and @ of a user or password as %2F \
                    %3F %23 and %40"
            .to_owned());
    }
    let is_host = |host: &str| {
        let parsed = url::Url::parse(&format!("redis://{host}"));
        !host.is_empty() && parsed.is_ok_and(|url| url.host_str().is_some_and(|h| !h.is_empty()))
    };
    let is_good = match scheme {
        "redis-cluster" | "rediss-cluster" => hosts.split(',').all(is_host),
        _ => is_host(hosts),
    };
    if url.contains('#') {
        return Err("must not have a fragment (#…)".to_owned());
    }
    if is_good { Ok(()) } else { Err(FORM.to_owned()) }
}

/// Formats the URL of a server without user, password and query.
fn display(url: &SecretText, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match parts(url.expose()) {
        Some((scheme, hosts, path)) => write!(f, "{scheme}://{hosts}{path}"),
        None => f.write_str("…"),
    }
}

impl fmt::Display for QueueUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Amqp(url) => display(url, f),
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
        }
    }
}

impl fmt::Display for IndexUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(url) => display(url, f),
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
        let queue = QueueUrl::parse("amqp://user:pa%40ss@a:5672,b/%2f?heartbeat=5").unwrap();
        let index = IndexUrl::parse("redis://:p@ss:word@host:6379").unwrap();
        assert_eq!(queue.to_string(), "amqp://a:5672,b/%2f");
        assert_eq!(format!("{index:?}"), "redis://host:6379");
    }

    #[test]
    fn a_url_whose_password_would_be_taken_for_a_host_is_refused_without_it() {
        for url in [
            "amqp://u:hunter2/@h",
            "amqp://u:hunter2?@h/%2f",
            "redis://:hunter2/@h",
            "redis://u:hunter2#@h:6379",
            "redis://:hunter2",
            "redis://u:hunter2@",
            "redis://u:hunter2@h:x",
            "redis-cluster://u:hunter2@a:1,,b",
            "redis-cluster://u:hunter2/@a:1,b:2",
            "redis://:hunter2@h://:hunter2@h:1",
        ] {
            let (queue, index) = (QueueUrl::parse(url), IndexUrl::parse(url));
            for wrong in [queue.unwrap_err(), index.unwrap_err()] {
                assert!(!wrong.contains("hunter2"), "{url}: {wrong}");
            }
        }
        for good in
            ["redis://[::1]:6379/0?protocol=resp3", "redis-cluster://u:p@a:1,b:2", "redis://h"]
        {
            assert!(IndexUrl::parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn the_scheme_tells_whether_a_connection_is_encrypted() {
        let index = |url: &str| IndexUrl::parse(url).unwrap().uses_tls();
        assert!(index("rediss://h") && index("rediss-cluster://a,b"));
        assert!(!index("redis://h") && !index("redis-cluster://a,b") && !index("sqlite:///a"));
        let queue = |url: &str| QueueUrl::parse(url).unwrap().uses_tls();
        assert!(queue("amqps://h") && !queue("amqp://h") && !queue("sqlite:///a"));
    }

    #[test]
    fn every_server_of_a_url_is_named_with_its_port() {
        let of = |host: &str, port| (host.to_owned(), port);
        let queue = QueueUrl::Amqp("amqps://u:p@a,[::1]:9,b:7/%2f?heartbeat=5".to_owned().into());
        assert_eq!(queue.servers(), [of("a", 5671), of("::1", 9), of("b", 7)]);
        let index = IndexUrl::Redis("redis-cluster://[::1],c:1".to_owned().into());
        assert_eq!(index.servers(), [of("::1", 6379), of("c", 1)]);
        assert_eq!(IndexUrl::Sqlite("/a".into()).servers(), []);
    }

    #[test]
    fn login_and_virtual_host_are_decoded_and_have_the_defaults_of_rabbitmq() {
        let of = |url: &str| {
            let (login, vhost) = QueueUrl::Amqp(url.to_owned().into()).login_and_vhost().unwrap();
            (login.expose().to_owned(), vhost)
        };
        let pair = |login: &str, vhost: &str| (login.to_owned(), vhost.to_owned());
        assert_eq!(of("amqp://u:p%40s@a:5672,b/%2f?heartbeat=5"), pair("u:p@s", "/"));
        assert_eq!(of("amqps://a/team"), pair("guest:guest", "team"));
        assert_eq!(of("amqp://u:p@a"), pair("u:p", "/"));
    }

    #[test]
    fn no_url_can_turn_the_check_of_certificates_off() {
        let error = IndexUrl::parse("rediss://:secret@h/#insecure").unwrap_err();
        assert!(error.contains("fragment") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn a_sqlite_url_has_an_absolute_path() {
        assert!(sqlite_path("sqlite://relative/path").is_err());
        assert_eq!(sqlite_path("sqlite:///a/b").unwrap(), Path::new("/a/b"));
    }
}

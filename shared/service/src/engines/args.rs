//! The flags about the engines, and their check.

use std::path::Path;

use push_model::{ledger::Retention, namespace::namespace};

use super::{
    settings::{EngineSettings, EngineTimeouts},
    urls::{IndexUrl, QueueUrl},
};
use crate::settings::{ConfigErrors, duration};

const QUEUE: &str = "--queue-url";
const INDEX: &str = "--index-url";
const LEDGER: &str = "--ledger-url";
const NAMESPACE: &str = "--namespace";

/// The flags about the engines, before they are checked.
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
    /// How often a quiet connection to RabbitMQ sends a heartbeat
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

impl EngineArgs {
    /// Checks the flags of a program that requires both URLs; problems are added to `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<EngineSettings> {
        for (flag, url) in [(QUEUE, &self.queue_url), (INDEX, &self.index_url)] {
            if url.is_none() {
                errors.missing(flag);
            }
        }
        let queue = self.queue_url.as_deref().and_then(|url| queue_url(url, errors));
        let index = self.index_url.as_deref().and_then(|url| index_url(INDEX, url, errors));
        self.with_rest(queue, index, errors)
    }

    /// As [`EngineArgs::check`] for a program that uses the embedded store in `data_dir` for an
    /// engine without a URL.
    pub fn check_or_embedded(
        &self,
        data_dir: &Path,
        errors: &mut ConfigErrors,
    ) -> Option<EngineSettings> {
        let queue = match &self.queue_url {
            Some(url) => queue_url(url, errors),
            None => Some(QueueUrl::embedded(data_dir)),
        };
        let index = match &self.index_url {
            Some(url) => index_url(INDEX, url, errors),
            None => Some(IndexUrl::embedded(data_dir)),
        };
        self.with_rest(queue, index, errors)
    }

    fn with_rest(
        &self,
        queue: Option<QueueUrl>,
        index: Option<IndexUrl>,
        errors: &mut ConfigErrors,
    ) -> Option<EngineSettings> {
        let ledger = match self.ledger_url.as_deref() {
            Some(url) => index_url(LEDGER, url, errors).map(Some),
            None => Some(None),
        };
        let namespace = errors.read(NAMESPACE, &self.namespace, namespace);
        let mut time = |flag, text| errors.read(flag, text, duration);
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
        Some(EngineSettings {
            queue: queue?,
            index: index?,
            ledger: ledger?,
            namespace: namespace?,
            timeouts,
            ledger_retention,
        })
    }
}

fn queue_url(url: &str, errors: &mut ConfigErrors) -> Option<QueueUrl> {
    errors.read_secret(QUEUE, url, QueueUrl::parse)
}

fn index_url(flag: &str, url: &str, errors: &mut ConfigErrors) -> Option<IndexUrl> {
    errors.read_secret(flag, url, IndexUrl::parse)
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
        let mut errors = ConfigErrors::default();
        let urls = args(Some("amqp://localhost"), None)
            .check_or_embedded(Path::new("/data"), &mut errors)
            .unwrap();
        assert_eq!(urls.queue, QueueUrl::Amqp("amqp://localhost".into()));
        assert_eq!(urls.index, IndexUrl::Sqlite("/data/index.sqlite3".into()));
    }

    #[test]
    fn wrong_and_missing_urls_are_reported_together() {
        let mut errors = ConfigErrors::default();
        assert!(args(Some("kafka://x"), None).check(&mut errors).is_none());
        let text = errors.to_string();
        assert!(
            text.contains("amqp://") && text.contains("PUSH_INDEX_URL): must be set"),
            "{text}"
        );
    }
}

//! The flags about the engines, and their check.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use push_model::{ledger::Retention, namespace::namespace};
use push_tls::client::ClientTls;

use super::{
    settings::{EngineSettings, EngineTimeouts, StoreSettings},
    urls::{IndexUrl, QueueUrl},
};
use crate::{
    settings,
    settings::{ConfigErrors, duration, text},
    tls::{self, ClientFlags},
};

const QUEUE: &str = "--queue-url";
const INDEX: &str = "--index-url";

/// The flags about the engines, before they are checked.
#[derive(Debug, Clone, clap::Args)]
pub struct EngineArgs {
    #[command(flatten)]
    queue: QueueArgs,
    #[command(flatten)]
    index: IndexArgs,
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
    #[command(flatten)]
    topics: TopicArgs,
}

settings! {
    /// The flags about the queue.
    struct QueueArgs, "Queue and stores" => QueueValues {
        /// Use the queue at this URL: `amqp://user:password@host:5672/%2f` (hosts of a cluster: `a:5672,b:5672`), or
        /// `sqlite:///absolute/path`; with TLS `amqps://…`
        queue_url or queue_url_file: Option<QueueUrl> = ["URL"] QueueUrl::parse;
        /// Trust the authorities of this PEM file for `amqps://`, instead of the machine's
        queue_ca: Option<String> = ["FILE"] text;
        /// Show the certificate of this PEM file to the queue's server, for `amqps://`
        queue_cert: Option<String> = ["FILE"] text;
        /// Use the private key of this PEM file with --queue-cert
        queue_key: Option<String> = ["FILE"] text;
    }
}

settings! {
    /// The flags about the index.
    struct IndexArgs, "Queue and stores" => IndexValues {
        /// Use the index at this URL: `redis://host:6379`, `redis-cluster://host:6379,host:6379`, or
        /// `sqlite:///absolute/path`; with TLS `rediss://…`, `rediss-cluster://…`
        index_url or index_url_file: Option<IndexUrl> = ["URL"] IndexUrl::parse;
        /// Trust the authorities of this PEM file for `rediss://`, instead of the machine's
        index_ca: Option<String> = ["FILE"] text;
        /// Show the certificate of this PEM file to the index's server, for `rediss://`
        index_cert: Option<String> = ["FILE"] text;
        /// Use the private key of this PEM file with --index-cert
        index_key: Option<String> = ["FILE"] text;
    }
}

settings! {
    /// The flag about the names on the servers.
    struct NamespaceArgs, "Queue and stores" => NamespaceValues {
        /// Begin the name of every queue and key with this, so that several services can share servers
        namespace: String = ["NAME", "push"] namespace;
    }
}

settings! {
    /// The flags about the ledger.
    struct LedgerArgs, "Queue and stores" => LedgerValues {
        /// Keep the ledger at this URL instead of in the index; URLs are as for the index
        ledger_url or ledger_url_file: Option<IndexUrl> = ["URL"] IndexUrl::parse;
        /// Keep the ledger of a broadcast for this time
        ledger_retention: Duration = ["TIME", "7days"] duration;
        /// Keep the ledger of a push to named devices for this time
        ledger_retention_named: Duration = ["TIME", "2days"] duration;
    }
}

settings! {
    /// The flag about topics.
    struct TopicArgs, "Queue and stores" => TopicValues {
        /// Let the devices of an app have at most so many different topics. The same for all programs
        max_app_topics: u16 = ["N", "10000"] topics;
    }
}

/// Parses a number of topics, which have codes of 16 bits.
fn topics(text: &str) -> Result<u16, String> {
    let most = u16::MAX;
    let number = text.parse::<u16>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("must be a number from 1 to {most}"))
}

impl EngineArgs {
    /// Checks the flags of a program that requires both URLs; problems are added to `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<EngineSettings> {
        let queue = self.queue.values(errors).map(|given| given.queue_url);
        let index = self.index.values(errors).map(|given| given.index_url);
        let (queue, index) = (errors.required(QUEUE, queue), errors.required(INDEX, index));
        self.with_rest(queue, index, errors)
    }

    /// Checks the flags of a program that uses the embedded store in `data_dir` for an engine
    /// without a URL; otherwise like [`EngineArgs::check`].
    pub fn check_or_embedded(
        &self,
        data_dir: &Path,
        errors: &mut ConfigErrors,
    ) -> Option<EngineSettings> {
        let (queue, index) = (self.queue.values(errors), self.index.values(errors));
        let queue = queue.map(|given| given.queue_url);
        let queue = queue.map(|url| url.unwrap_or_else(|| QueueUrl::embedded(data_dir)));
        let index = index.map(|given| given.index_url);
        let index = index.map(|url| url.unwrap_or_else(|| IndexUrl::embedded(data_dir)));
        self.with_rest(queue, index, errors)
    }

    /// Checks the two stores of a program that moves apps from the first to the second. The other
    /// flags about the index apply to both stores. `to_namespace` is the namespace of the second
    /// store, if it differs.
    pub fn check_stores(
        &self,
        urls: Option<[IndexUrl; 2]>,
        to_namespace: Option<String>,
        errors: &mut ConfigErrors,
    ) -> Option<[StoreSettings; 2]> {
        let uses_tls = urls.as_ref().map(|urls| urls.iter().any(IndexUrl::uses_tls));
        let tls = self.index.tls(uses_tls, errors);
        let own = self.namespace.values(errors).map(|given| given.namespace);
        let timeouts = EngineTimeouts::read(errors.tuning());
        let topics = self.topics.values(errors);
        let ([from, to], tls, own) = (urls?, tls?, own?);
        let max_app_topics = topics?.max_app_topics.into();
        let to_namespace = to_namespace.unwrap_or_else(|| own.clone());
        let store = |url, namespace| {
            let tls = tls.clone();
            StoreSettings { url, tls, namespace, timeouts, max_app_topics }
        };
        Some([store(from, own), store(to, to_namespace)])
    }

    /// Returns the files that hold passwords, each with its flag.
    pub fn secret_files(&self) -> Vec<(String, PathBuf)> {
        let Self { queue, index, ledger, .. } = self;
        [queue.secret_files(), index.secret_files(), ledger.secret_files()].concat()
    }

    fn with_rest(
        &self,
        queue: Option<QueueUrl>,
        index: Option<IndexUrl>,
        errors: &mut ConfigErrors,
    ) -> Option<EngineSettings> {
        let ledger = self.ledger.values(errors);
        let queue_tls = self.queue.tls(queue.as_ref().map(QueueUrl::uses_tls), errors);
        let uses_tls = index.as_ref().zip(ledger.as_ref()).map(|(index, ledger)| {
            index.uses_tls() || ledger.ledger_url.as_ref().is_some_and(IndexUrl::uses_tls)
        });
        let index_tls = self.index.tls(uses_tls, errors);
        let namespace = self.namespace.values(errors);
        let timeouts = EngineTimeouts::read(errors.tuning());
        let topics = self.topics.values(errors);
        let ledger = ledger?;
        let (named, broadcast) = (ledger.ledger_retention_named, ledger.ledger_retention);
        Some(EngineSettings {
            queue: queue?,
            queue_tls: queue_tls?,
            index: index?,
            index_tls: index_tls?,
            ledger: ledger.ledger_url,
            namespace: namespace?.namespace,
            timeouts,
            max_app_topics: topics?.max_app_topics.into(),
            ledger_retention: Retention { named, broadcast },
        })
    }
}

impl QueueArgs {
    /// Checks the TLS settings of the queue. `uses_tls` is true if its URL asks for TLS, and `None` if
    /// the URL cannot be used.
    fn tls(&self, uses_tls: Option<bool>, errors: &mut ConfigErrors) -> Option<Option<ClientTls>> {
        let flags = ClientFlags {
            authorities: ("--queue-ca", self.queue_ca.as_ref()),
            certificate: ("--queue-cert", self.queue_cert.as_ref()),
            key: ("--queue-key", self.queue_key.as_ref()),
            schemes: "amqps://",
        };
        tls::client(flags, uses_tls, errors)
    }
}

impl IndexArgs {
    /// Checks the TLS settings of the index, which also apply to the ledger's own store. `uses_tls`
    /// is true if one of their URLs asks for TLS, and `None` if a URL cannot be used.
    fn tls(&self, uses_tls: Option<bool>, errors: &mut ConfigErrors) -> Option<Option<ClientTls>> {
        let flags = ClientFlags {
            authorities: ("--index-ca", self.index_ca.as_ref()),
            certificate: ("--index-cert", self.index_cert.as_ref()),
            key: ("--index-key", self.index_key.as_ref()),
            schemes: "rediss:// or rediss-cluster://",
        };
        tls::client(flags, uses_tls, errors)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        engines: EngineArgs,
    }

    fn args(flags: &[&str]) -> EngineArgs {
        Cli::parse_from(std::iter::once(&"test").chain(flags)).engines
    }

    /// Checks flags that are wrong.
    fn wrong(flags: &[&str]) -> String {
        let mut errors = ConfigErrors::default();
        assert!(args(flags).check(&mut errors).is_none());
        errors.to_string()
    }

    #[test]
    fn a_url_chooses_its_engine_and_no_url_chooses_the_embedded_one() {
        let mut errors = ConfigErrors::default();
        let urls = args(&["--queue-url=amqp://localhost"])
            .check_or_embedded(Path::new("/data"), &mut errors)
            .unwrap();
        assert_eq!(urls.queue, QueueUrl::Amqp("amqp://localhost".to_owned().into()));
        assert_eq!(urls.index, IndexUrl::Sqlite("/data/index.sqlite3".into()));
    }

    #[test]
    fn the_files_of_the_index_serve_the_store_of_the_ledger_too() {
        let flags = ["--queue-url=amqp://h", "--index-url=redis://h", "--index-ca=/no/such.pem"];
        let text = wrong(&flags);
        assert!(text.contains("--index-ca (PUSH_INDEX_CA) is of use only for"), "{text}");
        let text = wrong(&[&flags[..], &["--ledger-url=rediss://h"]].concat());
        assert!(text.contains("PUSH_INDEX_CA): /no/such.pem cannot be read"), "{text}");
    }

    #[test]
    fn two_stores_share_the_flags_about_the_index_and_may_have_namespaces_of_their_own() {
        let check = |urls: [&str; 2], flags: &[&str]| {
            let mut errors = ConfigErrors::default();
            let urls = urls.map(|url| IndexUrl::parse(url).unwrap());
            let stores = args(flags).check_stores(Some(urls), Some("b".into()), &mut errors);
            errors.finish(stores).map_err(|errors| errors.to_string())
        };
        let [from, to] = check(["sqlite:///a", "redis://h"], &["--namespace=a"]).unwrap();
        assert_eq!((&*from.namespace, &*to.namespace), ("a", "b"));
        let flags = ["--index-ca=/no/such.pem"];
        let text = check(["sqlite:///a", "rediss://u:hunter2@h"], &flags).unwrap_err();
        assert!(text.contains("/no/such.pem cannot be read"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn wrong_and_missing_urls_are_reported_together() {
        let text = wrong(&["--queue-url=kafka://x"]);
        assert!(
            text.contains("amqp://") && text.contains("PUSH_INDEX_URL): must be set"),
            "{text}"
        );
    }
}

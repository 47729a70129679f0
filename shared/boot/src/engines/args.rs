//! The flags about the engines, and their check.

use std::path::{Path, PathBuf};

use push_model::{ledger::Retention, namespace::namespace};
use push_tls::client::ClientTls;

use super::{
    settings::{EngineSettings, EngineTimeouts, StoreSettings},
    urls::{IndexUrl, QueueUrl},
};
use crate::{
    secret::{SecretSetting, SecretText},
    settings::{ConfigErrors, duration},
    tls::{self, ClientFlags},
};

const QUEUE: &str = "--queue-url";
const INDEX: &str = "--index-url";
const LEDGER: &str = "--ledger-url";
const NAMESPACE: &str = "--namespace";
const TO_NAMESPACE: &str = "--to-namespace";

/// The flags about the engines, before they are checked.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Queue and stores")]
pub struct EngineArgs {
    /// Use the queue at this URL: `amqp://user:password@host:5672/%2f` (hosts of a cluster: `a:5672,b:5672`), or
    /// `sqlite:///absolute/path`; with TLS `amqps://…`
    #[arg(long, env = "PUSH_QUEUE_URL", value_name = "URL", global = true)]
    queue_url: Option<SecretText>,
    /// Read --queue-url from this file
    #[arg(long, env = "PUSH_QUEUE_URL_FILE", value_name = "FILE", global = true)]
    queue_url_file: Option<PathBuf>,
    /// Trust the authorities of this PEM file for `amqps://`, instead of the machine's
    #[arg(long, env = "PUSH_QUEUE_CA", value_name = "FILE", global = true)]
    queue_ca: Option<String>,
    /// Show the certificate of this PEM file to the queue's server, for `amqps://`
    #[arg(long, env = "PUSH_QUEUE_CERT", value_name = "FILE", global = true)]
    queue_cert: Option<String>,
    /// Use the private key of this PEM file with --queue-cert
    #[arg(long, env = "PUSH_QUEUE_KEY", value_name = "FILE", global = true)]
    queue_key: Option<String>,
    /// Use the index at this URL: `redis://host:6379`, `redis-cluster://host:6379,host:6379`, or
    /// `sqlite:///absolute/path`; with TLS `rediss://…`, `rediss-cluster://…`
    #[arg(long, env = "PUSH_INDEX_URL", value_name = "URL", global = true)]
    index_url: Option<SecretText>,
    /// Read --index-url from this file
    #[arg(long, env = "PUSH_INDEX_URL_FILE", value_name = "FILE", global = true)]
    index_url_file: Option<PathBuf>,
    /// Trust the authorities of this PEM file for `rediss://`, instead of the machine's
    #[arg(long, env = "PUSH_INDEX_CA", value_name = "FILE", global = true)]
    index_ca: Option<String>,
    /// Show the certificate of this PEM file to the index's server, for `rediss://`
    #[arg(long, env = "PUSH_INDEX_CERT", value_name = "FILE", global = true)]
    index_cert: Option<String>,
    /// Use the private key of this PEM file with --index-cert
    #[arg(long, env = "PUSH_INDEX_KEY", value_name = "FILE", global = true)]
    index_key: Option<String>,
    /// Begin the name of every queue and key with this, so that several services can share servers
    #[arg(
        long,
        env = "PUSH_NAMESPACE",
        value_name = "NAME",
        default_value = "push",
        global = true
    )]
    namespace: String,
    /// Keep the ledger at this URL instead of in the index; URLs are as for the index
    #[arg(long, env = "PUSH_LEDGER_URL", value_name = "URL", global = true)]
    ledger_url: Option<SecretText>,
    /// Read --ledger-url from this file
    #[arg(long, env = "PUSH_LEDGER_URL_FILE", value_name = "FILE", global = true)]
    ledger_url_file: Option<PathBuf>,
    /// Keep the ledger of a broadcast for this time
    #[arg(
        long,
        env = "PUSH_LEDGER_RETENTION",
        value_name = "TIME",
        default_value = "7days",
        global = true
    )]
    ledger_retention: String,
    /// Keep the ledger of a push to named devices for this time
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
        for (flag, url) in [(QUEUE, self.queue()), (INDEX, self.index())] {
            if !url.is_given() {
                errors.missing(flag);
            }
        }
        let queue = errors.read_secret(QUEUE, self.queue(), QueueUrl::parse).flatten();
        let index = errors.read_secret(INDEX, self.index(), IndexUrl::parse).flatten();
        self.with_rest(queue, index, errors)
    }

    /// Checks the flags of a program that uses the embedded store in `data_dir` for an engine
    /// without a URL; otherwise like [`EngineArgs::check`].
    pub fn check_or_embedded(
        &self,
        data_dir: &Path,
        errors: &mut ConfigErrors,
    ) -> Option<EngineSettings> {
        let queue = errors.read_secret(QUEUE, self.queue(), QueueUrl::parse);
        let index = errors.read_secret(INDEX, self.index(), IndexUrl::parse);
        let queue = queue.map(|url| url.unwrap_or_else(|| QueueUrl::embedded(data_dir)));
        let index = index.map(|url| url.unwrap_or_else(|| IndexUrl::embedded(data_dir)));
        self.with_rest(queue, index, errors)
    }

    /// Checks the two stores of a program that moves apps from one to the other, each with the flag
    /// of its URL. The other flags about the index apply to both stores. `to_namespace` is the
    /// namespace of the second store, if it differs.
    pub fn check_stores(
        &self,
        [from, to]: [(&str, SecretSetting<'_>); 2],
        to_namespace: Option<&str>,
        errors: &mut ConfigErrors,
    ) -> Option<[StoreSettings; 2]> {
        let mut url = |(flag, setting): (&str, SecretSetting<'_>)| {
            if !setting.is_given() {
                errors.missing(flag);
            }
            errors.read_secret(flag, setting, IndexUrl::parse).flatten()
        };
        let (from, to) = (url(from), url(to));
        let uses_tls = from.as_ref().zip(to.as_ref()).map(|(a, b)| a.uses_tls() || b.uses_tls());
        let tls = self.index_tls(uses_tls, errors);
        let own = errors.read(NAMESPACE, &self.namespace, namespace);
        let to_namespace = match to_namespace {
            Some(name) => errors.read(TO_NAMESPACE, name, namespace),
            None => own.clone(),
        };
        let (from, to, tls) = (from?, to?, tls?);
        let timeouts = EngineTimeouts::read(errors.tuning());
        let store = |url, namespace| StoreSettings { url, tls: tls.clone(), namespace, timeouts };
        Some([store(from, own?), store(to, to_namespace?)])
    }

    fn queue(&self) -> SecretSetting<'_> {
        SecretSetting { text: self.queue_url.as_ref(), file: self.queue_url_file.as_deref() }
    }

    fn index(&self) -> SecretSetting<'_> {
        SecretSetting { text: self.index_url.as_ref(), file: self.index_url_file.as_deref() }
    }

    fn ledger(&self) -> SecretSetting<'_> {
        SecretSetting { text: self.ledger_url.as_ref(), file: self.ledger_url_file.as_deref() }
    }

    /// Returns the files that hold passwords, each with its flag.
    pub fn secret_files(&self) -> Vec<(&'static str, PathBuf)> {
        let files = [
            ("--queue-url-file", &self.queue_url_file),
            ("--index-url-file", &self.index_url_file),
            ("--ledger-url-file", &self.ledger_url_file),
        ];
        files.into_iter().filter_map(|(flag, file)| Some((flag, file.clone()?))).collect()
    }

    fn with_rest(
        &self,
        queue: Option<QueueUrl>,
        index: Option<IndexUrl>,
        errors: &mut ConfigErrors,
    ) -> Option<EngineSettings> {
        let ledger = errors.read_secret(LEDGER, self.ledger(), IndexUrl::parse);
        let queue_tls = self.queue_tls(queue.as_ref(), errors);
        let uses_tls = index.as_ref().zip(ledger.as_ref()).map(|(index, ledger)| {
            index.uses_tls() || ledger.as_ref().is_some_and(IndexUrl::uses_tls)
        });
        let index_tls = self.index_tls(uses_tls, errors);
        let namespace = errors.read(NAMESPACE, &self.namespace, namespace);
        let timeouts = EngineTimeouts::read(errors.tuning());
        let mut time = |flag, text| errors.read(flag, text, duration);
        let broadcast = time("--ledger-retention", &self.ledger_retention);
        let named = time("--ledger-retention-named", &self.ledger_retention_named);
        let ledger_retention = Retention { named: named?, broadcast: broadcast? };
        Some(EngineSettings {
            queue: queue?,
            queue_tls: queue_tls?,
            index: index?,
            index_tls: index_tls?,
            ledger: ledger?,
            namespace: namespace?,
            timeouts,
            ledger_retention,
        })
    }
}

impl EngineArgs {
    fn queue_tls(
        &self,
        queue: Option<&QueueUrl>,
        errors: &mut ConfigErrors,
    ) -> Option<Option<ClientTls>> {
        let flags = ClientFlags {
            authorities: ("--queue-ca", self.queue_ca.as_deref()),
            certificate: ("--queue-cert", self.queue_cert.as_deref()),
            key: ("--queue-key", self.queue_key.as_deref()),
            schemes: "amqps://",
        };
        tls::client(flags, queue.map(QueueUrl::uses_tls), errors)
    }

    /// Checks the TLS settings of the index, which also apply to the ledger's own store. `uses_tls`
    /// is true if one of their URLs asks for TLS, and `None` if a URL cannot be used.
    fn index_tls(
        &self,
        uses_tls: Option<bool>,
        errors: &mut ConfigErrors,
    ) -> Option<Option<ClientTls>> {
        let flags = ClientFlags {
            authorities: ("--index-ca", self.index_ca.as_deref()),
            certificate: ("--index-cert", self.index_cert.as_deref()),
            key: ("--index-key", self.index_key.as_deref()),
            schemes: "rediss:// or rediss-cluster://",
        };
        tls::client(flags, uses_tls, errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(queue: Option<&str>, index: Option<&str>) -> EngineArgs {
        EngineArgs {
            queue_url: queue.map(|url| url.to_owned().into()),
            queue_url_file: None,
            index_url: index.map(|url| url.to_owned().into()),
            index_url_file: None,
            queue_ca: None,
            queue_cert: None,
            queue_key: None,
            index_ca: None,
            index_cert: None,
            index_key: None,
            namespace: "push".into(),
            ledger_url: None,
            ledger_url_file: None,
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
        assert_eq!(urls.queue, QueueUrl::Amqp("amqp://localhost".to_owned().into()));
        assert_eq!(urls.index, IndexUrl::Sqlite("/data/index.sqlite3".into()));
    }

    #[test]
    fn the_files_of_the_index_serve_the_store_of_the_ledger_too() {
        let mut args = args(Some("amqp://h"), Some("redis://h"));
        args.index_ca = Some("/no/such.pem".into());
        let check = |args: &EngineArgs| {
            let mut errors = ConfigErrors::default();
            assert!(args.check(&mut errors).is_none());
            errors.to_string()
        };
        let text = check(&args);
        assert!(text.contains("--index-ca (PUSH_INDEX_CA) is of use only for"), "{text}");
        args.ledger_url = Some("rediss://h".to_owned().into());
        let text = check(&args);
        assert!(text.contains("PUSH_INDEX_CA): /no/such.pem cannot be read"), "{text}");
    }

    #[test]
    fn two_stores_share_the_flags_about_the_index_and_may_have_namespaces_of_their_own() {
        let check = |from: &str, to: &str| {
            let texts = [from, to].map(|url| SecretText::from(url.to_owned()));
            let [from, to] =
                texts.each_ref().map(|url| SecretSetting { text: Some(url), file: None });
            let mut args = args(None, None);
            args.index_ca = Some("/no/such.pem".into());
            let mut errors = ConfigErrors::default();
            let stores = [("--from", from), ("--to", to)];
            assert!(args.check_stores(stores, Some("B"), &mut errors).is_none());
            errors.to_string()
        };
        let text = check("sqlite:///a", "rediss://u:hunter2@h");
        assert!(text.contains("--to-namespace (PUSH_TO_NAMESPACE)"), "{text}");
        assert!(text.contains("/no/such.pem cannot be read"), "{text}");
        let text = check("mysql://u:hunter2@h", "redis://h");
        assert!(text.contains("--from (PUSH_FROM): must begin with"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
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

//! Remedies for an engine that cannot be opened, or that fails later. They depend on the kind of the
//! error, and on the kind of the engine: a server or a file.

use std::{
    io,
    path::{Path, PathBuf},
};

use push_boot::engines::{EngineSettings, IndexUrl, QueueUrl};
use push_model::causes::with_causes;
use push_queue::{AccessRefused, QueueError};
use push_store::{Finding, IndexError, Refusal, RefusalReason};

/// An engine of the deployment.
#[derive(Debug, Clone)]
pub(in crate::doctor) struct Engine {
    /// Its findings are about this.
    pub(in crate::doctor) name: &'static str,
    /// The setting that names it.
    flag: &'static str,
    /// True if it is a file, and no server.
    is_file: bool,
    /// The prefix of the keys in Redis.
    namespace: String,
}

/// The rights of the Redis user, for `ACL SETUSER`: reading, writing and scripts, the state of the
/// server and of a cluster, its settings, and the user's own name.
const RIGHTS: &str = "+@read +@write +@scripting +@transaction +@connection +time +info +config|get \
                      +cluster +acl|whoami";

/// A reason not to open an embedded database: the doctor makes nothing in order to look at it.
#[derive(Debug, thiserror::Error)]
pub(in crate::doctor) enum NotOpened {
    /// It is not there.
    #[error("there is none in {}", .0.display())]
    NotMade(PathBuf),
    /// It may or may not be there: this user cannot look into its folder.
    #[error("{} cannot be looked at", .0.display())]
    Unseen(PathBuf, #[source] io::Error),
}

/// Checks that an embedded database is there to be opened.
///
/// # Errors
/// If it is not.
pub(in crate::doctor) fn look_for(file: &Path) -> Result<(), NotOpened> {
    match file.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(NotOpened::NotMade(file.to_owned())),
        Err(error) => Err(NotOpened::Unseen(file.to_owned(), error)),
    }
}

impl Engine {
    pub(in crate::doctor) fn queue(engines: &EngineSettings) -> Self {
        let is_file = matches!(engines.queue, QueueUrl::Sqlite(_));
        let namespace = engines.namespace.clone();
        Self { name: "queue", flag: "--queue-url", is_file, namespace }
    }

    pub(in crate::doctor) fn index(url: &IndexUrl, namespace: &str) -> Self {
        Self::store("index", "--index-url", url, namespace)
    }

    /// Describes the ledger's own store.
    pub(in crate::doctor) fn ledger(url: &IndexUrl, namespace: &str) -> Self {
        Self::store("ledger", "--ledger-url", url, namespace)
    }

    fn store(name: &'static str, flag: &'static str, url: &IndexUrl, namespace: &str) -> Self {
        let is_file = matches!(url, IndexUrl::Sqlite(_));
        Self { name, flag, is_file, namespace: namespace.to_owned() }
    }

    /// Reports that it cannot be opened.
    pub(in crate::doctor) fn unusable(&self, error: &anyhow::Error) -> Finding {
        let detail = format!("{error:#}");
        if let Some(NotOpened::NotMade(_)) = error.downcast_ref() {
            let remedy = format!(
                "start a program, which makes it; if one has, check {} and --data-dir",
                self.flag
            );
            return Finding::warning(self.name, detail, remedy);
        }
        let mut causes = error.chain();
        let remedy = causes.find_map(|cause| {
            let of_queue = cause.downcast_ref().map(|error| self.remedy_of_queue(error));
            of_queue.or_else(|| cause.downcast_ref().map(|error| self.remedy_of_store(error)))
        });
        Finding::error(self.name, detail, remedy.unwrap_or_else(|| self.reach()))
    }

    /// Reports that the queue failed.
    pub(in crate::doctor) fn queue_failed(
        &self,
        subject: impl Into<String>,
        error: &QueueError,
    ) -> Finding {
        Finding::error(subject, with_causes(error), self.remedy_of_queue(error))
    }

    /// Reports that a store failed.
    pub(in crate::doctor) fn store_failed(
        &self,
        subject: impl Into<String>,
        error: &IndexError,
    ) -> Finding {
        Finding::error(subject, with_causes(error), self.remedy_of_store(error))
    }

    fn remedy_of_queue(&self, error: &QueueError) -> String {
        match error {
            QueueError::Unavailable(_) if AccessRefused::of(error).is_some() => format!(
                "check user, password and virtual host in {}, and the user's permissions \
                 (`rabbitmqctl list_user_permissions USER`)",
                self.flag
            ),
            QueueError::Unavailable(_) => self.reach(),
            QueueError::Blocked(_) => {
                "free memory or disk of the queue's server, see `rabbitmqctl status`; or change the \
                 policy that is named"
                    .to_owned()
            }
            QueueError::Refused(_) => {
                "see the log of the queue's server, and whether a policy limits its queues"
                    .to_owned()
            }
            QueueError::Unroutable => {
                "start an ingest or a worker, which declares the queues".to_owned()
            }
            QueueError::Topology(_) => format!(
                "check {} and --namespace, or remove what is there under the names of the queues",
                self.flag
            ),
            QueueError::Closed => "run doctor again".to_owned(),
        }
    }

    fn remedy_of_store(&self, error: &IndexError) -> String {
        if let Some(refusal) = Refusal::of(error) {
            return self.remedy_of_refusal(refusal.reason);
        }
        match error {
            IndexError::Refused(_) if self.is_file => "make room on its disk".to_owned(),
            IndexError::Refused(_) => "run doctor again, and see its log".to_owned(),
            IndexError::Unreachable(_) => self.reach(),
            IndexError::Unsure(_) => "see its log, and whether it answers within 5s".to_owned(),
            IndexError::Corrupt(_) => "use programs of the version that wrote it, or restore \
                                       apps from backups (`pushctl app restore`)"
                .to_owned(),
        }
    }

    fn remedy_of_refusal(&self, reason: RefusalReason) -> String {
        let Self { flag, namespace, .. } = self;
        match reason {
            RefusalReason::NotMaster => {
                format!("make it a master again (`REPLICAOF NO ONE`), or name the master in {flag}")
            }
            RefusalReason::FewReplicas => "bring its replicas back: it has fewer than its \
                                           `min-replicas-to-write`"
                .to_owned(),
            RefusalReason::NoMemory => {
                "raise its `maxmemory`, or remove what else it holds".to_owned()
            }
            RefusalReason::NoDisk => {
                "make room on its disk and see its log: it could not save".to_owned()
            }
            RefusalReason::OtherProtocol => {
                format!("check host, port and scheme (TLS or not) in {flag}")
            }
            RefusalReason::Login => format!("check user and password in {flag}"),
            RefusalReason::Permission => {
                format!(
                    "give its user all that the service needs: `ACL SETUSER NAME ~{namespace}:* {RIGHTS}`"
                )
            }
            RefusalReason::Busy => {
                "wait until it has loaded its data, or has run the script of another client"
                    .to_owned()
            }
            RefusalReason::Cluster => {
                "see `CLUSTER INFO`: some hash slots are not served, or are being moved".to_owned()
            }
            RefusalReason::OtherVersion => {
                "use programs of the version that wrote it, or remove the app and register its \
                 devices again"
                    .to_owned()
            }
        }
    }

    /// Returns the remedy if it cannot be used at all.
    fn reach(&self) -> String {
        let flag = self.flag;
        if self.is_file {
            format!(
                "run doctor as the user of the service, or check {flag}, --data-dir and the disk"
            )
        } else {
            format!("start it, or check {flag} (host, port, login, TLS or not) and the network")
        }
    }
}

//! The index and the ledger's own store: their settings, what is wrong in the index, if they keep what is written, and how far back
//! the ledger reaches.

use push_boot::engines::{self, EngineSettings, IndexUrl, UnusableStore, open_index, open_ledger};
use push_index::Index;
use push_model::{ledger::Retention, time::UnixMillis};
use push_store::{Finding, Store, TakesWrites};

use super::engine::{Engine, look_for};
use crate::doctor::{
    APPS_NAMED,
    apps::{
        accounts, history, removals,
        trials::{self, Trials},
    },
    programs::records,
};

/// The index and the ledger's own store, or why they cannot be used.
#[derive(Debug)]
pub(in crate::doctor) struct Stores {
    index: Opened,
    ledger: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    engine: Engine,
    stores: anyhow::Result<engines::Stores>,
}

/// Opens both stores, each alone: a fault of one does not hide the other.
pub(in crate::doctor) async fn open(engines: &EngineSettings) -> Stores {
    let namespace = &engines.namespace;
    let index = open_one(&engines.index, open_index(engines)).await;
    let ledger = match engines.separate_ledger() {
        Some(url) => {
            let stores = open_one(url, open_ledger(engines, url)).await;
            Some(Opened { engine: Engine::ledger(url, namespace), stores })
        }
        None => None,
    };
    Stores {
        index: Opened { engine: Engine::index(&engines.index, namespace), stores: index },
        ledger,
    }
}

/// Opens a store, unless that would make it.
async fn open_one(
    url: &IndexUrl,
    opening: impl Future<Output = Result<engines::Stores, UnusableStore>>,
) -> anyhow::Result<engines::Stores> {
    if let IndexUrl::Sqlite(file) = url {
        look_for(file)?;
    }
    Ok(opening.await?)
}

impl Stores {
    pub(in crate::doctor) async fn findings(
        &self,
        retention: Retention,
        trials: &anyhow::Result<Option<Trials>>,
    ) -> Vec<Finding> {
        let Self { index, ledger } = self;
        let mut findings = index.findings().await;
        if let Ok(stores) = &index.stores {
            findings.push(dictionaries(&*stores.index, &index.engine).await);
            findings.push(accounts::judge(&*stores.index, &index.engine).await);
            findings.extend(trials::findings(&*stores.index, &index.engine, trials).await);
            findings.push(removals::judge(&*stores.index, &index.engine, UnixMillis::now()).await);
            findings.extend(records::findings(&*stores.index, &index.engine).await);
        }
        if let Some(ledger) = ledger {
            findings.extend(ledger.findings().await);
        }
        let with_ledger = ledger.as_ref().unwrap_or(index);
        if let Ok(stores) = &with_ledger.stores {
            findings.push(match stores.ledger.history().await {
                Ok(history) => history::judge(history, retention, UnixMillis::now()),
                Err(error) => with_ledger.engine.store_failed("ledger", &error),
            });
        }
        findings
    }
}

/// Names the apps whose dictionaries are nearly full.
async fn dictionaries(store: &dyn Index, engine: &Engine) -> Finding {
    const SUBJECT: &str = "dictionaries";
    let filled = match store.filled_dictionaries().await {
        Ok(filled) => filled,
        Err(error) => return engine.store_failed(SUBJECT, &error),
    };
    let nearly_full: Vec<_> = filled.iter().filter(|(_, used)| used.is_nearly_full()).collect();
    let mut names = Vec::new();
    for (app, used) in nearly_full.iter().take(APPS_NAMED) {
        let (column, filled) = used.fullest();
        let record = store.app(&app.id).await.ok().flatten();
        let declared = record.map(|record| record.attributes).unwrap_or_default();
        names.push(format!("{} of {} ({} %)", column.name(&declared), app.id, filled / 10));
    }
    if nearly_full.is_empty() {
        return Finding::ok(SUBJECT, "have room for new values of attributes");
    }
    let detail = format!("{} apps have nearly full ones: {}", nearly_full.len(), names.join(", "));
    Finding::warning(
        SUBJECT,
        detail,
        "find out what registers so many different values; workers free those that no device has, and \
         those without room are stored as absent",
    )
}

impl Opened {
    async fn findings(&self) -> Vec<Finding> {
        let name = self.engine.name;
        let store = match &self.stores {
            Ok(stores) => &*stores.index,
            Err(error) => return vec![self.engine.unusable(error)],
        };
        let mut findings = match store.inspect().await {
            Ok(found) if name == "index" => found,
            Ok(found) => found.into_iter().map(|finding| finding.of_part(name)).collect(),
            Err(error) => vec![self.engine.store_failed(name, &error)],
        };
        findings.push(self.writing(store).await);
        findings
    }

    /// Checks if the store keeps what is written: it may be a replica, or have no memory or no disk.
    async fn writing(&self, store: &dyn Store) -> Finding {
        let subject = format!("{} writes", self.engine.name);
        match store.takes_writes().await {
            Ok(TakesWrites { unreachable }) if unreachable.is_empty() => {
                Finding::ok(subject, "stored")
            }
            Ok(TakesWrites { unreachable }) => Finding::error(
                subject,
                format!("not stored by {}", unreachable.join("; ")),
                "bring these masters back, or let a replica take over",
            ),
            Err(error) => self.engine.store_failed(subject, &error),
        }
    }
}

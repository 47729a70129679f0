//! Both stores of a move, and the apps to take. Everything that can be refused is refused here, before
//! anything is changed.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use push_boot::engines::{IndexUrl, StoreSettings, open_store};
use push_index::Index;
use push_model::{app::App, ids::AppId, time::UnixMillis, transfer::Arrival};

use super::MoveRequest;
use crate::transfer::at_target::{AtTarget, take};

/// The namespace that names leave out.
const DEFAULT_NAMESPACE: &str = "push";

/// Both stores.
pub(super) struct Stores {
    pub(super) from: Arc<dyn Index>,
    pub(super) to: Arc<dyn Index>,
    /// Their names, without passwords.
    pub(super) from_name: String,
    pub(super) to_name: String,
}

/// A decision about an app.
#[derive(Debug)]
pub(super) enum Planned {
    /// Take it, from the beginning or from where an earlier attempt ended.
    Take(Arrival),
    /// Nothing, for this reason.
    Nothing(String),
}

impl Stores {
    pub(super) async fn open(request: &MoveRequest) -> anyhow::Result<Self> {
        if request.from.url == request.to.url && request.from.namespace == request.to.namespace {
            bail!("--from and --to name the same store");
        }
        if let IndexUrl::Sqlite(file) = &request.from.url {
            let name = file.display();
            let exists =
                file.try_exists().with_context(|| format!("cannot use the store in {name}"))?;
            ensure!(exists, "there is no store in {name}");
        }
        let open = async |store: &StoreSettings| {
            let cannot = || format!("cannot use the store at {}", store.url);
            anyhow::Ok(open_store(store).await.with_context(cannot)?.index)
        };
        Ok(Self {
            from: open(&request.from).await?,
            to: open(&request.to).await?,
            from_name: name(&request.from),
            to_name: name(&request.to),
        })
    }

    /// Decides which apps to move and how.
    ///
    /// # Errors
    /// If one of them cannot be moved, or a store does not answer.
    pub(super) async fn planned(
        &self,
        request: &MoveRequest,
    ) -> anyhow::Result<Vec<(App, Planned)>> {
        let (mut planned, mut refused) = (Vec::new(), Vec::new());
        for app in self.selected(request).await? {
            let there = AtTarget::read(&*self.to, &app.app_id).await?;
            match self.plan(&app, &there, request) {
                Ok(plan) => planned.push((app, plan)),
                Err(why) => refused.push(format!("{}: {why}", app.app_id)),
            }
        }
        ensure!(
            refused.is_empty(),
            "nothing was changed, because these apps cannot be moved:\n  {}",
            refused.join("\n  ")
        );
        Ok(planned)
    }

    fn plan(&self, app: &App, there: &AtTarget, request: &MoveRequest) -> Result<Planned, String> {
        if let Some(moved) = &app.moved_to {
            if moved.store != self.to_name {
                let elsewhere =
                    format!("its move to {} has ended or is to be finished", moved.store);
                // The rest of the apps is moved without those that left before.
                return if request.apps.is_empty() {
                    Ok(Planned::Nothing(elsewhere))
                } else {
                    Err(format!("{elsewhere}: move it from there"))
                };
            }
            let found = there.app.as_ref().filter(|found| found.created_at == app.created_at);
            match found.map(|found| &found.moved_to) {
                Some(None) => return Ok(Planned::Nothing("moved before".to_owned())),
                Some(Some(on)) => {
                    return Err(format!(
                        "it has moved to {} and on from there to {}: move it from there",
                        moved.store, on.store
                    ));
                }
                None => {}
            }
        }
        take(app, there, &self.from_name, request.new_logins, UnixMillis::now()).map(Planned::Take)
    }

    /// Reads the records of the apps to move: those that were named, or all.
    async fn selected(&self, request: &MoveRequest) -> anyhow::Result<Vec<App>> {
        let store = &request.from.url;
        if request.apps.is_empty() {
            let cannot =
                || format!("cannot list the apps of {store}: --app moves those that it names");
            let apps = self.from.apps().await.with_context(cannot)?;
            self.check_none_comes_back().await?;
            return Ok(apps);
        }
        let mut apps = Vec::with_capacity(request.apps.len());
        // Each alone, so that an unreadable record of another app does not keep these from being moved.
        for name in &request.apps {
            let missing = || format!("there is no app {name} in the store at {store}");
            self.check_has_arrived(name).await?;
            apps.push(self.from.app(name).await?.with_context(missing)?);
        }
        apps.sort_unstable_by(|a, b| a.app_id.cmp(&b.app_id));
        apps.dedup_by(|a, b| a.app_id == b.app_id);
        Ok(apps)
    }

    /// Refuses to move all apps while one of them is on its way from the target: it would be left out.
    async fn check_none_comes_back(&self) -> anyhow::Result<()> {
        for app in self.to.apps().await? {
            if app.moved_to.is_some_and(|moved| moved.store == self.from_name) {
                self.check_has_arrived(&app.app_id).await?;
            }
        }
        Ok(())
    }

    async fn check_has_arrived(&self, name: &AppId) -> anyhow::Result<()> {
        if let Some(arrival) = self.from.arrival(name).await? {
            bail!(
                "nothing was changed: {name} is still on its way to {} from {}: run the command that takes \
                 it there again until it succeeds, and move it after that",
                self.from_name,
                arrival.origin
            );
        }
        Ok(())
    }
}

/// Names a store without its password.
fn name(StoreSettings { url, namespace, .. }: &StoreSettings) -> String {
    if namespace == DEFAULT_NAMESPACE {
        url.to_string()
    } else {
        format!("{url} (namespace {namespace})")
    }
}

//! Apps and their limits.

use std::{num::NonZeroU32, sync::Arc};

use axum::extract::State;
use push_model::{app::AppQuota, ids::AppId, secret::Secret};
use push_operator::app::{
    self, AppDetails, AppPage, AppRemoved, AppState, LimitChanges, Limits, NewSecret,
};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{
    answer::{Answer, Result},
    input::{Asked, Given, Named, PageParams, nullable},
};
use crate::{
    access::{Caller, Refused},
    core::Core,
};

/// A new app.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewApp {
    app_id: AppId,
    #[serde(default)]
    rate_limit: Option<NonZeroU32>,
    #[serde(default)]
    pace: Option<NonZeroU32>,
    #[serde(default)]
    max_devices: Option<Quota>,
    #[serde(default)]
    max_waiting: Option<Quota>,
    #[serde(default)]
    max_ledger_entries: Option<Quota>,
}

/// New limits of an app; what is absent stays as it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Changes {
    #[serde(default, deserialize_with = "nullable")]
    rate_limit: Option<Option<NonZeroU32>>,
    #[serde(default, deserialize_with = "nullable")]
    pace: Option<Option<NonZeroU32>>,
    #[serde(default)]
    max_devices: Option<Quota>,
    #[serde(default)]
    max_waiting: Option<Quota>,
    #[serde(default)]
    max_ledger_entries: Option<Quota>,
}

/// A quota: a number, `"none"` or `"default"`.
#[derive(Debug, Clone, Copy)]
struct Quota(AppQuota);

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(NonZeroU32),
            Word(String),
        }
        match Written::deserialize(deserializer) {
            Ok(Written::Number(most)) => Ok(Self(AppQuota::AtMost(most))),
            Ok(Written::Word(word)) if word == "none" => Ok(Self(AppQuota::None)),
            Ok(Written::Word(word)) if word == "default" => Ok(Self(AppQuota::Default)),
            _ => Err(D::Error::custom("must be a number of 1 or more, \"none\" or \"default\"")),
        }
    }
}

impl Quota {
    fn or_default(quota: Option<Self>) -> AppQuota {
        quota.map_or(AppQuota::Default, |Self(quota)| quota)
    }

    fn change(quota: Option<Self>) -> Option<AppQuota> {
        quota.map(|Self(quota)| quota)
    }
}

/// The confirmation of a removal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Removal {
    confirm: Option<String>,
}

/// The way in which an app comes back into service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Return {
    #[serde(default)]
    although_moved: bool,
}

pub(super) async fn list(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Asked(page): Asked<PageParams>,
) -> Result<AppPage> {
    let query = page.of(&caller)?;
    if let Some(own) = caller.app() {
        let apps = vec![app::show(core.index(), &own.id).await?];
        return Ok(Answer(AppPage { apps, next_cursor: None }));
    }
    Ok(Answer(app::page(core.index(), query).await?))
}

pub(super) async fn show(
    State(core): State<Arc<Core>>,
    Named(app_id): Named<AppId>,
) -> Result<AppDetails> {
    Ok(Answer(app::show(core.index(), &app_id).await?))
}

pub(super) async fn create(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Given(new): Given<NewApp>,
) -> Result<NewSecret> {
    let limits = Limits {
        rate_limit: new.rate_limit,
        pace: new.pace,
        max_devices: Quota::or_default(new.max_devices),
        max_waiting: Quota::or_default(new.max_waiting),
        max_ledger_entries: Quota::or_default(new.max_ledger_entries),
    };
    let (actor, secret) = (caller.actor()?, Secret::generate());
    Ok(Answer(app::create(core.index(), &actor, new.app_id, secret, limits).await?))
}

pub(super) async fn change(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named(app_id): Named<AppId>,
    Given(given): Given<Changes>,
) -> Result<AppDetails> {
    let changes = LimitChanges {
        rate_limit: given.rate_limit,
        pace: given.pace,
        max_devices: Quota::change(given.max_devices),
        max_waiting: Quota::change(given.max_waiting),
        max_ledger_entries: Quota::change(given.max_ledger_entries),
    };
    let (actor, app) = (caller.actor()?, caller.target(&app_id));
    Ok(Answer(app::set(core.index(), &actor, app, changes).await?))
}

pub(super) async fn disable(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named(app_id): Named<AppId>,
) -> Result<AppState> {
    Ok(Answer(app::disable(core.index(), &caller.actor()?, caller.target(&app_id)).await?))
}

pub(super) async fn enable(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named(app_id): Named<AppId>,
    Asked(way): Asked<Return>,
) -> Result<AppState> {
    let (actor, app) = (caller.actor()?, caller.target(&app_id));
    Ok(Answer(app::enable(core.index(), &actor, app, way.although_moved).await?))
}

pub(super) async fn remove(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named(app_id): Named<AppId>,
    Asked(removal): Asked<Removal>,
) -> Result<AppRemoved> {
    if removal.confirm.as_deref() != Some(app_id.as_str()) {
        return Err(Refused::Invalid(format!(
            "this removes {app_id} with all its devices: confirm it with ?confirm={app_id}"
        )));
    }
    Ok(Answer(app::remove(core.index(), &caller.actor()?, caller.target(&app_id)).await?))
}

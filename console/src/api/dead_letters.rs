//! Dead letters. RabbitMQ shows them to one reader at a time, so requests about them take turns.

use std::sync::Arc;

use axum::extract::State;
use push_model::{app::AppKey, ids::AppId};
use push_operator::dead::{self, DeadLetterPage, DeadLetterView, Dropped, Replayed, Scope};
use serde::Deserialize;

use super::{
    answer::{Answer, Result},
    input::{Asked, Given, Named, PageParams},
};
use crate::{
    access::{Caller, Reach, Refused},
    core::Core,
};

/// The most ids of one request.
const MAX_IDS: usize = 1000;

/// The dead letters that are asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    limit: Option<usize>,
    cursor: Option<String>,
    app: Option<AppId>,
}

/// The dead letters that are to be changed: those with these ids, or all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Selection {
    #[serde(default)]
    ids: Option<Vec<String>>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    app: Option<AppId>,
}

impl Selection {
    /// The ids that were given; none for all.
    fn ids(self) -> std::result::Result<Option<Vec<String>>, Refused> {
        let wrong = |text: String| Err(Refused::Invalid(text));
        match (self.all, self.ids) {
            (true, None) => Ok(None),
            (false, Some(ids)) if ids.is_empty() => wrong("ids: must name one at least".to_owned()),
            (false, Some(ids)) if ids.len() > MAX_IDS => {
                wrong(format!("ids: must be {MAX_IDS} at most"))
            }
            (false, Some(ids)) => Ok(Some(ids)),
            (true, Some(_)) | (false, None) => {
                wrong("the body must have either ids or \"all\": true".to_owned())
            }
        }
    }
}

/// The dead letters that the caller sees, and asks for.
fn scope<'a>(
    caller: &Caller,
    own: Option<&'a AppKey>,
    asked: Option<&'a AppId>,
) -> std::result::Result<Scope<'a>, Refused> {
    match (own, asked) {
        (None, None) => Ok(Scope::All),
        (None, Some(app)) => Ok(Scope::Named(app)),
        (Some(own), None) => Ok(Scope::Only(own)),
        (Some(own), Some(app)) => {
            caller.check(caller.role(), Reach::App, Some(app))?;
            Ok(Scope::Only(own))
        }
    }
}

pub(super) async fn list(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Asked(Query { limit, cursor, app }): Asked<Query>,
) -> Result<DeadLetterPage> {
    let own = caller.app();
    let scope = scope(&caller, own.as_ref(), app.as_ref())?;
    let page = PageParams { limit, cursor };
    let query = page.of(&caller)?;
    let _turn = core.dead_letters.lock().await;
    Ok(Answer(dead::page(core.queue(), scope, query).await?))
}

pub(super) async fn show(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named(id): Named<String>,
) -> Result<DeadLetterView> {
    let own = caller.app();
    let scope = scope(&caller, own.as_ref(), None)?;
    let _turn = core.dead_letters.lock().await;
    Ok(Answer(dead::show(core.queue(), scope, &id).await?))
}

pub(super) async fn replay(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Given(selection): Given<Selection>,
) -> Result<Replayed> {
    let (own, app) = (caller.app(), selection.app.clone());
    let scope = scope(&caller, own.as_ref(), app.as_ref())?;
    let ids = selection.ids()?;
    let _turn = core.dead_letters.lock().await;
    let ids = dead::select(core.queue(), scope, ids).await?;
    let (index, actor) = (Some(core.index()), caller.actor()?);
    Ok(Answer(dead::replay(core.queue(), index, &actor, scope, ids.as_deref()).await?))
}

pub(super) async fn drop_letters(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Given(selection): Given<Selection>,
) -> Result<Dropped> {
    let (own, app) = (caller.app(), selection.app.clone());
    let scope = scope(&caller, own.as_ref(), app.as_ref())?;
    let ids = selection.ids()?;
    let _turn = core.dead_letters.lock().await;
    let ids = dead::select(core.queue(), scope, ids).await?;
    let (index, actor) = (Some(core.index()), caller.actor()?);
    Ok(Answer(dead::drop_letters(core.queue(), index, &actor, scope, ids.as_deref()).await?))
}

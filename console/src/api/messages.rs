//! Messages of an app.

use std::sync::Arc;

use axum::extract::State;
use push_model::{
    ids::{AppId, MessageId},
    ledger::MessageState,
    report::ReportPage,
};
use push_operator::message::{self, MessageView, Recalled};
use serde::Deserialize;

use super::{
    answer::{Answer, Result},
    input::{Asked, Named, PageParams},
};
use crate::{
    access::{Caller, Refused},
    core::Core,
};

/// The messages that are asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    limit: Option<usize>,
    cursor: Option<String>,
    state: Option<String>,
}

pub(super) async fn list(
    State(core): State<Arc<Core>>,
    Named(app_id): Named<AppId>,
    Asked(Query { limit, cursor, state }): Asked<Query>,
) -> Result<ReportPage> {
    let wrong = || Refused::Invalid("state: there is no such state".to_owned());
    let of_name = |name: String| MessageState::of_name(&name).ok_or_else(wrong);
    let state = state.map(of_name).transpose()?;
    let page = PageParams { limit, cursor };
    let (stores, limit) = (&core.parts.stores, page.limit()?);
    Ok(Answer(message::list(stores, &app_id, limit, page.cursor(), state).await?))
}

pub(super) async fn show(
    State(core): State<Arc<Core>>,
    Named((app_id, message_id)): Named<(AppId, MessageId)>,
) -> Result<MessageView> {
    let (stores, retention) = (&core.parts.stores, core.parts.retention);
    Ok(Answer(message::show(stores, &app_id, &message_id, retention).await?))
}

pub(super) async fn recall(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, message_id)): Named<(AppId, MessageId)>,
) -> Result<Recalled> {
    let (stores, retention) = (&core.parts.stores, core.parts.retention);
    let (actor, app) = (caller.actor()?, caller.target(&app_id));
    Ok(Answer(message::recall(stores, &actor, app, message_id, retention).await?))
}

//! The audit trail.

use std::sync::Arc;

use axum::extract::State;
use push_model::{ids::AppId, time::UnixMillis};
use push_operator::{
    app,
    audit::{self, AuditPage, OfApp},
};
use serde::Deserialize;

use super::{
    answer::{Answer, Result},
    input::{Asked, PageParams},
};
use crate::{
    access::{Caller, Reach},
    core::Core,
};

/// The events that are asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    limit: Option<usize>,
    cursor: Option<String>,
    app: Option<AppId>,
}

pub(super) async fn list(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Asked(Query { limit, cursor, app }): Asked<Query>,
) -> Result<AuditPage> {
    let page = PageParams { limit, cursor };
    let query = page.of(&caller)?;
    let (own, mut since) = (caller.app(), UnixMillis(0));
    if let Some(own) = &own {
        let asked = app.as_ref().unwrap_or(&own.id);
        caller.check(caller.role(), Reach::App, Some(asked))?;
        // Events before that are about an earlier app of the name.
        since = app::show(core.index(), &own.id).await?.app.created_at;
    }
    let app = own.map(|own| own.id).or(app);
    let only = app.as_ref().map(|app| OfApp { app, since });
    Ok(Answer(audit::page(core.index(), only, query).await?))
}

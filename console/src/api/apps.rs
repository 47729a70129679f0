//! Apps.

use std::sync::Arc;

use axum::extract::State;
use push_model::ids::AppId;
use push_operator::app::{self, AppDetails, AppPage};

use super::{
    answer::{Answer, Result},
    input::{Asked, Named, PageParams},
};
use crate::{
    access::{Caller, Refused},
    core::Core,
};

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

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Self {
        Self::UseCase(error)
    }
}

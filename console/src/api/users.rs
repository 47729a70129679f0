//! The devices of a user.

use std::sync::Arc;

use axum::extract::State;
use push_model::ids::{AppId, UserId};
use push_operator::device::users::{self, UserDevices, UserRemoved};

use super::{
    answer::{Answer, Result},
    devices::shown_to,
    input::Named,
};
use crate::{access::Caller, core::Core};

pub(super) async fn show(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, user_id)): Named<(AppId, UserId)>,
) -> Result<UserDevices> {
    let mut found = users::show(core.index(), &app_id, &user_id).await?;
    found.devices = found.devices.into_iter().map(|device| shown_to(&caller, device)).collect();
    Ok(Answer(found))
}

pub(super) async fn remove(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, user_id)): Named<(AppId, UserId)>,
) -> Result<UserRemoved> {
    let (actor, app) = (caller.actor()?, caller.target(&app_id));
    Ok(Answer(users::remove(core.index(), &actor, app, &user_id).await?))
}

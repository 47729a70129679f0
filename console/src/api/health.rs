//! The caller itself, and the state of the deployment.

use std::sync::Arc;

use axum::extract::State;
use push_boot::{build_info, health::Report};
use push_model::{
    admin_key::Role,
    ids::{AppId, SecretName},
};
use push_operator::{
    components::{self, ComponentView},
    status::{self, StatusView},
};
use serde::Serialize;

use super::answer::{Answer, Result};
use crate::{access::Caller, core::Core};

/// The caller's key.
#[derive(Debug, Serialize)]
pub(crate) struct Me {
    name: SecretName,
    role: Role,
    app_id: Option<AppId>,
}

pub(super) async fn me(caller: Caller) -> Answer<Me> {
    let app_id = caller.app().map(|app| app.id);
    Answer(Me { name: caller.name().clone(), role: caller.role(), app_id })
}

/// The state of the program that answers, and of the deployment.
#[derive(Debug, Serialize)]
pub(crate) struct HealthView {
    version: &'static str,
    program: Report,
    /// The running programs; none if the index did not answer, or the caller may see one app alone.
    components: Option<Vec<ComponentView>>,
    #[serde(flatten)]
    status: StatusView,
}

pub(super) async fn health(State(core): State<Arc<Core>>, caller: Caller) -> Result<HealthView> {
    let only = caller.app();
    let running = async {
        match only {
            Some(_) => None,
            None => components::list(core.index()).await.ok(),
        }
    };
    let status = status::read(core.queue(), &core.parts.stores, only.as_ref());
    let (status, components) = tokio::join!(status, running);
    let program = core.parts.health.report();
    Ok(Answer(HealthView { version: build_info::VERSION, program, components, status }))
}

//! The forms that change something. Each ends on a page that shows the result.

use std::{num::NonZeroU32, sync::Arc};

use axum::{
    Extension, Form,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use maud::Markup;
use push_model::{
    app::{AppKey, Scopes},
    custom::{AttributeName, ValueType},
    device::TransportKind,
    ids::{AppId, ClientId, MessageId, SecretName},
    secret::Secret,
    time::UnixMillis,
};
use push_operator::{
    app::{self as apps_of, LimitChanges, Limits, trial::try_account},
    dead, device, message as messages_of_app,
};
use serde::Deserialize;

use super::{
    Desk,
    error::Failure,
    reading::{Page, Who, no_device, no_message},
};
use crate::access::Caller;
use crate::pages::{
    self,
    layout::Section,
    parts::{confirm, notice},
    words::{Mood, counted},
};

/// The most dead letters that are chosen one by one.
const MOST_IDS: usize = 1000;

type Done = Result<Response, Failure>;

pub(super) async fn recall(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path((app, id)): Path<(String, String)>,
) -> Page {
    let app = desk.acted_on(&visitor, &app).await?;
    let id: MessageId = id.parse().map_err(|_| no_message())?;
    let (stores, retention) = (&desk.core.parts.stores, desk.core.parts.retention);
    let done = messages_of_app::recall(stores, &visitor.actor()?, &app, id, retention).await?;
    let content = pages::message::receipt(&app, &done, UnixMillis::now());
    Ok(visitor.page("Recall", Section::Messages, &content))
}

pub(super) async fn remove_device(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path((app, client)): Path<(String, String)>,
) -> Done {
    let app = desk.acted_on(&visitor, &app).await?;
    let client: ClientId = client.parse().map_err(|_| no_device())?;
    device::remove_recorded(desk.core.index(), &visitor.actor()?, &app, client).await?;
    Ok(Redirect::to(&format!("/devices?app={app}")).into_response())
}

/// The form of the dead letters: which, and what becomes of them.
pub(super) async fn dead_letters(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Form(fields): Form<Vec<(String, String)>>,
) -> Page {
    let (ids, action) = letters(fields);
    let chosen = counted(ids.len() as u64, "dead letter");
    let page = match action.as_str() {
        "replay" | "drop" if ids.is_empty() => {
            notice("Dead letters", Mood::Warn, "Choose at least one.")
        }
        "replay" => desk.settle(&visitor, "replay", Some(ids)).await?,
        "drop" => ask("Drop dead letters", &format!("{chosen} will be lost."), "drop", &ids),
        "replay-all" => {
            ask("Replay all dead letters", "All of them return to their queues.", "replay-all", &[])
        }
        "drop-all" => ask("Drop all dead letters", "All of them will be lost.", "drop-all", &[]),
        _ => return Err(bad(&"no such action")),
    };
    Ok(visitor.page("Dead letters", Section::DeadLetters, &page))
}

fn ask(title: &str, lost: &str, action: &str, ids: &[String]) -> Markup {
    let ids = ids.iter().map(|id| ("id", id.as_str()));
    let hidden: Vec<_> = ids.chain([("action", action)]).collect();
    confirm(title, lost, "/dead-letters/confirmed", &hidden, action, "/dead-letters")
}

fn letters(fields: Vec<(String, String)>) -> (Vec<String>, String) {
    let (mut ids, mut action) = (Vec::new(), String::new());
    for (name, value) in fields {
        match name.as_str() {
            "id" => ids.push(value),
            "action" => action = value,
            _ => {}
        }
    }
    (ids, action)
}

/// Does what was typed to confirm.
pub(super) async fn dead_letters_confirmed(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Form(fields): Form<Vec<(String, String)>>,
) -> Page {
    let typed = fields.iter().find(|(name, _)| name == "confirm");
    let typed = typed.map(|(_, word)| word.trim().to_owned());
    let (ids, action) = letters(fields);
    if typed.as_deref() != Some(action.as_str()) {
        return Err(bad(&"The word does not match: nothing was done."));
    }
    let (action, ids) = match action.as_str() {
        "drop-all" => ("drop", None),
        "replay-all" => ("replay", None),
        action if !ids.is_empty() => (action, Some(ids)),
        _ => return Err(bad(&"Choose at least one.")),
    };
    let page = desk.settle(&visitor, action, ids).await?;
    Ok(visitor.page("Dead letters", Section::DeadLetters, &page))
}

impl Desk {
    /// Replays or drops those dead letters that the visitor sees: these, or all.
    async fn settle(
        &self,
        visitor: &Caller,
        action: &str,
        ids: Option<Vec<String>>,
    ) -> Result<Markup, Failure> {
        let (queue, index, actor) = (self.core.queue(), Some(self.core.index()), visitor.actor()?);
        let own = visitor.app();
        let scope = own.as_ref().map_or(dead::Scope::All, dead::Scope::Only);
        if ids.as_ref().is_some_and(|ids| ids.len() > MOST_IDS) {
            return Err(bad(&format!("Choose {MOST_IDS} at most, or all.")));
        }
        let _turn = self.core.dead_letters.lock().await;
        let ids = dead::select(queue, scope, ids).await?;
        let (title, count) = match action {
            "replay" => {
                let done = dead::replay(queue, index, &actor, scope, ids.as_deref()).await?;
                ("Replayed", done.replayed)
            }
            "drop" => {
                let done = dead::drop_letters(queue, index, &actor, scope, ids.as_deref()).await?;
                ("Dropped", done.dropped)
            }
            _ => return Err(bad(&"no such action")),
        };
        Ok(notice(title, Mood::Good, &counted(count, "dead letter")))
    }
}

#[derive(Deserialize)]
pub(super) struct NewApp {
    app_id: String,
}

pub(super) async fn make_app(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Form(form): Form<NewApp>,
) -> Page {
    visitor.sees_all()?;
    let id: AppId = form.app_id.trim().parse().map_err(|error| bad(&error))?;
    let (index, secret) = (&*desk.core.parts.stores.index, Secret::generate());
    let new = apps_of::create(index, &visitor.actor()?, id, secret, Limits::default()).await?;
    Ok(visitor.page("New app", Section::Apps, &pages::apps::new_secret(&new)))
}

fn bad(error: &impl std::fmt::Display) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, error.to_string())
}

#[derive(Deserialize)]
pub(super) struct NewLimits {
    rate_limit: String,
    pace: String,
}

pub(super) async fn limits(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path(app): Path<String>,
    Form(form): Form<NewLimits>,
) -> Done {
    let app = desk.acted_on(&visitor, &app).await?;
    let changes = LimitChanges {
        rate_limit: Some(limit(&form.rate_limit)?),
        pace: Some(limit(&form.pace)?),
        ..LimitChanges::default()
    };
    apps_of::set(desk.core.index(), &visitor.actor()?, &app, changes).await?;
    Ok(to_app(&app))
}

/// Reads a limit. An empty field is none.
fn limit(text: &str) -> Result<Option<NonZeroU32>, Failure> {
    let digits: String = text.chars().filter(|c| !matches!(c, ',' | ' ')).collect();
    if digits.is_empty() {
        return Ok(None);
    }
    let wrong = || bad(&format!("{text} is no limit: a number from 1, or nothing for no limit"));
    digits.parse().map(Some).map_err(|_| wrong())
}

fn to_app(app: &AppKey) -> Response {
    Redirect::to(&format!("/apps/{app}")).into_response()
}

pub(super) async fn enable(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path(app): Path<String>,
) -> Done {
    let app = desk.acted_on(&visitor, &app).await?;
    apps_of::enable(desk.core.index(), &visitor.actor()?, &app, false).await?;
    Ok(to_app(&app))
}

pub(super) async fn disable(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path(app): Path<String>,
) -> Done {
    let app = desk.acted_on(&visitor, &app).await?;
    apps_of::disable(desk.core.index(), &visitor.actor()?, &app).await?;
    Ok(to_app(&app))
}

#[derive(Deserialize)]
pub(super) struct NewAttributeForm {
    name: String,
    value_type: ValueType,
}

pub(super) async fn add_attribute(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path(app): Path<String>,
    Form(form): Form<NewAttributeForm>,
) -> Done {
    let app = desk.acted_on(&visitor, &app).await?;
    let name: AttributeName = form.name.trim().parse().map_err(|error| bad(&error))?;
    let (index, actor) = (desk.core.index(), visitor.actor()?);
    apps_of::attributes::add(index, &actor, &app, name, form.value_type).await?;
    Ok(to_app(&app))
}

pub(super) async fn remove_attribute(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path((app, name)): Path<(String, String)>,
) -> Done {
    let app = desk.acted_on(&visitor, &app).await?;
    apps_of::attributes::remove(desk.core.index(), &visitor.actor()?, &app, &name).await?;
    Ok(to_app(&app))
}

#[derive(Deserialize)]
pub(super) struct NewSecretForm {
    name: String,
}

pub(super) async fn add_secret(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path(app): Path<String>,
    Form(form): Form<NewSecretForm>,
) -> Page {
    let app = desk.acted_on(&visitor, &app).await?;
    let name: SecretName = form.name.trim().parse().map_err(|error| bad(&error))?;
    let (index, secret) = (&*desk.core.parts.stores.index, Secret::generate());
    let new =
        apps_of::secrets::add(index, &visitor.actor()?, &app, name, secret, Scopes::ALL, None)
            .await?;
    Ok(visitor.page("New secret", Section::Apps, &pages::apps::new_secret(&new)))
}

/// The secret that a page showed: when it was made tells it from a later one of its name.
#[derive(Deserialize)]
pub(super) struct Shown {
    made_at: UnixMillis,
}

/// Asks before a secret is revoked.
pub(super) async fn revoke_secret(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path((app, name)): Path<(String, String)>,
    Form(shown): Form<Shown>,
) -> Page {
    let app = desk.acted_on(&visitor, &app).await?;
    let name: SecretName = name.parse().map_err(|error| bad(&error))?;
    let lost =
        format!("Whoever sends with the secret {name} of {} is refused within 5 seconds.", app.id);
    let action = format!("/apps/{app}/secrets/{name}/revoked");
    let back = format!("/apps/{app}");
    let made_at = shown.made_at.0.to_string();
    let hidden = [("made_at", &*made_at)];
    let content = confirm("Revoke the secret", &lost, &action, &hidden, name.as_str(), &back);
    Ok(visitor.page("Revoke", Section::Apps, &content))
}

#[derive(Deserialize)]
pub(super) struct Confirmed {
    confirm: String,
    made_at: UnixMillis,
}

pub(super) async fn revoke_confirmed(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path((app, name)): Path<(String, String)>,
    Form(form): Form<Confirmed>,
) -> Done {
    let app = desk.acted_on(&visitor, &app).await?;
    let name: SecretName = name.parse().map_err(|error| bad(&error))?;
    if form.confirm.trim() != name.as_str() {
        return Err(bad(&"The name does not match: nothing was done."));
    }
    let (index, actor) = (desk.core.index(), visitor.actor()?);
    apps_of::secrets::revoke(index, &actor, &app, name, Some(form.made_at)).await?;
    Ok(to_app(&app))
}

/// Tries an account of the app with a request that no device receives.
pub(super) async fn test_account(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path((app, kind)): Path<(String, String)>,
) -> Page {
    let app = desk.acted_on(&visitor, &app).await?;
    let kind = TransportKind::from_name(&kind).ok_or_else(|| bad(&"no such transport"))?;
    let Some(seal) = &desk.core.parts.seal else {
        return Err(bad(&"This program has no key that opens accounts: start it with --seal-key."));
    };
    let tried = try_account(
        &*desk.core.parts.stores.index,
        seal,
        &desk.core.parts.providers,
        &app,
        kind,
        None,
    )
    .await?;
    let mood = if tried.works { Mood::Good } else { Mood::Bad };
    let remedy = tried.remedy.map(|remedy| format!(" {remedy}.")).unwrap_or_default();
    let text = format!("{}: {}.{remedy}", kind.name(), tried.found);
    Ok(visitor.page("Test", Section::Apps, &notice("Test of an account", mood, &text)))
}

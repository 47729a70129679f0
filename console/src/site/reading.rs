//! The pages that show something.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use futures::stream;
use maud::Markup;
use push_model::{
    admin_key::Role,
    app::{App, AppKey},
    ids::{ClientId, MessageId},
    ledger::MessageState,
    time::UnixMillis,
};
use push_operator::{
    app::{self as apps_of, AppRef},
    audit as trail, dead, device, message as messages_of_app,
    page::PageQuery,
};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::{
    Desk,
    error::Failure,
    visitor::{no_app, no_such_app},
};
use crate::access::Caller;
use crate::pages::{
    self,
    layout::{self, Section},
};

/// The longest life of a stream of events.
const STREAM_LIFE: Duration = Duration::from_secs(30);
/// Entries of a page of a list.
const PAGE: usize = 50;

/// The query of a list.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ListQuery {
    pub(super) app: Option<String>,
    state: Option<String>,
    client: Option<String>,
    cursor: Option<String>,
}

pub(super) type Page = Result<Markup, Failure>;
pub(super) type Who = Extension<Caller>;

impl Caller {
    pub(super) fn page(&self, title: &str, section: Section, content: &Markup) -> Markup {
        layout::page(
            title,
            section,
            layout::Reader { name: self.name().as_str(), role: self.role().name() },
            content,
        )
    }
}

impl Desk {
    /// Returns the apps that the visitor may see, by name.
    pub(super) async fn apps(&self, visitor: &Caller) -> Result<Vec<App>, Failure> {
        let mut apps = self.core.parts.stores.index.apps().await?;
        apps.retain(|app| visitor.sees(app));
        apps.sort_unstable_by(|a, b| a.app_id.cmp(&b.app_id));
        Ok(apps)
    }

    /// Returns the app that a page shows, if the visitor may see it: the one that has this name now, or with `@` and a
    /// generation behind the name that one alone.
    pub(super) async fn app(&self, visitor: &Caller, name: &str) -> Result<App, Failure> {
        let AppKey { id, generation } = name.parse().map_err(|_| no_such_app())?;
        let generation = name.contains('@').then_some(generation);
        self.find(visitor, AppRef { id: &id, generation }).await
    }

    /// Returns the app that a form acts on, if the visitor may see it. A form names the app that its page showed, with
    /// its generation, as the text form of [`AppKey`]; it does nothing to a later app of the name.
    pub(super) async fn acted_on(&self, visitor: &Caller, name: &str) -> Result<AppKey, Failure> {
        let app: AppKey = name.parse().map_err(|_| no_such_app())?;
        self.find(visitor, (&app).into()).await?;
        Ok(app)
    }

    async fn find(&self, visitor: &Caller, app: AppRef<'_>) -> Result<App, Failure> {
        let found = self.core.index().app(app.id).await?.filter(|app| visitor.sees(app));
        let found = found.ok_or_else(|| no_app(app.id))?;
        app.check(&found)?;
        Ok(found)
    }

    /// Returns the apps of a choice, and the one that is chosen: the first if none is.
    pub(super) async fn chosen(
        &self,
        visitor: &Caller,
        name: Option<&str>,
    ) -> Result<Option<(Vec<AppKey>, AppKey)>, Failure> {
        let keys: Vec<_> = self.apps(visitor).await?.iter().map(AppKey::from).collect();
        let chosen = match name.filter(|name| !name.is_empty()) {
            Some(name) => Some((&self.app(visitor, name).await?).into()),
            None => keys.first().cloned(),
        };
        Ok(chosen.map(|chosen| (keys, chosen)))
    }
}

impl Caller {
    /// Returns true if they may make apps.
    pub(super) fn may_make_apps(&self) -> bool {
        self.may(Role::Admin) && self.app().is_none()
    }

    /// The page in place of one that needs an app, while there is none.
    pub(super) fn start(&self, title: &str, section: Section) -> Markup {
        self.page(title, section, &pages::parts::no_apps(title, self.may_make_apps()))
    }
}

pub(super) async fn now(State(desk): State<Arc<Desk>>, Extension(visitor): Who) -> Page {
    if let Some(only) = visitor.app() {
        let text = format!("Your key is for {}: see its messages.", only.id);
        let content = pages::parts::notice("Now", pages::words::Mood::Plain, &text);
        return Ok(visitor.page("Now", Section::Now, &content));
    }
    let is_empty = desk.apps(&visitor).await?.is_empty();
    let start = is_empty.then(|| pages::parts::no_apps("Now", visitor.may_make_apps()));
    let sampled = desk.sampler.fresh().await;
    Ok(visitor.page("Now", Section::Now, &pages::now::view(&sampled, start.as_ref())))
}

/// The changing part of the page "Now", whenever it changes. Ends when the program stops, and after
/// [`STREAM_LIFE`]: the page asks again, and its session is checked again.
pub(super) async fn events(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
) -> Result<Response, Failure> {
    visitor.sees_all()?;
    let full = |_| Failure::new(StatusCode::SERVICE_UNAVAILABLE, "Too many pages follow this one.");
    let permit = Arc::clone(&desk.streams).try_acquire_owned().map_err(full)?;
    let (looks, stop) = (desk.sampler.follow(), desk.stop.clone());
    let state = (looks, stop, permit, Instant::now() + STREAM_LIFE);
    let events = stream::unfold(state, |(mut looks, stop, permit, end)| async move {
        tokio::select! {
            changed = looks.changed() => changed.ok()?,
            () = stop.cancelled() => return None,
            () = sleep_until(end) => return None,
        }
        let event = looks.borrow_and_update().event.clone();
        Some((Ok::<_, Infallible>(event), (looks, stop, permit, end)))
    });
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response())
}

pub(super) async fn messages(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Query(query): Query<ListQuery>,
) -> Page {
    let Some((apps, app)) = desk.chosen(&visitor, query.app.as_deref()).await? else {
        return Ok(visitor.start("Messages", Section::Messages));
    };
    let state = query.state.as_deref().and_then(MessageState::of_name);
    let cursor = query.cursor.as_deref();
    let page = messages_of_app::list(&desk.core.parts.stores, &app.id, PAGE, cursor, state).await?;
    let content = pages::messages::view(&apps, &app, state, &page, UnixMillis::now());
    Ok(visitor.page("Messages", Section::Messages, &content))
}

pub(super) async fn messages_of(Path(app): Path<String>) -> Redirect {
    let query = pages::parts::query([("app", app.as_str())]);
    Redirect::to(&format!("/messages?{query}"))
}

impl Desk {
    pub(super) async fn message(
        &self,
        visitor: &Caller,
        app: &str,
        id: &str,
    ) -> Result<(AppKey, messages_of_app::MessageView), Failure> {
        let app = AppKey::from(&self.app(visitor, app).await?);
        let id: MessageId = id.parse().map_err(|_| no_message())?;
        let (stores, retention) = (&self.core.parts.stores, self.core.parts.retention);
        let view = messages_of_app::show(stores, &app.id, &id, retention).await?;
        Ok((app, view))
    }
}

pub(super) fn no_message() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "there is no such message")
}

pub(super) fn no_device() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "there is no such device")
}

pub(super) async fn message(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path((app, id)): Path<(String, String)>,
) -> Page {
    let (app, view) = desk.message(&visitor, &app, &id).await?;
    let content = pages::message::view(&app, &view, visitor.may(Role::Operator), UnixMillis::now());
    Ok(visitor.page("Message", Section::Messages, &content))
}

/// The part of the page of a message that changes. Once the message is over, the page is loaded again, so that
/// nothing asks any more.
pub(super) async fn funnel(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path((app, id)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let (_, view) = desk.message(&visitor, &app, &id).await?;
    if !pages::message::is_changing(&view.report) {
        return Ok([("hx-refresh", "true")].into_response());
    }
    Ok(pages::message::funnel(&view, UnixMillis::now()).into_response())
}

pub(super) async fn devices(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Query(query): Query<ListQuery>,
) -> Result<Response, Failure> {
    let Some((apps, app)) = desk.chosen(&visitor, query.app.as_deref()).await? else {
        return Ok(visitor.start("Devices", Section::Devices).into_response());
    };
    if let Some(client) = query.client.as_deref().map(str::trim).filter(|client| !client.is_empty())
    {
        let client: ClientId = client.parse().map_err(|_| no_device())?;
        return Ok(Redirect::to(&format!("/devices/{app}/{client}")).into_response());
    }
    let page = device::list(&*desk.core.parts.stores.index, &app.id, PAGE, query.cursor.as_deref())
        .await?;
    let content = pages::devices::list(&apps, &app, &page);
    Ok(visitor.page("Devices", Section::Devices, &content).into_response())
}

pub(super) async fn device(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path((app, client)): Path<(String, String)>,
) -> Page {
    let app = AppKey::from(&desk.app(&visitor, &app).await?);
    let client: ClientId = client.parse().map_err(|_| no_device())?;
    let device = device::show(desk.core.index(), &app.id, &client).await?;
    let content = pages::devices::one(&app, &device, visitor.may(Role::Operator));
    Ok(visitor.page("Device", Section::Devices, &content))
}

impl Caller {
    /// A page of a list that belongs to no app.
    fn query<'a>(&'a self, cursor: Option<&'a str>) -> PageQuery<'a> {
        PageQuery { limit: PAGE, cursor, key: self.digest() }
    }
}

pub(super) async fn dead_letters(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Query(query): Query<ListQuery>,
) -> Page {
    let own = visitor.app();
    let scope = own.as_ref().map_or(dead::Scope::All, dead::Scope::Only);
    let _turn = desk.core.dead_letters.lock().await;
    let page = dead::page(desk.core.queue(), scope, visitor.query(query.cursor.as_deref())).await?;
    let content = pages::dead::view(&page, visitor.may(Role::Operator), UnixMillis::now());
    Ok(visitor.page("Dead letters", Section::DeadLetters, &content))
}

#[derive(Debug, Deserialize)]
pub(super) struct LetterQuery {
    id: String,
}

pub(super) async fn dead_letter(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Query(query): Query<LetterQuery>,
) -> Page {
    let own = visitor.app();
    let scope = own.as_ref().map_or(dead::Scope::All, dead::Scope::Only);
    let _turn = desk.core.dead_letters.lock().await;
    let letter = dead::show(desk.core.queue(), scope, &query.id).await?;
    let content = pages::dead::one(&letter, UnixMillis::now());
    Ok(visitor.page("Dead letter", Section::DeadLetters, &content))
}

pub(super) async fn apps(State(desk): State<Arc<Desk>>, Extension(visitor): Who) -> Page {
    let mut views = Vec::new();
    for app in desk.apps(&visitor).await? {
        views.push(apps_of::show(&*desk.core.parts.stores.index, &app.app_id).await?.app);
    }
    let content = pages::apps::list(&views, visitor.may_make_apps(), UnixMillis::now());
    Ok(visitor.page("Apps", Section::Apps, &content))
}

/// The query of an app's page.
#[derive(Debug, Deserialize)]
pub(super) struct AppQuery {
    /// Given by browsers without JavaScript, which do not load the devices in figures by themselves.
    counted: Option<String>,
}

impl Desk {
    async fn counted(&self, app: &AppKey) -> pages::apps::Counted {
        self.core.device_counts(app).await.map_err(|refused| refused.message())
    }
}

pub(super) async fn app(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path(app): Path<String>,
    Query(query): Query<AppQuery>,
) -> Page {
    let app = AppKey::from(&desk.app(&visitor, &app).await?);
    let details = apps_of::show(desk.core.index(), &app.id).await?;
    let accounts = apps_of::accounts::list(desk.core.index(), &app.id).await?;
    let may = pages::apps::May {
        test: visitor.may(Role::Operator) && desk.core.parts.seal.is_some(),
        change: visitor.may(Role::Admin),
    };
    let counted = match query.counted {
        Some(_) => Some(desk.counted(&app).await),
        None => None,
    };
    let (counted, now) = (counted.as_ref(), UnixMillis::now());
    let content = pages::apps::one(&app, &details, &accounts, counted, may, now);
    Ok(visitor.page(app.id.as_str(), Section::Apps, &content))
}

/// The part of an app's page that takes longer than the rest: its devices in figures.
pub(super) async fn device_counts(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path(app): Path<String>,
) -> Page {
    let app = AppKey::from(&desk.app(&visitor, &app).await?);
    Ok(pages::apps::device_counts(&desk.counted(&app).await))
}

pub(super) async fn audit(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Query(query): Query<ListQuery>,
) -> Page {
    let own = match visitor.app() {
        Some(only) => {
            let app = desk.core.index().app(&only.id).await?.filter(|app| visitor.sees(app));
            Some(app.ok_or_else(|| no_app(&only.id))?)
        }
        None => None,
    };
    let app = match (own.as_ref(), query.app.as_deref().filter(|app| !app.is_empty())) {
        (Some(own), _) => Some(own.app_id.clone()),
        (None, Some(app)) => Some(app.parse().map_err(|_| no_device())?),
        (None, None) => None,
    };
    let since = own.map_or(UnixMillis(0), |own| own.created_at);
    let only = app.as_ref().map(|app| trail::OfApp { app, since });
    let query = visitor.query(query.cursor.as_deref());
    let page = trail::page(desk.core.index(), only, query).await?;
    let next = page.next_cursor.as_deref();
    let content = pages::audit::view(app.as_ref(), &page.events, next, UnixMillis::now());
    Ok(visitor.page("Audit", Section::Audit, &content))
}

//! Composing a push: its check, its audience, and sending what was checked.

use std::sync::Arc;

use axum::{
    Extension, Form,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use bytes::Bytes;
use maud::Markup;
use push_model::{app::AppKey, ids::ClientId};
use push_operator::device;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Desk, SENT_REMEMBERED,
    error::Failure,
    reading::{Page, Who, no_device},
};
use crate::{
    access::Caller,
    draft::Draft,
    pages::{
        compose::{Preview, beside, review as review_page, view},
        layout::Section,
    },
};

/// The number of devices from which sending must be confirmed by typing it.
const TYPED_FROM: u64 = 1000;

type Fields = Form<Vec<(String, String)>>;

pub(super) async fn form(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Query(fields): Query<Vec<(String, String)>>,
) -> Page {
    let draft = Draft::new(fields);
    let Some((apps, app)) = desk.chosen(&visitor, Some(draft.field("app"))).await? else {
        return Ok(visitor.start("Compose", Section::Compose));
    };
    let preview = Preview { request: draft.request(), ..Preview::default() };
    let content = view(&apps, &app, &draft, &preview, &desk.server);
    Ok(visitor.page("Compose", Section::Compose, &content))
}

/// Checks the draft and counts its audience, for the part beside the form.
pub(super) async fn preview(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Form(fields): Fields,
) -> Result<Markup, Failure> {
    let draft = Draft::new(fields);
    let app = desk.acted_on(&visitor, draft.field("app")).await?;
    let preview = desk.preview(&app, &visitor, draft.request()).await;
    Ok(beside(&app, &draft, &preview, &desk.server))
}

/// The last look. A draft that would be refused, and one that is to be changed, leads back to the form.
pub(super) async fn review(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Form(fields): Fields,
) -> Page {
    let is_to_change = fields.iter().any(|(name, _)| name == "change");
    let draft = Draft::new(fields.into_iter().filter(|(name, _)| name != "change"));
    let app = desk.acted_on(&visitor, draft.field("app")).await?;
    let preview = desk.preview(&app, &visitor, draft.request()).await;
    let content = if preview.refused.is_some() || is_to_change {
        let apps: Vec<_> = desk.apps(&visitor).await?.iter().map(AppKey::from).collect();
        view(&apps, &app, &draft, &preview, &desk.server)
    } else {
        let word = needs_typing(&preview).then(|| app.id.to_string());
        review_page(&app, &draft, &preview, word.as_deref(), &desk.server)
    };
    Ok(visitor.page("Compose", Section::Compose, &content))
}

/// Returns true if a push reaches many devices, or if they could not be counted.
fn needs_typing(preview: &Preview) -> bool {
    let devices =
        preview.audience.as_ref().and_then(|of| of.as_ref().ok()).map(|of| of.counts.devices);
    devices.is_none_or(|devices| devices >= TYPED_FROM)
}

#[derive(Deserialize)]
pub(super) struct Checked {
    app: String,
    request: String,
    /// Tells this form from others, so that one that is submitted twice sends once.
    #[serde(default)]
    once: String,
    #[serde(default)]
    confirm: String,
    #[serde(default)]
    client: String,
}

impl Checked {
    fn request(&self) -> Result<Value, Failure> {
        let wrong = || Failure::new(StatusCode::BAD_REQUEST, "the request is not a JSON object");
        let mut fields: Map<String, Value> =
            serde_json::from_str(&self.request).map_err(|_| wrong())?;
        // What is sent from here is sent.
        fields.remove("dry_run");
        Ok(Value::Object(fields))
    }
}

/// Sends a push that passes the check once more.
pub(super) async fn send(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Form(form): Form<Checked>,
) -> Result<Response, Failure> {
    let app = desk.acted_on(&visitor, &form.app).await?;
    let request = form.request()?;
    let preview = desk.preview(&app, &visitor, request.clone()).await;
    if let Some(refused) = preview.refused {
        return Err(Failure::new(StatusCode::BAD_REQUEST, refused));
    }
    if needs_typing(&preview) && form.confirm.trim() != app.id.as_str() {
        let text = "The name of the app does not match: nothing was sent.";
        return Err(Failure::new(StatusCode::BAD_REQUEST, text));
    }
    // One after the other, so that the second of two clicks finds what the first one sent.
    let mut sent = desk.sent.lock().await;
    if let Some((_, page)) = sent.iter().find(|(once, _)| !once.is_empty() && *once == form.once) {
        return Ok(Redirect::to(page).into_response());
    }
    let page = desk.send_to_page(&app, &visitor, &request).await?;
    if sent.len() == SENT_REMEMBERED {
        sent.pop_front();
    }
    sent.push_back((form.once, page.clone()));
    Ok(Redirect::to(&page).into_response())
}

/// Sends the content of a push to one device.
pub(super) async fn test(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Form(form): Form<Checked>,
) -> Result<Response, Failure> {
    let app = desk.acted_on(&visitor, &form.app).await?;
    let client: ClientId = form.client.trim().parse().map_err(|_| no_device())?;
    // A device that is not registered gets nothing, and its sender should learn it here.
    device::show(&*desk.core.parts.stores.index, &app.id, &client).await?;
    let mut request = form.request()?;
    if let Some(fields) = request.as_object_mut() {
        fields.insert("condition".to_owned(), json!({ "type": 2, "client_ids": [client] }));
    }
    desk.send(&app, &visitor, &request).await
}

#[derive(Deserialize)]
pub(super) struct TestMessage {
    title: String,
    #[serde(default)]
    desc: String,
}

/// Sends a test notification to a device from its page.
pub(super) async fn test_device(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Path((app, client)): Path<(String, String)>,
    Form(form): Form<TestMessage>,
) -> Result<Response, Failure> {
    let app = desk.acted_on(&visitor, &app).await?;
    let client: ClientId = client.parse().map_err(|_| no_device())?;
    let request = json!({
        "type": 1, "time_to_live": 600, "condition": { "type": 2, "client_ids": [client] },
        "notification": { "title": form.title, "desc": form.desc },
    });
    desk.send(&app, &visitor, &request).await
}

impl Desk {
    /// Checks a push without sending it, and counts whom it would reach.
    async fn preview(&self, app: &AppKey, visitor: &Caller, request: Value) -> Preview {
        let mut checked = request.clone();
        if let Some(fields) = checked.as_object_mut() {
            fields.insert("dry_run".to_owned(), json!(true));
        }
        let (refused, warnings) = match self.push(app, visitor, &checked).await {
            Ok(answer) => (None, texts(&answer)),
            Err(error) => (Some(error), Vec::new()),
        };
        let audience = match &refused {
            Some(_) => None,
            None => Some(self.core.pushes.audience(app, Bytes::from(request.to_string())).await),
        };
        Preview { request, refused, warnings, audience }
    }

    async fn send(
        &self,
        app: &AppKey,
        visitor: &Caller,
        request: &Value,
    ) -> Result<Response, Failure> {
        Ok(Redirect::to(&self.send_to_page(app, visitor, request).await?).into_response())
    }

    /// Sends a push, and returns the page of its message.
    async fn send_to_page(
        &self,
        app: &AppKey,
        visitor: &Caller,
        request: &Value,
    ) -> Result<String, Failure> {
        let answer = self.push(app, visitor, request).await;
        let answer = answer.map_err(|error| Failure::new(StatusCode::BAD_REQUEST, error))?;
        let id = answer.pointer("/result/message_id").and_then(Value::as_str).unwrap_or_default();
        Ok(format!("/messages/{app}/{id}"))
    }

    /// Hands a push to the checks of ingest. Returns the answer, or the text of the refusal.
    async fn push(&self, app: &AppKey, visitor: &Caller, request: &Value) -> Result<Value, String> {
        let user = format!("console:{}", visitor.name());
        let answer = self.core.pushes.push(app, &user, Bytes::from(request.to_string())).await;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if answer.status == 200 {
            return Ok(body);
        }
        let text = body.get("message").and_then(Value::as_str);
        Err(text.unwrap_or("the push was refused").to_owned())
    }
}

fn texts(answer: &Value) -> Vec<String> {
    let warnings = answer.pointer("/result/warnings").and_then(Value::as_array);
    let texts = warnings.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

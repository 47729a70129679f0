//! The browser as a device.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Extension, Form, Json,
    body::Body,
    extract::{Query, Request, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use hyper_util::rt::TokioIo;
use push_model::{device::DeviceDraft, ids::ClientId};
use push_operator::device::{self, AppLogins};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Desk,
    error::Failure,
    reading::{ListQuery, Page, Who, no_device},
};
use crate::{
    pages::{self, layout::Section},
    server::request::ClientAddress,
};

pub(super) async fn form(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Query(query): Query<ListQuery>,
) -> Page {
    let Some((apps, app)) = desk.chosen(&visitor, query.app.as_deref()).await? else {
        return Ok(visitor.start("Try it here", Section::TryIt));
    };
    let content = pages::try_it::view(&apps, &app);
    Ok(visitor.page("Try it here", Section::TryIt, &content))
}

#[derive(Deserialize)]
pub(super) struct Browser {
    app: String,
    client: String,
}

/// Registers the browser, and answers what it needs to connect.
pub(super) async fn register(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Form(form): Form<Browser>,
) -> Result<Json<Value>, Failure> {
    let app = desk.app(&visitor, &form.app).await?.app_id;
    let client: ClientId = form.client.parse().map_err(|_| no_device())?;
    if !client.as_str().starts_with("browser-") {
        return Err(Failure::new(StatusCode::BAD_REQUEST, "a browser is named browser-…"));
    }
    let Some(mqtt) = &desk.mqtt else {
        let text = "This program has no MQTT broker for browsers.";
        return Err(Failure::new(StatusCode::CONFLICT, text));
    };
    let index = &desk.core.parts.stores.index;
    device::put(&**index, &app, client.clone(), DeviceDraft::default()).await?;
    let logins = AppLogins::of(&app, mqtt.logins.clone(), index).await?;
    let login = logins.issue(&client).await?;
    Ok(Json(json!({ "client_id": client, "mqtt": login })))
}

/// Turns the connection of a browser into one of the MQTT broker.
pub(super) async fn connect(
    State(desk): State<Arc<Desk>>,
    Extension(ClientAddress(address)): Extension<ClientAddress>,
    mut request: Request,
) -> Response {
    let Some(mqtt) = &desk.mqtt else { return StatusCode::NOT_FOUND.into_response() };
    let answer = mqtt.websockets.answer(&request);
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let (upgrade, websockets) = (hyper::upgrade::on(&mut request), mqtt.websockets.clone());
        tokio::spawn(async move {
            if let Ok(upgraded) = upgrade.await {
                websockets.serve(TokioIo::new(upgraded), SocketAddr::new(address, 0));
            }
        });
    }
    answer.map(Body::from)
}

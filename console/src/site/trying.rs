//! The browser as a device.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Extension, Form, Json,
    body::Body,
    extract::{Query, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use hyper_util::rt::TokioIo;
use push_model::{device::DeviceDraft, ids::ClientId};
use push_operator::device::{self, AppLogins};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    Desk,
    error::Failure,
    guard::policy_to_connect_to,
    reading::{ListQuery, Who, no_device},
};
use crate::{
    access::Caller,
    pages::{self, layout::Section},
    server::request::ClientAddress,
};

/// What an operator gives a console that has no way of browsers to the MQTT broker.
const NO_WAY: &str = "This console gives browsers no login: start it with --device-keys, the file of keys that ingest \
                      has, and --mqtt-ws-device-url, the URL at which browsers reach the MQTT broker.";
/// The hexadecimal digits of the digest in the name of a browser.
const DIGITS: usize = 16;

pub(super) async fn form(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Query(query): Query<ListQuery>,
) -> Result<Response, Failure> {
    let Some((apps, app)) = desk.chosen(&visitor, query.app.as_deref()).await? else {
        return Ok(visitor.start("Try it here", Section::TryIt).into_response());
    };
    let missing = desk.mqtt.is_none().then_some(NO_WAY);
    let content = pages::try_it::view(&apps, &app, missing);
    let page = visitor.page("Try it here", Section::TryIt, &content);
    // A broker elsewhere is the one other origin that a page connects to.
    let elsewhere = desk.mqtt.as_ref().filter(|mqtt| mqtt.websockets.is_none());
    let url = elsewhere.and_then(|mqtt| mqtt.logins.websocket_url());
    match url.and_then(policy_to_connect_to) {
        Some(policy) => Ok(([(header::CONTENT_SECURITY_POLICY, policy)], page).into_response()),
        None => Ok(page.into_response()),
    }
}

#[derive(Deserialize)]
pub(super) struct Browser {
    app: String,
    /// A secret that the browser keeps.
    browser: String,
}

/// Registers the browser, and answers what it needs to connect.
pub(super) async fn register(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Who,
    Form(form): Form<Browser>,
) -> Result<Json<Value>, Failure> {
    let app = desk.acted_on(&visitor, &form.app).await?;
    let Some(mqtt) = &desk.mqtt else { return Err(Failure::new(StatusCode::CONFLICT, NO_WAY)) };
    let client = client_id(&visitor, &form.browser)?;
    let index = &desk.core.parts.stores.index;
    device::put(&**index, &app, client.clone(), DeviceDraft::default()).await?;
    let logins = AppLogins::of(&app, mqtt.logins.clone(), index).await?;
    let mut login = logins.issue(&client).await?;
    if mqtt.websockets.is_some() {
        // The page's own address, which the browser knows best.
        login.websocket_url = None;
    }
    Ok(Json(json!({ "client_id": client, "mqtt": login })))
}

/// Returns the client id of a browser. It follows from the key of the visitor and a secret of the browser, so nobody
/// registers in place of a browser of another key, of another browser, or of any other device.
fn client_id(visitor: &Caller, browser: &str) -> Result<ClientId, Failure> {
    let digest = Sha256::new().chain_update(visitor.digest().bytes()).chain_update(browser);
    let name = hex::encode(digest.finalize());
    format!("browser-{}", &name[..DIGITS]).parse().map_err(|_| no_device())
}

/// Turns the connection of a browser into one of the MQTT broker.
pub(super) async fn connect(
    State(desk): State<Arc<Desk>>,
    Extension(ClientAddress(address)): Extension<ClientAddress>,
    mut request: Request,
) -> Response {
    let Some(websockets) = desk.mqtt.as_ref().and_then(|mqtt| mqtt.websockets.clone()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let answer = websockets.answer(&request);
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            if let Ok(upgraded) = upgrade.await {
                websockets.serve(TokioIo::new(upgraded), SocketAddr::new(address, 0));
            }
        });
    }
    answer.map(Body::from)
}

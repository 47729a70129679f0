//! The pages over HTTP: routes, who may use them, and what they do.
//!
//! - `guard`: signed in, from this site, under its name, with the role
//! - `visitor`: who is signed in
//! - `signing`: signing in and out
//! - `reading`: pages that show
//! - `changing`: forms that change
//! - `composing`: composing and sending a push
//! - `error`: what could not be done

mod changing;
mod composing;
mod error;
mod guard;
mod reading;
mod signing;
mod trying;
mod visitor;

use std::{collections::VecDeque, sync::Arc};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Path},
    http::HeaderMap,
    middleware::{from_fn, from_fn_with_state},
    response::Response,
    routing::{get, post},
};
use push_broker::WEBSOCKET_PATH;
use push_model::admin_key::Role;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

pub(crate) use self::guard::Holder;
use crate::{Mqtt, assets, core::Core, names::Names, sampler::Sampler, sessions::Sessions};

/// The longest form, in bytes: a thousand client ids of the longest kind, percent-encoded.
pub(crate) const LONGEST_FORM: usize = 512 * 1024;

/// The path of the events of the page "Now".
pub(crate) const EVENTS: &str = "/events/now";
/// The most streams of events. There is room for other connections beside them.
pub(crate) const STREAMS: usize = 192;
/// The number of pushes of which the form is remembered.
const SENT_REMEMBERED: usize = 256;

/// What the pages work with.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) core: Arc<Core>,
    pub(crate) sampler: Sampler,
    pub(crate) sessions: Sessions<Holder>,
    /// The pushes that were sent lately: the form that sent each, and the page of its message.
    pub(crate) sent: Mutex<VecDeque<(String, String)>>,
    /// The streams of events that may be open.
    pub(crate) streams: Arc<Semaphore>,
    /// Ends the streams of events.
    pub(crate) stop: CancellationToken,
    /// The way of browsers to the MQTT broker, if there is one.
    pub(crate) mqtt: Option<Mqtt>,
    /// The URL of ingest for the `curl` line.
    pub(crate) server: String,
    /// The names under which browsers may reach the console.
    pub(crate) names: Names,
}

/// Everything that changes something, and the role that it needs. A path that is missing here needs `admin`.
pub(crate) const MUTATIONS: [(&str, Role); 21] = [
    ("/sign-out", Role::Viewer),
    ("/compose", Role::Operator),
    ("/compose/preview", Role::Operator),
    ("/compose/send", Role::Operator),
    ("/compose/test", Role::Operator),
    ("/messages/{app}/{id}/recall", Role::Operator),
    ("/devices/{app}/{client}/test", Role::Operator),
    ("/devices/{app}/{client}/remove", Role::Operator),
    ("/dead-letters", Role::Operator),
    ("/dead-letters/confirmed", Role::Operator),
    ("/try-it/register", Role::Operator),
    ("/apps/{app}/transports/{kind}/test", Role::Operator),
    ("/apps", Role::Admin),
    ("/apps/{app}/limits", Role::Admin),
    ("/apps/{app}/enable", Role::Admin),
    ("/apps/{app}/disable", Role::Admin),
    ("/apps/{app}/attributes", Role::Admin),
    ("/apps/{app}/attributes/{name}/remove", Role::Admin),
    ("/apps/{app}/secrets", Role::Admin),
    ("/apps/{app}/secrets/{name}/revoke", Role::Admin),
    ("/apps/{app}/secrets/{name}/revoked", Role::Admin),
];

/// Makes the routes of the pages.
pub(crate) fn router(desk: Arc<Desk>) -> Router {
    let pages = Router::new()
        .route("/", get(reading::now))
        .route(EVENTS, get(reading::events))
        .route("/messages", get(reading::messages))
        .route("/messages/{app}", get(reading::messages_of))
        .route("/messages/{app}/{id}", get(reading::message))
        .route("/messages/{app}/{id}/funnel", get(reading::funnel))
        .route("/messages/{app}/{id}/recall", post(changing::recall))
        .route("/compose", get(composing::form).post(composing::review))
        .route("/compose/preview", post(composing::preview))
        .route("/compose/send", post(composing::send))
        .route("/compose/test", post(composing::test))
        .route("/devices", get(reading::devices))
        .route("/devices/{app}/{client}", get(reading::device))
        .route("/devices/{app}/{client}/test", post(composing::test_device))
        .route("/devices/{app}/{client}/remove", post(changing::remove_device))
        .route("/dead-letters", get(reading::dead_letters).post(changing::dead_letters))
        .route("/dead-letters/one", get(reading::dead_letter))
        .route("/dead-letters/confirmed", post(changing::dead_letters_confirmed))
        .route("/apps", get(reading::apps).post(changing::make_app))
        .route("/apps/{app}", get(reading::app))
        .route("/apps/{app}/device-counts", get(reading::device_counts))
        .route("/apps/{app}/limits", post(changing::limits))
        .route("/apps/{app}/enable", post(changing::enable))
        .route("/apps/{app}/disable", post(changing::disable))
        .route("/apps/{app}/attributes", post(changing::add_attribute))
        .route("/apps/{app}/attributes/{name}/remove", post(changing::remove_attribute))
        .route("/apps/{app}/secrets", post(changing::add_secret))
        .route("/apps/{app}/secrets/{name}/revoke", post(changing::revoke_secret))
        .route("/apps/{app}/secrets/{name}/revoked", post(changing::revoke_confirmed))
        .route("/apps/{app}/transports/{kind}/test", post(changing::test_account))
        .route("/audit", get(reading::audit))
        .route("/try-it", get(trying::form))
        .route("/try-it/register", post(trying::register))
        .route("/sign-out", post(signing::sign_out))
        .route_layer(from_fn_with_state(Arc::clone(&desk), guard::signed_in));
    let open = Router::new()
        .route("/sign-in", get(signing::form).post(signing::sign_in))
        .route("/assets/{version}/{name}", get(asset))
        // The login is in CONNECT, and in no cookie.
        .route(WEBSOCKET_PATH, get(trying::connect));
    pages
        .merge(open)
        .layer(from_fn_with_state(Arc::clone(&desk), guard::same_site))
        .layer(DefaultBodyLimit::max(LONGEST_FORM))
        .layer(from_fn_with_state(Arc::clone(&desk), guard::known_name))
        .layer(from_fn(guard::harden))
        .with_state(desk)
}

async fn asset(Path((version, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    assets::answer(&version, &name, &headers)
}

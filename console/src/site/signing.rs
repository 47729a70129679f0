//! Signing in with a key or with the link of the terminal, and signing out.

use std::sync::Arc;

use axum::{
    Extension, Form,
    extract::{Query, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Redirect, Response},
};
use maud::Markup;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Desk, Holder, error::Failure};
use crate::pages::{layout, sign_in as page};
use crate::{access::Refused, server::request::ClientAddress};

#[derive(Deserialize)]
pub(super) struct Link {
    token: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Key {
    key: String,
}

/// The form, or with the token of the link, the first page. The token is gone from the address then.
pub(super) async fn form(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    Query(link): Query<Link>,
) -> Response {
    let now = Instant::now();
    let error = match link.token {
        None => None,
        Some(token) if desk.sessions.take_link(&token, now) => {
            return desk.welcome(&headers, Holder::Terminal, now);
        }
        Some(_) => Some(
            "This link was used or has expired. Start the service again for another, or sign in with a key.",
        ),
    };
    view(error).into_response()
}

/// Signs in with a key.
pub(super) async fn sign_in(
    State(desk): State<Arc<Desk>>,
    Extension(ClientAddress(address)): Extension<ClientAddress>,
    headers: HeaderMap,
    Form(form): Form<Key>,
) -> Result<Response, Failure> {
    let now = Instant::now();
    match desk.core.access.admit(form.key.trim().as_bytes(), address).await {
        Ok(caller) => Ok(desk.welcome(&headers, Holder::Key(*caller.digest()), now)),
        Err(refused @ (Refused::WrongKey | Refused::TooManyWrongKeys { .. })) => {
            Ok((refused.status(), view(Some(&refused.message()))).into_response())
        }
        Err(refused) => Err(refused.into()),
    }
}

/// Signs out.
pub(super) async fn sign_out(State(desk): State<Arc<Desk>>, headers: HeaderMap) -> Response {
    let cookie = desk.cookie_of(&headers);
    if let Some(token) = cookie.token(&headers) {
        desk.sessions.end(token);
    }
    ([(header::SET_COOKIE, cookie.set(""))], Redirect::to("/sign-in")).into_response()
}

fn view(error: Option<&str>) -> Markup {
    layout::outside("Sign in", &page::view(error))
}

impl Desk {
    fn welcome(&self, headers: &HeaderMap, holder: Holder, now: Instant) -> Response {
        let token = self.sessions.begin(holder, now);
        ([(header::SET_COOKIE, self.cookie_of(headers).set(&token))], Redirect::to("/"))
            .into_response()
    }
}

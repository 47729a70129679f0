//! Finds the caller of a request, and compares its rights with those that the route needs. Only then the body is
//! read.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{RawPathParams, Request, State},
    middleware::Next,
    response::Response,
};
use bytes::Bytes;
use http::{HeaderMap, Method, header::AUTHORIZATION};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use push_model::{admin_key::Role, ids::AppId};
use tokio::time::timeout;

use crate::{
    access::{Reach, Refused},
    core::Core,
    server::request::{ClientAddress, OfKnownCaller},
};

/// The largest body.
pub(crate) const MAX_BODY: usize = 1024 * 1024;
/// The time for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);
/// The scheme of the header `Authorization`.
const SCHEME: &str = "bearer ";
/// The parameter of paths that names the app.
const APP: &str = "app_id";

/// The needs of a route.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    pub(super) core: Arc<Core>,
    pub(super) needs: Role,
    pub(super) reach: Reach,
}

/// Passes a request on to its handler if its caller may make it.
pub(super) async fn check(
    State(guard): State<Guard>,
    params: RawPathParams,
    mut request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let Some(ClientAddress(address)) = request.extensions().get().copied() else {
        return Err(Refused::Broken);
    };
    let key = presented(request.headers()).ok_or(Refused::NoKey)?;
    let caller = guard.core.access.admit(key, address).await?;
    let app = params.iter().find(|(name, _)| *name == APP).map(|(_, value)| value.parse::<AppId>());
    let app = app.transpose().map_err(|wrong| Refused::Invalid(format!("{APP} {wrong}")));
    // A key of an app learns nothing about other paths, not even that they are wrong.
    caller.check(guard.needs, guard.reach, app.as_ref().ok().and_then(Option::as_ref))?;
    app?;
    if *request.method() != Method::GET {
        let (head, body) = request.into_parts();
        request = Request::from_parts(head, Body::from(read(body, MAX_BODY).await?));
    }
    request.extensions_mut().insert(caller);
    let mut response = next.run(request).await;
    response.extensions_mut().insert(OfKnownCaller);
    Ok(response)
}

/// Returns the key of `Authorization: Bearer KEY`.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME.as_bytes()).then(|| key.trim_ascii())
}

/// Reads a body of at most so many bytes, within its time.
///
/// # Errors
/// If it is larger, takes too long, or its connection breaks.
pub(crate) async fn read(body: Body, most: usize) -> Result<Bytes, Refused> {
    let whole = Limited::new(body, most).collect();
    match timeout(BODY_TIMEOUT, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refused::TooLarge(most)),
        Ok(Err(_)) => Err(Refused::BodyCut),
        Err(_) => Err(Refused::BodyTimeout),
    }
}

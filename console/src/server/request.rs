//! One request: its client, its place among those in work, and its time.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, Method, Request, header::COOKIE};
use hyper::body::Incoming;
use push_boot::proxy_protocol::TrustedProxies;
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::connections::Activity;
use crate::{access::Refused, api::guard, site::LONGEST_FORM};

/// The most requests in work. One more waits for a moment, and is then refused.
const MAX_REQUESTS: usize = 64;
/// The longest wait for a place.
const PLACE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time of a request; a trial of an account takes up to 30 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest form of someone without a session, who can do nothing but sign in, in bytes.
const SIGN_IN_FORM: usize = 4096;
/// The header in which proxies name their clients.
const FORWARDED: &str = "x-forwarded-for";

/// The address of the client that sent a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

/// Marks the answer to a caller whose key or session is valid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfKnownCaller;

/// The other end of a connection: a client, or a proxy that names its client with each request.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// The trusted proxies, if it is one of them.
    pub(super) proxies: Option<TrustedProxies>,
}

impl Peer {
    fn client_of(&self, request: &Request<Incoming>) -> ClientAddress {
        let Some(proxies) = &self.proxies else { return ClientAddress(self.address) };
        let lines: Vec<&[u8]> =
            request.headers().get_all(FORWARDED).iter().map(HeaderValue::as_bytes).collect();
        ClientAddress(proxies.forwarded(self.address, lines.into_iter()))
    }
}

/// Reads the form of a page before its request counts as one in work, so that slow senders do not use up the
/// places for requests. The API reads its bodies after it has checked the key.
async fn with_form(request: Request<Body>) -> Result<Request<Body>, Refused> {
    if *request.method() != Method::POST || request.uri().path().starts_with("/v1/") {
        return Ok(request);
    }
    let most = match request.headers().contains_key(COOKIE) {
        true => LONGEST_FORM,
        false => SIGN_IN_FORM,
    };
    let (head, body) = request.into_parts();
    Ok(Request::from_parts(head, Body::from(guard::read(body, most).await?)))
}

/// The requests in work.
#[derive(Debug)]
pub(super) struct Requests {
    router: Router,
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Requests {
    pub(super) fn new(router: Router) -> Self {
        Self { router, places: Arc::new(Semaphore::new(MAX_REQUESTS)), tasks: TaskTracker::new() }
    }

    /// Answers a request. It goes on if its client hangs up. While a form is being received, its connection counts as
    /// idle.
    pub(super) fn answer(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        activity: &Activity,
    ) -> impl Future<Output = Response> + Send + use<> {
        let client = peer.client_of(&request);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(client);
        let (router, places) = (self.router.clone(), Arc::clone(&self.places));
        let (tasks, activity) = (self.tasks.clone(), activity.clone());
        activity.rest();
        async move {
            let request = match with_form(request).await {
                Ok(request) => request,
                Err(refused) => return refused.into_response(),
            };
            let _busy = activity.begin();
            let place = timeout(PLACE_TIMEOUT, places.acquire_owned()).await;
            let Ok(Ok(place)) = place else { return Refused::Busy.into_response() };
            let work = async move {
                let _place = place;
                router.oneshot(request).await
            };
            // Work that takes longer goes on, so that what it changes is recorded.
            match timeout(REQUEST_TIMEOUT, tasks.spawn(work)).await {
                Ok(Ok(Ok(response))) => {
                    if response.extensions().get::<OfKnownCaller>().is_some() {
                        activity.note_known();
                    }
                    response
                }
                Err(_) => Refused::Late.into_response(),
                Ok(Err(error)) => {
                    tracing::error!(runbook = "the-log-tells-of-a-fault", %error, "a request of the console ended badly");
                    Refused::Broken.into_response()
                }
            }
        }
    }

    /// Waits until none is in work.
    pub(super) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

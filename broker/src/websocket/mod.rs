//! Connections over WebSocket (MQTT 5, section 6), which is how a browser connects.
//!
//! The same bounds apply as over TCP, and a connection counts as any other. The time for the login begins
//! when it is accepted, and includes TLS, the HTTP request and CONNECT.
//!
//! - `request`, `origins`: which request becomes a WebSocket
//! - `stream`: a WebSocket as a stream of bytes, the only thing that the rest of the broker sees

mod origins;
mod request;
mod stream;

use std::{
    convert::Infallible,
    future::ready,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use http::{Request, Response, StatusCode};
use hyper::{server::conn::http1, service::service_fn, upgrade::Upgraded};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout_at},
};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tracing::debug;

use self::stream::WebSocket;
pub use self::{origins::Origins, request::WEBSOCKET_PATH};
use crate::{
    admission::Admission,
    connection::{HANDSHAKE_TIMEOUT, Opened, serve},
    context::{Context, Door},
};

/// The largest head of a request, in bytes: hyper's least.
const HEAD: usize = 8 * 1024;

/// The most fields of a request. A browser behind two proxies sends some thirty.
const FIELDS: usize = 64;

/// The way to the broker for the WebSockets of another HTTP listener. It is cheap to clone.
#[derive(Debug, Clone)]
pub struct WebSockets {
    pub(crate) admission: Arc<Admission>,
    pub(crate) context: Arc<Context>,
    pub(crate) origins: Origins,
}

impl WebSockets {
    /// Lets pages of this origin connect, too: a proxy may name another host than they see.
    #[must_use]
    pub fn with_origin(self, origin: &str) -> Self {
        Self { origins: self.origins.with(origin), ..self }
    }

    /// Returns the answer to a request for `/mqtt`. If its status is 101, the connection becomes a
    /// WebSocket, and [`WebSockets::serve`] takes it.
    pub fn answer<B>(&self, request: &Request<B>) -> Response<String> {
        request::answer(request, &self.origins)
    }

    /// Serves an upgraded connection from this address, in a task that ends with it, if the broker has
    /// room for one more. Otherwise the connection is closed.
    ///
    /// Must be called within a Tokio runtime.
    pub fn serve<S>(&self, upgraded: S, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match self.admission.admit(peer.ip()) {
            Ok(permit) => {
                permit.client_spoke();
                let opened = Opened { peer, at: Instant::now(), permit, door: Door::Devices };
                let context = self.context.clone();
                self.context.connections.spawn(serve_upgraded(upgraded, opened, context));
            }
            Err(full) => debug!(%peer, ?full, "MQTT connection not accepted"),
        }
    }
}

/// Answers the request of a connection, and serves it if it becomes a WebSocket.
pub(crate) async fn upgrade_and_serve<S>(
    stream: S,
    origins: Origins,
    opened: Opened,
    context: Arc<Context>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = opened.peer;
    let displaced = opened.permit.displaced();
    let upgraded = tokio::select! {
        upgraded = timeout_at(opened.at + HANDSHAKE_TIMEOUT, upgrade(stream, &origins)) => upgraded,
        () = displaced.cancelled() => return,
        () = context.stop.cancelled() => return,
    };
    match upgraded {
        Ok(Ok(Some(upgraded))) => serve_upgraded(TokioIo::new(upgraded), opened, context).await,
        Ok(Ok(None)) => debug!(%peer, "the request for a WebSocket was refused"),
        Ok(Err(error)) => {
            let cause = &error as &dyn std::error::Error;
            debug!(%peer, cause, "there was no request for a WebSocket");
        }
        Err(_) => debug!(%peer, "no request for a WebSocket in time"),
    }
}

/// Reads one request and answers it. Returns the connection if it is a WebSocket now.
async fn upgrade<S>(stream: S, origins: &Origins) -> hyper::Result<Option<Upgraded>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let upgrading = Mutex::new(None);
    let service = service_fn(|mut request| {
        let answer = request::answer(&request, origins);
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upgrade = hyper::upgrade::on(&mut request);
            *upgrading.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
        }
        ready(Ok::<_, Infallible>(answer))
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIMEOUT)
        .max_buf_size(HEAD)
        .max_headers(FIELDS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await?;
    let upgrade = upgrading.into_inner().unwrap_or_else(PoisonError::into_inner);
    match upgrade {
        Some(upgrade) => upgrade.await.map(Some),
        None => Ok(None),
    }
}

async fn serve_upgraded<S>(stream: S, opened: Opened, context: Arc<Context>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let displaced = opened.permit.displaced();
    let mut socket = WebSocket::new(stream).await;
    serve(&mut socket, &opened, context.clone()).await;
    let code = if context.stop.is_cancelled() { CloseCode::Away } else { CloseCode::Policy };
    tokio::select! {
        () = socket.give_up(code) => {}
        () = displaced.cancelled() => {}
    }
}

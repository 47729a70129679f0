//! The way of a connection to its first MQTT packet: the client speaks, TLS is set up, and a WebSocket is
//! opened.

use std::sync::Arc;

use push_tls::server::Acceptor;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout_at,
};
use tracing::debug;

use super::{HANDSHAKE_TIMEOUT, Opened, serve};
use crate::{
    context::Context,
    websocket::{Origins, upgrade_and_serve},
};

/// Serves a connection, after its TLS handshake if the listener has a certificate, and over WebSocket if
/// it has origins.
pub(crate) async fn secure_and_serve(
    stream: TcpStream,
    tls: Option<Acceptor>,
    origins: Option<Origins>,
    opened: Opened,
    context: Arc<Context>,
) {
    // Small packets are sent without delay.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "TCP_NODELAY");
    }
    let displaced = opened.permit.displaced();
    let login_until = opened.at + HANDSHAKE_TIMEOUT;
    let mut first = [0];
    let spoke = tokio::select! {
        spoke = timeout_at(login_until, stream.peek(&mut first)) => spoke,
        () = displaced.cancelled() => return,
        () = context.stop.cancelled() => return,
    };
    match spoke {
        Ok(Ok(1..)) => opened.permit.client_spoke(),
        _ => return debug!(peer = %opened.peer, "an MQTT client has sent nothing"),
    }
    let Some(tls) = tls else {
        return carry(stream, origins, opened, context).await;
    };
    let handshake = tls.accept_noticing(stream, || opened.permit.client_greeted());
    let accepted = tokio::select! {
        accepted = timeout_at(login_until, handshake) => accepted,
        () = displaced.cancelled() => return,
        () = context.stop.cancelled() => return,
    };
    let Ok(accepted) = accepted else {
        return debug!(peer = %opened.peer, "no TLS handshake in time");
    };
    match accepted {
        Ok(stream) => carry(stream, origins, opened, context).await,
        Err(error) => {
            let cause = &error as &dyn std::error::Error;
            debug!(peer = %opened.peer, cause, "MQTT connection refused");
        }
    }
}

async fn carry<S>(stream: S, origins: Option<Origins>, opened: Opened, context: Arc<Context>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match origins {
        Some(origins) => upgrade_and_serve(stream, origins, opened, context).await,
        None => serve(stream, &opened, context).await,
    }
}

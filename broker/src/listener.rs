//! Accepts connections, within the bounds of [`super::admission`].

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use push_tls::server::Acceptor;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout_at,
};
use tracing::{debug, warn};

use super::{
    connection::{self, HANDSHAKE_TIMEOUT, Opened},
    context::Context,
    proxies::Arrivals,
};

/// Connections that may wait to be accepted (the listen backlog).
const BACKLOG: u32 = 4096;

/// Pause after a connection could not be accepted, for example because no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens on this address.
///
/// # Errors
/// If the address is taken or does not belong to this machine.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Otherwise a restart fails while connections of the last run are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until the broker stops.
pub(super) async fn accept(listener: TcpListener, arrivals: Arrivals, context: Arc<Context>) {
    let mut failed = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = context.stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                failed = false;
                arrivals.accept(stream, peer);
            }
            Err(error) => {
                if !std::mem::replace(&mut failed, true) {
                    warn!(%error, "MQTT connections cannot be accepted");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a connection, after its TLS handshake if the listener has a certificate.
pub(super) async fn secure_and_serve(
    stream: TcpStream,
    tls: Option<Acceptor>,
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
        return connection::serve(stream, opened, context).await;
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
        Ok(stream) => connection::serve(stream, opened, context).await,
        Err(error) => {
            let cause = &error as &dyn std::error::Error;
            debug!(peer = %opened.peer, cause, "MQTT connection refused");
        }
    }
}

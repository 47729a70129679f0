//! One connection, from the first byte to the last: `secure` (TLS, WebSocket) and `handshake`, then the `conversation` of a
//! `device` or a `worker`, over a `link` with its `output`, until its `end`.
//!
//! Permit and stream are dropped at its end even if the session continues, so an absent device costs no
//! descriptor.

mod conversation;
mod device;
mod end;
mod handshake;
mod link;
mod output;
mod secure;
#[cfg(test)]
mod tests;
mod worker;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout},
};
use tracing::debug;

use self::{
    end::End,
    handshake::{Client, HandshakeError},
    link::Link,
    worker::Worker,
};
pub(super) use self::{handshake::WORKER_PACKET, secure::secure_and_serve};
use super::{
    admission::Permit,
    context::{Context, Door},
    packets::Wire,
};

/// The time within which a client must have logged in.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// An accepted connection.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) peer: SocketAddr,
    pub(super) at: Instant,
    pub(super) permit: Permit,
    pub(super) door: Door,
}

/// Serves a connection until it ends.
pub(super) async fn serve<S: AsyncRead + AsyncWrite>(
    stream: S,
    opened: &Opened,
    context: Arc<Context>,
) {
    let Opened { peer, at, permit, door } = opened;
    let mut link = Link::new(stream);
    let remaining = HANDSHAKE_TIMEOUT.saturating_sub(at.elapsed());
    let displaced = permit.displaced();
    let greeted = tokio::select! {
        greeted = timeout(remaining, handshake::shake_hands(&mut link, *door, permit, &context)) => greeted,
        () = context.stop.cancelled() => return,
        () = displaced.cancelled() => return debug!(%peer, "a newer MQTT connection takes its place"),
    };
    match greeted {
        Ok(Ok((wire, client))) => {
            permit.logged_in();
            let end = converse(&mut link, wire, client, &context).await;
            debug!(%peer, cause = &end as &dyn std::error::Error, "MQTT connection ended");
        }
        Ok(Err(error)) => {
            permit.refused();
            debug!(%peer, cause = &error as &dyn std::error::Error, "MQTT connection refused");
            // Device logins are never right on the workers' listener, so failures there are not counted.
            let counts = error.is_failed_login() && *door == Door::Devices;
            if counts && !permit.login_failed(Instant::now()) {
                return;
            }
            if !matches!(error, HandshakeError::Refused(_)) {
                return;
            }
        }
        Err(_) => {
            debug!(%peer, "no MQTT login in time");
            return;
        }
    }
    tokio::select! {
        () = link.close() => {}
        () = displaced.cancelled() => {}
    }
}

/// Serves a client that has logged in, and encodes the reason for which its connection ends.
async fn converse<S: AsyncRead + AsyncWrite>(
    link: &mut Link<S>,
    mut wire: Wire,
    client: Client,
    context: &Context,
) -> End {
    let end = match client {
        Client::Device(mut session) => {
            let keep_alive = session.keep_alive;
            conversation::converse(link, &mut wire, &mut session, keep_alive, &context.stop).await
        }
        Client::Worker(keep_alive) => {
            let worker = &mut Worker { sessions: &context.sessions };
            conversation::converse(link, &mut wire, worker, keep_alive, &context.stop).await
        }
    };
    if let End::Reason(reason) = &end
        && let Err(error) = wire.disconnect(*reason, &mut link.output.bytes)
    {
        debug!(%error, "DISCONNECT cannot be encoded");
    }
    end
}

//! Accepts connections, within the bounds of [`super::admission`].

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::net::{TcpListener, TcpSocket};
use tracing::warn;

use super::{context::Context, proxies::Arrivals};

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
                    warn!(
                        runbook = "open-files-run-low",
                        %error,
                        "MQTT connections cannot be accepted"
                    );
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

//! The signals that stop a program.

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// A token that is cancelled at SIGTERM or SIGINT (Ctrl-C).
///
/// Must be called within a Tokio runtime. If the signals cannot be watched the token is
/// cancelled at once, because a service that cannot be stopped in order should not start.
pub fn on_signal() -> CancellationToken {
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        match signal().await {
            Ok(name) => info!(signal = name, "stopping"),
            Err(error) => warn!(%error, "cannot watch for signals, stopping"),
        }
        stop.cancel();
    });
    token
}

#[cfg(unix)]
async fn signal() -> std::io::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}

#[cfg(not(unix))]
async fn signal() -> std::io::Result<&'static str> {
    tokio::signal::ctrl_c().await.map(|()| "Ctrl-C")
}

//! The signals that stop a program.

use std::io;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// A token that is cancelled at SIGTERM, SIGINT (Ctrl-C), SIGQUIT, or SIGHUP (the terminal was closed).
/// A program that was started with SIGHUP ignored, as by `nohup`, keeps running without its terminal.
///
/// Must be called within a Tokio runtime. From its return on, no such signal ends the process by itself.
/// If the signals cannot be watched the token is cancelled, because a service that cannot be
/// stopped in order should not start.
pub fn on_signal() -> CancellationToken {
    let token = CancellationToken::new();
    match watch() {
        Ok(signal) => {
            let stop = token.clone();
            tokio::spawn(async move {
                let name = signal.await;
                // First: nothing that the log does may hold up the stop.
                stop.cancel();
                info!(signal = name, "stopping");
            });
        }
        Err(error) => {
            warn!(
                runbook = "a-program-is-down",
                %error,
                "cannot watch for signals, stopping"
            );
            token.cancel();
        }
    }
    token
}

#[cfg(unix)]
fn watch() -> io::Result<impl Future<Output = &'static str>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let ignored = std::fs::read_to_string("/proc/self/status").is_ok_and(|s| ignores_hang_up(&s));
    let mut hang_up = if ignored { None } else { Some(signal(SignalKind::hangup())?) };
    Ok(async move {
        let hung_up = async {
            match &mut hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            _ = quit.recv() => "SIGQUIT",
            _ = hung_up => "SIGHUP",
        }
    })
}

#[cfg(not(unix))]
fn watch() -> io::Result<impl Future<Output = &'static str>> {
    Ok(async {
        // An error cannot be waited out, so it stops the program too.
        let _ = tokio::signal::ctrl_c().await;
        "Ctrl-C"
    })
}

/// Reads from `/proc/self/status` if the process was started with SIGHUP ignored. Where there is no such
/// file, SIGHUP counts as not ignored.
#[cfg(any(unix, test))]
fn ignores_hang_up(status: &str) -> bool {
    /// SIGHUP is signal 1: the lowest bit.
    const HANG_UP: u64 = 1;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & HANG_UP != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bit_of_sighup_says_that_it_is_ignored() {
        let status = |mask: &str| format!("Name:\tingest\nSigBlk:\tffff\nSigIgn:\t{mask}\n");
        assert!(ignores_hang_up(&status("0000000000000001")));
        assert!(ignores_hang_up(&status("0000000000001007")));
        assert!(!ignores_hang_up(&status("0000000000001006")));
        assert!(!ignores_hang_up(&status("unreadable")) && !ignores_hang_up(""));
    }
}

//! What ends a connection from outside: its time is up, or the service stops.
//!
//! A connection's task is woken several times for each request, and neither of the two has
//! anything to say then. So both are one future, to be kept in a [`FuturesUnordered`], which polls
//! it only when it was woken itself.
//!
//! [`FuturesUnordered`]: futures::stream::FuturesUnordered

use std::future::pending;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Watch};
use crate::settings::HttpSettings;

/// Why a connection is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The service takes nothing new.
    Stop,
    /// A head is overdue: its sender waits for an answer.
    HeadOverdue,
    /// Nobody waits for anything.
    IdleTooLong,
}

/// Waits for `stop`, if that is still to come, or until somebody's time is up, which is looked
/// at from `first` on.
pub(super) async fn interruption(
    activity: &Activity,
    http: &HttpSettings,
    stop: Option<&CancellationToken>,
    first: Instant,
) -> Interruption {
    let stopped = async {
        match stop {
            Some(stop) => stop.cancelled().await,
            None => pending().await,
        }
    };
    let overdue = async {
        let mut look = first;
        loop {
            sleep_until(look).await;
            match activity.watch(Instant::now(), http) {
                Watch::Until(then) => look = then,
                Watch::HeadOverdue => return Interruption::HeadOverdue,
                Watch::IdleTooLong => return Interruption::IdleTooLong,
            }
        }
    };
    tokio::select! {
        biased;
        interruption = overdue => interruption,
        () = stopped => Interruption::Stop,
    }
}

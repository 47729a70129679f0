//! What ends a connection from outside: its time is up, or the service stops.

use std::{future::pending, pin::Pin};

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

/// The interruptions of one connection.
pub(super) struct Interruptions<'a> {
    activity: &'a Activity,
    http: &'a HttpSettings,
    /// One future, made once: most work is done before it is even looked at.
    next: Pin<Box<dyn Future<Output = Interruption> + Send + 'a>>,
}

impl<'a> Interruptions<'a> {
    /// Those to come: `stop`, and that somebody's time is up, which is looked at from
    /// `first_look` on.
    pub(super) fn new(
        activity: &'a Activity,
        http: &'a HttpSettings,
        stop: &'a CancellationToken,
        first_look: Instant,
    ) -> Self {
        let next = Box::pin(interruption(activity, http, Some(stop), first_look));
        Self { activity, http, next }
    }

    /// What work comes to, or what interrupts it before that. Work that is ready is not
    /// interrupted.
    pub(super) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Interruption> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            interruption = &mut self.next => Err(interruption),
        }
    }

    /// Goes on after an interruption: the connection has some time left, and `stop` is known.
    pub(super) fn go_on(&mut self, next_look: Instant) {
        self.next = Box::pin(interruption(self.activity, self.http, None, next_look));
    }
}

/// Waits for `stop`, if that is still to come, or until somebody's time is up.
async fn interruption(
    activity: &Activity,
    http: &HttpSettings,
    stop: Option<&CancellationToken>,
    first_look: Instant,
) -> Interruption {
    let stopped = async {
        match stop {
            Some(stop) => stop.cancelled().await,
            None => pending().await,
        }
    };
    let overdue = async {
        let mut look = first_look;
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

//! Interrupts a connection's work from outside: a time limit has passed, or the service stops.

use std::{mem, pin::Pin, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Timeout};
use crate::settings::HttpSettings;

/// The reason why work of a connection came to no result.
#[derive(Debug)]
pub(super) enum Interruption<E> {
    /// The work itself failed.
    Failed(E),
    /// The service stops: requests in work are answered, and nothing new is taken.
    Shutdown,
    /// A time limit has passed.
    TimedOut(Timeout),
}

/// Interrupts the work of one connection.
pub(super) struct Interruptions {
    activity: Arc<Activity>,
    http: Arc<HttpSettings>,
    shutdown: CancellationToken,
    /// One future for many pieces of work: most of them are done before it is polled, and one for
    /// each would register with the token and the timer again and again.
    next: Pin<Box<dyn Future<Output = Signal> + Send>>,
    /// The last answers have a time limit of their own.
    is_last: bool,
}

#[derive(Debug)]
enum Signal {
    Shutdown,
    TimedOut(Timeout),
}

impl Interruptions {
    pub(super) fn new(
        activity: Arc<Activity>,
        http: Arc<HttpSettings>,
        shutdown: CancellationToken,
    ) -> Self {
        let next = Box::pin(shutdown_or_timeout(
            Arc::clone(&activity),
            Arc::clone(&http),
            shutdown.clone(),
        ));
        Self { activity, http, shutdown, next, is_last: false }
    }

    /// Returns the result of the work, unless something interrupts it. Work that is ready is not
    /// interrupted.
    pub(super) async fn run<T, E>(
        &mut self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Interruption<E>> {
        tokio::select! {
            biased;
            result = work => result.map_err(Interruption::Failed),
            signal = &mut self.next => Err(match signal {
                Signal::Shutdown => Interruption::Shutdown,
                Signal::TimedOut(timeout) => Interruption::TimedOut(timeout),
            }),
        }
    }

    /// Returns true if the service stops.
    pub(super) fn is_stopping(&self) -> bool {
        self.shutdown.is_cancelled()
    }

    /// Ends this connection as if the service stopped, once it is cancelled.
    pub(super) fn stop(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Goes on after an interruption. From `first_check` on only the time limits are watched,
    /// because the shutdown is known.
    pub(super) fn only_timeouts(&mut self, first_check: Instant) {
        let (activity, http) = (Arc::clone(&self.activity), Arc::clone(&self.http));
        self.next =
            Box::pin(async move { Signal::TimedOut(timeout(&activity, &http, first_check).await) });
    }

    /// Goes on while the service stops and answers are still being written, for which the client has so much
    /// time from the first call on. The other time limits hold as well.
    pub(super) fn only_last_answers(&mut self, time: Duration) {
        if mem::replace(&mut self.is_last, true) {
            return;
        }
        let (activity, http) = (Arc::clone(&self.activity), Arc::clone(&self.http));
        let (now, end) = (Instant::now(), sleep(time));
        self.next = Box::pin(async move {
            tokio::select! {
                timeout = timeout(&activity, &http, now) => Signal::TimedOut(timeout),
                () = end => Signal::TimedOut(Timeout::Idle),
            }
        });
    }

    /// Goes on after the client was told to end the connection: looks after each such time whether a
    /// request is in work, and interrupts if none was twice, so that the last answer has that time to be read. A client that does not do what it was told must
    /// not keep the service from stopping.
    pub(super) fn only_idleness(&mut self, every: Duration) {
        let activity = Arc::clone(&self.activity);
        self.next = Box::pin(async move {
            let mut was_idle = false;
            loop {
                sleep(every).await;
                let is_idle = !activity.is_in_work();
                if is_idle && was_idle {
                    return Signal::TimedOut(Timeout::Idle);
                }
                was_idle = is_idle;
            }
        });
    }
}

async fn shutdown_or_timeout(
    activity: Arc<Activity>,
    http: Arc<HttpSettings>,
    shutdown: CancellationToken,
) -> Signal {
    let first_check = Instant::now() + http.header_timeout;
    tokio::select! {
        biased;
        timeout = timeout(&activity, &http, first_check) => Signal::TimedOut(timeout),
        () = shutdown.cancelled() => Signal::Shutdown,
    }
}

/// Waits until a time limit has passed.
async fn timeout(activity: &Activity, http: &HttpSettings, first_check: Instant) -> Timeout {
    let mut next_check = first_check;
    loop {
        sleep_until(next_check).await;
        match activity.check(Instant::now(), http) {
            Ok(later) => next_check = later,
            Err(timeout) => return timeout,
        }
    }
}

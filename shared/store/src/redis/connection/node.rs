//! A connection to one server that many callers share, and that is made anew after it breaks.
//!
//! The `ConnectionManager` of the `redis` crate is not used: it does not reconnect after a time-out,
//! so it never leaves a server that vanished without closing the connection (a host that lost power,
//! a firewall that dropped its state). So a connection is thrown away here after every error that it
//! may be the cause of, time-outs included, and is made anew under a time-out of its own, by one
//! caller at a time, and at most every [`RECONNECT_PAUSE`].

use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{RedisError, Value, aio::MultiplexedConnection};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{
    failure::{Failure, timed_out},
    request::Request,
    server::Endpoint,
};
use crate::redis::RedisSettings;

/// For this long after a failed attempt to connect, calls fail immediately instead of trying again.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The number of times that connections of a link were made or lost.
pub(super) type Changes = Arc<AtomicU64>;

/// A server and the shared connection to it.
pub(super) struct Node {
    endpoint: Endpoint,
    settings: RedisSettings,
    current: RwLock<Option<NumberedConnection>>,
    /// Locked while a caller connects. When the last attempt failed, and why; none if it succeeded.
    last_failure: Mutex<Option<(Instant, RedisError)>>,
    changes: Changes,
}

#[derive(Clone)]
struct NumberedConnection {
    number: u64,
    connection: MultiplexedConnection,
}

impl Node {
    pub(super) fn new(endpoint: Endpoint, settings: RedisSettings, changes: Changes) -> Self {
        Self {
            endpoint,
            settings,
            current: RwLock::default(),
            last_failure: Mutex::default(),
            changes,
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Makes a connection if there is none.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        self.connection().await.map(drop)
    }

    /// Sends a request on the current connection, and throws that away if the failure may be its
    /// fault.
    pub(super) async fn execute(&self, request: Request<'_>) -> Result<Value, Failure> {
        let NumberedConnection { number, mut connection } = self.connection().await?;
        let answer = timeout(self.settings.response_timeout, request.send(&mut connection))
            .await
            .unwrap_or_else(|_| Err(timed_out()))
            .map_err(Failure::after_sending);
        if answer.as_ref().is_err_and(Failure::blames_connection) {
            self.discard(number);
        }
        answer
    }

    /// The current connection, made now if there is none.
    async fn connection(&self) -> Result<NumberedConnection, Failure> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let mut last_failure = self.last_failure.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        if let Some((when, why)) = &*last_failure
            && when.elapsed() < RECONNECT_PAUSE
        {
            return Err(Failure::before_sending(why.clone()));
        }
        match self.endpoint.connect(&self.settings).await {
            Ok(connection) => {
                *last_failure = None;
                let number = self.changes.fetch_add(1, Ordering::Relaxed);
                let made = NumberedConnection { number, connection };
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
                Ok(made)
            }
            Err(error) => {
                *last_failure = Some((Instant::now(), error.clone()));
                Err(Failure::before_sending(error))
            }
        }
    }

    fn current(&self) -> Option<NumberedConnection> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Throws a connection away, unless another call has already replaced it. Calls that are in
    /// flight on it keep it until they end.
    fn discard(&self, number: u64) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|c| c.number == number) {
            *current = None;
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

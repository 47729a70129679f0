//! One connection, from the beginning of HTTP to its end.
//!
//! - [`http2`], [`http1`]: the two protocols
//! - [`allowance`]: the requests that it may carry at a time
//! - [`liveness`]: pings, and when it is given up or closed
//! - [`member`]: its place in a pool, as it sees it
//! - [`patience`]: how long an answer is waited for

pub(crate) mod allowance;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod liveness;
pub(crate) mod member;
mod patience;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout_at},
};

use self::member::Member;
use crate::{
    connect::{
        Connected,
        io::{Counted, Traffic},
        within,
    },
    error::{Step, Unreachable},
    exchange::{Answer, Failed, NotProcessed},
};

/// The end of a connection, as far as it matters for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// We closed it.
    Ours,
    /// The server said goodbye without an error.
    Calm,
    /// It broke, or the server ended it with an error.
    Broken,
}

/// The side of a connection that sends; cheap to clone, also while the pool is locked.
#[derive(Debug, Clone)]
pub(crate) enum Sender {
    Http2(Arc<(http2::Sender, Arc<Traffic>)>),
    /// The lock is never waited for: such a connection is given one request at a time.
    Http1(Arc<Mutex<http1::Sender>>),
}

/// The side of a connection that must be driven.
pub(crate) enum Driver {
    Http2(Box<http2::Connection>, http2::Sender, Arc<Traffic>),
    Http1(Box<http1::Connection>),
}

/// A connection that requests can be sent on, at most so many at a time.
pub(crate) struct Opened {
    pub(crate) sender: Sender,
    pub(crate) driver: Driver,
    pub(crate) limit: usize,
}

/// Begins HTTP on a connection.
pub(crate) async fn open(connected: Connected, limit: Duration) -> Result<Opened, Unreachable> {
    let Connected { io, http2 } = connected;
    within(Step::Http, limit, async {
        if http2 { open_http2(io).await } else { open_http1(io).await }
    })
    .await
}

async fn open_http2(io: Counted) -> Result<Opened, Unreachable> {
    let traffic = io.traffic();
    let (sender, connection) = http2::open(io).await?;
    Ok(Opened {
        limit: connection.max_concurrent_send_streams(),
        sender: Sender::Http2(Arc::new((sender.clone(), Arc::clone(&traffic)))),
        driver: Driver::Http2(Box::new(connection), sender, traffic),
    })
}

async fn open_http1(io: Counted) -> Result<Opened, Unreachable> {
    let (sender, connection) = http1::open(io).await?;
    let sender = Sender::Http1(Arc::new(Mutex::new(sender)));
    Ok(Opened { limit: 1, sender, driver: Driver::Http1(Box::new(connection)) })
}

impl Sender {
    /// Returns true if the connection can be used again after a request without an answer.
    pub(crate) fn survives_silence(&self) -> bool {
        matches!(self, Self::Http2(..))
    }

    /// Sends a request, whose URI has the origin, and reads the answer.
    pub(crate) async fn exchange(
        &self,
        request: Request<Bytes>,
        deadline: Instant,
    ) -> Result<Answer, Failed> {
        match self {
            Self::Http2(side) => {
                let (sender, traffic) = &**side;
                http2::exchange(&mut sender.clone(), request, traffic, deadline).await
            }
            Self::Http1(sender) => {
                let sender = timeout_at(deadline, sender.lock()).await;
                let mut sender = sender.map_err(|_| NotProcessed::Late)?;
                http1::exchange(&mut sender, request, deadline).await
            }
        }
    }
}

impl Driver {
    /// Drives the connection until it ends.
    pub(crate) async fn drive(self, member: &impl Member) -> End {
        match self {
            Self::Http2(connection, sender, traffic) => {
                http2::drive(connection, sender, member, &traffic).await
            }
            Self::Http1(mut connection) => loop {
                let Some(usage) = member.usage() else { return End::Ours };
                let idle = Instant::now().duration_since(usage.since);
                let left = http1::IDLE_CLOSE.saturating_sub(idle);
                if usage.in_use == 0 && left.is_zero() {
                    // A request that was given the connection in this moment keeps it open.
                    member.retire(End::Ours);
                    if member.usage().is_none_or(|usage| usage.in_use == 0) {
                        return End::Ours;
                    }
                }
                tokio::select! {
                    biased;
                    () = member.cancelled() => return End::Ours,
                    ended = &mut connection => {
                        return ended.map_or(End::Broken, |()| End::Calm);
                    }
                    () = member.woken() => {}
                    () = sleep(left.max(http1::IDLE_CLOSE / 4)) => {}
                }
            },
        }
    }
}

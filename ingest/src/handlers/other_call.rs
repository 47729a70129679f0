//! Shared by the calls other than pushes: the app's rate limit for them, and the form of
//! their answers.

use serde::Serialize;
use tokio::time::Instant;

use crate::{
    allowance::RateStatus,
    apps::CachedApp,
    rejection::Rejection,
    reply::{self, Reply},
};

/// Counts a call of this app. Returns what is left of the app's limit, if it has one.
pub(super) async fn acquire_call(app: &CachedApp) -> Result<Option<RateStatus>, Rejection> {
    let Some(limits) = &app.limits else { return Ok(None) };
    match limits.other_calls.acquire(Instant::now()) {
        Ok(rate) => Ok(Some(rate)),
        Err(rate) => Err(app.refusal(Rejection::TooManyCalls(rate)).await),
    }
}

/// Answers a call that succeeded.
pub(super) fn success<T: Serialize>(
    result: &T,
    rate: Option<RateStatus>,
) -> Result<Reply, Rejection> {
    let cannot = |_| Rejection::Unavailable("the answer cannot be written");
    let mut reply = reply::success(result).map_err(cannot)?;
    if let Some(rate) = rate {
        reply.put_rate(rate);
    }
    Ok(reply)
}

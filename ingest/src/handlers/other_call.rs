//! What the calls other than pushes have in common: the app's rate limit for them, and the form of
//! their answers.

use serde::Serialize;
use tokio::time::Instant;

use crate::{
    apps::{CachedApp, Quota},
    rejection::Rejection,
    reply::{self, Reply},
};

/// Counts a call of this app. Returns what is left of the app's limit, if it has one.
pub(super) async fn acquire_call(app: &CachedApp) -> Result<Option<Quota>, Rejection> {
    let Some(limits) = &app.limits else { return Ok(None) };
    match limits.other_calls.acquire(Instant::now()) {
        Ok(quota) => Ok(Some(quota)),
        Err(quota) => Err(app.refusal(Rejection::TooManyCalls(quota)).await),
    }
}

/// The answer to a call that succeeded.
pub(super) fn success<T: Serialize>(result: &T, quota: Option<Quota>) -> Result<Reply, Rejection> {
    let cannot = |_| Rejection::Unavailable("the answer cannot be written");
    let mut reply = reply::success(result).map_err(cannot)?;
    if let Some(quota) = quota {
        reply.put_quota(quota);
    }
    Ok(reply)
}

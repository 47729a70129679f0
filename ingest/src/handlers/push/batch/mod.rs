//! `POST /v1/message/push/{AppID}/batch`: many pushes in one request, one a line.
//!
//! Each line is checked and answered as if it had come alone, so an invalid line affects no other.
//! Checks of the request as a whole (authentication, media type, size, number of lines) are
//! answered as for a single push. Two more rejections are for the whole request: the queue took
//! none of its pushes, because the caller then has to wait for the queue; and the app's rate limit
//! allows no push at all now.
//!
//! Lines of white space are not pushes: they are not counted, and have no line in the answer.
//!
//! The memory of a request is reserved before its lines are parsed: for its body, and for each line
//! what its job or its answer may need. Batch requests get at most half of the memory for bodies, and
//! half of what their app may have of it, so that they never crowd out single pushes. The lines are checked in portions, between which
//! other requests have their turn.
//!
//! `check` has the checks of the lines.

mod check;

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body;
use push_model::{app::Scope, time::UnixMillis, trace_parent::TraceParent};
use tokio::time::Instant;

use self::check::{CheckedLine, CheckedLines};
use super::{PushHandler, unpublished};
use crate::{
    allowance::RateStatus,
    apps::Caller,
    body::{BodyError, Buffered, Purpose, RequestBody, Reservation},
    handlers::{lines::count_lines, media_type::NDJSON},
    head::Head,
    metrics::{AppPushes, Metrics},
    publisher::{NotPublished, PushGroup},
    rejection::Rejection,
    reply::{Lines, Reply},
    route::Route,
    settings::LINE_MEMORY,
};

/// Answers batch requests.
#[derive(Debug)]
pub(in crate::handlers) struct BatchHandler {
    pub(in crate::handlers) pushes: Arc<PushHandler>,
    pub(in crate::handlers) metrics: Arc<Metrics>,
}

impl BatchHandler {
    /// Checks and publishes the pushes of a request, and answers each.
    pub(in crate::handlers) async fn push(
        &self,
        app: &str,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let logins = &self.pushes.logins;
        let caller = logins.authenticate(app, head, Scope::Push, UnixMillis::now()).await?;
        let answered = self.check_and_publish(&caller, head, body).await;
        if answered.is_err() {
            caller.cached.pushes.rejected.inc();
        }
        answered
    }

    /// The checks after the secret, and publishing.
    async fn check_and_publish(
        &self,
        caller: &Caller,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let cached = &*caller.cached;
        cached.check_takes_pushes().await?;
        if let Some(limits) = &cached.limits
            && let Err(rate) = limits.pushes.check(Instant::now())
        {
            return Err(cached.refusal(Rejection::TooFrequent(rate)).await);
        }
        NDJSON.check(head).map_err(Rejection::MessageMediaType)?;
        let http = &self.pushes.http;
        let read = body.read_for(&cached.memory, Purpose::Batch, http, BodyError::of_message);
        let Buffered { bytes, mut memory } = read.await?;
        let count = count_lines(&bytes, http.max_batch_lines).map_err(Rejection::from_pushes)?;
        if head.idempotency_key.is_some() {
            let problem = "the header Idempotency-Key is for a single push: here each line has \
                           its own, in the field idempotency_key";
            return Err(Rejection::MessageIllegal(problem.into()));
        }
        memory.grow(count * LINE_MEMORY)?;
        let (allowed, rate) = match &cached.limits {
            Some(limits) => match limits.pushes.acquire_up_to(count, Instant::now()) {
                (0, rate) => {
                    drop((bytes, memory));
                    return Err(cached.refusal(Rejection::TooFrequent(rate)).await);
                }
                (allowed, rate) => (allowed, Some(rate)),
            },
            None => (count, None),
        };

        let trace = head.note_messages(allowed);
        let is_strict = head.is_strict();
        let checked =
            self.pushes.check_lines(caller, &bytes, allowed, trace, is_strict, &mut memory);
        let mut checked = checked.await;
        drop(bytes);
        if let Some(rate) = rate {
            let too_frequent = || CheckedLine::Rejected(Rejection::TooFrequent(rate));
            checked.lines.resize_with(count, too_frequent);
        }
        self.publish_lines(checked, memory, rate, &cached.pushes, trace).await
    }

    /// Publishes the groups, and answers every line.
    async fn publish_lines(
        &self,
        checked: CheckedLines,
        mut memory: Reservation,
        rate: Option<RateStatus>,
        counters: &AppPushes,
        trace: Option<TraceParent>,
    ) -> Result<Reply, Rejection> {
        let CheckedLines { lines, groups } = checked;
        let with_memory = |group: PushGroup| {
            let share = memory.split(group.memory());
            (group, share)
        };
        let groups = groups.into_iter().map(with_memory).collect();
        let results = self.pushes.publisher.publish_groups(groups, trace).await;
        if let Some(why) = nothing_taken(&results) {
            return Err(unpublished(why));
        }

        let mut answers = Lines::of(lines.len(), memory);
        let mut accepted = 0;
        let rejected = |answers: &mut Lines<_>, rejection: &Rejection| {
            self.metrics.answered_lines(Route::BATCH_LINE, rejection.number(), 1);
            counters.rejected.inc();
            answers.rejected(rejection);
        };
        for line in &lines {
            match line {
                CheckedLine::DryRun(id, warnings) => {
                    accepted += 1;
                    answers.accepted(*id, warnings);
                }
                CheckedLine::InGroup(id, group, warnings) => match results.get(*group) {
                    Some(Ok(())) => {
                        accepted += 1;
                        counters.accepted.inc();
                        tracing::debug!(message_id = %id, "push accepted");
                        answers.accepted(*id, warnings);
                    }
                    result => {
                        let why = result.and_then(|result| result.clone().err());
                        let why = why.unwrap_or(NotPublished::Stopping);
                        rejected(&mut answers, &unpublished(why));
                    }
                },
                CheckedLine::Rejected(rejection) => rejected(&mut answers, rejection),
            }
        }
        self.metrics.answered_lines(Route::BATCH_LINE, 200, accepted);
        let mut reply = answers.reply();
        if let Some(rate) = rate {
            reply.put_rate(rate);
        }
        Ok(reply)
    }
}

/// Returns why the queue took no group, or none if it took one or there was none.
fn nothing_taken(results: &[Result<(), NotPublished>]) -> Option<NotPublished> {
    let mut whys = results.iter().map(|result| result.as_ref().err());
    let first = whys.next()??;
    whys.all(|why| why.is_some()).then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_nothing_was_taken_the_request_is_answered_as_a_whole() {
        let (full, late) = (Err(NotPublished::Full), Err(NotPublished::Late));
        assert_eq!(nothing_taken(&[]), None, "there was nothing to take");
        assert_eq!(nothing_taken(&[Ok(()), full.clone()]), None);
        assert_eq!(nothing_taken(&[full.clone(), Ok(())]), None);
        assert_eq!(nothing_taken(&[full, late]), Some(NotPublished::Full));
    }
}

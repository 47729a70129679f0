//! `POST /v1/message/push/{AppID}/batch`: many pushes in one request, a line each.
//!
//! Every line is checked and answered as if it had come alone, so a bad one spoils no other. What
//! concerns the request as a whole (who may push, media type, size, number of lines) is answered
//! as for a single push. So is a request of which the queue took nothing, because then it is the
//! queue that the caller has to wait for, and an app that may push nothing at all now.
//!
//! Lines of white space are no pushes: they are not counted, and have no line in the answer.
//!
//! What a request holds is bounded before it is known what it says: its body, and for each line
//! what the line may hold as a job or an answer. Requests like this one get no more than half of
//! the memory for bodies, so that single pushes are taken whatever these do. The lines are read in
//! portions between which other requests have their turn.

use bytes::Bytes;
use hyper::body::Body;
use push_model::{
    envelope::write_job,
    ids::{AppId, MessageId},
    time::UnixMillis,
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{
    Buffered, Calls, NDJSON, not_of,
    push::{checked_key, identify, without_body},
};
use crate::{
    body::RequestBody,
    head::Head,
    message::Push,
    publisher::{Bundle, NotPublished},
    rate::Quota,
    rejection::Rejection,
    reply::{Lines, Reply},
    settings::LINE_MEMORY,
};

/// How much of a body is read before other requests have their turn, in bytes: about half a
/// millisecond.
const PORTION: usize = 64 * 1024;
/// What reading a line costs beside its bytes, counted in bytes of a portion.
const LINE_COST: usize = 128;
/// How much longer than its line a job is, in bytes, about.
const JOB_OVERHEAD: usize = 192;

/// What became of a line.
enum Line {
    /// It is checked and not to be sent.
    DryRun(MessageId),
    /// It is accepted if its bundle is.
    Bundled(MessageId, usize),
    Rejected(Rejection),
}

/// The lines of a request after their checks.
struct Checked {
    lines: Vec<Line>,
    bundles: Vec<Bundle>,
}

impl Calls {
    /// Checks and publishes the pushes of a request, and answers each.
    pub(super) async fn push_batch(
        &self,
        app: &str,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let (app, known) = self.app(app, head, UnixMillis::now()).await?;
        if known.app.disabled {
            return Err(Rejection::SdkDisabled);
        }
        if let Some(limiter) = &known.limiter {
            limiter.check(Instant::now()).map_err(Rejection::TooFrequent)?;
        }
        if let Some(problem) = not_of(&NDJSON, head) {
            return Err(Rejection::MessageMediaType(problem));
        }
        let Buffered { bytes, mut memory } = self.batch_body(body).await?;
        let count = count(&bytes, self.settings.http.max_batch_lines)?;
        if head.idempotency_key.is_some() {
            let problem = "the header Idempotency-Key is for a single push: here each line has \
                           its own, in the field idempotency_key";
            return Err(Rejection::MessageIllegal(problem.into()));
        }
        memory.merge(self.batch_memory(count * LINE_MEMORY)?);
        let (allowed, quota) = match &known.limiter {
            Some(limiter) => match limiter.take_of(count, Instant::now()) {
                (0, quota) => return Err(Rejection::TooFrequent(quota)),
                (allowed, quota) => (allowed, Some(quota)),
            },
            None => (count, None),
        };

        let mut checked = self.check_lines(&app, known.app.generation, &bytes, allowed).await;
        drop(bytes);
        if let Some(quota) = quota {
            let too_frequent = || Line::Rejected(Rejection::TooFrequent(quota));
            checked.lines.resize_with(count, too_frequent);
        }
        self.publish_lines(checked, memory, quota).await
    }

    /// The body, within the bounds of a request with many pushes and of all of them together.
    async fn batch_body(
        &self,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> Result<Buffered, Rejection> {
        let http = &self.settings.http;
        let limit = http.max_batch_body;
        let size = body.announced(limit).map_err(|no_body| without_body(no_body, limit))?;
        let memory = self.batch_memory(size)?;
        let read = body.read(limit, http.body_timeout).await;
        let bytes = read.map_err(|no_body| without_body(no_body, limit))?;
        Ok(Buffered { bytes, memory })
    }

    /// A share of the memory for bodies, in bytes, if half of it is free then.
    fn batch_memory(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Rejection> {
        let memory = self.memory(bytes)?;
        // Looked at afterwards, so that of several at once none is let in too many.
        if self.buffered.available_permits() < self.settings.http.max_buffered / 2 {
            return Err(Rejection::Unavailable("the service is full"));
        }
        Ok(memory)
    }

    /// Checks the first so many lines of a body.
    async fn check_lines(
        &self,
        app: &AppId,
        generation: u64,
        body: &[u8],
        allowed: usize,
    ) -> Checked {
        let now = UnixMillis::now();
        let mut bundles = self.publisher.bundles(allowed, body.len() + allowed * JOB_OVERHEAD);
        let mut checked = Vec::with_capacity(allowed);
        // One after the other is written here, and then put behind the others.
        let mut job = Vec::new();
        let mut portion = 0;
        for line in lines(body).take(allowed) {
            portion += line.len() + LINE_COST;
            if portion >= PORTION {
                portion = 0;
                tokio::task::yield_now().await;
            }
            job.clear();
            let line = match self.check_line(app, generation, line, now, &mut job) {
                Ok((id, true)) => Line::DryRun(id),
                Ok((id, false)) => Line::Bundled(id, bundles.add(&job)),
                Err(rejection) => Line::Rejected(rejection),
            };
            checked.push(line);
        }
        Checked { lines: checked, bundles: bundles.finish() }
    }

    /// Checks a line, and writes its job unless it is a dry run, which is told with its id.
    fn check_line(
        &self,
        app: &AppId,
        generation: u64,
        line: &[u8],
        now: UnixMillis,
        job: &mut Vec<u8>,
    ) -> Result<(MessageId, bool), Rejection> {
        let limit = self.settings.http.max_body;
        if line.len() > limit {
            return Err(Rejection::MessageTooLarge(limit));
        }
        let (push, key) = Push::read_line(line, self.settings.rules)?;
        let key = key.as_ref().map(|key| checked_key(key.as_bytes(), "idempotency_key"));
        let dry_run = push.dry_run;
        let (id, copy) = identify(app, generation, key.transpose()?, push.reach(), dry_run);
        if !dry_run {
            let (payload, audience) = push.into_parts(id, app.clone(), now);
            write_job(job, &payload, &audience, copy, generation)
                .map_err(|error| Rejection::MessageIllegal(error.to_string()))?;
        }
        Ok((id, dry_run))
    }

    /// Publishes the bundles, and answers every line.
    async fn publish_lines(
        &self,
        checked: Checked,
        mut memory: OwnedSemaphorePermit,
        quota: Option<Quota>,
    ) -> Result<Reply, Rejection> {
        let Checked { lines, bundles } = checked;
        let with_memory = |bundle: Bundle| {
            let share = memory.split(bundle.memory().min(memory.num_permits()));
            (bundle, share)
        };
        let bundles = bundles.into_iter().map(with_memory).collect();
        let outcomes = self.publisher.publish_all(bundles).await;
        if let Some(why) = nothing_taken(&outcomes) {
            return Err(Rejection::of_unpublished(why));
        }

        let mut answers = Lines::of(lines.len(), memory);
        let mut accepted = 0;
        let rejected = |answers: &mut Lines<_>, rejection: &Rejection| {
            self.metrics.answered_lines(rejection.number(), 1);
            answers.rejected(rejection);
        };
        for line in &lines {
            match line {
                Line::DryRun(id) => {
                    accepted += 1;
                    answers.accepted(*id);
                }
                Line::Bundled(id, bundle) => match outcomes.get(*bundle) {
                    Some(Ok(())) => {
                        accepted += 1;
                        answers.accepted(*id);
                    }
                    outcome => {
                        let why = outcome.and_then(|outcome| outcome.clone().err());
                        let why = why.unwrap_or(NotPublished::Stopping);
                        rejected(&mut answers, &Rejection::of_unpublished(why));
                    }
                },
                Line::Rejected(rejection) => rejected(&mut answers, rejection),
            }
        }
        self.metrics.answered_lines(200, accepted);
        let mut reply = answers.reply();
        if let Some(quota) = quota {
            reply.put_quota(quota);
        }
        Ok(reply)
    }
}

/// Why nothing was taken, if there was something to take.
fn nothing_taken(outcomes: &[Result<(), NotPublished>]) -> Option<NotPublished> {
    let mut whys = outcomes.iter().map(|outcome| outcome.as_ref().err());
    let first = whys.next()??;
    whys.all(|why| why.is_some()).then(|| first.clone())
}

/// The lines that are pushes.
fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty())
}

/// How many pushes there are.
fn count(body: &[u8], limit: usize) -> Result<usize, Rejection> {
    match lines(body).take(limit + 1).count() {
        0 => Err(Rejection::MessageIllegal("the body has no line with a push".into())),
        count if count > limit => Err(Rejection::TooManyLines(limit)),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_white_space_are_no_pushes() {
        let body = b"\n{}\r\n \t\r\n\n[]\n\n";
        assert_eq!(lines(body).collect::<Vec<_>>(), [&b"{}\r"[..], b"[]"]);
        assert_eq!(count(body, 2), Ok(2));
        assert_eq!(count(body, 1), Err(Rejection::TooManyLines(1)));
        for empty in [&b""[..], b"\n", b" \r\n\n"] {
            assert!(matches!(count(empty, 1), Err(Rejection::MessageIllegal(_))), "{empty:?}");
        }
    }

    #[test]
    fn only_where_nothing_was_taken_the_request_is_answered_as_a_whole() {
        let (full, late) = (Err(NotPublished::Full), Err(NotPublished::Late));
        assert_eq!(nothing_taken(&[]), None, "there was nothing to take");
        assert_eq!(nothing_taken(&[Ok(()), full.clone()]), None);
        assert_eq!(nothing_taken(&[full.clone(), Ok(())]), None);
        assert_eq!(nothing_taken(&[full, late]), Some(NotPublished::Full));
    }
}

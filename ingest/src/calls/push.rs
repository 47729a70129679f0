//! `POST /v1/message/push/{AppID}`.

use bytes::Bytes;
use hyper::body::Body;
use push_model::{
    envelope::encode_job,
    ids::{AppId, MessageId, Reach},
    time::UnixMillis,
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{Buffered, Calls, Outcome, not_json};
use crate::{
    body::{NoBody, RequestBody},
    head::Head,
    message::Push,
    rate::Quota,
    rejection::Rejection,
    reply::{self, Reply},
};

/// The longest `Idempotency-Key`, in characters.
const MAX_KEY: usize = 128;

/// A push that was checked and is to be published.
pub(super) struct Checked {
    id: MessageId,
    job: Vec<u8>,
    /// The body's share of the memory for bodies; the job takes its place.
    memory: OwnedSemaphorePermit,
    quota: Option<Quota>,
}

impl Calls {
    /// Checks a push.
    pub(super) async fn push(
        &self,
        app: &str,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> Result<Outcome, Rejection> {
        let now = UnixMillis::now();
        let (app, known) = self.app(app, head, now).await?;
        if known.app.disabled {
            return Err(Rejection::SdkDisabled);
        }
        let quota = match &known.limiter {
            Some(limiter) => Some(limiter.take(Instant::now()).map_err(Rejection::TooFrequent)?),
            None => None,
        };
        if let Some(problem) = not_json(head) {
            return Err(Rejection::MessageMediaType(problem));
        }
        let limit = self.settings.http.max_body;
        let body = self.body(body).await?.map_err(|no_body| without_body(no_body, limit))?;
        let Buffered { bytes, memory } = body;
        let push = Push::read(&bytes, self.settings.rules)?;
        let key = idempotency_key(head)?;

        let dry_run = push.dry_run;
        let generation = known.app.generation;
        let (id, copy) = identify(&app, generation, key, push.reach(), dry_run);
        if dry_run {
            return Ok(Outcome::Reply(accepted(id, quota)));
        }
        let (payload, audience) = push.into_parts(id, app, now);
        let job = encode_job(&payload, &audience, copy, generation)
            .map_err(|error| Rejection::MessageIllegal(error.to_string()))?;
        Ok(Outcome::Publish(Checked { id, job, memory, quota }))
    }

    /// Publishes a push.
    pub(super) async fn publish(&self, push: Checked) -> Result<Reply, Rejection> {
        let Checked { id, job, memory, quota } = push;
        self.publisher.publish(job, memory).await.map_err(Rejection::of_unpublished)?;
        Ok(accepted(id, quota))
    }
}

/// The id of a push, and the number of its copy. With a key, several accepted copies of the
/// message share one id; the copy's number tells them apart, so that one of them is sent.
pub(super) fn identify(
    app: &AppId,
    generation: u64,
    key: Option<&[u8]>,
    reach: Reach,
    dry_run: bool,
) -> (MessageId, u64) {
    match key {
        Some(key) => (MessageId::from_idempotency_key(app, generation, key), rand::random()),
        None if dry_run => (MessageId::void(app), 0),
        None => (MessageId::issue_for(app, reach), 0),
    }
}

/// The answer to a message without a body that could be read, which may have so many bytes.
pub(super) fn without_body(why: NoBody, limit: usize) -> Rejection {
    match why {
        NoBody::TooLarge => Rejection::MessageTooLarge(limit),
        NoBody::Late => Rejection::BodyTimeout,
        NoBody::Broken => Rejection::MessageIllegal("the body ends early".into()),
    }
}

fn accepted(id: MessageId, quota: Option<Quota>) -> Reply {
    let mut reply = reply::accepted(id);
    if let Some(quota) = quota {
        reply.put_quota(quota);
    }
    reply
}

fn idempotency_key<'a>(head: &Head<'a>) -> Result<Option<&'a [u8]>, Rejection> {
    let key = head.idempotency_key;
    key.map(|key| checked_key(key, "the header Idempotency-Key")).transpose()
}

/// The key, if it is one; `what` it is in the words of the caller.
pub(super) fn checked_key<'a>(key: &'a [u8], what: &str) -> Result<&'a [u8], Rejection> {
    if (1..=MAX_KEY).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic) {
        Ok(key)
    } else {
        let problem = format!("{what} must be 1 to {MAX_KEY} visible ASCII characters");
        Err(Rejection::MessageIllegal(problem))
    }
}

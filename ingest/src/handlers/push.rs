//! `POST /v1/message/push/{AppID}`: a single push.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body;
use push_model::{
    app::Scope,
    envelope::{JobMarks, encode_job},
    fingerprint::Fingerprint,
    ids::{AppId, MessageId},
    time::UnixMillis,
    trace_parent::TraceParent,
};
use tokio::time::Instant;

use super::{
    authentication::Caller,
    body::{Buffered, unread_message},
    context::Handlers,
    idempotency::{header_key, identify},
    media_type::JSON,
};
use crate::{
    apps::{CachedApp, MessagePlaces, Quota},
    body::{Purpose, RequestBody, Reservation},
    head::Head,
    message::Push,
    metrics::AppPushes,
    publisher::NotPublished,
    rejection::Rejection,
    reply::{self, Reply},
};

/// What a handler returns.
pub(super) enum Handled {
    Reply(Reply),
    /// The push is still to be published; its answer comes with the confirm.
    Publish(CheckedPush),
}

/// A push that passed all checks and is to be published.
pub(super) struct CheckedPush {
    id: MessageId,
    job: Vec<u8>,
    /// The memory of the body. It now stands for the job.
    memory: Reservation,
    /// Its place within the app's quotas of messages.
    place: Option<Box<MessagePlaces>>,
    quota: Option<Quota>,
    /// Where the app's pushes are counted.
    counters: Arc<AppPushes>,
    trace: Option<TraceParent>,
}

impl Handlers {
    /// Checks a push, in the order of the contract.
    pub(super) async fn push(
        &self,
        app: &str,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> Result<Handled, Rejection> {
        let now = UnixMillis::now();
        let Caller { app, cached, .. } = self.authenticate(app, head, Scope::Push, now).await?;
        let checked = self.check_push(app, &cached, head, body, now).await;
        if checked.is_err() {
            cached.pushes.rejected.inc();
        }
        checked
    }

    /// The checks after the secret.
    async fn check_push(
        &self,
        app: AppId,
        cached: &CachedApp,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
        now: UnixMillis,
    ) -> Result<Handled, Rejection> {
        cached.check_takes_pushes().await?;
        let quota = match &cached.limits {
            Some(limits) => match limits.pushes.acquire(Instant::now()) {
                Ok(quota) => Some(quota),
                Err(quota) => return Err(cached.refusal(Rejection::TooFrequent(quota)).await),
            },
            None => None,
        };
        JSON.check(head).map_err(Rejection::MessageMediaType)?;
        let Buffered { bytes, memory } =
            self.read_body(cached, Purpose::Single, body, unread_message).await?;
        let push = Push::read(&bytes, self.settings.rules)?;
        let key = header_key(head)?;

        let dry_run = push.dry_run;
        let id = identify(&cached.app, key, push.audience_kind(), dry_run);
        let trace = self.note_message(head, id);
        let kind = push.audience_kind().into();
        let (payload, audience) = push.into_parts(id, app, now, self.sequence.next());
        let place = match dry_run {
            true => None,
            false => {
                self.learn_usage(cached).await;
                self.place(cached, kind, now, payload.expires_at)?
            }
        };
        let dedup_nonce = match key {
            Some(_) => {
                let fingerprint = Fingerprint::of(&payload, &audience);
                let known = self.known_nonces(&cached.app, [id], self.ledger_deadline()).await;
                self.keyed_nonce(&payload.app_id, id, fingerprint, &known, dry_run)?
            }
            None => 0,
        };
        if dry_run {
            return Ok(Handled::Reply(accepted(id, quota)));
        }
        let (app_generation, counted) = (cached.app.generation, place.is_some());
        let marks = JobMarks { dedup_nonce, app_generation, counted, trace };
        let job = encode_job(&payload, &audience, marks)
            .map_err(|error| Rejection::MessageIllegal(error.to_string()))?;
        let counters = Arc::clone(&cached.pushes);
        Ok(Handled::Publish(CheckedPush { id, job, memory, place, quota, counters, trace }))
    }

    /// Publishes a push, and answers it after the confirm.
    pub(super) async fn publish(&self, push: CheckedPush) -> Result<Reply, Rejection> {
        let CheckedPush { id, job, memory, place, quota, counters, trace } = push;
        match self.publisher.publish(job, memory, place, trace).await {
            Ok(()) => {
                counters.accepted.inc();
                Ok(accepted(id, quota))
            }
            Err(why) => {
                counters.rejected.inc();
                Err(unpublished(why))
            }
        }
    }
}

fn accepted(id: MessageId, quota: Option<Quota>) -> Reply {
    let mut reply = reply::accepted(id);
    if let Some(quota) = quota {
        reply.put_quota(quota);
    }
    reply
}

/// Answers a push that passed all checks and is not known to be stored.
pub(super) fn unpublished(why: NotPublished) -> Rejection {
    match why {
        NotPublished::Full => Rejection::Unavailable("the service is full"),
        NotPublished::Stopping => Rejection::Unavailable("the service is stopping"),
        NotPublished::Refused | NotPublished::Late => {
            Rejection::Unavailable("the queue has not confirmed the message")
        }
        NotPublished::Blocked(reason) => Rejection::QueueBlocked(reason),
    }
}

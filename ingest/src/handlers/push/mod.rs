//! `POST /v1/message/push/{AppID}`: a single push.
//!
//! - `batch`: many pushes in one request
//! - `idempotency`: the ids of pushes with an `Idempotency-Key`
//! - `sequence`: numbers by which devices sort messages
//! - `size`: what the transports of an app can carry
//! - `unknown_topics`: a warning about topics that no device has

mod batch;
mod idempotency;
mod sequence;
mod size;
mod unknown_topics;

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body;
use push_model::{
    app::{AppKey, Scope},
    device::TransportKind,
    envelope::{JobMarks, write_job},
    fingerprint::Fingerprint,
    ids::{AudienceKind, MessageId},
    time::UnixMillis,
    trace_parent::TraceParent,
};
use tokio::time::Instant;

pub(super) use self::{batch::BatchHandler, idempotency::IdempotencyKeys, sequence::Sequence};
use self::{
    idempotency::{KnownNonces, header_key, identify},
    unknown_topics::names_topics,
};
use super::{media_type::JSON, usage_sync::UsageSync, user_devices::UserDevices};
use crate::{
    allowance::RateStatus,
    apps::{CachedApp, Caller, Logins, MessagePlaces},
    body::{BodyError, Buffered, Purpose, RequestBody, Reservation},
    head::Head,
    message::{AppRules, Push, Wanted},
    publisher::{NotPublished, Publisher},
    rejection::Rejection,
    reply::{self, Reply},
    settings::{HttpSettings, Rules},
};

/// Room for the job of an ordinary push, in bytes.
const ORDINARY_JOB: usize = 512;

/// Checks pushes and publishes them: single ones here, those of batch requests in `batch`.
#[derive(Debug)]
pub(super) struct PushHandler {
    pub(super) logins: Arc<Logins>,
    pub(super) http: Arc<HttpSettings>,
    pub(super) rules: Rules,
    pub(super) keys: IdempotencyKeys,
    pub(super) usage: Arc<UsageSync>,
    pub(super) sequence: Sequence,
    pub(super) publisher: Arc<Publisher>,
}

/// A push whose fields are valid.
pub(super) struct ReadPush<'a> {
    pub(super) push: Push<'a>,
    pub(super) id: MessageId,
    /// The id was derived from an idempotency key.
    pub(super) has_key: bool,
    /// The transports that may carry it, if it may be too large for one of them.
    pub(super) carriers: Option<Arc<[TransportKind]>>,
}

/// A push that passed all checks, and what its sender should know.
pub(super) struct CheckedPush {
    pub(super) outcome: CheckOutcome,
    pub(super) warnings: Vec<String>,
}

/// The action to take on a push that passed all checks.
pub(super) enum CheckOutcome {
    /// It is not to be sent.
    DryRun(MessageId),
    /// Its job is written, and it has this place within the app's quotas of messages.
    Job(MessageId, Option<Box<MessagePlaces>>),
}

/// A job that is to be published.
struct NewJob {
    id: MessageId,
    bytes: Vec<u8>,
    /// The memory of the body. It now stands for the job.
    memory: Reservation,
    place: Option<Box<MessagePlaces>>,
    trace: Option<TraceParent>,
    warnings: Vec<String>,
}

impl PushHandler {
    /// Checks a push in the order of the contract, and answers it when it is published.
    pub(super) async fn push(
        &self,
        app: &str,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let caller = self.logins.authenticate(app, head, Scope::Push, now).await?;
        let answered = self.check_and_publish(&caller, head, body, now).await;
        if answered.is_err() {
            caller.cached.pushes.rejected.inc();
        }
        answered
    }

    /// Does the same for a program that vouches for its user in place of a secret.
    pub(super) async fn push_locally(
        &self,
        app: &AppKey,
        user: &str,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let caller = self.logins.vouch(app, user).await?;
        let answered = self.check_and_publish(&caller, head, body, UnixMillis::now()).await;
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
        now: UnixMillis,
    ) -> Result<Reply, Rejection> {
        let cached = &*caller.cached;
        cached.check_takes_pushes().await?;
        let rate = match &cached.limits {
            Some(limits) => match limits.pushes.acquire(Instant::now()) {
                Ok(rate) => Some(rate),
                Err(rate) => return Err(cached.refusal(Rejection::TooFrequent(rate)).await),
            },
            None => None,
        };
        JSON.check(head).map_err(Rejection::MessageMediaType)?;
        let read =
            body.read_for(&cached.memory, Purpose::Single, &self.http, BodyError::of_message);
        // The data of the checks is dropped before the job waits for its confirm.
        let job = match self.new_job(caller, head, read.await?, now).await? {
            Ok(job) => job,
            Err((dry_run, warnings)) => return Ok(accepted(dry_run, &warnings, rate)),
        };
        let NewJob { id, bytes, memory, place, trace, warnings } = job;
        let published = self.publisher.publish(bytes, memory, place, trace).await;
        published.map_err(unpublished)?;
        cached.pushes.accepted.inc();
        tracing::debug!(app = %cached.app.app_id, message_id = %id, "push accepted");
        Ok(accepted(id, &warnings, rate))
    }

    /// Makes the job of a push, or returns the id of a dry run and its warnings.
    async fn new_job(
        &self,
        caller: &Caller,
        head: &Head<'_>,
        Buffered { bytes: body, mut memory }: Buffered,
        now: UnixMillis,
    ) -> Result<Result<NewJob, (MessageId, Vec<String>)>, Rejection> {
        let cached = &*caller.cached;
        let mut push = Push::read(&body, self.rules_of(cached))?;
        if head.is_strict() {
            push.notes.refuse_unknown_fields()?;
        }
        let key = header_key(head)?;
        let id = identify(&cached.app, key, push.audience_kind(), push.dry_run);
        let trace = head.note_message(id);
        if !push.dry_run {
            self.usage.learn(cached).await;
        }
        let known = match key {
            Some(_) => self.keys.known_nonces(&cached.app, [id], self.keys.ledger_deadline()).await,
            None => KnownNonces::default(),
        };
        if !push.wanted.users.is_empty() {
            // Boxed: few pushes name users.
            Box::pin(self.add_user_devices(caller, &mut push, &mut memory)).await?;
        }
        if names_topics(&push) {
            let (index, app) = (&self.usage.index, caller.key());
            Box::pin(unknown_topics::note(index, &app, &mut [&mut push])).await;
        }
        let carriers = self.carriers(cached, body.len()).await;
        let push = ReadPush { push, id, has_key: key.is_some(), carriers };
        let mut bytes = Vec::with_capacity(ORDINARY_JOB);
        let checked = self.check(caller, push, &known, (now, trace), &mut bytes)?;
        let CheckedPush { outcome, warnings } = checked;
        Ok(match outcome {
            CheckOutcome::Job(id, place) => {
                Ok(NewJob { id, bytes, memory, place, trace, warnings })
            }
            CheckOutcome::DryRun(id) => Err((id, warnings)),
        })
    }

    /// Returns what pushes of an app are checked against.
    pub(super) fn rules_of<'a>(&self, cached: &'a CachedApp) -> AppRules<'a> {
        AppRules { limits: self.rules, attributes: &cached.app.attributes }
    }

    /// Adds the devices of the users that a push names to its audience.
    async fn add_user_devices(
        &self,
        caller: &Caller,
        push: &mut Push<'_>,
        memory: &mut Reservation,
    ) -> Result<(), Rejection> {
        let mut found = Reservation::empty(&caller.cached.memory, Purpose::Single);
        let asked = std::iter::once(&push.wanted);
        let devices = self.user_devices(caller, asked, &mut found).await;
        self.add_devices(push, &devices, memory)
    }

    /// Looks up the devices of the users that pushes name. `memory` reserves their ids.
    pub(super) async fn user_devices<'w>(
        &self,
        caller: &Caller,
        wanted: impl Iterator<Item = &'w Wanted>,
        memory: &mut Reservation,
    ) -> UserDevices {
        let (index, most) = (&self.usage.index, self.rules.max_client_ids);
        UserDevices::of(index, &caller.key(), wanted, most, memory).await
    }

    /// Adds devices that were looked up.
    pub(super) fn add_devices(
        &self,
        push: &mut Push<'_>,
        devices: &UserDevices,
        memory: &mut Reservation,
    ) -> Result<(), Rejection> {
        let said = devices.add_to(&mut push.wanted, self.rules.max_client_ids, memory)?;
        said.iter().for_each(|text| push.notes.note(text));
        Ok(())
    }

    /// Returns the transports that may carry a message of the app, if one in so long a body may be too large for
    /// one of them.
    pub(super) async fn carriers(
        &self,
        cached: &CachedApp,
        body_len: usize,
    ) -> Option<Arc<[TransportKind]>> {
        size::carriers(&self.usage.index, cached, body_len, self.usage.fresh).await
    }

    /// Checks a push that was read against its size, and the app's quotas and keys. Its job is written unless it is a dry
    /// run.
    pub(super) fn check(
        &self,
        caller: &Caller,
        ReadPush { mut push, id, has_key, carriers }: ReadPush<'_>,
        known: &KnownNonces,
        (now, trace): (UnixMillis, Option<TraceParent>),
        job: &mut Vec<u8>,
    ) -> Result<CheckedPush, Rejection> {
        let cached = &*caller.cached;
        let (app, kind, dry_run) = (&cached.app, push.audience_kind(), push.dry_run);
        let mut warnings = std::mem::take(&mut push.notes).into_texts();
        let (payload, localized, audience) =
            push.into_parts(id, app.app_id.clone(), now, self.sequence.next());
        let localized = localized.as_ref();
        if let Some(carriers) = carriers {
            warnings.extend(size::check(&payload, localized, &carriers)?);
        }
        let place = match dry_run {
            true => None,
            false => self.usage.place(cached, kind.into(), now, payload.expires_at)?,
        };
        let dedup_nonce = match has_key {
            true => {
                let fingerprint = Fingerprint::of(&payload, &audience, localized);
                self.keys.keyed_nonce(&app.app_id, id, fingerprint, known, dry_run)?
            }
            false => 0,
        };
        if dry_run {
            return Ok(CheckedPush { outcome: CheckOutcome::DryRun(id), warnings });
        }
        let (app_generation, counted) = (app.generation, place.is_some());
        // The ledger keeps it of broadcasts only.
        let sent_by = match kind {
            AudienceKind::Broadcast => caller.secret_name(),
            AudienceKind::Named => None,
        };
        let marks = JobMarks { dedup_nonce, app_generation, counted, trace, sent_by, localized };
        write_job(job, &payload, &audience, marks)
            .map_err(|error| Rejection::MessageIllegal(error.to_string()))?;
        Ok(CheckedPush { outcome: CheckOutcome::Job(id, place), warnings })
    }
}

fn accepted(id: MessageId, warnings: &[String], rate: Option<RateStatus>) -> Reply {
    let mut reply = reply::accepted(id, warnings);
    if let Some(rate) = rate {
        reply.put_rate(rate);
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

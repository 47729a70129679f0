//! One accepted push, as workers read it from an envelope.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::BadEnvelope;
use crate::{
    app::AppKey,
    ids::{AppId, MessageId},
    ledger::PriorDeliveries,
    localized::Localized,
    message::Audience,
    text::Text,
    time::UnixMillis,
    trace_parent::{self, TraceParent},
};

/// One accepted push.
#[derive(Debug, Clone)]
pub struct Job {
    /// The fields of the payload that the service itself reads.
    pub head: Head,
    /// The bytes a device receives: the JSON of a [`crate::message::Payload`].
    pub payload: Bytes,
    /// The devices that it is for.
    pub audience: Arc<Audience>,
    /// The deduplication nonce: tells jobs with the same message id apart
    /// ([`Entry::dedup_nonce`](crate::ledger::Entry::dedup_nonce)).
    pub dedup_nonce: u64,
    /// The generation of its app ([`AppKey::generation`]).
    pub app_generation: u64,
    /// True if it counts against a quota of its app ([`crate::usage`]), so that the worker that
    /// closes it counts that as well.
    pub counted: bool,
    /// The trace that the spans of its work belong to; none unless it is sampled.
    pub trace: Option<TraceParent>,
    /// The name of the secret that sent it, if it is a broadcast.
    pub sent_by: Option<Arc<str>>,
    /// Its texts in other languages than that of the payload.
    pub localized: Option<Arc<Localized>>,
    /// Identifies the queue message in a claim, as
    /// [`PartitionTask::nonce`](super::PartitionTask::nonce): the deduplication nonce, unless a
    /// worker published the job again.
    pub nonce: u64,
    /// As [`PartitionTask::continues`](super::PartitionTask::continues).
    pub continues: Option<PriorDeliveries>,
}

impl Job {
    /// The app whose devices the push is for. A later app may have its name by now.
    pub fn app(&self) -> AppKey {
        AppKey { id: self.head.app_id.clone(), generation: self.app_generation }
    }
}

/// The fields of a payload that the service itself reads.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Head {
    /// The message.
    pub message_id: MessageId,
    /// Its app.
    pub app_id: AppId,
    /// When ingest accepted it.
    pub accepted_at: UnixMillis,
    /// When it expires.
    pub expires_at: UnixMillis,
}

#[derive(Serialize)]
pub(super) struct JobOut<'a> {
    payload: &'a RawValue,
    audience: &'a Audience,
    dedup_nonce: u64,
    #[serde(skip_serializing_if = "is_first")]
    app_generation: u64,
    #[serde(skip_serializing_if = "is_false")]
    counted: bool,
    #[serde(rename = "traceparent", skip_serializing_if = "Option::is_none")]
    trace: Option<TraceParent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    localized: Option<&'a Localized>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continues: Option<PriorDeliveries>,
}

fn is_first(generation: &u64) -> bool {
    *generation == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl<'a> JobOut<'a> {
    pub(super) fn of(job: &'a Job) -> Result<Self, serde_json::Error> {
        Ok(Self {
            payload: serde_json::from_slice(&job.payload)?,
            audience: &job.audience,
            dedup_nonce: job.dedup_nonce,
            app_generation: job.app_generation,
            counted: job.counted,
            trace: job.trace,
            sent_by: job.sent_by.as_deref(),
            localized: job.localized.as_deref(),
            nonce: (job.nonce != job.dedup_nonce).then_some(job.nonce),
            continues: job.continues,
        })
    }
}

#[derive(Deserialize)]
pub(super) struct JobIn<'a> {
    #[serde(borrow)]
    pub(super) payload: &'a RawValue,
    audience: Audience,
    dedup_nonce: u64,
    #[serde(default)]
    app_generation: u64,
    #[serde(default)]
    counted: bool,
    #[serde(
        rename = "traceparent",
        default,
        deserialize_with = "trace_parent::lenient::deserialize"
    )]
    trace: Option<TraceParent>,
    #[serde(borrow, default)]
    sent_by: Option<Text<'a>>,
    #[serde(default)]
    localized: Option<Localized>,
    nonce: Option<u64>,
    #[serde(default)]
    continues: Option<PriorDeliveries>,
}

impl JobIn<'_> {
    /// The job, with the bytes of its payload, which are its own or part of the envelope's.
    pub(super) fn with(self, payload: Bytes) -> Result<Job, BadEnvelope> {
        Ok(Job {
            head: serde_json::from_slice(&payload)?,
            payload,
            audience: Arc::new(self.audience),
            dedup_nonce: self.dedup_nonce,
            app_generation: self.app_generation,
            counted: self.counted,
            trace: self.trace.filter(|trace| trace.sampled),
            sent_by: self.sent_by.map(|name| Arc::from(&*name)),
            localized: self.localized.map(Arc::new),
            nonce: self.nonce.unwrap_or(self.dedup_nonce),
            continues: self.continues,
        })
    }
}

/// Reads a job; its payload is copied.
pub(super) fn decode_job(json: &RawValue) -> Result<Job, BadEnvelope> {
    let job: JobIn<'_> = serde_json::from_str(json.get())?;
    let payload = Bytes::copy_from_slice(job.payload.get().as_bytes());
    job.with(payload)
}

//! What travels through the queue. Every envelope carries its version; `tests/golden/` of this
//! crate keeps examples of every version that was ever written, and all of them must stay
//! readable.
//!
//! A job travels as the bytes that ingest made: it is written once, batches are put together by
//! joining such bytes, and the device payload inside is sent on as it is.

mod job;

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::job::encode_job;
use crate::{
    ids::{AppId, MessageId},
    index::Slice,
    ledger::{Position, StrandId},
    message::Audience,
    time::UnixMillis,
};

/// The version that is written.
pub const VERSION: u32 = 1;

/// Why an envelope cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BadEnvelope {
    /// Not the JSON it should be.
    #[error("not a readable envelope: {0}")]
    Json(#[from] serde_json::Error),
    /// Written by a newer program.
    #[error("envelope version {0} is newer than this program, which reads up to {VERSION}")]
    Version(u32),
}

/// One accepted push.
#[derive(Debug, Clone)]
pub struct Job {
    /// What routing and bookkeeping need of the payload.
    pub head: Head,
    /// The bytes a device receives: the JSON of a [`crate::message::Payload`].
    pub payload: Bytes,
    /// Whom it is for.
    pub audience: Arc<Audience>,
    /// Tells copies of one message id apart ([`crate::ledger::Entry::copy`]).
    pub copy: u64,
}

/// The part of a payload that the service itself reads.
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
struct JobOut<'a> {
    payload: &'a RawValue,
    audience: &'a Audience,
    copy: u64,
}

impl<'a> JobOut<'a> {
    fn of(job: &'a Job) -> Result<Self, serde_json::Error> {
        Ok(Self {
            payload: serde_json::from_slice(&job.payload)?,
            audience: &job.audience,
            copy: job.copy,
        })
    }
}

#[derive(Deserialize)]
struct JobIn<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
    audience: Audience,
    #[serde(default)]
    copy: u64,
}

fn decode_job(json: &RawValue) -> Result<Job, BadEnvelope> {
    let job: JobIn<'_> = serde_json::from_str(json.get())?;
    Ok(Job {
        head: serde_json::from_str(job.payload.get())?,
        payload: Bytes::copy_from_slice(job.payload.get().as_bytes()),
        audience: Arc::new(job.audience),
        copy: job.copy,
    })
}

/// Writes a decoded job as a batch of its own.
///
/// # Errors
/// If the job's payload is not JSON, which a decoded job's always is.
pub fn encode_alone(job: &Job) -> Result<Bytes, serde_json::Error> {
    Ok(encode_batch(&[serde_json::to_vec(&JobOut::of(job)?)?]))
}

const BATCH_HEAD: &[u8] = b"{\"v\":1,\"jobs\":[";
const BATCH_TAIL: &[u8] = b"]}";

/// Puts jobs that [`encode_job`] wrote into one envelope.
pub fn encode_batch<J: AsRef<[u8]>>(jobs: &[J]) -> Bytes {
    let len: usize = jobs.iter().map(|job| job.as_ref().len() + 1).sum();
    let mut out = Vec::with_capacity(BATCH_HEAD.len() + len + BATCH_TAIL.len());
    out.extend_from_slice(BATCH_HEAD);
    for (i, job) in jobs.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(job.as_ref());
    }
    out.extend_from_slice(BATCH_TAIL);
    out.into()
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

fn check_version(envelope: &[u8]) -> Result<(), BadEnvelope> {
    let Version { v } = serde_json::from_slice(envelope)?;
    if v > VERSION { Err(BadEnvelope::Version(v)) } else { Ok(()) }
}

/// A job that could be read, or the bytes of one that could not and why.
pub type JobResult = Result<Job, (Bytes, BadEnvelope)>;

/// Reads a batch. One unreadable job does not spoil the others.
///
/// # Errors
/// If the batch as a whole is unreadable.
pub fn decode_batch(envelope: &[u8]) -> Result<Vec<JobResult>, BadEnvelope> {
    #[derive(Deserialize)]
    struct Batch<'a> {
        #[serde(borrow)]
        jobs: Vec<&'a RawValue>,
    }
    check_version(envelope)?;
    let batch: Batch<'_> = serde_json::from_slice(envelope)?;
    let decode =
        |json: &RawValue| decode_job(json).map_err(|error| (encode_batch(&[json.get()]), error));
    Ok(batch.jobs.into_iter().map(decode).collect())
}

/// The rest of one strand of a broadcast.
#[derive(Debug, Clone)]
pub struct Task {
    /// The message.
    pub job: Job,
    /// Which strand.
    pub strand: StrandId,
    /// The whole strand of a broadcast; the ledger's checkpoint says how much of it is done.
    /// Empty for named devices, which are in the job's audience.
    pub slices: Vec<Slice>,
    /// How often it was put off in a row, or how often a retry's devices were tried.
    pub attempt: u32,
    /// The batch whose devices a retry tries again.
    pub retries: Option<BatchId>,
    /// Somebody else was working on the strand, and this was its checkpoint when this message
    /// was put off: it takes over only if the checkpoint has stayed there since.
    pub overtaken_at: Option<Position>,
}

/// A batch of a strand, by where it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchId {
    /// The strand.
    pub strand: StrandId,
    /// The checkpoint before the batch.
    pub from: Position,
}

impl Task {
    /// Writes the task's envelope.
    ///
    /// # Errors
    /// If the job's payload is not JSON, which a decoded job's always is.
    pub fn encode(&self) -> Result<Bytes, serde_json::Error> {
        #[derive(Serialize)]
        struct TaskOut<'a> {
            v: u32,
            job: JobOut<'a>,
            strand: StrandId,
            #[serde(skip_serializing_if = "<[Slice]>::is_empty")]
            slices: &'a [Slice],
            attempt: u32,
            #[serde(skip_serializing_if = "Option::is_none")]
            retries: Option<BatchId>,
            #[serde(skip_serializing_if = "Option::is_none")]
            overtaken_at: Option<Position>,
        }
        let out = TaskOut {
            v: VERSION,
            job: JobOut::of(&self.job)?,
            strand: self.strand,
            slices: &self.slices,
            attempt: self.attempt,
            retries: self.retries,
            overtaken_at: self.overtaken_at,
        };
        serde_json::to_vec(&out).map(Bytes::from)
    }

    /// Reads a task's envelope.
    ///
    /// # Errors
    /// If it is unreadable.
    pub fn decode(envelope: &[u8]) -> Result<Self, BadEnvelope> {
        #[derive(Deserialize)]
        struct TaskIn<'a> {
            #[serde(borrow)]
            job: &'a RawValue,
            strand: StrandId,
            #[serde(default)]
            slices: Vec<Slice>,
            #[serde(default)]
            attempt: u32,
            #[serde(default)]
            retries: Option<BatchId>,
            #[serde(default)]
            overtaken_at: Option<Position>,
        }
        check_version(envelope)?;
        let task: TaskIn<'_> = serde_json::from_slice(envelope)?;
        Ok(Self {
            job: decode_job(task.job)?,
            strand: task.strand,
            slices: task.slices,
            attempt: task.attempt,
            retries: task.retries,
            overtaken_at: task.overtaken_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Payload;

    const BATCH_V1: &[u8] = include_bytes!("../tests/golden/jobs-v1.json");
    const RETRY_V1: &[u8] = include_bytes!("../tests/golden/retry-v1.json");
    const TASK_V1: &[u8] = include_bytes!("../tests/golden/task-v1.json");

    #[test]
    fn a_batch_of_version_1_is_readable_and_written_the_same() {
        let jobs: Vec<Job> =
            decode_batch(BATCH_V1.trim_ascii()).unwrap().into_iter().map(Result::unwrap).collect();
        assert_eq!(jobs.len(), 3);
        let again: Vec<Vec<u8>> = jobs
            .iter()
            .map(|job| {
                let payload: Payload<'_> = serde_json::from_slice(&job.payload).unwrap();
                encode_job(&payload, &job.audience, job.copy).unwrap()
            })
            .collect();
        assert_eq!(encode_batch(&again), BATCH_V1.trim_ascii());
    }

    #[test]
    fn a_task_of_version_1_is_readable_and_written_the_same() {
        let task = Task::decode(TASK_V1.trim_ascii()).unwrap();
        assert_eq!(task.slices[1], Slice { shard: 7, from: 0, to: 12 });
        assert_eq!(task.encode().unwrap(), TASK_V1.trim_ascii());
        let retry = Task::decode(RETRY_V1.trim_ascii()).unwrap();
        assert_eq!(retry.strand, StrandId::Retry(42));
        assert_eq!(retry.encode().unwrap(), RETRY_V1.trim_ascii());
    }

    #[test]
    fn one_unreadable_job_does_not_spoil_its_batch() {
        let text = std::str::from_utf8(BATCH_V1).unwrap().replacen(
            "\"audience\":\"all\"",
            "\"audience\":7",
            1,
        );
        let jobs = decode_batch(text.as_bytes()).unwrap();
        assert_eq!(jobs.iter().filter(|job| job.is_err()).count(), 1);
        let (bytes, _) = jobs.into_iter().find_map(Result::err).unwrap();
        assert!(decode_batch(&bytes).is_ok(), "a dead letter can be replayed as a batch of one");
    }

    #[test]
    fn an_envelope_of_a_newer_version_is_refused_by_name() {
        let error = decode_batch(br#"{"v":2,"jobs":[]}"#).unwrap_err();
        assert!(matches!(error, BadEnvelope::Version(2)));
        assert!(decode_batch(b"").is_err());
        assert!(Task::decode(b"\xff").is_err());
    }
}

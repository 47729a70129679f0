//! What travels through the queue. Every envelope carries its version; `tests/golden/` of this
//! crate keeps examples of every version that was ever written, and all of them must stay
//! readable.
//!
//! A job travels as the bytes that ingest made: it is written once, batches are put together by
//! joining such bytes, and the device payload inside is sent on as it is.

mod compressed;
mod job;
mod task;

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::{
    compressed::compress,
    job::{encode_job, write_job},
    task::{ClosingCheck, PartitionTask, Task, Unsaved, Work},
};
use crate::{
    app::AppKey,
    ids::{AppId, MessageId},
    ledger::Earlier,
    message::Audience,
    time::UnixMillis,
};

/// The newest version that is readable: that of a compressed envelope. Jobs are written as version
/// 1, a [`Task`] as version 2.
pub const VERSION: u32 = compressed::VERSION;

/// Why an envelope cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BadEnvelope {
    /// Not the JSON it should be. The error's own text stays out of logs: it quotes the envelope,
    /// which holds what people write to each other.
    #[error("not a readable envelope: {what:?} error at column {column}",
        what = .0.classify(), column = .0.column())]
    Json(serde_json::Error),
    /// Written by a newer program.
    #[error("envelope version {0} is newer than this program, which reads up to {VERSION}")]
    Version(u64),
    /// A task that does not say what is to be done, or says two things.
    #[error("not a readable envelope: it must ask for exactly one of partition and closing")]
    Work,
    /// A plan that no program of ours cuts.
    #[error("not a readable envelope: its plan has too many partitions, or a slice without an end")]
    Plan,
    /// A task of a partition that no plan has.
    #[error("not a readable envelope: there is no partition {0}")]
    Partition(u32),
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
    /// Which app of its name accepted it ([`AppKey::generation`]).
    pub app_generation: u64,
    /// Names the queue message for a claim, as [`PartitionTask::nonce`]: the copy, unless a worker
    /// handed the job on.
    pub nonce: u64,
    /// As [`PartitionTask::continues`].
    pub continues: Vec<Earlier>,
}

impl Job {
    /// The app that accepted it, whose devices are meant. There may be another of its name by now.
    pub fn app(&self) -> AppKey {
        AppKey { id: self.head.app_id.clone(), generation: self.app_generation }
    }
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

impl From<serde_json::Error> for BadEnvelope {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

#[derive(Serialize)]
struct JobOut<'a> {
    payload: &'a RawValue,
    audience: &'a Audience,
    copy: u64,
    #[serde(skip_serializing_if = "is_first")]
    app_generation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<u64>,
    #[serde(skip_serializing_if = "<[Earlier]>::is_empty")]
    continues: &'a [Earlier],
}

fn is_first(generation: &u64) -> bool {
    *generation == 0
}

impl<'a> JobOut<'a> {
    fn of(job: &'a Job) -> Result<Self, serde_json::Error> {
        Ok(Self {
            payload: serde_json::from_slice(&job.payload)?,
            audience: &job.audience,
            copy: job.copy,
            app_generation: job.app_generation,
            nonce: (job.nonce != job.copy).then_some(job.nonce),
            continues: &job.continues,
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
    #[serde(default)]
    app_generation: u64,
    nonce: Option<u64>,
    #[serde(default)]
    continues: Vec<Earlier>,
}

impl JobIn<'_> {
    /// The job, with the bytes of its payload.
    fn with(self, payload: Bytes) -> Result<Job, BadEnvelope> {
        Ok(Job {
            head: serde_json::from_slice(&payload)?,
            payload,
            audience: Arc::new(self.audience),
            copy: self.copy,
            app_generation: self.app_generation,
            nonce: self.nonce.unwrap_or(self.copy),
            continues: self.continues,
        })
    }
}

fn decode_job(json: &RawValue) -> Result<Job, BadEnvelope> {
    let job: JobIn<'_> = serde_json::from_str(json.get())?;
    let payload = Bytes::copy_from_slice(job.payload.get().as_bytes());
    job.with(payload)
}

/// Writes a decoded job as a batch of its own.
///
/// # Errors
/// If the job's payload is not JSON, which a decoded job's always is.
pub fn encode_alone(job: &Job) -> Result<Bytes, serde_json::Error> {
    encode_jobs([job])
}

/// Writes decoded jobs as a batch.
///
/// # Errors
/// As [`encode_alone`].
pub fn encode_jobs<'a>(
    jobs: impl IntoIterator<Item = &'a Job>,
) -> Result<Bytes, serde_json::Error> {
    let write = |job| serde_json::to_vec(&JobOut::of(job)?);
    let jobs: Vec<Vec<u8>> = jobs.into_iter().map(write).collect::<Result<_, _>>()?;
    Ok(encode_batch(&jobs))
}

const BATCH_HEAD: &[u8] = b"{\"v\":1,\"jobs\":[";
const BATCH_TAIL: &[u8] = b"]}";

/// Puts a job behind others, so that [`encode_batch`] takes all of them for one.
pub fn join_job(joined: &mut Vec<u8>, job: &[u8]) {
    if !joined.is_empty() {
        joined.push(b',');
    }
    joined.extend_from_slice(job);
}

/// Puts jobs that [`encode_job`] wrote, or that [`join_job`] joined, into one envelope.
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
    v: u64,
}

/// The version of an envelope, if it is no newer than this one.
fn check_version(envelope: &[u8], newest: u32) -> Result<u32, BadEnvelope> {
    let Version { v } = serde_json::from_slice(envelope)?;
    u32::try_from(v).ok().filter(|v| *v <= newest).ok_or(BadEnvelope::Version(v))
}

/// A job that could be read, or the bytes of one that could not and why.
pub type JobResult = Result<Job, (Bytes, BadEnvelope)>;

/// Reads a batch. One unreadable job does not spoil the others.
///
/// # Errors
/// If the batch as a whole is unreadable.
pub fn decode_batch(envelope: &Bytes) -> Result<Vec<JobResult>, BadEnvelope> {
    let unpacked = compressed::unpack(envelope);
    let envelope = unpacked.as_ref().unwrap_or(envelope);
    if let Some(jobs) = decode_readable(envelope) {
        return Ok(jobs.into_iter().map(Ok).collect());
    }
    #[derive(Deserialize)]
    struct Batch<'a> {
        #[serde(borrow)]
        jobs: Vec<&'a RawValue>,
    }
    check_version(envelope, VERSION)?;
    let batch: Batch<'_> = serde_json::from_slice(envelope)?;
    let decode =
        |json: &RawValue| decode_job(json).map_err(|error| (encode_batch(&[json.get()]), error));
    Ok(batch.jobs.into_iter().map(decode).collect())
}

/// The jobs of an envelope if each of them can be read, which takes one look at its bytes in place of
/// three; their payloads are parts of the envelope.
fn decode_readable(envelope: &Bytes) -> Option<Vec<Job>> {
    #[derive(Deserialize)]
    struct Batch<'a> {
        v: u32,
        #[serde(borrow)]
        jobs: Vec<JobIn<'a>>,
    }
    let batch: Batch<'_> = serde_json::from_slice(envelope).ok()?;
    let decode = |job: JobIn<'_>| {
        let payload = envelope.slice_ref(job.payload.get().as_bytes());
        job.with(payload).ok()
    };
    batch.jobs.into_iter().map(decode).collect::<Option<_>>().filter(|_| batch.v <= VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Payload;

    const BATCH_V1: &[u8] = include_bytes!("../../tests/golden/jobs-v1.json");

    const BATCH_V3: &[u8] = include_bytes!("../../tests/golden/jobs-v3.json");

    #[test]
    fn a_compressed_batch_of_version_3_is_readable() {
        let jobs = decode_batch(&Bytes::from_static(BATCH_V3.trim_ascii())).unwrap();
        let first = batch_v1();
        let first = decode_batch(&first).unwrap();
        assert_eq!(jobs.len(), 8 * first.len());
        for (job, same) in jobs.into_iter().zip(first.iter().cycle()) {
            let (job, same) = (job.unwrap(), same.as_ref().unwrap());
            assert_eq!((&job.head, &job.payload, job.copy), (&same.head, &same.payload, same.copy));
        }
    }

    fn batch_v1() -> Bytes {
        Bytes::from_static(BATCH_V1.trim_ascii())
    }

    #[test]
    fn a_batch_of_version_1_is_readable_and_written_the_same() {
        let jobs: Vec<Job> =
            decode_batch(&batch_v1()).unwrap().into_iter().map(Result::unwrap).collect();
        assert_eq!(jobs.len(), 3);
        let again: Vec<Vec<u8>> = jobs
            .iter()
            .map(|job| {
                let payload: Payload<'_> = serde_json::from_slice(&job.payload).unwrap();
                encode_job(&payload, &job.audience, job.copy, job.app_generation).unwrap()
            })
            .collect();
        assert_eq!(encode_batch(&again), BATCH_V1.trim_ascii());
    }

    #[test]
    fn jobs_that_were_joined_before_are_in_an_envelope_like_any_other() {
        let job = |copy| {
            let batch = decode_batch(&batch_v1()).unwrap();
            let first = batch.into_iter().next().unwrap().unwrap();
            let payload: Payload<'_> = serde_json::from_slice(&first.payload).unwrap();
            encode_job(&payload, &first.audience, copy, 0).unwrap()
        };
        let mut joined = Vec::new();
        join_job(&mut joined, &job(1));
        join_job(&mut joined, &job(2));
        let together = encode_batch(&[job(0), joined, job(3)]);
        assert_eq!(together, encode_batch(&[job(0), job(1), job(2), job(3)]));
    }

    #[test]
    fn the_generation_of_an_app_is_kept_and_the_first_one_is_not_written() {
        let first = decode_batch(&batch_v1()).unwrap().remove(0).unwrap();
        assert_eq!(first.app(), AppKey::first(first.head.app_id.clone()));
        let payload: Payload<'_> = serde_json::from_slice(&first.payload).unwrap();
        let later = encode_job(&payload, &first.audience, first.copy, 7).unwrap();
        let later = decode_batch(&encode_batch(&[later])).unwrap().remove(0).unwrap();
        assert_eq!(later.app().generation, 7);
        let again = decode_batch(&encode_alone(&later).unwrap()).unwrap().remove(0).unwrap();
        assert_eq!(again.app(), later.app());
    }

    #[test]
    fn one_unreadable_job_does_not_spoil_its_batch() {
        let text = std::str::from_utf8(BATCH_V1).unwrap().replacen(
            "\"audience\":\"all\"",
            "\"audience\":7",
            1,
        );
        let jobs = decode_batch(&Bytes::from(text.clone())).unwrap();
        assert_eq!(jobs.iter().filter(|job| job.is_err()).count(), 1);
        let (bytes, _) = jobs.into_iter().find_map(Result::err).unwrap();
        assert!(decode_batch(&bytes).is_ok(), "a dead letter can be replayed as a batch of one");
    }

    #[test]
    fn an_envelope_of_a_newer_version_is_refused_by_name() {
        let error = decode_batch(&Bytes::from_static(br#"{"v":4,"jobs":[]}"#)).unwrap_err();
        assert!(matches!(error, BadEnvelope::Version(4)));
        assert!(decode_batch(&Bytes::new()).is_err());
        assert!(Task::decode(b"\xff").is_err());
    }
}

//! The envelope of the job lane.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    BadEnvelope, Job, VERSION, check_version, compressed,
    job::{JobIn, JobOut, decode_job},
};

/// Writes one job as an envelope of its own.
///
/// # Errors
/// If the job's payload is not JSON, which a decoded job's always is.
pub fn encode_alone(job: &Job) -> Result<Bytes, serde_json::Error> {
    encode_jobs([job])
}

/// Writes jobs that were read from an envelope.
///
/// # Errors
/// As [`encode_alone`].
pub fn encode_jobs<'a>(
    jobs: impl IntoIterator<Item = &'a Job>,
) -> Result<Bytes, serde_json::Error> {
    let write = |job| serde_json::to_vec(&JobOut::of(job)?);
    let jobs: Vec<Vec<u8>> = jobs.into_iter().map(write).collect::<Result<_, _>>()?;
    Ok(encode_job_envelope(&jobs))
}

const HEAD: &[u8] = b"{\"v\":1,\"jobs\":[";
const TAIL: &[u8] = b"]}";

/// Appends a job to others, so that [`encode_job_envelope`] can take all of them as one item.
pub fn join_job(joined: &mut Vec<u8>, job: &[u8]) {
    if !joined.is_empty() {
        joined.push(b',');
    }
    joined.extend_from_slice(job);
}

/// Puts jobs that [`encode_job`] wrote, or that [`join_job`] joined, into one envelope.
pub fn encode_job_envelope<J: AsRef<[u8]>>(jobs: &[J]) -> Bytes {
    let len: usize = jobs.iter().map(|job| job.as_ref().len() + 1).sum();
    let mut out = Vec::with_capacity(HEAD.len() + len + TAIL.len());
    out.extend_from_slice(HEAD);
    for (i, job) in jobs.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(job.as_ref());
    }
    out.extend_from_slice(TAIL);
    out.into()
}

/// A job of an envelope; or, if it cannot be read, an envelope of it alone and the error.
pub type JobResult = Result<Job, (Bytes, BadEnvelope)>;

/// Reads an envelope. An unreadable job does not affect the others.
///
/// # Errors
/// If the envelope as a whole is unreadable.
pub fn decode_job_envelope(envelope: &Bytes) -> Result<Vec<JobResult>, BadEnvelope> {
    let unpacked = compressed::unpack(envelope);
    let envelope = unpacked.as_ref().unwrap_or(envelope);
    if let Some(jobs) = decode_readable(envelope) {
        return Ok(jobs.into_iter().map(Ok).collect());
    }
    #[derive(Deserialize)]
    struct JobEnvelope<'a> {
        #[serde(borrow)]
        jobs: Vec<&'a RawValue>,
    }
    check_version(envelope)?;
    let read: JobEnvelope<'_> = serde_json::from_slice(envelope)?;
    let decode = |json: &RawValue| {
        decode_job(json).map_err(|error| (encode_job_envelope(&[json.get()]), error))
    };
    Ok(read.jobs.into_iter().map(decode).collect())
}

/// The jobs of an envelope if all of them can be read. This parses the bytes once instead of three
/// times, and the payloads are parts of the envelope instead of copies.
fn decode_readable(envelope: &Bytes) -> Option<Vec<Job>> {
    #[derive(Deserialize)]
    struct JobEnvelope<'a> {
        v: u32,
        #[serde(borrow)]
        jobs: Vec<JobIn<'a>>,
    }
    let read: JobEnvelope<'_> = serde_json::from_slice(envelope).ok()?;
    let decode = |job: JobIn<'_>| {
        let payload = envelope.slice_ref(job.payload.get().as_bytes());
        job.with(payload).ok()
    };
    read.jobs.into_iter().map(decode).collect::<Option<_>>().filter(|_| read.v <= VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        app::AppKey,
        envelope::{ClosingCheck, Head, JobMarks, Task, Work, encode_job, first_head},
        message::Payload,
    };

    const JOBS_V1: &[u8] = include_bytes!("../../../tests/golden/jobs-v1.json");

    const COMPRESSED_V1: &[u8] = include_bytes!("../../../tests/golden/compressed-v1.json");

    #[test]
    fn a_compressed_envelope_of_version_1_is_readable() {
        let jobs = decode_job_envelope(&Bytes::from_static(COMPRESSED_V1.trim_ascii())).unwrap();
        let first = jobs_v1();
        let first = decode_job_envelope(&first).unwrap();
        assert_eq!(jobs.len(), 8 * first.len());
        for (job, same) in jobs.into_iter().zip(first.iter().cycle()) {
            let (job, same) = (job.unwrap(), same.as_ref().unwrap());
            assert_eq!(
                (&job.head, &job.payload, job.dedup_nonce),
                (&same.head, &same.payload, same.dedup_nonce)
            );
        }
    }

    fn marks(job: &Job) -> JobMarks<'_> {
        let Job { dedup_nonce, app_generation, counted, trace, .. } = *job;
        let sent_by = job.sent_by.as_deref();
        let localized = job.localized.as_deref();
        JobMarks { dedup_nonce, app_generation, counted, trace, sent_by, localized }
    }

    fn jobs_v1_head() -> Head {
        decode_job_envelope(&jobs_v1()).unwrap().remove(0).unwrap().head
    }

    fn jobs_v1() -> Bytes {
        Bytes::from_static(JOBS_V1.trim_ascii())
    }

    #[test]
    fn an_envelope_of_version_1_is_readable_and_written_the_same() {
        let jobs: Vec<Job> =
            decode_job_envelope(&jobs_v1()).unwrap().into_iter().map(Result::unwrap).collect();
        assert_eq!(jobs.len(), 3);
        let again: Vec<Vec<u8>> = jobs
            .iter()
            .map(|job| {
                let payload: Payload<'_> = serde_json::from_slice(&job.payload).unwrap();
                encode_job(&payload, &job.audience, marks(job)).unwrap()
            })
            .collect();
        assert_eq!(encode_job_envelope(&again), JOBS_V1.trim_ascii());
    }

    #[test]
    fn jobs_that_were_joined_before_are_in_an_envelope_like_any_other() {
        let job = |dedup_nonce| {
            let jobs = decode_job_envelope(&jobs_v1()).unwrap();
            let first = jobs.into_iter().next().unwrap().unwrap();
            let payload: Payload<'_> = serde_json::from_slice(&first.payload).unwrap();
            encode_job(&payload, &first.audience, JobMarks { dedup_nonce, ..JobMarks::default() })
                .unwrap()
        };
        let mut joined = Vec::new();
        join_job(&mut joined, &job(1));
        join_job(&mut joined, &job(2));
        assert_eq!(first_head(&joined), Some(jobs_v1_head()));
        assert_eq!(first_head(b""), None);
        let together = encode_job_envelope(&[job(0), joined, job(3)]);
        assert_eq!(together, encode_job_envelope(&[job(0), job(1), job(2), job(3)]));
    }

    #[test]
    fn the_generation_of_an_app_is_kept_and_the_first_one_is_not_written() {
        let first = decode_job_envelope(&jobs_v1()).unwrap().remove(0).unwrap();
        assert_eq!(first.app(), AppKey::first(first.head.app_id.clone()));
        let payload: Payload<'_> = serde_json::from_slice(&first.payload).unwrap();
        let marks = JobMarks { app_generation: 7, counted: true, ..marks(&first) };
        let later = encode_job(&payload, &first.audience, marks).unwrap();
        let later = decode_job_envelope(&encode_job_envelope(&[later])).unwrap().remove(0).unwrap();
        assert_eq!((later.app().generation, later.counted), (7, true));
        let again = decode_job_envelope(&encode_alone(&later).unwrap()).unwrap().remove(0).unwrap();
        assert_eq!((again.app(), again.counted), (later.app(), true));
    }

    #[test]
    fn the_name_of_the_secret_travels_with_its_job_and_every_task() {
        let first = decode_job_envelope(&jobs_v1()).unwrap().remove(0).unwrap();
        let payload: Payload<'_> = serde_json::from_slice(&first.payload).unwrap();
        for name in ["ci", "with \"quotes\""] {
            let marks = JobMarks { sent_by: Some(name), ..marks(&first) };
            let job = encode_job(&payload, &first.audience, marks).unwrap();
            let job = decode_job_envelope(&encode_job_envelope(&[job])).unwrap().remove(0).unwrap();
            assert_eq!(job.sent_by.as_deref(), Some(name));
            let work = Work::Closing(ClosingCheck::default());
            let task = Task { job, plan: None, work }.encode().unwrap();
            assert_eq!(Task::decode(&task).unwrap().job.sent_by.as_deref(), Some(name));
        }
    }

    #[test]
    fn a_sampled_trace_travels_with_its_job_and_what_is_none_is_ignored() {
        const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let with = |field: &str| {
            let text = std::str::from_utf8(JOBS_V1.trim_ascii()).unwrap();
            let text = text.replace(r#","dedup_nonce":"#, &format!(r#",{field}"dedup_nonce":"#));
            decode_job_envelope(&Bytes::from(text)).unwrap().remove(0).unwrap()
        };
        assert_eq!(with("").trace, None);
        let job = with(&format!(r#""traceparent":"{PARENT}","#));
        assert_eq!(job.trace.unwrap().to_string(), PARENT);
        let alone = encode_alone(&job).unwrap();
        let again = decode_job_envelope(&alone).unwrap().remove(0).unwrap();
        assert_eq!(again.trace, job.trace);
        let work = Work::Closing(ClosingCheck::default());
        let task = Task { job, plan: None, work }.encode().unwrap();
        assert_eq!(Task::decode(&task).unwrap().job.trace, again.trace);
        let not_sampled = format!("{:?}", PARENT.replace("-01", "-00"));
        for other in ["\"x\"", "\"\"", "null", &not_sampled] {
            assert_eq!(with(&format!(r#""traceparent":{other},"#)).trace, None, "{other}");
        }
    }

    #[test]
    fn one_unreadable_job_does_not_affect_the_rest_of_its_envelope() {
        let text = std::str::from_utf8(JOBS_V1).unwrap().replacen(
            "\"audience\":\"all\"",
            "\"audience\":7",
            1,
        );
        let jobs = decode_job_envelope(&Bytes::from(text.clone())).unwrap();
        assert_eq!(jobs.iter().filter(|job| job.is_err()).count(), 1);
        let (bytes, _) = jobs.into_iter().find_map(Result::err).unwrap();
        assert!(
            decode_job_envelope(&bytes).is_ok(),
            "a dead letter can be replayed as an envelope of one job"
        );
    }

    #[test]
    fn an_envelope_of_a_newer_version_is_refused_by_name() {
        for newer in [r#"{"v":2,"jobs":[]}"#, r#"{"v":2,"len":0,"lz4":"AA"}"#] {
            let error = decode_job_envelope(&Bytes::from_static(newer.as_bytes())).unwrap_err();
            assert!(matches!(error, BadEnvelope::Version(2)), "{error}");
        }
        assert!(decode_job_envelope(&Bytes::new()).is_err());
        assert!(Task::decode(b"\xff").is_err());
    }
}

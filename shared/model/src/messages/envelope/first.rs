//! Finds the first message of an envelope for the log, even if the envelope cannot be read or may
//! crash its consumers. So only the first head is read, and a compressed envelope is not unpacked,
//! because unpacking may take much memory.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Head;
use crate::app::AppKey;

#[derive(Deserialize)]
struct Headed {
    payload: Head,
}

/// An envelope of either lane, with its jobs unread.
#[derive(Deserialize)]
struct Unread<'a> {
    #[serde(borrow, default)]
    jobs: Vec<&'a RawValue>,
    #[serde(borrow)]
    job: Option<&'a RawValue>,
}

/// The head of the first of some jobs that [`join_job`](super::join_job) joined. None if there is
/// none.
pub fn first_head(jobs: &[u8]) -> Option<Head> {
    let mut jobs = serde_json::Deserializer::from_slice(jobs).into_iter::<Headed>();
    jobs.next()?.ok().map(|job| job.payload)
}

/// The head of the message of a task, or of the first job of an envelope. None if it cannot be
/// read, or is compressed.
pub fn first_head_of_envelope(envelope: &[u8]) -> Option<Head> {
    let Unread { jobs, job } = serde_json::from_slice(envelope).ok()?;
    let first = job.or_else(|| jobs.first().copied())?;
    serde_json::from_str(first.get()).ok().map(|Headed { payload }| payload)
}

/// The app that an envelope of either lane is about. None if it is about several, cannot be read, or is
/// compressed.
pub fn app_of_envelope(envelope: &[u8]) -> Option<AppKey> {
    #[derive(Deserialize)]
    struct Owned {
        payload: Head,
        #[serde(default)]
        app_generation: u64,
    }
    let Unread { jobs, job } = serde_json::from_slice(envelope).ok()?;
    let mut all = jobs.into_iter().chain(job).map(|job| {
        let Owned { payload, app_generation } = serde_json::from_str(job.get()).ok()?;
        Some(AppKey { id: payload.app_id, generation: app_generation })
    });
    let first = all.next()??;
    all.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_belongs_to_an_app_if_all_its_jobs_do() {
        let job = |app: &str, generation: u64| {
            format!(
                r#"{{"payload":{{"message_id":"0192f0c1-2345-7abc-8def-0123456789ac","app_id":"{app}",
                "accepted_at":1,"expires_at":2}},"app_generation":{generation}}}"#
            )
        };
        let of = |jobs: &[String]| {
            app_of_envelope(format!(r#"{{"v":1,"jobs":[{}]}}"#, jobs.join(",")).as_bytes())
        };
        assert_eq!(of(&[job("a", 2), job("a", 2)]).unwrap().to_string(), "a@2");
        for mixed in [vec![], vec![job("a", 0), job("b", 0)], vec![job("a", 0), job("a", 1)]] {
            assert_eq!(of(&mixed), None);
        }
        assert_eq!(of(&[job("a", 0), r#"{"payload":1}"#.to_owned()]), None);
        let task = include_bytes!("../../../tests/golden/task-v1.json");
        assert_eq!(app_of_envelope(task).unwrap().id.as_str(), "demo");
    }

    #[test]
    fn an_envelope_of_which_no_more_can_be_read_still_says_which_message_it_is_about() {
        let golden: [&[u8]; 3] = [
            include_bytes!("../../../tests/golden/jobs-v1.json"),
            include_bytes!("../../../tests/golden/task-v1.json"),
            include_bytes!("../../../tests/golden/closing-v1.json"),
        ];
        for envelope in golden {
            let head = first_head_of_envelope(envelope);
            assert_eq!(head.unwrap().app_id.to_string(), "demo");
        }
        let payload = r#"{"message_id":"0192f0c1-2345-7abc-8def-0123456789ac","app_id":"news",
            "accepted_at":1,"expires_at":2}"#;
        let without_audience = format!(r#"{{"v":1,"jobs":[{{"payload":{payload}}}]}}"#);
        let head = first_head_of_envelope(without_audience.as_bytes()).unwrap();
        assert_eq!(head.app_id.to_string(), "news");
        for nothing in ["", "{", r#"{"v":1,"jobs":[]}"#, r#"{"v":1,"jobs":[{"payload":1}]}"#] {
            assert_eq!(first_head_of_envelope(nothing.as_bytes()), None, "{nothing}");
        }
    }
}

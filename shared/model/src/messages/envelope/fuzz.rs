//! Envelopes made of the corpora `job-envelope` and `task-envelope`, as a queue may hold them.

use bytes::Bytes;
use proptest::prop_assert_eq;

use super::*;

const TOKENS: [&str; 12] = [
    "\"v\":1",
    "\"v\":2",
    "\"v\":99999999999",
    "\"jobs\":[",
    "\"len\":68157440",
    "\"lz4\":\"",
    "\"partition\":{",
    "\"closing\":{",
    "\"payload\":",
    "4294967296",
    "-1",
    "null",
];

#[test]
fn an_unreadable_job_is_kept_as_an_envelope_that_is_as_unreadable() {
    push_fuzz::fuzz("job-envelope", &TOKENS, |envelope| {
        let Ok(jobs) = decode_job_envelope(&Bytes::copy_from_slice(envelope)) else {
            return Ok(());
        };
        for (alone, _) in jobs.into_iter().filter_map(Result::err) {
            let again = decode_job_envelope(&alone);
            let unreadable = again.map(|jobs| jobs.iter().map(Result::is_err).collect::<Vec<_>>());
            prop_assert_eq!(unreadable.ok(), Some(vec![true]));
        }
        Ok(())
    });
}

#[test]
fn a_task_that_is_read_is_written_and_read_the_same() {
    push_fuzz::fuzz("task-envelope", &TOKENS, |envelope| {
        let Ok(task) = Task::decode(envelope) else { return Ok(()) };
        let again = task.encode().map(|bytes| Task::decode(&bytes).map(|task| task.work));
        prop_assert_eq!(again.ok().and_then(Result::ok), Some(task.work));
        Ok(())
    });
}

//! The spans of a worker: what each line of the log is about, and the traces of messages.
//!
//! Each delivery has a span for the log: a task takes seconds, and an envelope has many jobs. A job
//! of a group has a span only if its message is traced or the log is asked for debug lines of this
//! program, because its work takes about as long as making some spans. The same holds for a batch,
//! whose task says already what it is about.

use bytes::Bytes;
use push_boot::{traced_span, traces};
use push_model::{
    envelope::{Head, Job, Task, Work, first_head_of_envelope},
    ledger::Outcomes,
    trace_parent::TraceParent,
};
use push_queue::Lane;
use tracing::{Span, error_span, field::Empty, field::display};

/// The span of a message that the queue delivers for the `deliveries`-th time. Its contents are
/// noted when it is decoded.
pub(crate) fn delivery(lane: Lane, deliveries: u32) -> Span {
    error_span!(
        "delivery",
        lane = lane.name(),
        deliveries,
        jobs = Empty,
        app = Empty,
        message_id = Empty,
        partition = Empty,
    )
}

/// Notes in the span of a delivery which jobs it has: how many, if there are several, and the first
/// that can be read, so that each line leads to a message. Naming all of them would cost more than
/// their work.
pub(crate) fn note_jobs<'a>(mut jobs: impl ExactSizeIterator<Item = Option<&'a Job>>) {
    let span = Span::current();
    if jobs.len() != 1 {
        span.record("jobs", jobs.len());
    }
    if let Some(first) = jobs.find_map(|job| job) {
        note_job(&span, first);
    }
}

/// Notes in the span of a delivery which task it has.
pub(crate) fn note_task(task: &Task) {
    let span = Span::current();
    note_job(&span, &task.job);
    if let Work::Partition(work) = &task.work {
        span.record("partition", work.partition);
    }
}

/// Notes in the current span which message an envelope is about that is not read further, if that
/// can be told.
pub(crate) fn note_envelope(envelope: &Bytes) {
    if let Some(head) = first_head_of_envelope(envelope) {
        note_head(&Span::current(), &head);
    }
}

fn note_job(span: &Span, job: &Job) {
    note_head(span, &job.head);
}

fn note_head(span: &Span, head: &Head) {
    span.record("app", display(&head.app_id));
    span.record("message_id", display(head.message_id));
}

/// The span of a job that cannot be read, within that of its delivery, which is about other jobs.
/// `number` is its place in the envelope, from 0.
pub(crate) fn unreadable_job(number: usize) -> Span {
    error_span!("job", number, app = Empty, message_id = Empty)
}

/// The span of a job that is processed by itself.
pub(crate) fn job(job: &Job) -> Span {
    let (app, message_id) = (&job.head.app_id, job.head.message_id);
    traced_span!(job.trace, ERROR, "job", %app, %message_id, otel.kind = "consumer")
}

/// The span of a job that is processed in a group.
pub(crate) fn grouped_job(job: &Job) -> Span {
    let (app, message_id) = (&job.head.app_id, job.head.message_id);
    traced_span!(job.trace, DEBUG, "job", %app, %message_id, otel.kind = "consumer")
}

pub(crate) fn task(task: &Task) -> Span {
    let (app, message_id) = (&task.job.head.app_id, task.job.head.message_id);
    let (work, partition) = match &task.work {
        Work::Partition(work) => ("partition", Some(work.partition)),
        Work::Closing(_) => ("closing", None),
    };
    let follows = task.job.trace;
    traced_span!(
        follows, DEBUG, "task", %app, %message_id, work, partition, otel.kind = "consumer"
    )
}

/// The span of a batch, within that of its job or task.
pub(crate) fn batch(job: &Job, partition: u32) -> Span {
    let (app, message_id) = (&job.head.app_id, job.head.message_id);
    // It follows the span that it is in.
    let follows = job.trace.map(|_| None::<TraceParent>);
    traced_span!(
        follows,
        DEBUG,
        "batch",
        %app,
        %message_id,
        partition,
        devices = Empty,
        sent = Empty,
        failed = Empty,
    )
}

/// Notes in the span of a batch how many devices it is for.
pub(crate) fn note_devices(span: &Span, devices: usize) {
    span.record("devices", devices);
}

/// Notes in the span of a batch what became of its devices.
pub(crate) fn note_outcomes(span: &Span, outcomes: &Outcomes) {
    span.record("sent", outcomes.sent);
    span.record("failed", outcomes.failed.values().sum::<u64>());
}

/// The job as the tasks of its broadcast carry it: their spans follow that of this job. If this
/// worker has no traces, they follow what this job's would.
pub(crate) fn continued(job: &Job) -> Job {
    let here = job.trace.and_then(|_| traces::trace_parent(&Span::current()));
    Job { trace: here.or(job.trace), ..job.clone() }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use push_model::envelope::decode_job_envelope;

    use super::*;

    #[derive(Debug, Default, Clone)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the log line of a delivery with these jobs, where `None` is one that cannot be read.
    fn line(jobs: &[Option<Job>]) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        tracing::subscriber::with_default(log.finish(), || {
            delivery(Lane::Jobs, 1).in_scope(|| {
                note_jobs(jobs.iter().map(Option::as_ref));
                tracing::info!("a line");
            });
        });
        let line = lines.0.lock().unwrap().clone();
        String::from_utf8(line).unwrap()
    }

    fn job(number: u64) -> Job {
        let envelope = format!(
            r#"{{"v":1,"jobs":[{{"payload":{{"message_id":"0192f0c1-2345-7abc-8def-{number:012}",
                "app_id":"app-{number}","type":2,"data":{{}},"accepted_at":1,"expires_at":2}},
                "audience":{{"clients":["c"]}},"dedup_nonce":0}}]}}"#
        );
        decode_job_envelope(&Bytes::from(envelope)).unwrap().remove(0).unwrap()
    }

    #[test]
    fn a_line_about_several_jobs_has_their_number_and_the_first_of_them() {
        let first = "app=app-1 message_id=0192f0c1-2345-7abc-8def-000000000001}";
        let alone = line(&[Some(job(1))]);
        assert!(alone.contains(&format!("deliveries=1 {first}")), "{alone}");
        for jobs in [vec![Some(job(1)), Some(job(2))], vec![None, Some(job(1))]] {
            let several = line(&jobs);
            assert!(several.contains(&format!("jobs=2 {first}")), "{several}");
        }
        let unreadable = line(&[None, None, None]);
        assert!(unreadable.contains("deliveries=1 jobs=3}"), "{unreadable}");
    }
}

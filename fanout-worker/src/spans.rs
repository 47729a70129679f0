//! The spans of a worker: what each line of the log is about, and the traces of messages.
//!
//! Each delivery has a span for the log: a task takes seconds, and an envelope has many jobs. A job
//! of a group has a span only if its message is traced or the log is asked for debug lines of this
//! program, because its work takes about as long as making some spans. The same holds for a batch,
//! whose task says already what it is about.

use push_model::{
    envelope::{Job, Task, Work},
    ledger::Outcomes,
    trace_parent::TraceParent,
};
use push_queue::{Delivery, Lane};
use push_service::{traced_span, traces};
use tracing::{Span, error_span, field::Empty, field::display};

/// The span of a delivery. What it holds is noted when it is decoded.
pub(crate) fn delivery(lane: Lane, delivery: &Delivery) -> Span {
    error_span!(
        "delivery",
        lane = lane.name(),
        deliveries = delivery.deliveries,
        jobs = Empty,
        app = Empty,
        message_id = Empty,
        partition = Empty,
    )
}

/// Notes in the span of a delivery which jobs it has.
pub(crate) fn note_jobs<'a>(mut jobs: impl ExactSizeIterator<Item = Option<&'a Job>>) {
    let span = Span::current();
    match (jobs.len(), jobs.next()) {
        (1, Some(Some(job))) => note_job(&span, job),
        (jobs, _) => _ = span.record("jobs", jobs),
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

fn note_job(span: &Span, job: &Job) {
    span.record("app", display(&job.head.app_id));
    span.record("message_id", display(job.head.message_id));
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

/// The span of a task.
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

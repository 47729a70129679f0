//! Pushes whose queue message is settled while a slow transport still holds some of their devices.
//!
//! An envelope of the job lane holds pushes of many apps, so none of them may wait for the transport
//! of another. What is not answered soon is *detached*: the outcomes that are known are saved, the
//! open devices are leftovers in the ledger, and a task is published that tries them again after the
//! longest time that a transport takes. This worker still owns the partition. It waits for the
//! answers without the queue message, and saves them when they come. If it dies, that task
//! continues.

use std::sync::Arc;

use push_model::{
    envelope::{Job, PartitionTask},
    ledger::Plan,
};
use push_queue::Lane;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug};

use super::carry_out::carry_out;
use crate::{
    context::Context,
    delivery::{PartitionRun, run::DetachedRun},
    spans,
};

/// The most runs that are detached at a time. More are waited for with their queue messages.
const MOST_DETACHED: usize = 256;

/// The runs of a worker that are detached.
#[derive(Debug)]
pub(crate) struct Detachments {
    free: Arc<Semaphore>,
    running: TaskTracker,
}

impl Default for Detachments {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(MOST_DETACHED)), running: TaskTracker::new() }
    }
}

impl Detachments {
    /// Takes room for one; none if there is none.
    pub(crate) fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_owned().ok()
    }

    /// Waits until all have ended.
    pub(crate) async fn finished(&self) {
        self.running.close();
        self.running.wait().await;
    }
}

/// Goes on with a run without its queue message.
pub(super) fn begin(
    context: &Context,
    job: &Job,
    plan: Option<&Plan>,
    task: PartitionTask,
    detached: DetachedRun,
) {
    let Some(context) = context.me.upgrade() else { return };
    let (job, plan) = (job.clone(), plan.cloned());
    let span = spans::job(&job);
    let running = context.detached.running.clone();
    let finish = async move {
        let stopping = detached.stopping().clone();
        let hold = context.retrier.hold(&|| true, &stopping);
        let run = PartitionRun {
            context: &context,
            job: &job,
            plan: plan.as_ref(),
            planned: plan.as_ref().and_then(|plan| plan.partition(task.partition)),
            lane: Lane::Jobs,
            slot: None,
            written_off: false,
            hold: &hold,
        };
        let ended = run.finish(detached).await;
        if carry_out(&context, &job, plan.as_ref(), task, ended, &hold).await.is_err() {
            debug!("the task that was published before continues");
        }
    };
    running.spawn(finish.instrument(span));
}

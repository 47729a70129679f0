//! A job that is processed by itself: a broadcast, a push that was delivered again, or one that
//! left its [`group`](super::group).
//!
//! A push to named devices and a small broadcast are one partition, which is sent immediately. A
//! larger broadcast is [shared](super::broadcast) with all workers.

use push_model::{
    envelope::{Job, LateDevices, PartitionTask, encode_alone},
    ledger::{Claim, Entry, Plan, PriorDeliveries},
    time::UnixMillis,
};
use push_queue::{Lane, QueueError};
use tokio::time::Instant;
use tracing::{Instrument as _, Span, debug, info};

use super::broadcast::{self, first_task};
use crate::{
    context::Context,
    control::{hold::Hold, retrier::RetryError},
    intake::{
        carry_out::carry_out,
        closing,
        settling::{Requeue, put_aside},
    },
    partition::{
        PartitionRun, RunEnd, RunResult,
        claim::{ClaimRequest, OwnedPartition},
        entry::{EntryOutcome, begin_entry},
        missing,
        run::{Continuation, DetachedRun, SentBatch, Start},
    },
    spans,
};

/// The stage that a job has reached.
#[derive(Debug)]
pub(super) enum JobStage {
    /// Nothing of it was sent. A claim with this owner number may have been made.
    NotSent { owner: u64 },
    /// It was sent to all devices that it names, and their outcomes are not saved.
    Sent(Box<SentBatch>),
}

/// One job of an envelope.
#[derive(Clone, Copy)]
pub(super) struct SingleJob<'a> {
    pub(super) context: &'a Context,
    pub(super) job: &'a Job,
    /// Number of times that its envelope was delivered.
    pub(super) deliveries: u32,
    pub(super) hold: &'a Hold<'a>,
}

impl SingleJob<'_> {
    /// Processes the job from the stage that it has reached, in its span if it has one already.
    pub(super) async fn process(&self, stage: JobStage, span: Span) -> Result<(), Requeue> {
        let span = if span.is_disabled() { spans::job(self.job) } else { span };
        let process = async {
            match stage {
                JobStage::NotSent { owner } => self.begin_entry(owner).await,
                JobStage::Sent(sent) => self.save(sent).await,
            }
        };
        process.instrument(span).await
    }

    /// Returns the claim of a push to named devices. The push has one partition, which is claimed
    /// in the step that begins the ledger entry.
    fn claim(&self, owner: u64) -> Option<Claim> {
        let Self { job, deliveries, .. } = *self;
        let claim = Claim { epoch: 1, nonce: job.nonce, delivery: deliveries, owner };
        job.audience.clients().map(|_| claim)
    }

    /// Begins the ledger entry and goes on from there.
    async fn begin_entry(&self, owner: u64) -> Result<(), Requeue> {
        let Self { context, job, hold, .. } = *self;
        let claim = self.claim(owner);
        let asked_at = Instant::now();
        // The pace is read concurrently, so that a small push does not wait for two answers in a
        // row. The run then finds it in the cache, and reads it again if this failed.
        let app = job.app();
        let pace = context.pace(&app, hold);
        let entry = async {
            if self.was_processed().await? {
                return Ok(EntryOutcome::Evicted);
            }
            begin_entry(context, job, None, claim, hold).await
        };
        let (entry, _) = tokio::join!(entry, pace);
        match entry {
            Ok(EntryOutcome::Evicted) => {
                info!("delivered again after its ledger entry was closed and evicted");
                Ok(())
            }
            Ok(EntryOutcome::Ours(entry, plan)) => self.begin(&entry, &plan, owner, asked_at).await,
            Ok(EntryOutcome::Duplicate) => {
                context.closed.count_repeated(job);
                Ok(())
            }
            Ok(EntryOutcome::Deferred(time)) => self.republish_later(time, claim.is_some()).await,
            Err(RetryError::Interrupted) => Err(Requeue::Unfinished),
            Err(RetryError::HoldExpired) => {
                self.republish_later(context.now(), claim.is_some()).await
            }
            Err(RetryError::Broken(reason)) => {
                let alone = encode_alone(job).map_err(|_| Requeue::Unfinished)?;
                put_aside(context, Lane::Jobs, alone, &reason, hold).await
            }
        }
    }

    /// Returns true if the message is over, and an earlier delivery closed its entry, which the ledger
    /// evicted since. That of a message that may still be sent is found out where an entry would begin.
    async fn was_processed(&self) -> Result<bool, RetryError> {
        let Self { context, job, hold, .. } = *self;
        let is_first = self.deliveries == 1 && job.continues.is_none();
        if is_first || !missing::is_over(context, job) {
            return Ok(false);
        }
        let (head, app) = (&job.head, job.app());
        let read = || context.ledger.partition(&app, &head.message_id, 0);
        let view = context.retrier.ask_store(hold, read).await?.value;
        Ok(view.is_none() && missing::was_processed(context, job, false, hold).await?)
    }

    async fn begin(
        &self,
        entry: &Entry,
        plan: &Plan,
        owner: u64,
        asked_at: Instant,
    ) -> Result<(), Requeue> {
        let Self { context, job, hold, .. } = *self;
        let is_broadcast = job.audience.clients().is_none();
        match plan.partitions.as_slice() {
            [] => {
                context.closed.count(job);
                Ok(())
            }
            [_] => {
                // The check comes first: once something was sent, the job must not be requeued
                // with its envelope because the check could not be published.
                if is_broadcast {
                    closing::begin(context, job, plan, hold).await?;
                }
                self.send_at_once(entry, plan, owner, asked_at).await
            }
            _ => {
                let job = spans::continued(job);
                Ok(broadcast::share(context, &job, entry, plan, hold).await?)
            }
        }
    }

    /// Sends a message of one partition, and hands on the rest.
    async fn send_at_once(
        &self,
        entry: &Entry,
        plan: &Plan,
        owner: u64,
        asked_at: Instant,
    ) -> Result<(), Requeue> {
        let run = self.run(plan);
        let (task, request) = self.claim_request(owner);
        let view = entry.view(0);
        let ended = match view.partition.state.claim {
            Some(claim) if claim.owner == owner => {
                let owned = OwnedPartition {
                    claim,
                    state: view.partition.state,
                    leftovers: view.partition.leftovers,
                    recalled: view.recalled,
                    checked_at: asked_at,
                    takeover: false,
                    saved: None,
                };
                run.run(request, Start::Claimed(owned)).await
            }
            _ => run.run(request, Start::Known(view, asked_at)).await,
        };
        if let RunResult {
            end: RunEnd::Interrupted,
            continuation: Continuation { claim: None, .. },
            ..
        } = ended
        {
            // This delivery knows of no claim; the next delivery takes over one that was made.
            return Err(Requeue::Unfinished);
        }
        self.carry_out(plan, task, ended).await
    }

    /// Publishes what remains of the partition, and waits for open devices without the queue
    /// message.
    async fn carry_out(
        &self,
        plan: &Plan,
        task: PartitionTask,
        mut ended: RunResult,
    ) -> Result<(), Requeue> {
        let Self { context, job, hold, .. } = *self;
        let detached = ended.detached.take();
        carry_out(context, job, Some(plan), task.clone(), ended, hold).await?;
        if let Some(detached) = detached {
            go_on_detached(context, job.clone(), plan.clone(), task, *detached);
        }
        Ok(())
    }

    /// Saves the outcomes of the batch that was sent, and hands on the rest of the message.
    async fn save(&self, sent: Box<SentBatch>) -> Result<(), Requeue> {
        let plan = Plan::named();
        let (task, request) = self.claim_request(sent.owned.claim.owner);
        let ended = self.run(&plan).run(request, Start::Sent(sent)).await;
        self.carry_out(&plan, task, ended).await
    }

    fn run<'b>(&'b self, plan: &'b Plan) -> PartitionRun<'b> {
        partition_run(self.context, self.job, plan, self.hold)
    }

    /// Returns the job's partition as a task, and the request to claim it.
    fn claim_request(&self, owner: u64) -> (PartitionTask, ClaimRequest) {
        let Self { job, deliveries, .. } = *self;
        let task = PartitionTask { continues: job.continues, ..first_task(0, job.nonce) };
        let request = ClaimRequest::of(&task, deliveries, owner);
        (task, request)
    }

    /// Publishes the job to be delivered again after `time`. `tried`: this delivery may have
    /// claimed it.
    async fn republish_later(&self, time: UnixMillis, tried: bool) -> Result<(), Requeue> {
        let Self { context, job, hold, deliveries, .. } = *self;
        let pause = context.retry.delay(0, context.jitter());
        let delay = time.since(context.now()).saturating_add(pause);
        let mut job = job.clone();
        if tried || deliveries > 1 {
            let earlier = PriorDeliveries::followed_by(job.continues, job.nonce, deliveries);
            job.continues = Some(earlier);
        }
        let publish = async || {
            let nonce = PriorDeliveries::next_nonce(job.continues, (context.random)());
            let job = Job { nonce, ..job.clone() };
            let alone = encode_alone(&job).map_err(|_| QueueError::Closed)?;
            context.queue.publish_later(Lane::Jobs, alone, delay).await
        };
        context.closed.report_put_off(&job, delay);
        Ok(context.retrier.publish(hold, publish).await?)
    }
}

/// A run on the only partition of a message, in the job lane.
fn partition_run<'a>(
    context: &'a Context,
    job: &'a Job,
    plan: &'a Plan,
    hold: &'a Hold<'a>,
) -> PartitionRun<'a> {
    PartitionRun {
        context,
        job,
        plan: Some(plan),
        planned: plan.partition(0),
        lane: Lane::Jobs,
        slot: None,
        late_devices: LateDevices::Expired,
        hold,
    }
}

/// Goes on with a run after its queue message is settled, because a slow transport still holds some
/// of its devices. An envelope has pushes of many apps, and none of them may wait for the transport
/// of another. The outcomes that are known are saved, and the open devices are leftovers in the
/// ledger. If this worker dies, the task that was just published continues.
fn go_on_detached(
    context: &Context,
    job: Job,
    plan: Plan,
    task: PartitionTask,
    detached: DetachedRun,
) {
    let Some(context) = context.me.upgrade() else { return };
    let span = spans::job(&job);
    let detachments = context.clone();
    let finish = async move {
        let stopping = detached.stopping().clone();
        let hold = context.retrier.hold(&|| true, &stopping);
        let ended = partition_run(&context, &job, &plan, &hold).finish(detached).await;
        if carry_out(&context, &job, Some(&plan), task, ended, &hold).await.is_err() {
            debug!("the task that was published before continues");
        }
    };
    detachments.detached.spawn(finish.instrument(span));
}

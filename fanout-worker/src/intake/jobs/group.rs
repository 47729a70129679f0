//! Pushes to named devices, processed as a group.
//!
//! Most jobs are for one or a few devices and take the same steps: the ledger entry is begun and
//! claimed while the devices are looked up; the push is sent; its outcomes are saved. Here the jobs
//! of an envelope take each step together: one call of the ledger begins all of them, one call of
//! the index finds the devices of each app, and one call saves all pushes that were sent by then. A
//! slow transport delays only the saving of its own job.
//!
//! The guarantees are those of [`run`](crate::partition::run), made in the same order: nothing is
//! sent before its entry is claimed and known not to be recalled, and a save requires the claim. A
//! job leaves the group at any step for one of these reasons, and is then processed by itself from
//! the stage that it has reached ([`single`](super::single)): its entry was there before, its app
//! has a pace, its message expired or was recalled, a device is to be tried again or removed, the
//! recall check is too old, the worker stops, or the index does not answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, future::join_all, stream};
use push_model::{
    app::AppKey,
    device::{Target, TargetFields},
    envelope::Job,
    ids::AudienceKind,
    ledger::{AdvanceOutcome, Claim, MessageStep, NewEntry, RECALL_CHECK},
};
use push_queue::Lane;
use tokio::time::Instant;
use tracing::{Instrument as _, debug};

use super::{JOBS_AT_ONCE, NumberedJob, NumberedResult, named, single::JobStage};
use crate::{
    context::Context,
    control::hold::Hold,
    intake::disposition::Disposition,
    partition::{
        RunEnd,
        batch::{Batch, Found, judge},
        claim::OwnedPartition,
        classification::{PriorAttempts, RetryRules, classify},
        entry::new_entry,
        run::{Answered, OpenBatches, SentBatch},
    },
    spans,
};
use push_transports::{Outcome, Permission};

/// Time for which a group waits for a push. After that, the job waits by itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pause before the ledger is read again for a transport that has more to write.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// The target of each device, or the reason why it has none.
type FoundDevices = Vec<Found>;

/// Processes jobs of one envelope together.
#[derive(Clone, Copy)]
pub(super) struct JobGroup<'a> {
    pub(super) context: &'a Context,
    /// Number of times that the envelope was delivered.
    pub(super) deliveries: u32,
    pub(super) hold: &'a Hold<'a>,
}

/// A job that is claimed, and whose devices were looked up.
struct Claimed<'a> {
    job: NumberedJob<'a>,
    claim: Claim,
    /// The claim, made at this time or later, found no recall.
    checked_at: Instant,
    found: FoundDevices,
}

/// The end of a step for some of its jobs.
#[derive(Default)]
pub(super) struct GroupStep<'a> {
    /// They are done.
    pub(super) saved: Vec<NumberedResult>,
    /// They leave the group at these stages.
    pub(super) leaving: Vec<(NumberedJob<'a>, JobStage)>,
}

impl<'a> JobGroup<'a> {
    /// Processes these jobs, all of which are [groupable](super::is_groupable).
    pub(super) fn process(
        self,
        jobs: Vec<NumberedJob<'a>>,
    ) -> impl Stream<Item = GroupStep<'a>> + 'a {
        stream::iter(into_steps(jobs, self.context.run.batch))
            .map(move |jobs| self.begin(jobs))
            .buffer_unordered(JOBS_AT_ONCE)
            .map(move |(claimed, leaving)| {
                let leaving = GroupStep { leaving, ..GroupStep::default() };
                stream::iter([leaving]).chain(self.deliver(claimed)).boxed()
            })
            .flatten_unordered(JOBS_AT_ONCE)
    }

    /// Sends pushes one by one, and saves in one step those that were sent by then.
    fn deliver(self, claimed: Vec<Claimed<'a>>) -> impl Stream<Item = GroupStep<'a>> + 'a {
        let most = claimed.len().max(1);
        stream::iter(claimed)
            .map(move |one| self.send(one))
            .buffer_unordered(JOBS_AT_ONCE)
            .ready_chunks(most)
            .map(move |sent| self.save(sent))
            .buffer_unordered(JOBS_AT_ONCE)
    }

    /// Begins and claims jobs, and looks their devices up. Returns the jobs that can be sent, and
    /// those that leave the group, each with its stage.
    async fn begin(
        self,
        jobs: Vec<NumberedJob<'a>>,
    ) -> (Vec<Claimed<'a>>, Vec<(NumberedJob<'a>, JobStage)>) {
        let Self { context, .. } = self;
        let claims: Vec<Claim> = jobs.iter().map(|one| self.claim(one.job)).collect();
        let entries: Vec<NewEntry> = jobs
            .iter()
            .zip(&claims)
            .map(|(one, claim)| new_entry(context, one.job, None, Some(*claim)))
            .collect();
        let checked_at = Instant::now();
        let (begun, found) = tokio::join!(context.ledger.begin_all(&entries), self.look_up(&jobs));
        let (mut claimed, mut leaving) = (Vec::with_capacity(jobs.len()), Vec::new());
        // An entry without an answer counts as not begun: the job by itself reads what the ledger
        // has.
        let is_begun = begun.into_iter().map(|begun| begun.unwrap_or(false));
        let is_begun = is_begun.chain(std::iter::repeat(false));
        let jobs = jobs.into_iter().zip(claims).zip(found).zip(is_begun);
        for (((job, claim), found), is_begun) in jobs {
            match found {
                Some(found) if is_begun => claimed.push(Claimed { job, claim, checked_at, found }),
                _ => leaving.push((job, JobStage::NotSent { owner: claim.owner })),
            }
        }
        (claimed, leaving)
    }

    fn claim(&self, job: &Job) -> Claim {
        let owner = (self.context.random)();
        Claim { epoch: 1, nonce: job.nonce, delivery: self.deliveries, owner }
    }

    /// Looks up the devices of each job. Returns `None` for a job whose app has a pace, or whose
    /// devices or pace could not be read.
    async fn look_up(self, jobs: &[NumberedJob<'a>]) -> Vec<Option<FoundDevices>> {
        let mut by_app: BTreeMap<AppKey, Vec<(usize, &'a Job)>> = BTreeMap::new();
        for (position, NumberedJob { job, .. }) in jobs.iter().enumerate() {
            by_app.entry(job.app()).or_default().push((position, job));
        }
        let of_apps = by_app.into_iter().map(|(app, jobs)| self.look_up_app(app, jobs));
        let mut all: Vec<Option<FoundDevices>> = jobs.iter().map(|_| None).collect();
        for (position, found) in join_all(of_apps).await.into_iter().flatten() {
            all[position] = Some(found);
        }
        all
    }

    /// Looks up the devices of one app's jobs, each with its position. Returns nothing if the index
    /// does not answer.
    async fn look_up_app(
        self,
        app: AppKey,
        jobs: Vec<(usize, &'a Job)>,
    ) -> Vec<(usize, FoundDevices)> {
        let Self { context, .. } = self;
        let mut clients = Vec::with_capacity(jobs.len());
        for (_, job) in &jobs {
            clients.extend_from_slice(named(job).unwrap_or_default());
        }
        // Not retried here, because that would delay the whole group: a job by itself retries.
        let index = &*context.index;
        let pace = context.paces.ask(&app, index);
        let targets = async {
            let asked_at = Instant::now();
            // A language that no message needs is harmless.
            let is_localized = jobs.iter().any(|(_, job)| job.localized.is_some());
            let fields =
                if is_localized { TargetFields::WithLanguage } else { TargetFields::Address };
            let found = index.targets(&app, &clients, fields).await;
            context.metrics.targeted(AudienceKind::Named, asked_at.elapsed());
            found
        };
        let (found, pace) = tokio::join!(targets, pace);
        let (Ok(found), Ok(None)) = (found, pace) else { return Vec::new() };
        let mut found = found.into_iter();
        let each = jobs.into_iter().map(|(position, job)| {
            let clients = named(job).unwrap_or_default();
            (position, judge(job, clients, found.by_ref()))
        });
        each.collect()
    }

    /// Sends a push to its devices, if it may still be sent.
    async fn send(self, one: Claimed<'a>) -> (NumberedJob<'a>, JobStage) {
        let Self { context, hold, .. } = self;
        let Claimed { job: one, claim, checked_at, found } = one;
        let job = one.job;
        let deadline = context.deadline(&job.head);
        let may_be_sent = !hold.is_stopping() && context.now() <= deadline;
        if !may_be_sent || checked_at.elapsed() > RECALL_CHECK {
            return (one, JobStage::NotSent { owner: claim.owner });
        }
        let started = Instant::now();
        let mut batch = Batch::of_all(found);
        let span = one.span.in_scope(|| spans::batch(job, 0));
        let targets = std::mem::take(&mut batch.targets);
        let devices = targets.len();
        let (lifetime, clock) = (context.lifetime(&job.head), context.clock.clone());
        let permission = Permission::new(lifetime, clock, hold.stopping().clone(), checked_at);
        let (mut open, outgoing) = (OpenBatches::default(), Arc::new(context.outgoing(job)));
        let prior = PriorAttempts::default();
        let key =
            open.begin(&context.transports, &outgoing, targets, prior, (&permission, Lane::Jobs));
        let answered = self.wait_for(&mut open, &permission, job, claim);
        let checked_at = answered.instrument(span.clone()).await.unwrap_or(checked_at);
        context.metrics.batch_sent(devices, started.elapsed());
        let Answered { devices: answered, handed_over_at, .. } = open.take_answered(key);
        let rules = RetryRules::now(context, deadline, handed_over_at);
        let each = answered.iter().map(|(target, outcome)| (target.transport, *outcome));
        context.metrics.answered((&job.head, AudienceKind::Named), each, context.now());
        let (targets, outcomes): (Vec<&Target>, Vec<Outcome>) =
            answered.iter().map(|(target, outcome)| (target, *outcome)).unzip();
        let mut result = classify(targets, outcomes, prior, &rules);
        context.metrics.failed(&result.failed);
        batch.handed_over = devices as u64;
        if open.leave_open(key, &rules) > 0 {
            result.not_sent = None;
        }
        if !span.is_disabled() {
            spans::note_devices(&span, devices);
            spans::note_outcomes(&span, &result.counts(&batch).outcomes);
        }
        let owned = OwnedPartition::begun(claim, checked_at);
        (one, JobStage::Sent(Box::new(SentBatch { owned, batch, result, open, permission })))
    }

    /// Waits until every device of a push is answered, for at most [`PATIENCE`]. Reads the ledger
    /// again for a transport that has more to write, and returns when such a read last found no
    /// recall.
    async fn wait_for(
        self,
        open: &mut OpenBatches,
        permission: &Permission,
        job: &Job,
        claim: Claim,
    ) -> Option<Instant> {
        let (ledger, message, app) = (&self.context.ledger, &job.head.message_id, job.app());
        let mut checked = None;
        let over = tokio::time::sleep(PATIENCE);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                _ = open.progress() => return checked,
                () = &mut over => return checked,
                () = permission.wanted() => {
                    let asked_at = Instant::now();
                    // A read that fails is made again as long as a transport wants it.
                    let Ok(view) = ledger.partition(&app, message, 0).await else {
                        tokio::time::sleep(READ_AGAIN).await;
                        continue;
                    };
                    match view {
                        Some(view)
                            if !view.recalled && view.partition.state.claim == Some(claim) =>
                        {
                            permission.renew(asked_at);
                            checked = Some(asked_at);
                        }
                        _ => permission.withdraw(),
                    }
                }
            }
        }
    }

    /// Saves the outcomes of pushes that were sent.
    async fn save(self, sent: Vec<(NumberedJob<'a>, JobStage)>) -> GroupStep<'a> {
        let Self { context, .. } = self;
        let (mut complete, mut steps, mut leaving) = (Vec::new(), Vec::new(), Vec::new());
        for (one, stage) in sent {
            let step = match &stage {
                JobStage::Sent(sent) => sent.final_step(one.job.dedup_nonce),
                JobStage::NotSent { .. } => None,
            };
            match step {
                Some(step) => {
                    let head = &one.job.head;
                    let (app, message) = (one.job.app(), head.message_id);
                    steps.push(MessageStep { app, message, step });
                    complete.push((one, stage));
                }
                None => leaving.push((one, stage)),
            }
        }
        let outcomes = context.ledger.advance_all(&steps).await;
        let mut saved = Vec::with_capacity(complete.len());
        let outcomes = outcomes.into_iter().map(Result::ok).chain(std::iter::repeat(None));
        for (((one, stage), step), outcome) in complete.into_iter().zip(&steps).zip(outcomes) {
            if let Some(AdvanceOutcome::Saved { .. }) = outcome {
                let NumberedJob { number, job, span } = one;
                span.in_scope(|| debug!("sent and saved"));
                context.metrics.committed(&step.app.id, &step.step.counts);
                context.closed.count(job);
                saved.push((number, Ok(())));
            } else {
                // The job saves its batch by itself, which shows why the step failed.
                leaving.push((one, stage));
            }
        }
        let ended = saved.len() as u64;
        context.metrics.runs_ended(RunEnd::Finished.name(), ended);
        context.metrics.runs(Disposition::Accept.name(), ended);
        GroupStep { saved, leaving }
    }
}

/// Cuts jobs into steps that name at most `most` devices together. A job that names more is a step
/// of its own.
fn into_steps(jobs: Vec<NumberedJob<'_>>, most: usize) -> Vec<Vec<NumberedJob<'_>>> {
    let mut steps: Vec<Vec<NumberedJob<'_>>> = Vec::new();
    let mut room = 0;
    for one in jobs {
        let devices = named(one.job).unwrap_or_default().len();
        match steps.last_mut() {
            Some(step) if devices <= room => step.push(one),
            _ => {
                steps.push(vec![one]);
                room = most;
            }
        }
        room = room.saturating_sub(devices);
    }
    steps
}

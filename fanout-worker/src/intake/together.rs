//! Pushes to named devices, worked off together.
//!
//! Most jobs are for one device or a few, and take the same course: the entry is begun and claimed
//! while the devices are looked up; they are sent to; and what became of them is saved. Here the
//! jobs of an envelope take each of these steps at once: one call of the ledger begins all of them,
//! one of the index finds the devices of each app, and what was sent by then is saved in one call. A
//! transport that takes its time holds up the saving of its own job and of no other.
//!
//! The guarantees are those of [`run`](crate::delivery::run), made in the same order: nothing is
//! sent before its entry is claimed and known not to be recalled, and a save requires the claim.
//! What leaves the course at any step goes on from there by the rules for a job on its own
//! ([`alone`](super::alone)): an entry that was there before, an app with a pace, a message that
//! expired or was recalled, a device that is to be tried again, an index that does not answer.

use std::collections::BTreeMap;

use futures::{
    Stream, StreamExt,
    future::join_all,
    stream::{self, BoxStream},
};
use push_model::{
    app::AppKey,
    device::{NoTarget, Target},
    envelope::Job,
    ids::ClientId,
    ledger::{Advanced, Claim, MessageStep, Opened, Outcomes, PartitionState, RECALL_CHECK},
    message::Audience,
};
use tokio::time::Instant;
use tracing::debug;

use super::{
    Disposition,
    alone::{OneJob, Reached},
    jobs::JOBS_AT_ONCE,
    settling::Undecided,
};
use crate::{
    context::Context,
    control::hold::Hold,
    delivery::{
        batch::Batch,
        claim::Owned,
        opening::opened,
        run::Sent,
        sorting::{Rules, Tried, sort},
    },
};

/// Whether a job may take the common course: it is the first time that its envelope is handed out,
/// and one batch holds all devices that it names.
pub(super) fn is_ordinary(context: &Context, job: &Job, deliveries: u32) -> bool {
    let is_new = deliveries == 1 && job.continues.is_empty();
    is_new && named(job).is_some_and(|named| named.len() <= context.run.batch)
}

/// The devices that a job names; none if it is a broadcast.
fn named(job: &Job) -> Option<&[ClientId]> {
    match &*job.audience {
        Audience::Clients(clients) => Some(clients),
        Audience::All | Audience::Targeting(_) => None,
    }
}

/// How devices are reached, or why they are not.
type Found = Vec<Result<Target, NoTarget>>;

/// A job by its number in the envelope.
type Numbered<'a> = (usize, &'a Job);

/// What became of the job with this number.
pub(super) type Decided = (usize, Result<(), Undecided>);

/// Works off jobs of one envelope.
#[derive(Clone, Copy)]
pub(super) struct Together<'a> {
    pub(super) context: &'a Context,
    /// How often the envelope was handed out.
    pub(super) deliveries: u32,
    pub(super) hold: &'a Hold<'a>,
}

/// A job that is claimed, whose devices are known.
struct Claimed<'a> {
    number: usize,
    job: &'a Job,
    claim: Claim,
    /// It was not recalled at this time or later.
    checked_at: Instant,
    found: Found,
}

impl<'a> Together<'a> {
    /// Works off these jobs, all of which are ordinary.
    pub(super) fn work_off(self, jobs: Vec<Numbered<'a>>) -> impl Stream<Item = Decided> + 'a {
        stream::iter(in_steps(jobs, self.context.run.batch))
            .map(move |jobs| self.begin(jobs))
            .buffer_unordered(JOBS_AT_ONCE)
            .map(move |(claimed, others)| {
                stream::select(self.deliver(claimed), self.each_alone(others))
            })
            .flatten_unordered(JOBS_AT_ONCE)
    }

    /// Sends pushes, and saves together what was sent by then.
    fn deliver(self, claimed: Vec<Claimed<'a>>) -> BoxStream<'a, Decided> {
        let most = claimed.len().max(1);
        stream::iter(claimed)
            .map(move |one| self.send(one))
            .buffer_unordered(JOBS_AT_ONCE)
            .ready_chunks(most)
            .map(move |sent| self.save(sent))
            .buffer_unordered(JOBS_AT_ONCE)
            .flat_map(stream::iter)
            .boxed()
    }

    /// Goes on with each of these jobs on its own.
    fn each_alone(self, jobs: Vec<(Numbered<'a>, Reached)>) -> BoxStream<'a, Decided> {
        let each = stream::iter(jobs).map(move |(job, reached)| self.alone(job, reached));
        each.buffer_unordered(JOBS_AT_ONCE).boxed()
    }

    /// Begins and claims jobs, and looks their devices up. Gives those that can be sent, and those
    /// that go on alone, with how far each of them has come.
    async fn begin(
        self,
        jobs: Vec<Numbered<'a>>,
    ) -> (Vec<Claimed<'a>>, Vec<(Numbered<'a>, Reached)>) {
        let Self { context, .. } = self;
        let claims: Vec<Claim> = jobs.iter().map(|(_, job)| self.claim(job)).collect();
        let entries: Vec<Opened> = jobs
            .iter()
            .zip(&claims)
            .map(|((_, job), claim)| opened(context, job, None, Some(*claim)))
            .collect();
        let checked_at = Instant::now();
        let (begun, found) = tokio::join!(context.index.begin_all(&entries), self.look_up(&jobs));
        let (mut claimed, mut others) = (Vec::with_capacity(jobs.len()), Vec::new());
        // One without an answer counts as not begun: on its own it finds out.
        let begun = begun.into_iter().map(|begun| begun.unwrap_or(false));
        let begun = begun.chain(std::iter::repeat(false));
        for ((((number, job), claim), found), begun) in
            jobs.into_iter().zip(claims).zip(found).zip(begun)
        {
            match found {
                Some(found) if begun => {
                    claimed.push(Claimed { number, job, claim, checked_at, found });
                }
                _ => others.push(((number, job), Reached::Nothing { owner: claim.owner })),
            }
        }
        (claimed, others)
    }

    fn claim(&self, job: &Job) -> Claim {
        let owner = (self.context.random)();
        Claim { generation: 1, nonce: job.nonce, delivery: self.deliveries, owner }
    }

    /// How the devices of these jobs are reached; none for a job of an app that has a pace, or
    /// whose devices or pace could not be read.
    async fn look_up(self, jobs: &[Numbered<'a>]) -> Vec<Option<Found>> {
        let mut by_app: BTreeMap<AppKey, Vec<Numbered<'a>>> = BTreeMap::new();
        for (place, (_, job)) in jobs.iter().enumerate() {
            by_app.entry(job.app()).or_default().push((place, job));
        }
        let of_apps = by_app.into_iter().map(|(app, jobs)| self.look_up_of(app, jobs));
        let mut all: Vec<Option<Found>> = jobs.iter().map(|_| None).collect();
        for (place, found) in join_all(of_apps).await.into_iter().flatten() {
            all[place] = Some(found);
        }
        all
    }

    /// The same for jobs of one app, each with its place; nothing if there is no answer.
    async fn look_up_of(self, app: AppKey, jobs: Vec<Numbered<'a>>) -> Vec<(usize, Found)> {
        let Self { context, .. } = self;
        let mut clients = Vec::with_capacity(jobs.len());
        for (_, job) in &jobs {
            clients.extend_from_slice(named(job).unwrap_or_default());
        }
        // Nothing is asked for again here, because that would delay all of them: a job on its own asks
        // again.
        let index = &*context.index;
        let pace = context.paces.ask(&app, index);
        let (found, pace) = tokio::join!(index.targets(&app, &clients), pace);
        let (Ok(found), Ok(None)) = (found, pace) else { return Vec::new() };
        let mut found = found.into_iter();
        let each = jobs.into_iter().map(|(place, job)| {
            let devices = named(job).unwrap_or_default().len();
            (place, found.by_ref().take(devices).collect())
        });
        each.collect()
    }

    /// Sends a push to its devices, if it may still be sent.
    async fn send(self, one: Claimed<'a>) -> (Numbered<'a>, Reached) {
        let Self { context, hold, .. } = self;
        let Claimed { number, job, claim, checked_at, found } = one;
        let deadline = context.deadline(&job.head);
        let may_be_sent = !hold.is_stopping() && context.now() <= deadline;
        if !may_be_sent || checked_at.elapsed() > RECALL_CHECK {
            return ((number, job), Reached::Nothing { owner: claim.owner });
        }
        let started = Instant::now();
        let batch = Batch::of_all(found);
        let outgoing = context.outgoing(job);
        let answers = context.transports.deliver(&outgoing, &batch.targets, || context.now()).await;
        context.metrics.batch_took(started.elapsed());
        let rules = Rules::now(context, deadline);
        let sorted = sort(&batch.targets, answers, Tried::default(), &rules);
        let owned = Owned {
            claim,
            state: PartitionState { claim: Some(claim), ..PartitionState::default() },
            leftovers: Vec::new(),
            recalled: false,
            checked_at,
            again: false,
            saved: None,
        };
        ((number, job), Reached::Sent(Box::new(Sent { owned, batch, sorted })))
    }

    /// Saves what became of pushes that were sent.
    async fn save(self, sent: Vec<(Numbered<'a>, Reached)>) -> Vec<Decided> {
        let Self { context, .. } = self;
        let (mut last, mut steps, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for ((number, job), reached) in sent {
            let step = match &reached {
                Reached::Sent(sent) => sent.last_step(job.copy),
                Reached::Nothing { .. } => None,
            };
            match step {
                Some(step) => {
                    let (app, message) = (job.head.app_id.clone(), job.head.message_id);
                    steps.push(MessageStep { app, message, step });
                    last.push(((number, job), reached));
                }
                None => others.push(((number, job), reached)),
            }
        }
        let saved = context.index.advance_all(&steps).await;
        let mut decided = Vec::with_capacity(last.len() + others.len());
        let (mut outcomes, mut ended) = (Outcomes::default(), 0);
        let saved = saved.into_iter().map(Result::ok).chain(std::iter::repeat(None));
        for ((((number, job), reached), step), saved) in last.into_iter().zip(&steps).zip(saved) {
            if let Some(Advanced::Saved { .. }) = saved {
                debug!(message_id = %job.head.message_id, "sent and saved");
                outcomes.add(&step.step.counts.outcomes);
                ended += 1;
                decided.push((number, Ok(())));
            } else {
                // The step for one message alone finds out why.
                others.push(((number, job), reached));
            }
        }
        context.metrics.settled(&outcomes);
        context.metrics.runs(&Disposition::Accept, ended);
        decided.extend(self.each_alone(others).collect::<Vec<_>>().await);
        decided
    }

    async fn alone(self, (number, job): Numbered<'a>, reached: Reached) -> Decided {
        let Self { context, deliveries, hold } = self;
        (number, OneJob { context, job, deliveries, hold }.go_on(reached).await)
    }
}

/// Cuts jobs into those that are worked off in one step, which name so many devices together, or
/// are one.
fn in_steps(jobs: Vec<Numbered<'_>>, most: usize) -> Vec<Vec<Numbered<'_>>> {
    let mut steps: Vec<Vec<Numbered<'_>>> = Vec::new();
    let mut room = 0;
    for (number, job) in jobs {
        let devices = named(job).unwrap_or_default().len();
        match steps.last_mut() {
            Some(step) if devices <= room => step.push((number, job)),
            _ => {
                steps.push(vec![(number, job)]);
                room = most;
            }
        }
        room = room.saturating_sub(devices);
    }
    steps
}

//! Devices that a transport asks to try later.
//!
//! They are published as a task of their own, to come back after a delay, *before* their batch is
//! saved; the save then opens the retry under the number that the task carries. So nothing is
//! lost when the worker dies in between, and nothing is sent without being counted: a task
//! whose number is not open is one of two things, and [`what_now`] tells them apart.

use std::time::Duration;

use push_shared::{
    envelope::{BatchId, Job, Task},
    ids::ClientId,
    ledger::{Entry, Position, StrandId},
    message::Audience,
    queue::Lane,
};
use tokio_util::sync::CancellationToken;

use crate::{core::Core, verdict::TurnEnd};

/// The devices of a batch to try later.
#[derive(Debug, Default)]
pub(crate) struct Later {
    clients: Vec<ClientId>,
    /// The longest time that the transport asked for.
    wanted: Duration,
}

impl Later {
    pub(crate) fn add(&mut self, client: ClientId, wanted: Option<Duration>) {
        self.clients.push(client);
        self.wanted = self.wanted.max(wanted.unwrap_or_default());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Publishes the retry; gives the number under which the batch's save must open it.
    ///
    /// The delay is what the back-off says or what the transport asks for, whichever is longer,
    /// but never past the expiry: what expires is counted soon after.
    pub(crate) async fn hand_on(
        self,
        core: &Core,
        job: &Job,
        batch: BatchId,
        attempt: u32,
        stopping: &CancellationToken,
    ) -> Result<StrandId, TurnEnd> {
        let id = StrandId::Retry((core.random)());
        let delay = core.backoff.delay(attempt, core.jitter()).max(self.wanted);
        let delay = delay.min(job.head.expires_at.since(core.now()));
        let job = Job { audience: Audience::Clients(self.clients).into(), ..job.clone() };
        let task = Task {
            job,
            strand: id,
            slices: Vec::new(),
            attempt: attempt.saturating_add(1),
            retries: Some(batch),
            overtaken_at: None,
        };
        let envelope = task.encode().map_err(|error| TurnEnd::Broken(error.to_string()))?;
        let publish = || core.queue.publish_later(Lane::Tasks, envelope.clone(), delay);
        core.patience.publish_until(stopping, publish).await?;
        Ok(id)
    }
}

/// What to do with a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhatNow {
    /// Work on the strand from here.
    Work(Position),
    /// Its batch is not saved yet, or never will be: look again later.
    Wait,
    /// Somebody else works on the strand and has moved its checkpoint here: look again later.
    StandBy(Position),
    /// The retry has ended, or its batch was saved without it.
    Nothing,
}

/// Reads off the ledger what a task is worth.
///
/// A retry that is not open while its batch's checkpoint has not moved may be opened any moment.
/// Once the checkpoint has moved, the save that moved it has opened what it was ever going to
/// open: this retry has ended, or belongs to a try of the batch that was not saved.
pub(crate) fn what_now(entry: &Entry, task: &Task) -> WhatNow {
    let position = entry.position(task.strand);
    match (position, task.retries) {
        (Some(Position::END), _) => WhatNow::Nothing,
        (Some(now), _) if task.overtaken_at.is_some_and(|then| then != now) => {
            WhatNow::StandBy(now)
        }
        (Some(position), _) => WhatNow::Work(position),
        (None, Some(batch)) if entry.position(batch.strand) == Some(batch.from) => WhatNow::Wait,
        (None, _) => WhatNow::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use push_shared::{envelope::Head, ids::MessageId, ledger::Opened, time::UnixMillis};

    use super::*;

    const RETRY: StrandId = StrandId::Retry(9);
    const BATCH: BatchId = BatchId { strand: StrandId::Planned(1), from: Position(40) };

    fn entry() -> Entry {
        Entry::begin(&Opened {
            message_id: MessageId::issue(&"a".parse().unwrap()),
            app_id: "a".parse().unwrap(),
            accepted_at: UnixMillis(0),
            expires_at: UnixMillis(1),
            copy: 0,
            keep_until: UnixMillis(1),
            plan: None,
        })
    }

    fn task(strand: StrandId, retries: Option<BatchId>) -> Task {
        let entry = entry();
        let head = Head {
            message_id: entry.message_id,
            app_id: entry.app_id,
            accepted_at: entry.accepted_at,
            expires_at: entry.expires_at.unwrap(),
        };
        let audience = Audience::Clients(Vec::new()).into();
        let job = Job { head, payload: Bytes::new(), audience, copy: 0 };
        Task { job, strand, slices: Vec::new(), attempt: 1, retries, overtaken_at: None }
    }

    #[test]
    fn a_retry_is_worked_on_only_while_it_is_open() {
        let (mut entry, task) = (entry(), task(RETRY, Some(BATCH)));
        entry.move_to(BATCH.strand, BATCH.from);
        assert_eq!(what_now(&entry, &task), WhatNow::Wait, "its batch is not saved yet");
        entry.move_to(BATCH.strand, Position(80));
        assert_eq!(what_now(&entry, &task), WhatNow::Nothing, "another try of its batch was saved");
        entry.move_to(RETRY, Position(0));
        assert_eq!(what_now(&entry, &task), WhatNow::Work(Position(0)));
        entry.move_to(RETRY, Position::END);
        assert_eq!(what_now(&entry, &task), WhatNow::Nothing);
    }

    #[test]
    fn a_retry_of_a_retry_that_has_ended_is_not_waited_for() {
        let batch = BatchId { strand: StrandId::Retry(1), from: Position(0) };
        assert_eq!(what_now(&entry(), &task(RETRY, Some(batch))), WhatNow::Nothing);
    }

    #[test]
    fn an_overtaken_message_takes_over_only_when_the_checkpoint_stays_where_it_was() {
        let (mut entry, mut task) = (entry(), task(BATCH.strand, None));
        task.overtaken_at = Some(Position(10));
        entry.move_to(BATCH.strand, Position(20));
        assert_eq!(what_now(&entry, &task), WhatNow::StandBy(Position(20)));
        task.overtaken_at = Some(Position(20));
        assert_eq!(what_now(&entry, &task), WhatNow::Work(Position(20)));
        entry.move_to(BATCH.strand, Position::END);
        assert_eq!(what_now(&entry, &task), WhatNow::Nothing);
    }

    #[test]
    fn a_planned_strand_is_worked_on_until_its_end() {
        let (mut entry, task) = (entry(), task(BATCH.strand, None));
        assert_eq!(what_now(&entry, &task), WhatNow::Work(Position(0)));
        entry.move_to(BATCH.strand, Position::END);
        assert_eq!(what_now(&entry, &task), WhatNow::Nothing);
    }
}

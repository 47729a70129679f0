//! What a transport asks while it sends: whether it may write more, and where outcomes go that are
//! known before the others of their batch.
//!
//! A batch takes as long as its provider does, and much can happen in that time: the message is
//! recalled, the worker is told to stop, the message expires while the machine sleeps. So a
//! transport asks [`Sending::may_send_more`] before each window of devices that it writes to a
//! connection, and answers [`Outcome::NotSent`] for the devices that it did not write.
//!
//! The permission is as old as the ledger's last answer. [`RECALL_CHECK`] after that it lapses, and
//! the transport pauses. A transport that still has something to write makes the run read the ledger
//! again, well before that ([`Permission::wanted`]).

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use push_model::time::Clock;
use push_model::{ledger::RECALL_CHECK, time::UnixMillis};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::contract::{Lifetime, Outcome};

/// How long a transport that has to pause waits before it asks again.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Whether a transport may write the next devices to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proceed {
    /// It may.
    Yes,
    /// Not before the ledger has confirmed that the message is not recalled: ask again after
    /// [`PAUSE`].
    Pause,
    /// Nothing more of this delivery may be written.
    Stop(StopReason),
}

/// Why nothing more may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The message was recalled, or another worker owns its partition now.
    Withdrawn,
    /// The worker stops.
    Stopping,
    /// The lifetime of the message is over, by the wall clock.
    Expired,
}

impl StopReason {
    /// The outcome of a device that was not written for this reason.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Withdrawn | Self::Stopping => Outcome::NotSent,
            Self::Expired => Outcome::Expired,
        }
    }
}

/// The permission to send a message, which all deliveries of a run share.
pub struct Permission {
    lifetime: Lifetime,
    clock: Clock,
    stopping: CancellationToken,
    knowledge: Mutex<Knowledge>,
    wanted: Notify,
}

/// What is known of a message.
#[derive(Debug, Clone, Copy)]
struct Knowledge {
    /// It was not recalled at this time or later.
    checked: Option<Instant>,
    /// The same by the wall clock, which goes on while the machine sleeps.
    checked_at: UnixMillis,
    withdrawn: bool,
}

impl Permission {
    /// A permission for a message that was not recalled at `checked`.
    pub fn new(
        lifetime: Lifetime,
        clock: Clock,
        stopping: CancellationToken,
        checked: Instant,
    ) -> Arc<Self> {
        let checked_at = clock().minus(checked.elapsed());
        let knowledge =
            Mutex::new(Knowledge { checked: Some(checked), checked_at, withdrawn: false });
        Arc::new(Self { lifetime, clock, stopping, knowledge, wanted: Notify::new() })
    }

    /// Notes that the message was not recalled at `checked`.
    pub fn renew(&self, checked: Instant) {
        let checked_at = (self.clock)().minus(checked.elapsed());
        let mut knowledge = self.knowledge();
        (knowledge.checked, knowledge.checked_at) = (Some(checked), checked_at);
    }

    /// Lets nothing more be written.
    pub fn withdraw(&self) {
        self.knowledge().withdrawn = true;
    }

    /// Waits until a transport needs a newer answer of the ledger.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    fn proceed(&self) -> Proceed {
        let now = (self.clock)();
        if self.lifetime.is_over(now) {
            return Proceed::Stop(StopReason::Expired);
        }
        if self.stopping.is_cancelled() {
            return Proceed::Stop(StopReason::Stopping);
        }
        let Knowledge { checked, checked_at, withdrawn } = *self.knowledge();
        if withdrawn {
            return Proceed::Stop(StopReason::Withdrawn);
        }
        let Some(checked) = checked else { return Proceed::Yes };
        let age = checked.elapsed().max(now.since(checked_at));
        if age > RECALL_CHECK / 2 {
            self.wanted.notify_one();
        }
        if age > RECALL_CHECK { Proceed::Pause } else { Proceed::Yes }
    }

    fn knowledge(&self) -> MutexGuard<'_, Knowledge> {
        self.knowledge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permission").field("knowledge", &self.knowledge()).finish_non_exhaustive()
    }
}

/// The delivery of one batch, as its transport sees it.
#[derive(Debug, Clone)]
pub struct Sending {
    permission: Arc<Permission>,
    answers: Arc<Answers>,
    /// Where the devices of this transport are in the batch; none if it has all of them.
    positions: Option<Arc<[usize]>>,
    /// It must not wait for a transport for which many others wait.
    hasty: bool,
}

impl Sending {
    /// A sending under this permission, whose answers go to `answers`.
    pub fn new(permission: Arc<Permission>, answers: Arc<Answers>) -> Self {
        Self { permission, answers, positions: None, hasty: false }
    }

    /// A delivery that is never told to stop, where the wall clock says `now`. Its early answers are
    /// not kept.
    pub fn unrestricted(now: UnixMillis) -> Self {
        let (begun, lifetime) = (Instant::now(), Lifetime::Until(UnixMillis::MAX));
        let clock: Clock = Arc::new(move || now.plus(begun.elapsed()));
        let permission = Permission::new(lifetime, clock, CancellationToken::new(), begun);
        permission.knowledge().checked = None;
        Self::new(permission, Arc::new(Answers::new(0)))
    }

    /// The same delivery, which does not wait for a transport for which many others wait.
    pub fn hasty(self) -> Self {
        Self { hasty: true, ..self }
    }

    pub(super) fn is_hasty(&self) -> bool {
        self.hasty
    }

    /// The same delivery for some devices of the batch.
    pub(super) fn of_devices(&self, positions: &[usize]) -> Self {
        Self { positions: Some(positions.into()), ..self.clone() }
    }

    /// Says if the next devices may be written to a connection. Asked for each window of devices,
    /// just before they are written.
    pub fn may_send_more(&self) -> Proceed {
        self.permission.proceed()
    }

    /// The wall clock now.
    pub fn now(&self) -> UnixMillis {
        (self.permission.clock)()
    }

    /// Reports the final outcome of a device before the delivery ends, so that the run can go on
    /// while other devices of the batch are still waited for.
    pub fn answer(&self, device: usize, outcome: Outcome) {
        let position = match &self.positions {
            Some(positions) => positions.get(device).copied(),
            None => Some(device),
        };
        if let Some(position) = position {
            self.answers.enter(position, outcome);
        }
    }
}

/// So many devices are few, however small their batch is.
pub const FEW: usize = 32;

/// How many devices are few of a batch.
pub const fn few_of(devices: usize) -> usize {
    devices / 32
}

/// The outcomes of a batch, as far as they are known.
#[derive(Debug)]
pub struct Answers {
    state: Mutex<AnswerState>,
    /// Told when few devices are left, and for each answer from then on.
    few_left: Notify,
    few: usize,
}

#[derive(Debug)]
struct AnswerState {
    outcomes: Vec<Option<Outcome>>,
    missing: usize,
}

impl Answers {
    /// No device of the batch has an outcome.
    pub fn new(devices: usize) -> Self {
        Self {
            state: Mutex::new(AnswerState { outcomes: vec![None; devices], missing: devices }),
            few_left: Notify::new(),
            few: few_of(devices).max(FEW),
        }
    }

    /// Enters the outcome of a device that has none yet.
    pub fn enter(&self, position: usize, outcome: Outcome) {
        let mut state = self.state();
        let Some(open @ None) = state.outcomes.get_mut(position) else { return };
        *open = Some(outcome);
        state.missing -= 1;
        let missing = state.missing;
        drop(state);
        if missing <= self.few {
            self.few_left.notify_one();
        }
    }

    /// Waits until no more devices than this are without an outcome: [`FEW`], or the [`few_of`] the
    /// batch.
    pub async fn missing_at_most(&self, devices: usize) {
        while self.state().missing > devices {
            self.few_left.notified().await;
        }
    }

    /// What is known now.
    pub fn known(&self) -> Vec<Option<Outcome>> {
        self.state().outcomes.clone()
    }

    fn state(&self) -> MutexGuard<'_, AnswerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

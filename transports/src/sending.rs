//! The caller's side of a delivery: the permission to write more, and a place for outcomes that are known
//! before the others of their batch.
//!
//! A batch takes as long as its provider, and meanwhile the message may be recalled, the worker may be told
//! to stop, or the message may expire while the machine sleeps. So a transport asks
//! [`Sending::may_send_more`] before each window of devices that it writes to a connection. Devices that it
//! did not write are [`Outcome::NotSent`].
//!
//! A permission dates from the ledger's last answer and lapses [`RECALL_CHECK`] later; then the transport
//! pauses. A transport that has more to write makes the run read the ledger again well before that
//! ([`Permission::wanted`]).

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use push_model::time::Clock;
use push_model::{ledger::RECALL_CHECK, pace::TrafficClass, time::UnixMillis};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{lifetime::Lifetime, outcome::Outcome};

/// The time after which a paused transport asks again.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// The answer to a transport that wants to write the next devices to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proceed {
    /// It may write them.
    Yes,
    /// It must wait until the ledger has confirmed that the message is not recalled, and ask again after
    /// [`PAUSE`].
    Pause,
    /// It may write nothing more of this delivery.
    Stop(StopReason),
}

/// The reasons for which nothing more may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The message was recalled, or another worker took over its partition.
    Withdrawn,
    /// The worker stops.
    Stopping,
    /// The lifetime of the message is over, by the wall clock.
    Expired,
}

impl StopReason {
    /// Returns the outcome of a device that was not written for this reason.
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

/// The last answer of the ledger about a message.
#[derive(Debug, Clone, Copy)]
struct Knowledge {
    /// The time at which it was not recalled.
    checked: Option<Instant>,
    /// The same time by the wall clock, which runs while the machine sleeps.
    checked_at: UnixMillis,
    withdrawn: bool,
}

impl Permission {
    /// Permits sending a message that was not recalled at `checked`.
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

    /// Ends the permission.
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
    /// The positions of this transport's devices in the batch; `None` if it has all of them.
    positions: Option<Arc<[usize]>>,
    /// True if it must not wait for a jammed transport.
    hasty: bool,
}

impl Sending {
    /// A delivery with this permission, whose outcomes go to `answers`.
    pub fn new(permission: Arc<Permission>, answers: Arc<Answers>) -> Self {
        Self { permission, answers, positions: None, hasty: false }
    }

    /// A delivery that is never told to stop, at `now` by the wall clock. It keeps no early outcomes.
    pub fn unrestricted(now: UnixMillis) -> Self {
        let (begun, lifetime) = (Instant::now(), Lifetime::Until(UnixMillis::MAX));
        let clock: Clock = Arc::new(move || now.plus(begun.elapsed()));
        let permission = Permission::new(lifetime, clock, CancellationToken::new(), begun);
        permission.knowledge().checked = None;
        Self::new(permission, Arc::new(Answers::new(0)))
    }

    /// Returns the same delivery, but one that does not wait for a jammed transport.
    pub fn hasty(self) -> Self {
        Self { hasty: true, ..self }
    }

    pub(super) fn is_hasty(&self) -> bool {
        self.hasty
    }

    /// Returns the class of its requests at a provider. What must not wait for a jammed transport does not wait
    /// behind broadcasts either.
    pub(super) fn class(&self) -> TrafficClass {
        if self.hasty { TrafficClass::Named } else { TrafficClass::Broadcast }
    }

    /// Returns the same delivery for some devices of the batch.
    pub(super) fn of_devices(&self, positions: &[usize]) -> Self {
        let positions = match &self.positions {
            Some(outer) => positions.iter().filter_map(|at| outer.get(*at).copied()).collect(),
            None => positions.into(),
        };
        Self { positions: Some(positions), ..self.clone() }
    }

    /// Says if the next devices may be written to a connection. Call it for each window of devices, just
    /// before they are written.
    pub fn may_send_more(&self) -> Proceed {
        self.permission.proceed()
    }

    /// Returns the time by the wall clock.
    pub fn now(&self) -> UnixMillis {
        (self.permission.clock)()
    }

    /// Reports the final outcome of a device before the delivery ends, so that the run can continue while
    /// other devices of the batch have no outcome.
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

/// The number of devices that counts as few in every batch.
pub const FEW: usize = 32;

/// Returns the number of devices that counts as few in a batch of this size.
pub const fn few_of(devices: usize) -> usize {
    devices / 32
}

/// The outcomes of a batch, as far as they are known.
#[derive(Debug)]
pub struct Answers {
    state: Mutex<AnswerState>,
    /// Notified when few devices are left, and by each outcome after that.
    few_left: Notify,
    few: usize,
}

#[derive(Debug)]
struct AnswerState {
    outcomes: Vec<Option<Outcome>>,
    missing: usize,
}

impl Answers {
    /// Starts a batch without outcomes.
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

    /// Returns the outcomes that are known.
    pub fn known(&self) -> Vec<Option<Outcome>> {
        self.state().outcomes.clone()
    }

    fn state(&self) -> MutexGuard<'_, AnswerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

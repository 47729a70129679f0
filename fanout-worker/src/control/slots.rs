//! The task slots of each transport.
//!
//! A run that waits for a slow or silent transport keeps its slot. Each transport has its own
//! slots, so such runs do not use up those of other transports. A run that waits only for its tail
//! leaves its slot to another run, but at most [`TAILS`] runs do so for each slot. Tasks that find
//! no free slot wait here, which costs only room in the queue's prefetch ([`TASKS_AHEAD`]). If no
//! slot of their transport was freed for [`PATIENCE`], they are put off. So the tasks and tails of
//! a silent transport never fill the prefetch, which would block tasks of other transports.

use std::{
    fmt,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use push_model::device::TransportKind;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// Tasks that the queue delivers for each slot of a transport. Equals the number of partitions that
/// one broadcast has for a transport with the default settings.
pub(crate) const TASKS_AHEAD: usize = 8;

/// Runs that may wait for their tails without a slot, for each slot of their transport. Together
/// with the runs that have slots they are fewer than [`TASKS_AHEAD`], so a silent transport does
/// not use up its part of the prefetch.
const TAILS: usize = 4;

/// A transport is stuck if none of its slots was freed for this long. Longer than a run lasts.
const PATIENCE: Duration = Duration::from_secs(2);

/// The slots of a worker.
#[derive(Debug)]
pub(crate) struct TaskSlots {
    of_transports: [(TransportKind, Arc<Slots>); TransportKind::ALL.len()],
    /// Slots of tasks whose transport is not known.
    others: Arc<Slots>,
}

#[derive(Debug)]
struct Slots {
    free: Arc<Semaphore>,
    /// Room for runs that wait for their tails.
    tails: Arc<Semaphore>,
    /// When a slot was last taken or freed.
    moved: Mutex<Instant>,
}

/// A slot of a run, which may leave it for a while and enter again.
pub(crate) struct TaskSlot {
    slots: Arc<Slots>,
    held: Mutex<Held>,
}

/// A run's hold on the slots of its transport, given back when it is dropped.
#[derive(Debug)]
enum Held {
    Slot(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
    /// Room to wait for its tail.
    Tail(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
}

impl TaskSlots {
    /// Makes this many slots for each transport.
    pub(crate) fn new(each: usize) -> Self {
        let of_transports = TransportKind::ALL.map(|kind| (kind, Arc::new(Slots::new(each))));
        Self { of_transports, others: Arc::new(Slots::new(each)) }
    }

    /// Waits for a slot of this transport. None if the transport is stuck.
    pub(crate) async fn enter(&self, transport: Option<TransportKind>) -> Option<TaskSlot> {
        let of = |kind| self.of_transports.iter().find(|(of, _)| *of == kind);
        let slots = transport.and_then(of).map_or(&self.others, |(_, slots)| slots);
        let permit = slots.enter().await?;
        Some(TaskSlot { slots: slots.clone(), held: Mutex::new(Held::Slot(permit)) })
    }
}

impl Slots {
    fn new(each: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(each)),
            tails: Arc::new(Semaphore::new(each * TAILS)),
            moved: Mutex::new(Instant::now()),
        }
    }

    async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        // The same wait goes on, because a new one would be last in the queue.
        let mut free = pin!(self.free.clone().acquire_owned());
        loop {
            // Each slot that moves puts this time off.
            let stuck_at = *self.moved() + PATIENCE;
            if let Ok(permit) = timeout_at(stuck_at, free.as_mut()).await {
                *self.moved() = Instant::now();
                return permit.ok();
            }
            if Instant::now() >= *self.moved() + PATIENCE {
                return None;
            }
        }
    }

    fn moved(&self) -> MutexGuard<'_, Instant> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskSlot {
    /// Frees the slot while its run waits for its tail. Keeps it if too many runs have done so.
    pub(crate) fn leave(&self) {
        if self.is_held()
            && let Ok(room) = self.slots.tails.clone().try_acquire_owned()
        {
            *self.held() = Held::Tail(room);
            *self.slots.moved() = Instant::now();
        }
    }

    /// Returns true if the slot is held: it was never left, or it was entered again.
    pub(crate) fn is_held(&self) -> bool {
        matches!(*self.held(), Held::Slot(_))
    }

    /// Enters again behind the tasks that wait for a slot, if it was left.
    pub(crate) async fn enter_again(&self) {
        if !self.is_held()
            && let Ok(permit) = self.slots.free.clone().acquire_owned().await
        {
            *self.slots.moved() = Instant::now();
            *self.held() = Held::Slot(permit);
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TaskSlot {
    fn drop(&mut self) {
        if self.is_held() {
            *self.slots.moved() = Instant::now();
        }
    }
}

impl fmt::Debug for TaskSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSlot").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MQTT: Option<TransportKind> = Some(TransportKind::Mqtt);
    const FCM: Option<TransportKind> = Some(TransportKind::Fcm);

    #[tokio::test(start_paused = true)]
    async fn tasks_of_a_stuck_transport_are_put_off_and_those_of_another_have_their_slots() {
        let slots = TaskSlots::new(1);
        let stuck = slots.enter(MQTT).await.unwrap();
        let begun = Instant::now();
        assert!(slots.enter(MQTT).await.is_none());
        assert_eq!(begun.elapsed(), PATIENCE);
        assert!(slots.enter(MQTT).await.is_none());
        assert_eq!(begun.elapsed(), PATIENCE, "the next one is put off immediately");
        assert!(slots.enter(FCM).await.is_some());
        drop(stuck);
        assert!(slots.enter(MQTT).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_of_a_transport_that_moves_wait_for_their_turn() {
        let slots = TaskSlots::new(1);
        let slot = slots.enter(MQTT).await.unwrap();
        let runs = async {
            for _ in 0..9 {
                tokio::time::sleep(PATIENCE / 2).await;
                slot.leave();
                slot.enter_again().await;
            }
            slot
        };
        let others = async {
            for _ in 0..9 {
                let other = slots.enter(MQTT).await.unwrap();
                tokio::time::sleep(PATIENCE / 2).await;
                drop(other);
            }
        };
        tokio::join!(runs, others);
    }
    #[tokio::test(start_paused = true)]
    async fn a_task_that_waits_keeps_its_place_when_others_move() {
        let slots = Arc::new(TaskSlots::new(1));
        let first = slots.enter(MQTT).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        let mut wait = |name: &'static str, begins: Duration, works: Duration| {
            let (slots, order) = (slots.clone(), order.clone());
            tasks.spawn(async move {
                tokio::time::sleep(begins).await;
                let _slot = slots.enter(MQTT).await.unwrap();
                order.lock().unwrap().push(name);
                tokio::time::sleep(works).await;
            });
        };
        let ms = Duration::from_millis;
        wait("a", ms(10), ms(1800));
        wait("b", ms(20), ms(10));
        // Comes after the others moved, just before their first wait would be over.
        wait("c", PATIENCE - ms(50), ms(10));
        tokio::time::sleep(PATIENCE - ms(100)).await;
        drop(first);
        tasks.join_all().await;
        assert_eq!(*order.lock().unwrap(), ["a", "b", "c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn runs_that_wait_for_their_tails_leave_few_tasks_more_to_their_transport() {
        let slots = TaskSlots::new(2);
        let mut silent = Vec::new();
        while let Some(slot) = slots.enter(MQTT).await {
            slot.leave();
            silent.push(slot);
        }
        assert_eq!(silent.len(), 2 + 2 * TAILS);
        assert!(silent.len() < 2 * TASKS_AHEAD, "the others' part of the prefetch is free");
        assert!(slots.enter(FCM).await.is_some());
        assert!(silent.pop().unwrap().is_held(), "there was no more room, so it kept its slot");
        let waiting = &silent[0];
        assert!(!waiting.is_held());
        waiting.enter_again().await;
        assert!(waiting.is_held());
    }
}

//! The task slots of each transport.
//!
//! A run that waits for a slow or silent transport keeps its slot. Each transport has slots of its own,
//! so such runs leave those of the others free. Tasks that find no free slot wait here, which costs
//! nothing but room in the queue's prefetch ([`TASKS_AHEAD`]). If no slot of their transport was freed
//! for [`PATIENCE`], they are put off: otherwise the tasks of a silent transport would in time fill the
//! prefetch, and keep away those of the others.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use push_model::device::TransportKind;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// How many tasks the queue delivers for each slot of a transport. As many as the partitions that one
/// broadcast has of a transport, with the default settings.
pub(crate) const TASKS_AHEAD: usize = 8;

/// A transport of which no slot was freed for so long is stuck. Longer than a run lasts.
const PATIENCE: Duration = Duration::from_secs(2);

/// The slots of a worker.
#[derive(Debug)]
pub(crate) struct TaskSlots {
    of_transports: [(TransportKind, Arc<Slots>); TransportKind::ALL.len()],
    /// For tasks of which it is not known which transport they need.
    others: Arc<Slots>,
}

#[derive(Debug)]
struct Slots {
    free: Arc<Semaphore>,
    /// When a slot was last taken or freed.
    moved: Mutex<Instant>,
}

/// A slot that is held. It may be left for a while and entered again.
pub(crate) struct TaskSlot {
    slots: Arc<Slots>,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl TaskSlots {
    /// So many slots for each transport.
    pub(crate) fn new(each: usize) -> Self {
        let of_transports = TransportKind::ALL.map(|kind| (kind, Arc::new(Slots::new(each))));
        Self { of_transports, others: Arc::new(Slots::new(each)) }
    }

    /// Waits for a slot of this transport. None if the transport is stuck.
    pub(crate) async fn enter(&self, transport: Option<TransportKind>) -> Option<TaskSlot> {
        let of = |kind| self.of_transports.iter().find(|(of, _)| *of == kind);
        let slots = transport.and_then(of).map_or(&self.others, |(_, slots)| slots);
        let permit = slots.enter().await?;
        Some(TaskSlot { slots: slots.clone(), held: Mutex::new(Some(permit)) })
    }
}

impl Slots {
    fn new(each: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(each)), moved: Mutex::new(Instant::now()) }
    }

    async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            // The end of a wait that others prolong when they move.
            let stuck_at = *self.moved() + PATIENCE;
            match self.free.clone().try_acquire_owned() {
                Ok(permit) => {
                    *self.moved() = Instant::now();
                    return Some(permit);
                }
                Err(_) if Instant::now() >= stuck_at => return None,
                Err(_) => {}
            }
            if let Ok(permit) = timeout_at(stuck_at, self.free.clone().acquire_owned()).await {
                *self.moved() = Instant::now();
                return permit.ok();
            }
        }
    }

    fn moved(&self) -> MutexGuard<'_, Instant> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskSlot {
    /// Frees the slot.
    pub(crate) fn leave(&self) {
        if self.held().take().is_some() {
            *self.slots.moved() = Instant::now();
        }
    }

    /// Frees the slot, and enters again behind the tasks that wait for one.
    pub(crate) async fn enter_again(&self) {
        self.leave();
        let permit = self.slots.free.clone().acquire_owned().await.ok();
        *self.slots.moved() = Instant::now();
        *self.held() = permit;
    }

    fn held(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TaskSlot {
    fn drop(&mut self) {
        self.leave();
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
}

//! Tracks which lanes have an open consumer, as the consumers themselves report.
//!
//! A worker is not ready just because the queue's server answers: its consumer may be refused or
//! reconnecting, and then the worker gets no messages.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use push_queue::Lane;
use tokio::sync::watch;

/// The consumers of one worker.
#[derive(Debug, Clone, Default)]
pub struct LaneHealth(Arc<Mutex<BTreeMap<Lane, watch::Receiver<bool>>>>);

/// Removes its consumer when it is dropped, even by a panic or a cancellation.
#[derive(Debug)]
pub(crate) struct ConsumerGuard {
    lanes: LaneHealth,
    lane: Lane,
}

impl LaneHealth {
    /// Returns true if the lane has an open consumer.
    pub fn is_open(&self, lane: Lane) -> bool {
        self.lock().get(&lane).is_some_and(|open| *open.borrow())
    }

    pub(crate) fn enter(&self, lane: Lane, open: watch::Receiver<bool>) -> ConsumerGuard {
        self.lock().insert(lane, open);
        ConsumerGuard { lanes: self.clone(), lane }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Lane, watch::Receiver<bool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConsumerGuard {
    fn drop(&mut self) {
        self.lanes.lock().remove(&self.lane);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_open_while_its_own_consumer_says_so() {
        let lanes = LaneHealth::default();
        let (open, receiver) = watch::channel(true);
        let guard = lanes.enter(Lane::Tasks, receiver);
        assert_eq!(Lane::ALL.map(|lane| lanes.is_open(lane)), [false, true]);
        open.send_replace(false);
        assert!(!lanes.is_open(Lane::Tasks));
        open.send_replace(true);
        assert!(lanes.is_open(Lane::Tasks));
        drop(guard);
        assert!(!lanes.is_open(Lane::Tasks));
    }
}

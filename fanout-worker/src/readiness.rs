//! Whether a worker can do its work now: it needs queue, index and transports, and an open consumer
//! for each lane. A worker that is stopping has no consumer, so it is not ready. Nor is one whose
//! queue or index stores nothing (a full disk, an alarm, a replica), because what remains of a task has
//! to be published and what was sent has to be saved.

use std::sync::Arc;

use async_trait::async_trait;
use push_index::Index;
use push_model::causes::with_causes;
use push_queue::{Lane, Queue};
use push_service::operations::{Probe, Readiness};

use crate::{dependencies::Dependencies, lane_health::LaneHealth, transport::Transports};

/// Checks everything that a worker needs.
#[derive(Debug)]
pub struct ReadinessProbe {
    queue: Arc<dyn Queue>,
    index: Arc<dyn Index>,
    transports: Transports,
    lanes: LaneHealth,
}

impl ReadinessProbe {
    /// A probe over what a worker works with.
    pub fn new(dependencies: &Dependencies) -> Self {
        Self {
            queue: dependencies.queue.clone(),
            index: dependencies.index.clone(),
            transports: dependencies.transports.clone(),
            lanes: dependencies.lanes.clone(),
        }
    }
}

#[async_trait]
impl Probe for ReadinessProbe {
    async fn probe(&self) -> Readiness {
        let lane = |lane: Lane| (format!("lane {}", lane.name()), self.lanes.is_open(lane));
        let (queue, index, transports) =
            tokio::join!(self.queue.ping(), self.index.takes_writes(), self.transports.ready());
        let mut parts = vec![
            ("queue".to_owned(), queue.is_ok()),
            ("index".to_owned(), index.is_ok()),
            ("transports".to_owned(), transports),
        ];
        parts.extend(Lane::ALL.map(lane));
        let ready = parts.iter().all(|(_, ok)| *ok);
        let line = |(name, ok): &(String, bool)| {
            format!("{name}: {}\n", if *ok { "ok" } else { "not available" })
        };
        let mut detail: String = parts.iter().map(line).collect();
        let queue = queue.err().map(|error| with_causes(&error));
        let index = index.err().map(|error| with_causes(&error));
        detail.extend(queue.into_iter().chain(index).map(|error| error + "\n"));
        Readiness { ready, detail }
    }
}

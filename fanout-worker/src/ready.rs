//! Whether a worker can do its work now: it needs queue, index and transports, and a consumer of
//! each lane that is open. One that is stopping has none, and so is not ready.

use std::sync::Arc;

use async_trait::async_trait;
use push_ops::{Probe, Verdict};
use push_shared::{
    index::Index,
    queue::{Lane, Queue},
};

use crate::{Consuming, Parts, transports::Transports};

/// Asks everything a worker needs.
#[derive(Debug)]
pub struct Ready {
    queue: Arc<dyn Queue>,
    index: Arc<dyn Index>,
    transports: Transports,
    consuming: Consuming,
}

impl Ready {
    /// A probe over the parts of a worker.
    pub fn new(parts: &Parts) -> Self {
        Self {
            queue: parts.queue.clone(),
            index: parts.index.clone(),
            transports: parts.transports.clone(),
            consuming: parts.consuming.clone(),
        }
    }
}

#[async_trait]
impl Probe for Ready {
    async fn probe(&self) -> Verdict {
        let lane = |lane: Lane| (format!("lane {}", lane.name()), self.consuming.is_open(lane));
        let mut parts = vec![
            ("queue".to_owned(), self.queue.ping().await.is_ok()),
            ("index".to_owned(), self.index.ping().await.is_ok()),
            ("transports".to_owned(), self.transports.ready().await),
        ];
        parts.extend(Lane::ALL.map(lane));
        let ready = parts.iter().all(|(_, ok)| *ok);
        let line = |(name, ok): &(String, bool)| {
            format!("{name}: {}\n", if *ok { "ok" } else { "not available" })
        };
        Verdict { ready, detail: parts.iter().map(line).collect() }
    }
}

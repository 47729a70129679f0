//! Whether a worker can do its work now: it needs queue, index and transports.

use std::sync::Arc;

use async_trait::async_trait;
use push_ops::{Probe, Verdict};
use push_shared::{index::Index, queue::Queue};

use crate::transports::Transports;

/// Asks everything a worker needs.
#[derive(Debug)]
pub struct Ready {
    queue: Arc<dyn Queue>,
    index: Arc<dyn Index>,
    transports: Transports,
}

impl Ready {
    /// A probe over these parts.
    pub fn new(queue: Arc<dyn Queue>, index: Arc<dyn Index>, transports: Transports) -> Self {
        Self { queue, index, transports }
    }
}

#[async_trait]
impl Probe for Ready {
    async fn probe(&self) -> Verdict {
        let parts = [
            ("queue", self.queue.ping().await.is_ok()),
            ("index", self.index.ping().await.is_ok()),
            ("transports", self.transports.ready().await),
        ];
        let ready = parts.iter().all(|(_, ok)| *ok);
        let line = |(name, ok): &(&str, bool)| {
            format!("{name}: {}\n", if *ok { "ok" } else { "not available" })
        };
        Verdict { ready, detail: parts.iter().map(line).collect() }
    }
}

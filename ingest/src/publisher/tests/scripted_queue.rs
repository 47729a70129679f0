//! A queue that confirms when the test says so.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use push_queue::{Consumer, DeadLetter, Lane, QueueCounts, QueueError};

use super::*;

/// Keeps what is published. Each permit of `confirms` lets it answer one publish, with a confirm or
/// a refusal; once `confirms` is closed it panics. While it is blocked it takes nothing.
#[derive(Debug)]
pub(super) struct ScriptedQueue {
    published: Mutex<Vec<Bytes>>,
    pub(super) confirms: tokio::sync::Semaphore,
    refuses: bool,
    blocked: watch::Sender<Option<Arc<str>>>,
}

impl ScriptedQueue {
    pub(super) fn new(confirms: usize, refuses: bool) -> Arc<Self> {
        let (published, confirms) = (Mutex::default(), tokio::sync::Semaphore::new(confirms));
        Arc::new(Self { published, confirms, refuses, blocked: watch::Sender::new(None) })
    }

    pub(super) fn block(&self, reason: Option<&str>) {
        self.blocked.send_replace(reason.map(Into::into));
    }

    /// The number of jobs in each message.
    pub(super) fn batches(&self) -> Vec<usize> {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published
            .iter()
            .map(|e| push_model::envelope::decode_job_envelope(e).unwrap().len())
            .collect()
    }
}

#[async_trait]
impl Queue for ScriptedQueue {
    async fn publish(&self, lane: Lane, payload: Bytes) -> Result<(), QueueError> {
        assert_eq!(lane, Lane::Jobs);
        if let Some(reason) = &*self.blocked.borrow() {
            return Err(QueueError::Blocked(reason.clone()));
        }
        self.published.lock().unwrap().push(payload);
        self.confirms.acquire().await.unwrap().forget();
        if self.refuses { Err(QueueError::Refused("full".into())) } else { Ok(()) }
    }

    async fn publish_later(&self, _: Lane, _: Bytes, _: Duration) -> Result<(), QueueError> {
        Err(QueueError::Closed)
    }

    async fn consume(&self, _: Lane, _: u16) -> Result<Box<dyn Consumer>, QueueError> {
        Err(QueueError::Closed)
    }

    async fn depth(&self, _: Lane) -> Result<u64, QueueError> {
        Ok(0)
    }

    async fn counts(&self) -> Result<QueueCounts, QueueError> {
        Ok(QueueCounts::default())
    }

    async fn publish_dead(&self, _: Lane, _: Bytes, _: &str) -> Result<(), QueueError> {
        Err(QueueError::Closed)
    }

    async fn visit_dead(
        &self,
        _: &mut (dyn FnMut(DeadLetter) -> bool + Send),
    ) -> Result<(), QueueError> {
        Ok(())
    }

    async fn replay_dead(&self, _: Option<&[String]>) -> Result<u64, QueueError> {
        Ok(0)
    }

    async fn drop_dead(&self, _: Option<&[String]>) -> Result<u64, QueueError> {
        Ok(0)
    }

    fn blocked(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.blocked.subscribe()
    }

    async fn ping(&self) -> Result<(), QueueError> {
        Ok(())
    }

    async fn describe(&self) -> Result<String, QueueError> {
        Ok(String::new())
    }

    async fn close(&self) {}
}

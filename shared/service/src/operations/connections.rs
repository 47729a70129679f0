//! The connections of the operations listener. They are few, and a new one never waits for those
//! that lie idle: the one of them that was accepted first is closed for it.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::task::{AbortHandle, JoinSet};

/// Connections served at once. Only while requests are in work on all of them, one more waits.
const MAX_CONNECTIONS: usize = 64;

/// The open connections. They are closed when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Connections {
    tasks: JoinSet<()>,
    /// In the order of their accept.
    open: VecDeque<Open>,
}

#[derive(Debug)]
struct Open {
    task: AbortHandle,
    /// Whether a request is in work on it.
    in_work: Arc<AtomicBool>,
}

impl Connections {
    /// Serves a connection in a task of its own.
    pub(super) fn spawn(
        &mut self,
        in_work: Arc<AtomicBool>,
        served: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.tasks.spawn(served);
        self.open.push_back(Open { task, in_work });
    }

    /// Waits until there is room for another connection, and makes room if it can.
    pub(super) async fn make_room(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            report(ended);
        }
        self.open.retain(|open| !open.task.is_finished());
        if self.open.len() < MAX_CONNECTIONS {
            return;
        }
        let idle = self.open.iter().position(|open| !open.in_work.load(Ordering::Relaxed));
        if let Some(open) = idle.and_then(|first| self.open.remove(first)) {
            open.task.abort();
        } else if let Some(ended) = self.tasks.join_next().await {
            report(ended);
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "an operations connection ended badly");
    }
}

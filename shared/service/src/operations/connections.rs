//! The connections of the operations listener. They are few, and a new one never waits for those
//! before it: the one that was accepted first is closed for it. None has a request in work then, because
//! every answer comes from memory, in the instant in which its request is read.

use std::collections::VecDeque;

use tokio::task::{AbortHandle, JoinError, JoinSet};

/// Connections served at once.
const MAX_CONNECTIONS: usize = 64;

/// The open connections. They are closed when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Connections {
    tasks: JoinSet<()>,
    /// In the order of their accept.
    open: VecDeque<AbortHandle>,
}

impl Connections {
    /// Serves a connection in a task of its own, and closes the oldest if there are too many.
    pub(super) fn serve(&mut self, served: impl Future<Output = ()> + Send + 'static) {
        while let Some(ended) = self.tasks.try_join_next() {
            report(ended);
        }
        self.open.retain(|connection| !connection.is_finished());
        if self.open.len() >= MAX_CONNECTIONS
            && let Some(oldest) = self.open.pop_front()
        {
            oldest.abort();
        }
        self.open.push_back(self.tasks.spawn(served));
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "an operations connection ended badly");
    }
}

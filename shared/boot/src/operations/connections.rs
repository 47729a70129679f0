//! The connections of the operations listener. They are few, and a new one never waits for those before it:
//! where there are too many, the oldest is closed. Connections whose request has come are counted apart from
//! idle ones, so that idle connections end no answer that a slow client is still reading, and slow clients
//! leave room for the next probe.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::task::{AbortHandle, JoinError, JoinSet};

/// Connections kept that have sent no request yet, and as many whose answer is being read.
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
    asked: Asked,
}

/// Set as soon as the request of a connection has come.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked(Arc<AtomicBool>);

impl Asked {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Connections {
    /// Serves a connection in a task of its own, and closes the oldest of too many. `served` sets what it is given once the connection's request has come.
    pub(super) fn serve<F>(&mut self, served: impl FnOnce(Asked) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while let Some(ended) = self.tasks.try_join_next() {
            report(ended);
        }
        self.open.retain(|connection| !connection.task.is_finished());
        self.close_too_many(false);
        self.close_too_many(true);
        let asked = Asked::default();
        let task = self.tasks.spawn(served(asked.clone()));
        self.open.push_back(Open { task, asked });
    }

    /// Leaves room for one more connection among those whose request has come, or has not.
    fn close_too_many(&mut self, asked: bool) {
        let alike = |connection: &&Open| connection.asked.get() == asked;
        let too_many = (self.open.iter().filter(alike).count() + 1).saturating_sub(MAX_CONNECTIONS);
        for connection in self.open.iter().filter(alike).take(too_many) {
            connection.task.abort();
        }
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(
            runbook = "the-log-tells-of-a-fault",
            %error,
            "an operations connection ended badly"
        );
    }
}

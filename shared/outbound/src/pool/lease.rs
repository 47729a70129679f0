//! The right to send one request on a connection.

use std::{fmt, sync::Arc};

use super::{Pool, slots::Outcome};
use crate::connection::Sender;

/// One request's place on a connection, given back when it is dropped.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    id: u64,
    pub(crate) sender: Sender,
    /// What became of the request.
    pub(crate) outcome: Outcome,
    armed: bool,
}

impl Lease {
    pub(super) fn new(pool: &Arc<Pool>, id: u64, sender: Sender) -> Self {
        Self { pool: Arc::clone(pool), id, sender, outcome: Outcome::Unused, armed: true }
    }

    /// Ends the lease without giving the place back; the pool does that itself.
    pub(super) fn disarm(mut self) -> u64 {
        self.armed = false;
        self.id
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.armed {
            let survives = self.sender.survives_silence();
            self.pool.give_back(self.id, self.outcome, survives);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("connection", &self.id).finish_non_exhaustive()
    }
}

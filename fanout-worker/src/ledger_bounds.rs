//! Keeps the ledger within its bound in bytes, and tells how far back it reaches.
//!
//! Every worker does a round from time to time. A store that fills would refuse what the delivery of
//! every message needs, so the oldest closed entries go before that ([`LedgerBounds`]). What
//! cannot be done in one round is done in the next, at once.
//!
//! [`LedgerBounds`]: push_index::LedgerBounds

use std::{sync::Arc, time::Duration};

use push_model::ledger::Round;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::context::Context;

/// How large the ledger may be, and how often that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerLimits {
    /// What its entries may take, in bytes.
    pub bytes: u64,
    /// The time between two rounds.
    pub every: Duration,
}

/// Does rounds until the worker stops.
pub(crate) async fn keep(context: Arc<Context>, stopping: CancellationToken) {
    let LedgerLimits { bytes, every } = context.ledger;
    let (mut forgotten, mut is_full) = (u64::MAX, false);
    loop {
        if stopping.run_until_cancelled(tokio::time::sleep(every)).await.is_none() {
            return;
        }
        loop {
            let round = context.index.keep_within(bytes, context.now());
            let Some(round) = stopping.run_until_cancelled(round).await else { return };
            let Round { history, more } = match round {
                Ok(round) => round,
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "the ledger was not looked at");
                    break;
                }
            };
            context.metrics.history(&history, context.now());
            // Once each time that it begins to forget: a full ledger does so in every round.
            let forgets = history.forgotten > forgotten;
            if forgets && !is_full {
                info!(
                    limit = history.limit,
                    "the ledger is full: its oldest entries are forgotten"
                );
            }
            (forgotten, is_full) = (history.forgotten, forgets);
            if !more {
                break;
            }
        }
    }
}

//! Keeps the ledger within its bound in bytes, and tells how far back it reaches.
//!
//! Every worker does a round from time to time. A store that fills would refuse what the delivery of
//! every message needs, so the oldest closed entries go before that ([`LedgerBounds`]). What
//! cannot be done in one round is done in the next, at once.
//!
//! [`LedgerBounds`]: push_shared::index::LedgerBounds

use std::{sync::Arc, time::Duration};

use push_shared::ledger::Round;
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
    let mut is_at_limit = false;
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
            // Once each time that it begins: from then on history is as long as the bound allows.
            if history.bytes > history.limit && !is_at_limit {
                info!(
                    bytes = history.bytes,
                    limit = history.limit,
                    "the ledger is full: its oldest entries go"
                );
            }
            is_at_limit =
                history.bytes > history.limit || (is_at_limit && !is_well_below(&history));
            if !more {
                break;
            }
        }
    }
}

/// Whether it is so much smaller than its limit that it does not go up and down at it.
fn is_well_below(history: &push_shared::ledger::History) -> bool {
    history.bytes < history.limit - history.limit / 8
}

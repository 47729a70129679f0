//! Keeps the ledger within its bound in bytes, and measures how far back it reaches.
//!
//! Every worker does a round every [`LedgerLimits::every`]. A full store would refuse the writes
//! that every delivery needs, so the oldest closed entries are evicted before that
//! ([`LedgerBounds`]). If one round is not enough, the next one follows immediately.
//!
//! [`LedgerBounds`]: push_ledger::LedgerBounds

use std::sync::Arc;

use push_boot::{log_end_of_outage, log_failure, outage::Outage};
use push_model::{causes::with_causes, ledger::EvictionRound};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{context::Context, limits::LedgerLimits};

/// Keeps the bound until the worker stops.
pub(crate) async fn enforce(context: Arc<Context>, stopping: CancellationToken) {
    let LedgerLimits { bytes, every } = context.ledger_limits;
    let outage = Outage::default();
    let (mut evicted, mut is_full) = (u64::MAX, false);
    loop {
        if stopping.run_until_cancelled(tokio::time::sleep(every)).await.is_none() {
            return;
        }
        loop {
            let round = context.ledger.keep_within(bytes, context.now());
            let Some(round) = stopping.run_until_cancelled(round).await else { return };
            let EvictionRound { history, more } = match round {
                Ok(round) => round,
                Err(error) => {
                    let (is_first, error) = (outage.failed(1, error.kind()), with_causes(&error));
                    log_failure!(
                        is_first,
                        runbook = "a-store-is-unreachable-or-refuses-writes",
                        error,
                        "the ledger was not measured"
                    );
                    break;
                }
            };
            if let Some(ended) = outage.answered() {
                log_end_of_outage!(ended, for_ms = ended.for_ms(), "the ledger is measured again");
            }
            context.metrics.history(&history, context.now());
            // Logged when evictions begin, not in every round: a full ledger evicts in each of
            // them.
            let evicts = history.evicted > evicted;
            if evicts && !is_full {
                info!(limit = history.limit, "the ledger is full: its oldest entries are evicted");
            }
            (evicted, is_full) = (history.evicted, evicts);
            if !more {
                break;
            }
        }
    }
}

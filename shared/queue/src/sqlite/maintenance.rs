//! The background task of a queue with consumers: it sends this holder's heartbeats, takes back the
//! deliveries of holders whose leases expired, and gives back deliveries that were dropped.

use std::{sync::Arc, time::Duration};

use push_sqlite::StoreError;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    leases::{self, HeartbeatMonitor},
    shared::Shared,
};

/// The period of a timer must not be zero.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(1);

/// Runs until the queue is closed; then gives back all deliveries that this holder has left.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut monitor = HeartbeatMonitor::default();
    let mut heartbeat = interval(shared.settings.heartbeat.max(SHORTEST_HEARTBEAT));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let done = tokio::select! {
            () = shared.closing.cancelled() => break,
            () = shared.has_dropped.notified() => shared.give_back_dropped().await,
            _ = heartbeat.tick() => beat(&shared, &mut monitor).await,
        };
        if let Err(error) = done {
            tracing::warn!(
                runbook = "a-store-is-unreachable-or-refuses-writes",
                %error,
                cause = ?error,
                "leases could not be kept, trying again"
            );
        }
    }
    if let Err(error) = leave(&shared).await {
        tracing::warn!(
            runbook = "a-store-is-unreachable-or-refuses-writes",
            %error,
            cause = ?error,
            "deliveries come back only when their lease ends"
        );
    }
}

async fn beat(shared: &Shared, monitor: &mut HeartbeatMonitor) -> Result<(), StoreError> {
    shared.beat().await?;
    // A second attempt for deliveries that could not be given back when they were dropped.
    shared.give_back_dropped().await?;
    let all = shared.database.read(leases::all_holders).await?;
    for (holder, beat) in monitor.expired(&all, Instant::now(), shared.settings.lease) {
        let release = move |sql: &_| leases::release(sql, holder, Some(beat));
        let taken = shared.database.write(release).await?;
        if taken > 0 {
            tracing::warn!(
                runbook = "a-store-is-unreachable-or-refuses-writes",
                holder,
                deliveries = taken,
                "a holder died, its deliveries are back"
            );
            shared.wake_all();
        }
    }
    Ok(())
}

async fn leave(shared: &Shared) -> Result<(), StoreError> {
    shared.give_back_dropped().await?;
    let holder = shared.lease.holder;
    shared.database.write(move |sql| leases::release(sql, holder, None)).await?;
    Ok(())
}

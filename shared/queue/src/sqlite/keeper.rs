//! Keeps this holder's leases alive, takes back those of holders that died, and gives back
//! deliveries that were dropped.

use std::{collections::HashMap, sync::Arc, time::Duration};

use push_sqlite::StoreError;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{holders, shared::Shared};

/// A timer cannot have no period at all.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(1);

/// Runs until the queue is closed; then everything goes back that is still held.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut watch = Watch::default();
    let mut heartbeat = interval(shared.settings.heartbeat.max(SHORTEST_HEARTBEAT));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let done = tokio::select! {
            () = shared.closing.cancelled() => break,
            () = shared.has_dropped.notified() => shared.give_back_dropped().await,
            _ = heartbeat.tick() => beat(&shared, &mut watch).await,
        };
        if let Err(error) = done {
            tracing::warn!(%error, cause = ?error, "leases could not be kept, trying again");
        }
    }
    if let Err(error) = leave(&shared).await {
        tracing::warn!(%error, cause = ?error, "deliveries come back only when their lease ends");
    }
}

async fn beat(shared: &Shared, watch: &mut Watch) -> Result<(), StoreError> {
    shared.beat().await?;
    // What could not be given back when it was dropped.
    shared.give_back_dropped().await?;
    let all = shared.database.read(holders::all).await?;
    for (holder, beat) in watch.dead(&all, Instant::now(), shared.settings.lease) {
        let release = move |sql: &_| holders::release(sql, holder, Some(beat));
        let taken = shared.database.write(release).await?;
        if taken > 0 {
            tracing::warn!(holder, deliveries = taken, "a holder died, its deliveries are back");
            shared.wake_all();
        }
    }
    Ok(())
}

async fn leave(shared: &Shared) -> Result<(), StoreError> {
    shared.give_back_dropped().await?;
    let holder = shared.lease.holder;
    shared.database.write(move |sql| holders::release(sql, holder, None)).await?;
    Ok(())
}

/// Since when each holder has been at its beat.
#[derive(Debug, Default)]
struct Watch(HashMap<i64, (i64, Instant)>);

impl Watch {
    /// Takes note of the beats and says who has been at the same one for a whole lease.
    fn dead(&mut self, holders: &[(i64, i64)], now: Instant, lease: Duration) -> Vec<(i64, i64)> {
        let seen = std::mem::take(&mut self.0);
        for (holder, beat) in holders {
            let since = match seen.get(holder) {
                Some((last, since)) if last == beat => *since,
                _ => now,
            };
            self.0.insert(*holder, (*beat, since));
        }
        let dead = |(_, since): &(i64, Instant)| now.duration_since(*since) >= lease;
        let of = |(holder, at): (&i64, &(i64, Instant))| dead(at).then_some((*holder, at.0));
        self.0.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_dead_when_it_has_not_moved_for_a_lease() {
        let (start, lease) = (Instant::now(), Duration::from_secs(10));
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watch = Watch::default();
        assert!(watch.dead(&[(1, 5), (2, 5)], at(0), lease).is_empty());
        assert!(watch.dead(&[(1, 6), (2, 5)], at(9), lease).is_empty());
        assert_eq!(watch.dead(&[(1, 6), (2, 5)], at(10), lease), [(2, 5)]);
        assert_eq!(watch.dead(&[(1, 6)], at(19), lease), [(1, 6)]);
    }

    #[test]
    fn a_holder_that_comes_back_is_watched_anew() {
        let (start, lease) = (Instant::now(), Duration::from_secs(10));
        let mut watch = Watch::default();
        watch.dead(&[(1, 5)], start, lease);
        watch.dead(&[], start + lease / 2, lease);
        assert!(watch.dead(&[(1, 5)], start + lease, lease).is_empty());
    }
}

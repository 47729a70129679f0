//! Finding the holders whose leases have expired.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

/// The last heartbeat seen of each holder, and since when it has been the last.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatMonitor(HashMap<i64, (i64, Instant)>);

impl HeartbeatMonitor {
    /// Notes the last heartbeat of each holder. Returns the holders, with their heartbeats, that
    /// have shown no new one for a whole lease.
    pub(crate) fn expired(
        &mut self,
        holders: &[(i64, i64)],
        now: Instant,
        lease: Duration,
    ) -> Vec<(i64, i64)> {
        let seen = std::mem::take(&mut self.0);
        for (holder, beat) in holders {
            let since = match seen.get(holder) {
                Some((last, since)) if last == beat => *since,
                _ => now,
            };
            self.0.insert(*holder, (*beat, since));
        }
        let is_expired = |since: &Instant| now.duration_since(*since) >= lease;
        let holders = self.0.iter().filter(|(_, (_, since))| is_expired(since));
        holders.map(|(holder, (beat, _))| (*holder, *beat)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_expires_when_its_holder_showed_no_new_heartbeat_for_its_length() {
        let (start, lease) = (Instant::now(), Duration::from_secs(10));
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut monitor = HeartbeatMonitor::default();
        assert!(monitor.expired(&[(1, 5), (2, 5)], at(0), lease).is_empty());
        assert!(monitor.expired(&[(1, 6), (2, 5)], at(9), lease).is_empty());
        assert_eq!(monitor.expired(&[(1, 6), (2, 5)], at(10), lease), [(2, 5)]);
        assert_eq!(monitor.expired(&[(1, 6)], at(19), lease), [(1, 6)]);
    }

    #[test]
    fn a_holder_that_comes_back_has_a_whole_lease_again() {
        let (start, lease) = (Instant::now(), Duration::from_secs(10));
        let mut monitor = HeartbeatMonitor::default();
        monitor.expired(&[(1, 5)], start, lease);
        monitor.expired(&[], start + lease / 2, lease);
        assert!(monitor.expired(&[(1, 5)], start + lease, lease).is_empty());
    }
}

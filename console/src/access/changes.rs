//! Changes with keys of one app, counted for each app.
//!
//! The audit trail keeps a number of events of all apps together, the newest. Without a bound, the keys of one app
//! could make changes until the trail has nothing else. With it, that takes them more than six days. Keys of the whole
//! installation have no bound.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use push_model::{admin_key::MAX_ADMIN_KEYS, app::AppKey};
use tokio::time::Instant;

/// The changes that the keys of an app may make together: a tenth of the audit trail.
const BURST: u32 = 1000;
/// The time after which they may make one more.
const INTERVAL: Duration = Duration::from_mins(1);

/// For each app, the time at which all its changes are used up again (GCRA).
#[derive(Debug, Default)]
pub(super) struct ChangesOfApps(Mutex<HashMap<AppKey, Instant>>);

impl ChangesOfApps {
    /// Counts a change.
    ///
    /// # Errors
    /// If the keys of the app have used them up: whole seconds until they may make one more.
    pub(super) fn count(&self, app: &AppKey, now: Instant) -> Result<(), u64> {
        let mut free_at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Apps that were removed make it grow.
        if free_at.len() >= 2 * MAX_ADMIN_KEYS {
            free_at.retain(|_, at| *at > now);
        }
        let at = free_at.entry(app.clone()).or_insert(now);
        let next = (*at).max(now) + INTERVAL;
        let wait = (next - now).saturating_sub(INTERVAL * BURST);
        if !wait.is_zero() {
            return Err(wait.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX));
        }
        *at = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_an_app_make_so_many_changes_together_and_others_are_not_affected() {
        let (changes, start) = (ChangesOfApps::default(), Instant::now());
        let app = |name: &str| AppKey::first(name.parse().unwrap());
        for _ in 0..BURST {
            assert_eq!(changes.count(&app("a"), start), Ok(()));
        }
        assert_eq!(changes.count(&app("a"), start), Err(60));
        assert_eq!(changes.count(&app("b"), start), Ok(()));
        let later = start + INTERVAL;
        assert_eq!(changes.count(&app("a"), later), Ok(()));
        assert_eq!(changes.count(&app("a"), later + INTERVAL / 2), Err(30));
    }
}

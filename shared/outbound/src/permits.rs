//! The connections that a process may have, or the lookups of names, and who gets the next one. Both are
//! called connections here.
//!
//! A key gets another connection only while it has fewer than are free. So a key whose servers all hang ends
//! up with half of them, a second such key with half of the rest, and a key without one still finds one free.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::origin::PoolKey;

/// The connections of one kind of owner.
#[derive(Debug)]
pub(crate) struct Permits {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// The connections of each key that has any.
    used: HashMap<PoolKey, usize>,
}

/// The right to one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    key: PoolKey,
}

impl Permits {
    pub(crate) fn new(connections: usize) -> Arc<Self> {
        let state = Mutex::new(State { free: connections, used: HashMap::new() });
        Arc::new(Self { state, freed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connections that are free.
    pub(crate) fn free(&self) -> usize {
        self.state().free
    }

    /// The connections that a key has.
    pub(crate) fn used(&self, key: &PoolKey) -> usize {
        self.state().used.get(key).copied().unwrap_or_default()
    }

    /// Takes a connection, if the key may have another one.
    pub(crate) fn try_take(self: &Arc<Self>, key: &PoolKey) -> Option<Permit> {
        let mut state = self.state();
        if state.used.get(key).copied().unwrap_or_default() >= state.free {
            return None;
        }
        state.free -= 1;
        *state.used.entry(key.clone()).or_default() += 1;
        Some(Permit { permits: Arc::clone(self), key: key.clone() })
    }

    /// Waits until the key may have another connection. Returns none if that is not so by this time.
    pub(crate) async fn take(self: &Arc<Self>, key: &PoolKey, until: Instant) -> Option<Permit> {
        loop {
            let freed = self.freed.notified();
            if let Some(permit) = self.try_take(key) {
                return Some(permit);
            }
            timeout_at(until, freed).await.ok()?;
        }
    }
}

impl State {
    fn give_back(&mut self, key: &PoolKey) {
        self.free += 1;
        if let Some(used) = self.used.get_mut(key) {
            *used = used.saturating_sub(1);
            if *used == 0 {
                self.used.remove(key);
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.state().give_back(&self.key);
        self.permits.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(name: &str) -> PoolKey {
        PoolKey(name.to_owned())
    }

    fn all(permits: &Arc<Permits>, name: &str) -> Vec<Permit> {
        std::iter::from_fn(|| permits.try_take(&key(name))).collect()
    }

    #[test]
    fn one_that_takes_all_it_gets_leaves_connections_to_others() {
        let permits = Permits::new(384);
        let greedy = all(&permits, "a");
        assert_eq!(greedy.len(), 192);
        let kept: Vec<_> = ["b", "c", "d", "e"].map(|name| all(&permits, name)).into();
        assert_eq!(kept.iter().map(Vec::len).collect::<Vec<_>>(), [96, 48, 24, 12]);
        assert_eq!((permits.free(), permits.used(&key("b"))), (12, 96));
        drop((greedy, kept));
        assert_eq!((permits.free(), permits.state().used.len()), (384, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_waits_gets_the_connection_that_another_gives_back() {
        let permits = Permits::new(2);
        let until = Instant::now() + Duration::from_secs(5);
        let (one, _other) = (permits.try_take(&key("a")).unwrap(), permits.try_take(&key("b")));
        let third = key("c");
        assert!(permits.take(&third, until).await.is_none(), "none is free");
        let until = Instant::now() + Duration::from_secs(5);
        let given_back = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(one);
        };
        let (taken, ()) = tokio::join!(permits.take(&third, until), given_back);
        assert!(taken.is_some());
        assert!(permits.take(&third, until).await.is_none(), "it has as many as are free");
    }
}

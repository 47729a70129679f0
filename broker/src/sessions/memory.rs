//! The memory of messages that wait for devices: a bound over all sessions, with a share for each
//! app and a part in which only messages for connected devices are taken.
//!
//! An app may use as much as it leaves free (a dynamic threshold): alone half of the memory, and
//! with others that want as much as they get, an equal part. So there is always room for one more
//! app, however many of them are greedy, and a fixed share for each is not left unused.
//!
//! A message reserves its bytes before it is kept and gives them back when it is dropped, wherever
//! that happens: acknowledged, expired, or with its whole session. So the
//! sum is exact, and a session that ends needs no accounting of its own.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use push_model::ids::AppId;

/// What a message takes besides its payload, in bytes: its place in a queue that may be half empty,
/// its reservation, and the allocator's own bytes.
const OVERHEAD: usize = 256;

/// How often the payload is in memory at most: as it waits, and as it is encoded for the device.
const COPIES: usize = 2;

/// The memory of waiting messages of all sessions.
#[derive(Debug)]
pub(super) struct WaitingBytes {
    used: AtomicUsize,
    limit: usize,
    /// The apps that have sessions.
    apps: Mutex<HashMap<AppId, Weak<AtomicUsize>>>,
}

/// What one app may use of the memory.
#[derive(Debug, Clone)]
pub(super) struct AppShare {
    all: Arc<WaitingBytes>,
    used: Arc<AtomicUsize>,
}

/// The bytes of one message. They are given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    share: AppShare,
    bytes: usize,
}

impl WaitingBytes {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit, apps: Mutex::default() })
    }

    /// The share of an app, which all of its sessions have in common.
    pub(super) fn share(self: &Arc<Self>, app: &AppId) -> AppShare {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        let used = apps.get(app).and_then(Weak::upgrade).unwrap_or_else(|| {
            let used = Arc::default();
            apps.insert(app.clone(), Arc::downgrade(&used));
            used
        });
        AppShare { all: self.clone(), used }
    }

    /// Forgets the apps that have no session any more.
    pub(super) fn forget_unused(&self) {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        apps.retain(|_, used| used.strong_count() > 0);
    }

    /// The bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How much may be in use when a message for a device that is offline is taken. The rest is for
    /// connected devices, so that messages which wait for days do not keep those from being served.
    /// A message that was taken for a connected device stays when that device goes offline.
    fn limit_offline(&self) -> usize {
        self.limit / 4 * 3
    }
}

impl AppShare {
    /// Reserves what a message with such a payload takes. `None` if the memory, or the app's share
    /// of it, is used up.
    pub(super) fn reserve(&self, payload: usize, connected: bool) -> Option<Reservation> {
        let bytes = size(payload);
        let limit = if connected { self.all.limit } else { self.all.limit_offline() };
        if !add(&self.all.used, bytes, limit) {
            return None;
        }
        let free = limit.saturating_sub(self.all.used());
        if !add(&self.used, bytes, free) {
            self.all.used.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        Some(Reservation { share: self.clone(), bytes })
    }
}

impl AppShare {
    /// Reserves what a saved message takes. `None` if there is no memory at all: what an app may use
    /// is a matter of what others use, and they may not have been read yet.
    pub(super) fn reserve_saved(&self, payload: usize) -> Option<Reservation> {
        let bytes = size(payload);
        if !add(&self.all.used, bytes, self.all.limit) {
            return None;
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Some(Reservation { share: self.clone(), bytes })
    }
}

impl Reservation {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.share.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.share.all.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a message with such a payload takes, in bytes.
pub(crate) fn size(payload: usize) -> usize {
    payload.saturating_mul(COPIES).saturating_add(OVERHEAD)
}

fn add(used: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        used.checked_add(bytes).filter(|&sum| sum <= limit)
    })
    .is_ok()
}

/// Some reserved memory, and how much is in use.
#[cfg(test)]
pub(crate) fn test_reservation() -> (Reservation, impl Fn() -> usize) {
    let all = WaitingBytes::new(1 << 20);
    let one = all.share(&"a".parse().unwrap()).reserve(100, true).unwrap();
    (one, move || all.used())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(name: &str) -> AppId {
        name.parse().unwrap()
    }

    /// Reserves messages without a payload until no more are taken.
    fn fill(share: &AppShare, connected: bool) -> Vec<Reservation> {
        std::iter::from_fn(|| share.reserve(0, connected)).collect()
    }

    #[test]
    fn one_app_never_takes_what_another_needs() {
        let all = WaitingBytes::new(16 * OVERHEAD);
        let greedy = fill(&all.share(&app("greedy")), true);
        assert_eq!(greedy.len(), 8);
        assert!(all.share(&app("other")).reserve(0, false).is_some());
    }

    #[test]
    fn however_many_apps_are_greedy_another_finds_room() {
        let all = WaitingBytes::new(16 * OVERHEAD);
        let mut taken = Vec::new();
        for name in ["one", "two", "three"] {
            taken.push(fill(&all.share(&app(name)), true));
        }
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [8, 4, 2]);
        assert!(all.share(&app("four")).reserve(0, true).is_some());
    }

    #[test]
    fn messages_for_offline_devices_leave_room_for_connected_ones() {
        let all = WaitingBytes::new(16 * OVERHEAD);
        let one = fill(&all.share(&app("one")), false);
        assert!(all.share(&app("one")).reserve(0, true).is_some(), "also to those of that app");
        let two = fill(&all.share(&app("two")), false);
        assert_eq!((one.len(), two.len()), (6, 3));
        assert!(all.share(&app("three")).reserve(0, true).is_some());
    }

    #[test]
    fn a_dropped_message_gives_its_bytes_back_to_its_app_and_to_all() {
        let all = WaitingBytes::new(16 * OVERHEAD);
        let share = all.share(&app("a"));
        drop(fill(&share, true));
        assert_eq!(all.used(), 0);
        assert_eq!(fill(&all.share(&app("a")), true).len(), 8);
        drop(share);
        all.forget_unused();
        assert!(all.apps.lock().unwrap().is_empty());
    }
}

//! The memory of waiting messages: a bound over all sessions, a share for each app, and a part that is only
//! for messages to connected devices.
//!
//! An app may use as much as it leaves free (a dynamic threshold): half of the memory if it is alone, and
//! an equal part among apps that all want the most. So there is always room for one more app, and no
//! fixed share lies unused.
//!
//! A message reserves its bytes before it is kept and returns them on drop: when it is acknowledged, when
//! it expires, or with its whole session. So the sum is exact.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use push_model::ids::AppId;

/// Memory of a message besides its payload, in bytes: a place in a queue that may be half empty, its
/// reservation, and the allocator's overhead.
const OVERHEAD: usize = 256;

/// Copies of the payload at most: the waiting one, and the one that is encoded for the device.
const COPIES: usize = 2;

/// The memory of waiting messages of all sessions.
#[derive(Debug)]
pub(super) struct WaitingBytes {
    used: AtomicUsize,
    limit: usize,
    apps: Mutex<HashMap<AppId, Weak<AtomicUsize>>>,
}

/// The share of one app.
#[derive(Debug, Clone)]
pub(super) struct AppShare {
    all: Arc<WaitingBytes>,
    used: Arc<AtomicUsize>,
}

/// The bytes of one message, returned on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    share: AppShare,
    bytes: usize,
}

impl WaitingBytes {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit, apps: Mutex::default() })
    }

    /// Returns the share of an app, which all its sessions have in common.
    pub(super) fn share(self: &Arc<Self>, app: &AppId) -> AppShare {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        let used = apps.get(app).and_then(Weak::upgrade).unwrap_or_else(|| {
            let used = Arc::default();
            apps.insert(app.clone(), Arc::downgrade(&used));
            used
        });
        AppShare { all: self.clone(), used }
    }

    /// Forgets apps without sessions.
    pub(super) fn forget_unused(&self) {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        apps.retain(|_, used| used.strong_count() > 0);
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the bound for messages to offline devices. The rest is for connected devices, so that messages
    /// that wait for days do not keep them from being served. A message for a connected device stays when
    /// that device goes offline.
    fn limit_offline(&self) -> usize {
        self.limit / 4 * 3
    }
}

impl AppShare {
    /// Reserves memory for a message with a payload of this size. Returns `None` if the memory or the app's
    /// share of it is used up.
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
    /// Reserves memory for a saved message. The app's share does not count here, because it depends on what
    /// other apps use, which may not have been read yet.
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

/// Returns the memory of a message with a payload of this size, in bytes.
pub(crate) fn size(payload: usize) -> usize {
    payload.saturating_mul(COPIES).saturating_add(OVERHEAD)
}

fn add(used: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        used.checked_add(bytes).filter(|&sum| sum <= limit)
    })
    .is_ok()
}

/// Reserves some memory, and returns it with a function that tells how much is in use.
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

    /// Reserves empty messages until no more fit.
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

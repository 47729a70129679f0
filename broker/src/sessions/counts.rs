//! How many of something each app has: sessions, connections. An app may have as many as it leaves
//! free: alone half of all, and with others that want as many as they get, an equal part. So there is
//! always room for one more app.

use std::collections::HashMap;

use push_model::ids::AppId;

/// There are as many as there may be, in total or of this app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// What each app has of a bounded number.
#[derive(Debug)]
pub(super) struct AppCounts {
    most: usize,
    total: usize,
    of_app: HashMap<AppId, usize>,
}

impl AppCounts {
    /// None yet; at most `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { most, total: 0, of_app: HashMap::new() }
    }

    /// Whether there may be one more, of whichever app.
    pub(super) fn has_room(&self) -> bool {
        self.total < self.most
    }

    /// Whether this app may have one more.
    pub(super) fn room_for(&self, app: &AppId) -> Result<(), TooMany> {
        let of_app = self.of_app.get(app).copied().unwrap_or_default();
        let has_room = of_app < self.most.saturating_sub(self.total);
        has_room.then_some(()).ok_or(TooMany)
    }

    pub(super) fn add(&mut self, app: &AppId) {
        self.total += 1;
        *self.of_app.entry(app.clone()).or_default() += 1;
    }

    pub(super) fn remove(&mut self, app: &AppId) {
        let Some(count) = self.of_app.get_mut(app) else { return };
        self.total -= 1;
        *count -= 1;
        if *count == 0 {
            self.of_app.remove(app);
        }
    }
}

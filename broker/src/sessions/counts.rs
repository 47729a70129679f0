//! Counts sessions or connections by app, against a bound. An app may have as many as it leaves free: half
//! if it is alone, and an equal part among apps that all want the most. So there is always room for one
//! more app.

use std::collections::HashMap;

use push_model::ids::AppId;

/// The bound is reached, in total or for the app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

#[derive(Debug)]
pub(super) struct AppCounts {
    most: usize,
    total: usize,
    of_app: HashMap<AppId, usize>,
}

impl AppCounts {
    /// Starts at zero, with room for `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { most, total: 0, of_app: HashMap::new() }
    }

    /// Returns true if one more fits in total.
    pub(super) fn has_room(&self) -> bool {
        self.total < self.most
    }

    /// Checks that this app may have one more.
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

//! Which sessions there are: bounded in total, with a share for each app.
//!
//! A session lasts for days without a connection, so its number needs a bound of its own; and
//! without the share, one app whose devices all came by once would keep out those of every other.

use std::{collections::HashMap, sync::Arc};

use bytestring::ByteString;
use push_model::{app::AppKey, ids::AppId};

use super::session::Session;

/// There are as many sessions as there may be, in total or of this app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManySessions;

/// The sessions by the topic of their device, which begins with the id of its app.
#[derive(Debug)]
pub(super) struct Registry {
    by_topic: HashMap<ByteString, Arc<Session>>,
    of_app: HashMap<AppId, usize>,
    most: usize,
}

impl Registry {
    /// None yet; at most `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { by_topic: HashMap::new(), of_app: HashMap::new(), most }
    }

    pub(super) fn get(&self, topic: &str) -> Option<&Arc<Session>> {
        self.by_topic.get(topic)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.by_topic.values()
    }

    pub(super) fn len(&self) -> usize {
        self.by_topic.len()
    }

    /// Whether a device of this app that has no session may get one. An app may have half of all.
    pub(super) fn room_for(&self, app: &AppId) -> Result<(), TooManySessions> {
        let of_app = self.of_app.get(app).copied().unwrap_or_default();
        let has_room = self.len() < self.most && of_app < self.most.div_ceil(2);
        has_room.then_some(()).ok_or(TooManySessions)
    }

    /// Adds a session, in place of the one with its topic.
    pub(super) fn insert(&mut self, session: Arc<Session>) {
        let app = session.app().id.clone();
        if self.by_topic.insert(session.topic().clone(), session).is_none() {
            *self.of_app.entry(app).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, topic: &str) {
        let Some(session) = self.by_topic.remove(topic) else { return };
        let app = &session.app().id;
        if let Some(count) = self.of_app.get_mut(app) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of_app.remove(app);
            }
        }
    }

    /// Takes out all sessions of an app.
    pub(super) fn remove_app(&mut self, app: &AppKey) -> Vec<Arc<Session>> {
        let of_app: Vec<_> =
            self.values().filter(|session| session.app() == app).cloned().collect();
        for session in &of_app {
            self.remove(session.topic());
        }
        of_app
    }
}

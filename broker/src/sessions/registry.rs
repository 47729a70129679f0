//! The sessions by topic, bounded in total and with a share for each app.
//!
//! Sessions last for days without a connection, so they need a bound of their own. Without shares, one
//! app whose devices all connected once would keep out those of every other.

use std::{collections::HashMap, sync::Arc};

use bytestring::ByteString;
use push_model::{app::AppKey, ids::AppId};

use super::{
    counts::{AppCounts, TooMany},
    session::Session,
};

/// The sessions by the topic of their device, which begins with the id of its app.
#[derive(Debug)]
pub(super) struct SessionRegistry {
    by_topic: HashMap<ByteString, Arc<Session>>,
    counts: AppCounts,
}

impl SessionRegistry {
    /// Creates an empty registry for at most `most` sessions.
    pub(super) fn new(most: usize) -> Self {
        Self { by_topic: HashMap::new(), counts: AppCounts::new(most) }
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

    /// Checks that a device of this app may get a new session.
    pub(super) fn room_for(&self, app: &AppId) -> Result<(), TooMany> {
        self.counts.room_for(app)
    }

    /// Adds a session, replacing one with the same topic.
    pub(super) fn insert(&mut self, session: Arc<Session>) {
        let app = session.app().id.clone();
        if self.by_topic.insert(session.topic().clone(), session).is_none() {
            self.counts.add(&app);
        }
    }

    /// Adds a saved session. Shares do not count here, because they depend on what other apps have, which may
    /// not have been read yet.
    pub(super) fn restore(&mut self, session: Arc<Session>) -> Result<(), TooMany> {
        if !self.counts.has_room() {
            return Err(TooMany);
        }
        self.insert(session);
        Ok(())
    }

    pub(super) fn remove(&mut self, topic: &str) {
        if let Some(session) = self.by_topic.remove(topic) {
            self.counts.remove(&session.app().id);
        }
    }

    /// Removes and returns all sessions of an app.
    pub(super) fn remove_app(&mut self, app: &AppKey) -> Vec<Arc<Session>> {
        let of_app: Vec<_> =
            self.values().filter(|session| session.app() == app).cloned().collect();
        for session in &of_app {
            self.remove(session.topic());
        }
        of_app
    }
}

//! Ends sessions at intervals: what has expired, and what is no longer authorised.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use push_model::{app::AppKey, time::UnixMillis};

use super::{Session, SessionLoss, Sessions};
use crate::{authentication::DeviceAuthenticator, clocks::Clocks};

/// Time between two searches for expired sessions and messages. Until then they take memory but are not
/// served.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Pause between two searches for sessions whose app or device was removed, or whose key has ended. Such a
/// session ends within five seconds, so this leaves time to ask the index about all of them.
const AUTHORISATION_INTERVAL: Duration = Duration::from_secs(3);

/// Apps that the index is asked about concurrently, so that one without an answer delays few others.
const APPS_ASKED_FOR: usize = 32;

impl Sessions {
    /// Removes expired sessions and messages at intervals, while the sessions are in use.
    pub(crate) async fn sweep_expired(sessions: Weak<Self>) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let Some(sessions) = sessions.upgrade() else { return };
            sessions.remove_expired(Clocks::now());
        }
    }

    /// Ends sessions that are no longer authorised, at intervals, while the sessions are in use: sessions of
    /// removed apps and devices, connected or not, and connections whose token was signed by a key that has
    /// ended. Where the index does not answer, sessions stay. This sweep waits for the index, so it runs
    /// apart from the other one.
    pub(crate) async fn sweep_unauthorised(
        sessions: Weak<Self>,
        devices: Arc<dyn DeviceAuthenticator>,
    ) {
        loop {
            tokio::time::sleep(AUTHORISATION_INTERVAL).await;
            let Some(sessions) = sessions.upgrade() else { return };
            let now = UnixMillis::now();
            sessions.disconnect_keys(|kid| !devices.accepts_key(kid, now));
            let apps = stream::iter(sessions.by_app());
            apps.for_each_concurrent(APPS_ASKED_FOR, async |(app, of_app)| {
                if devices.has_app(&app).await {
                    sessions.remove_unregistered(&app, &of_app, &*devices).await;
                } else {
                    sessions.remove_app(&app);
                }
            })
            .await;
        }
    }

    /// Ends the connections whose token was signed by a key that has ended.
    pub(super) fn disconnect_keys(&self, has_ended: impl Fn(&str) -> bool) {
        let mut known: HashMap<Arc<str>, bool> = HashMap::new();
        for session in self.all() {
            let Some(kid) = session.kid() else { continue };
            if *known.entry(kid.clone()).or_insert_with(|| has_ended(&kid)) {
                session.disconnect(&kid, Clocks::now());
            }
        }
    }

    pub(super) fn by_app(&self) -> HashMap<AppKey, Vec<Arc<Session>>> {
        let mut by_app: HashMap<AppKey, Vec<Arc<Session>>> = HashMap::new();
        for session in self.read().values() {
            if let Some(of_app) = by_app.get_mut(session.app()) {
                of_app.push(session.clone());
            } else {
                by_app.insert(session.app().clone(), vec![session.clone()]);
            }
        }
        by_app
    }

    /// Ends the sessions of an app's removed devices. Devices without an answer of the index keep theirs.
    async fn remove_unregistered(
        &self,
        app: &AppKey,
        of_app: &[Arc<Session>],
        devices: &dyn DeviceAuthenticator,
    ) {
        let of = |session: &Arc<Session>| (session.client().clone(), session.registration());
        let registered: Vec<_> = of_app.iter().map(of).collect();
        let mut end =
            |place: usize| of_app.get(place).into_iter().for_each(|s| self.remove_device(s));
        devices.find_removed(app, &registered, &mut end).await;
    }

    /// Ends the session of a removed device. A session of a later device stays.
    fn remove_device(&self, session: &Arc<Session>) {
        let mut registry = self.write();
        if registry.get(session.topic()).is_some_and(|kept| Arc::ptr_eq(kept, session)) {
            registry.remove(session.topic());
        }
        drop(registry);
        session.end(SessionLoss::DeviceRemoved);
        self.changed.set();
    }

    /// Ends the sessions of an app, and the connections that own them.
    pub(super) fn remove_app(&self, app: &AppKey) {
        let removed = self.write().remove_app(app);
        for session in removed {
            session.end(SessionLoss::AppRemoved);
        }
        self.changed.set();
    }

    pub(super) fn remove_expired(&self, now: Clocks) {
        for session in self.all() {
            if session.is_expired(now) {
                self.remove(&session, now);
            } else {
                session.drop_expired(now);
            }
        }
        self.waiting.forget_unused();
    }

    /// Removes a session that was found expired, unless it has been taken over since.
    pub(super) fn remove(&self, session: &Arc<Session>, now: Clocks) {
        let mut registry = self.write();
        let current = registry.get(session.topic()).is_some_and(|kept| Arc::ptr_eq(kept, session));
        if current && session.is_expired(now) {
            registry.remove(session.topic());
            drop(registry);
            session.expire();
            self.changed.set();
        }
    }
}

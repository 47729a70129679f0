//! All sessions, by the topic of their device.
//!
//! A device reads exactly one topic, so a topic names at most one session: a publish is one lookup,
//! and there are no filters to match.
//!
//! Sessions are created, taken over and removed under the write lock. So a session that is found under the
//! read lock is the device's current one or is over.
//!
//! - `registry`: bounds their number; `counts`: the share of each app
//! - `memory`: bounds their bytes
//! - `session`: one session; `owner`: a connection's hold on it

mod counts;
mod memory;
mod owner;
mod registry;
mod session;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use self::memory::test_reservation;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use push_credentials::DeviceIdentity;
use push_model::{app::AppKey, ids::AppId, registration::RegistrationEpoch, time::UnixMillis};

use self::{
    counts::AppCounts,
    memory::WaitingBytes,
    registry::SessionRegistry,
    session::{Changed, NewConnection, Owner, Session},
};
pub(super) use self::{
    counts::TooMany,
    memory::{Reservation, size as message_size},
    owner::SessionOwner,
    session::{Ends, Kept, NotTaken, SavedMessage, SavedSession, SessionLimits, SessionLoss},
};
use super::{
    authentication::DeviceAuthenticator,
    clocks::{Clocks, Expiry},
};

/// The reasons for which a connection does not get the session of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotOwned {
    /// The bound on sessions or connections is reached.
    TooMany,
    /// Another device of the client id has logged in since the login was checked.
    Outdated,
}

impl From<TooMany> for NotOwned {
    fn from(TooMany: TooMany) -> Self {
        Self::TooMany
    }
}

/// Time between two searches for expired sessions and messages. Until then they take memory but are not
/// served.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Pause between two searches for sessions whose app or device was removed, or whose key has ended. Such a
/// session ends within five seconds, so this leaves time to ask the index about all of them.
const AUTHORISATION_INTERVAL: Duration = Duration::from_secs(3);

/// Apps that the index is asked about concurrently, so that one without an answer delays few others.
const APPS_ASKED_FOR: usize = 32;

/// The sessions of all devices.
#[derive(Debug)]
pub(super) struct Sessions {
    registry: RwLock<SessionRegistry>,
    /// Connections that own a session.
    connected: Mutex<AppCounts>,
    waiting: Arc<WaitingBytes>,
    limits: SessionLimits,
    /// Set when something to save has changed.
    changed: Arc<Changed>,
}

impl Sessions {
    /// Creates an empty registry for at most `most` sessions, of which `connections` may be connected, with
    /// `memory` bytes for all messages.
    pub(super) fn new(
        most: usize,
        connections: usize,
        memory: usize,
        limits: SessionLimits,
    ) -> Arc<Self> {
        Arc::new(Self {
            registry: RwLock::new(SessionRegistry::new(most)),
            connected: Mutex::new(AppCounts::new(connections)),
            waiting: WaitingBytes::new(memory),
            limits,
            changed: Arc::default(),
        })
    }

    /// Keeps a message for the device with this topic. If it names a registration, it reaches no earlier or
    /// later device of the client id.
    pub(super) fn publish(
        &self,
        topic: &str,
        registration: Option<RegistrationEpoch>,
        payload: &[u8],
        expiry: Option<Expiry>,
        now: Clocks,
    ) -> Result<(), NotTaken> {
        let session = self.read().get(topic).cloned().ok_or(NotTaken::NoSubscriber)?;
        if registration.is_some_and(|registration| registration != session.registration()) {
            return Err(NotTaken::NoSubscriber);
        }
        session.put(payload, expiry, now)
    }

    /// Returns the registration of the present session. It must be read before a login is checked, so that
    /// [`Sessions::own`] can tell an earlier device from a later one.
    pub(super) fn registration_of(&self, topic: &str) -> Option<RegistrationEpoch> {
        self.read().get(topic).map(|session| session.registration())
    }

    /// Takes over the session of a device, or creates one. With `clean` it begins empty. It outlives the
    /// connection by `keep`.
    ///
    /// If another device of the client id has a session, it must have been there before the login was
    /// checked (`seen`). Then that device is an earlier one, and its session ends. A device that logged in
    /// since may be a later one, so the check is outdated.
    pub(super) fn own(
        self: &Arc<Self>,
        device: &DeviceIdentity,
        seen: Option<RegistrationEpoch>,
        clean: bool,
        keep: Duration,
        now: Clocks,
    ) -> Result<SessionOwner, NotOwned> {
        let owner = Owner::default();
        let connection = NewConnection { owner: owner.clone(), keep, kid: device.kid.clone() };
        let (app, topic) = (device.app_key(), device.device().topic());
        let connected = Connected::new(self, &app.id)?;
        let mut registry = self.write();
        let present = registry.get(&topic).cloned();
        let (session, resumed) = match present {
            // Not the session of an earlier app of this name or an earlier device of this client id.
            Some(session)
                if !clean
                    && (session.app(), session.registration()) == (&app, device.registration)
                    && session.take_over(&connection, now) =>
            {
                (session, true)
            }
            present => {
                if let Some(before) = present {
                    let registration = before.registration();
                    if registration != device.registration && Some(registration) != seen {
                        return Err(NotOwned::Outdated);
                    }
                    before.end(if *before.app() != app {
                        SessionLoss::AppRemoved
                    } else if before.registration() != device.registration {
                        SessionLoss::DeviceRemoved
                    } else {
                        SessionLoss::TakenOver
                    });
                } else {
                    registry.room_for(&app.id)?;
                }
                let share = self.waiting.share(&app.id);
                let client = (device.client.clone(), device.registration);
                let changed = self.changed.clone();
                let session = Session::new(app, client, share, self.limits, changed, connection);
                let session = Arc::new(session);
                registry.insert(session.clone());
                (session, false)
            }
        };
        drop(registry);
        self.changed.set();
        Ok(SessionOwner { connected, session, connection: owner, resumed })
    }

    /// Returns the number of sessions and the bytes of waiting messages.
    pub(super) fn usage(&self) -> (usize, usize) {
        (self.read().len(), self.waiting.used())
    }

    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.read().values().cloned().collect()
    }

    /// Adds a saved session, with as many of its messages as fit. Returns `None` if it has expired.
    pub(super) fn restore(
        &self,
        saved: SavedSession,
        now: Clocks,
    ) -> Result<Option<Kept>, TooMany> {
        let share = self.waiting.share(&saved.app.id);
        let changed = self.changed.clone();
        let restored = Session::restored(saved, share, self.limits, changed, now);
        let Some((session, kept)) = restored else { return Ok(None) };
        self.write().restore(Arc::new(session))?;
        Ok(Some(kept))
    }

    pub(super) fn limits(&self) -> SessionLimits {
        self.limits
    }

    /// Returns true if something to save has changed since the last call.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.take()
    }

    /// Notes that the changes could not be saved.
    pub(super) fn still_changed(&self) {
        self.changed.set();
    }

    /// Removes expired sessions and messages at intervals, while the sessions are in use.
    pub(super) async fn sweep_expired(sessions: Weak<Self>) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let Some(sessions) = sessions.upgrade() else { return };
            sessions.remove_expired(Clocks::now());
        }
    }

    /// Ends what is no longer authorised, at intervals, while the sessions are in use: sessions of removed
    /// apps and devices, connected or not, and connections whose token was signed by a key that has ended.
    /// Where the index does not answer, sessions stay. This sweep waits for the index, so it runs apart
    /// from the other one.
    pub(super) async fn sweep_unauthorised(
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
    fn disconnect_keys(&self, has_ended: impl Fn(&str) -> bool) {
        let mut known: HashMap<Arc<str>, bool> = HashMap::new();
        for session in self.all() {
            let Some(kid) = session.kid() else { continue };
            if *known.entry(kid.clone()).or_insert_with(|| has_ended(&kid)) {
                session.disconnect(&kid, Clocks::now());
            }
        }
    }

    fn by_app(&self) -> HashMap<AppKey, Vec<Arc<Session>>> {
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
    fn remove_app(&self, app: &AppKey) {
        let removed = self.write().remove_app(app);
        for session in removed {
            session.end(SessionLoss::AppRemoved);
        }
        self.changed.set();
    }

    fn remove_expired(&self, now: Clocks) {
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
    fn remove(&self, session: &Arc<Session>, now: Clocks) {
        let mut registry = self.write();
        let current = registry.get(session.topic()).is_some_and(|kept| Arc::ptr_eq(kept, session));
        if current && session.is_expired(now) {
            registry.remove(session.topic());
            drop(registry);
            session.expire();
            self.changed.set();
        }
    }

    fn connected(&self) -> MutexGuard<'_, AppCounts> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, SessionRegistry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, SessionRegistry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a connection that owns a session, or is about to, until it is dropped.
#[derive(Debug)]
struct Connected {
    sessions: Arc<Sessions>,
    app: AppId,
}

impl Connected {
    fn new(sessions: &Arc<Sessions>, app: &AppId) -> Result<Self, TooMany> {
        let mut connected = sessions.connected();
        connected.room_for(app)?;
        connected.add(app);
        Ok(Self { sessions: sessions.clone(), app: app.clone() })
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.sessions.connected().remove(&self.app);
    }
}

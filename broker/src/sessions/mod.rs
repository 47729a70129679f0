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
//! - `sweeps`: ends what has expired or is no longer authorised

mod counts;
mod memory;
mod owner;
mod registry;
mod session;
mod sweeps;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use self::memory::test_reservation;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use push_credentials::DeviceIdentity;
use push_model::{ids::AppId, registration::RegistrationEpoch};

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
use super::clocks::{Clocks, Expiry};

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

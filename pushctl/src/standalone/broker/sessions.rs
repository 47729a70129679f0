//! All sessions, by the topic of their device.
//!
//! A device reads exactly one topic, so a topic names at most one session: a publish is one lookup,
//! and there are no filters to match.
//!
//! Sessions are made, taken over and removed under the write lock, so that a session which is found
//! under the read lock is the device's current one or is over.

use std::{
    collections::HashSet,
    num::NonZeroU16,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak},
    time::Duration,
};

use bytestring::ByteString;
use push_credentials::DeviceIdentity;
use push_model::app::AppKey;
use rmqtt_codec::types::QoS;
use tokio::time::Instant;

use super::{
    authentication::DeviceAuthenticator,
    registry::{Registry, TooManySessions},
    session::{NotTaken, Outgoing, Owner, Session, SessionLimits},
    waiting::WaitingBytes,
};

/// How often sessions and messages whose time is over are looked for. Until then they are not
/// served, but take memory.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The sessions of all devices.
#[derive(Debug)]
pub(super) struct Sessions {
    registry: RwLock<Registry>,
    waiting: Arc<WaitingBytes>,
    limits: SessionLimits,
}

/// A connection's hold on the session of its device. When it is dropped, the session goes offline,
/// unless another connection has taken it over.
#[derive(Debug)]
pub(super) struct SessionOwner {
    sessions: Arc<Sessions>,
    session: Arc<Session>,
    connection: Owner,
    /// How long the session outlives this connection.
    keep: Duration,
    resumed: bool,
}

impl Sessions {
    /// No sessions yet: at most `most`, whose messages take at most `memory` bytes together.
    pub(super) fn new(most: usize, memory: usize, limits: SessionLimits) -> Arc<Self> {
        Arc::new(Self {
            registry: RwLock::new(Registry::new(most)),
            waiting: WaitingBytes::new(memory),
            limits,
        })
    }

    /// Keeps a message for the device with this topic.
    pub(super) fn publish(
        &self,
        topic: &str,
        payload: &[u8],
        expires_at: Option<Instant>,
        now: Instant,
    ) -> Result<(), NotTaken> {
        let session = self.read().get(topic).cloned().ok_or(NotTaken::NoSubscriber)?;
        session.put(payload, expires_at, now)
    }

    /// Takes over the session of a device, or makes one. With `clean` it begins empty.
    pub(super) fn own(
        self: &Arc<Self>,
        device: &DeviceIdentity,
        clean: bool,
        keep: Duration,
        now: Instant,
    ) -> Result<SessionOwner, TooManySessions> {
        let connection = Owner::default();
        let (app, topic) = (device.app_key(), ByteString::from(device.device().topic()));
        let mut registry = self.write();
        let present = registry.get(&topic).cloned();
        let (session, resumed) = match present {
            // Never that of an earlier app of this name.
            Some(session)
                if !clean && *session.app() == app && session.take_over(&connection, now) =>
            {
                (session, true)
            }
            present => {
                if let Some(before) = present {
                    before.end();
                } else {
                    registry.room_for(&app.id)?;
                }
                let share = self.waiting.share(&app.id);
                let session = Session::new(app, topic, share, self.limits, connection.clone());
                let session = Arc::new(session);
                registry.insert(session.clone());
                (session, false)
            }
        };
        drop(registry);
        Ok(SessionOwner { sessions: self.clone(), session, connection, keep, resumed })
    }

    /// How many sessions there are, and the bytes of the messages that wait.
    pub(super) fn usage(&self) -> (usize, usize) {
        (self.read().len(), self.waiting.used())
    }

    /// Removes what is over, as long as the sessions are in use: what has expired, and sessions of
    /// apps that were removed, also of devices that are connected.
    pub(super) async fn sweep(sessions: Weak<Self>, devices: Arc<dyn DeviceAuthenticator>) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let Some(sessions) = sessions.upgrade() else { return };
            sessions.remove_expired(Instant::now());
            for app in sessions.apps() {
                if !devices.has_app(&app).await {
                    sessions.remove_app(&app);
                }
            }
        }
    }

    fn apps(&self) -> HashSet<AppKey> {
        let registry = self.read();
        let mut apps = HashSet::new();
        for session in registry.values() {
            if !apps.contains(session.app()) {
                apps.insert(session.app().clone());
            }
        }
        apps
    }

    /// Ends the sessions of an app, and the connections that own them.
    fn remove_app(&self, app: &AppKey) {
        let mut registry = self.write();
        for session in registry.remove_app(app) {
            session.end();
        }
    }

    fn remove_expired(&self, now: Instant) {
        let all: Vec<Arc<Session>> = self.read().values().cloned().collect();
        for session in all {
            if session.is_expired(now) {
                self.remove(&session, now);
            } else {
                session.drop_expired(now);
            }
        }
        self.waiting.forget_unused();
    }

    /// Removes a session that was found to be expired, unless it was taken over meanwhile.
    fn remove(&self, session: &Arc<Session>, now: Instant) {
        let mut registry = self.write();
        let current = registry.get(session.topic()).is_some_and(|kept| Arc::ptr_eq(kept, session));
        if current && session.is_expired(now) {
            registry.remove(session.topic());
            session.end();
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Registry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionOwner {
    /// Whether the broker had kept the session from an earlier connection.
    pub(super) fn resumed(&self) -> bool {
        self.resumed
    }

    /// Changes how long the session outlives this connection.
    pub(super) fn keep_for(&mut self, keep: Duration) {
        self.keep = keep;
    }

    pub(super) fn keep(&self) -> Duration {
        self.keep
    }

    pub(super) fn topic(&self) -> &ByteString {
        self.session.topic()
    }

    /// Whether no other connection has taken the session over.
    pub(super) fn is_current(&self) -> bool {
        self.session.is_owned_by(&self.connection)
    }

    /// Resolves when there may be something to send, or when another connection may have taken
    /// the session over.
    pub(super) async fn changed(&self) {
        self.connection.changed().await;
    }

    pub(super) fn next(&self, window: NonZeroU16, now: Instant) -> Option<Outgoing> {
        self.session.next(&self.connection, window, now)
    }

    pub(super) fn acknowledge(&self, id: NonZeroU16) {
        self.session.acknowledge(&self.connection, id);
    }

    pub(super) fn subscribe(&self, qos: Option<QoS>) -> bool {
        self.session.subscribe(&self.connection, qos)
    }
}

impl Drop for SessionOwner {
    fn drop(&mut self) {
        let now = Instant::now();
        self.session.go_offline(&self.connection, self.keep, now);
        if self.keep.is_zero() {
            self.sessions.remove(&self.session, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use push_model::time::UnixMillis;

    use super::*;

    const LIMITS: SessionLimits = SessionLimits { messages: 10, bytes: 1 << 20 };
    const KEEP: Duration = Duration::from_secs(60);

    fn device(name: &str) -> DeviceIdentity {
        let (app, client) = ("a".parse().unwrap(), name.parse().unwrap());
        let (expires_at, kid) = (UnixMillis::MAX, "key".into());
        DeviceIdentity { app, client, generation: 0, expires_at, kid }
    }

    fn own(sessions: &Arc<Sessions>, name: &str, clean: bool, keep: Duration) -> SessionOwner {
        let owner = sessions.own(&device(name), clean, keep, Instant::now()).unwrap();
        owner.subscribe(Some(QoS::AtLeastOnce));
        owner
    }

    fn publish(sessions: &Sessions, name: &str) -> Result<(), NotTaken> {
        sessions.publish(&format!("push/a/{name}"), b"x", None, Instant::now())
    }

    #[tokio::test]
    async fn a_session_ends_with_its_connection_unless_it_is_to_be_kept() {
        let sessions = Sessions::new(10, 1 << 20, LIMITS);
        drop(own(&sessions, "kept", false, KEEP));
        drop(own(&sessions, "not-kept", false, Duration::ZERO));
        assert_eq!(publish(&sessions, "kept"), Ok(()));
        assert_eq!(publish(&sessions, "not-kept"), Err(NotTaken::NoSubscriber));
        assert_eq!(sessions.read().len(), 1);
        assert!(own(&sessions, "kept", false, KEEP).resumed());
        assert!(!own(&sessions, "kept", true, KEEP).resumed(), "a clean start");
        assert_eq!(sessions.waiting.used(), 0);
    }

    #[tokio::test]
    async fn a_device_that_connects_again_ends_its_connection_before() {
        let sessions = Sessions::new(10, 1 << 20, LIMITS);
        for clean in [false, true] {
            let before = own(&sessions, "d", false, Duration::ZERO);
            let after = own(&sessions, "d", clean, KEEP);
            assert!(!before.is_current() && after.is_current());
            drop(before);
            assert_eq!(publish(&sessions, "d"), Ok(()), "the later connection keeps the session");
        }
    }

    #[tokio::test]
    async fn sessions_are_bounded_and_make_room_when_their_time_is_over() {
        let sessions = Sessions::new(1, 1 << 20, LIMITS);
        drop(own(&sessions, "one", false, KEEP));
        let now = Instant::now();
        assert!(sessions.own(&device("two"), true, KEEP, now).is_err());
        sessions.remove_expired(now + KEEP / 2);
        assert!(sessions.own(&device("two"), true, KEEP, now).is_err());
        sessions.remove_expired(now + KEEP * 2);
        assert!(sessions.own(&device("two"), true, KEEP, now).is_ok());
    }

    #[tokio::test]
    async fn one_app_never_takes_all_sessions() {
        let sessions = Sessions::new(4, 1 << 20, LIMITS);
        let own = |app: &str, name: &str| {
            let device = DeviceIdentity { app: app.parse().unwrap(), ..device(name) };
            sessions.own(&device, false, KEEP, Instant::now()).is_ok()
        };
        assert!(own("a", "1") && own("a", "2") && !own("a", "3"));
        assert!(own("a", "2"), "a device that has one keeps it");
        assert!(own("b", "1") && own("b", "2"));
        assert!(!own("c", "1"), "there is no room at all");
        sessions.remove_app(&device("1").app_key());
        assert!(own("a", "3") && own("c", "1"));
        sessions.remove_expired(Instant::now() + 2 * KEEP);
        assert_eq!(sessions.read().len(), 0);
        assert!(own("a", "1") && own("a", "2") && !own("a", "3"));
    }

    #[tokio::test]
    async fn a_later_app_of_the_same_name_begins_with_no_session_of_the_one_before() {
        let sessions = Sessions::new(10, 1 << 20, LIMITS);
        drop(own(&sessions, "away", false, KEEP));
        let here = own(&sessions, "here", false, KEEP);
        publish(&sessions, "away").unwrap();
        let later = DeviceIdentity { generation: 1, ..device("away") };
        let resumed = sessions.own(&later, false, KEEP, Instant::now()).unwrap();
        assert!(!resumed.resumed() && sessions.usage().1 == 0);

        sessions.remove_app(&device("here").app_key());
        assert!(!here.is_current() && resumed.is_current());
        assert_eq!(sessions.apps(), HashSet::from([later.app_key()]));
    }
}

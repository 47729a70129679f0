//! A device's session: its subscription, the connection that owns it (`ownership`), its messages
//! (`messages`), and its form in the file (`saved`).
//!
//! A session outlives its connections. At most one connection *owns* it at a time: a device that connects
//! again takes it over, and the earlier connection can change nothing any more. The worker has counted
//! the messages as sent, so a message is dropped only when the device acknowledges it or when it
//! expires before it is sent.

mod messages;
mod ownership;
mod saved;
#[cfg(test)]
mod tests;

use std::{
    num::NonZeroU16,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytestring::ByteString;
use push_model::{app::AppKey, ids::ClientId, mqtt::MqttDevice, registration::RegistrationEpoch};
use rmqtt_codec::types::QoS;
use tokio::time::Instant;

use self::messages::Messages;
pub(super) use self::ownership::Owner;
pub(crate) use self::{
    messages::SessionLimits,
    ownership::SessionLoss,
    saved::{Ends, Kept, SavedMessage, SavedSession},
};
use super::memory::{AppShare, Reservation};
use crate::{
    clocks::{Clocks, Expiry},
    packets,
};

/// The reasons for which a session refuses a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// The device does not subscribe, or its session is over.
    NoSubscriber,
    /// No room is free now.
    NoRoom,
    /// The device is away, and its queue is full.
    QueueFull,
}

/// A connection that takes a session.
#[derive(Debug, Clone)]
pub(super) struct NewConnection {
    pub(super) owner: Owner,
    /// The time by which the session outlives it.
    pub(super) keep: Duration,
    /// The key that signed its token.
    pub(super) kid: Arc<str>,
}

impl From<NewConnection> for Life {
    fn from(NewConnection { owner, keep, kid }: NewConnection) -> Self {
        Self::Owned { owner, keep, kid }
    }
}

/// A message on its way to the device.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: packets::Message,
    /// Its memory, if the session keeps the message no longer: with QoS 0.
    pub(crate) memory: Option<Reservation>,
}

/// The session of one device.
#[derive(Debug)]
pub(crate) struct Session {
    app: AppKey,
    client: ClientId,
    /// The registration of the device, which no other device of its client id has.
    registration: RegistrationEpoch,
    topic: ByteString,
    share: AppShare,
    limits: SessionLimits,
    changed: Arc<Changed>,
    state: Mutex<SessionState>,
}

/// Set when something to save has changed.
#[derive(Debug, Default)]
pub(super) struct Changed(AtomicBool);

impl Changed {
    pub(super) fn set(&self) {
        // Read first, because all connections share it and it is nearly always set.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Release);
        }
    }

    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

#[derive(Debug)]
struct SessionState {
    messages: Messages,
    subscribed: Option<QoS>,
    life: Life,
}

impl SessionState {
    fn end(&mut self) {
        self.life = Life::Over;
        self.messages = Messages::default();
    }
}

#[derive(Debug)]
enum Life {
    Owned {
        owner: Owner,
        /// The time by which the session outlives this connection.
        keep: Duration,
        /// The key that signed its token.
        kid: Arc<str>,
    },
    /// No connection owns it. `None` means an end beyond the range of [`Instant`].
    OfflineUntil(Option<Instant>),
    /// It is no longer in the registry.
    Over,
}

impl Session {
    /// Creates a session that this connection owns.
    pub(super) fn new(
        app: AppKey,
        (client, registration): (ClientId, RegistrationEpoch),
        share: AppShare,
        limits: SessionLimits,
        changed: Arc<Changed>,
        connection: NewConnection,
    ) -> Self {
        Self::with(app, (client, registration), share, limits, changed, connection.into())
    }

    fn with(
        app: AppKey,
        (client, registration): (ClientId, RegistrationEpoch),
        share: AppShare,
        limits: SessionLimits,
        changed: Arc<Changed>,
        life: Life,
    ) -> Self {
        let device = MqttDevice { app: app.id.clone(), client: client.clone() };
        let topic = device.topic().into();
        let state = SessionState { messages: Messages::default(), subscribed: None, life };
        Self { app, client, registration, topic, share, limits, changed, state: Mutex::new(state) }
    }

    /// Returns the app of its device, which differs from other apps of that name.
    pub(super) fn app(&self) -> &AppKey {
        &self.app
    }

    pub(super) fn client(&self) -> &ClientId {
        &self.client
    }

    pub(super) fn registration(&self) -> RegistrationEpoch {
        self.registration
    }

    pub(super) fn topic(&self) -> &ByteString {
        &self.topic
    }

    /// Keeps a message for the device.
    pub(super) fn put(
        &self,
        payload: &[u8],
        expiry: Option<Expiry>,
        now: Clocks,
    ) -> Result<(), NotTaken> {
        let mut state = self.lock();
        let owner = match &state.life {
            Life::Owned { owner, .. } => Some(owner.clone()),
            Life::OfflineUntil(end) if end.is_none_or(|end| end > now.monotonic) => None,
            Life::OfflineUntil(_) | Life::Over => return Err(NotTaken::NoSubscriber),
        };
        let connected = owner.is_some();
        match state.subscribed {
            // With QoS 0 nothing is kept for later (MQTT 5, section 3.1.2.11.2): an offline device misses
            // the message.
            Some(QoS::AtMostOnce) if !connected => return Err(NotTaken::NoSubscriber),
            Some(_) => {}
            None => return Err(NotTaken::NoSubscriber),
        }
        let reserve = |payload| self.share.reserve(payload, connected);
        let put = state.messages.put(payload, expiry, self.limits, now, reserve);
        // A device that is connected makes room by acknowledging.
        put.map_err(|why| if connected { NotTaken::NoRoom } else { why })?;
        drop(state);
        self.changed.set();
        if let Some(owner) = owner {
            owner.notify();
        }
        Ok(())
    }

    /// Returns the next message to send over this connection. At most `window` of them may be
    /// unacknowledged.
    pub(super) fn next(&self, owner: &Owner, window: NonZeroU16, now: Clocks) -> Option<Outgoing> {
        let mut state = self.owned(owner)?;
        match state.subscribed {
            Some(QoS::AtMostOnce) => {
                // Messages that were sent with QoS 1 still need an acknowledgement.
                state
                    .messages
                    .next_again(window, now)
                    .or_else(|| state.messages.next_unacknowledged(now))
            }
            _ => state.messages.next(window, now),
        }
    }

    /// Removes a message that the device has acknowledged or cannot take. Returns its memory if this
    /// connection had sent it.
    pub(super) fn acknowledge(&self, owner: &Owner, id: NonZeroU16) -> Option<Reservation> {
        self.changed.set();
        self.owned(owner)?.messages.acknowledge(id)
    }

    /// Subscribes the device to its topic, or unsubscribes it. Returns true if it was subscribed before.
    pub(super) fn subscribe(&self, owner: &Owner, qos: Option<QoS>) -> bool {
        let Some(mut state) = self.owned(owner) else { return false };
        self.changed.set();
        std::mem::replace(&mut state.subscribed, qos).is_some()
    }

    /// Returns true if this connection owns the session.
    #[cfg(test)]
    pub(super) fn is_owned_by(&self, owner: &Owner) -> bool {
        self.owned(owner).is_some()
    }

    /// Makes this connection the owner. Returns false if the session is over.
    pub(super) fn take_over(&self, connection: &NewConnection, now: Clocks) -> bool {
        let mut state = self.lock();
        match &state.life {
            Life::OfflineUntil(Some(end)) if *end <= now.monotonic => return false,
            Life::Over => return false,
            Life::Owned { owner: before, .. } => before.lose(SessionLoss::TakenOver),
            Life::OfflineUntil(_) => {}
        }
        state.life = connection.clone().into();
        state.messages.begin_again();
        state.messages.drop_expired(now);
        true
    }

    /// Returns the time by which the session outlives this connection, which owns it.
    pub(super) fn keep(&self, owner: &Owner) -> Duration {
        match &self.lock().life {
            Life::Owned { owner: current, keep, .. } if current.is(owner) => *keep,
            _ => Duration::ZERO,
        }
    }

    /// Changes the time by which the session outlives this connection.
    pub(super) fn keep_for(&self, owner: &Owner, keep: Duration) {
        if let Some(mut state) = self.owned(owner)
            && let Life::Owned { keep: before, .. } = &mut state.life
        {
            *before = keep;
        }
    }

    /// Lets the session wait for the next connection, because the owner's has ended.
    pub(super) fn go_offline(&self, owner: &Owner, now: Clocks) {
        let mut state = self.lock();
        if let Life::Owned { owner: current, keep, .. } = &state.life
            && current.is(owner)
        {
            state.life = Life::OfflineUntil(now.monotonic.checked_add(*keep));
            self.changed.set();
            state.messages.begin_again();
        }
    }

    /// Returns the key that signed the owner's token.
    pub(super) fn kid(&self) -> Option<Arc<str>> {
        match &self.lock().life {
            Life::Owned { kid, .. } => Some(kid.clone()),
            Life::OfflineUntil(_) | Life::Over => None,
        }
    }

    /// Ends the owner's connection if this key signed its token.
    pub(super) fn disconnect(&self, key: &str, now: Clocks) {
        let mut state = self.lock();
        if let Life::Owned { owner, keep, kid } = &state.life
            && **kid == *key
        {
            owner.lose(SessionLoss::KeyEnded);
            state.life = Life::OfflineUntil(now.monotonic.checked_add(*keep));
            state.messages.begin_again();
            self.changed.set();
        }
    }

    /// Returns true if the session is offline and its time is over.
    pub(super) fn is_expired(&self, now: Clocks) -> bool {
        matches!(self.lock().life, Life::OfflineUntil(Some(end)) if end <= now.monotonic)
    }

    /// Drops messages that expired while they waited.
    pub(super) fn drop_expired(&self, now: Clocks) {
        self.lock().messages.drop_expired(now);
    }

    /// Ends the session and the connection that owns it, which learns the reason.
    pub(super) fn end(&self, loss: SessionLoss) {
        let mut state = self.lock();
        if let Life::Owned { owner, .. } = &state.life {
            owner.lose(loss);
        }
        state.end();
    }

    /// Ends a session that no connection owns.
    pub(super) fn expire(&self) {
        self.lock().end();
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owned(&self, owner: &Owner) -> Option<MutexGuard<'_, SessionState>> {
        let state = self.lock();
        let is_owner =
            matches!(&state.life, Life::Owned { owner: current, .. } if current.is(owner));
        is_owner.then_some(state)
    }
}

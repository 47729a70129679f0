//! A device's session: whether it subscribes, which connection owns it (`ownership`), and its messages
//! (`messages`); and how it is saved (`saved`).
//!
//! A session outlives its connections. At most one connection *owns* it at a time: a device that
//! connects again takes it over, and the connection before can change nothing any more. A message
//! is dropped when the device acknowledges it or when it expires before it is sent, and for nothing else:
//! the worker has counted it as sent.

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

/// Why a session does not take a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// The device does not subscribe, or its session is over.
    NoSubscriber,
    /// There is no room for it now.
    NoRoom,
    /// As many messages wait for the device, which is away, as may wait.
    QueueFull,
}

/// A connection that is to own a session.
#[derive(Debug, Clone)]
pub(super) struct NewConnection {
    pub(super) owner: Owner,
    /// How long the session outlives it.
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
    /// The registration of the device, told apart from others of its client id.
    registration: RegistrationEpoch,
    topic: ByteString,
    share: AppShare,
    limits: SessionLimits,
    changed: Arc<Changed>,
    state: Mutex<State>,
}

/// Whether something changed that is saved.
#[derive(Debug, Default)]
pub(super) struct Changed(AtomicBool);

impl Changed {
    pub(super) fn set(&self) {
        // Read first: all connections share it, and it is nearly always set already.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Release);
        }
    }

    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

#[derive(Debug)]
struct State {
    messages: Messages,
    subscribed: Option<QoS>,
    life: Life,
}

impl State {
    fn end(&mut self) {
        self.life = Life::Over;
        self.messages = Messages::default();
    }
}

#[derive(Debug)]
enum Life {
    Owned {
        owner: Owner,
        /// How long the session outlives this connection.
        keep: Duration,
        /// The key that signed its token.
        kid: Arc<str>,
    },
    /// No connection owns it. `None`: it lasts longer than an [`Instant`] can say.
    OfflineUntil(Option<Instant>),
    /// It is in no registry any more.
    Over,
}

impl Session {
    /// A new session that this connection owns.
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
        let state = State { messages: Messages::default(), subscribed: None, life };
        Self { app, client, registration, topic, share, limits, changed, state: Mutex::new(state) }
    }

    /// The app of its device, told apart from others of that name.
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
            // Without an acknowledgement there is nothing to keep for later (MQTT 5, section
            // 3.1.2.11.2): a device that is offline misses it.
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

    /// The next message to send over this connection, of which at most `window` may be
    /// unacknowledged.
    pub(super) fn next(&self, owner: &Owner, window: NonZeroU16, now: Clocks) -> Option<Outgoing> {
        let mut state = self.owned(owner)?;
        match state.subscribed {
            Some(QoS::AtMostOnce) => {
                // What was sent with QoS 1 before is still owed an acknowledgement.
                state
                    .messages
                    .next_again(window, now)
                    .or_else(|| state.messages.next_unacknowledged(now))
            }
            _ => state.messages.next(window, now),
        }
    }

    /// The device has taken responsibility for this message, or cannot take it at all. Its memory,
    /// if it was one of this connection's.
    pub(super) fn acknowledge(&self, owner: &Owner, id: NonZeroU16) -> Option<Reservation> {
        self.changed.set();
        self.owned(owner)?.messages.acknowledge(id)
    }

    /// Subscribes the device to its topic, or ends that. Whether it was subscribed before.
    pub(super) fn subscribe(&self, owner: &Owner, qos: Option<QoS>) -> bool {
        let Some(mut state) = self.owned(owner) else { return false };
        self.changed.set();
        std::mem::replace(&mut state.subscribed, qos).is_some()
    }

    /// Whether this connection still owns the session.
    #[cfg(test)]
    pub(super) fn is_owned_by(&self, owner: &Owner) -> bool {
        self.owned(owner).is_some()
    }

    /// Makes this connection the owner. `false` if the session is over.
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

    /// How long the session outlives this connection, which owns it.
    pub(super) fn keep(&self, owner: &Owner) -> Duration {
        match &self.lock().life {
            Life::Owned { owner: current, keep, .. } if current.is(owner) => *keep,
            _ => Duration::ZERO,
        }
    }

    /// Changes how long the session outlives this connection.
    pub(super) fn keep_for(&self, owner: &Owner, keep: Duration) {
        if let Some(mut state) = self.owned(owner)
            && let Life::Owned { keep: before, .. } = &mut state.life
        {
            *before = keep;
        }
    }

    /// The owner's connection has ended; the session waits for the next one.
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

    /// The key that signed the token of the connection that owns it.
    pub(super) fn kid(&self) -> Option<Arc<str>> {
        match &self.lock().life {
            Life::Owned { kid, .. } => Some(kid.clone()),
            Life::OfflineUntil(_) | Life::Over => None,
        }
    }

    /// Ends the connection that owns it, if its token was signed by this key.
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

    /// Whether it is offline and its time is over.
    pub(super) fn is_expired(&self, now: Clocks) -> bool {
        matches!(self.lock().life, Life::OfflineUntil(Some(end)) if end <= now.monotonic)
    }

    /// Drops what has expired while it waited.
    pub(super) fn drop_expired(&self, now: Clocks) {
        self.lock().messages.drop_expired(now);
    }

    /// Ends the session, and with it the connection that owns it, which learns why.
    pub(super) fn end(&self, loss: SessionLoss) {
        let mut state = self.lock();
        if let Life::Owned { owner, .. } = &state.life {
            owner.lose(loss);
        }
        state.end();
    }

    /// Ends the session, which no connection owns.
    pub(super) fn expire(&self) {
        self.lock().end();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owned(&self, owner: &Owner) -> Option<MutexGuard<'_, State>> {
        let state = self.lock();
        let is_owner =
            matches!(&state.life, Life::Owned { owner: current, .. } if current.is(owner));
        is_owner.then_some(state)
    }
}

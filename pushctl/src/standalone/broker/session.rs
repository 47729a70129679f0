//! A device's session: the messages that wait for it, and those that it has not acknowledged yet.
//!
//! A session outlives its connections. At most one connection *owns* it at a time: a device that
//! connects again takes it over, and the connection before can change nothing any more. A message
//! is dropped when the device acknowledges it, when it expires before it is sent, or when newer
//! ones need its room.

use std::{
    collections::VecDeque,
    num::NonZeroU16,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use bytestring::ByteString;
use push_model::app::AppKey;
use rmqtt_codec::types::QoS;
use tokio::{sync::Notify, time::Instant};

use super::waiting::{self, AppShare, Reservation};

/// Places that an empty queue may keep for the messages to come.
const SPARE_PLACES: usize = 16;

/// The bounds of each session.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionLimits {
    /// Messages that wait, without those in flight; beyond that a new one replaces the oldest.
    pub(super) messages: usize,
    /// Their memory together with those in flight, in bytes.
    pub(super) bytes: usize,
}

/// A connection in its session's eyes. Each is equal to itself only.
#[derive(Debug, Clone, Default)]
pub(super) struct Owner(Arc<Notify>);

impl Owner {
    /// Resolves when there may be something to send, or when the session may have gone to another
    /// connection.
    pub(super) async fn changed(&self) {
        self.0.notified().await;
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Why a session does not take a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// The device does not subscribe, or its session is over.
    NoSubscriber,
    /// There is no room for it now.
    NoRoom,
}

/// A message on its way to the device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    /// Its packet identifier; `None` with QoS 0.
    pub(super) id: Option<NonZeroU16>,
    pub(super) payload: Bytes,
    /// How long it is still worth something.
    pub(super) lifetime: Option<Duration>,
    /// Whether it was sent before, over an earlier connection.
    pub(super) again: bool,
}

/// The session of one device.
#[derive(Debug)]
pub(super) struct Session {
    app: AppKey,
    topic: ByteString,
    share: AppShare,
    limits: SessionLimits,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Message>,
    in_flight: VecDeque<(NonZeroU16, Message)>,
    /// How many of those in flight were sent over this connection: the first ones.
    sent: usize,
    /// The memory of both, in bytes.
    bytes: usize,
    last_id: u16,
    subscribed: Option<QoS>,
    life: Life,
}

#[derive(Debug)]
enum Life {
    Owned(Owner),
    /// No connection owns it. `None`: it lasts longer than an [`Instant`] can say.
    OfflineUntil(Option<Instant>),
    /// It is in no registry any more.
    Over,
}

#[derive(Debug)]
struct Message {
    payload: Bytes,
    expires_at: Option<Instant>,
    memory: Reservation,
}

impl Session {
    /// A new session that this connection owns.
    pub(super) fn new(
        app: AppKey,
        topic: ByteString,
        share: AppShare,
        limits: SessionLimits,
        owner: Owner,
    ) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            sent: 0,
            bytes: 0,
            last_id: 0,
            subscribed: None,
            life: Life::Owned(owner),
        };
        Self { app, topic, share, limits, state: Mutex::new(state) }
    }

    /// The app of its device, told apart from others of that name.
    pub(super) fn app(&self) -> &AppKey {
        &self.app
    }

    pub(super) fn topic(&self) -> &ByteString {
        &self.topic
    }

    /// Keeps a message for the device.
    pub(super) fn put(
        &self,
        payload: &[u8],
        expires_at: Option<Instant>,
        now: Instant,
    ) -> Result<(), NotTaken> {
        let mut state = self.lock();
        let owner = match &state.life {
            Life::Owned(owner) => Some(owner.clone()),
            Life::OfflineUntil(end) if end.is_none_or(|end| end > now) => None,
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
        let size = waiting::size(payload.len());
        let limits = self.limits;
        let is_full = |state: &State| {
            state.waiting.len() >= limits.messages || state.bytes + size > limits.bytes
        };
        if is_full(&state) {
            state.drop_expired(now);
        }
        // Both before anything is dropped: a message that is refused is offered again and again,
        // and must not cost the device those that wait.
        if state.in_flight_bytes() + size > limits.bytes {
            return Err(NotTaken::NoRoom);
        }
        let memory = self.share.reserve(payload.len(), connected).ok_or(NotTaken::NoRoom)?;
        while is_full(&state) {
            state.drop_oldest().ok_or(NotTaken::NoRoom)?;
        }
        state.bytes += memory.bytes();
        // A copy: the payload is a part of a larger buffer, which it would keep in memory.
        let payload = Bytes::copy_from_slice(payload);
        state.waiting.push_back(Message { payload, expires_at, memory });
        drop(state);
        if let Some(owner) = owner {
            owner.0.notify_one();
        }
        Ok(())
    }

    /// The next message to send over this connection, of which at most `window` may be
    /// unacknowledged.
    pub(super) fn next(&self, owner: &Owner, window: NonZeroU16, now: Instant) -> Option<Outgoing> {
        let mut state = self.owned(owner)?;
        if let Some((id, message)) = state.in_flight.get(state.sent)
            && state.sent < usize::from(window.get())
        {
            let again = message.outgoing(Some(*id), true, now);
            state.sent += 1;
            return Some(again);
        }
        let acknowledged = state.subscribed != Some(QoS::AtMostOnce);
        if acknowledged && state.in_flight.len() >= usize::from(window.get()) {
            return None;
        }
        loop {
            let message = state.pop_waiting()?;
            if message.is_expired(now) {
                state.bytes -= message.memory.bytes();
                continue;
            }
            if !acknowledged {
                state.bytes -= message.memory.bytes();
                return Some(message.outgoing(None, false, now));
            }
            let id = state.unused_id();
            let outgoing = message.outgoing(Some(id), false, now);
            state.in_flight.push_back((id, message));
            state.sent += 1;
            return Some(outgoing);
        }
    }

    /// The device has taken responsibility for this message, or cannot take it at all.
    pub(super) fn acknowledge(&self, owner: &Owner, id: NonZeroU16) {
        let Some(mut state) = self.owned(owner) else { return };
        let sent = state.sent;
        let found = state.in_flight.iter().take(sent).position(|(used, _)| *used == id);
        if let Some(message) = found.and_then(|at| state.in_flight.remove(at)) {
            state.sent -= 1;
            state.bytes -= message.1.memory.bytes();
        }
    }

    /// Subscribes the device to its topic, or ends that. Whether it was subscribed before.
    pub(super) fn subscribe(&self, owner: &Owner, qos: Option<QoS>) -> bool {
        let Some(mut state) = self.owned(owner) else { return false };
        std::mem::replace(&mut state.subscribed, qos).is_some()
    }

    /// Whether this connection still owns the session.
    pub(super) fn is_owned_by(&self, owner: &Owner) -> bool {
        self.owned(owner).is_some()
    }

    /// Makes this connection the owner. `false` if the session is over.
    pub(super) fn take_over(&self, owner: &Owner, now: Instant) -> bool {
        let mut state = self.lock();
        match &state.life {
            Life::OfflineUntil(Some(end)) if *end <= now => return false,
            Life::Over => return false,
            Life::Owned(before) => before.0.notify_one(),
            Life::OfflineUntil(_) => {}
        }
        state.life = Life::Owned(owner.clone());
        state.sent = 0;
        state.drop_expired(now);
        true
    }

    /// The owner's connection has ended; the session waits for the next one for this long.
    pub(super) fn go_offline(&self, owner: &Owner, keep: Duration, now: Instant) {
        if let Some(mut state) = self.owned(owner) {
            state.life = Life::OfflineUntil(now.checked_add(keep));
            state.sent = 0;
        }
    }

    /// Whether it is offline and its time is over.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        matches!(self.lock().life, Life::OfflineUntil(Some(end)) if end <= now)
    }

    /// Drops what has expired while it waited.
    pub(super) fn drop_expired(&self, now: Instant) {
        self.lock().drop_expired(now);
    }

    /// Ends the session, and with it the connection that owns it.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        if let Life::Owned(owner) = &state.life {
            owner.0.notify_one();
        }
        state.life = Life::Over;
        state.waiting = VecDeque::new();
        state.in_flight = VecDeque::new();
        (state.sent, state.bytes) = (0, 0);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owned(&self, owner: &Owner) -> Option<MutexGuard<'_, State>> {
        let state = self.lock();
        let is_owner = matches!(&state.life, Life::Owned(current) if current.is(owner));
        is_owner.then_some(state)
    }
}

impl State {
    fn pop_waiting(&mut self) -> Option<Message> {
        let message = self.waiting.pop_front()?;
        if self.waiting.is_empty() && self.waiting.capacity() > SPARE_PLACES {
            self.waiting = VecDeque::new();
        }
        Some(message)
    }

    fn drop_oldest(&mut self) -> Option<()> {
        let message = self.pop_waiting()?;
        self.bytes -= message.memory.bytes();
        Some(())
    }

    /// The part of `bytes` that makes no room for newer messages.
    fn in_flight_bytes(&self) -> usize {
        self.in_flight.iter().map(|(_, message)| message.memory.bytes()).sum()
    }

    fn drop_expired(&mut self, now: Instant) {
        let sent = self.sent;
        let mut kept = 0;
        self.waiting.retain(|message| !message.is_expired(now));
        // What was sent over this connection may be acknowledged at any moment and stays.
        let mut place = 0;
        self.in_flight.retain(|(_, message)| {
            place += 1;
            place <= sent || !message.is_expired(now)
        });
        for message in self.waiting.iter().chain(self.in_flight.iter().map(|(_, message)| message))
        {
            kept += message.memory.bytes();
        }
        self.bytes = kept;
        if self.waiting.len() + SPARE_PLACES < self.waiting.capacity() / 2 {
            self.waiting.shrink_to_fit();
        }
    }

    /// A packet identifier that no message in flight has.
    fn unused_id(&mut self) -> NonZeroU16 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if let Some(id) = NonZeroU16::new(self.last_id)
                && self.in_flight.iter().all(|(used, _)| *used != id)
            {
                return id;
            }
        }
    }
}

impl Message {
    fn is_expired(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    fn outgoing(&self, id: Option<NonZeroU16>, again: bool, now: Instant) -> Outgoing {
        let lifetime = self.expires_at.map(|end| end.saturating_duration_since(now));
        Outgoing { id, payload: self.payload.clone(), lifetime, again }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::waiting::WaitingBytes, *};

    const WINDOW: NonZeroU16 = NonZeroU16::new(2).unwrap();
    const SECOND_LONG: Duration = Duration::from_secs(1);

    fn session(limits: SessionLimits) -> (Session, Owner, Arc<WaitingBytes>) {
        let memory = WaitingBytes::new(1 << 20);
        let app = AppKey { id: "a".parse().unwrap(), generation: 0 };
        let share = memory.share(&app.id);
        let first = Owner::default();
        let session = Session::new(app, "push/a/d".into(), share, limits, first.clone());
        session.subscribe(&first, Some(QoS::AtLeastOnce));
        (session, first, memory)
    }

    fn roomy() -> (Session, Owner, Arc<WaitingBytes>) {
        session(SessionLimits { messages: 100, bytes: 1 << 20 })
    }

    fn put(session: &Session, text: &str, now: Instant) -> Result<(), NotTaken> {
        session.put(text.as_bytes(), None, now)
    }

    fn texts(session: &Session, owner: &Owner, now: Instant) -> Vec<(String, bool)> {
        std::iter::from_fn(|| session.next(owner, WINDOW, now))
            .map(|out| (String::from_utf8(out.payload.to_vec()).unwrap(), out.again))
            .collect()
    }

    #[tokio::test]
    async fn what_was_not_acknowledged_is_sent_again_first_with_its_old_identifier() {
        let ((session, first, memory), now) = (roomy(), Instant::now());
        let second = Owner::default();
        for text in ["one", "two", "three"] {
            put(&session, text, now).unwrap();
        }
        let one = session.next(&first, WINDOW, now).unwrap();
        let two = session.next(&first, WINDOW, now).unwrap();
        assert_eq!(session.next(&first, WINDOW, now), None, "the window is full");
        session.acknowledge(&first, one.id.unwrap());
        session.go_offline(&first, SECOND_LONG, now);
        assert!(session.take_over(&second, now));
        let again = session.next(&second, WINDOW, now).unwrap();
        assert_eq!((again.id, again.again, again.payload), (two.id, true, two.payload));
        assert_eq!(texts(&session, &second, now), [("three".to_owned(), false)]);
        for id in 1..=3 {
            session.acknowledge(&second, NonZeroU16::new(id).unwrap());
        }
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test]
    async fn a_connection_that_lost_its_session_changes_nothing() {
        let ((session, first, memory), now) = (roomy(), Instant::now());
        let second = Owner::default();
        put(&session, "one", now).unwrap();
        let sent = session.next(&first, WINDOW, now).unwrap();
        assert!(session.take_over(&second, now));
        assert!(session.next(&first, WINDOW, now).is_none());
        session.acknowledge(&first, sent.id.unwrap());
        session.go_offline(&first, Duration::ZERO, now);
        assert!(session.is_owned_by(&second) && memory.used() > 0);
        assert_eq!(texts(&session, &second, now), [("one".to_owned(), true)]);
    }

    #[tokio::test]
    async fn what_expires_while_it_waits_is_not_sent_and_takes_no_memory() {
        let ((session, first, memory), now) = (roomy(), Instant::now());
        session.put(b"short", Some(now + SECOND_LONG), now).unwrap();
        put(&session, "long", now).unwrap();
        let later = now + SECOND_LONG;
        session.drop_expired(later);
        assert_eq!(memory.used(), waiting::size(4));
        assert_eq!(texts(&session, &first, later), [("long".to_owned(), false)]);
    }

    #[tokio::test]
    async fn newer_messages_replace_the_oldest_that_wait_and_none_in_flight() {
        let bytes = 2 * waiting::size(1);
        for limits in
            [SessionLimits { messages: 2, bytes: 1 << 20 }, SessionLimits { messages: 100, bytes }]
        {
            let ((session, first, _), now) = (session(limits), Instant::now());
            for text in ["1", "2", "3"] {
                put(&session, text, now).unwrap();
            }
            let texts = texts(&session, &first, now);
            assert_eq!(texts, [("2".to_owned(), false), ("3".to_owned(), false)], "{limits:?}");
            if limits.bytes == bytes {
                assert_eq!(put(&session, "4", now), Err(NotTaken::NoRoom), "all is in flight");
            }
        }
    }

    #[tokio::test]
    async fn a_message_that_finds_no_room_costs_none_that_waits() {
        let now = Instant::now();
        let bytes = 3 * waiting::size(1);
        let (one, first, _) = session(SessionLimits { messages: 100, bytes });
        for text in ["1", "2", "3"] {
            put(&one, text, now).unwrap();
        }
        let sent = [one.next(&first, WINDOW, now), one.next(&first, WINDOW, now)];
        assert!(sent.iter().all(Option::is_some));
        assert_eq!(one.put(&[0; 1000], None, now), Err(NotTaken::NoRoom), "two are in flight");
        assert_eq!(one.lock().waiting.len(), 1);

        // The share of an app is half of the memory.
        let (other, first, memory) = session(SessionLimits { messages: 2, bytes: 1 << 20 });
        for text in ["1", "2"] {
            put(&other, text, now).unwrap();
        }
        let share = memory.share(&other.app().id);
        let taken: Vec<_> = std::iter::from_fn(|| share.reserve(0, true)).collect();
        assert_eq!(put(&other, "3", now), Err(NotTaken::NoRoom), "the app has no memory left");
        drop(taken);
        assert_eq!(texts(&other, &first, now).len(), 2);
    }

    #[tokio::test]
    async fn a_session_that_is_over_has_no_subscriber() {
        let ((session, first, memory), now) = (roomy(), Instant::now());
        let second = Owner::default();
        put(&session, "one", now).unwrap();
        session.go_offline(&first, SECOND_LONG, now);
        put(&session, "two", now).unwrap();
        let end = now + SECOND_LONG;
        assert!(session.is_expired(end) && !session.is_expired(now));
        assert_eq!(put(&session, "three", end), Err(NotTaken::NoSubscriber));
        assert!(!session.take_over(&second, end));
        session.end();
        assert_eq!(memory.used(), 0);
        assert_eq!(put(&session, "four", now), Err(NotTaken::NoSubscriber));
    }

    #[tokio::test]
    async fn without_acknowledgements_nothing_is_kept_for_an_offline_device() {
        let ((session, first, memory), now) = (roomy(), Instant::now());
        session.subscribe(&first, Some(QoS::AtMostOnce));
        put(&session, "now", now).unwrap();
        let sent = session.next(&first, WINDOW, now).unwrap();
        assert_eq!((sent.id, memory.used()), (None, 0));
        session.go_offline(&first, SECOND_LONG, now);
        assert_eq!(put(&session, "later", now), Err(NotTaken::NoSubscriber));
    }
}

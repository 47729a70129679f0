use super::{
    super::memory::{self, WaitingBytes},
    *,
};

const WINDOW: NonZeroU16 = NonZeroU16::new(2).unwrap();
const SECOND_LONG: Duration = Duration::from_secs(1);

fn connection(owner: &Owner) -> NewConnection {
    NewConnection { owner: owner.clone(), keep: SECOND_LONG, kid: "key".into() }
}

fn session(limits: SessionLimits) -> (Session, Owner, Arc<WaitingBytes>) {
    let memory = WaitingBytes::new(1 << 20);
    let app = AppKey { id: "a".parse().unwrap(), generation: 0 };
    let share = memory.share(&app.id);
    let first = Owner::default();
    let session = Session::new(
        app,
        ("d".parse().unwrap(), Default::default()),
        share,
        limits,
        Arc::default(),
        connection(&first),
    );
    session.subscribe(&first, Some(QoS::AtLeastOnce));
    (session, first, memory)
}

fn roomy() -> (Session, Owner, Arc<WaitingBytes>) {
    session(SessionLimits { messages: 100, bytes: 1 << 20 })
}

fn put(session: &Session, text: &str, now: Clocks) -> Result<(), NotTaken> {
    session.put(text.as_bytes(), None, now)
}

fn texts(session: &Session, owner: &Owner, now: Clocks) -> Vec<(String, bool)> {
    std::iter::from_fn(|| session.next(owner, WINDOW, now))
        .map(|out| (String::from_utf8(out.message.payload.to_vec()).unwrap(), out.message.dup))
        .collect()
}

#[tokio::test]
async fn what_was_not_acknowledged_is_sent_again_first_with_its_old_identifier() {
    let ((session, first, memory), now) = (roomy(), Clocks::now());
    let second = Owner::default();
    for text in ["one", "two", "three"] {
        put(&session, text, now).unwrap();
    }
    let one = session.next(&first, WINDOW, now).unwrap();
    let two = session.next(&first, WINDOW, now).unwrap();
    assert!(session.next(&first, WINDOW, now).is_none(), "the window is full");
    session.acknowledge(&first, one.message.id.unwrap());
    session.go_offline(&first, now);
    assert!(session.take_over(&connection(&second), now));
    let again = session.next(&second, WINDOW, now).unwrap();
    assert_eq!(again.message, packets::Message { dup: true, ..two.message });
    assert_eq!(texts(&session, &second, now), [("three".to_owned(), false)]);
    for id in 1..=3 {
        session.acknowledge(&second, NonZeroU16::new(id).unwrap());
    }
    assert_eq!(memory.used(), 0);
}

#[tokio::test]
async fn a_connection_that_lost_its_session_changes_nothing() {
    let ((session, first, memory), now) = (roomy(), Clocks::now());
    let second = Owner::default();
    put(&session, "one", now).unwrap();
    let sent = session.next(&first, WINDOW, now).unwrap();
    assert!(session.take_over(&connection(&second), now));
    assert!(session.next(&first, WINDOW, now).is_none());
    session.acknowledge(&first, sent.message.id.unwrap());
    session.go_offline(&first, now);
    assert!(session.is_owned_by(&second) && memory.used() > 0);
    assert_eq!(texts(&session, &second, now), [("one".to_owned(), true)]);
}

#[tokio::test]
async fn what_expires_while_it_waits_is_not_sent_and_takes_no_memory() {
    let ((session, first, memory), now) = (roomy(), Clocks::now());
    session.put(b"short", Expiry::after(SECOND_LONG, now), now).unwrap();
    put(&session, "long", now).unwrap();
    let later = now + SECOND_LONG;
    session.drop_expired(later);
    assert_eq!(memory.used(), memory::size(4));
    assert_eq!(texts(&session, &first, later), [("long".to_owned(), false)]);
}

#[tokio::test]
async fn what_expires_while_the_machine_sleeps_is_not_sent_and_the_rest_has_its_remaining_time() {
    let ((session, first, _), now) = (roomy(), Clocks::now());
    let put = |text: &str, seconds| {
        session.put(text.as_bytes(), Expiry::after(SECOND_LONG * seconds, now), now).unwrap();
    };
    put("in flight", 10);
    assert!(session.next(&first, WINDOW, now).is_some());
    put("short", 10);
    put("long", 60);
    session.go_offline(&first, now);
    let awake = now.slept(SECOND_LONG * 30);
    let saved = session.saved(awake).unwrap();
    assert_eq!(saved.messages.len(), 1);
    let back = Owner::default();
    assert!(session.take_over(&connection(&back), awake));
    let sent = session.next(&back, WINDOW, awake).unwrap().message;
    assert_eq!((&sent.payload[..], sent.expires_in), (&b"long"[..], Some(SECOND_LONG * 30)));
    assert!(session.next(&back, WINDOW, awake).is_none());
}

#[tokio::test]
async fn a_message_beyond_what_may_wait_is_refused_and_costs_none_that_waits() {
    let bytes = 2 * memory::size(1);
    for limits in
        [SessionLimits { messages: 2, bytes: 1 << 20 }, SessionLimits { messages: 100, bytes }]
    {
        let ((session, first, _), now) = (session(limits), Clocks::now());
        put(&session, "1", now).unwrap();
        put(&session, "2", now).unwrap();
        assert_eq!(put(&session, "3", now), Err(NotTaken::NoRoom), "the device may make room");
        session.go_offline(&first, now);
        assert_eq!(put(&session, "3", now), Err(NotTaken::QueueFull), "{limits:?}");
        let back = Owner::default();
        assert!(session.take_over(&connection(&back), now));
        let texts = texts(&session, &back, now);
        assert_eq!(texts, [("1".to_owned(), false), ("2".to_owned(), false)], "{limits:?}");
    }
}

#[tokio::test]
async fn what_has_expired_makes_room() {
    let ((session, first, _), now) =
        (session(SessionLimits { messages: 1, bytes: 1 << 20 }), Clocks::now());
    session.go_offline(&first, now);
    session.put(b"short", Expiry::after(SECOND_LONG / 2, now), now).unwrap();
    assert_eq!(put(&session, "long", now), Err(NotTaken::QueueFull));
    put(&session, "long", now.slept(SECOND_LONG / 2)).unwrap();
}

#[tokio::test]
async fn a_message_that_finds_no_memory_costs_none_that_waits() {
    let now = Clocks::now();
    // The share of an app is half of the memory.
    let (session, first, memory) = session(SessionLimits { messages: 10, bytes: 1 << 20 });
    for text in ["1", "2"] {
        put(&session, text, now).unwrap();
    }
    let share = memory.share(&session.app().id);
    let taken: Vec<_> = std::iter::from_fn(|| share.reserve(0, true)).collect();
    assert_eq!(put(&session, "3", now), Err(NotTaken::NoRoom), "the app has no memory left");
    drop(taken);
    assert_eq!(texts(&session, &first, now).len(), 2);
}

#[tokio::test]
async fn a_session_that_is_over_has_no_subscriber() {
    let ((session, first, memory), now) = (roomy(), Clocks::now());
    let second = Owner::default();
    put(&session, "one", now).unwrap();
    session.go_offline(&first, now);
    put(&session, "two", now).unwrap();
    let end = now + SECOND_LONG;
    assert!(session.is_expired(end) && !session.is_expired(now));
    assert_eq!(put(&session, "three", end), Err(NotTaken::NoSubscriber));
    assert!(!session.take_over(&connection(&second), end));
    session.expire();
    assert_eq!(memory.used(), 0);
    assert_eq!(put(&session, "four", now), Err(NotTaken::NoSubscriber));
}

#[tokio::test]
async fn without_acknowledgements_nothing_is_kept_for_an_offline_device() {
    let ((session, first, memory), now) = (roomy(), Clocks::now());
    session.subscribe(&first, Some(QoS::AtMostOnce));
    put(&session, "now", now).unwrap();
    let sent = session.next(&first, WINDOW, now).unwrap();
    assert_eq!(sent.message.id, None);
    assert!(memory.used() > 0, "its memory goes with it");
    drop(sent);
    assert_eq!(memory.used(), 0);
    session.go_offline(&first, now);
    assert_eq!(put(&session, "later", now), Err(NotTaken::NoSubscriber));
}

use push_model::time::UnixMillis;
use rmqtt_codec::types::QoS;

use super::*;

const LIMITS: SessionLimits = SessionLimits { messages: 10, bytes: 1 << 20 };
const KEEP: Duration = Duration::from_secs(60);

fn device(name: &str) -> DeviceIdentity {
    let (app, client) = ("a".parse().unwrap(), name.parse().unwrap());
    let (expires_at, kid) = (UnixMillis::MAX, "key".into());
    let registration = RegistrationEpoch(1);
    DeviceIdentity { app, client, generation: 0, registration, expires_at, kid }
}

/// A connection whose login was checked just now.
fn take(
    sessions: &Arc<Sessions>,
    device: &DeviceIdentity,
    clean: bool,
    keep: Duration,
) -> Result<SessionOwner, NotOwned> {
    let seen = sessions.registration_of(&device.device().topic());
    sessions.own(device, seen, clean, keep, Clocks::now())
}

fn own(sessions: &Arc<Sessions>, name: &str, clean: bool, keep: Duration) -> SessionOwner {
    let owner = take(sessions, &device(name), clean, keep).unwrap();
    owner.subscribe(Some(QoS::AtLeastOnce));
    owner
}

fn publish(sessions: &Sessions, name: &str) -> Result<(), NotTaken> {
    sessions.publish(&format!("push/a/{name}"), None, b"x", None, Clocks::now())
}

#[tokio::test]
async fn a_session_ends_with_its_connection_unless_it_is_to_be_kept() {
    let sessions = Sessions::new(10, 100, 1 << 20, LIMITS);
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
async fn a_session_that_is_taken_over_while_it_is_found_to_be_expired_stays() {
    let sessions = Sessions::new(10, 100, 1 << 20, LIMITS);
    drop(own(&sessions, "d", false, KEEP));
    let late = Clocks::now() + 2 * KEEP;
    let expired: Vec<_> = sessions.all();
    assert!(expired.iter().all(|session| session.is_expired(late)));
    let back = own(&sessions, "d", false, KEEP);
    for session in &expired {
        sessions.remove(session, late);
    }
    assert_eq!(publish(&sessions, "d"), Ok(()));
    drop(back);
    for session in &expired {
        sessions.remove(session, late);
    }
    assert_eq!(publish(&sessions, "d"), Err(NotTaken::NoSubscriber));
}

#[tokio::test]
async fn a_device_that_connects_again_ends_its_connection_before() {
    let sessions = Sessions::new(10, 100, 1 << 20, LIMITS);
    for clean in [false, true] {
        let before = own(&sessions, "d", false, Duration::ZERO);
        let after = own(&sessions, "d", clean, KEEP);
        assert_eq!((before.loss(), after.loss()), (Some(SessionLoss::TakenOver), None));
        drop(before);
        assert_eq!(publish(&sessions, "d"), Ok(()), "the later connection keeps the session");
    }
}

#[tokio::test]
async fn sessions_are_bounded_and_make_room_when_their_time_is_over() {
    let sessions = Sessions::new(1, 100, 1 << 20, LIMITS);
    drop(own(&sessions, "one", false, KEEP));
    let now = Clocks::now();
    assert!(take(&sessions, &device("two"), true, KEEP).is_err());
    sessions.remove_expired(now + KEEP / 2);
    assert!(take(&sessions, &device("two"), true, KEEP).is_err());
    sessions.remove_expired(now + KEEP * 2);
    assert!(take(&sessions, &device("two"), true, KEEP).is_ok());
}

#[tokio::test]
async fn one_app_never_takes_all_sessions() {
    let sessions = Sessions::new(4, 100, 1 << 20, LIMITS);
    let own = |app: &str, name: &str| {
        let device = DeviceIdentity { app: app.parse().unwrap(), ..device(name) };
        take(&sessions, &device, false, KEEP).is_ok()
    };
    assert!(own("a", "1") && own("a", "2") && !own("a", "3"));
    assert!(own("a", "2"), "a device that has one keeps it");
    assert!(own("b", "1") && !own("b", "2"), "an app may have as many as it leaves free");
    assert!(own("c", "1"));
    assert!(!own("d", "1"), "there is no room at all");
    sessions.remove_app(&device("1").app_key());
    assert!(own("a", "3") && own("d", "1"));
    sessions.remove_expired(Clocks::now() + 2 * KEEP);
    assert_eq!(sessions.read().len(), 0);
    assert!(own("a", "1") && own("a", "2") && !own("a", "3"));
}

#[tokio::test]
async fn a_later_app_of_the_same_name_begins_with_no_session_of_the_one_before() {
    let sessions = Sessions::new(10, 100, 1 << 20, LIMITS);
    drop(own(&sessions, "away", false, KEEP));
    let here = own(&sessions, "here", false, KEEP);
    publish(&sessions, "away").unwrap();
    let later = DeviceIdentity { generation: 1, ..device("away") };
    let resumed = take(&sessions, &later, false, KEEP).unwrap();
    assert!(!resumed.resumed() && sessions.usage().1 == 0);

    sessions.remove_app(&device("here").app_key());
    assert_eq!((here.loss(), resumed.loss()), (Some(SessionLoss::AppRemoved), None));
    assert!(sessions.by_app().into_keys().eq([later.app_key()]));
}

#[tokio::test]
async fn a_later_device_of_a_client_id_begins_with_no_session_of_the_one_before() {
    let sessions = Sessions::new(10, 100, 1 << 20, LIMITS);
    drop(own(&sessions, "away", false, KEEP));
    let here = own(&sessions, "here", false, KEEP);
    publish(&sessions, "away").unwrap();
    let registration = RegistrationEpoch(2);
    let [away, later] =
        ["away", "here"].map(|name| DeviceIdentity { registration, ..device(name) });
    let away = take(&sessions, &away, false, KEEP).unwrap();
    assert!(!away.resumed() && sessions.usage().1 == 0);
    let later = take(&sessions, &later, false, KEEP).unwrap();
    assert_eq!((here.loss(), later.loss()), (Some(SessionLoss::DeviceRemoved), None));
}

#[tokio::test]
async fn what_is_for_one_device_of_a_client_id_reaches_no_earlier_or_later_one() {
    let sessions = Sessions::new(10, 100, 1 << 20, LIMITS);
    let before = own(&sessions, "d", false, KEEP);
    let publish = |registration| {
        let registration = Some(RegistrationEpoch(registration));
        sessions.publish("push/a/d", registration, b"x", None, Clocks::now())
    };
    assert_eq!(publish(2), Err(NotTaken::NoSubscriber), "it is connected and subscribes");
    assert_eq!(publish(1), Ok(()));

    let registration = RegistrationEpoch(2);
    let later = DeviceIdentity { generation: 1, registration, ..device("d") };
    let later = take(&sessions, &later, false, KEEP).unwrap();
    later.subscribe(Some(QoS::AtLeastOnce));
    assert_eq!((before.loss(), later.loss()), (Some(SessionLoss::AppRemoved), None));
    assert_eq!((publish(2), publish(1)), (Ok(()), Err(NotTaken::NoSubscriber)));
}

#[tokio::test]
async fn a_login_that_was_checked_before_a_later_device_logged_in_does_not_end_its_session() {
    let sessions = Sessions::new(10, 100, 1 << 20, LIMITS);
    let later = DeviceIdentity { registration: RegistrationEpoch(2), ..device("d") };
    for seen in [None, Some(RegistrationEpoch(1)), Some(RegistrationEpoch(3))] {
        let owner = take(&sessions, &later, false, KEEP).unwrap();
        let outdated = sessions.own(&device("d"), seen, true, KEEP, Clocks::now());
        assert_eq!(outdated.err(), Some(NotOwned::Outdated), "{seen:?}");
        assert_eq!(owner.loss(), None);
    }
}

#[tokio::test]
async fn one_app_never_takes_all_connections() {
    let sessions = Sessions::new(100, 4, 1 << 20, LIMITS);
    let own = |app: &str, name: &str| {
        let device = DeviceIdentity { app: app.parse().unwrap(), ..device(name) };
        take(&sessions, &device, false, KEEP).ok()
    };
    let first = [own("a", "1"), own("a", "2")];
    assert!(first.iter().all(Option::is_some) && own("a", "3").is_none());
    let other = own("b", "1");
    assert!(other.is_some());
    drop(first);
    assert!(own("a", "3").is_some(), "a connection that has ended counts no more");
}

#[tokio::test]
async fn a_connection_ends_with_the_key_of_its_token_and_its_session_stays() {
    let sessions = Sessions::new(10, 10, 1 << 20, LIMITS);
    let stolen = own(&sessions, "d", false, KEEP);
    let other = DeviceIdentity { kid: "other".into(), ..device("e") };
    let other = take(&sessions, &other, false, KEEP).unwrap();
    sessions.disconnect_keys(|kid| kid == "key");
    assert_eq!((stolen.loss(), other.loss()), (Some(SessionLoss::KeyEnded), None));
    publish(&sessions, "d").unwrap();
    assert!(own(&sessions, "d", false, KEEP).resumed());
}

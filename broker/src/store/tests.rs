use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use push_credentials::DeviceIdentity;
use push_model::time::UnixMillis;
use rmqtt_codec::types::QoS;
use tempfile::TempDir;

use super::*;
use crate::{
    clocks::Expiry,
    sessions::{SessionLimits, SessionOwner},
};

const LIMITS: SessionLimits = SessionLimits { messages: 100, bytes: 1 << 20 };
const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
/// The app's generation.
const GENERATION: u64 = 3;

fn sessions() -> Arc<Sessions> {
    Sessions::new(10, 10, 1 << 20, LIMITS)
}

fn own(sessions: &Arc<Sessions>, client: &str, keep: Duration) -> SessionOwner {
    let device = DeviceIdentity {
        app: "news".parse().unwrap(),
        client: client.parse().unwrap(),
        generation: GENERATION,
        registration: push_model::registration::RegistrationEpoch(7),
        expires_at: UnixMillis::MAX,
        kid: "key".into(),
    };
    let owner = sessions.own(&device, None, false, keep, Clocks::now()).unwrap();
    if !owner.resumed() {
        owner.subscribe(Some(QoS::AtLeastOnce));
    }
    owner
}

fn publish(sessions: &Sessions, client: &str, payload: &[u8], lifetime: Option<Duration>) {
    publish_at(sessions, client, payload, lifetime, Clocks::now());
}

fn publish_at(
    sessions: &Sessions,
    client: &str,
    payload: &[u8],
    lifetime: Option<Duration>,
    now: Clocks,
) {
    let topic = format!("push/news/{client}");
    let expiry = lifetime.and_then(|lifetime| Expiry::after(lifetime, now));
    sessions.publish(&topic, None, payload, expiry, now).unwrap();
}

/// Returns the messages that a device gets when it connects, each with true if it was sent before.
fn received(sessions: &Arc<Sessions>, client: &str) -> Vec<(Bytes, bool)> {
    let owner = own(sessions, client, HOUR);
    let window = 10.try_into().unwrap();
    std::iter::from_fn(|| owner.next(window, Clocks::now()))
        .map(|outgoing| (outgoing.message.payload, outgoing.message.dup))
        .collect()
}

fn saved(folder: &TempDir) -> Vec<u8> {
    fs::read(folder.path().join(FILE)).unwrap()
}

/// A store with one session in which two messages wait.
fn filled() -> (TempDir, Store) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let before = sessions();
    drop(own(&before, "phone", HOUR));
    for text in ["one", "two"] {
        publish(&before, "phone", text.as_bytes(), None);
    }
    store.save(&before).unwrap();
    (folder, store)
}

#[tokio::test]
async fn what_waits_is_there_again_with_what_was_sent_first() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let before = sessions();
    let device = own(&before, "phone", HOUR);
    publish(&before, "phone", b"sent", Some(HOUR));
    assert!(device.next(1.try_into().unwrap(), Clocks::now()).is_some());
    publish(&before, "phone", &[0, 255, 10], None);
    // Its time to live ended a second ago.
    let earlier = Clocks {
        monotonic: Clocks::now().monotonic - 2 * SECOND,
        wall: UnixMillis::now().minus(2 * SECOND),
    };
    publish_at(&before, "phone", b"short", Some(SECOND), earlier);
    own(&before, "not-subscribed", HOUR).subscribe(None);
    // Both end with their connections.
    let _connected = own(&before, "connected", Duration::ZERO);
    store.save(&before).unwrap();

    let after = sessions();
    let restored = store.load(&after).unwrap();
    assert_eq!(restored, Restored { sessions: 2, messages: 2, no_room: 0 });
    let expected = [(Bytes::from_static(b"sent"), true), (vec![0, 255, 10].into(), false)];
    assert_eq!(received(&after, "phone"), expected);
    assert!(own(&after, "phone", HOUR).resumed());
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(folder.path().join(FILE)).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn what_is_over_by_the_next_start_is_dropped() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let before = sessions();
    drop(own(&before, "away", Duration::from_secs(10)));
    publish(&before, "away", b"a", None);
    let _connected = own(&before, "connected", Duration::from_secs(10));
    publish(&before, "connected", b"short", Some(Duration::from_secs(5)));
    publish(&before, "connected", b"long", Some(HOUR));
    store.save(&before).unwrap();
    let mut now = Clocks::now();
    now.wall.0 += 20_000;
    let after = sessions();
    let path = folder.path().join(FILE);
    let restored = read::read(&path, File::open(&path).unwrap(), &after, now).unwrap();
    let expected = Restored { sessions: 1, messages: 1, no_room: 0 };
    assert_eq!(restored, expected, "the time of a connected one begins anew");
    assert_eq!(received(&after, "connected"), [(Bytes::from_static(b"long"), false)]);
}

#[tokio::test]
async fn a_file_that_was_cut_or_changed_anywhere_is_refused() {
    let (folder, store) = filled();
    let whole = saved(&folder);
    for len in 0..whole.len() {
        fs::write(folder.path().join(FILE), &whole[..len]).unwrap();
        let error = store.load(&sessions()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{len}: {error}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(folder.path().join(FILE), &changed).unwrap();
        let error = store.load(&sessions()).unwrap_err();
        let is_refused = matches!(error, StoreError::Damaged { .. } | StoreError::Newer { .. });
        assert!(is_refused, "{at}: {error}");
    }
    let aside = store.put_aside().unwrap();
    assert!(aside.exists() && store.load(&sessions()).unwrap() == Restored::default());
}

#[tokio::test]
async fn a_file_of_a_later_version_is_neither_read_nor_moved() {
    let (folder, store) = filled();
    let text = String::from_utf8(saved(&folder)).unwrap().replace("\"version\":1", "\"version\":2");
    fs::write(folder.path().join(FILE), text).unwrap();
    let error = store.load(&sessions()).unwrap_err();
    assert!(matches!(error, StoreError::Newer { version: 2, .. }), "{error}");
}

#[tokio::test]
async fn what_a_file_asks_for_is_bounded() {
    let (folder, store) = filled();
    let path = folder.path().join(FILE);
    let smaller = Sessions::new(10, 10, 1 << 20, SessionLimits { messages: 1, bytes: 1 << 20 });
    let restored = store.load(&smaller).unwrap();
    assert_eq!((restored.messages, restored.no_room), (1, 1));
    assert_eq!(received(&smaller, "phone"), [(Bytes::from_static(b"two"), false)]);
    let none = Sessions::new(0, 10, 1 << 20, LIMITS);
    assert_eq!(store.load(&none).unwrap(), Restored { sessions: 0, messages: 0, no_room: 3 });
    let no_memory = Sessions::new(10, 10, 0, LIMITS);
    assert_eq!(store.load(&no_memory).unwrap().no_room, 2);

    // A line without an end is read up to the bound only.
    struct Endless(u64);
    impl io::Read for Endless {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            to.fill(b'x');
            self.0 += to.len() as u64;
            Ok(to.len())
        }
    }
    let mut endless = Endless(0);
    let error = read::read(&path, &mut endless, &sessions(), Clocks::now()).unwrap_err();
    assert!(error.to_string().contains("too long"), "{error}");
    assert!(endless.0 <= 2 * format::MAX_LINE as u64, "{} bytes were read", endless.0);
}

#[tokio::test]
async fn two_brokers_never_save_in_one_folder() {
    let (folder, store) = filled();
    assert!(matches!(Store::open(folder.path()), Err(StoreError::InUse(_))));
    drop(store);
    assert!(Store::open(folder.path()).is_ok());
}

//! Registrations that come at the same time: they share requests to the store, and each has an
//! answer of its own.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use push_index::{Devices, Index, Put, PutRefused, redis::RedisIndex};
use push_model::{app::AppKey, device::Device, time::UnixMillis};
use push_store::IndexError;
use push_tests::{eventually, namespace, redis_url, servers::Redis};
use tokio::{task::yield_now, time::timeout};

use crate::index::support::{NOW, admin, app, ask, changes, client, create, device, key};

const DEADLINE: Duration = Duration::from_secs(30);

fn of_country(id: &str, country: &str) -> Device {
    device(id, &[("country", country)])
}

/// Registers each of these devices in a call of its own, all at the same time.
async fn put_together(
    index: &dyn Index,
    app: &AppKey,
    devices: &[Device],
) -> Vec<Result<Vec<Result<Put, PutRefused>>, IndexError>> {
    let put = |device| index.put_devices(app, std::slice::from_ref(device), NOW);
    join_all(devices.iter().map(put)).await
}

pub(crate) async fn registrations_that_come_together_are_answered_each_for_itself(
    index: &dyn Index,
) {
    let removed = create(index).await;
    assert!(index.remove_app(&app()).await.unwrap());
    let here = create(index).await;
    let other = AppKey::first("other".parse().unwrap());
    let [cn, sg] = ["CN", "SG"].map(|country| move |id: &str| of_country(id, country));
    let before = ["stays", "changes", "comes-back", "in-a-list"].map(cn);
    for app in [&here, &other] {
        // The last device has the other value, so that both are in the dictionary from here on.
        let put = index.put_devices(app, &[&before[..], &[sg("sg")]].concat(), NOW).await.unwrap();
        assert_eq!(put, [const { Ok(Put::Created) }; 5]);
    }

    let (new, old, gone) = (Ok(Put::Created), Ok(Put::Updated), Err(PutRefused::AppRemoved));
    let calls = [
        (&here, vec![cn("stays")], vec![old.clone()]),
        (&here, vec![sg("changes")], vec![old.clone()]),
        (&removed, vec![cn("stays")], vec![gone.clone()]),
        (&here, vec![cn("new")], vec![new.clone()]),
        (&other, vec![sg("new")], vec![new.clone()]),
        (
            &here,
            vec![cn("new-in-a-list"), sg("in-a-list"), cn("stays")],
            vec![new.clone(), old.clone(), old.clone()],
        ),
        // For each of these clients the later call wins.
        (&here, vec![cn("twice")], vec![new.clone()]),
        (&here, vec![sg("comes-back")], vec![old.clone()]),
        (&here, vec![sg("twice")], vec![old.clone()]),
        (&here, vec![cn("comes-back")], vec![old.clone()]),
    ];
    let put = calls.iter().map(|(app, devices, _)| index.put_devices(app, devices, NOW));
    for (answer, (app, devices, expected)) in join_all(put).await.into_iter().zip(&calls) {
        assert_eq!(&answer.unwrap(), expected, "{app}: {devices:?}");
    }
    let stored = [
        (&here, cn("stays")),
        (&here, sg("changes")),
        (&here, cn("new")),
        (&here, cn("new-in-a-list")),
        (&here, sg("in-a-list")),
        (&here, sg("twice")),
        (&here, cn("comes-back")),
        (&other, cn("stays")),
        (&other, cn("changes")),
        (&other, sg("new")),
    ];
    for (app, expected) in stored {
        let found = index.device(app, &expected.client_id).await.unwrap();
        assert_eq!(found, Some(expected), "{app}");
    }
    assert_eq!(index.count_devices(&here).await.unwrap(), 8);
    assert_eq!(index.count_devices(&other).await.unwrap(), 6);
}

#[tokio::test]
async fn a_registration_that_changes_nothing_writes_nothing() {
    let server = Redis::start().await.unwrap();
    let index = RedisIndex::connect(&server.url(), &namespace(), Default::default()).await.unwrap();
    let mut admin = admin(&server.url()).await;
    // Devices with different transports, with a token or without, in many shards.
    let devices: Vec<_> = (0..30)
        .map(|n| {
            let token = "t".repeat(n + 1);
            let fields = [
                [("country", "CN"), ("brand", "x")],
                [("transport", "discard"), ("token", &token)],
                [("transport", "mqtt"), ("token", &token)],
            ];
            device(&format!("c{n}"), &fields[n % fields.len()])
        })
        .collect();
    let put = index.put_devices(&key(), &devices, NOW).await.unwrap();
    assert!(put.iter().all(|put| *put == Ok(Put::Created)), "{put:?}");

    let written = changes(&mut admin).await;
    let later = UnixMillis(NOW.0 + 1000);
    let alone = index.put_devices(&key(), &devices[..1], later).await.unwrap();
    assert_eq!(alone, [Ok(Put::Updated)]);
    for put in put_together(&index, &key(), &devices).await {
        assert_eq!(put.unwrap(), [Ok(Put::Updated)]);
    }
    assert_eq!(changes(&mut admin).await, written);

    // A provider's report is compared with the last registration, so that is written, and nothing else.
    let reported = device("reported", &[("transport", "fcm"), ("token", "t")]);
    for (now, writes) in [(NOW, None), (later, Some(1))] {
        let before = changes(&mut admin).await;
        index.put_devices(&key(), std::slice::from_ref(&reported), now).await.unwrap();
        let after = changes(&mut admin).await;
        assert!(writes.is_none_or(|writes| after - before == writes), "{before} {after}");
    }

    let written = changes(&mut admin).await;
    let mut changed = devices;
    changed[7] = of_country("c7", "SG");
    for put in put_together(&index, &key(), &changed).await {
        assert_eq!(put.unwrap(), [Ok(Put::Updated)]);
    }
    assert!(changes(&mut admin).await > written);
    for device in changed {
        let found = index.device(&key(), &device.client_id).await.unwrap();
        assert_eq!(found, Some(device));
    }
}

#[tokio::test]
async fn a_shard_that_fails_fails_only_its_own_registrations() {
    let namespace = namespace();
    let index = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    let mut admin = admin(&redis_url()).await;
    let shard = |id: &str| index.storage_order(&client(id)) >> 40;
    let devices: Vec<_> = (0..20).map(|n| of_country(&format!("c{n}"), "CN")).collect();
    index.put_devices(&key(), &devices[..10], NOW).await.unwrap();
    // The layout of another version of the program.
    let failing = shard("c0");
    let shard_key = format!("{namespace}:{{{}/{failing}}}", key());
    ask(&mut admin, &["HSET", &shard_key, "layout", "2"]).await;

    let (mut failed, mut registered) = (0, 0);
    // In calls of two devices and of one; some calls of two have a device in the failing shard and
    // one in another.
    let calls: Vec<&[Device]> = devices[..10].chunks(2).chain(devices[10..].chunks(1)).collect();
    let app = key();
    let put = calls.iter().map(|devices| index.put_devices(&app, devices, NOW));
    for (put, devices) in join_all(put).await.into_iter().zip(calls) {
        let fails = devices.iter().any(|device| shard(device.client_id.as_str()) == failing);
        match put {
            Err(IndexError::Refused(_)) if fails => failed += 1,
            Ok(put) if !fails && put.len() == devices.len() => {
                let expected = if devices.len() == 2 { Put::Updated } else { Put::Created };
                assert!(
                    put.iter().all(|put| put.as_ref() == Ok(&expected)),
                    "{devices:?}: {put:?}"
                );
                registered += 1;
            }
            other => panic!("{devices:?}: {other:?}"),
        }
    }
    assert!(failed > 0 && registered > 10, "{failed} and {registered}");
}

/// A store loses writes by a fail-over or a crash, and either breaks connections: codes that were
/// read before may mean other values now.
#[tokio::test]
async fn codes_that_were_read_on_a_lost_connection_are_not_used() {
    let server = Redis::start().await.unwrap();
    let namespace = namespace();
    let index = RedisIndex::connect(&server.url(), &namespace, Default::default()).await.unwrap();
    let index = Arc::new(index);
    let mut admin = admin(&server.url()).await;
    let here = of_country("here", "CN");
    index.put_devices(&key(), std::slice::from_ref(&here), NOW).await.unwrap();

    // The code of the only value means another value now.
    let [list, codes] = ["v0", "s0"].map(|kind| format!("{namespace}:{{{}}}:{kind}", key()));
    ask(&mut admin, &["DEL", &list, &codes]).await;
    ask(&mut admin, &["RPUSH", &list, "SG"]).await;
    ask(&mut admin, &["HSET", &codes, "SG", "1"]).await;

    // Two registrations wait for the server. A third one has looked up its codes, and waits for
    // these two.
    ask(&mut admin, &["CLIENT", "PAUSE", "60000", "WRITE"]).await;
    let put = |devices: Vec<Device>| {
        let index = Arc::clone(&index);
        tokio::spawn(async move { put_together(&*index, &key(), &devices).await })
    };
    let first = put(vec![of_country("first", "CN"), of_country("second", "CN")]);
    eventually("a script waits at the server", DEADLINE, async || {
        let clients = ask(&mut admin.clone(), &["CLIENT", "LIST"]).await;
        let waits = |line: &str| line.contains("flags=b") && line.contains("cmd=eval");
        if clients.lines().any(waits) { Ok(()) } else { Err(clients) }
    })
    .await;
    let devices = [here, of_country("third", "CN")];
    let third = {
        let (index, devices) = (Arc::clone(&index), devices.clone());
        tokio::spawn(async move { index.put_devices(&key(), &devices, NOW).await })
    };
    yield_now().await;
    ask(&mut admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    ask(&mut admin, &["CLIENT", "UNPAUSE"]).await;

    for put in first.await.unwrap() {
        assert!(matches!(put, Err(IndexError::Unsure(_))), "{put:?}");
    }
    assert_eq!(third.await.unwrap().unwrap(), [Ok(Put::Updated), Ok(Put::Created)]);
    for device in devices {
        let found = index.device(&key(), &device.client_id).await.unwrap();
        assert_eq!(found, Some(device));
    }
}

#[tokio::test]
async fn a_registration_that_was_given_up_does_not_come_back_behind_the_removal() {
    let server = Redis::start().await.unwrap();
    let index = RedisIndex::connect(&server.url(), &namespace(), Default::default()).await.unwrap();
    let app = create(&index).await;
    let both = [of_country("one", "CN"), of_country("two", "SG")];
    index.put_devices(&app, &both, NOW).await.unwrap();

    server.freeze().unwrap();
    // The first is on its way when the server stops; the second waits for the first one's group.
    let changed = [of_country("one", "SG"), of_country("two", "CN")];
    let given_up = join_all(changed.iter().map(|device| async {
        let put = index.put_devices(&app, std::slice::from_ref(device), NOW);
        let _ = timeout(Duration::from_millis(200), put).await.unwrap_err();
    }));
    given_up.await;
    let remove = join_all(["one", "two"].map(client).map(|id| {
        let (index, app) = (&index, &app);
        async move { index.remove_device(app, &id).await }
    }));
    let (removed, ()) = tokio::join!(remove, async { server.thaw().unwrap() });
    assert_eq!(removed.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [true; 2]);

    // When this one has ended, the groups before it have ended too.
    index.put_devices(&app, &[of_country("three", "CN")], NOW).await.unwrap();
    for id in ["one", "two"] {
        assert_eq!(index.device(&app, &client(id)).await.unwrap(), None, "{id}");
    }
}

//! Registrations that come together: they share what they cost, and nothing else.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use push_index::{Devices, Index, IndexError, Put, PutRefused, redis::RedisIndex};
use push_model::{
    app::{App, AppKey},
    device::Device,
    secret::Secret,
    time::UnixMillis,
};
use push_tests::{eventually, namespace, redis_url, servers::Redis};
use redis::aio::MultiplexedConnection;
use tokio::{task::yield_now, time::timeout};

use crate::devices::{NOW, app, client, device, key};

const DEADLINE: Duration = Duration::from_secs(30);

fn of_country(id: &str, country: &str) -> Device {
    device(id, &[("country", country)])
}

async fn create(index: &dyn Index) -> AppKey {
    assert!(index.create_app(&App::new(app(), &Secret::generate(), NOW)).await.unwrap());
    AppKey::from(&index.app(&app()).await.unwrap().unwrap())
}

/// Registers these in calls of their own that are made together.
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
        // The last one brings the other value, so that all of them are known from here on.
        let put = index.put_devices(app, &[&before[..], &[sg("sg")]].concat(), NOW).await.unwrap();
        assert_eq!(put, [Ok(Put::Created); 5]);
    }

    let (new, old, gone) = (Ok(Put::Created), Ok(Put::Updated), Err(PutRefused::AppRemoved));
    let calls = [
        (&here, vec![cn("stays")], vec![old]),
        (&here, vec![sg("changes")], vec![old]),
        (&removed, vec![cn("stays")], vec![gone]),
        (&here, vec![cn("new")], vec![new]),
        (&other, vec![sg("new")], vec![new]),
        (&here, vec![cn("new-in-a-list"), sg("in-a-list"), cn("stays")], vec![new, old, old]),
        // Of each of these clients the one that comes later wins.
        (&here, vec![cn("twice")], vec![new]),
        (&here, vec![sg("comes-back")], vec![old]),
        (&here, vec![sg("twice")], vec![old]),
        (&here, vec![cn("comes-back")], vec![old]),
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

pub(crate) async fn admin(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

pub(crate) async fn ask(admin: &mut MultiplexedConnection, words: &[&str]) -> String {
    let mut cmd = redis::cmd(words[0]);
    let answer: redis::Value = cmd.arg(&words[1..]).query_async(admin).await.unwrap();
    redis::from_redis_value(answer).unwrap_or_default()
}

/// How many changes the server has counted.
pub(crate) async fn changes(admin: &mut MultiplexedConnection) -> u64 {
    let info = ask(admin, &["INFO", "persistence"]).await;
    let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_registration_that_changes_nothing_writes_nothing() {
    let server = Redis::start().await.unwrap();
    let index = RedisIndex::connect(&server.url(), &namespace(), Default::default()).await.unwrap();
    let mut admin = admin(&server.url()).await;
    // Each of another transport, with a token or without, in one shard or another.
    let devices: Vec<_> = (0..30)
        .map(|n| {
            let token = "t".repeat(n + 1);
            let fields = [
                [("country", "CN"), ("brand", "x")],
                [("transport", "webhook"), ("token", &token)],
                [("transport", "fcm"), ("token", &token)],
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
async fn a_shard_that_fails_fails_only_those_who_register_there() {
    let namespace = namespace();
    let index = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    let mut admin = admin(&redis_url()).await;
    let shard = |id: &str| index.storage_order(&client(id)) >> 40;
    let devices: Vec<_> = (0..20).map(|n| of_country(&format!("c{n}"), "CN")).collect();
    index.put_devices(&key(), &devices[..10], NOW).await.unwrap();
    // Written by another version of the program.
    let failing = shard("c0");
    let shard_key = format!("{namespace}:{{{}/{failing}}}", key());
    ask(&mut admin, &["HSET", &shard_key, "layout", "3"]).await;

    let (mut failed, mut registered) = (0, 0);
    // In calls of two and of one, of which some have a device here and there.
    let calls: Vec<&[Device]> = devices[..10].chunks(2).chain(devices[10..].chunks(1)).collect();
    let app = key();
    let put = calls.iter().map(|devices| index.put_devices(&app, devices, NOW));
    for (put, devices) in join_all(put).await.into_iter().zip(calls) {
        let fails = devices.iter().any(|device| shard(device.client_id.as_str()) == failing);
        match put {
            Err(IndexError::Refused(_)) if fails => failed += 1,
            Ok(put) if !fails && put.len() == devices.len() => {
                let expected = if devices.len() == 2 { Put::Updated } else { Put::Created };
                assert!(put.iter().all(|put| *put == Ok(expected)), "{devices:?}: {put:?}");
                registered += 1;
            }
            other => panic!("{devices:?}: {other:?}"),
        }
    }
    assert!(failed > 0 && registered > 10, "{failed} and {registered}");
}

/// What makes a store forget is a fail-over or a crash, and either breaks connections.
#[tokio::test]
async fn codes_that_were_read_on_a_lost_connection_are_not_used() {
    let server = Redis::start().await.unwrap();
    let namespace = namespace();
    let index = RedisIndex::connect(&server.url(), &namespace, Default::default()).await.unwrap();
    let index = Arc::new(index);
    let mut admin = admin(&server.url()).await;
    let here = of_country("here", "CN");
    index.put_devices(&key(), std::slice::from_ref(&here), NOW).await.unwrap();

    // The code of the one value that there was means another one now.
    let [list, set] = ["v0", "s0"].map(|kind| format!("{namespace}:{{{}}}:{kind}", key()));
    ask(&mut admin, &["DEL", &list, &set]).await;
    ask(&mut admin, &["RPUSH", &list, "SG"]).await;
    ask(&mut admin, &["SADD", &set, "SG"]).await;

    // Two registrations wait for the server, and a third one, which has its codes, waits for them.
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
    // The first is asked for when the server stops; the second waits for the group of the first.
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

    // The groups of before have ended when this one has.
    index.put_devices(&app, &[of_country("three", "CN")], NOW).await.unwrap();
    for id in ["one", "two"] {
        assert_eq!(index.device(&app, &client(id)).await.unwrap(), None, "{id}");
    }
}

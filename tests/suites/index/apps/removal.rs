//! Apps that are removed and made again: the later one shares nothing with the earlier one.

use std::time::Duration;

use push_index::{
    Apps, Devices, Index, Put, PutRefused, REMOVED_APP_REFUSES, Selection, redis::RedisIndex,
};
use push_model::{
    app::{App, AppKey},
    attributes::Attribute,
    device::{Device, NoTarget, TargetFields, TransportKind},
    pace::{Acquire, TrafficClass},
    secret::Secret,
    slots::SlotRange,
    targeting::Targeting,
};
use push_tests::{eventually, namespace, redis_url, servers::Redis, servers::redis_connection};
use redis::aio::MultiplexedConnection;

use crate::index::support::{NOW, app, client, device, scan_all, wanted};

/// Creates the app; returns its key, which says how many apps of its name were removed before.
async fn create(index: &dyn Index) -> AppKey {
    let record = App::new(app(), &Secret::generate(), NOW);
    assert!(index.create_app(&record).await.unwrap());
    AppKey::from(&index.app(&app()).await.unwrap().unwrap())
}

async fn remove_and_create(index: &dyn Index) -> AppKey {
    assert!(index.remove_app(&app()).await.unwrap());
    create(index).await
}

fn with_model(id: &str, model: &str) -> Device {
    device(id, &[("model", model)])
}

async fn register(index: &dyn Index, app: &AppKey, devices: &[Device]) {
    for put in index.put_devices(app, devices, NOW).await.unwrap() {
        assert_eq!(put, Ok(Put::Created));
    }
}

async fn is_refused(index: &dyn Index, app: &AppKey, device: &Device) {
    let put = index.put_devices(app, std::slice::from_ref(device), NOW).await.unwrap();
    assert_eq!(put, [Err(PutRefused::AppRemoved)], "{app}: {device:?}");
}

async fn everyone(index: &dyn Index, app: &AppKey) -> Vec<String> {
    scan_all(index, app, &Targeting::all_devices(), NOW, 10).await
}

pub(crate) async fn each_app_of_a_name_has_a_generation_and_a_record_of_its_own(index: &dyn Index) {
    let mut before: Option<App> = None;
    for generation in 0..4 {
        let app = create(index).await;
        assert_eq!(app.generation, generation);
        if let Some(mut before) = before.take() {
            before.disabled = true;
            assert!(!index.update_app(&before).await.unwrap(), "it is not this app's");
            assert!(!index.app(&app.id).await.unwrap().unwrap().disabled);
        }
        before = index.app(&app.id).await.unwrap();
        assert!(index.remove_app(&app.id).await.unwrap());
    }
    assert!(index.apps().await.unwrap().is_empty());
    // Another name is not affected.
    let other = App::new("other".parse().unwrap(), &Secret::generate(), NOW);
    assert!(index.create_app(&other).await.unwrap());
    assert_eq!(index.apps().await.unwrap(), [other]);
}

pub(crate) async fn a_registration_for_a_removed_app_is_refused_and_never_seen_by_the_next_one(
    index: &dyn Index,
) {
    let old = create(index).await;
    register(index, &old, &[with_model("before", "m")]).await;
    assert!(index.remove_app(&app()).await.unwrap());
    // A known value, a new one, no value, and a device that was registered before.
    let late = [
        with_model("late", "m"),
        with_model("later", "new"),
        device("latest", &[]),
        with_model("before", "m"),
    ];
    for device in &late {
        is_refused(index, &old, device).await;
    }
    let new = create(index).await;
    for device in &late {
        is_refused(index, &old, device).await;
    }
    assert_eq!(index.count_devices(&new).await.unwrap(), 0);
    register(index, &new, &[with_model("late", "m")]).await;
    is_refused(index, &old, &late[0]).await;
    assert_eq!(everyone(index, &new).await, ["late"]);
    assert_eq!(index.count_devices(&new).await.unwrap(), 1);
}

pub(crate) async fn nothing_is_read_or_removed_with_the_key_of_a_removed_app(index: &dyn Index) {
    let old = create(index).await;
    let devices: Vec<_> = (0..200).map(|n| with_model(&format!("c{n}"), "m")).collect();
    register(index, &old, &devices).await;
    let ranges: Vec<SlotRange> = index.extent(&old).await.unwrap();
    let new = remove_and_create(index).await;
    register(index, &new, &devices).await;
    let c0 = client("c0");
    assert_eq!(index.count_devices(&old).await.unwrap(), 0);
    assert_eq!(index.extent(&old).await.unwrap(), []);
    assert_eq!(index.device(&old, &c0).await.unwrap(), None);
    assert_eq!(
        index.targets(&old, std::slice::from_ref(&c0), TargetFields::Address).await.unwrap(),
        [Err(NoTarget::Unknown)]
    );
    assert!(!index.remove_device(&old, &c0).await.unwrap());
    for range in ranges {
        for targeting in [Targeting::all_devices(), wanted(Attribute::Model, &["m"])] {
            let scanned = index
                .scan(
                    &old,
                    range,
                    Selection {
                        carrier: TransportKind::Mqtt.into(),
                        targeting: &targeting,
                        registered_by: NOW,
                    },
                    TargetFields::Address,
                    100,
                )
                .await
                .unwrap();
            assert_eq!((scanned.items, scanned.next), (Vec::new(), None), "{range:?}");
            let count = index
                .count_matching(
                    &old,
                    range,
                    Selection {
                        carrier: TransportKind::Mqtt.into(),
                        targeting: &targeting,
                        registered_by: NOW,
                    },
                )
                .await
                .unwrap();
            assert_eq!(count, 0, "{range:?}");
        }
        assert!(index.list_devices(&old, range, 100).await.unwrap().items.is_empty());
    }
    assert_eq!(index.count_devices(&new).await.unwrap(), 200);
    assert!(index.device(&new, &c0).await.unwrap().is_some());
}

pub(crate) async fn a_code_of_a_removed_app_never_means_a_value_of_the_next_one(index: &dyn Index) {
    let old = create(index).await;
    let numbered = |n: usize, model: &str| with_model(&format!("c{n}"), model);
    let olds = ["a", "b", "c"];
    let devices: Vec<_> = olds.iter().enumerate().map(|(n, model)| numbered(n, model)).collect();
    register(index, &old, &devices).await;
    // From now on the index has the old app's dictionary in its cache.
    assert_eq!(scan_all(index, &old, &wanted(Attribute::Model, &["b"]), NOW, 10).await, ["c1"]);
    let new = remove_and_create(index).await;
    let news = ["x", "y", "c", "z"];
    let devices: Vec<_> = news.iter().enumerate().map(|(n, model)| numbered(n, model)).collect();
    register(index, &new, &devices).await;
    for (n, model) in news.into_iter().enumerate() {
        let reached = scan_all(index, &new, &wanted(Attribute::Model, &[model]), NOW, 10).await;
        assert_eq!(reached, [format!("c{n}")], "{model}");
        let device = index.device(&new, &client(&format!("c{n}"))).await.unwrap().unwrap();
        assert_eq!(device.attributes.get(Attribute::Model), Some(&*model.to_uppercase()));
    }
    for model in ["a", "b"] {
        let reached = scan_all(index, &new, &wanted(Attribute::Model, &[model]), NOW, 10).await;
        assert!(reached.is_empty(), "{model}: {reached:?}");
    }
}

pub(crate) async fn what_a_removed_app_still_sends_is_not_taken_off_the_next_ones_pace(
    index: &dyn Index,
) {
    let old = create(index).await;
    let new = remove_and_create(index).await;
    let pace = std::num::NonZeroU32::new(100).unwrap();
    let request = Acquire { devices: 50, pace, class: TrafficClass::Broadcast, now: NOW };
    // Whether these are granted is up to the engine: the app is gone.
    for _ in 0..20 {
        index.acquire_pace(&old, &request).await.unwrap();
    }
    assert!(index.acquire_pace(&new, &request).await.unwrap().granted);
}

pub(crate) async fn registrations_during_a_removal_leave_nothing(index: &dyn Index) {
    let old = create(index).await;
    let writer = async |writer: usize| {
        let mut refused = false;
        for n in 0..400 {
            let device = with_model(&format!("w{writer}-{n}"), &format!("m{writer}-{n}"));
            let put = index.put_devices(&old, &[device], NOW).await.unwrap();
            let gone = put == [Err(PutRefused::AppRemoved)];
            assert!(gone || !refused, "{put:?} after a refusal");
            refused = gone;
        }
        refused
    };
    let remove = async {
        while index.count_devices(&old).await.unwrap() < 50 {}
        remove_and_create(index).await
    };
    let (new, a, b, c) = tokio::join!(remove, writer(0), writer(1), writer(2));
    assert!(a && b && c, "the removal came before the end of the registrations");
    for app in [&old, &new] {
        assert_eq!(index.count_devices(app).await.unwrap(), 0, "{app}");
        assert!(everyone(index, app).await.is_empty(), "{app}");
    }
}

/// The app's keys, each with its time to live in milliseconds; -1 for a key that does not expire.
async fn keys(connection: &mut MultiplexedConnection, namespace: &str) -> Vec<(String, i64)> {
    let pattern = format!("{namespace}:{{{}*", app());
    let names: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(connection).await.unwrap();
    let mut keys = Vec::new();
    for name in names {
        let life = redis::cmd("PTTL").arg(&name).query_async(connection).await.unwrap();
        keys.push((name, life));
    }
    keys
}

#[tokio::test]
async fn what_a_removed_app_leaves_in_redis_goes_by_itself_in_time() {
    let namespace = namespace();
    let index = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    let server = redis::Client::open(redis_url()).unwrap();
    let mut connection = redis_connection(&server).await.unwrap();
    let old = create(&index).await;
    let devices: Vec<_> =
        (0..500).map(|n| with_model(&format!("c{n}"), &format!("m{n}"))).collect();
    register(&index, &old, &devices).await;
    assert!(keys(&mut connection, &namespace).await.iter().any(|(_, life)| *life == -1));
    assert!(index.remove_app(&app()).await.unwrap());
    let first_brand = device("late", &[("brand", "b")]);
    for device in [&devices[0], &with_model("late", "new"), &first_brand, &device("late", &[])] {
        is_refused(&index, &old, device).await;
    }
    let most = i64::try_from(REMOVED_APP_REFUSES.as_millis()).unwrap();
    for (key, life) in keys(&mut connection, &namespace).await {
        assert!((1..=most).contains(&life), "{key} lives for {life} ms");
    }
}

/// Registers a device, again and again until it succeeds: connections may have broken.
async fn register_again(index: &RedisIndex, app: &AppKey, device: Device) {
    eventually("the device is registered", Duration::from_secs(20), async || {
        let put = index.put_devices(app, std::slice::from_ref(&device), NOW).await;
        put.map(drop).map_err(|error| format!("{error:?}"))
    })
    .await;
}

#[tokio::test]
async fn a_redis_that_lost_its_last_writes_gives_no_device_the_value_of_another() {
    let (server, namespace) = (Redis::start().await.unwrap(), namespace());
    let url = server.url();
    let connect = || RedisIndex::connect(&url, &namespace, Default::default());
    let (first, second) = (connect().await.unwrap(), connect().await.unwrap());
    let app = create(&first).await;
    register(&first, &app, &[with_model("a", "lost")]).await;

    let admin = redis::Client::open(server.url()).unwrap();
    let mut admin = redis_connection(&admin).await.unwrap();
    let key = |kind: char| format!("{namespace}:{{{app}}}:{kind}{}", Attribute::Model.index());
    assert!(first.remove_device(&app, &client("a")).await.unwrap());
    for key in [key('v'), key('s')] {
        redis::cmd("DEL").arg(key).query_async::<()>(&mut admin).await.unwrap();
    }
    // A fail-over or a restart breaks connections too.
    let mut kill = redis::cmd("CLIENT");
    kill.arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]);
    kill.query_async::<()>(&mut admin).await.unwrap();

    register_again(&second, &app, with_model("b", "other")).await;
    register_again(&first, &app, with_model("c", "lost")).await;
    for (id, model) in [("b", "OTHER"), ("c", "LOST")] {
        for index in [&first, &second] {
            let device = index.device(&app, &client(id)).await.unwrap().unwrap();
            assert_eq!(device.attributes.get(Attribute::Model), Some(model), "{id}");
        }
    }
}

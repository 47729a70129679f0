//! `pushctl move`: from a file to Redis, to Redis Cluster and back, killed, while the service runs,
//! and when it must not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use push_index::{
    Devices as _, Index, SecretUses as _,
    redis::RedisIndex,
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use push_model::{
    app::{App, AppKey},
    time::UnixMillis,
    transfer::Registration,
};
use push_store::redis::RedisSettings;
use push_tests::{
    devices::Devices,
    mqtt_url, namespace, redis_cluster_url, redis_url,
    service::{pushctl_output, request},
    stack::{APP, Servers, Stack},
};
use serde_json::{Value, json};

use super::support::{
    Embedded, crowd, error, exported, json, kill_in_the_middle, many_devices, move_flags, redis,
    refused, run,
};

async fn embedded(store: &Embedded) -> SqliteIndex {
    let settings = SqliteIndexSettings::default();
    SqliteIndex::open(&store.file(), &store.namespace, settings).await.unwrap()
}

async fn in_redis(url: &str, namespace: &str) -> RedisIndex {
    RedisIndex::connect(url, namespace, RedisSettings::default()).await.unwrap()
}

async fn app_in(index: &dyn Index) -> Option<App> {
    index.app(&APP.parse().unwrap()).await.unwrap()
}

/// Every device, and when it registered.
async fn registrations(index: &dyn Index) -> Vec<Registration> {
    let app = AppKey::from(&app_in(index).await.unwrap());
    let mut all = Vec::new();
    for mut range in index.extent(&app).await.unwrap() {
        loop {
            let scanned = index.list_registrations(&app, range, 1000).await.unwrap();
            all.extend(scanned.items);
            match scanned.next {
                Some(next) => range.from = next,
                None => break,
            }
        }
    }
    all.sort_by(|a, b| a.device.client_id.cmp(&b.device.client_id));
    all
}

fn targeted(country: &str) -> Value {
    json!({
        "type": 2, "time_to_live": 600, "data": {"k": "moved"},
        "condition": {"type": 1, "targeting": {"country": [country]}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_killed_goes_on_and_a_push_reaches_the_right_devices_afterwards() {
    let many = many_devices();
    let store = Embedded::with_devices(&crowd(many)).await;
    let [right, wrong] = ["right", "wrong"].map(|name| format!("{}-{name}", store.namespace));
    let listeners = format!(
        "{{\"client_id\":\"{right}\",\"country\":\"SG\"}}\n{{\"client_id\":\"{wrong}\",\"country\":\"CN\"}}\n"
    );
    store.import(&listeners).await;
    let (flags, url) = (store.move_to(&redis_url()), redis_url());
    let log = store.folder.path().join("killed");
    kill_in_the_middle(&flags, &url, &store.namespace, &log).await;

    let target = ["--index-url", &url, "--namespace", &store.namespace];
    let show = [&target[..], &["app", "show", APP]].concat();
    let unfinished = pushctl_output(&show).await;
    assert!(
        refused(&unfinished).contains("is on its way here from sqlite://"),
        "{}",
        error(&unfinished)
    );

    let moved = json(&run(&flags).await)["apps"][0].clone();
    let devices = many as u64 + 2;
    assert_eq!((&moved["devices"], &moved["repaired"]), (&json!(devices), &json!(0)), "{moved}");
    let copied = moved["copied"].as_u64().unwrap();
    assert!(copied > 0 && copied < devices, "it goes on where it was: {moved}");
    let again = json(&run(&flags).await)["apps"][0].clone();
    assert_eq!(again["moved_before"], true, "{again}");

    let stack = Stack::start_with_app(Servers::shared(), &store.namespace, &store.secret).await;
    let listening = Devices::listen(&mqtt_url(), APP, &[right.clone(), wrong.clone()]).await;
    let _worker = stack.worker(&[]).await;
    let id = stack.push(&targeted("SG")).await;
    let report = stack.closed(&id).await;
    let expected = many.div_ceil(3) as u64 + 1;
    assert_eq!(
        (&report["targeted"], &report["sent"]),
        (&json!(expected), &json!(expected)),
        "{report}"
    );
    listening.all[0].wait_for(&id).await;
    let named = json!({
        "type": 2, "time_to_live": 600, "data": {"k": "named"},
        "condition": {"type": 2, "client_ids": [right, wrong]},
    });
    let named = stack.push(&named).await;
    listening.all[1].wait_for(&named).await;
    let wrong = listening.all[1].received();
    assert!(!wrong.iter().any(|payload| payload.contains(&id)), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_app_is_goes_along_to_a_cluster_and_comes_back() {
    let store = Embedded::with_devices(&crowd(5000)).await;
    let add = ["app", "secret", "add", APP, "phones", "--scope", "devices"];
    assert!(store.pushctl(&add).await.status.success());
    let set = ["app", "set", APP, "--pace", "700", "--max-devices", "9000"];
    assert!(store.pushctl(&set).await.status.success());
    let source = embedded(&store).await;
    let before = app_in(&source).await.unwrap();
    let used_at = UnixMillis(before.created_at.0 + 5);
    let uses = [("default", Some(used_at)), ("phones", None)];
    source.save_secret_uses(&AppKey::from(&before), &uses).await.unwrap();
    let devices = registrations(&source).await;

    let url = redis_cluster_url();
    let moved = json(&run(&store.move_to(&url)).await);
    assert_eq!((&moved["devices"], &moved["apps"][0]["disabled"]), (&json!(5000), &json!(false)));
    let target = in_redis(&url, &store.namespace).await;
    let there = app_in(&target).await.unwrap();
    let same = |app: &App| App { revision: before.revision, ..app.clone() };
    assert_eq!(same(&there), before, "with its secrets, limits and its key for message ids");
    assert_eq!(registrations(&target).await, devices, "with their times of registration");
    let uses = target.secret_uses(&AppKey::from(&there)).await.unwrap();
    assert_eq!(uses.into_iter().collect::<Vec<_>>(), [("default".to_owned(), used_at)]);

    // The source says where it went, and takes no change.
    let left = app_in(&source).await.unwrap();
    assert!(left.disabled && left.moved_to.is_some_and(|moved| moved.store.contains("cluster")));
    let listed = store.pushctl(&["app", "list"]).await;
    assert!(String::from_utf8_lossy(&listed.stdout).contains("moved"));
    let text = refused(&store.pushctl(&["app", "enable", APP]).await);
    assert!(text.contains("add --although-moved"), "{text}");
    for change in [
        &["app", "set", APP, "--pace", "5"][..],
        &["app", "rotate-secret", APP],
        &["app", "disable", APP],
        &["device", "put", APP, "d"],
        &["device", "remove", APP, "crowd-1"],
        &["app", "backup", APP, "refused.backup"],
    ] {
        let text = refused(&store.pushctl(change).await);
        assert!(text.contains("has moved from here to redis-cluster://"), "{change:?}: {text}");
    }

    // Back: what changed meanwhile comes along, what is gone does not.
    let key = AppKey::from(&there);
    let [gone, changed] = ["crowd-7", "crowd-8"].map(|id| id.parse().unwrap());
    assert!(target.remove_device(&key, &gone).await.unwrap());
    let mut device = target.device(&key, &changed).await.unwrap().unwrap();
    device.token = Some("another".into());
    target.put_devices(&key, &[device], UnixMillis::now()).await.unwrap();
    let devices = registrations(&target).await;
    let back = json(&run(&move_flags(&url, &store.url(), &store.namespace)).await);
    assert_eq!(
        (&back["devices"], &back["apps"][0]["repaired"]),
        (&json!(4999), &json!(1)),
        "{back}"
    );
    assert_eq!(same(&app_in(&source).await.unwrap()), before);
    assert_eq!(registrations(&source).await, devices);
    let events = store.pushctl(&["audit", "list", "--json"]).await;
    let events = json(&events).to_string();
    assert!(events.contains("app_moved_away") && events.contains("app_moved_in"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_between_two_attempts_is_as_at_the_source_in_the_end() {
    let store = Embedded::with_devices(&crowd(many_devices().min(100_000))).await;
    let flags = store.move_to(&redis_url());
    let log = store.folder.path().join("killed");
    kill_in_the_middle(&flags, &redis_url(), &store.namespace, &log).await;
    // The operator gives up, goes on with the old store, and tries again later.
    let enabled = store.pushctl(&["app", "enable", APP, "--although-moved"]).await;
    assert!(error(&enabled).contains("had moved to redis://"), "{}", error(&enabled));
    for remove in ["crowd-3", "crowd-4"] {
        assert!(store.pushctl(&["device", "remove", APP, remove]).await.status.success());
    }
    // One in the place of another, one that is younger now, one that changed, and new ones.
    let changes = r#"{"client_id":"new-1","country":"DE","transport":"discard"}
        {"client_id":"crowd-4","country":"SG","transport":"discard","language":"zh-CN"}
        {"client_id":"crowd-5","country":"FR","transport":"discard"}
        {"client_id":"new-2","transport":"discard"}"#;
    store.import(changes).await;

    let moved = json(&run(&flags).await)["apps"][0].clone();
    assert!(moved["repaired"].as_u64() >= Some(4), "{moved}");
    let (source, url) = (embedded(&store).await, redis_url());
    let target = in_redis(&url, &store.namespace).await;
    assert_eq!(registrations(&target).await, registrations(&source).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_the_target_has_is_not_touched_and_nothing_is_changed_then() {
    let store = Embedded::with_devices(&crowd(10)).await;
    let url = redis_url();
    let target = ["--index-url", &url, "--namespace", &store.namespace];
    let at_target = async |command: &[&str]| pushctl_output(&[&target[..], command].concat()).await;
    assert!(at_target(&["app", "create", APP]).await.status.success());
    assert!(at_target(&["device", "put", APP, "its-own"]).await.status.success());
    assert!(store.pushctl(&["app", "create", "other"]).await.status.success());
    let flags = store.move_to(&url);
    let text = refused(&run(&flags).await);
    assert!(
        text.contains("nothing was changed") && text.contains("has an app of this name"),
        "{text}"
    );
    assert_eq!(exported(&target).await.len(), 1);
    let here = app_in(&embedded(&store).await).await.unwrap();
    assert!(!here.disabled && here.moved_to.is_none());

    // One alone, by its name.
    let only = [&flags[..], &["--app".to_owned(), "other".to_owned()]].concat();
    assert_eq!(json(&run(&only).await)["apps"][0]["app_id"], "other");

    // The name of a removed app: its devices would lose their logins.
    assert!(at_target(&["app", "remove", APP, "--yes"]).await.status.success());
    let text = refused(&run(&flags).await);
    assert!(text.contains("--new-logins"), "{text}");
    let anyway = [&flags[..], &["--new-logins".to_owned()]].concat();
    assert_eq!(json(&run(&anyway).await)["devices"], 10);
    let there = app_in(&in_redis(&url, &store.namespace).await).await.unwrap();
    assert_eq!(there.generation, 1);
    assert_eq!(exported(&target).await, exported_from(&store).await);

    let same = refused(&run(&move_flags(&url, &url, &store.namespace)).await);
    assert!(same.contains("the same store"), "{same}");
    let nowhere = refused(&run(&move_flags("sqlite:///no/store", &url, "x")).await);
    assert!(nowhere.contains("there is no store in /no/store"), "{nowhere}");
    let missing = [&flags[..], &["--app".to_owned(), "no-such".to_owned()]].concat();
    assert!(refused(&run(&missing).await).contains("no app no-such"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_cannot_be_read_keeps_no_other_from_being_moved() {
    let (url, from, to) = (redis_url(), namespace(), namespace());
    let source = ["--index-url", &url, "--namespace", &from];
    let at_source = async |command: &[&str]| {
        let ended = pushctl_output(&[&source[..], command].concat()).await;
        assert!(ended.status.success(), "{}", error(&ended));
    };
    for app in ["a-broken", "b-whole"] {
        at_source(&["app", "create", app]).await;
        at_source(&["device", "put", app, "its-own"]).await;
    }
    let mut connection = redis(&url).await;
    let damage = redis::cmd("SET").arg(format!("{from}:{{a-broken/0}}")).arg("x").to_owned();
    damage.query_async::<()>(&mut connection).await.unwrap();

    let mut flags = move_flags(&url, &url, &from);
    flags.extend(["--to-namespace", &to].map(str::to_owned));
    let ended = run(&flags).await;
    let text = refused(&ended);
    assert!(text.contains("a-broken: ") && !text.contains("b-whole: "), "{text}");
    let moved: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&moved["apps"][0]["app_id"], &moved["devices"]), (&json!("b-whole"), &json!(1)));
    let listed = pushctl_output(&["--index-url", &url, "--namespace", &to, "app", "list"]).await;
    assert!(String::from_utf8_lossy(&listed.stdout).contains("b-whole"), "{}", error(&listed));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_moved_counts_as_moved_although_a_trail_does_not_take_the_event() {
    let store = Embedded::with_devices(&crowd(10)).await;
    let url = redis_url();
    let mut connection = redis(&url).await;
    let damage = redis::cmd("SET").arg(format!("{}:audit", store.namespace)).arg("x").to_owned();
    damage.query_async::<()>(&mut connection).await.unwrap();

    let ended = run(&store.move_to(&url)).await;
    let text = refused(&ended);
    assert!(text.contains("these apps have moved, but an audit trail lacks it"), "{text}");
    assert!(!text.contains("have not moved"), "{text}");
    let moved: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(moved["devices"], 10, "{moved}");
    let events = json(&store.pushctl(&["audit", "list", "--json"]).await);
    assert_eq!(
        (&events[0]["action"], &events[0]["done"]),
        (&json!("app_moved_away"), &json!(true))
    );
}

async fn exported_from(store: &Embedded) -> Vec<String> {
    let directory = store.folder.path().to_str().unwrap();
    exported(&["--data-dir", directory, "--namespace", &store.namespace]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_does_not_arrive_can_be_given_up() {
    let store = Embedded::with_devices(&crowd(many_devices().min(100_000))).await;
    let flags = store.move_to(&redis_url());
    let log = store.folder.path().join("killed");
    kill_in_the_middle(&flags, &redis_url(), &store.namespace, &log).await;
    let url = redis_url();
    let at_target = async |command: &[&str]| {
        let target = ["--index-url", &url, "--namespace", &store.namespace];
        pushctl_output(&[&target[..], command].concat()).await
    };
    let text = refused(&at_target(&["app", "create", APP]).await);
    assert!(text.contains("is on its way here"), "{text}");
    assert!(at_target(&["app", "remove", APP, "--yes"]).await.status.success());
    assert!(at_target(&["app", "create", APP]).await.status.success());
    let shown = json(&at_target(&["app", "show", APP, "--json"]).await);
    assert_eq!(shown["devices"], 0, "{shown}");
}

/// Pause of a phone of [`register`], so that several thousand register during a move and no more.
const BETWEEN_REGISTRATIONS: Duration = Duration::from_millis(5);

/// Registers devices one after the other until it is told to stop; returns those that were answered 200,
/// and whether one was refused because the app moves.
async fn register(
    url: String,
    secret: String,
    prefix: String,
    stop: Arc<AtomicBool>,
) -> (Vec<String>, bool) {
    let (mut registered, mut refused) = (Vec::new(), false);
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("{prefix}-{n}");
        let headers = [("authorization", secret.as_str()), ("content-type", "application/json")];
        let url = format!("{url}/v1/device/{APP}/{id}");
        let (status, text) =
            request("PUT", &url, &headers, r#"{"transport":"discard"}"#).await.unwrap();
        match status {
            200 => registered.push(id),
            503 if text.contains("this app moves to another installation") => refused = true,
            _ => panic!("{status} {text}"),
        }
        tokio::time::sleep(BETWEEN_REGISTRATIONS).await;
    }
    (registered, refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_runs_meanwhile_loses_no_registration_and_no_push() {
    let old = Stack::start(Servers::shared()).await;
    old.import(&crowd(2000)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let phones: Vec<_> = (0..2)
        .map(|n| {
            let (url, secret) = (old.ingest_url(0), old.secret().to_owned());
            tokio::spawn(register(url, secret, format!("phone{n}"), Arc::clone(&stop)))
        })
        .collect();
    // Accepted before, and sent by the old service after the move.
    let early = old.push(&targeted("SG")).await;
    let new = namespace();
    let (from, to) = (redis_url(), redis_url());
    let flags = [
        "move",
        "--from",
        &from,
        "--to",
        &to,
        "--namespace",
        &old.namespace,
        "--to-namespace",
        &new,
        "--json",
    ];
    let flags: Vec<String> = flags.map(str::to_owned).to_vec();
    let moved = json(&run(&flags).await);
    stop.store(true, Ordering::Relaxed);
    let mut expected = 2000;
    let target = in_redis(&to, &new).await;
    let there = AppKey::from(&app_in(&target).await.unwrap());
    for phone in phones {
        let (registered, was_refused) = phone.await.unwrap();
        assert!(!registered.is_empty() && was_refused);
        expected += registered.len();
        for id in registered {
            let found = target.device(&there, &id.parse().unwrap()).await.unwrap();
            assert!(found.is_some(), "{id} was registered and is lost");
        }
    }
    assert_eq!(moved["devices"], expected, "{moved}");

    let (status, answer) = old.try_push(&targeted("SG")).await;
    assert_eq!(status, 503, "{answer}");
    let (status, _) =
        old.call_at(0, "DELETE", &format!("/v1/device/{APP}/crowd-1"), &[], &Value::Null).await;
    assert_eq!(status, 503);
    let _worker = old.worker(&[]).await;
    assert_eq!(old.closed(&early).await["sent"], 667);

    let service = Stack::start_with_app(Servers::shared(), &new, old.secret()).await;
    let _worker = service.worker(&[]).await;
    let id = service.push(&targeted("SG")).await;
    assert_eq!(service.closed(&id).await["sent"], 667);
}

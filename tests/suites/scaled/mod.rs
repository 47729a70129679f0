//! The scaled form from end to end: `ingest` and `fanout-worker` as processes on RabbitMQ, Redis
//! and Mosquitto, devices that share no code with the service, and a second implementation of
//! targeting that says which device should receive what.

mod autoscaling;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    time::{Duration, Instant},
};

use push_tests::{
    amqp_url,
    broadcast::everyone,
    devices::Devices,
    eventually, mqtt_url,
    stack::{APP, Servers, Stack},
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);

/// A device as this test knows it: raw values, compared by rules that are implemented here a second
/// time.
#[derive(Clone)]
struct Known {
    id: String,
    country: Option<&'static str>,
    language: Option<&'static str>,
    brand: Option<&'static str>,
    os_version: Option<&'static str>,
    app_version: Option<&'static str>,
}

fn pick(random: &mut SmallRng, values: &[&'static str]) -> Option<&'static str> {
    // One in eight lacks the attribute.
    (random.random_range(0..8) > 0).then(|| values[random.random_range(0..values.len())])
}

impl Known {
    fn random(number: usize, random: &mut SmallRng) -> Self {
        Self {
            id: format!("device-{number:05}"),
            country: pick(random, &["CN", "SG", "DE", "us"]),
            language: pick(random, &["zh", "zh-CN", "zh_Hans_CN", "en", "en-GB", "de-DE"]),
            brand: pick(random, &["Xiaomi", "XIAO MI", "huawei", "Samsung"]),
            os_version: pick(random, &["29", "33", "34"]),
            app_version: pick(random, &["1.0", "2.0", "2.0.1"]),
        }
    }

    fn line(&self) -> Value {
        json!({
            "client_id": self.id, "country": self.country, "language": self.language,
            "brand": self.brand, "os_version": self.os_version, "app_version": self.app_version,
        })
    }

    fn is_meant(&self, targeting: &Value) -> bool {
        let squeeze = |text: &str| text.replace(' ', "").to_uppercase();
        let tag = |text: &str| text.replace('_', "-").to_lowercase();
        let holds = |name: &str, has: Option<&str>, same: &dyn Fn(&str, &str) -> bool| {
            match targeting[name].as_array() {
                None => true,
                Some(list) if list.is_empty() => true,
                Some(list) => {
                    has.is_some_and(|has| list.iter().any(|w| same(w.as_str().unwrap(), has)))
                }
            }
        };
        holds("country", self.country, &|w, h| w.eq_ignore_ascii_case(h))
            && holds("language", self.language, &|w, h| {
                tag(h) == tag(w) || tag(h).starts_with(&format!("{}-", tag(w)))
            })
            && holds("brand", self.brand, &|w, h| squeeze(w) == squeeze(h))
            && holds("os_version", self.os_version, &|w, h| w == h)
            && holds("app_version", self.app_version, &|w, h| w.trim() == h)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_200_connected_devices_among_10_000_receives_exactly_what_its_attributes_say() {
    let random = &mut SmallRng::seed_from_u64(7);
    let known: Vec<Known> = (0..10_000).map(|n| Known::random(n, random)).collect();
    let connected: Vec<Known> = known.iter().step_by(50).cloned().collect();
    let service = Stack::start(Servers::shared()).await;
    let _worker = service.worker(&[]).await;
    let mut lines = String::new();
    for device in &known {
        writeln!(lines, "{}", device.line()).unwrap();
    }
    service.import(&lines).await;
    let ids: Vec<String> = connected.iter().map(|device| device.id.clone()).collect();
    let devices = Devices::listen(&mqtt_url(), APP, &ids).await;

    let targetings = [
        json!({}),
        json!({"country": ["cn"]}),
        json!({"language": ["zh"]}),
        json!({"language": ["zh-CN", "EN_gb"], "country": ["CN", "SG", "US"]}),
        json!({"brand": ["xiaomi"], "os_version": ["33", "34"], "model": []}),
        json!({"country": ["DE"], "language": ["de"], "brand": ["samsung"], "app_version": [" 2.0 "]}),
        json!({"country": ["FR"]}),
    ];
    let mut sent: Vec<(String, BTreeSet<String>, Value)> = Vec::new();
    for (number, targeting) in targetings.iter().enumerate() {
        let notification = json!({"title": format!("№ {number}"), "desc": "针对性", "icon": "not for system", "small_icon_color": "#a1B2c3"});
        let delivered = json!({"notification_type": 1, "title": format!("№ {number}"), "desc": "针对性", "small_icon_color": "#a1B2c3"});
        let body = json!({"type": 1, "time_to_live": 600, "notification": notification,
            "condition": {"type": 1, "targeting": targeting}});
        let meant = known.iter().filter(|d| d.is_meant(targeting)).map(|d| d.id.clone()).collect();
        sent.push((service.push(&body).await, meant, delivered));
    }
    let named: BTreeSet<String> =
        [&known[0].id, &known[50].id, &known[51].id].into_iter().cloned().collect();
    let mut client_ids: Vec<&str> = named.iter().map(String::as_str).collect();
    client_ids.extend([known[0].id.as_str(), "never-registered"]);
    let body = json!({"type": 2, "time_to_live": 600, "data": {"k": "v", "ключ": "значение"},
        "condition": {"type": 2, "client_ids": client_ids}});
    let to_named = service.push(&body).await;

    let subscribed: BTreeSet<String> = ids.iter().cloned().collect();
    for (id, meant, _) in &sent {
        let ledger = service.closed(id).await;
        let reached = meant.intersection(&subscribed).count();
        assert_eq!(ledger["targeted"], meant.len(), "{ledger}");
        assert_eq!(ledger["sent"], reached, "{ledger}");
        assert_eq!(ledger["pending"], 0);
        // For every other device Mosquitto reports that there is no subscriber.
        let unheard = (meant.len() - reached) as u64;
        assert_eq!(
            ledger["failed"]["no_subscriber"].as_u64().unwrap_or_default(),
            unheard,
            "{ledger}"
        );
    }
    let ledger = service.closed(&to_named).await;
    assert_eq!((&ledger["targeted"], &ledger["sent"]), (&json!(4), &json!(2)), "{ledger}");
    assert_eq!(ledger["failed"], json!({"unknown_client": 1, "no_subscriber": 1}));

    // Messages that are counted as sent are at the broker, so none can come after a message sent now.
    let last = service.push(&everyone()).await;
    for device in &devices.all {
        device.wait_for(&last).await;
        let received = device.received();
        let mut got = BTreeSet::new();
        for payload in &received {
            let payload: Value = serde_json::from_str(payload).unwrap();
            let id = payload["message_id"].as_str().unwrap().to_owned();
            assert_eq!(payload["app_id"], APP);
            let (accepted, expires) =
                (payload["accepted_at"].as_u64().unwrap(), payload["expires_at"].as_u64().unwrap());
            assert_eq!(expires - accepted, 600_000);
            let sequence = payload["sequence"].as_u64().unwrap();
            assert!((accepted..expires).contains(&(sequence / 1000)), "{payload}");
            if let Some((_, _, notification)) = sent.iter().find(|(sent, ..)| *sent == id) {
                assert_eq!((&payload["type"], &payload["notification"]), (&json!(1), notification));
                assert_eq!(payload.as_object().unwrap().len(), 7, "{payload}");
            } else if id == to_named {
                assert_eq!(payload["type"], 2);
                assert_eq!(payload["data"], json!({"k": "v", "ключ": "значение"}));
            }
            assert!(got.insert(id), "{} received a message twice", device.client_id);
        }
        let mut meant: BTreeSet<String> = sent
            .iter()
            .filter(|(_, m, _)| m.contains(&device.client_id))
            .map(|s| s.0.clone())
            .collect();
        if named.contains(&device.client_id) {
            meant.insert(to_named.clone());
        }
        meant.insert(last.clone());
        assert_eq!(got, meant, "{}", device.client_id);
    }
}

const SENT: &str = r#"push_worker_devices_total{outcome="sent",reason=""}"#;
const SMALL_STEPS: [&str; 6] =
    ["--batch", "100", "--tune", "partition-min-slots=1000", "--task-prefetch", "2"];

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_share_one_broadcast() {
    let service = Stack::start(Servers::shared()).await;
    service.import_crowd(60_000, 0).await;
    let (one, two) = (service.worker(&SMALL_STEPS).await, service.worker(&SMALL_STEPS).await);
    let id = service.push(&everyone()).await;
    let ledger = service.closed(&id).await;
    assert_eq!(
        (&ledger["targeted"], &ledger["sent"]),
        (&json!(60_000), &json!(60_000)),
        "{ledger}"
    );
    let parts = [one.metric(SENT).await, two.metric(SENT).await];
    assert!(parts.iter().all(|&part| part > 0.0), "one worker did everything: {parts:?}");
    assert_eq!(parts.iter().sum::<f64>(), 60_000.0, "{parts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_a_worker_in_the_middle_of_a_broadcast_loses_and_repeats_nothing() {
    let service = Stack::start(Servers::shared()).await;
    let ids = service.import_crowd(60_000, 40).await;
    let devices = Devices::listen(&mqtt_url(), APP, &ids).await;
    let (one, two) = (service.worker(&SMALL_STEPS).await, service.worker(&SMALL_STEPS).await);
    let id = service.push(&everyone()).await;
    eventually("the broadcast is under way", DEADLINE, async || {
        let sent = one.metric(SENT).await;
        if sent > 0.0 { Ok(()) } else { Err(sent.to_string()) }
    })
    .await;
    assert!(one.stop().await.success());
    let ledger = service.ledger(&id).await;
    let ledger_end = service.closed(&id).await;
    assert_eq!(ledger_end["sent"], 60_040, "{ledger} then {ledger_end}");
    assert!(two.metric(SENT).await > 0.0);
    let last = service.push(&everyone()).await;
    for device in &devices.all {
        device.wait_for(&last).await;
        let times = device.received().iter().filter(|payload| payload.contains(&id)).count();
        assert_eq!(times, 1, "{}", device.client_id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_goes_to_the_dead_letters_and_blocks_nothing() {
    use push_queue::{
        Lane, Queue as _,
        amqp::{AmqpQueue, AmqpSettings},
    };

    let service = Stack::start(Servers::shared()).await;
    let worker = service.worker(&[]).await;
    service.import_crowd(10, 0).await;
    let queue =
        AmqpQueue::connect(&amqp_url(), &service.namespace, AmqpSettings::default()).await.unwrap();
    let poison: [&[u8]; 4] =
        [b"", b"\xff\xfe", br#"{"v":99,"jobs":[]}"#, br#"{"v":1,"jobs":[{"payload":{}}]}"#];
    for (lane, bytes) in Lane::ALL.into_iter().flat_map(|lane| poison.map(|bytes| (lane, bytes))) {
        queue.publish(lane, bytes.into()).await.unwrap();
    }
    let id = service.push(&everyone()).await;
    assert_eq!(service.closed(&id).await["sent"], 10);
    let dead = eventually("every unreadable envelope is a dead letter", DEADLINE, async || {
        let dead = service.pushctl(&["dead", "list", "--json"]).await;
        let dead: Vec<Value> = serde_json::from_str(&dead).unwrap();
        if dead.len() == 6 { Ok(dead) } else { Err(format!("{dead:?}")) }
    })
    .await;
    for lane in Lane::ALL {
        assert_eq!(dead.iter().filter(|letter| letter["lane"] == lane.name()).count(), 3);
        let name = format!(r#"push_worker_dead_letters_total{{lane="{}"}}"#, lane.name());
        eventually("dead letters are counted", DEADLINE, async || {
            match worker.metric(&name).await {
                3.0 => Ok(()),
                seen => Err(format!("{name}: {seen}")),
            }
        })
        .await;
    }
    // An envelope of a newer version waits for a worker that can read it.
    let newer = dead.iter().filter(|letter| letter["payload"].as_str().unwrap().contains("99"));
    assert_eq!(newer.count(), 0, "{dead:?}");
    assert!(worker.stop().await.success());
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counting_audiences_all_the_time_does_not_hold_up_a_broadcast() {
    let service = Stack::start(Servers::shared()).await;
    service.import_crowd(60_000, 0).await;
    let _worker = service.worker(&SMALL_STEPS).await;
    let mut took = Vec::new();
    for counts in [false, true] {
        let (mut number, begun) = (0, Instant::now());
        let id = service.push(&everyone()).await;
        // Each audience is another one, so that none is answered from memory.
        let count = async {
            if counts {
                loop {
                    number += 1;
                    let condition =
                        json!({"type": 1, "targeting": {"model": [format!("m{number}")]}});
                    let body = json!({ "condition": condition });
                    let path = format!("/v1/audience/{APP}");
                    let (http, answer) = service.call_at(0, "POST", &path, &[], &body).await;
                    assert_eq!((http, &answer["result"]["devices"]), (200, &json!(0)), "{answer}");
                }
            }
            std::future::pending::<()>().await;
        };
        let ledger = tokio::select! {
            ledger = service.closed(&id) => ledger,
            () = count => unreachable!("it never ends"),
        };
        assert_eq!(ledger["sent"], 60_000, "{ledger}");
        took.push(begun.elapsed());
        assert_eq!(counts, number > 2, "{number} counts in {took:?}");
    }
    assert!(took[1] < 2 * took[0] + Duration::from_secs(2), "alone, with counts: {took:?}");
}

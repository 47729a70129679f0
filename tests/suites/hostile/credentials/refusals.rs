//! Refusals: those of a broker without the secret say nothing, and all are counted by their reason.

use std::time::Duration;

use base64::Engine as _;
use serde_json::json;

use super::{
    DEVICE, FORM, HOUR, JSON, SECRET, WORKER_PASSWORD,
    asking::{BROKERS, Broker, Service, token},
};
use crate::hostile::audit_log::{AT_ONCE, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_the_secret_of_brokers_is_always_refused_and_learns_nothing() {
    let service = Service::that_brokers_may_ask().await;
    let closed = Service::start(&[]).await;
    let own = service.token("phone:1");
    let closed_own = token(&closed.keys(), "news", "phone:1", HOUR);
    let as_basic = |secret: &str| {
        let login = format!("broker:{secret}");
        format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(login))
    };
    for broker in BROKERS {
        let question = broker.connect(DEVICE, DEVICE, &own);
        for right in [SECRET.to_owned(), format!("Bearer {SECRET}"), as_basic(SECRET)] {
            let (status, body) = service.ask_with(&right, broker, &question).await;
            assert!(broker.allows(status, &body), "{broker:?} {right}");
        }
        let mut answers = Vec::new();
        for wrong in ["x", "Bearer x", "Basic x", &SECRET[1..], WORKER_PASSWORD, &as_basic("x")] {
            for question in [
                question.clone(),
                broker.connect(DEVICE, DEVICE, "wrong"),
                ("connect", "x", String::new()),
            ] {
                let mut question = question;
                question.0 = broker.connect("", "", "").0;
                answers.push(service.ask_with(wrong, broker, &question).await);
            }
        }
        assert!(!broker.allows(answers[0].0, &answers[0].1), "{broker:?}");
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{broker:?}: {answers:?}");

        // A question that cannot be read is refused too, not left to the broker's next check.
        let (path, ..) = question;
        for media_type in [JSON, FORM] {
            for body in ["", "{", "[]", &"x".repeat(100_000)] {
                let question = (path, media_type, body.to_owned());
                let (status, body) = service.ask_with(SECRET, broker, &question).await;
                assert!(!broker.allows(status, &body), "{broker:?}, {media_type}");
            }
        }
        let question = broker.connect(DEVICE, DEVICE, &closed_own);
        let (status, body) = closed.ask_with(SECRET, broker, &question).await;
        assert!(!broker.allows(status, &body), "{broker:?}: no broker may ask");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_brokers_are_refused_is_counted_by_its_reason_and_is_in_the_audit_log() {
    let service = Service::that_brokers_may_ask_with(&AT_ONCE).await;
    let keys = service.keys();
    let own = service.token("phone:1");
    let removed = token(&keys, "news", "phone:1", HOUR);
    let expired = token(&keys, "news", "phone:1", Duration::ZERO);
    let of_no_app = token(&keys, "gone", "phone:1", HOUR);
    for broker in BROKERS {
        let connect = |password: &str| broker.connect(DEVICE, DEVICE, password);
        let (path, media_type, _) = connect(&own);
        let refused = [
            (SECRET, connect("guess")),
            (SECRET, broker.connect("w-1", "worker", "guess")),
            (SECRET, connect(&expired)),
            (SECRET, connect(&removed)),
            (SECRET, broker.connect("gone:phone:1", "gone:phone:1", &of_no_app)),
            (SECRET, broker.access(DEVICE, DEVICE, true, "push/news/phone:2")),
            (SECRET, (path, media_type, "{".to_owned())),
            ("guess", connect(&own)),
            ("", connect(&own)),
        ];
        for (secret, question) in refused {
            let (status, body) = service.ask_with(secret, broker, &question).await;
            assert!(!broker.allows(status, &body), "{broker:?}: {question:?}");
        }
        let (status, body) = service.ask_with(SECRET, broker, &connect(&own)).await;
        assert!(broker.allows(status, &body), "{broker:?}");
    }
    // Mosquitto asks this about every client and no client is one, so it is not counted as a failure.
    let superuser = ("superuser", JSON, json!({ "username": DEVICE }).to_string());
    let (status, body) = service.ask_with(SECRET, Broker::Mosquitto, &superuser).await;
    assert!(!Broker::Mosquitto.allows(status, &body));

    let by_reason = [
        ("off", 0.0),
        ("secret", 2.0),
        ("question", 1.0),
        ("credentials", 2.0),
        ("expired", 1.0),
        ("app_removed", 1.0),
        ("device_removed", 1.0),
        ("forbidden", 1.0),
        ("unavailable", 0.0),
    ];
    for broker in BROKERS {
        for (reason, count) in by_reason {
            let labels = format!(r#"broker="{}",reason="{reason}""#, broker.folder());
            let name = format!("push_ingest_broker_refusals_total{{{labels}}}");
            assert_eq!(service.ingest.metric(&name).await, count, "{labels}");
        }
    }
    let logged = [("program=ingest by=broker", 6), ("program=ingest by=mqtt_client", 18)];
    wait_for(|| service.ingest.log(), &logged).await;
    let log = service.ingest.log();
    assert!(![&*own, &*expired, SECRET].iter().any(|secret| log.contains(secret)), "{log}");
}

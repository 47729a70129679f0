//! A device is let in with a valid token of its own, and of its present registration.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use push_credentials::KeySet;
use push_model::time::UnixMillis;
use push_tests::{
    eventually,
    service::{Program, pushctl},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    DEVICE, HOUR, SECRET, WORKER_PASSWORD,
    asking::{BROKERS, Broker, Service, token},
};

/// Gives the token another header, and signs it anew.
fn with_header(token: &str, header: &str, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let claims = token.split('.').nth(1).unwrap();
    let signed = format!("{}.{claims}", BASE64.encode(header));
    format!("{signed}.{}", BASE64.encode(sign(signed.as_bytes())))
}

#[tokio::test]
async fn an_ingest_that_brokers_ask_does_not_start_without_device_keys() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().display();
    let queue = format!("sqlite://{path}/queue.sqlite3");
    let index = format!("sqlite://{path}/index.sqlite3");
    let flags = ["--listen", "127.0.0.1:0", "--queue-url", &queue, "--index-url", &index];
    let flags = [&flags[..], &["--broker-auth-secret", SECRET]].concat();
    let mut ingest = Program::start("ingest", &flags);
    let status = eventually("ingest ends", Duration::from_secs(30), async || {
        ingest.ended().ok_or_else(|| "it runs".to_owned())
    })
    .await;
    assert!(!status.success());
    assert!(ingest.log().contains("PUSH_DEVICE_KEYS"), "{}", ingest.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_asks_lets_a_device_in_with_its_own_token_only() {
    let service = Service::that_brokers_may_ask().await;
    let keys = service.keys();
    let own = service.token("phone:1");
    let kid = keys.keys()[0].kid();
    let header = |alg: &str| format!(r#"{{"alg":"{alg}","typ":"JWT","kid":"{kid}"}}"#);
    // A library that takes the algorithm from the token would accept this, with the public key as the
    // secret of an HMAC.
    let public = keys.keys()[0].public().pem();
    let confused = with_header(&own, &header("HS256"), |text| {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, public.as_bytes());
        ring::hmac::sign(&key, text).as_ref().to_vec()
    });
    let forged = KeySet::generate(UnixMillis::now()).unwrap();
    let (signed, signature) = own.rsplit_once('.').unwrap();
    let other_claims = token(&keys, "news", "phone:2", HOUR).split('.').nth(1).unwrap().to_owned();
    let refused = [
        ("no token", String::new()),
        ("a guess", "password".to_owned()),
        ("another device's", token(&keys, "news", "phone:2", HOUR)),
        ("another app's", token(&keys, "other", "phone:1", HOUR)),
        ("expired", token(&keys, "news", "phone:1", Duration::ZERO)),
        ("of an unknown key", token(&forged, "news", "phone:1", HOUR)),
        ("of an app that never was", token(&keys, "gone", "phone:1", HOUR)),
        ("unsigned", with_header(&own, &header("none"), |_| Vec::new())),
        ("without a signature", format!("{signed}.")),
        (
            "with another's claims",
            format!("{}.{other_claims}.{signature}", own.split('.').next().unwrap()),
        ),
        ("signed with the public key", confused),
        ("oversized", format!("{own}{}", "A".repeat(8 * 1024))),
        ("the workers' password", WORKER_PASSWORD.to_owned()),
    ];
    for broker in BROKERS {
        let connect = |id: &str, user: &str, password: &str| broker.connect(id, user, password);
        assert!(service.ask(broker, &connect(DEVICE, DEVICE, &own)).await, "{broker:?}: its own");
        for (what, token) in &refused {
            let question = connect(DEVICE, DEVICE, token);
            assert!(!service.ask(broker, &question).await, "{broker:?}: {what}");
        }
        for (id, user) in
            [("news:phone:2", DEVICE), (DEVICE, "news:phone:2"), (DEVICE, ""), (DEVICE, "worker")]
        {
            let question = connect(id, user, &own);
            assert!(!service.ask(broker, &question).await, "{broker:?}: as {id}, {user}");
        }
        assert!(
            service.ask(broker, &connect("w-1", "worker", WORKER_PASSWORD)).await,
            "{broker:?}"
        );
        assert!(!service.ask(broker, &connect("w-1", "worker", "guess")).await, "{broker:?}");
    }
    for (broker, superuser) in [(Broker::Emqx, "is_superuser"), (Broker::Rmqtt, "superuser")] {
        let (_, body) =
            service.ask_with(SECRET, broker, &broker.connect(DEVICE, DEVICE, &own)).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body[superuser], json!(false));
        let now = UnixMillis::now().0 / 1000;
        let end = body["expire_at"].as_u64();
        assert!(end.is_some_and(|at| at > now && at <= now + 3600), "{body}");
        let rules = body["acl"].as_array().unwrap();
        let own = "eq push/news/phone:1";
        assert_eq!(rules[0], json!({"permission": "allow", "action": "subscribe", "topic": own}));
        assert_eq!(
            rules.last().unwrap(),
            &json!({"permission": "deny", "action": "all", "topic": "#"})
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_removed_app_is_refused_wherever_that_can_be_known() {
    let service = Service::that_brokers_may_ask().await;
    let data_dir = service.folder.path().to_str().unwrap().to_owned();
    let old = service.token("phone:1");
    let connect = |token: &str| Broker::Rmqtt.connect(DEVICE, DEVICE, token);
    assert!(service.ask(Broker::Rmqtt, &connect(&old)).await);
    pushctl(&["app", "remove", "news", "--yes", "--data-dir", &data_dir]).await;
    assert!(!service.ask(Broker::Rmqtt, &connect(&old)).await, "the app is gone");
    pushctl(&["app", "create", "news", "--data-dir", &data_dir]).await;
    pushctl(&["device", "put", "news", "phone:1", "--data-dir", &data_dir]).await;
    assert!(!service.ask(Broker::Rmqtt, &connect(&old)).await, "it is another app");
    let flags = ["device", "credentials", "news", "phone:1", "--json", "--data-dir", &data_dir];
    let login: Value = serde_json::from_str(&pushctl(&flags).await).unwrap();
    assert!(service.ask(Broker::Rmqtt, &connect(login["password"].as_str().unwrap())).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_removed_device_is_refused_also_if_its_client_id_is_registered_again() {
    let service = Service::that_brokers_may_ask().await;
    let data_dir = service.folder.path().to_str().unwrap().to_owned();
    let old = service.token("phone:1");
    pushctl(&["device", "put", "news", "phone:1", "--model", "m", "--data-dir", &data_dir]).await;
    for broker in BROKERS {
        let login = broker.connect(DEVICE, DEVICE, &old);
        assert!(service.ask(broker, &login).await, "{broker:?}: a change keeps the login");
    }
    pushctl(&["device", "remove", "news", "phone:1", "--data-dir", &data_dir]).await;
    for broker in BROKERS {
        assert!(!service.ask(broker, &broker.connect(DEVICE, DEVICE, &old)).await, "{broker:?}");
    }
    let new = service.token("phone:1");
    for broker in BROKERS {
        assert!(!service.ask(broker, &broker.connect(DEVICE, DEVICE, &old)).await, "{broker:?}");
        assert!(service.ask(broker, &broker.connect(DEVICE, DEVICE, &new)).await, "{broker:?}");
    }
}

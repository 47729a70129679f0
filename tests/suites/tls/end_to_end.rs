//! A push over TLS on every link, through the programs as an operator runs them; and what those
//! programs say if a certificate does not fit.

use std::path::Path;

use push_tests::{
    certificates::{Authority, Certificate, Validity},
    devices::Devices,
    eventually,
    servers::{Mosquitto, RabbitMq, Redis, Tls},
    service::{Program, pushctl, pushctl_output},
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::json;

/// The flags about the files of one link.
fn files(link: &str, authority: &Path, shown: &Certificate) -> Vec<String> {
    let paths = [("ca", authority), ("cert", &*shown.certificate), ("key", &*shown.key)];
    let flags = paths
        .into_iter()
        .map(|(name, path)| [format!("--{link}-{name}"), path.to_str().unwrap().to_owned()]);
    flags.flatten().collect()
}

fn as_str(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn a_push_reaches_its_device_with_tls_on_every_link_and_programs_say_what_does_not_fit() {
    let authority = Authority::new();
    let tls = Tls {
        certificate: authority.local_server(),
        authority: authority.file().to_owned(),
        clients_must_prove: true,
    };
    let (rabbitmq, redis, mosquitto) = tokio::try_join!(
        RabbitMq::start_with_tls(tls.clone()),
        Redis::start_with_tls(tls.clone()),
        Mosquitto::start_with_tls(tls),
    )
    .unwrap();
    let shown = authority.client("push", Validity::Now);
    let of = |link: &str| files(link, authority.file(), &shown);
    let servers =
        Servers { amqp: rabbitmq.tls_url(), redis: redis.tls_url(), mqtt: mosquitto.tls_url() };
    let stack = Stack::start_with(servers, [of("queue"), of("index")].concat()).await;

    let devices = Devices::listen(&mosquitto.url(), APP, &["listening".to_owned()]).await;
    stack.import("{\"client_id\":\"listening\"}\n{\"client_id\":\"offline\"}").await;
    // The other device is one of `pushctl`, which leaves a session behind.
    let (mqtt, url) = (of("mqtt"), mosquitto.tls_url());
    let listen = |count: &'static str| {
        let mut flags = vec!["device", "listen", APP, "offline", "--mqtt-url", &url];
        flags.extend(["--count", count]);
        flags.extend(as_str(&mqtt));
        flags.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    pushctl(&as_str(&listen("0"))).await;

    let worker = stack.worker(&as_str(&mqtt)).await;
    let id = stack
        .push(&json!({"type": 2, "time_to_live": 600, "data": {"k": "v"},
            "condition": {"type": 2, "client_ids": ["listening", "offline"]}}))
        .await;
    devices.all[0].wait_for(&id).await;
    assert!(pushctl(&as_str(&listen("1"))).await.contains(&id));
    let report = stack.closed(&id).await;
    assert_eq!(report["sent"], 2, "{report}");

    drop(worker);
    doctor_says_until_when_certificates_are_valid(&stack, &mqtt, &url).await;
    the_programs_say_what_does_not_fit(&stack, &shown, &url).await;
}

async fn doctor_says_until_when_certificates_are_valid(stack: &Stack, mqtt: &[String], url: &str) {
    let command = ["doctor", "--json", "--mqtt-url", url];
    let found = stack.pushctl(&[command.as_slice(), &as_str(mqtt)].concat()).await;
    for link in ["queue", "index", "MQTT"] {
        let subject = format!("{link} certificate");
        let findings: Vec<serde_json::Value> = serde_json::from_str(&found).unwrap();
        let of_link: Vec<_> =
            findings.iter().filter(|of| of["subject"] == subject.as_str()).collect();
        assert_eq!(of_link.len(), 2, "the server's and the program's own: {found}");
        for finding in of_link {
            assert_eq!(finding["level"], "ok", "{finding}");
            assert!(
                finding["detail"].as_str().unwrap().ends_with("valid for 29 days"),
                "{finding}"
            );
        }
    }
}

async fn the_programs_say_what_does_not_fit(stack: &Stack, shown: &Certificate, mqtt: &str) {
    const UNTRUSTED: &str = "not from a trusted authority";
    let other = Authority::new();
    let wrong = |link: &str| files(link, other.file(), shown);
    let engines = stack.engines();
    let urls = &engines[..6];

    let (queue, index) = (wrong("queue"), wrong("index"));
    let flags = [urls, &as_str(&queue), &as_str(&index)].concat();
    for command in [["app", "list"], ["dead", "list"]] {
        let output = pushctl_output(&[&flags[..], &command].concat()).await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(UNTRUSTED), "{text}");
    }
    let mut listen = vec!["device", "listen", APP, "d", "--mqtt-url", mqtt];
    let files = wrong("mqtt");
    listen.extend(as_str(&files));
    let output = pushctl_output(&listen).await;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains(UNTRUSTED), "{text}");

    let listen = ["--listen", "127.0.0.1:0"];
    let mut ingest = Program::start("ingest", &[&flags[..], &listen].concat());
    let ended = eventually("ingest gives up", DEADLINE, async || {
        ingest.ended().ok_or_else(|| ingest.log())
    });
    let status = ended.await;
    assert!(!status.success() && ingest.log().contains(UNTRUSTED), "{}", ingest.log());

    let worker = stack.start_worker(&as_str(&files));
    eventually("the worker says why it has no session", DEADLINE, async || {
        let log = worker.log();
        if log.contains(UNTRUSTED) { Ok(()) } else { Err(log) }
    })
    .await;
}

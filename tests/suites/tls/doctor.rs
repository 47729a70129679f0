//! Findings of `pushctl doctor` about certificates and unencrypted links.

use std::time::Duration;

use push_tests::{
    certificates::{Authority, Validity},
    servers::{Redis, Tls},
    service::pushctl_output,
};
use serde_json::Value;

/// The findings of `doctor` with these flags, on an embedded queue; and whether it succeeded.
async fn doctor(flags: &[&str]) -> (Vec<Value>, bool) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let output = pushctl_output(&[&["doctor", "--json", "--data-dir", data], flags].concat()).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let findings = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{error}"));
    (findings, output.status.success())
}

fn of<'a>(findings: &'a [Value], subject: &str) -> &'a Value {
    findings.iter().find(|of| of["subject"] == subject).unwrap_or_else(|| panic!("{findings:#?}"))
}

#[tokio::test]
async fn doctor_fails_while_a_certificate_expires_within_14_days() {
    let authority = Authority::new();
    let certificate =
        authority.server(&["localhost"], Validity::EndsIn(Duration::from_hours(13 * 24 + 12)));
    let tls =
        Tls { certificate, authority: authority.file().to_owned(), clients_must_prove: false };
    let redis = Redis::start_with_tls(tls).await.unwrap();
    let ca = authority.file().to_str().unwrap();
    let (findings, ok) = doctor(&["--index-url", &redis.tls_url(), "--index-ca", ca]).await;
    let finding = of(&findings, "index certificate");
    assert_eq!((&finding["level"], ok), (&Value::from("error"), false), "{finding}");
    let detail = finding["detail"].as_str().unwrap();
    assert!(detail.contains("localhost: expires in 13 days"), "{detail}");
}

#[tokio::test]
async fn doctor_warns_of_links_and_listeners_in_clear_beyond_this_machine() {
    let link = ["--mqtt-url", "mqtt://broker.example:1883"];
    let listeners = ["--listen", "0.0.0.0:8080", "--mqtt-listen", "0.0.0.0:1883"];
    let workers = ["--mqtt-worker-listen", "0.0.0.0:1884"];
    let (findings, ok) = doctor(&[&link[..], &listeners, &workers].concat()).await;
    for (subject, remedy) in [
        ("MQTT encryption", "mqtts://"),
        ("HTTP listener encryption", "--tls-cert and --tls-key"),
        ("MQTT listener encryption", "--mqtt-tls-cert and --mqtt-tls-key"),
        ("MQTT worker listener encryption", "--mqtt-tls-cert and --mqtt-tls-key"),
    ] {
        let finding = of(&findings, subject);
        assert_eq!(finding["level"], "warning", "{finding}");
        assert!(finding["remedy"].as_str().unwrap().contains(remedy), "{finding}");
    }
    assert!(!ok, "there is no such broker");
    assert_eq!(of(&findings, "MQTT broker")["level"], "error");
    let (findings, ok) = doctor(&["--listen", "0.0.0.0:8080"]).await;
    assert!(ok, "a warning is no failure: {findings:#?}");
    // As in the compose stack without certificates, where the address is ingest's own default.
    let (findings, _) = doctor(&["--http-in-clear", "on"]).await;
    let finding = of(&findings, "HTTP listener encryption");
    assert!(finding["detail"].as_str().unwrap().starts_with("0.0.0.0:8080 "), "{finding}");
    for loopback in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        let url = format!("mqtt://{loopback}");
        let addresses = ["--listen", "--mqtt-listen", "--mqtt-worker-listen"];
        let listeners = addresses.map(|flag| [flag, loopback]).concat();
        let (findings, _) =
            doctor(&[&["--mqtt-url", url.as_str()][..], &listeners[..]].concat()).await;
        let warnings =
            findings.iter().filter(|of| of["subject"].as_str().unwrap().contains("encryption"));
        assert_eq!(warnings.count(), 0, "{findings:#?}");
    }
}

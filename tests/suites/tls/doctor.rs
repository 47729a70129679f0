//! What `pushctl doctor` says of certificates and of links in clear.

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
    let flags = ["--mqtt-url", "mqtt://broker.example:1883", "--listen", "0.0.0.0:8080"];
    let (findings, ok) = doctor(&flags).await;
    for subject in ["MQTT encryption", "HTTP listener encryption"] {
        assert_eq!(of(&findings, subject)["level"], "warning");
    }
    assert!(!ok, "there is no such broker");
    assert_eq!(of(&findings, "MQTT broker")["level"], "error");
    let (findings, ok) = doctor(&["--listen", "0.0.0.0:8080"]).await;
    assert!(ok, "a warning is no failure: {findings:#?}");
    let (findings, _) = doctor(&["--mqtt-url", "mqtt://127.0.0.1:1", "--listen", "[::1]:80"]).await;
    let warnings =
        findings.iter().filter(|of| of["subject"].as_str().unwrap().contains("encryption"));
    assert_eq!(warnings.count(), 0, "{findings:#?}");
}

//! Messages of a command about its settings and its store, right and wrong ones.

use std::path::Path;

use push_tests::{free_port, service::pushctl_output_with};
use serde_json::Value;

use crate::pushctl::support::{Store, run_in};

#[tokio::test]
async fn doctor_finds_a_fresh_embedded_store_in_order() {
    let store = Store::new();
    // These make the index and the queue; doctor makes neither.
    for command in [["app", "create", "news"].as_slice(), &["dead", "list"]] {
        let made = store.run(command).await;
        assert!(made.ok, "{}", made.err);
    }
    let findings = store.run(&["doctor", "--json"]).await.json();
    let findings = findings.as_array().unwrap();
    assert!(findings.len() >= 4, "{findings:?}");
    // No service was named, so one was looked for.
    let is_of_service = |finding: &&Value| {
        ["service", "ingest clock"].contains(&finding["subject"].as_str().unwrap())
    };
    let (service, findings): (Vec<_>, Vec<_>) = findings.iter().partition(is_of_service);
    let [service] = service[..] else { panic!("one finding about a service: {service:?}") };
    if service["subject"] == "service" {
        assert_eq!(service["level"], "warning", "{service}");
        let detail = service["detail"].as_str().unwrap();
        assert!(detail.starts_with("nothing answers at http://127.0.0.1:8080: "), "{detail}");
    }
    let (skipped, looked_at): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|finding| finding["level"] == "skipped");
    assert!(looked_at.iter().all(|finding| finding["level"] == "ok"), "{looked_at:?}");
    let skipped: Vec<_> = skipped.iter().map(|finding| &finding["subject"]).collect();
    assert_eq!(skipped, ["ledger", "MQTT broker", "programs"]);
}

#[tokio::test]
async fn a_wrong_setting_a_missing_server_or_a_bad_folder_is_one_clear_line() {
    let store = Store::new();
    let port = free_port().unwrap();
    let unreachable = format!("redis://{}", port.address());
    let refused = store.run(&["app", "list", "--index-url", &unreachable]).await;
    assert!(refused.refused().contains("cannot use the index at redis://"), "{}", refused.err);
    let file = store.file("file", "");
    let refused = run_in(&Path::new(&file).join("data"), &["app", "create", "a"]).await;
    assert!(refused.refused().contains("cannot make the data directory"), "{}", refused.err);
    let refused =
        store.run(&["app", "list", "--index-url", "mysql://x", "--namespace", "A B"]).await;
    assert!(!refused.ok);
    for error in ["--index-url (PUSH_INDEX_URL): must begin with", "--namespace (PUSH_NAMESPACE)"] {
        assert!(refused.err.contains(error), "{}", refused.err);
    }
}

#[tokio::test]
async fn an_empty_variable_counts_as_unset() {
    let store = Store::new();
    let file = store.file("settings.toml", "\u{feff}namespace = \"of-the-file\"\n");
    let empty = [
        "PUSH_INDEX_URL",
        "PUSH_INDEX_URL_FILE",
        "PUSH_QUEUE_URL",
        "PUSH_LEDGER_URL",
        "PUSH_LEDGER_URL_FILE",
        "PUSH_NAMESPACE",
        "PUSH_LEDGER_RETENTION",
        "PUSH_QUEUE_CA",
        "PUSH_DEVICE_KEYS",
        "PUSH_IMPORT_MEMORY",
        "PUSH_LOG",
    ];
    let variables: Vec<(&str, &str)> = empty.map(|name| (name, "")).into();
    let data = store.dir().to_str().unwrap();
    for flags in [&["--data-dir", data][..], &["--data-dir", data, "--config", &file]] {
        let created =
            pushctl_output_with(&[flags, &["app", "create", "a"]].concat(), &variables).await;
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    }
    let listed = store.run(&["app", "list", "--namespace", "of-the-file"]).await;
    assert!(listed.out.contains('a') && !listed.out.contains("no apps"), "{}", listed.out);
    let no_folder = [("PUSH_DATA_DIR", ""), ("PUSH_CONFIG", "")];
    let help = pushctl_output_with(&["app", "--help"], &no_folder).await;
    assert!(help.status.success());
}

#[tokio::test]
async fn a_variable_that_no_program_knows_is_one_warning_and_no_error() {
    let store = Store::new();
    let data = store.dir().to_str().unwrap();
    let variables = [("PUSH_NAMESPAC", "hunter2"), ("PUSH_TASK_PREFETCH", "4"), ("PUSH_LISTN", "")];
    assert!(store.run(&["app", "create", "a"]).await.ok);
    let listed = pushctl_output_with(&["--data-dir", data, "app", "list"], &variables).await;
    let err = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success(), "{err}");
    let warnings: Vec<&str> = err.lines().filter(|line| line.starts_with("warning: ")).collect();
    let told =
        "warning: PUSH_NAMESPAC is no setting of any program; the nearest one is PUSH_NAMESPACE";
    assert_eq!(warnings, [told], "{err}");
}

//! `pushctl app backup` and `pushctl app restore`: of a store in use, into another one, after an
//! accident, killed, and of files that were changed.

use std::{fs, os::unix::fs::PermissionsExt as _};

use push_tests::{
    namespace, redis_url,
    service::pushctl_output,
    stack::{APP, Servers, Stack},
};
use serde_json::json;
use tempfile::TempDir;

use super::support::{
    Embedded, crowd, error, exported, json, kill_in_the_middle, many_devices, refused, run,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_app_of_a_running_service_is_restored_elsewhere_and_serves_the_same_secret() {
    let service = Stack::start(Servers::shared()).await;
    service.import(&crowd(5000)).await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("app.backup");
    let file = file.to_str().unwrap();
    let written = service.pushctl(&["app", "backup", APP, file, "--json"]).await;
    let written: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!((&written["devices"], &written["left_out"]), (&json!(5000), &json!(0)));
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = fs::read(file).unwrap();
    let secret = service.secret().as_bytes();
    assert!(!bytes.windows(secret.len()).any(|window| window == secret), "a secret is unencrypted");
    assert!(bytes.len() < 5000 * 60, "{} bytes", bytes.len());

    let (url, other) = (redis_url(), namespace());
    let there = ["--index-url", &url, "--namespace", &other];
    let restored =
        pushctl_output(&[&there[..], &["app", "restore", file, "--json"]].concat()).await;
    assert_eq!(json(&restored)["devices"], 5000);
    let here = ["--index-url", &url, "--namespace", &service.namespace];
    assert_eq!(exported(&there).await, exported(&here).await);
    let second = Stack::start_with_app(Servers::shared(), &other, service.secret()).await;
    let _worker = second.worker(&[]).await;
    let everyone = json!({"type": 2, "time_to_live": 600, "condition": {"type": 0}});
    let id = second.push(&everyone).await;
    assert_eq!(second.closed(&id).await["sent"], 5000);
    let events = pushctl_output(&[&there[..], &["audit", "list", "--json"]].concat()).await;
    assert_eq!(json(&events)[0]["action"], "app_restored");
    assert!(service.pushctl(&["audit", "list"]).await.contains("app_backed_up"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_was_removed_by_accident_comes_back_with_new_logins() {
    let store = Embedded::with_devices(&crowd(100)).await;
    let file = store.folder.path().join("app.backup");
    let file = file.to_str().unwrap();
    assert!(store.pushctl(&["app", "backup", APP, file]).await.status.success());
    let text = refused(&store.pushctl(&["app", "restore", file]).await);
    assert!(text.contains("has an app of this name already"), "{text}");
    let text = refused(&store.pushctl(&["app", "backup", APP, file]).await);
    assert!(text.contains("exists already"), "{text}");

    assert!(store.pushctl(&["app", "remove", APP, "--yes"]).await.status.success());
    let text = refused(&store.pushctl(&["app", "restore", file]).await);
    assert!(text.contains("--new-logins"), "{text}");
    let restored = store.pushctl(&["app", "restore", file, "--new-logins", "--json"]).await;
    assert_eq!(json(&restored)["devices"], 100);
    let shown = json(&store.pushctl(&["app", "show", APP, "--json"]).await);
    assert_eq!((&shown["devices"], &shown["rate_limit"]), (&json!(100), &json!(5000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_restored_of_a_file_that_is_damaged_or_of_a_newer_version() {
    let store = Embedded::with_devices(&crowd(2000)).await;
    let file = store.folder.path().join("app.backup");
    assert!(store.pushctl(&["app", "backup", APP, file.to_str().unwrap()]).await.status.success());
    let good = fs::read(&file).unwrap();
    let other = Embedded::empty();
    let bad = other.folder.path().join("bad.backup");
    let attempt = async |bytes: &[u8]| {
        fs::write(&bad, bytes).unwrap();
        refused(&other.pushctl(&["app", "restore", bad.to_str().unwrap()]).await)
    };
    let mut changed = good.clone();
    changed[good.len() / 2] ^= 0x10;
    for bytes in [&changed[..], &good[..good.len() - 1], &good[..good.len() / 2]] {
        let text = attempt(bytes).await;
        assert!(text.contains("is damaged: nothing of it was restored"), "{text}");
    }
    let newer = [b"push app backup 2", &good["push app backup 1".len()..]].concat();
    let text = attempt(&newer).await;
    assert!(text.contains("newer pushctl"), "{text}");
    let listed = other.pushctl(&["app", "list"]).await;
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "no apps\n", "{}", error(&listed));
    assert!(refused(&other.pushctl(&["app", "show", APP]).await).contains("there is no app"));
}

/// So many devices, the store that has them, and the file of its backup.
async fn backed_up() -> (usize, Embedded, String) {
    let many = many_devices().min(100_000);
    let store = Embedded::with_devices(&crowd(many)).await;
    let file = store.folder.path().join("app.backup").to_str().unwrap().to_owned();
    assert!(store.pushctl(&["app", "backup", APP, &file]).await.status.success());
    (many, store, file)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restoration_that_is_killed_goes_on() {
    let (many, store, file) = backed_up().await;
    let (url, there) = (redis_url(), namespace());
    let flags = ["--index-url", &url, "--namespace", &there, "app", "restore", &file, "--json"];
    let flags: Vec<String> = flags.map(str::to_owned).to_vec();
    let log = store.folder.path().join("killed");
    kill_in_the_middle(&flags, &url, &there, &log).await;
    let restored = json(&run(&flags).await);
    assert_eq!(
        (&restored["devices"], &restored["repaired"]),
        (&json!(many), &json!(0)),
        "{restored}"
    );
    assert!(restored["copied"].as_u64() < Some(many as u64), "{restored}");
    let from = store.folder.path().to_str().unwrap();
    let before = exported(&["--data-dir", from, "--namespace", &store.namespace]).await;
    assert_eq!(exported(&["--index-url", &url, "--namespace", &there]).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_restored_into_an_app_that_is_on_its_way() {
    let (many, store, file) = backed_up().await;
    let (url, flags) = (redis_url(), store.move_to(&redis_url()));
    let log = store.folder.path().join("killed");
    kill_in_the_middle(&flags, &url, &store.namespace, &log).await;
    let restore = ["--index-url", &url, "--namespace", &store.namespace, "app", "restore", &file];
    let text = refused(&pushctl_output(&restore).await);
    assert!(text.contains("is on its way here from") && text.contains("app remove"), "{text}");
    let moved = json(&run(&flags).await);
    assert_eq!(moved["devices"], many, "{moved}");
}

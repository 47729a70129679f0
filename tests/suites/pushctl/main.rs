//! `pushctl` as an operator uses it: processes, files, exit codes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod files;
#[cfg(target_os = "linux")]
mod full_disk;
mod keys;
mod manual;
mod redirect;
mod version;

use std::{fs, net::TcpListener, path::Path, time::Duration};

use bytes::Bytes;
use push_index::{
    SecretUses as _,
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use push_model::{app::AppKey, time::UnixMillis};
use push_queue::{
    Lane, Queue as _,
    sqlite::{SqliteQueue, SqliteQueueSettings},
};
use push_tests::{
    eventually, free_port,
    process::{Output, Process},
    service::{built, pushctl_output, request},
};
use serde_json::{Value, json};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(60);

/// A data directory of the standalone form, for one test.
struct Store(TempDir);

/// How a command ended, and what it printed.
struct Ran {
    ok: bool,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        assert!(self.ok, "{}", self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }

    /// Asserts that it failed with one line of error, and gives that line.
    fn refused(&self) -> &str {
        assert!(!self.ok, "{}", self.out);
        assert_eq!(self.err.trim_end().lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("error: ") && !self.err.contains("panicked"), "{}", self.err);
        self.err.trim_end()
    }
}

impl Store {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    async fn run(&self, command: &[&str]) -> Ran {
        run_in(self.0.path(), command).await
    }
}

async fn run_in(data_dir: &Path, command: &[&str]) -> Ran {
    let mut flags = vec!["--data-dir", data_dir.to_str().unwrap()];
    flags.extend(command);
    let output = pushctl_output(&flags).await;
    Ran {
        ok: output.status.success(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test]
async fn an_app_is_made_once_shown_without_its_secret_and_removed() {
    let store = Store::new();
    let made = store.run(&["app", "create", "news", "--rate-limit", "5", "--json"]).await.json();
    let secret = made["secret"].as_str().unwrap();
    assert_eq!(secret.len(), 64);
    assert!(store.run(&["app", "create", "news"]).await.refused().contains("already"));

    store.run(&["app", "disable", "news"]).await;
    let shown = store.run(&["app", "show", "news", "--json"]).await;
    assert_eq!(shown.json()["disabled"], true);
    assert_eq!(shown.json()["rate_limit"], 5);
    assert!(!shown.out.contains(secret));
    store.run(&["app", "enable", "news"]).await;
    let list = store.run(&["app", "list", "--json"]).await.json();
    assert_eq!((list[0]["app_id"].as_str(), &list[0]["disabled"]), (Some("news"), &json!(false)));

    let stored = fs::read(store.0.path().join("index.sqlite3")).unwrap();
    let seen = stored.windows(secret.len()).any(|window| window == secret.as_bytes());
    assert!(!seen, "the secret is in the store in the clear");
    assert!(store.run(&["app", "remove", "news"]).await.ok);
    assert!(store.run(&["app", "show", "news"]).await.refused().contains("no app news"));
}

#[tokio::test]
async fn the_limits_of_an_app_are_changed_one_by_one_and_given_up() {
    let store = Store::new();
    store.run(&["app", "create", "news", "--rate-limit", "5", "--pace", "1000"]).await;
    let set = store.run(&["app", "set", "news", "--pace", "2000", "--json"]).await.json();
    assert_eq!((&set["rate_limit"], &set["pace"]), (&json!(5), &json!(2000)));
    let set = store.run(&["app", "set", "news", "--rate-limit", "none", "--json"]).await.json();
    assert_eq!((&set["rate_limit"], &set["pace"]), (&json!(null), &json!(2000)));
    let shown = store.run(&["app", "show", "news"]).await.out;
    assert!(shown.contains("PACE") && shown.contains("2000/s"), "{shown}");

    let nothing = store.run(&["app", "set", "news"]).await;
    assert!(!nothing.ok && nothing.err.contains("--pace"), "{}", nothing.err);
    let wrong = store.run(&["app", "set", "news", "--pace", "0"]).await;
    assert!(!wrong.ok && wrong.err.contains("from 1 to 4294967295, or none"), "{}", wrong.err);
    let unknown = store.run(&["app", "set", "old", "--pace", "5"]).await;
    assert!(unknown.refused().contains("no app old"), "{}", unknown.err);
}

#[tokio::test]
async fn a_secret_of_the_operators_own_must_not_be_guessable() {
    let store = Store::new();
    let weak = store.file("weak", "hunter2\n");
    let refused = store.run(&["app", "create", "a", "--secret-file", &weak]).await;
    assert!(refused.refused().contains("32 to 256 visible ASCII"), "{}", refused.err);
    assert!(!refused.err.contains("hunter2"));
    for guessable in ["x".repeat(32), "0123456789abcdef0123456789abcdef".to_owned()] {
        let file = store.file("guessable", &guessable);
        let refused = store.run(&["app", "create", "a", "--secret-file", &file]).await;
        assert!(refused.refused().contains("openssl rand -hex 32"), "{}", refused.err);
        assert!(!refused.err.contains(&guessable), "{}", refused.err);
    }
    let own = "9b1f4c07d2e86a35f0c4b7d91e6a2835";
    let good = store.file("good", &format!("{own}\n"));
    let made = store.run(&["app", "create", "a", "--secret-file", &good, "--json"]).await.json();
    assert_eq!(made["secret"], own);
}

#[tokio::test]
async fn named_secrets_are_added_with_scopes_listed_without_the_secret_and_revoked() {
    let store = Store::new();
    let made = store.run(&["app", "create", "news", "--json"]).await.json();
    let add = ["app", "secret", "add", "news", "phones", "--scope"];
    let with = [&add[..], &["devices,read", "--expires", "90d", "--json"]].concat();
    let added = store.run(&with).await.json();
    let secret = added["secret"].as_str().unwrap().to_owned();
    assert_eq!((secret.len(), &added["name"]), (64, &json!("phones")));

    let listed = store.run(&["app", "secret", "list", "news", "--json"]).await;
    for secret in [&secret, made["secret"].as_str().unwrap()] {
        assert!(!listed.out.contains(secret), "{}", listed.out);
    }
    let listed = listed.json();
    assert_eq!(listed[0]["name"], "default");
    assert_eq!(listed[0]["scopes"], json!(["push", "devices", "read", "recall"]));
    assert_eq!((&listed[1]["name"], &listed[1]["valid"]), (&json!("phones"), &json!(true)));
    assert_eq!(listed[1]["scopes"], json!(["devices", "read"]));
    let lives = listed[1]["expires_at"].as_u64().unwrap() - listed[1]["made_at"].as_u64().unwrap();
    let days = lives.div_ceil(24 * 3600 * 1000);
    assert!((90..=91).contains(&days), "{listed}");

    let again = store.run(&[&add[..], &["push"]].concat()).await;
    assert!(again.refused().contains("a secret named phones already"), "{}", again.err);
    let same = store.file("same", &secret);
    let other =
        ["app", "secret", "add", "news", "other", "--scope", "push", "--secret-file", &same];
    let same = store.run(&other).await;
    assert!(same.refused().contains("the app's secret phones already"), "{}", same.err);
    let weak = store.file("weak", &"ab".repeat(20));
    let other =
        ["app", "secret", "add", "news", "other", "--scope", "push", "--secret-file", &weak];
    let weak = store.run(&other).await;
    assert!(weak.refused().contains("could be guessed"), "{}", weak.err);
    let unknown = store.run(&["app", "secret", "add", "news", "x", "--scope", "everything"]).await;
    assert!(!unknown.ok && unknown.err.contains("push, devices, read, recall"), "{}", unknown.err);
    let past = [
        "app",
        "secret",
        "add",
        "news",
        "x",
        "--scope",
        "push",
        "--expires",
        "2001-01-01T00:00:00Z",
    ];
    let past = store.run(&past).await;
    assert!(!past.ok && past.err.contains("in the future"), "{}", past.err);

    // A rotation of the default secret leaves the named ones.
    assert!(store.run(&["app", "rotate-secret", "news", "--overlap", "1h"]).await.ok);
    let names = async || {
        let listed = store.run(&["app", "secret", "list", "news", "--json"]).await.json();
        let names = listed.as_array().unwrap().iter().map(|secret| secret["name"].to_string());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names().await, r#""default" "previous" "phones""#);
    assert!(store.run(&["app", "secret", "revoke", "news", "phones"]).await.ok);
    assert_eq!(names().await, r#""default" "previous""#);
    let gone = store.run(&["app", "secret", "revoke", "news", "default"]).await;
    assert!(gone.refused().contains("pushctl app rotate-secret"), "{}", gone.err);
}

#[tokio::test]
async fn the_audit_trail_says_who_did_what_to_which_app_and_when() {
    let store = Store::new();
    assert_eq!(store.run(&["audit", "list"]).await.out, "no events\n");
    let before = UnixMillis::now();
    let made = store.run(&["app", "create", "news", "--json"]).await.json();
    let add = ["app", "secret", "add", "news", "phones", "--scope", "devices", "--json"];
    let added = store.run(&add).await.json();
    for done in [
        &["app", "set", "news", "--max-devices", "5"][..],
        &["app", "disable", "news"],
        &["app", "enable", "news"],
        &["app", "secret", "revoke", "news", "phones"],
        &["app", "rotate-secret", "news"],
        &["app", "create", "other"],
        &["app", "remove", "news"],
        &["dead", "drop", "--all"],
    ] {
        let ran = store.run(done).await;
        assert!(ran.ok, "{}", ran.err);
    }
    assert!(!store.run(&["app", "remove", "news"]).await.ok, "it is removed already");
    for reads in [&["app", "list"][..], &["app", "show", "other"], &["dead", "list"]] {
        assert!(store.run(reads).await.ok);
    }

    let listed = store.run(&["audit", "list", "--json"]).await;
    for secret in [&made["secret"], &added["secret"]] {
        assert!(!listed.out.contains(secret.as_str().unwrap()), "{}", listed.out);
    }
    let events = listed.json();
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or("-").to_owned();
    let told: Vec<String> = events
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|event| {
            assert!((before.0..=UnixMillis::now().0).contains(&event["at"].as_u64().unwrap()));
            assert_eq!(event["program"], "pushctl");
            assert!(event["user"].is_string() && event["host"].is_string(), "{event}");
            let (action, app) = (text(event, "action"), text(event, "app"));
            format!("{action} {app} {} {}", text(event, "secret"), event["done"])
        })
        .collect();
    assert_eq!(
        told,
        [
            "app_created news - true",
            "secret_added news phones true",
            "app_changed news - true",
            "app_disabled news - true",
            "app_enabled news - true",
            "secret_revoked news phones true",
            "secret_rotated news default true",
            "app_created other - true",
            "app_removed news - true",
            "dead_letters_dropped - - true",
            "app_removed news - false",
        ]
    );
    let of_other = store.run(&["audit", "list", "--app", "other", "--json"]).await.json();
    assert_eq!(
        (of_other.as_array().unwrap().len(), &of_other[0]["action"]),
        (1, &json!("app_created"))
    );
    let newest = store.run(&["audit", "list", "--limit", "2"]).await.out;
    assert!(newest.lines().count() == 3 && newest.contains("app_removed"), "{newest}");
}

#[tokio::test]
async fn an_app_shows_its_quota_of_devices_and_when_each_secret_was_last_used() {
    let store = Store::new();
    store.run(&["app", "create", "news", "--max-devices", "5"]).await;
    let shown = async || store.run(&["app", "show", "news", "--json"]).await.json();
    assert_eq!(shown().await["max_devices"], 5);
    for (given, stored) in [("none", json!("none")), ("default", json!("default")), ("7", json!(7))]
    {
        let set = store.run(&["app", "set", "news", "--max-devices", given, "--json"]).await.json();
        assert_eq!(set["max_devices"], stored);
    }
    let wrong = store.run(&["app", "set", "news", "--max-devices", "0"]).await;
    assert!(!wrong.ok && wrong.err.contains("or none, or default"), "{}", wrong.err);

    assert_eq!(shown().await["secrets"][0]["last_used_at"], json!(null));
    let file = store.0.path().join("index.sqlite3");
    let index = SqliteIndex::open(&file, "push", SqliteIndexSettings::default()).await.unwrap();
    let app = AppKey::first("news".parse().unwrap());
    let used_at = UnixMillis::now();
    index.save_secret_uses(&app, &[("default", Some(used_at))]).await.unwrap();
    assert_eq!(shown().await["secrets"][0]["last_used_at"], json!(used_at));
    let listed = store.run(&["app", "secret", "list", "news"]).await.out;
    assert!(listed.contains("LAST USED") && listed.contains(&used_at.to_string()), "{listed}");
    // The next default secret was not used yet.
    store.run(&["app", "rotate-secret", "news"]).await;
    assert_eq!(shown().await["secrets"][0]["last_used_at"], json!(null));
}

#[tokio::test]
async fn an_import_reports_bad_lines_by_number_and_takes_the_rest() {
    let store = Store::new();
    store.run(&["app", "create", "a"]).await;
    let file = store.file(
        "devices",
        "{\"client_id\":\"one\",\"country\":\"cn\",\"brand\":\"Xiao Mi\"}\n\
         not json\n\
         {\"client_id\":\"two\",\"language\":\"zh_CN\",\"transport\":\"discard\"}\n\
         {\"client_id\":\"bad id\"}\n\
         {\"client_id\":\"one\",\"country\":\"SG\"}\n",
    );
    let imported = store.run(&["device", "import", "a", &file]).await;
    assert!(!imported.ok, "an import with bad lines does not succeed");
    assert!(
        imported.out.starts_with("3 devices imported (2 new, 1 replaced), 2 bad lines"),
        "{}",
        imported.out
    );
    assert!(imported.err.contains("line 2: not a device"), "{}", imported.err);
    assert!(imported.err.contains("line 4: client_id must be 1 to 128"), "{}", imported.err);

    let exported = store.run(&["device", "export", "a"]).await;
    let mut lines: Vec<Value> =
        exported.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["client_id"].to_string());
    let expected = [
        json!({"client_id": "one", "country": "SG", "transport": "mqtt"}),
        json!({"client_id": "two", "language": "zh-cn", "transport": "discard"}),
    ];
    assert_eq!(lines, expected, "the later of two lines for one device wins");
    let again = store.file("again", &exported.out);
    let imported = store.run(&["device", "import", "a", &again, "--json"]).await.json();
    assert_eq!((&imported["created"], &imported["updated"]), (&json!(0), &json!(2)));
}

#[tokio::test]
async fn devices_are_put_shown_and_removed_one_by_one() {
    let store = Store::new();
    let nowhere = store.run(&["device", "put", "a", "d"]).await;
    assert!(nowhere.refused().contains("pushctl app create a"), "{}", nowhere.err);
    store.run(&["app", "create", "a"]).await;
    let put = store.run(&["device", "put", "a", "d", "--country", "China"]).await;
    assert!(put.refused().contains("country must be two letters"), "{}", put.err);
    assert!(store.run(&["device", "put", "a", "d", "--os-version", "034"]).await.ok);
    let shown = store.run(&["device", "show", "a", "d", "--json"]).await.json();
    assert_eq!(shown, json!({"client_id": "d", "os_version": "34", "transport": "mqtt"}));
    assert!(store.run(&["device", "remove", "a", "d"]).await.ok);
    assert!(store.run(&["device", "show", "a", "d"]).await.refused().contains("no device d"));
}

#[tokio::test]
async fn dead_letters_are_listed_replayed_and_dropped() {
    let store = Store::new();
    assert_eq!(store.run(&["dead", "list"]).await.out, "no dead letters\n");
    let file = store.0.path().join("queue.sqlite3");
    let queue = SqliteQueue::open(&file, "push", SqliteQueueSettings::default()).await.unwrap();
    for text in ["first", "second"] {
        queue.publish_dead(Lane::Jobs, Bytes::from(text), "for a test").await.unwrap();
    }
    let list = store.run(&["dead", "list", "--json"]).await.json();
    assert_eq!((&list[0]["lane"], &list[0]["reason"]), (&json!("jobs"), &json!("for a test")));
    assert_eq!((&list[0]["payload"], &list[1]["payload"]), (&json!("first"), &json!("second")));

    assert!(store.run(&["dead", "drop"]).await.refused().contains("--all"));
    let id = list[0]["id"].as_str().unwrap();
    assert_eq!(store.run(&["dead", "replay", id, "--json"]).await.json()["replayed"], 1);
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    let delivery = tokio::time::timeout(DEADLINE, consumer.next()).await.unwrap().unwrap();
    assert_eq!(delivery.payload, "first");
    assert_eq!(store.run(&["dead", "drop", "--all", "--json"]).await.json()["dropped"], 1);
    queue.close().await;
}

#[tokio::test]
async fn doctor_finds_a_fresh_embedded_store_in_order() {
    let store = Store::new();
    let findings = store.run(&["doctor", "--json"]).await.json();
    let findings = findings.as_array().unwrap();
    assert!(findings.len() >= 4, "{findings:?}");
    assert!(findings.iter().all(|finding| finding["level"] == "ok"), "{findings:?}");
}

#[tokio::test]
async fn a_wrong_setting_a_missing_server_or_a_bad_folder_is_one_clear_line() {
    let store = Store::new();
    let port = free_port().unwrap();
    let unreachable = format!("redis://{}", port.address());
    let refused = store.run(&["app", "list", "--index-url", &unreachable]).await;
    assert!(refused.refused().contains("cannot use the index at redis://"), "{}", refused.err);
    let file = store.file("file", "");
    let refused = run_in(&Path::new(&file).join("data"), &["app", "list"]).await;
    assert!(refused.refused().contains("cannot make the data directory"), "{}", refused.err);
    let refused =
        store.run(&["app", "list", "--index-url", "mysql://x", "--namespace", "A B"]).await;
    assert!(!refused.ok);
    for error in ["--index-url (PUSH_INDEX_URL): must begin with", "--namespace (PUSH_NAMESPACE)"] {
        assert!(refused.err.contains(error), "{}", refused.err);
    }
}

#[tokio::test]
async fn standalone_says_in_one_line_which_address_is_taken() {
    let store = Store::new();
    let [http, mqtt, ops] = [(); 3].map(|()| free_port().unwrap());
    let addresses = [("--listen", &http), ("--mqtt-listen", &mqtt), ("--ops-listen", &ops)];
    for (flag, port) in addresses {
        let taken = TcpListener::bind(port.address()).unwrap();
        let flags: Vec<String> = addresses
            .iter()
            .flat_map(|(flag, port)| [(*flag).to_owned(), port.address()])
            .collect();
        let mut command = vec!["standalone", "--log", "error"];
        command.extend(flags.iter().map(String::as_str));
        let refused = store.run(&command).await;
        assert!(refused.refused().contains(flag), "{}", refused.err);
        assert!(refused.err.contains(&port.address()), "{}", refused.err);
        drop(taken);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_shows_which_device_got_what_and_stays_up_for_the_curl_line() {
    let store = Store::new();
    let [http, mqtt, ops] = [(); 3].map(|()| free_port().unwrap().address());
    let mut command = std::process::Command::new(built("pushctl"));
    command.args(["standalone", "--demo", "--data-dir", store.0.path().to_str().unwrap()]);
    command.args(["--listen", &http, "--mqtt-listen", &mqtt, "--ops-listen", &ops]);
    let log = store.0.path().join("log");
    let mut demo = Process::spawn(&command, Output::Log(&log), None).unwrap();
    let shown = async |what: &str| {
        eventually(what, DEADLINE, async || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            if text.contains(what) { Ok(text) } else { Err(text) }
        })
        .await
    };
    let text = shown("Stop with Ctrl-C").await;
    assert_eq!(text.matches("你好 · A targeted push").count(), 3, "{text}");
    assert_eq!(text.matches("nothing, as it should").count(), 3, "{text}");

    // The curl line is run as it is printed.
    let (_, curl) = text.split_once("curl -sS").unwrap();
    let (curl, _) = curl.split_once("\n\n").unwrap();
    let line = format!("curl -sS{curl}");
    let answer = tokio::process::Command::new("bash").args(["-c", &line]).output().await.unwrap();
    let answer = String::from_utf8(answer.stdout).unwrap();
    assert!(answer.starts_with("{\"status\":200"), "{line}: {answer}");
    eventually("all six devices show it", DEADLINE, async || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let times = text.matches("received Hello · everyone").count();
        if times == 6 { Ok(()) } else { Err(text) }
    })
    .await;
    let metrics = request("GET", &format!("http://{ops}/metrics"), &[], "").await.unwrap();
    assert!(metrics.1.contains("push_worker_devices_total{outcome=\"sent\""), "{metrics:?}");
    demo.signal_all(rustix::process::Signal::INT);
    let ended = eventually("Ctrl-C ends it", DEADLINE, async || {
        demo.ended().unwrap().ok_or_else(|| "it runs".to_owned())
    })
    .await;
    assert!(ended.success(), "{}", fs::read_to_string(&log).unwrap());
}

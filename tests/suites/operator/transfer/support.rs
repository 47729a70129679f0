//! The store that apps leave, and commands that are killed in the middle.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output as Ended},
    time::Duration,
};

use push_tests::{
    eventually, namespace,
    process::{Output, Process},
    servers::redis_connection,
    service::{built, pushctl_output},
    stack::{APP, DEADLINE},
};
use serde_json::Value;
use tempfile::TempDir;

/// Devices that are moved in a test in which the move is killed, unless this variable says another
/// number.
const DEVICES_VARIABLE: &str = "PUSH_MOVE_DEVICES";
const DEVICES: usize = 100_000;

pub(super) fn many_devices() -> usize {
    let number = std::env::var(DEVICES_VARIABLE).ok();
    number.map_or(DEVICES, |number| number.parse().expect("PUSH_MOVE_DEVICES is a number"))
}

/// The data directory of a `standalone`, with one app.
pub(super) struct Embedded {
    pub(super) folder: TempDir,
    pub(super) namespace: String,
    pub(super) secret: String,
}

impl Embedded {
    /// A store without an app.
    pub(super) fn empty() -> Self {
        let folder = TempDir::new().unwrap();
        Self { folder, namespace: namespace(), secret: String::new() }
    }

    /// A store whose app has these devices, one JSON object a line.
    pub(super) async fn with_devices(lines: &str) -> Self {
        let mut store = Self::empty();
        let made = store.pushctl(&["app", "create", APP, "--rate-limit", "5000", "--json"]).await;
        store.secret = json(&made)["secret"].as_str().unwrap().to_owned();
        store.import(lines).await;
        store
    }

    pub(super) async fn import(&self, lines: &str) {
        let file = self.folder.path().join("devices");
        std::fs::write(&file, lines).unwrap();
        let done = self.pushctl(&["device", "import", APP, file.to_str().unwrap()]).await;
        assert!(done.status.success(), "{}", error(&done));
    }

    pub(super) fn url(&self) -> String {
        format!("sqlite://{}", self.file().display())
    }

    pub(super) fn file(&self) -> PathBuf {
        self.folder.path().join("index.sqlite3")
    }

    pub(super) async fn pushctl(&self, command: &[&str]) -> Ended {
        let directory = self.folder.path().to_str().unwrap();
        let flags = ["--data-dir", directory, "--namespace", &self.namespace];
        pushctl_output(&[&flags[..], command].concat()).await
    }

    /// The flags that move its apps to this store, within its namespace.
    pub(super) fn move_to(&self, to: &str) -> Vec<String> {
        move_flags(&self.url(), to, &self.namespace)
    }
}

/// The flags of a move while no program works on the source.
pub(super) fn move_flags(from: &str, to: &str, namespace: &str) -> Vec<String> {
    let flags =
        ["move", "--from", from, "--to", to, "--namespace", namespace, "--notice", "0s", "--json"];
    flags.map(str::to_owned).to_vec()
}

/// Runs `pushctl` to its end.
pub(super) async fn run(flags: &[String]) -> Ended {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    pushctl_output(&flags).await
}

/// Returns what a command that succeeded printed.
pub(super) fn json(ended: &Ended) -> Value {
    assert!(ended.status.success(), "{}", error(ended));
    serde_json::from_slice(&ended.stdout).unwrap()
}

/// Returns what a command printed as its error.
pub(super) fn error(ended: &Ended) -> String {
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

/// Returns what a command that failed printed as its error.
pub(super) fn refused(ended: &Ended) -> String {
    assert!(!ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    error(ended)
}

/// Devices of three countries, in turn, that accept every message.
pub(super) fn crowd(devices: usize) -> String {
    let mut lines = String::new();
    for n in 0..devices {
        let country = ["SG", "CN", "US"][n % 3];
        let language = ["zh-CN", "en"][n % 2];
        writeln!(
            lines,
            r#"{{"client_id":"crowd-{n}","transport":"discard","country":"{country}","language":"{language}"}}"#
        )
        .unwrap();
    }
    lines
}

pub(super) async fn redis(url: &str) -> redis::aio::MultiplexedConnection {
    redis_connection(&redis::Client::open(url).unwrap()).await.unwrap()
}

/// Runs `pushctl` and kills it when the app is on its way to the Redis at `url`, some of its devices
/// are there, and others are not.
pub(super) async fn kill_in_the_middle(flags: &[String], url: &str, namespace: &str, log: &Path) {
    let mut command = Command::new(built("pushctl"));
    command.args(flags);
    let mut connection = redis(url).await;
    let mut process = Process::spawn(&command, Output::Log(log), None).unwrap();
    let text = || std::fs::read_to_string(log).unwrap_or_default();
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        assert!(process.ended().unwrap().is_none(), "it ended before it was killed: {}", text());
        assert!(tokio::time::Instant::now() < deadline, "it stores nothing: {}", text());
        let mut get = redis::cmd("HGET");
        get.arg(format!("{namespace}:apps")).arg(format!("@+{APP}"));
        let arrival: Option<String> = get.query_async(&mut connection).await.unwrap();
        let arrival: Value = serde_json::from_str(&arrival.unwrap_or_default()).unwrap_or_default();
        if arrival["position"]["slot"].as_u64() > Some(0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    process.kill();
    let mut exists = redis::cmd("HEXISTS");
    exists.arg(format!("{namespace}:apps")).arg(format!("@+{APP}"));
    let is_on_its_way: bool = exists.query_async(&mut connection).await.unwrap();
    assert!(is_on_its_way, "it was killed too late: {}", text());
}

/// The devices of an app as an export has them, sorted.
pub(super) async fn exported(flags: &[&str]) -> Vec<String> {
    let ended = pushctl_output(&[flags, &["device", "export", APP]].concat()).await;
    assert!(ended.status.success(), "{}", error(&ended));
    let mut lines: Vec<_> =
        String::from_utf8(ended.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Waits until the log of a program contains this text.
pub(super) async fn logs(log: &Path, text: &str) -> String {
    eventually(&format!("{} has {text:?}", log.display()), DEADLINE, async || {
        let shown = std::fs::read_to_string(log).unwrap_or_default();
        if shown.contains(text) { Ok(shown) } else { Err(shown) }
    })
    .await
}

//! The embedded form on a full disk. Here it is a limit on the size of files, which any user can set
//! for a process of theirs. It fails a write as a full disk does, even one to the log.

use std::process::Command;

use push_tests::{
    eventually, free_port,
    process::{Output, Process},
    readiness::Readiness,
    service::{built, pushctl, request},
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use tempfile::TempDir;

use crate::pushctl::support::DEADLINE;

/// A running `pushctl standalone` or `pushctl broker`.
struct Embedded {
    process: Process,
    folder: TempDir,
    http: String,
    ops: String,
    secret: String,
}

/// The password of the workers of `pushctl broker`.
const PASSWORD: &str = "mP4qLw82ZxRt70VbNc5eKyHd31JsUaGf";

impl Embedded {
    async fn standalone() -> Self {
        let http = free_port().unwrap().address();
        let flags = ["standalone", "--admin-listen=off", "--listen", &http];
        Self::start(&flags, &http).await
    }

    async fn broker() -> Self {
        let workers = free_port().unwrap().address();
        let flags = ["--mqtt-worker-listen", &workers, "--mqtt-worker-password", PASSWORD];
        Self::start(&[&["broker"], &flags[..]].concat(), "").await
    }

    async fn start(command_and_flags: &[&str], http: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let data_dir = folder.path().to_str().unwrap();
        pushctl(&["--data-dir", data_dir, "key", "create"]).await;
        let made = pushctl(&["--data-dir", data_dir, "app", "create", "news", "--json"]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        let [mqtt, ops] = [(); 2].map(|()| free_port().unwrap().address());
        let mut command = Command::new("sh");
        // Without it, a write beyond the limit is a signal that ends the program.
        command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(built("pushctl"));
        command.args(command_and_flags).args(["--data-dir", data_dir]);
        command.args(["--mqtt-listen", &mqtt, "--ops-listen", &ops]);
        let log = folder.path().join("log");
        let process = Process::spawn(&command, Output::Log(&log), None).unwrap();
        let (http, secret) = (http.to_owned(), made["secret"].as_str().unwrap().to_owned());
        let program = Self { process, folder, http, ops, secret };
        program.until_ready(200).await;
        program
    }

    async fn until_ready(&self, code: u16) -> Readiness {
        eventually(&format!("/readyz answers {code}"), DEADLINE, async || {
            let log = || std::fs::read_to_string(self.folder.path().join("log"));
            match Readiness::of(&self.ops).await {
                Ok(seen) if seen.code == code => Ok(seen),
                other => Err(format!("{other:?} {:?}", log())),
            }
        })
        .await
    }

    async fn push(&self) -> u16 {
        let headers =
            [("authorization", self.secret.as_str()), ("content-type", "application/json")];
        let body = "{\"type\":2,\"time_to_live\":60,\"condition\":{\"type\":0}}";
        let url = format!("http://{}/v1/message/push/news", self.http);
        request("POST", &url, &headers, body).await.unwrap().0
    }

    /// Forbids or allows the process to write files.
    fn fill_disk(&self, is_full: bool) {
        let id = Pid::from_raw(i32::try_from(self.process.id()).unwrap());
        let current = if is_full { Some(0) } else { None };
        prlimit(id, Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_the_service_is_not_ready_and_is_again_when_there_is_room() {
    let mut standalone = Embedded::standalone().await;
    assert_eq!(standalone.push().await, 200);
    standalone.fill_disk(true);
    assert_eq!(standalone.push().await, 503);
    eventually("/readyz names every part that writes to the disk", DEADLINE, async || {
        let seen = standalone.until_ready(503).await;
        let fails = |part: &&str| seen.says(part, "failed", "");
        let all = ["queue", "index", "disk"].iter().all(fails);
        if all { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    for _ in 0..5 {
        assert_eq!((standalone.push().await, standalone.until_ready(503).await.code), (503, 503));
    }
    standalone.fill_disk(false);
    standalone.until_ready(200).await;
    assert_eq!(standalone.push().await, 200);
    assert!(standalone.process.ended().unwrap().is_none(), "it went on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_whose_disk_is_full_is_not_ready_because_it_cannot_save_its_sessions() {
    let mut broker = Embedded::broker().await;
    broker.fill_disk(true);
    let seen = broker.until_ready(503).await;
    assert!(seen.says("disk", "failed", "cannot be written: "), "{seen:?}");
    broker.fill_disk(false);
    broker.until_ready(200).await;
    assert!(broker.process.ended().unwrap().is_none(), "it went on");
}

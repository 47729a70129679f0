//! The embedded form on a full disk. Here it is a limit on the size of files, which any user can set
//! for a process of theirs, and which fails a write as a full disk does: also one to the log.

use std::process::Command;

use push_tests::{
    eventually, free_port,
    process::{Output, Process},
    service::{built, pushctl, request},
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::DEADLINE;

/// A running standalone form.
struct Standalone {
    process: Process,
    folder: TempDir,
    http: String,
    ops: String,
    secret: String,
}

impl Standalone {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let data_dir = folder.path().to_str().unwrap();
        let made = pushctl(&["--data-dir", data_dir, "app", "create", "news", "--json"]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        let [http, mqtt, ops] = [(); 3].map(|()| free_port().unwrap().address());
        let mut command = Command::new("sh");
        // Without it, a write beyond the limit is a signal that ends the program.
        command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(built("pushctl"));
        command.args(["standalone", "--data-dir", data_dir]);
        command.args(["--listen", &http, "--mqtt-listen", &mqtt, "--ops-listen", &ops]);
        let log = folder.path().join("log");
        let process = Process::spawn(&command, Output::Log(&log), None).unwrap();
        let secret = made["secret"].as_str().unwrap().to_owned();
        let standalone = Self { process, folder, http, ops, secret };
        standalone.until_ready(200).await;
        standalone
    }

    /// Status and text of `/readyz`.
    async fn ready(&self) -> (u16, String) {
        request("GET", &format!("http://{}/readyz", self.ops), &[], "").await.unwrap_or_default()
    }

    async fn until_ready(&self, status: u16) -> String {
        eventually(&format!("/readyz answers {status}"), DEADLINE, async || {
            let (ready, text) = self.ready().await;
            let log = || std::fs::read_to_string(self.folder.path().join("log"));
            if ready == status { Ok(text) } else { Err(format!("{ready} {text} {:?}", log())) }
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

    /// Lets no file of the process be written, or all.
    fn fill_disk(&self, is_full: bool) {
        let id = Pid::from_raw(i32::try_from(self.process.id()).unwrap());
        let current = if is_full { Some(0) } else { None };
        prlimit(id, Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_the_service_is_not_ready_and_is_again_when_there_is_room() {
    let mut standalone = Standalone::start().await;
    assert_eq!(standalone.push().await, 200);
    standalone.fill_disk(true);
    assert_eq!(standalone.push().await, 503);
    let text = standalone.until_ready(503).await;
    assert!(text.contains("queue: not available"), "{text}");
    for _ in 0..5 {
        assert_eq!((standalone.push().await, standalone.ready().await.0), (503, 503));
    }
    standalone.fill_disk(false);
    standalone.until_ready(200).await;
    assert_eq!(standalone.push().await, 200);
    assert!(standalone.process.ended().unwrap().is_none(), "it went on");
}

//! The tutorial of the first cluster, with the way back and a backup, run as they are written: only
//! addresses are replaced.
//!
//! A device registers at the old service, is offline while a push is sent, and logs in at the new
//! broker with its old login: it receives the messages that waited for it, and those that the new service sends.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use push_tests::{
    amqp_url, eventually, free_port, namespace,
    ports::Port,
    process::{Output, Process},
    redis_url,
    service::{built, request},
    stack::DEADLINE,
};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::support::logs;

const MARK: &str = "<!-- run by tests/suites/operator: ";

/// The tutorial, all of whose commands are run.
const TUTORIAL: &str = "tutorials/first-cluster.md";

/// Further pages with commands that are run.
const FURTHER: [&str; 2] = ["how-to/move-an-app.md", "how-to/back-up-and-restore.md"];

/// The marked shell commands of a page by their names.
fn blocks_of(page: &str) -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let marked: BTreeMap<String, String> = text
        .split(MARK)
        .skip(1)
        .map(|rest| {
            let (name, rest) = rest.split_once(" -->\n```sh\n").expect("a block behind its name");
            (name.to_owned(), rest.split_once("```").expect("its end").0.to_owned())
        })
        .collect();
    let all = text.matches("```sh").count();
    assert!(page != TUTORIAL || all == marked.len(), "a block of the tutorial is not run");
    marked
}

/// The shell commands of the pages by their names.
fn blocks() -> BTreeMap<String, String> {
    std::iter::once(TUTORIAL).chain(FURTHER).flat_map(blocks_of).collect()
}

/// A machine: a directory, and the ports of the services.
struct Machine {
    folder: TempDir,
    blocks: BTreeMap<String, String>,
    namespace: String,
    ports: [Port; 6],
}

impl Machine {
    fn new() -> Self {
        let ports = [(); 6].map(|()| free_port().unwrap());
        let folder = TempDir::new().unwrap();
        Self { folder, blocks: blocks(), namespace: namespace(), ports }
    }

    fn http(&self) -> String {
        self.ports[0].address()
    }

    fn mqtt(&self) -> String {
        self.ports[1].address()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs shell commands in the directory, with the addresses of this test; `ops` is the port of
    /// operations that they listen on.
    fn start(&self, name: &str, script: &str, ops: usize) -> Process {
        let script = script
            .replace("amqp://guest:guest@rabbitmq:5672/%2f", &amqp_url())
            .replace("redis://redis:6379", &redis_url())
            .replace("127.0.0.1:8080", &self.http())
            .replace("127.0.0.1:1884", &self.ports[2].address())
            .replace("--namespace copy", &format!("--namespace {}", self.copy()));
        let programs = built("pushctl").parent().unwrap().to_owned();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &script]).current_dir(self.folder.path());
        command.env("PATH", path).env("PUSH_NAMESPACE", &self.namespace);
        command.env("PUSH_LISTEN", self.http()).env("PUSH_MQTT_LISTEN", self.mqtt());
        command.env("PUSH_MQTT_WORKER_LISTEN", self.ports[2].address());
        command.env("PUSH_OPS_LISTEN", self.ports[ops].address());
        Process::spawn(&command, Output::Log(&self.path(name)), None).unwrap()
    }

    /// The namespace of the restored copy.
    fn copy(&self) -> String {
        format!("{}-copy", self.namespace)
    }

    /// Starts the commands of a block.
    fn begin(&self, name: &str, ops: usize) -> Process {
        self.start(name, &self.blocks[name], ops)
    }

    /// Runs the commands of a block to their end, and returns what they printed.
    async fn run(&self, name: &str) -> String {
        self.run_script(name, &self.blocks[name]).await
    }

    async fn run_script(&self, name: &str, script: &str) -> String {
        let mut process = self.start(name, script, 5);
        let status = eventually(&format!("{name} ends"), DEADLINE, async || {
            process.ended().unwrap().ok_or_else(|| self.log(name))
        })
        .await;
        assert!(status.success(), "{name}: {}", self.log(name));
        self.log(name)
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Pushes to everyone and gives the message id.
    async fn push(&self, secret: &str) -> String {
        let headers = [("authorization", secret), ("content-type", "application/json")];
        let url = format!("http://{}/v1/message/push/news", self.http());
        let body = r#"{"type":2,"time_to_live":600,"condition":{"type":0},"data":{"k":"old"}}"#;
        let (status, answer) = request("POST", &url, &headers, body).await.unwrap();
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["result"]["message_id"].as_str().unwrap().to_owned()
    }
}

/// Sends a signal, as Ctrl-C does, and waits for the end.
async fn stop(process: &mut Process) {
    process.signal_all(Signal::INT);
    let status = eventually("it stops", DEADLINE, async || {
        process.ended().unwrap().ok_or_else(|| "it runs".to_owned())
    })
    .await;
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_from_one_machine_to_the_scaled_form_works_as_it_is_written() {
    let machine = Machine::new();
    let mut old = machine.start("old", "exec pushctl standalone", 3);
    logs(&machine.path("old"), "ready on http://").await;
    let create = "umask 077; pushctl app create news --json | sed 's/.*\"secret\":\"\\([^\"]*\\)\".*/\\1/' > news.secret";
    machine.run_script("create", create).await;
    let secret = std::fs::read_to_string(machine.path("news.secret")).unwrap();
    let secret = secret.trim();

    // A device registers, listens once, and goes offline.
    let headers = [("authorization", secret), ("content-type", "application/json")];
    let url = format!("http://{}/v1/device/news/phone-1", machine.http());
    let (status, answer) = request("PUT", &url, &headers, r#"{"country":"SG"}"#).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["result"]["mqtt"]["url"], format!("mqtt://{}", machine.mqtt()));
    let password = answer["result"]["mqtt"]["password"].as_str().unwrap();
    let login = format!("mqtt://news%3Aphone-1:{password}@{}", machine.mqtt());
    let listen = format!("exec pushctl device listen news phone-1 --mqtt-url {login}");
    let mut phone = machine.start("phone", &listen, 5);
    logs(&machine.path("phone"), "phone-1 listens on").await;
    stop(&mut phone).await;
    let waiting = machine.push(secret).await;

    let backup = machine.run("backup").await;
    assert!(backup.contains("news with 1 devices is in news.backup"), "{backup}");
    assert!(machine.run("check").await.contains("envelopes wait"));
    let moved = machine.run("move").await;
    assert!(moved.contains("the devices of both were compared"), "{moved}");
    let push = format!("http://{}/v1/message/push/news", machine.http());
    let (status, answer) = request("POST", &push, &headers, "{}").await.unwrap();
    assert_eq!(status, 503, "{answer}");
    let lanes = machine.run("drain").await;
    assert!(lanes.contains("lane jobs") && lanes.contains("lane tasks"), "{lanes}");
    stop(&mut old).await;

    let mut broker = machine.begin("broker", 3);
    logs(&machine.path("broker"), "workers on mqtt://").await;
    let mut ingest = machine.begin("ingest", 4);
    let mut worker = machine.begin("worker", 5);
    for port in [3, 4, 5] {
        let url = format!("http://{}/readyz", machine.ports[port].address());
        eventually("all of the new service is ready", DEADLINE, async || {
            match request("GET", &url, &[], "").await {
                Ok((200, _)) => Ok(()),
                other => {
                    Err(format!("{other:?} {} {}", machine.log("ingest"), machine.log("worker")))
                }
            }
        })
        .await;
    }

    let pushed = machine.run("push").await;
    assert!(pushed.contains("news") && pushed.contains("message_id"), "{pushed}");
    // The login is that of the old service.
    let _phone = machine.start("phone-again", &listen, 5);
    let received = logs(&machine.path("phone-again"), "We moved").await;
    assert!(received.contains(&waiting), "what waited for it: {received}");

    let restored = machine.run("restore").await;
    assert!(restored.contains("is restored with 1 devices"), "{restored}");
    for process in [&mut worker, &mut ingest, &mut broker] {
        stop(process).await;
    }
    let back = machine.run("back").await;
    assert!(back.contains("news"), "{back}");
    let listed = machine.run_script("listed", "pushctl app list").await;
    assert!(listed.contains("enabled"), "{listed}");
}

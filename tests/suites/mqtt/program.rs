//! `pushctl broker`, the broker as a program of its own: its logins, and what outlives its end.

use std::{path::PathBuf, time::Duration};

use push_credentials::KeyFile;
use push_model::{app::AppKey, device::Target, time::UnixMillis};
use push_mqtt::MqttUrl;
use push_tests::{
    Port, eventually, free_port,
    service::{Program, pushctl},
};
use push_transports::{
    Outcome, Sending, Transport as _,
    mqtt::{MqttSettings, MqttTransport},
};
use tempfile::TempDir;

use push_test_support::registration::registered;

use super::{DEADLINE, LONG, is_ready, listen, message, next, now, targets};

const PASSWORD: &str = "mP4qLw82ZxRt70VbNc5eKyHd31JsUaGf";
const APP: &str = "news";
/// Never, in a test.
const SELDOM: &str = "1h";

/// A running broker with one app, on embedded engines.
struct Broker {
    program: Program,
    devices: Port,
    workers: Port,
    folder: TempDir,
    flags: Vec<String>,
}

impl Broker {
    async fn start(save_interval: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let data = folder.path().to_str().unwrap();
        pushctl(&["key", "create", "--data-dir", data]).await;
        pushctl(&["app", "create", APP, "--data-dir", data]).await;
        let [devices, workers] = [(); 2].map(|()| free_port().unwrap());
        let flags = [
            "broker",
            "--data-dir",
            data,
            "--mqtt-listen",
            &devices.address(),
            "--mqtt-worker-listen",
            &workers.address(),
            "--mqtt-worker-password",
            PASSWORD,
            "--tune",
            &format!("mqtt-save-interval={save_interval}"),
        ];
        let flags: Vec<String> = flags.map(str::to_owned).to_vec();
        let program = start(&flags).await;
        Self { program, devices, workers, folder, flags }
    }

    /// Stops it as an orchestrator does.
    async fn stop(self) -> Stopped {
        let Self { program, devices, workers, folder, flags } = self;
        let stopped = program.stop().await;
        assert!(stopped.success(), "{}", stopped.log);
        Stopped { devices, workers, folder, flags }
    }

    async fn kill_and_start(&mut self) {
        self.program.restart();
        self.program.wait_ready().await;
    }

    fn device_url(&self, name: &str) -> MqttUrl {
        let keys = KeyFile::open(&self.folder.path().join("device-keys.json")).unwrap().current();
        let app = AppKey { id: APP.parse().unwrap(), generation: 0 };
        let registration = registered(self.folder.path(), APP, name);
        let client = name.parse().unwrap();
        let token = keys.issue(&app, &client, registration, UnixMillis::now(), LONG).unwrap();
        let url: MqttUrl = format!("mqtt://{}", self.devices.address()).parse().unwrap();
        url.with_login(&format!("{APP}:{name}"), &token.text)
    }

    /// Makes a session for a device, which is away then.
    async fn visit(&self, name: &str) {
        listen(&self.device_url(name), APP, name).await.unwrap().close().await;
    }

    /// Sends this as a worker does; the broker must accept it.
    async fn send(&self, name: &str, payload: &str) {
        let url: MqttUrl = format!("mqtt://{}", self.workers.address()).parse().unwrap();
        let worker =
            MqttTransport::start(url.with_login("worker", PASSWORD), MqttSettings::default());
        is_ready(&worker, true).await;
        let epoch = registered(self.folder.path(), APP, name);
        let target = Target { epoch, ..targets(&[name]).remove(0) };
        let outcome = worker
            .deliver(&message(APP, payload, LONG), &[target], &Sending::unrestricted(now()))
            .await;
        assert_eq!(outcome, [Outcome::Sent]);
        worker.close().await;
    }

    /// The next message of a device that comes back.
    async fn received(&self, name: &str) -> String {
        next(&mut listen(&self.device_url(name), APP, name).await.unwrap()).await
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("mqtt-sessions.ndjson")
    }
}

/// A broker that has stopped, with its data.
struct Stopped {
    devices: Port,
    workers: Port,
    folder: TempDir,
    flags: Vec<String>,
}

impl Stopped {
    async fn start(self) -> Broker {
        let Self { devices, workers, folder, flags } = self;
        let program = start(&flags).await;
        Broker { program, devices, workers, folder, flags }
    }
}

async fn start(flags: &[String]) -> Program {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Program::start_ready("pushctl", &flags).await
}

#[tokio::test]
async fn what_waits_for_a_device_that_is_away_outlives_a_restart_of_the_broker() {
    let broker = Broker::start(SELDOM).await;
    broker.visit("away").await;
    broker.send("away", "kept").await;
    let connected = listen(&broker.device_url("here"), APP, "here").await.unwrap();
    let broker = broker.stop().await.start().await;
    drop(connected);
    assert_eq!(broker.received("away").await, "kept");
    broker.send("here", "after the restart").await;
    assert_eq!(broker.received("here").await, "after the restart", "it need not subscribe again");
}

#[tokio::test]
async fn a_broker_that_is_killed_loses_at_most_what_came_since_it_saved() {
    let mut broker = Broker::start("1s").await;
    broker.visit("away").await;
    broker.send("away", "kept").await;
    let saved = || std::fs::read_to_string(broker.file()).unwrap_or_default();
    eventually("the message is saved", DEADLINE, async || {
        let text = saved();
        if text.contains("\"message\"") { Ok(()) } else { Err(text) }
    })
    .await;
    broker.kill_and_start().await;
    assert_eq!(broker.received("away").await, "kept");
}

#[tokio::test]
async fn a_damaged_file_of_sessions_is_put_aside_and_the_broker_serves() {
    let broker = Broker::start(SELDOM).await;
    broker.visit("away").await;
    broker.send("away", "lost").await;
    let stopped = broker.stop().await;
    let file = stopped.folder.path().join("mqtt-sessions.ndjson");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let broker = stopped.start().await;
    let aside = broker.folder.path().join("mqtt-sessions.damaged");
    assert_eq!(std::fs::read(aside).unwrap(), &whole[..whole.len() / 2]);
    let log = broker.program.log();
    assert!(log.contains("mqtt-sessions.damaged") && log.contains("is damaged in line"), "{log}");
    broker.visit("away").await;
    broker.send("away", "new").await;
    assert_eq!(broker.received("away").await, "new");
}

#[tokio::test]
async fn sessions_that_cannot_be_saved_are_counted_and_saved_when_they_can_be() {
    const FAILED: &str = "push_broker_saves_failed_total";
    let broker = Broker::start("1s").await;
    assert_eq!(broker.program.metric(FAILED).await, 0.0);
    // A folder is where the broker writes the new file.
    let in_the_way = broker.folder.path().join("mqtt-sessions.new");
    std::fs::create_dir(&in_the_way).unwrap();
    broker.visit("away").await;
    eventually("a save that failed is counted", DEADLINE, async || {
        match broker.program.metric(FAILED).await {
            0.0 => Err(broker.program.log()),
            _ => Ok(()),
        }
    })
    .await;
    std::fs::remove_dir(&in_the_way).unwrap();
    eventually("the session is saved", DEADLINE, async || {
        let text = std::fs::read_to_string(broker.file()).unwrap_or_default();
        if text.contains("away") { Ok(()) } else { Err(text) }
    })
    .await;
}

#[tokio::test]
async fn workers_and_devices_log_in_only_where_they_belong() {
    let broker = Broker::start(SELDOM).await;
    broker.visit("d").await;
    let attempt = async |port: &Port, id: &str, user: &str, password: &str| {
        let port = port.number().to_string();
        let flags = ["-d", "-p", &port, "-V", "mqttv5", "-i", id, "-u", user, "-P", password];
        let mut command = tokio::process::Command::new("timeout");
        command.args(["60", "mosquitto_pub"]).args(flags).args(["-q", "1", "-t", "push/news/d"]);
        let ran = command.args(["-m", "forged"]).kill_on_drop(true).output().await.unwrap();
        format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr))
    };
    let keys = KeyFile::open(&broker.folder.path().join("device-keys.json")).unwrap().current();
    let app = AppKey { id: APP.parse().unwrap(), generation: 0 };
    let registration = registered(broker.folder.path(), APP, "d");
    let client = "d".parse().unwrap();
    let token = keys.issue(&app, &client, registration, UnixMillis::now(), LONG).unwrap().text;
    let refused = [
        ("the workers' password at the port of devices", &broker.devices, "worker", PASSWORD),
        ("a guess at the port of workers", &broker.workers, "worker", "guess"),
        ("no password", &broker.workers, "worker", ""),
        ("a token at the port of workers", &broker.workers, "news:d", token.as_str()),
        ("the password under another name", &broker.workers, "news:d", PASSWORD),
    ];
    for (what, port, user, password) in refused {
        let output = attempt(port, "news:d", user, password).await;
        assert!(output.contains("CONNACK (134)"), "{what}: {output}");
    }
    broker.send("d", "real").await;
    let mut device = listen(&broker.device_url("d"), APP, "d").await.unwrap();
    assert_eq!(next(&mut device).await, "real");
    tokio::time::timeout(Duration::from_millis(200), device.next()).await.unwrap_err();
}

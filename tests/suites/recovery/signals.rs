//! The signals that end a program: each leads to an orderly end.

use std::{fs, process::Command};

use push_tests::{
    Port, eventually, free_port,
    process::{Output, Process},
    service::{Program, built, pushctl},
    stack::{DEADLINE, Servers, Stack},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

const SIGNALS: [(Signal, &str); 4] = [
    (Signal::HUP, "SIGHUP"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::INT, "SIGINT"),
    (Signal::TERM, "SIGTERM"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_signal_that_ends_a_program_lets_ingest_worker_and_broker_finish() {
    let mut stack = Stack::start(Servers::shared()).await;
    let folder = TempDir::new().unwrap();
    let keys = folder.path().join("keys.json");
    let keys = ["--device-keys", keys.to_str().unwrap()];
    pushctl(&[&["key", "create"], &keys[..]].concat()).await;
    let ports = [(); 2].map(|()| free_port().unwrap());
    let [devices, workers] = [&ports[0], &ports[1]].map(Port::address);
    for _ in 1..SIGNALS.len() {
        stack.add_ingest().await;
    }
    let ingests = stack.take_ingests();
    let listen = ["--mqtt-listen", &devices, "--mqtt-worker-listen", &workers];
    let password = ["--mqtt-worker-password", "mP4qLw82ZxRt70VbNc5eKyHd31JsUaGf"];
    let broker = [&["broker"], &stack.engines()[..], &keys, &listen, &password].concat();
    for ((signal, name), ingest) in SIGNALS.into_iter().zip(ingests) {
        let worker = stack.worker(&[]).await;
        let broker = Program::start_ready("pushctl", &broker).await;
        let programs =
            [(ingest, "ingest stopped"), (worker, "drained"), (broker, "broker stopped")];
        for (program, last) in programs {
            let stopped = program.stop_by(signal).await;
            assert!(stopped.success(), "{name}: {}", stopped.log);
            assert!(stopped.log.contains(name) && stopped.log.contains(last), "{}", stopped.log);
        }
    }
}

/// A data directory with an app, and the addresses of the program that serves it.
struct Place {
    folder: TempDir,
    http: Port,
    mqtt: Port,
}

impl Place {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let [http, mqtt] = [(); 2].map(|()| free_port().unwrap());
        let place = Self { folder, http, mqtt };
        let made = place.pushctl(&["app", "create", "news", "--json"]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        fs::write(place.folder.path().join("secret"), made["secret"].as_str().unwrap()).unwrap();
        place
    }

    fn data(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    async fn pushctl(&self, command: &[&str]) -> String {
        pushctl(&[&["--data-dir", self.data()], command].concat()).await
    }

    fn flags(&self) -> Vec<String> {
        let (http, mqtt) = (self.http.address(), self.mqtt.address());
        let admin = "--admin-listen=off";
        let flags = ["standalone", admin, "--data-dir", self.data(), "--listen", &http];
        [&flags[..], &["--mqtt-listen", &mqtt]].concat().into_iter().map(str::to_owned).collect()
    }

    async fn start(&self) -> Program {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        // Only an end in order saves what waits.
        Program::start_ready(
            "pushctl",
            &[&flags[..], &["--tune", "mqtt-save-interval=1h"]].concat(),
        )
        .await
    }

    /// The device listens until it has received so many messages; returns what was printed.
    async fn listen(&self, count: &str) -> String {
        let broker = format!("mqtt://{}", self.mqtt.address());
        self.pushctl(&["device", "listen", "news", "d", "--mqtt-url", &broker, "--count", count])
            .await
    }

    async fn push(&self, text: &str) -> String {
        let body = json!({
            "type": 2, "time_to_live": 600, "data": { "text": text },
            "condition": { "type": 2, "client_ids": ["d"] },
        });
        let file = self.folder.path().join("push.json");
        fs::write(&file, body.to_string()).unwrap();
        let (server, secret) =
            (format!("http://{}", self.http.address()), self.folder.path().join("secret"));
        let (file, secret) = (file.to_str().unwrap(), secret.to_str().unwrap());
        let command = ["push", "news", file, "--secret-file", secret, "--server", &server];
        let pushed = self.pushctl(&[&command[..], &["--json"]].concat()).await;
        let pushed: Value = serde_json::from_str(&pushed).unwrap();
        pushed["result"]["message_id"].as_str().unwrap_or_else(|| panic!("{pushed}")).to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_at_the_broker_of_standalone_outlives_every_signal_that_ends_it() {
    let place = Place::new().await;
    let mut standalone = place.start().await;
    place.pushctl(&["device", "put", "news", "d"]).await;
    for (signal, name) in SIGNALS {
        // The device has a session and is away.
        place.listen("0").await;
        let id = place.push(name).await;
        eventually("it is sent", DEADLINE, async || {
            let report = place.pushctl(&["message", "show", "news", &id, "--json"]).await;
            let report: Value = serde_json::from_str(&report).unwrap();
            if report["sent"] == 1 { Ok(()) } else { Err(report.to_string()) }
        })
        .await;
        let stopped = standalone.stop_by(signal).await;
        assert!(stopped.success() && stopped.log.contains(name), "{name}: {}", stopped.log);
        standalone = place.start().await;
        let received = place.listen("1").await;
        assert!(received.contains(&id) && received.contains(name), "{name}: {received}");
    }
}

/// Starts standalone as part of this script of the shell, in which `RUN` is its command line; returns its log
/// when it is ready.
async fn start_by(
    script: &str,
    shell: &[&str],
    place: &Place,
) -> (Process, impl Fn() -> String + use<>) {
    let ops = free_port().unwrap();
    let program = built("pushctl");
    let run = format!(
        "{} {} --ops-listen {} --tune mqtt-save-interval=1h",
        program.display(),
        place.flags().join(" "),
        ops.address()
    );
    let file = place.folder.path().join("script");
    fs::write(&file, script.replace("RUN", &run)).unwrap();
    let (name, arguments) = shell.split_first().unwrap();
    let mut command = Command::new(name);
    command.args(arguments.iter().map(|part| part.replace("FILE", file.to_str().unwrap())));
    let log = place.folder.path().join("log");
    let process = Process::spawn(&command, Output::Log(&log), None).unwrap();
    let read = move || fs::read_to_string(&log).unwrap_or_default();
    eventually("standalone is ready", DEADLINE, async || {
        if read().contains("ready on") { Ok(()) } else { Err(read()) }
    })
    .await;
    (process, read)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_started_with_sighup_ignored_outlives_its_terminal() {
    let place = Place::new().await;
    let (mut standalone, log) =
        start_by("trap '' HUP\nexec RUN\n", &["/bin/sh", "FILE"], &place).await;
    standalone.signal_all(Signal::HUP);
    // A SIGHUP that was not ignored would come first, because it was sent first.
    standalone.signal_all(Signal::TERM);
    let status = eventually("it ends", DEADLINE, async || {
        standalone.ended().unwrap().ok_or_else(|| "it runs".to_owned())
    })
    .await;
    assert!(status.success() && !log().contains("SIGHUP"), "{status}: {}", log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_terminal_stops_a_program_in_order() {
    let place = Place::new().await;
    place.pushctl(&["device", "put", "news", "d"]).await;
    // `script` is the terminal. Killed, it leaves nothing to which standalone could write.
    let terminal = ["script", "-qfc", "sh FILE", "/dev/null"];
    let (mut terminal, log) = start_by("exec RUN\n", &terminal, &place).await;
    place.listen("0").await;
    let id = place.push("closed").await;
    eventually("it is sent", DEADLINE, async || {
        let report = place.pushctl(&["message", "show", "news", &id, "--json"]).await;
        if report.contains("\"sent\":1") { Ok(()) } else { Err(report) }
    })
    .await;
    terminal.kill();
    eventually("standalone ends", DEADLINE, async || {
        match TcpStream::connect(place.http.address()).await {
            Ok(_) => Err(log()),
            Err(_) => std::fs::read_to_string(place.folder.path().join("mqtt-sessions.ndjson"))
                .map_err(|error| error.to_string()),
        }
    })
    .await;
    let _standalone = place.start().await;
    let received = place.listen("1").await;
    assert!(received.contains(&id), "{received}");
}

//! Failed logins at the embedded broker are events of the audit log, with their number.

use std::time::Duration;

use push_credentials::{KeyFile, KeySet};
use push_model::{
    app::AppKey,
    ids::{AppId, ClientId},
    time::UnixMillis,
};
use push_mqtt::MqttUrl;
use push_mqtt::subscriber::Subscriber;
use push_tests::{
    Port, free_port,
    service::{Program, pushctl},
};
use tempfile::TempDir;

use crate::hostile::{
    audit_log::{AT_ONCE, AT_STOP, failed_logins, wait_for},
    standalone::{APP, LONG},
};

/// A program with the broker, on embedded engines, where devices try to log in.
struct Attacked {
    program: Program,
    devices: Port,
    keys: KeySet,
    _folder: TempDir,
}

impl Attacked {
    /// Runs `pushctl standalone` or `pushctl broker`.
    async fn start(command: &str, flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let data = folder.path().to_str().unwrap();
        pushctl(&["--data-dir", data, "key", "create"]).await;
        pushctl(&["--data-dir", data, "app", "create", APP]).await;
        let keys = KeyFile::open(&folder.path().join("device-keys.json")).unwrap();
        let keys = KeySet::clone(&keys.current());
        let devices = free_port().unwrap();
        let listen = devices.address();
        let all = [command, "--data-dir", data, "--mqtt-listen", &listen];
        let program = Program::start_ready("pushctl", &[&all[..], flags].concat()).await;
        Self { program, devices, keys, _folder: folder }
    }

    /// A device tries to log in with these passwords, and is refused.
    async fn is_refused(&self, passwords: &[&str]) {
        let (app, client): (AppId, ClientId) = (APP.parse().unwrap(), "d".parse().unwrap());
        for password in passwords {
            let url: MqttUrl = format!("mqtt://{}", self.devices.address()).parse().unwrap();
            let url = url.with_login(&format!("{APP}:d"), password);
            let refused = Subscriber::connect(&url, &app, &client, LONG).await;
            assert!(refused.is_err(), "{password} opens a session");
        }
    }

    fn expired(&self) -> String {
        let app = AppKey::first(APP.parse().unwrap());
        let now = UnixMillis::now();
        self.keys
            .issue(&app, &"d".parse().unwrap(), Default::default(), now, Duration::ZERO)
            .unwrap()
            .text
    }
}

#[tokio::test]
async fn wrong_logins_at_the_embedded_broker_are_in_the_audit_log_with_their_number() {
    let http = free_port().unwrap();
    let listen = http.address();
    let flags = [&AT_ONCE[..], &["--listen", &listen]].concat();
    let standalone = Attacked::start("standalone", &flags).await;
    standalone.is_refused(&["", "guess", "another"]).await;
    let log = || standalone.program.log();
    wait_for(log, &[("program=standalone by=mqtt_client", 3)]).await;
    // A phone with a token that was right once tries again and again.
    standalone.is_refused(&[&standalone.expired(), "guess"]).await;
    wait_for(log, &[("program=standalone by=mqtt_client", 4)]).await;
}

#[tokio::test]
async fn a_broker_that_stops_logs_its_last_wrong_logins_in_one_line() {
    const PASSWORD: &str = "mP4qLw82ZxRt70VbNc5eKyHd31JsUaGf";
    let workers = free_port().unwrap();
    let listen = workers.address();
    let of_workers = ["--mqtt-worker-listen", &listen, "--mqtt-worker-password", PASSWORD];
    let broker = Attacked::start("broker", &[&AT_STOP[..], &of_workers].concat()).await;
    broker.is_refused(&["guess", "another", ""]).await;
    let log = broker.program.log();
    assert!(failed_logins(&log).is_empty(), "one line for each login: {log}");
    let stopped = broker.program.stop().await;
    assert!(stopped.success(), "{}", stopped.log);
    let line = ("program=broker by=mqtt_client".to_owned(), 3);
    assert_eq!(failed_logins(&stopped.log), [line], "{}", stopped.log);
}

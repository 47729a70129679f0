//! Logins at `pushctl broker` while the index is away.

use std::time::Duration;

use futures::future;
use push_credentials::KeyFile;
use push_model::{app::AppKey, registration::RegistrationEpoch, time::UnixMillis};
use push_mqtt::MqttUrl;
use push_tests::{
    free_port, namespace,
    servers::Redis,
    service::{Program, pushctl},
};
use tempfile::TempDir;

use super::{LONG, listen};

const LOGINS: usize = 500;
/// Logins at the same time: fewer than an address may have that have not logged in.
const WAVE: usize = 50;
/// The lines of the outage itself.
const MAX_LINES: usize = 10;
/// The app of every device.
const APP: &str = "news";

#[tokio::test(flavor = "multi_thread")]
async fn logins_while_the_index_is_away_are_refused_and_write_a_few_lines() {
    let mut redis = Redis::start().await.unwrap();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("keys.json");
    let keys = ["--device-keys", file.to_str().unwrap()];
    pushctl(&[&["key", "create"], &keys[..]].concat()).await;
    let (url, namespace) = (redis.url(), namespace());
    let index = ["--index-url", &url, "--namespace", &namespace];
    let ports = [(); 2].map(|()| free_port().unwrap());
    let [devices, workers] = [ports[0].address(), ports[1].address()];
    let listeners = ["--mqtt-listen", &devices, "--mqtt-worker-listen", &workers];
    let password = ["--mqtt-worker-password", "mP4qLw82ZxRt70VbNc5eKyHd31JsUaGf"];
    let flags = [&["broker"], &index[..], &keys, &listeners, &password].concat();
    let broker = Program::start_ready("pushctl", &flags).await;
    let issuer = KeyFile::open(&file).unwrap().current();
    let app = AppKey::first(APP.parse().unwrap());
    let client = "d".parse().unwrap();
    let token = issuer.issue(&app, &client, RegistrationEpoch(1), UnixMillis::now(), LONG).unwrap();
    let url: MqttUrl = format!("mqtt://{devices}").parse().unwrap();
    let url = url.with_login(&format!("{APP}:d"), &token.text);

    redis.kill();
    // The failing checks of the index's health have been logged by then.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let lines = || broker.log().lines().count();
    let before = lines();
    for _ in 0..LOGINS / WAVE {
        let logins = (0..WAVE).map(|_| listen(&url, APP, "d"));
        let opened = future::join_all(logins).await;
        assert!(opened.iter().all(Result::is_err), "a login that cannot be checked");
    }
    let written = lines() - before;
    assert!(written <= MAX_LINES, "{written} lines: {}", broker.log());
    assert_eq!(broker.log().matches(" is down: ").count(), 1, "{}", broker.log());
}

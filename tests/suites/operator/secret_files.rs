//! The URLs of the servers, which hold passwords, from files: as Docker and Kubernetes hand secrets to
//! a container.

use std::fs;

use push_tests::{
    amqp_url, free_port, mqtt_url, namespace, redis_url,
    service::{Program, pushctl},
};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn programs_read_the_urls_of_their_servers_from_files() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, url: String| {
        let path = folder.path().join(name);
        fs::write(&path, format!("{url}\n")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (queue, index) = (file("queue", amqp_url()), file("index", redis_url()));
    let (mqtt, namespace) = (file("mqtt", mqtt_url()), namespace());
    let engines =
        ["--queue-url-file", &queue, "--index-url-file", &index, "--namespace", &namespace];
    let http = free_port().unwrap().address();

    let _ingest =
        Program::start_ready("ingest", &[&engines[..], &["--listen", &http]].concat()).await;
    let worker = [&engines[..], &["--mqtt-url-file", &mqtt]].concat();
    let _worker = Program::start_ready("fanout-worker", &worker).await;
    let doctor = pushctl(&[&engines[..], &["doctor"]].concat()).await;
    assert!(doctor.contains("RabbitMQ") && doctor.contains("redis version"), "{doctor}");
}

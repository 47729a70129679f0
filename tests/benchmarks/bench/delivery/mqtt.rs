//! A broadcast over MQTT, as a share of a raw client with as many connections and messages in
//! flight, on Mosquitto and on the broker of `pushctl standalone`. A subscriber receives every
//! message, so that the brokers deliver.

use anyhow::{Context as _, ensure};
use push_mqtt::MqttUrl;
use push_tests::{free_port, service::Program};

use crate::{
    ceiling::raw_mqtt_client::{self, CONNECTIONS, WINDOW},
    load::{broadcasts, mqtt_device},
    measure::stats::Rounds,
    report::{Figure, Row, Target},
    setup::{Environment, LoadedApp},
};

/// The target share of the raw client's rate.
const TARGET: Target = Target::RatioAtLeast(0.80);

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.small_app().await?;
    let mosquitto = env.mqtt_url().await?;
    let on_mosquitto = measure(env, loaded, "Mosquitto", &mosquitto).await?;
    // Only its broker is used.
    let (mqtt, http, data) = (free_port()?, free_port()?, tempfile::tempdir()?);
    let data = data.path().to_str().context("a path that is no text")?;
    let (mqtt, http) = (mqtt.address(), http.address());
    let flags = ["standalone", "--data-dir", data, "--mqtt-listen", &mqtt, "--listen", &http];
    let embedded = Program::start_ready("pushctl", &flags).await;
    let url = format!("mqtt://{mqtt}");
    let on_embedded = measure(env, loaded, "the embedded broker", &url).await?;
    ensure!(embedded.stop().await.success(), "the embedded broker did not stop well");
    Ok(vec![on_mosquitto, on_embedded])
}

async fn measure(
    env: &Environment,
    loaded: &LoadedApp,
    name: &str,
    broker: &str,
) -> anyhow::Result<Row> {
    let url: MqttUrl = broker.parse()?;
    let _subscriber = mqtt_device::discard_all(&url, "push/#").await?;
    let worker = loaded.stack.worker_at(broker, &[]).await;
    let mut producer = loaded.producer().connect().await?;
    let mut rounds = Rounds::default();
    for _ in 0..env.sizes.rounds {
        let figure = broadcasts::send_one(&mut producer, loaded.size).await?;
        let ceiling = raw_mqtt_client::measure(broker, loaded.size).await?;
        rounds.add(figure, ceiling);
    }
    ensure!(worker.stop().await.success(), "the worker did not stop well");
    let (figure, ceiling, ratio) = rounds.medians();
    Ok(Row {
        what: format!("broadcast over MQTT to {name}"),
        figure: Figure::new(figure, "devices/s"),
        ceiling: Some(Figure::new(ceiling, "messages/s")),
        ratio: Some(ratio),
        target: TARGET,
        how: format!(
            "{} devices, one worker, QoS 1, {} rounds; a subscriber takes all messages. Ceiling, \
             in turn: a program that only publishes as many, with the worker's runtime, over \
             {CONNECTIONS} connections with {WINDOW} in flight each",
            loaded.size, env.sizes.rounds
        ),
    })
}

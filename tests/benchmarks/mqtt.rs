//! A broadcast over MQTT, as a share of a raw client with as many connections and as many
//! messages in flight, on Mosquitto and on the broker of `pushctl standalone`. A subscriber takes
//! everything, so that the brokers really deliver.

use anyhow::{Context as _, ensure};
use push_mqtt::MqttUrl;
use push_tests::{free_port, service::Program};

use crate::{
    device, fanout,
    load::Rounds,
    raw_client::{self, CONNECTIONS, WINDOW},
    report::{Figure, Row, Target},
    world::{Crowd, World},
};

/// The share of the raw client that is wanted.
const TARGET: Target = Target::RatioAtLeast(0.80);

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let crowd = world.small().await?;
    let mosquitto = world.mqtt().await?;
    let on_mosquitto = measure(world, crowd, "Mosquitto", &mosquitto).await?;
    // Nothing else is asked of this one than to be a broker.
    let (mqtt, http, data) = (free_port()?, free_port()?, tempfile::tempdir()?);
    let data = data.path().to_str().context("a path that is no text")?;
    let (mqtt, http) = (mqtt.address(), http.address());
    let flags = ["standalone", "--data-dir", data, "--mqtt-listen", &mqtt, "--listen", &http];
    let embedded = Program::start_ready("pushctl", &flags).await;
    let url = format!("mqtt://{mqtt}");
    let on_embedded = measure(world, crowd, "the embedded broker", &url).await?;
    ensure!(embedded.stop().await.success(), "the embedded broker did not stop well");
    Ok(vec![on_mosquitto, on_embedded])
}

async fn measure(world: &World, crowd: &Crowd, name: &str, broker: &str) -> anyhow::Result<Row> {
    let url: MqttUrl = broker.parse()?;
    let _subscriber = device::take_all(&url, "push/#").await?;
    let worker = crowd.stack.worker_at(broker, &[]).await;
    let mut producer = crowd.producer().connect().await?;
    let mut rounds = Rounds::default();
    for _ in 0..world.sizes.rounds {
        let figure = fanout::one_broadcast(&mut producer, crowd.size).await?;
        let ceiling = raw_client::measure(broker, crowd.size).await?;
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
            crowd.size, world.sizes.rounds
        ),
    })
}

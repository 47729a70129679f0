//! A broadcast over MQTT, as a share of a raw client with as many connections and messages in
//! flight, on Mosquitto and on the broker of `pushctl standalone`. Every message is received, so that
//! the brokers deliver: on Mosquitto by one subscriber to everything; the embedded broker has no
//! such subscriptions, so there each device has a connection.

use anyhow::{anyhow, ensure};
use push_model::{app::AppKey, device::TargetFields, ids::ClientId};
use push_tests::stack::APP;

use crate::{
    ceiling::raw_mqtt_client::{self, CONNECTIONS, WINDOW},
    load::{broadcasts, embedded_broker::EmbeddedBroker, mqtt_device},
    measure::stats::Rounds,
    report::{Row, Target},
    setup::{Environment, LoadedApp, population},
};

/// The target share of the raw client's rate on Mosquitto.
const ON_MOSQUITTO: Target = Target::RatioAtLeast(0.90);
/// The same on the embedded broker.
const ON_EMBEDDED: Target = Target::RatioAtLeast(0.70);

/// Connected devices of the embedded broker: as many as descriptors allow on most machines.
const CONNECTED: usize = 9_000;
/// Descriptors of this program besides those of its devices.
const OTHER_FILES: u64 = 1024;

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.small_app().await?;
    let mosquitto = env.mqtt_url().await?;
    let subscriber = mqtt_device::discard_all(&mosquitto.parse()?, "push/#").await?;
    let on_mosquitto = measure(env, loaded, "Mosquitto", &mosquitto, ON_MOSQUITTO).await?;
    drop(subscriber);
    let limit = rlimit::increase_nofile_limit(CONNECTED as u64 + OTHER_FILES)?;
    ensure!(limit > CONNECTED as u64, "{CONNECTED} devices need more descriptors than {limit}");
    let loaded = env.load(CONNECTED, "mqtt").await?;
    let embedded = EmbeddedBroker::start(CONNECTED).await?;
    let devices = with_registrations(&loaded).await?.into_iter();
    let _devices = mqtt_device::discard_each(&embedded.devices.parse()?, APP, devices).await?;
    let on_embedded =
        measure(env, &loaded, "the embedded broker", &embedded.worker, ON_EMBEDDED).await?;
    Ok(vec![on_mosquitto, on_embedded])
}

/// The devices and their registrations, with which they log in.
async fn with_registrations(loaded: &LoadedApp) -> anyhow::Result<Vec<(String, String)>> {
    let index = loaded.index().await?;
    let devices: Vec<ClientId> = (0..loaded.size)
        .map(|number| population::client_id(number).parse())
        .collect::<Result<_, _>>()?;
    let found =
        index.targets(&AppKey::first(APP.parse()?), &devices, TargetFields::Address).await?;
    let each = found.into_iter().map(|target| {
        let target = target.map_err(|_| anyhow!("a device is missing"))?;
        Ok((target.client_id.to_string(), target.epoch.to_string()))
    });
    each.collect()
}

async fn measure(
    env: &Environment,
    loaded: &LoadedApp,
    name: &str,
    broker: &str,
    target: Target,
) -> anyhow::Result<Row> {
    let worker = loaded.stack.worker_at(broker, &[]).await;
    let mut producer = loaded.producer().connect().await?;
    let mut rounds = Rounds::default();
    for _ in 0..env.sizes.rounds {
        let figure = broadcasts::send_one(&mut producer, loaded.size).await?;
        let ceiling = raw_mqtt_client::measure(broker, loaded.size).await?;
        rounds.add(figure, ceiling);
    }
    ensure!(worker.stop().await.success(), "the worker did not stop well");
    Ok(Row {
        what: format!("broadcast over MQTT to {name}"),
        target,
        how: format!(
            "{} devices, one worker, QoS 1, {} rounds; all messages are received. Ceiling, \
             in turn: a program that only publishes as many, with the worker's runtime, over \
             {CONNECTIONS} connections with {WINDOW} in flight each",
            loaded.size, env.sizes.rounds
        ),
        ..rounds.row("devices/s", "messages/s")
    })
}

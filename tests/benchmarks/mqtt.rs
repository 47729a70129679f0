//! A broadcast over MQTT, as a share of a raw client with as many connections and as many
//! messages in flight, on Mosquitto and on the broker of `pushctl standalone`. A subscriber takes
//! everything, so that the brokers really deliver.

use std::{num::NonZeroU16, time::Duration};

use anyhow::{Context as _, bail, ensure};
use bytes::{Bytes, BytesMut};
use push_fanout_worker::transport::mqtt::{
    MqttUrl,
    handshake::{self, Stream, Terms},
};
use push_tests::{free_port, service::Program, stack::APP};
use rmqtt_codec::{
    types::{Publish, QoS},
    v5::{Connect, Packet, PublishAckReason, PublishProperties},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::codec::{Decoder, Encoder};

use crate::{
    crowd, device, fanout,
    load::Rounds,
    report::{Figure, Row, Target},
    world::{Crowd, World},
};

/// Connections of the raw client, and its messages in flight on each: as a worker by default.
const CONNECTIONS: usize = 4;
const WINDOW: u16 = 512;
/// As long as the payload of [`crate::load::broadcast`].
const PAYLOAD: usize = 260;
/// Encoded bytes that are written at once.
const HIGH_WATER: usize = 64 * 1024;
const EXPIRY: u32 = 3600;
const CONNECT: Duration = Duration::from_secs(30);

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let crowd = world.small().await?;
    let mosquitto = world.mqtt().await?;
    let on_mosquitto =
        measure(world, crowd, "Mosquitto", &mosquitto, Target::RatioAtLeast(0.80)).await?;
    // Nothing else is asked of this one than to be a broker.
    let (mqtt, http, data) = (free_port()?, free_port()?, tempfile::tempdir()?);
    let data = data.path().to_str().context("a path that is no text")?;
    let (mqtt, http) = (mqtt.address(), http.address());
    let flags = ["standalone", "--data-dir", data, "--mqtt-listen", &mqtt, "--listen", &http];
    let embedded = Program::start_ready("pushctl", &flags).await;
    let url = format!("mqtt://{mqtt}");
    let on_embedded = measure(world, crowd, "the embedded broker", &url, Target::None).await?;
    ensure!(embedded.stop().await.success(), "the embedded broker did not stop well");
    Ok(vec![on_mosquitto, on_embedded])
}

async fn measure(
    world: &World,
    crowd: &Crowd,
    name: &str,
    broker: &str,
    target: Target,
) -> anyhow::Result<Row> {
    let url: MqttUrl = broker.parse()?;
    let _subscriber = device::take_all(&url, "push/#").await?;
    let worker = crowd.stack.worker_at(broker, &[]).await;
    let mut producer = crowd.producer().connect().await?;
    let mut rounds = Rounds::default();
    for _ in 0..world.sizes.rounds {
        let figure = fanout::one_broadcast(&mut producer, crowd.size).await?;
        let ceiling = raw_publishes(&url, crowd.size).await?;
        rounds.add(figure, ceiling);
    }
    ensure!(worker.stop().await.success(), "the worker did not stop well");
    let (figure, ceiling, ratio) = rounds.medians();
    Ok(Row {
        what: format!("broadcast over MQTT to {name}"),
        figure: Figure::new(figure, "devices/s"),
        ceiling: Some(Figure::new(ceiling, "messages/s")),
        ratio: Some(ratio),
        target,
        how: format!(
            "{} devices, one worker, QoS 1, {} rounds; a subscriber takes all messages. Ceiling, \
             in turn: a loop that publishes as many, over {CONNECTIONS} connections with \
             {WINDOW} in flight each",
            crowd.size, world.sizes.rounds
        ),
    })
}

/// Messages a second.
async fn raw_publishes(url: &MqttUrl, count: usize) -> anyhow::Result<f64> {
    let mut sessions = Vec::new();
    for number in 0..CONNECTIONS {
        let wanted = Connect::default().client_id(format!("bench-raw-{number}"));
        sessions.push(handshake::connect(url, CONNECT, wanted).await?);
    }
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, (stream, terms)) in sessions.into_iter().enumerate() {
        tasks.spawn(publish_some(stream, terms, number, count));
    }
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        anyhow::Ok(())
    };
    timeout(fanout::BROADCAST, all).await.context("the raw client is not done in time")??;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// Publishes to every [`CONNECTIONS`]th device.
async fn publish_some(
    stream: Box<dyn Stream>,
    mut terms: Terms,
    first: usize,
    count: usize,
) -> anyhow::Result<()> {
    let window = terms.receive_max.get().min(WINDOW);
    let mut free: Vec<NonZeroU16> = (1..=window).filter_map(NonZeroU16::new).collect();
    let payload = Bytes::from(vec![b'x'; PAYLOAD]);
    let mut output = BytesMut::with_capacity(2 * HIGH_WATER);
    let mut input = std::mem::take(&mut terms.input);
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut numbers = (first..count).step_by(CONNECTIONS).peekable();
    while numbers.peek().is_some() || free.len() < usize::from(window) {
        while output.len() < HIGH_WATER && !free.is_empty() {
            let Some(number) = numbers.next() else { break };
            let publish = Publish {
                dup: false,
                retain: false,
                qos: QoS::AtLeastOnce,
                topic: format!("push/{APP}/{}", crowd::client_id(number)).into(),
                packet_id: free.pop(),
                payload: payload.clone(),
                properties: Some(PublishProperties {
                    message_expiry_interval: std::num::NonZeroU32::new(EXPIRY),
                    ..PublishProperties::default()
                }),
            };
            terms.codec.encode(Packet::Publish(Box::new(publish)), &mut output)?;
        }
        input.reserve(16 * 1024);
        tokio::select! {
            read = reader.read_buf(&mut input) => {
                ensure!(read? > 0, "the broker closed the connection");
                while let Some((packet, _)) = terms.codec.decode(&mut input)? {
                    match packet {
                        Packet::PublishAck(ack) => {
                            ensure!(ack.reason_code == PublishAckReason::Success, "{ack:?}");
                            free.push(ack.packet_id);
                        }
                        Packet::Disconnect(_) => bail!("the broker ended the session"),
                        _ => {}
                    }
                }
            }
            written = writer.write_buf(&mut output), if !output.is_empty() => {
                written?;
            }
        }
    }
    Ok(())
}

//! The ceiling of a broadcast over MQTT: a program that publishes as many messages, and does
//! nothing else.
//!
//! It runs as a process of its own with the runtime of `fanout-worker`: a client that shared its
//! threads with the subscriber would save wake-ups of threads that no worker can save.

use std::{num::NonZeroU16, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail, ensure};
use bytes::{Bytes, BytesMut};
use clap::Args;
use push_boot::runtime;
use push_mqtt::{
    MqttUrl,
    handshake::{self, SessionParams, Stream},
};
use push_tests::stack::APP;
use rmqtt_codec::{
    types::{Publish, QoS},
    v5::{Connect, Packet, PublishAckReason, PublishProperties},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::codec::{Decoder, Encoder};

use crate::{load::broadcasts, setup::population};

/// Its connections, and the messages in flight on each: a worker's defaults.
pub(crate) const CONNECTIONS: usize = 4;
pub(crate) const WINDOW: u16 = 512;
/// As long as the payload of [`crate::load::pushes::broadcast`], in bytes.
const PAYLOAD: usize = 260;
/// Messages are encoded ahead until so many bytes wait to be written.
const HIGH_WATER: usize = 64 * 1024;
const EXPIRY: u32 = 3600;
const CONNECT: Duration = Duration::from_secs(30);

/// The hidden flags of the program.
#[derive(Debug, Args)]
pub(crate) struct RawMqttClient {
    /// Be the raw client that a broadcast over MQTT is compared with
    #[arg(long, hide = true, requires = "raw_messages")]
    raw_client: Option<MqttUrl>,
    /// Number of messages that it publishes
    #[arg(long, hide = true)]
    raw_messages: Option<usize>,
}

/// Starts the program and returns the messages a second that it prints.
pub(crate) async fn measure(broker: &str, messages: usize) -> anyhow::Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--raw-client", broker, "--raw-messages", &messages.to_string()])
        .kill_on_drop(true)
        .output();
    let output =
        timeout(broadcasts::TIMEOUT, output).await.context("the raw client is too slow")??;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the raw client: {}", String::from_utf8_lossy(&output.stderr));
    text.trim().parse().with_context(|| format!("the raw client said {text:?}"))
}

impl RawMqttClient {
    /// Runs the program if the flags ask for it.
    pub(crate) fn run(&self) -> Option<anyhow::Result<ExitCode>> {
        let (broker, messages) = self.raw_client.as_ref().zip(self.raw_messages)?;
        Some(publish_all(broker, messages))
    }
}

fn publish_all(broker: &MqttUrl, messages: usize) -> anyhow::Result<ExitCode> {
    let rate =
        runtime::start(runtime::default_threads())?.block_on(measure_rate(broker, messages))?;
    println!("{rate}");
    Ok(ExitCode::SUCCESS)
}

/// Messages a second.
async fn measure_rate(url: &MqttUrl, count: usize) -> anyhow::Result<f64> {
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
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// Publishes to every [`CONNECTIONS`]th device, from `first`.
async fn publish_some(
    stream: Box<dyn Stream>,
    mut terms: SessionParams,
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
                topic: format!("push/{APP}/{}", population::client_id(number)).into(),
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

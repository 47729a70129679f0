//! MQTT devices: one whose messages are returned, and one that discards everything it receives.

use std::{num::NonZeroU16, time::Duration};

use anyhow::{Context as _, ensure};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, TryStreamExt as _};
use push_mqtt::{
    MqttUrl,
    handshake::{self, SessionParams, Stream},
};
use rmqtt_codec::{
    types::QoS,
    v5::{Connect, Packet, RetainHandling, Subscribe, SubscriptionOptions},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    time::timeout,
};
use tokio_util::{
    codec::{Decoder, Encoder},
    task::AbortOnDropHandle,
};

/// The deadline of connecting and of subscribing.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Received messages that wait for [`MqttDevice::next`].
const RECEIVED_AHEAD: usize = 64;
/// The read buffer of a device that discards, in bytes.
const DISCARD_BUFFER: usize = 256 * 1024;
/// The read buffer of each device, where there are many, in bytes.
const DEVICE_BUFFER: usize = 2 * 1024;
/// The most devices that connect at the same time.
const CONNECT_AT_ONCE: usize = 64;

/// A session with one subscription of QoS 0, so that receiving costs the machine little.
struct Session {
    stream: Box<dyn Stream>,
    terms: SessionParams,
}

/// A device whose messages are returned. A task keeps its session alive between calls of
/// [`Self::next`].
pub(crate) struct MqttDevice {
    messages: mpsc::Receiver<Bytes>,
    _session: AbortOnDropHandle<()>,
}

impl MqttDevice {
    pub(crate) async fn listen(url: &MqttUrl, topic: &str) -> anyhow::Result<Self> {
        let mut session = Session::open(url, &push_tests::namespace(), topic).await?;
        let (sender, messages) = mpsc::channel(RECEIVED_AHEAD);
        let task = tokio::spawn(async move {
            // Also while messages arrive: QoS 0 is not acknowledged, so the pings are all that the
            // broker receives from this session.
            let mut pings = tokio::time::interval(session.terms.ping_after);
            loop {
                tokio::select! {
                    packet = session.packet() => match packet {
                        Ok(Packet::Publish(message)) => {
                            if sender.send(message.payload).await.is_err() { return }
                        }
                        Ok(_) => {}
                        Err(_) => return,
                    },
                    _ = pings.tick() => if session.send(Packet::PingRequest).await.is_err() { return },
                }
            }
        });
        Ok(Self { messages, _session: AbortOnDropHandle::new(task) })
    }

    /// The payload of the next message.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Bytes> {
        self.messages.recv().await.context("the device's session has ended")
    }
}

/// Subscribes to a topic and discards what arrives, until the handle is dropped.
pub(crate) async fn discard_all(
    url: &MqttUrl,
    topic: &str,
) -> anyhow::Result<AbortOnDropHandle<()>> {
    let session = Session::open(url, &push_tests::namespace(), topic).await?;
    Ok(session.discard(DISCARD_BUFFER))
}

/// Connects as each of these devices of an app, with its password, for a broker that lets a device read its
/// own topic only, and discards what arrives, until the handles are dropped.
pub(crate) async fn discard_each(
    url: &MqttUrl,
    app: &str,
    devices: impl Iterator<Item = (String, String)>,
) -> anyhow::Result<Vec<AbortOnDropHandle<()>>> {
    let connect = |(device, password): (String, String)| async move {
        let (id, topic) = (format!("{app}:{device}"), format!("push/{app}/{device}"));
        let url = url.clone().with_login(&id, &password);
        let session = Session::open(&url, &id, &topic).await?;
        anyhow::Ok(session.discard(DEVICE_BUFFER))
    };
    futures::stream::iter(devices.map(connect))
        .buffer_unordered(CONNECT_AT_ONCE)
        .try_collect()
        .await
}

impl Session {
    /// Discards what arrives, in buffers of this size.
    fn discard(mut self, buffer: usize) -> AbortOnDropHandle<()> {
        let session = async move {
            let mut discarded = vec![0; buffer];
            let mut pings = tokio::time::interval(self.terms.ping_after);
            loop {
                tokio::select! {
                    read = self.stream.read(&mut discarded) => if !matches!(read, Ok(1..)) { return },
                    _ = pings.tick() => if self.send(Packet::PingRequest).await.is_err() { return },
                }
            }
        };
        AbortOnDropHandle::new(tokio::spawn(session))
    }

    async fn open(url: &MqttUrl, client_id: &str, topic: &str) -> anyhow::Result<Self> {
        let wanted = Connect::default().client_id(client_id.to_owned());
        let (stream, terms) = handshake::connect(url, CONNECT_TIMEOUT, wanted).await?;
        let mut session = Self { stream, terms };
        let options = SubscriptionOptions {
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::NoAtSubscribe,
        };
        let subscribe = Subscribe {
            packet_id: NonZeroU16::MIN,
            id: None,
            user_properties: Vec::new(),
            topic_filters: vec![(topic.to_owned().into(), options)],
        };
        session.send(Packet::Subscribe(subscribe)).await?;
        let acknowledged = async {
            while !matches!(session.packet().await?, Packet::SubscribeAck(_)) {}
            anyhow::Ok(())
        };
        timeout(CONNECT_TIMEOUT, acknowledged).await.context("no answer to SUBSCRIBE")??;
        Ok(session)
    }

    async fn packet(&mut self) -> anyhow::Result<Packet> {
        let Self { stream, terms } = self;
        loop {
            if let Some((packet, _)) = terms.codec.decode(&mut terms.input)? {
                return Ok(packet);
            }
            ensure!(stream.read_buf(&mut terms.input).await? > 0, "the broker hung up");
        }
    }

    async fn send(&mut self, packet: Packet) -> anyhow::Result<()> {
        let mut output = BytesMut::new();
        self.terms.codec.encode(packet, &mut output)?;
        self.stream.write_all_buf(&mut output).await?;
        Ok(self.stream.flush().await?)
    }
}

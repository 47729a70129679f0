//! A device that listens, and a subscriber that takes everything.

use std::{num::NonZeroU16, time::Duration};

use anyhow::{Context as _, ensure};
use bytes::{Bytes, BytesMut};
use push_mqtt::{
    MqttUrl,
    handshake::{self, Stream, Terms},
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

/// Connecting and subscribing take less.
const CONNECT: Duration = Duration::from_secs(30);
/// Messages that wait to be asked for.
const AHEAD: usize = 64;
/// Bytes that are taken at once.
const SINK: usize = 256 * 1024;

/// A session with one subscription, QoS 0: what it costs to take messages should not matter.
struct Session {
    stream: Box<dyn Stream>,
    terms: Terms,
}

/// A device whose messages are handed out. Its session lives also while nobody asks for one.
pub(crate) struct Device {
    messages: mpsc::Receiver<Bytes>,
    _session: AbortOnDropHandle<()>,
}

impl Device {
    pub(crate) async fn listen(url: &MqttUrl, topic: &str) -> anyhow::Result<Self> {
        let mut session = Session::open(url, topic).await?;
        let (sender, messages) = mpsc::channel(AHEAD);
        let task = tokio::spawn(async move {
            // Also while messages come: nothing else is sent that would tell the broker of us.
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

/// Takes every message of a topic, without a look at it, until the handle is dropped.
pub(crate) async fn take_all(url: &MqttUrl, topic: &str) -> anyhow::Result<AbortOnDropHandle<()>> {
    let mut session = Session::open(url, topic).await?;
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        let mut sink = vec![0; SINK];
        let mut pings = tokio::time::interval(session.terms.ping_after);
        loop {
            tokio::select! {
                read = session.stream.read(&mut sink) => if !matches!(read, Ok(1..)) { return },
                _ = pings.tick() => if session.send(Packet::PingRequest).await.is_err() { return },
            }
        }
    })))
}

impl Session {
    async fn open(url: &MqttUrl, topic: &str) -> anyhow::Result<Self> {
        let wanted = Connect::default().client_id(push_tests::namespace());
        let (stream, terms) = handshake::connect(url, CONNECT, wanted).await?;
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
        timeout(CONNECT, acknowledged).await.context("no answer to SUBSCRIBE")??;
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

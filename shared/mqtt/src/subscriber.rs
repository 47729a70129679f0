//! An MQTT 5 device: keeps a session at the broker and returns the messages that it receives.
//!
//! The session is persistent, so messages that are sent while the device is offline reach it when
//! it connects again. A message is acknowledged when the next one is asked for: a caller that stops
//! in between receives it again.

use std::{collections::VecDeque, num::NonZeroU16, time::Duration};

use bytes::{Bytes, BytesMut};
use push_model::{
    ids::{AppId, ClientId},
    mqtt::MqttDevice,
};
use rmqtt_codec::{
    error::{DecodeError, EncodeError},
    types::{Publish, QoS},
    v5::{
        Codec, Connect, Disconnect, DisconnectReasonCode, Packet, PublishAck, RetainHandling,
        Subscribe, SubscribeAckReason, SubscriptionOptions,
    },
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::codec::{Decoder as _, Encoder as _};

use crate::{
    MqttUrl,
    handshake::{self, ConnectError, SessionParams, Stream},
};

/// The time limit for connecting, and for each answer of the broker.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most messages that the broker may send before the first of them is acknowledged.
const RECEIVE_MAXIMUM: u16 = 32;

/// The packet id of the SUBSCRIBE, the only packet for which this side chooses one.
const SUBSCRIBE_ID: NonZeroU16 = NonZeroU16::MIN;

/// The reason why a device does not receive.
#[derive(Debug, thiserror::Error)]
pub enum SubscriberError {
    /// No session could be opened.
    #[error("cannot connect to the MQTT broker {broker}")]
    Connect {
        /// The broker.
        broker: MqttUrl,
        /// The reason.
        #[source]
        source: ConnectError,
    },
    /// The broker does not let this device listen.
    #[error("the broker refused the subscription: {0:?}")]
    Refused(SubscribeAckReason),
    /// The session ended, for example because the same device connected elsewhere.
    #[error("the broker ended the session: {0:?}")]
    Ended(DisconnectReasonCode),
    /// The connection was closed.
    #[error("the broker closed the connection")]
    Closed,
    /// The connection is open, but the broker does not answer.
    #[error("no answer from the broker for {TIMEOUT:?}")]
    Silent,
    /// The connection broke.
    #[error("the connection to the broker broke")]
    Io(#[from] std::io::Error),
    /// The broker does not speak MQTT 5.
    #[error("the broker sent what is not MQTT 5")]
    Decode(#[from] DecodeError),
    /// A packet is too large. The bounds of App ID and Client ID rule this out.
    #[error("a packet is too large")]
    Encode(#[from] EncodeError),
}

/// A device that listens.
pub struct Subscriber {
    stream: Box<dyn Stream>,
    codec: Codec,
    input: BytesMut,
    ping_after: Duration,
    /// Messages that arrived before SUBACK, at most [`RECEIVE_MAXIMUM`].
    queued: VecDeque<Publish>,
    /// The last message that was returned, to be acknowledged before the next one.
    unacknowledged: Option<NonZeroU16>,
    resumed: bool,
}

impl Subscriber {
    /// Connects as this device and subscribes to its topic. The broker keeps the session for
    /// `keep` after the connection ends.
    ///
    /// # Errors
    /// If the broker cannot be reached, or refuses the session or the subscription.
    pub async fn connect(
        broker: &MqttUrl,
        app: &AppId,
        client: &ClientId,
        keep: Duration,
    ) -> Result<Self, SubscriberError> {
        let device = MqttDevice { app: app.clone(), client: client.clone() };
        let wanted = Connect {
            clean_start: false,
            session_expiry_interval_secs: u32::try_from(keep.as_secs()).unwrap_or(u32::MAX),
            ..Connect::default()
        }
        .receive_max(RECEIVE_MAXIMUM)
        .client_id(device.to_string());
        let (stream, terms) = handshake::connect(broker, TIMEOUT, wanted)
            .await
            .map_err(|source| SubscriberError::Connect { broker: broker.clone(), source })?;
        let SessionParams { codec, input, ping_after, session_present, .. } = terms;
        let mut subscriber = Self {
            stream,
            codec,
            input,
            ping_after,
            queued: VecDeque::new(),
            unacknowledged: None,
            resumed: session_present,
        };
        subscriber.subscribe(device.topic()).await?;
        Ok(subscriber)
    }

    /// Returns true if the broker had kept a session from an earlier connection.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Acknowledges the last message and returns the payload of the next one.
    ///
    /// # Errors
    /// If the session ends. The caller can connect again to resume it.
    pub async fn next(&mut self) -> Result<Bytes, SubscriberError> {
        self.acknowledge().await?;
        let message = match self.queued.pop_front() {
            Some(message) => message,
            None => loop {
                if let Packet::Publish(message) = self.packet_or_ping().await? {
                    break *message;
                }
            },
        };
        self.unacknowledged = message.packet_id;
        Ok(message.payload)
    }

    /// Acknowledges the last message and disconnects; the broker keeps the session.
    pub async fn close(mut self) {
        let disconnect = async {
            self.acknowledge().await?;
            let packet = Disconnect::new(DisconnectReasonCode::NormalDisconnection);
            self.send(Packet::Disconnect(packet)).await?;
            self.stream.shutdown().await.map_err(SubscriberError::from)
        };
        // On failure the broker notices the closed connection instead.
        let _ = tokio::time::timeout(TIMEOUT, disconnect).await;
    }

    async fn subscribe(&mut self, topic: String) -> Result<(), SubscriberError> {
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::NoAtSubscribe,
        };
        let subscribe = Subscribe {
            packet_id: SUBSCRIBE_ID,
            id: None,
            user_properties: Vec::new(),
            topic_filters: vec![(topic.into(), options)],
        };
        self.send(Packet::Subscribe(subscribe)).await?;
        let answer = tokio::time::timeout(TIMEOUT, self.subscribed()).await;
        match answer.map_err(|_| SubscriberError::Silent)?? {
            SubscribeAckReason::GrantedQos1 | SubscribeAckReason::GrantedQos2 => Ok(()),
            reason => Err(SubscriberError::Refused(reason)),
        }
    }

    /// Waits for SUBACK. Messages of a resumed session may come before it.
    async fn subscribed(&mut self) -> Result<SubscribeAckReason, SubscriberError> {
        loop {
            match self.packet().await? {
                Packet::Publish(message) => self.queued.push_back(*message),
                Packet::SubscribeAck(ack) => {
                    return ack.status.first().copied().ok_or(SubscriberError::Closed);
                }
                _ => {}
            }
        }
    }

    async fn acknowledge(&mut self) -> Result<(), SubscriberError> {
        let Some(packet_id) = self.unacknowledged.take() else { return Ok(()) };
        self.send(Packet::PublishAck(PublishAck { packet_id, ..PublishAck::default() })).await
    }

    /// Returns the next packet. Waits without a time limit while the broker answers pings.
    async fn packet_or_ping(&mut self) -> Result<Packet, SubscriberError> {
        if let Ok(packet) = tokio::time::timeout(self.ping_after, self.packet()).await {
            return packet;
        }
        self.send(Packet::PingRequest).await?;
        let packet = tokio::time::timeout(TIMEOUT, self.packet()).await;
        packet.map_err(|_| SubscriberError::Silent)?
    }

    async fn packet(&mut self) -> Result<Packet, SubscriberError> {
        loop {
            match self.codec.decode(&mut self.input)? {
                Some((Packet::Disconnect(d), _)) => {
                    return Err(SubscriberError::Ended(d.reason_code));
                }
                Some((packet, _)) => return Ok(packet),
                None if self.stream.read_buf(&mut self.input).await? == 0 => {
                    return Err(SubscriberError::Closed);
                }
                None => {}
            }
        }
    }

    async fn send(&mut self, packet: Packet) -> Result<(), SubscriberError> {
        let mut output = BytesMut::new();
        self.codec.encode(packet, &mut output)?;
        self.stream.write_all_buf(&mut output).await?;
        Ok(self.stream.flush().await?)
    }
}

impl std::fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriber").field("resumed", &self.resumed).finish_non_exhaustive()
    }
}

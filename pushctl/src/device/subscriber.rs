//! An MQTT 5 device: keeps a session at the broker and hands out what it receives.
//!
//! The session is persistent, so what is sent while the device is away reaches it when it comes
//! back. A message is acknowledged when the next one is asked for: whoever stops in between gets
//! it again.

use std::{collections::VecDeque, num::NonZeroU16, time::Duration};

use bytes::{Bytes, BytesMut};
use push_model::ids::{AppId, ClientId};
use push_mqtt::{
    MqttUrl,
    handshake::{self, ConnectError, Stream, Terms},
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

/// How long connecting, and each answer of the broker, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Messages that the broker sends ahead of their acknowledgement.
const AHEAD: u16 = 32;

/// The only packet that needs an identifier of ours is SUBSCRIBE.
const SUBSCRIBE_ID: NonZeroU16 = NonZeroU16::MIN;

/// Why a device does not receive.
#[derive(Debug, thiserror::Error)]
pub enum SubscriberError {
    /// There is no session.
    #[error("cannot connect to the MQTT broker {broker}")]
    Connect {
        /// The broker.
        broker: MqttUrl,
        /// Why not.
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
    /// The broker is there and does not answer.
    #[error("no answer from the broker for {PATIENCE:?}")]
    Silent,
    /// The connection broke.
    #[error("the connection to the broker broke")]
    Io(#[from] std::io::Error),
    /// It is no MQTT 5 broker.
    #[error("the broker sent what is not MQTT 5")]
    Decode(#[from] DecodeError),
    /// Ids are too short for this to happen.
    #[error("a packet is too large")]
    Encode(#[from] EncodeError),
}

/// A device that listens.
pub struct Subscriber {
    stream: Box<dyn Stream>,
    codec: Codec,
    input: BytesMut,
    ping_after: Duration,
    /// Messages that came before it was their turn; [`AHEAD`] bounds them.
    early: VecDeque<Publish>,
    /// To be acknowledged before the next message is handed out.
    received: Option<NonZeroU16>,
    resumed: bool,
}

impl Subscriber {
    /// Connects as this device and subscribes to its topic. The broker keeps the session for
    /// `keep` after the connection ends.
    ///
    /// # Errors
    /// If the broker is away, or refuses the session or the subscription.
    pub async fn connect(
        broker: &MqttUrl,
        app: &AppId,
        client: &ClientId,
        keep: Duration,
    ) -> Result<Self, SubscriberError> {
        // Client ids are unique within an app only, and MQTT ids within the broker; an App ID
        // has no slash, so the two cannot run into each other.
        let wanted = Connect {
            clean_start: false,
            session_expiry_interval_secs: u32::try_from(keep.as_secs()).unwrap_or(u32::MAX),
            ..Connect::default()
        }
        .receive_max(AHEAD)
        .client_id(format!("{app}/{client}"));
        let (stream, terms) = handshake::connect(broker, PATIENCE, wanted)
            .await
            .map_err(|source| SubscriberError::Connect { broker: broker.clone(), source })?;
        let Terms { codec, input, ping_after, session_present, .. } = terms;
        let mut subscriber = Self {
            stream,
            codec,
            input,
            ping_after,
            early: VecDeque::new(),
            received: None,
            resumed: session_present,
        };
        subscriber.subscribe(format!("push/{app}/{client}")).await?;
        Ok(subscriber)
    }

    /// Whether the broker had kept a session from an earlier connection.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// The next message's payload; the one before it is acknowledged first.
    ///
    /// # Errors
    /// If the session ends. Connect again to go on with it.
    pub async fn next(&mut self) -> Result<Bytes, SubscriberError> {
        self.acknowledge().await?;
        let message = match self.early.pop_front() {
            Some(message) => message,
            None => loop {
                if let Packet::Publish(message) = self.packet_or_ping().await? {
                    break *message;
                }
            },
        };
        self.received = message.packet_id;
        Ok(message.payload)
    }

    /// Acknowledges what was handed out and leaves; the session stays at the broker.
    pub async fn close(mut self) {
        let goodbye = async {
            self.acknowledge().await?;
            let goodbye = Disconnect::new(DisconnectReasonCode::NormalDisconnection);
            self.send(Packet::Disconnect(goodbye)).await?;
            self.stream.shutdown().await.map_err(SubscriberError::from)
        };
        // The broker learns of the end either way.
        let _ = tokio::time::timeout(PATIENCE, goodbye).await;
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
        let answer = tokio::time::timeout(PATIENCE, self.subscribed()).await;
        match answer.map_err(|_| SubscriberError::Silent)?? {
            SubscribeAckReason::GrantedQos1 | SubscribeAckReason::GrantedQos2 => Ok(()),
            reason => Err(SubscriberError::Refused(reason)),
        }
    }

    /// Waits for the answer to SUBSCRIBE; what waited in a kept session may come before it.
    async fn subscribed(&mut self) -> Result<SubscribeAckReason, SubscriberError> {
        loop {
            match self.packet().await? {
                Packet::Publish(message) => self.early.push_back(*message),
                Packet::SubscribeAck(ack) => {
                    return ack.status.first().copied().ok_or(SubscriberError::Closed);
                }
                _ => {}
            }
        }
    }

    async fn acknowledge(&mut self) -> Result<(), SubscriberError> {
        let Some(packet_id) = self.received.take() else { return Ok(()) };
        self.send(Packet::PublishAck(PublishAck { packet_id, ..PublishAck::default() })).await
    }

    /// The next packet, however long it takes, as long as the broker answers pings.
    async fn packet_or_ping(&mut self) -> Result<Packet, SubscriberError> {
        if let Ok(packet) = tokio::time::timeout(self.ping_after, self.packet()).await {
            return packet;
        }
        self.send(Packet::PingRequest).await?;
        let packet = tokio::time::timeout(PATIENCE, self.packet()).await;
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

//! Packets from a client, in one form for both versions of MQTT.

use std::{
    fmt,
    num::{NonZeroU16, NonZeroU32},
    time::Duration,
};

use bytes::Bytes;
use bytestring::ByteString;
use rmqtt_codec::{
    types::{Publish, QoS},
    v3, v5,
};

/// A packet from a client.
#[derive(Debug)]
pub(crate) enum Packet {
    Connect(Box<Connect>),
    Publish(Box<Publish>),
    Acknowledge(NonZeroU16),
    Subscribe {
        id: NonZeroU16,
        filters: Vec<(ByteString, QoS)>,
        has_identifier: bool,
    },
    Unsubscribe {
        id: NonZeroU16,
        filters: Vec<ByteString>,
    },
    Ping,
    /// The end of the connection, with a new session expiry if MQTT 5 gives one.
    Disconnect {
        keep: Option<Duration>,
    },
    /// A packet that no client may send at this point.
    Unexpected,
}

/// CONNECT of either version. `Debug` leaves the password out.
pub(crate) struct Connect {
    pub(crate) client_id: ByteString,
    pub(crate) user: Option<ByteString>,
    pub(crate) password: Option<Bytes>,
    /// True if the client begins with an empty session.
    pub(crate) clean: bool,
    /// The time for which the session is kept offline; `None` if the version cannot say it.
    pub(crate) keep: Option<Duration>,
    /// The longest silence of the client; zero if it promises none.
    pub(crate) keep_alive: Duration,
    /// The most unacknowledged messages that the client takes.
    pub(crate) receive_max: Option<NonZeroU16>,
    /// The largest packet that the client takes, in bytes.
    pub(crate) max_packet: Option<u32>,
    pub(crate) has_will: bool,
    /// True if the client asks for authentication other than by password.
    pub(crate) has_auth_method: bool,
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl From<v3::Packet> for Packet {
    fn from(packet: v3::Packet) -> Self {
        match packet {
            v3::Packet::Connect(connect) => Self::Connect(Box::new(Connect {
                client_id: connect.client_id,
                user: connect.username,
                password: connect.password,
                clean: connect.clean_session,
                keep: connect.clean_session.then_some(Duration::ZERO),
                keep_alive: Duration::from_secs(connect.keep_alive.into()),
                receive_max: None,
                max_packet: None,
                has_will: connect.last_will.is_some(),
                has_auth_method: false,
            })),
            v3::Packet::Publish(publish) => Self::Publish(publish),
            v3::Packet::PublishAck { packet_id } => Self::Acknowledge(packet_id),
            v3::Packet::Subscribe { packet_id, topic_filters } => {
                Self::Subscribe { id: packet_id, filters: topic_filters, has_identifier: false }
            }
            v3::Packet::Unsubscribe { packet_id, topic_filters } => {
                Self::Unsubscribe { id: packet_id, filters: topic_filters }
            }
            v3::Packet::PingRequest => Self::Ping,
            v3::Packet::Disconnect => Self::Disconnect { keep: None },
            _ => Self::Unexpected,
        }
    }
}

impl From<v5::Packet> for Packet {
    fn from(packet: v5::Packet) -> Self {
        match packet {
            v5::Packet::Connect(connect) => Self::Connect(Box::new(Connect {
                client_id: connect.client_id,
                user: connect.username,
                password: connect.password,
                clean: connect.clean_start,
                keep: Some(Duration::from_secs(connect.session_expiry_interval_secs.into())),
                keep_alive: Duration::from_secs(connect.keep_alive.into()),
                receive_max: connect.receive_max,
                max_packet: connect.max_packet_size.map(NonZeroU32::get),
                has_will: connect.last_will.is_some(),
                has_auth_method: connect.auth_method.is_some(),
            })),
            v5::Packet::Publish(publish) => Self::Publish(publish),
            v5::Packet::PublishAck(ack) => Self::Acknowledge(ack.packet_id),
            v5::Packet::Subscribe(subscribe) => Self::Subscribe {
                id: subscribe.packet_id,
                has_identifier: subscribe.id.is_some(),
                filters: subscribe
                    .topic_filters
                    .into_iter()
                    .map(|(filter, options)| (filter, options.qos))
                    .collect(),
            },
            v5::Packet::Unsubscribe(unsubscribe) => {
                Self::Unsubscribe { id: unsubscribe.packet_id, filters: unsubscribe.topic_filters }
            }
            v5::Packet::PingRequest => Self::Ping,
            v5::Packet::Disconnect(disconnect) => Self::Disconnect {
                keep: disconnect
                    .session_expiry_interval_secs
                    .map(|seconds| Duration::from_secs(seconds.into())),
            },
            _ => Self::Unexpected,
        }
    }
}

//! A broker whose answers a test scripts.

use std::{
    collections::BTreeMap,
    num::NonZeroU16,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{SinkExt as _, StreamExt as _};
use rmqtt_codec::{
    types::Publish,
    v5::{Codec, ConnectAck, Packet, PublishAck, PublishAckReason},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{codec::Framed, task::AbortOnDropHandle};

use push_mqtt::MqttUrl;

/// The broker's reaction to a PUBLISH.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Answers it, and everything that is held back on this connection before it.
    Answer(PublishAckReason),
    /// Answers it with success after this time.
    AnswerAfter(Duration),
    /// Answers it later.
    HoldBack,
    /// Never answers it.
    Ignore,
    /// Closes the connection.
    HangUp,
}

/// Observations of the broker.
#[derive(Debug, Default, Clone)]
pub(super) struct Seen {
    /// The number of PUBLISH packets for each topic.
    pub(super) topics: BTreeMap<String, usize>,
    /// The message expiry of the last PUBLISH.
    pub(super) expiry: Option<u32>,
    /// The most messages of one connection that were unanswered at a time.
    pub(super) most_unanswered: usize,
    pub(super) pings: usize,
}

pub(super) type Script = Arc<dyn Fn(&Publish, &Seen) -> Action + Send + Sync>;

/// The broker's announcements in CONNACK, and its reaction to pings.
#[derive(Debug, Clone, Copy)]
pub(super) struct BrokerConfig {
    pub(super) receive_max: u16,
    pub(super) max_packet_size: Option<u32>,
    pub(super) keep_alive: Option<u16>,
    pub(super) answers_pings: bool,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self { receive_max: 1000, max_packet_size: None, keep_alive: None, answers_pings: true }
    }
}

/// Listens on a free port until it is dropped.
pub(super) struct ScriptedBroker {
    pub(super) url: MqttUrl,
    seen: Arc<Mutex<Seen>>,
    _task: AbortOnDropHandle<()>,
}

impl ScriptedBroker {
    pub(super) async fn start(
        config: BrokerConfig,
        script: impl Fn(&Publish, &Seen) -> Action + Send + Sync + 'static,
    ) -> Self {
        Self::listen("127.0.0.1:0", config, script).await
    }

    /// Listens at the address of a URL.
    pub(super) async fn start_at(
        url: &MqttUrl,
        config: BrokerConfig,
        script: impl Fn(&Publish, &Seen) -> Action + Send + Sync + 'static,
    ) -> Self {
        Self::listen(url.to_string().trim_start_matches("mqtt://"), config, script).await
    }

    async fn listen(
        address: &str,
        config: BrokerConfig,
        script: impl Fn(&Publish, &Seen) -> Action + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let url = format!("mqtt://{}", listener.local_addr().unwrap()).parse().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (script, shared): (Script, _) = (Arc::new(script), seen.clone());
        let accept = async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, config, script.clone(), shared.clone()));
            }
        };
        Self { url, seen, _task: AbortOnDropHandle::new(tokio::spawn(accept)) }
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(
    stream: TcpStream,
    config: BrokerConfig,
    script: Script,
    seen: Arc<Mutex<Seen>>,
) -> Option<()> {
    let mut stream = Framed::new(stream, Codec::default());
    let mut unanswered: Vec<NonZeroU16> = Vec::new();
    while let Some(Ok((packet, _))) = stream.next().await {
        match packet {
            Packet::Connect(_) => {
                let hello = ConnectAck {
                    receive_max: NonZeroU16::new(config.receive_max)?,
                    max_packet_size: config.max_packet_size,
                    server_keepalive_sec: config.keep_alive,
                    ..ConnectAck::default()
                };
                stream.send(Packet::ConnectAck(Box::new(hello))).await.ok()?;
            }
            Packet::Publish(publish) => {
                unanswered.push(publish.packet_id?);
                let action = {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    *seen.topics.entry(publish.topic.to_string()).or_default() += 1;
                    seen.most_unanswered = seen.most_unanswered.max(unanswered.len());
                    let properties = publish.properties.as_ref()?;
                    seen.expiry = properties.message_expiry_interval.map(Into::into);
                    script(&publish, &seen)
                };
                let answer = match action {
                    Action::Answer(reason) => Some(reason),
                    Action::AnswerAfter(time) => {
                        tokio::time::sleep(time).await;
                        Some(PublishAckReason::Success)
                    }
                    Action::HoldBack => None,
                    Action::Ignore => {
                        unanswered.pop();
                        None
                    }
                    Action::HangUp => return None,
                };
                if let Some(reason_code) = answer {
                    for packet_id in unanswered.drain(..) {
                        let ack = PublishAck { packet_id, reason_code, ..PublishAck::default() };
                        stream.feed(Packet::PublishAck(ack)).await.ok()?;
                    }
                    stream.flush().await.ok()?;
                }
            }
            Packet::PingRequest => {
                seen.lock().unwrap_or_else(PoisonError::into_inner).pings += 1;
                if config.answers_pings {
                    stream.send(Packet::PingResponse).await.ok()?;
                }
            }
            _ => return None,
        }
    }
    Some(())
}

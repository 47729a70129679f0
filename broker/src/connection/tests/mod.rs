//! Whole connections of devices over a stream in memory. Every login is accepted unless its password is
//! [`WRONG`].

mod fuzz;

use std::num::NonZeroU32;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use push_credentials::DeviceIdentity;
use push_model::{
    app::AppKey, ids::ClientId, mqtt::MqttDevice, registration::RegistrationEpoch, secret::Secret,
    time::UnixMillis,
};
use rmqtt_codec::v5::{
    self, Codec, ConnectAckReason, Disconnect, DisconnectReasonCode, Packet as Sent,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::{
    codec::{Decoder as _, Encoder as _},
    sync::CancellationToken,
    task::TaskTracker,
};

use super::*;
use crate::{
    admission::{Admission, AdmissionLimits},
    authentication::{DeviceAuthenticator, Login, LoginRefusal, WorkerPassword},
    sessions::{SessionLimits, Sessions},
};

const WRONG: &str = "wrong";

/// The longest connection of these tests: longer than every time-out of the broker.
const DEADLINE: Duration = Duration::from_secs(60);

const ADMITTED: AdmissionLimits = AdmissionLimits {
    connections: 10,
    of_address: 10,
    unauthenticated: 10,
    unauthenticated_of_address: 10,
};

struct AnyDevice;

#[async_trait]
impl DeviceAuthenticator for AnyDevice {
    async fn authenticate(
        &self,
        login: Login<'_>,
        _: UnixMillis,
    ) -> Result<DeviceIdentity, LoginRefusal> {
        let device: Result<MqttDevice, _> = login.client_id.parse();
        match device {
            Ok(MqttDevice { app, client }) if login.password != WRONG.as_bytes() => {
                let (expires_at, kid) = (UnixMillis::MAX, "key".into());
                let registration = RegistrationEpoch::default();
                Ok(DeviceIdentity { app, client, generation: 0, registration, expires_at, kid })
            }
            _ => Err(LoginRefusal::BadCredentials),
        }
    }

    async fn find_removed(
        &self,
        _: &AppKey,
        _: &[(ClientId, RegistrationEpoch)],
        _: &mut (dyn FnMut(usize) + Send),
    ) {
    }

    async fn has_app(&self, _: &AppKey) -> bool {
        true
    }

    fn accepts_key(&self, _: &str, _: UnixMillis) -> bool {
        true
    }
}

/// A broker without listeners.
struct TestBroker {
    context: Arc<Context>,
    admission: Arc<Admission>,
}

impl TestBroker {
    fn new() -> Self {
        let limits = SessionLimits { messages: 10, bytes: 1 << 20 };
        let context = Context {
            sessions: Sessions::new(10, 10, 1 << 20, limits),
            devices: Arc::new(AnyDevice),
            worker: WorkerPassword::new(&Secret::generate()),
            longest_keep: Duration::from_hours(1),
            stop: CancellationToken::new(),
            connections: TaskTracker::new(),
        };
        Self { context: Arc::new(context), admission: Admission::new(ADMITTED) }
    }

    /// Returns all answers to a client that sends only these bytes, until its connection ends.
    async fn answer(&self, sent: &[u8]) -> Vec<u8> {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(sent).await.unwrap();
        far.shutdown().await.unwrap();
        let peer = SocketAddr::from(([10, 0, 0, 1], 1));
        let permit = self.admission.admit(peer.ip()).unwrap();
        let opened = Opened { peer, at: Instant::now(), permit, door: Door::Devices };
        timeout(DEADLINE, serve(near, &opened, self.context.clone())).await.unwrap();
        drop(opened);
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).await.unwrap();
        answer
    }

    /// Returns the answers to packets of MQTT 5.
    async fn packets(&self, sent: impl IntoIterator<Item = Sent>) -> Vec<Sent> {
        let (mut codec, mut bytes) = (Codec::new(u32::MAX, u32::MAX), BytesMut::new());
        for packet in sent {
            codec.encode(packet, &mut bytes).unwrap();
        }
        let mut answer = BytesMut::from(&self.answer(&bytes).await[..]);
        std::iter::from_fn(|| codec.decode(&mut answer).unwrap())
            .map(|(packet, _)| packet)
            .collect()
    }

    fn sessions(&self) -> usize {
        self.context.sessions.usage().0
    }
}

fn connect(password: &str, expiry: u32, max_packet: Option<u32>) -> Sent {
    Sent::Connect(Box::new(v5::Connect {
        client_id: "a:d".into(),
        username: Some("a:d".into()),
        password: Some(Bytes::copy_from_slice(password.as_bytes())),
        session_expiry_interval_secs: expiry,
        max_packet_size: max_packet.and_then(NonZeroU32::new),
        ..v5::Connect::default()
    }))
}

/// Returns the code of the CONNACK, which comes first.
fn connack(answer: &[Sent]) -> Option<ConnectAckReason> {
    match answer.first()? {
        Sent::ConnectAck(ack) => Some(ack.reason_code),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_session_that_ends_with_its_connection_cannot_be_kept_when_it_disconnects() {
    for (expiry, sessions) in [(0, 0), (60, 1)] {
        let broker = TestBroker::new();
        let disconnect = Disconnect {
            session_expiry_interval_secs: Some(600),
            ..Disconnect::new(DisconnectReasonCode::NormalDisconnection)
        };
        let sent = [connect("", expiry, None), Sent::Disconnect(disconnect)];
        let answer = broker.packets(sent).await;
        assert_eq!(connack(&answer), Some(ConnectAckReason::Success));
        let ends: Vec<_> = answer[1..]
            .iter()
            .map(|packet| match packet {
                Sent::Disconnect(disconnect) => disconnect.reason_code,
                other => panic!("{other:?}"),
            })
            .collect();
        let refused = if expiry == 0 { &[DisconnectReasonCode::ProtocolError][..] } else { &[] };
        assert_eq!((&ends[..], broker.sessions()), (refused, sessions), "expiry {expiry}");
    }
}

#[tokio::test]
async fn a_client_that_takes_no_packet_large_enough_for_a_message_gets_no_session() {
    let broker = TestBroker::new();
    for too_small in [1, 20, 255] {
        let answer = broker.packets([connect("", 60, Some(too_small))]).await;
        let refused = matches!(connack(&answer), None | Some(ConnectAckReason::PacketTooLarge));
        assert!(refused && broker.sessions() == 0, "{too_small}: {answer:?}");
        assert!(too_small < 255 || !answer.is_empty(), "it is told why where that fits");
    }
    let answer = broker.packets([connect("", 60, Some(256))]).await;
    assert_eq!((connack(&answer), broker.sessions()), (Some(ConnectAckReason::Success), 1));
}

#[tokio::test]
async fn wrong_logins_of_an_address_are_left_unanswered_while_right_ones_are_served() {
    let broker = TestBroker::new();
    let mut answered = 0;
    while !broker.packets([connect(WRONG, 0, None)]).await.is_empty() {
        answered += 1;
        assert!(answered < 10_000);
    }
    assert!(answered >= 60, "{answered}");
    let right = broker.packets([connect("", 0, None)]).await;
    assert_eq!(connack(&right), Some(ConnectAckReason::Success));
}

//! The time limits of a session, over an in-memory connection with a paused clock.

use std::{num::NonZeroU16, ops::Range, time::Duration};

use bytes::BytesMut;
use futures::{SinkExt as _, StreamExt as _};
use push_model::{ids::MessageId, ledger::RetryReason, registration::RegistrationEpoch};
use push_mqtt::handshake::SessionParams;
use rmqtt_codec::v5::{Codec, Packet, PublishAck};
use tokio::{
    io::DuplexStream,
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::{codec::Framed, sync::CancellationToken};

use super::{DEADLINE, NOW};
use crate::{
    Lifetime, Outcome, Sending,
    mqtt::{
        expiry::Expiry,
        session::{self, SessionEnd, SessionLimits},
        sub_batch::{Outcomes, Recipient, SubBatch},
    },
};

/// The time-out for acknowledgements.
const T: Duration = Duration::from_secs(8);

/// The time between two checks of a session.
pub(super) const CHECK: Duration = Duration::from_secs(1);

/// A device whose topic is its number.
pub(super) fn recipient(device: usize) -> Recipient {
    let registration = RegistrationEpoch(device as u64);
    Recipient { topic: device.to_string().into(), registration }
}

/// A session, and the broker's end of its connection.
pub(super) struct Wire {
    broker: Framed<DuplexStream, Codec>,
    sub_batches: mpsc::Sender<SubBatch>,
    stop: CancellationToken,
    session: JoinHandle<SessionEnd>,
}

impl Wire {
    pub(super) fn new(window: u16) -> Self {
        Self::with_buffer(window, 64 * 1024)
    }

    /// The bytes that fit between the session and a broker that does not read.
    fn with_buffer(window: u16, buffer: usize) -> Self {
        let (near, far) = tokio::io::duplex(buffer);
        let window = NonZeroU16::new(window).unwrap();
        let terms = SessionParams {
            codec: Codec::default(),
            input: BytesMut::new(),
            session_present: false,
            receive_max: window,
            ping_after: T,
            user_properties: Vec::new(),
        };
        let limits = SessionLimits { window, ack_timeout: T };
        let (sub_batches, mut taken) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let session =
            tokio::spawn(
                async move { session::run(near, terms, limits, &mut taken, &stopping).await },
            );
        Self { broker: Framed::new(far, Codec::default()), sub_batches, stop, session }
    }

    /// Hands these devices to the session.
    async fn send(&self, devices: Range<usize>) -> oneshot::Receiver<Outcomes> {
        self.send_within(devices, DEADLINE * 100).await
    }

    async fn send_within(
        &self,
        devices: Range<usize>,
        delivery_timeout: Duration,
    ) -> oneshot::Receiver<Outcomes> {
        self.send_if(devices, delivery_timeout, Sending::unrestricted(NOW)).await
    }

    pub(super) async fn send_if(
        &self,
        devices: Range<usize>,
        delivery_timeout: Duration,
        sending: Sending,
    ) -> oneshot::Receiver<Outcomes> {
        let (reply, answer) = oneshot::channel();
        let now = Instant::now();
        let sub_batch = SubBatch {
            message_id: MessageId::issue_named(&"app".parse().unwrap()),
            recipients: devices.clone().map(recipient).collect(),
            payload: b"{}".to_vec().into(),
            expiry: Expiry::new(Lifetime::Until(NOW.plus(DEADLINE * 100)), NOW, now),
            positions: devices.clone().collect(),
            sending,
            hand_over_until: now + delivery_timeout / 2,
            answer_until: now + delivery_timeout,
            reply,
        };
        self.sub_batches.send(sub_batch).await.unwrap();
        answer
    }

    /// Returns the next device that the broker gets a message for, and the packet identifier. Answers pings
    /// meanwhile.
    pub(super) async fn receive(&mut self) -> (usize, NonZeroU16) {
        loop {
            match self.broker.next().await.unwrap().unwrap().0 {
                Packet::Publish(publish) => {
                    return (publish.topic.parse().unwrap(), publish.packet_id.unwrap());
                }
                Packet::PingRequest => self.broker.send(Packet::PingResponse).await.unwrap(),
                other => panic!("{other:?}"),
            }
        }
    }

    pub(super) async fn acknowledge(&mut self, packet_id: NonZeroU16) {
        let ack = PublishAck { packet_id, ..PublishAck::default() };
        self.broker.send(Packet::PublishAck(ack)).await.unwrap();
    }

    /// Waits for the end of the session.
    async fn end(self) -> SessionEnd {
        let Self { broker, sub_batches, session, .. } = self;
        let end = timeout(DEADLINE, session).await.unwrap().unwrap();
        drop((broker, sub_batches));
        end
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_acknowledges_slowly_is_waited_for_as_long_as_it_does() {
    let mut wire = Wire::new(5);
    let answer = wire.send(0..20).await;
    for _ in 0..20 {
        let (_, id) = wire.receive().await;
        sleep(T - CHECK).await;
        wire.acknowledge(id).await;
    }
    assert_eq!(answer.await.unwrap(), [Some(Outcome::Sent); 20]);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_stops_to_acknowledge_loses_the_session_after_its_last_acknowledgement() {
    let mut wire = Wire::new(5);
    let answer = wire.send(0..20).await;
    let (_, first) = wire.receive().await;
    sleep(T - CHECK).await;
    wire.acknowledge(first).await;
    let last = Instant::now();
    assert!(matches!(wire.end().await, SessionEnd::Silent(_)));
    assert!((T..=T + CHECK * 2).contains(&last.elapsed()), "{:?}", last.elapsed());
    let answers = answer.await.unwrap();
    assert_eq!(answers[0], Some(Outcome::Sent));
    assert_eq!(answers[1..6], [Some(Outcome::Undecided); 5], "in flight");
    assert_eq!(answers[6..], [None; 14], "not handed over");
}

#[tokio::test(start_paused = true)]
async fn an_idle_time_before_a_message_does_not_count_for_its_acknowledgement() {
    let mut wire = Wire::new(5);
    // It is longer than the time-out, and ends just before the next ping.
    sleep(T - CHECK / 2).await;
    let answer = wire.send(0..1).await;
    let (_, id) = wire.receive().await;
    sleep(T - CHECK).await;
    wire.acknowledge(id).await;
    assert_eq!(answer.await.unwrap(), [Some(Outcome::Sent)]);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_never_acknowledged_is_undecided_alone_if_later_ones_are() {
    let mut wire = Wire::new(8);
    let mut stuck = wire.send(0..1).await;
    let (_, lost) = wire.receive().await;
    let start = Instant::now();
    // A later message is always in flight, and acknowledged before its time-out.
    let mut earlier = wire.send(1..2).await;
    let answers = loop {
        let later = wire.send(1..2).await;
        let (_, id) = wire.receive().await;
        let stuck = timeout(T / 2, &mut stuck).await;
        wire.acknowledge(id).await;
        assert_eq!(earlier.await.unwrap(), [Some(Outcome::Sent)]);
        earlier = later;
        assert!(start.elapsed() < T * 10, "still waited for");
        if let Ok(answers) = stuck {
            break answers.unwrap();
        }
    };
    assert_eq!(answers, [Some(Outcome::Undecided)]);
    let bounds = T * 3..=T * 4 + CHECK * 2;
    assert!(bounds.contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(!wire.session.is_finished(), "the others keep their connection");
    wire.acknowledge(lost).await;
    let (_, id) = wire.receive().await;
    wire.acknowledge(id).await;
    assert_eq!(earlier.await.unwrap(), [Some(Outcome::Sent)]);
}

#[tokio::test(start_paused = true)]
async fn a_session_with_lost_messages_is_renewed_when_nothing_is_in_flight() {
    let mut wire = Wire::new(8);
    let stuck = wire.send(0..2).await;
    wire.receive().await;
    let (_, second) = wire.receive().await;
    for _ in 0..6 {
        // Other acknowledgements keep the session alive.
        let other = wire.send(2..3).await;
        let (_, id) = wire.receive().await;
        sleep(T / 2).await;
        wire.acknowledge(id).await;
        other.await.unwrap();
    }
    wire.acknowledge(second).await;
    assert!(matches!(wire.end().await, SessionEnd::Lost));
    assert_eq!(stuck.await.unwrap(), [Some(Outcome::Undecided), Some(Outcome::Sent)]);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_ends_in_its_time_however_slow_the_broker_is() {
    let mut wire = Wire::new(8);
    let start = Instant::now();
    let answer = wire.send_within(0..20, T * 6).await;
    // One acknowledgement in less than T, in order: none is skipped, and the connection is alive.
    let broker = async {
        loop {
            let (_, id) = wire.receive().await;
            sleep(T - CHECK).await;
            wire.acknowledge(id).await;
        }
    };
    let answers = tokio::select! {
        answers = answer => answers.unwrap(),
        () = broker => unreachable!(),
    };
    assert!((T * 6..=T * 6 + CHECK * 2).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(matches!(wire.end().await, SessionEnd::Lost));
    let busy = Some(Outcome::Later(RetryReason::Busy, None));
    let of = |wanted| answers.iter().filter(|&&answer| answer == wanted).count();
    // Six were acknowledged, of which the first three were replaced by others.
    assert_eq!(of(Some(Outcome::Sent)), 6);
    assert_eq!(of(Some(Outcome::Undecided)), 5);
    assert_eq!(of(busy), 9);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_written_was_not_handed_over() {
    // Each message has 16 bytes, so the third one does not fit in whole.
    let wire = Wire::with_buffer(20, 40);
    let answer = wire.send(10..20).await;
    assert!(matches!(wire.end().await, SessionEnd::Silent(_)));
    let answers = answer.await.unwrap();
    assert_eq!(answers[..2], [Some(Outcome::Undecided); 2]);
    assert_eq!(answers[2..], [None; 8]);
}

#[tokio::test(start_paused = true)]
async fn what_was_acknowledged_before_a_connection_broke_is_sent_also_if_a_write_noticed_it() {
    // Either reading or writing may notice the end first.
    for _ in 0..30 {
        // More waits to be written than the broker reads.
        let mut wire = Wire::with_buffer(20, 40);
        let answer = wire.send(0..20).await;
        let (_, first) = wire.receive().await;
        sleep(CHECK).await;
        wire.acknowledge(first).await;
        drop(wire.broker);
        wire.session.await.unwrap();
        assert_eq!(answer.await.unwrap()[0], Some(Outcome::Sent));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_writes_nothing_more() {
    let mut wire = Wire::with_buffer(20, 40);
    let answer = wire.send(10..20).await;
    sleep(CHECK).await;
    wire.stop.cancel();
    let answers = answer.await.unwrap();
    assert_eq!(answers[..2], [Some(Outcome::Undecided); 2]);
    assert_eq!(answers[2..], [None; 8]);
    assert_eq!((wire.receive().await.0, wire.receive().await.0), (10, 11));
    assert!(wire.broker.next().await.is_none_or(|end| end.is_err()));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_acknowledges_is_alive_even_if_it_does_not_answer_a_ping() {
    let mut wire = Wire::new(4);
    let answer = wire.send(0..4).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(wire.receive().await.1);
    }
    // Nothing is sent meanwhile, so the session pings after T, and the ping is not answered.
    for id in ids {
        sleep(T - CHECK).await;
        wire.acknowledge(id).await;
    }
    assert_eq!(answer.await.unwrap(), [Some(Outcome::Sent); 4]);
    assert!(matches!(wire.end().await, SessionEnd::Silent(_)));
}

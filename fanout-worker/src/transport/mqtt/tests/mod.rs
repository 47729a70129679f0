//! The transport against a broker that misbehaves on purpose. What real brokers do is tested in
//! the suites of the tests package.

mod scripted;

use std::time::Duration;

use push_shared::{
    device::{Target, TransportKind},
    ids::MessageId,
    ledger::{FailReason, RetryReason},
    time::UnixMillis,
};
use rmqtt_codec::v5::PublishAckReason;
use tokio::time::Instant;

use self::scripted::{Act, Manners, ScriptedBroker};
use super::{MqttSettings, MqttTransport};
use crate::transport::{Outcome, Outgoing, Transport as _, TransportError};

const NOW: UnixMillis = UnixMillis(1_000_000);

/// Longer than any wait in these tests, however slow the machine is.
const DEADLINE: Duration = Duration::from_secs(60);

const SUCCESS: Act = Act::Answer(PublishAckReason::Success);

fn quick() -> MqttSettings {
    MqttSettings {
        connections: 1,
        ack_timeout: Duration::from_millis(500),
        patience: Duration::from_secs(5),
        reconnect_first: Duration::from_millis(10),
        ..MqttSettings::default()
    }
}

fn message(app: &str, lifetime: Duration) -> Outgoing {
    Outgoing {
        app_id: app.parse().unwrap(),
        message_id: MessageId::issue(&"app".parse().unwrap()),
        payload: b"{}".to_vec().into(),
        expires_at: NOW.plus(lifetime),
    }
}

fn targets(names: impl IntoIterator<Item = impl ToString>) -> Vec<Target> {
    let target = |name: String| Target {
        client_id: name.parse().unwrap(),
        transport: TransportKind::Mqtt,
        token: None,
    };
    names.into_iter().map(|name| target(name.to_string())).collect()
}

/// A transport with all its connections up.
async fn connected(broker: &ScriptedBroker, settings: MqttSettings) -> MqttTransport {
    let all = (1u64 << (settings.connections + 1)) - 1;
    let transport = MqttTransport::start(broker.url.clone(), settings);
    let mut up = transport.up.clone();
    tokio::time::timeout(DEADLINE, up.wait_for(|&up| up == all)).await.unwrap().unwrap();
    transport
}

#[tokio::test]
async fn what_a_broken_connection_had_acknowledged_is_not_sent_again() {
    // The 60th message of the first connection is its last.
    let broker = ScriptedBroker::start(Manners::default(), |_, seen| {
        match seen.topics.values().sum::<usize>() {
            50 => SUCCESS,
            1..60 => Act::HoldBack,
            60 => Act::HangUp,
            _ => SUCCESS,
        }
    })
    .await;
    let transport = connected(&broker, quick()).await;
    let outcomes = transport.deliver(&message("a", DEADLINE), &targets(0..100), NOW).await.unwrap();
    assert_eq!(outcomes, vec![Outcome::Sent; 100]);
    let seen = broker.seen();
    let times = |device: usize| seen.topics[&format!("push/a/{device}")];
    assert!((0..50).all(|device| times(device) == 1), "acknowledged before the break");
    assert!((50..60).all(|device| times(device) == 2), "seen by the broker, not acknowledged");
    assert!((60..100).all(|device| times(device) == 1), "never seen before the break");
}

#[tokio::test]
async fn no_more_messages_are_in_flight_than_the_broker_allows() {
    let manners = Manners { receive_max: 10, ..Manners::default() };
    let broker = ScriptedBroker::start(manners, |_, seen| {
        if seen.topics.len() % 10 == 0 { SUCCESS } else { Act::HoldBack }
    })
    .await;
    let transport = connected(&broker, quick()).await;
    transport.deliver(&message("a", DEADLINE), &targets(0..100), NOW).await.unwrap();
    assert_eq!(broker.seen().most_unanswered, 10);
}

#[tokio::test]
async fn each_reason_of_the_broker_has_its_outcome_and_devices_keep_their_order() {
    use PublishAckReason::{
        NoMatchingSubscribers, NotAuthorized, PayloadFormatInvalid, QuotaExceeded, Success,
        TopicNameInvalid, UnspecifiedError,
    };
    let reasons = [
        (Success, Outcome::Sent),
        (NoMatchingSubscribers, Outcome::Failed(FailReason::NoSubscriber)),
        (QuotaExceeded, Outcome::Later(RetryReason::Busy, None)),
        (UnspecifiedError, Outcome::Later(RetryReason::Error, None)),
        (NotAuthorized, Outcome::Failed(FailReason::Refused)),
        (TopicNameInvalid, Outcome::Failed(FailReason::Refused)),
        (PayloadFormatInvalid, Outcome::Failed(FailReason::Refused)),
    ];
    let broker = ScriptedBroker::start(Manners::default(), move |publish, _| {
        let device: usize = publish.topic.rsplit('/').next().unwrap().parse().unwrap();
        Act::Answer(reasons[device].0)
    })
    .await;
    let transport = connected(&broker, quick()).await;
    let all = targets(0..reasons.len());
    let outcomes = transport.deliver(&message("a", DEADLINE), &all, NOW).await.unwrap();
    assert_eq!(outcomes, reasons.map(|(_, outcome)| outcome));
}

#[tokio::test]
async fn a_broker_that_acknowledges_nothing_is_unavailable_in_bounded_time() {
    let broker = ScriptedBroker::start(Manners::default(), |_, _| Act::Ignore).await;
    let settings = MqttSettings { patience: Duration::from_millis(200), ..quick() };
    let transport = connected(&broker, settings).await;
    let (push, all) = (message("a", DEADLINE), targets(0..100));
    let delivered = transport.deliver(&push, &all, NOW);
    let answer = tokio::time::timeout(DEADLINE, delivered).await.unwrap();
    assert!(matches!(answer, Err(TransportError::Unavailable(_))), "{answer:?}");
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_waited_for_only_if_the_message_can_wait() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mqtt://{}", nobody.local_addr().unwrap()).parse().unwrap();
    drop(nobody);
    let patience = Duration::from_millis(300);
    let transport = MqttTransport::start(url, MqttSettings { patience, ..quick() });
    assert!(!transport.ready().await);
    for (lifetime, waits) in [(DEADLINE, true), (Duration::ZERO, false)] {
        let start = Instant::now();
        let answer = transport.deliver(&message("a", lifetime), &targets(["x"]), NOW).await;
        assert!(matches!(answer, Err(TransportError::Unavailable(_))), "{answer:?}");
        assert_eq!(start.elapsed() >= patience, waits);
    }
}

#[tokio::test]
async fn a_push_to_one_device_does_not_wait_for_a_broadcast_in_flight() {
    let broker = ScriptedBroker::start(Manners::default(), |publish, _| {
        if publish.topic.starts_with("push/small/") { SUCCESS } else { Act::Ignore }
    })
    .await;
    let transport = connected(&broker, MqttSettings { ack_timeout: DEADLINE, ..quick() }).await;
    let (broadcast, all) = (message("large", DEADLINE), targets(0..10_000));
    let stuck = transport.deliver(&broadcast, &all, NOW);
    let (push, one) = (message("small", DEADLINE), targets(["x"]));
    tokio::select! {
        biased;
        _ = stuck => panic!("nothing was acknowledged"),
        sent = transport.deliver(&push, &one, NOW) => {
            assert_eq!(sent.unwrap(), [Outcome::Sent]);
        }
    }
}

#[tokio::test]
async fn broadcasts_on_one_connection_take_turns() {
    let manners = Manners { receive_max: 64, ..Manners::default() };
    let broker = ScriptedBroker::start(manners, |_, _| SUCCESS).await;
    let transport = connected(&broker, quick()).await;
    let (large, all) = (message("large", DEADLINE), targets(0..10_000));
    let (medium, some) = (message("medium", DEADLINE), targets(0..100));
    tokio::select! {
        biased;
        _ = transport.deliver(&large, &all, NOW) => panic!("it kept the connection to itself"),
        sent = transport.deliver(&medium, &some, NOW) => {
            assert_eq!(sent.unwrap(), [Outcome::Sent; 100]);
        }
    }
}

#[tokio::test]
async fn what_expires_before_its_turn_is_not_sent() {
    let lifetime = Duration::from_millis(300);
    let manners = Manners { receive_max: 1, ..Manners::default() };
    // The first message is acknowledged when the others have no time left.
    let broker = ScriptedBroker::start(manners, move |_, _| Act::AnswerAfter(lifetime)).await;
    let transport = connected(&broker, MqttSettings { ack_timeout: DEADLINE, ..quick() }).await;
    let outcomes = transport.deliver(&message("a", lifetime), &targets(0..20), NOW).await.unwrap();
    assert_eq!(outcomes[0], Outcome::Sent);
    assert_eq!(outcomes[1..], [Outcome::Expired; 19]);
    assert_eq!(broker.seen().topics.len(), 1);
}

#[tokio::test]
async fn the_broker_is_told_how_long_the_message_lives() {
    let broker = ScriptedBroker::start(Manners::default(), |_, _| SUCCESS).await;
    let transport = connected(&broker, quick()).await;
    transport.deliver(&message("a", DEADLINE), &targets(["x"]), NOW).await.unwrap();
    // Whole seconds, rounded down, less what it took to get here.
    assert!(matches!(broker.seen().expiry, Some(1..60)), "{:?}", broker.seen().expiry);
    transport.deliver(&message("a", Duration::ZERO), &targets(["x"]), NOW).await.unwrap();
    assert_eq!(broker.seen().expiry, Some(1));
}

#[tokio::test]
async fn a_message_that_is_too_large_for_the_broker_is_refused_without_losing_the_session() {
    let manners = Manners { max_packet_size: Some(200), ..Manners::default() };
    let broker = ScriptedBroker::start(manners, |_, _| SUCCESS).await;
    let transport = connected(&broker, quick()).await;
    let large = Outgoing { payload: vec![b'x'; 200].into(), ..message("a", DEADLINE) };
    let refused = transport.deliver(&large, &targets(0..3), NOW).await.unwrap();
    assert_eq!(refused, [Outcome::Failed(FailReason::Refused); 3]);
    let sent = transport.deliver(&message("a", DEADLINE), &targets(0..3), NOW).await.unwrap();
    assert_eq!(sent, [Outcome::Sent; 3]);
}

#[tokio::test]
async fn an_idle_session_is_kept_by_pings_and_given_up_when_they_are_not_answered() {
    for answers_pings in [true, false] {
        let manners = Manners { keep_alive: Some(1), answers_pings, ..Manners::default() };
        let broker = ScriptedBroker::start(manners, |_, _| SUCCESS).await;
        let transport = connected(&broker, quick()).await;
        let mut up = transport.up.clone();
        let lost = async { up.wait_for(|&up| up != 0b11).await.map(|_| ()) };
        let waited = tokio::time::timeout(Duration::from_secs(3), lost).await;
        assert_eq!(waited.is_err(), answers_pings);
        assert!(broker.seen().pings > 0);
    }
}

#[tokio::test]
async fn closing_ends_deliveries_and_connections() {
    let broker = ScriptedBroker::start(Manners::default(), |_, _| Act::Ignore).await;
    let settings = MqttSettings { ack_timeout: DEADLINE, patience: DEADLINE, ..quick() };
    let transport = connected(&broker, settings).await;
    let (push, all) = (message("a", DEADLINE), targets(0..100));
    let close = async {
        let seen = async {
            while broker.seen().topics.len() < 100 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, seen).await.unwrap();
        transport.close().await;
    };
    let (answer, ()) = tokio::join!(transport.deliver(&push, &all, NOW), close);
    assert!(matches!(answer, Err(TransportError::Unavailable(_))), "{answer:?}");
    assert!(!transport.ready().await);
}

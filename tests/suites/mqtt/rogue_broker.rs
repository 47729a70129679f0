//! The MQTT transport with the rogue broker of the harness, which misbehaves as a test tells it.

use std::{
    num::NonZeroU16,
    time::{Duration, Instant},
};

use push_model::{
    app::AppKey,
    device::{Target, TransportKind},
    ids::MessageId,
    ledger::{FailReason, RetryReason},
    time::UnixMillis,
};
use push_tests::{
    RogueBroker, eventually,
    rogue_broker::{OnPublish, PublishAckReason},
};
use push_transports::{
    Lifetime, Outcome, Outgoing, Sending, Transport as _,
    mqtt::{MqttSettings, MqttTransport},
};

use crate::mqtt::DEADLINE;

#[tokio::test]
async fn it_counts_how_often_each_topic_receives_each_message() {
    let broker = RogueBroker::start().await;
    let transport = connected(&broker, MqttSettings::default()).await;
    let (once, twice) = (message(), message());
    send(&transport, &once, &["a", "b"]).await;
    send(&transport, &twice, &["a", "b"]).await;
    assert_eq!(send(&transport, &twice, &["b"]).await, [Outcome::Sent]);
    let topics = |counts: [u32; 2]| {
        [("push/app/a".to_owned(), counts[0]), ("push/app/b".to_owned(), counts[1])].into()
    };
    assert_eq!(broker.received_by_topic(&once.message_id.to_string()), topics([1, 1]));
    assert_eq!(broker.received_by_topic(&twice.message_id.to_string()), topics([1, 2]));
    assert_eq!((broker.received(), broker.acknowledged()), (5, 5));
    assert_eq!(broker.messages().len(), 2);
}

#[tokio::test]
async fn it_ignores_closes_on_and_answers_the_topics_that_it_is_told() {
    let broker = RogueBroker::start().await;
    let settings =
        MqttSettings { ack_timeout: Duration::from_millis(500), ..MqttSettings::default() };
    let transport = connected(&broker, settings).await;
    broker.behave(|b| {
        let busy = OnPublish::Answer(PublishAckReason::QuotaExceeded);
        let absent = OnPublish::Answer(PublishAckReason::NoMatchingSubscribers);
        b.topics.insert("push/app/ignored".to_owned(), OnPublish::Ignore);
        b.topics.insert("push/app/busy".to_owned(), busy);
        b.topics.insert("push/app/absent".to_owned(), absent);
        b.topics.insert("push/app/closed".to_owned(), OnPublish::Close);
    });
    let push = message();
    let outcomes = send(&transport, &push, &["ignored", "busy", "absent", "fine"]).await;
    let busy = Outcome::Later(RetryReason::Busy, None);
    let absent = Outcome::Failed(FailReason::NoSubscriber);
    assert_eq!(outcomes, [Outcome::Undecided, busy, absent, Outcome::Sent]);
    let outcomes = send(&transport, &push, &["before", "closed", "behind"]).await;
    assert_eq!(outcomes, [Outcome::Sent, Outcome::Undecided, Outcome::Undecided]);
    let received = broker.received_by_topic(&push.message_id.to_string());
    assert!(received.values().all(|&received| received == 1), "{received:?}");
    broker.behave(|b| b.topics.clear());
    eventually("the session is back", DEADLINE, async || {
        match send(&transport, &message(), &["closed"]).await[..] {
            [Outcome::Sent] => Ok(()),
            ref other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn it_acknowledges_no_faster_than_told_and_the_transport_waits_for_it() {
    let broker = RogueBroker::start().await;
    broker.behave(|b| b.acks_per_second = Some(100));
    // Nothing would be acknowledged in time if the time of each message counted.
    let settings =
        MqttSettings { ack_timeout: Duration::from_millis(1000), ..MqttSettings::default() };
    let transport = connected(&broker, settings).await;
    let start = Instant::now();
    let outcomes = send_to(&transport, &message(), 300).await;
    assert!(start.elapsed() > Duration::from_millis(2900), "{:?}", start.elapsed());
    assert_eq!(outcomes, [Outcome::Sent; 300]);
    assert_eq!((broker.received(), broker.sessions_so_far()), (300, 5));
}

#[tokio::test]
async fn what_it_withheld_is_acknowledged_when_it_is_told_to_go_on() {
    let broker = RogueBroker::start().await;
    let transport = connected(&broker, MqttSettings::default()).await;
    broker.behave(|b| b.withholds_acks = true);
    let push = message();
    let delivery = send_to(&transport, &push, 100);
    let released = async {
        eventually("everything has arrived", DEADLINE, async || match broker.received() {
            100 => Ok(()),
            other => Err(other.to_string()),
        })
        .await;
        assert_eq!(broker.acknowledged(), 0);
        broker.behave(|b| b.withholds_acks = false);
    };
    let (outcomes, ()) = tokio::join!(delivery, released);
    assert_eq!(outcomes, [Outcome::Sent; 100]);
}

#[tokio::test]
async fn it_closes_and_refuses_connections_until_it_is_told_otherwise() {
    let broker = RogueBroker::start().await;
    let transport = connected(&broker, MqttSettings::default()).await;
    broker.behave(|b| b.refuses_connections = true);
    broker.close_connections();
    let ready = async |wanted: bool| {
        eventually("the transport has noticed", DEADLINE, async || {
            if transport.ready().await == wanted { Ok(()) } else { Err(format!("not {wanted}")) }
        })
        .await;
    };
    ready(false).await;
    assert_eq!(broker.sessions(), 0);
    broker.behave(|b| b.refuses_connections = false);
    ready(true).await;
    assert_eq!(send(&transport, &message(), &["a"]).await, [Outcome::Sent]);
}

#[tokio::test]
async fn it_is_sent_no_more_at_a_time_than_its_receive_maximum() {
    let broker = RogueBroker::start().await;
    broker.behave(|b| b.receive_maximum = NonZeroU16::new(7).unwrap());
    let transport = connected(&broker, MqttSettings::default()).await;
    assert_eq!(send_to(&transport, &message(), 1000).await, [Outcome::Sent; 1000]);
    assert!(broker.most_in_flight() <= 7, "{}", broker.most_in_flight());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_takes_a_hundred_thousand_messages_in_seconds() {
    let broker = RogueBroker::start().await;
    let transport = connected(&broker, MqttSettings::default()).await;
    let push = message();
    let start = Instant::now();
    for first in (0..100_000).step_by(1000) {
        let targets: Vec<Target> = (first..first + 1000).map(target).collect();
        let outcomes =
            transport.deliver(&push, &targets, &Sending::unrestricted(UnixMillis::now())).await;
        assert_eq!(outcomes, [Outcome::Sent; 1000]);
    }
    println!("100,000 messages in {:?}", start.elapsed());
    let received = broker.received_by_topic(&push.message_id.to_string());
    assert_eq!(received.len(), 100_000);
    assert!(received.values().all(|&received| received == 1));
    assert!(start.elapsed() < DEADLINE);
}

/// A transport with all its connections up.
async fn connected(broker: &RogueBroker, settings: MqttSettings) -> MqttTransport {
    let sessions = settings.connections + 1;
    let transport = MqttTransport::start(broker.url().parse().unwrap(), settings);
    eventually("all sessions are open", DEADLINE, async || match broker.sessions() {
        open if open == sessions && transport.ready().await => Ok(()),
        open => Err(format!("{open} of {sessions}")),
    })
    .await;
    transport
}

fn message() -> Outgoing {
    let message_id = MessageId::issue_named(&"app".parse().unwrap());
    Outgoing {
        app: AppKey::first("app".parse().unwrap()),
        message_id,
        payload: format!(r#"{{"message_id":"{message_id}","data":{{}}}}"#).into(),
        lifetime: Lifetime::Until(UnixMillis::now().plus(DEADLINE * 10)),
    }
}

fn target(name: impl ToString) -> Target {
    let client_id = name.to_string().parse().unwrap();
    Target {
        client_id,
        transport: TransportKind::Mqtt,
        token: None,
        epoch: push_model::registration::RegistrationEpoch::default(),
    }
}

async fn send(transport: &MqttTransport, message: &Outgoing, names: &[&str]) -> Vec<Outcome> {
    let targets: Vec<Target> = names.iter().map(target).collect();
    transport.deliver(message, &targets, &Sending::unrestricted(UnixMillis::now())).await
}

async fn send_to(transport: &MqttTransport, message: &Outgoing, devices: usize) -> Vec<Outcome> {
    let targets: Vec<Target> = (0..devices).map(target).collect();
    transport.deliver(message, &targets, &Sending::unrestricted(UnixMillis::now())).await
}

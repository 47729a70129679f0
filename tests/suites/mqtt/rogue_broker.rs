//! The MQTT transport with the rogue broker of the harness, which misbehaves as a test tells it.

use std::time::{Duration, Instant};

use push_model::ledger::{FailReason, RetryReason};
use push_tests::{
    RogueBroker, eventually,
    rogue_broker::{OnPublish, PublishAckReason},
};
use push_transports::{
    Outcome, Outgoing, Transport as _,
    mqtt::{MqttSettings, MqttTransport},
};

use super::{DEADLINE, LONG, deliver, is_sent};

const APP: &str = "app";

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
    let outcomes = deliver(&transport, &push, &["ignored", "busy", "absent", "fine"]).await;
    let busy = Outcome::Later(RetryReason::Busy, None);
    let absent = Outcome::Failed(FailReason::NoSubscriber);
    assert_eq!(outcomes, [Outcome::Undecided, busy, absent, Outcome::Sent]);
    let outcomes = deliver(&transport, &push, &["before", "closed", "behind"]).await;
    assert_eq!(outcomes, [Outcome::Sent, Outcome::Undecided, Outcome::Undecided]);
    let received = broker.received_by_topic(&push.message_id.to_string());
    assert!(received.values().all(|&received| received == 1), "{received:?}");
    broker.behave(|b| b.topics.clear());
    eventually("the session is back", DEADLINE, async || {
        is_sent(&deliver(&transport, &message(), &["closed"]).await)
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
    assert_eq!(deliver(&transport, &message(), &["a"]).await, [Outcome::Sent]);
}

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
    let message = super::message(APP, "", LONG);
    let payload = format!(r#"{{"message_id":"{}","data":{{}}}}"#, message.message_id);
    Outgoing { payload: payload.into(), ..message }
}

async fn send_to(transport: &MqttTransport, message: &Outgoing, devices: usize) -> Vec<Outcome> {
    let names: Vec<String> = (0..devices).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    deliver(transport, message, &names).await
}

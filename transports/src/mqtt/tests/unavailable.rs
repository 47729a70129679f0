//! A broker that is unavailable, or becomes available again.

use std::time::Duration;

use push_mqtt::MqttUrl;
use tokio::{net::TcpListener, time::Instant};

use super::{
    DEADLINE, NOW, SUCCESS, UNAVAILABLE, connected, free, message, now_or_never, quick,
    scripted::{BrokerConfig, ScriptedBroker},
    targets,
};
use crate::{
    Lifetime, Outcome, Outgoing, Transport as _,
    mqtt::{MqttSettings, MqttTransport},
};

/// An address without a broker.
fn no_broker() -> MqttUrl {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("mqtt://{}", listener.local_addr().unwrap()).parse().unwrap()
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_waited_for_and_then_nothing_was_handed_over() {
    let offline_timeout = Duration::from_millis(300);
    let transport = MqttTransport::start(no_broker(), MqttSettings { offline_timeout, ..quick() });
    assert!(!transport.ready().await);
    let start = Instant::now();
    let outcomes = transport.deliver(&message("a", DEADLINE), &targets(0..100), &free(NOW)).await;
    assert_eq!(outcomes, [UNAVAILABLE; 100]);
    assert!(start.elapsed() >= offline_timeout);
}

#[tokio::test]
async fn a_message_with_time_to_live_0_does_not_wait_for_a_connection() {
    let offline_timeout = DEADLINE * 2;
    let transport = MqttTransport::start(no_broker(), MqttSettings { offline_timeout, ..quick() });
    let (push, all) = (now_or_never("a"), targets(0..100));
    let unrestricted = free(NOW);
    let delivery = transport.deliver(&push, &all, &unrestricted);
    assert_eq!(tokio::time::timeout(DEADLINE, delivery).await.unwrap(), [UNAVAILABLE; 100]);
}

#[tokio::test]
async fn a_message_whose_lifetime_was_over_is_expired_and_not_sent() {
    let broker = ScriptedBroker::start(BrokerConfig::default(), |_, _| SUCCESS).await;
    let transport = connected(&broker, quick()).await;
    for lifetime in [Lifetime::Until(NOW), Lifetime::NowOrNever { until: NOW }] {
        let push = Outgoing { lifetime, ..message("a", DEADLINE) };
        let later = NOW.plus(Duration::from_millis(1));
        let outcomes = transport.deliver(&push, &targets(0..3), &free(later)).await;
        assert_eq!(outcomes, [Outcome::Expired; 3]);
    }
    assert!(broker.seen().topics.is_empty());
}

#[tokio::test]
async fn a_message_that_expires_while_the_broker_is_unavailable_is_expired() {
    let settings = MqttSettings { offline_timeout: DEADLINE, ..quick() };
    let transport = MqttTransport::start(no_broker(), settings);
    let push = message("a", Duration::from_millis(200));
    assert_eq!(transport.deliver(&push, &targets(["x"]), &free(NOW)).await, [Outcome::Expired]);
}

#[tokio::test]
async fn a_delivery_goes_on_when_the_broker_comes_back() {
    let failing = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: MqttUrl = format!("mqtt://{}", failing.local_addr().unwrap()).parse().unwrap();
    let settings = MqttSettings { offline_timeout: DEADLINE, ..quick() };
    let transport = MqttTransport::start(url.clone(), settings);
    let (push, all) = (message("a", DEADLINE), targets(0..100));
    let broker = async {
        // The broker comes back once a connection attempt of the delivery's transport has failed.
        drop(failing.accept().await.unwrap());
        drop(failing);
        ScriptedBroker::start_at(&url, BrokerConfig::default(), |_, _| SUCCESS).await
    };
    let unrestricted = free(NOW);
    let delivery = transport.deliver(&push, &all, &unrestricted);
    let (outcomes, broker) = tokio::join!(delivery, broker);
    assert_eq!(outcomes, [Outcome::Sent; 100]);
    assert_eq!(broker.seen().topics.len(), 100);
}

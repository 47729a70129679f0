//! Deliveries that share connections.

use super::{
    DEADLINE, NOW, SUCCESS, connected, free, message, quick,
    scripted::{Action, BrokerConfig, ScriptedBroker},
    targets,
};
use crate::{Outcome, Transport as _, mqtt::MqttSettings};

#[tokio::test]
async fn a_push_to_one_device_does_not_wait_for_a_broadcast_in_flight() {
    let broker = ScriptedBroker::start(BrokerConfig::default(), |publish, _| {
        if publish.topic.starts_with("push/small/") { SUCCESS } else { Action::Ignore }
    })
    .await;
    let transport = connected(&broker, MqttSettings { ack_timeout: DEADLINE, ..quick() }).await;
    let (broadcast, all) = (message("large", DEADLINE), targets(0..10_000));
    let unrestricted = free(NOW);
    let stuck = transport.deliver(&broadcast, &all, &unrestricted);
    let (push, one) = (message("small", DEADLINE), targets(["x"]));
    tokio::select! {
        biased;
        _ = stuck => panic!("nothing was acknowledged"),
        sent = transport.deliver(&push, &one, &unrestricted) => assert_eq!(sent, [Outcome::Sent]),
    }
}

#[tokio::test]
async fn broadcasts_on_one_connection_take_turns() {
    let config = BrokerConfig { receive_max: 64, ..BrokerConfig::default() };
    let broker = ScriptedBroker::start(config, |_, _| SUCCESS).await;
    let transport = connected(&broker, quick()).await;
    let (large, all) = (message("large", DEADLINE), targets(0..10_000));
    let (medium, some) = (message("medium", DEADLINE), targets(0..100));
    let unrestricted = free(NOW);
    tokio::select! {
        biased;
        _ = transport.deliver(&large, &all, &unrestricted) => panic!("it kept the connection to itself"),
        sent = transport.deliver(&medium, &some, &unrestricted) => assert_eq!(sent, [Outcome::Sent; 100]),
    }
}

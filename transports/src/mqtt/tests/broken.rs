//! Connections that end with something in flight.

use std::time::Duration;

use super::{
    DEADLINE, NOW, SUCCESS, UNAVAILABLE, connected, count, free, message, now_or_never, quick,
    scripted::{Action, BrokerConfig, ScriptedBroker, Seen},
    targets,
};
use crate::{Outcome, Transport as _, mqtt::MqttSettings};

/// The number of times that the broker read each device's message.
fn received(seen: &Seen, devices: usize) -> Vec<usize> {
    let of = |device| seen.topics.get(&format!("push/a/{device}")).copied().unwrap_or_default();
    (0..devices).map(of).collect()
}

#[tokio::test]
async fn what_was_in_flight_when_a_connection_broke_is_undecided_and_not_sent_again() {
    // 50 messages are acknowledged, then 10 are read without an answer.
    let config = BrokerConfig { receive_max: 20, ..BrokerConfig::default() };
    let broker =
        ScriptedBroker::start(config, |_, seen| match seen.topics.values().sum::<usize>() {
            51..60 => Action::HoldBack,
            60 => Action::HangUp,
            _ => SUCCESS,
        })
        .await;
    let transport = connected(&broker, quick()).await;
    let outcomes = transport.deliver(&message("a", DEADLINE), &targets(0..100), &free(NOW)).await;
    let received = received(&broker.seen(), 100);
    assert_eq!(outcomes[..50], [Outcome::Sent; 50], "acknowledged before the break");
    assert_eq!(outcomes[50..60], [Outcome::Undecided; 10], "read, not acknowledged");
    assert_eq!(outcomes[70..], [Outcome::Sent; 30], "beyond the window");
    assert!(received.iter().all(|&received| received <= 1), "{received:?}");
    for (device, (outcome, received)) in outcomes.iter().zip(received).enumerate() {
        assert!(*outcome == Outcome::Undecided || received == 1, "{device} was left out");
    }
}

#[tokio::test]
async fn a_device_that_makes_the_broker_hang_up_holds_up_no_other() {
    let config = BrokerConfig { receive_max: 10, ..BrokerConfig::default() };
    let broker = ScriptedBroker::start(config, |publish, _| {
        if publish.topic.ends_with("/150") { Action::HangUp } else { SUCCESS }
    })
    .await;
    let transport = connected(&broker, MqttSettings { connections: 2, ..quick() }).await;
    let outcomes = transport.deliver(&message("a", DEADLINE), &targets(0..300), &free(NOW)).await;
    let undecided = count(&outcomes, Outcome::Undecided);
    assert_eq!(outcomes[150], Outcome::Undecided);
    assert!(undecided <= 10, "{undecided} undecided, 10 were in flight beside it");
    assert_eq!(count(&outcomes, Outcome::Sent), 300 - undecided);
    assert!(received(&broker.seen(), 300).iter().all(|&received| received <= 1));
}

#[tokio::test]
async fn a_broker_that_acknowledges_nothing_leaves_undecided_only_what_it_was_handed() {
    let config = BrokerConfig { receive_max: 10, ..BrokerConfig::default() };
    let broker = ScriptedBroker::start(config, |_, _| Action::Ignore).await;
    let settings = MqttSettings { connections: 2, ..quick() };
    let transport = connected(&broker, settings).await;
    let (push, all) = (message("a", DEADLINE * 10), targets(0..25));
    let unrestricted = free(NOW);
    let delivered = transport.deliver(&push, &all, &unrestricted);
    let outcomes = tokio::time::timeout(DEADLINE, delivered).await.unwrap();
    assert_eq!(outcomes, [Outcome::Undecided; 25]);
    assert_eq!(received(&broker.seen(), 25), [1; 25]);
}

#[tokio::test]
async fn a_message_with_time_to_live_0_is_tried_once() {
    let config = BrokerConfig { receive_max: 10, ..BrokerConfig::default() };
    let broker = ScriptedBroker::start(config, |_, _| Action::HangUp).await;
    let settings = MqttSettings { connections: 1, ..quick() };
    let transport = connected(&broker, settings).await;
    let outcomes = transport.deliver(&now_or_never("a"), &targets(0..100), &free(NOW)).await;
    assert_eq!(count(&outcomes, Outcome::Undecided), 10, "what was in flight");
    assert_eq!(count(&outcomes, UNAVAILABLE), 90, "what could only go over another connection");
}

#[tokio::test]
async fn an_idle_session_is_kept_by_pings_and_given_up_when_they_are_not_answered() {
    for answers_pings in [true, false] {
        let config = BrokerConfig { keep_alive: Some(1), answers_pings, ..BrokerConfig::default() };
        let broker = ScriptedBroker::start(config, |_, _| SUCCESS).await;
        let transport = connected(&broker, quick()).await;
        let mut up = transport.pool.up();
        let lost = async { up.wait_for(|&up| up != 0b11).await.map(|_| ()) };
        let waited = tokio::time::timeout(Duration::from_secs(3), lost).await;
        assert_eq!(waited.is_err(), answers_pings);
        assert!(broker.seen().pings > 0);
    }
}

#[tokio::test]
async fn closing_leaves_undecided_what_was_handed_over_and_gives_back_the_rest() {
    let config = BrokerConfig { receive_max: 10, ..BrokerConfig::default() };
    let broker = ScriptedBroker::start(config, |_, _| Action::Ignore).await;
    let settings = MqttSettings { ack_timeout: DEADLINE, offline_timeout: DEADLINE, ..quick() };
    let transport = connected(&broker, settings).await;
    let (push, all) = (message("a", DEADLINE), targets(0..100));
    let close = async {
        let seen = async {
            while broker.seen().topics.len() < 10 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, seen).await.unwrap();
        transport.close().await;
    };
    let unrestricted = free(NOW);
    let delivery = transport.deliver(&push, &all, &unrestricted);
    let (outcomes, ()) = tokio::join!(delivery, close);
    assert_eq!(outcomes[..10], [Outcome::Undecided; 10]);
    assert_eq!(outcomes[10..], [UNAVAILABLE; 90]);
    assert!(!transport.ready().await);
    assert_eq!(transport.deliver(&push, &all, &free(NOW)).await, [UNAVAILABLE; 100]);
}

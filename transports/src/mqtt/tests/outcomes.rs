//! The outcomes of the broker's answers, and what a PUBLISH contains.

use std::time::Duration;

use push_model::ledger::{FailReason, RetryReason};
use rmqtt_codec::v5::PublishAckReason;

use super::{
    DEADLINE, NOW, SUCCESS, connected, free, message, now_or_never, quick,
    scripted::{Action, BrokerConfig, ScriptedBroker},
    targets,
};
use crate::{Outcome, Outgoing, Transport as _, mqtt::MqttSettings};

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
    let broker = ScriptedBroker::start(BrokerConfig::default(), move |publish, _| {
        let device: usize = publish.topic.rsplit('/').next().unwrap().parse().unwrap();
        Action::Answer(reasons[device].0)
    })
    .await;
    let transport = connected(&broker, quick()).await;
    let all = targets(0..reasons.len());
    let outcomes = transport.deliver(&message("a", DEADLINE), &all, &free(NOW)).await;
    assert_eq!(outcomes, reasons.map(|(_, outcome)| outcome));
}

#[tokio::test]
async fn the_outcomes_of_all_connections_are_in_the_order_of_the_devices() {
    let broker = ScriptedBroker::start(BrokerConfig::default(), |publish, _| {
        let device: usize = publish.topic.rsplit('/').next().unwrap().parse().unwrap();
        let reasons = [PublishAckReason::Success, PublishAckReason::NoMatchingSubscribers];
        Action::Answer(reasons[usize::from(device.is_multiple_of(3))])
    })
    .await;
    let transport = connected(&broker, MqttSettings { connections: 3, ..quick() }).await;
    let outcomes = transport.deliver(&message("a", DEADLINE), &targets(0..1000), &free(NOW)).await;
    assert_eq!(outcomes.len(), 1000);
    for (device, outcome) in outcomes.into_iter().enumerate() {
        let absent = Outcome::Failed(FailReason::NoSubscriber);
        assert_eq!(
            outcome,
            if device.is_multiple_of(3) { absent } else { Outcome::Sent },
            "{device}"
        );
    }
}

#[tokio::test]
async fn no_devices_have_no_outcomes() {
    let broker = ScriptedBroker::start(BrokerConfig::default(), |_, _| SUCCESS).await;
    let transport = connected(&broker, quick()).await;
    assert_eq!(transport.deliver(&message("a", DEADLINE), &[], &free(NOW)).await, []);
}

#[tokio::test]
async fn no_more_messages_are_in_flight_than_the_broker_allows() {
    let config = BrokerConfig { receive_max: 10, ..BrokerConfig::default() };
    let broker = ScriptedBroker::start(config, |_, seen| {
        if seen.topics.len() % 10 == 0 { SUCCESS } else { Action::HoldBack }
    })
    .await;
    let transport = connected(&broker, quick()).await;
    transport.deliver(&message("a", DEADLINE), &targets(0..100), &free(NOW)).await;
    assert_eq!(broker.seen().most_unanswered, 10);
}

#[tokio::test]
async fn the_broker_is_told_how_long_the_message_lives() {
    let broker = ScriptedBroker::start(BrokerConfig::default(), |_, _| SUCCESS).await;
    let transport = connected(&broker, quick()).await;
    transport.deliver(&message("a", DEADLINE), &targets(["x"]), &free(NOW)).await;
    // Whole seconds, rounded down, less what it took to get here.
    assert!(matches!(broker.seen().expiry, Some(1..60)), "{:?}", broker.seen().expiry);
    transport.deliver(&now_or_never("a"), &targets(["x"]), &free(NOW)).await;
    assert_eq!(broker.seen().expiry, Some(1));
}

#[tokio::test]
async fn a_message_that_is_too_large_for_the_broker_is_refused_without_losing_the_session() {
    let config = BrokerConfig { max_packet_size: Some(200), ..BrokerConfig::default() };
    let broker = ScriptedBroker::start(config, |_, _| SUCCESS).await;
    let transport = connected(&broker, quick()).await;
    let large = Outgoing { payload: vec![b'x'; 200].into(), ..message("a", DEADLINE) };
    let refused = transport.deliver(&large, &targets(0..3), &free(NOW)).await;
    assert_eq!(refused, [Outcome::Failed(FailReason::Refused); 3]);
    let sent = transport.deliver(&message("a", DEADLINE), &targets(0..3), &free(NOW)).await;
    assert_eq!(sent, [Outcome::Sent; 3]);
}

#[tokio::test]
async fn what_expires_before_its_turn_is_not_sent() {
    let lifetime = Duration::from_millis(300);
    let config = BrokerConfig { receive_max: 1, ..BrokerConfig::default() };
    // The first message is acknowledged when the others have no time left.
    let broker = ScriptedBroker::start(config, move |_, _| {
        Action::AnswerAfter(lifetime + Duration::from_millis(1))
    })
    .await;
    let transport = connected(&broker, MqttSettings { ack_timeout: DEADLINE, ..quick() }).await;
    let outcomes = transport.deliver(&message("a", lifetime), &targets(0..20), &free(NOW)).await;
    assert_eq!(outcomes[0], Outcome::Sent);
    assert_eq!(outcomes[1..], [Outcome::Expired; 19]);
    assert_eq!(broker.seen().topics.len(), 1);
}

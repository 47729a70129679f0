//! Policies that an operator sets on the server, for all queues or for one of ours.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use push_queue::{
    Lane, Queue, QueueError,
    amqp::{AmqpQueue, AmqpSettings},
};
use push_tests::{eventually, namespace, servers::RabbitMq};
use tokio::time::timeout;

use crate::queue::support::{DEADLINE, next_acked, payload};

/// Deadline to notice a policy.
const NOTICED: Duration = Duration::from_secs(60);

async fn connect(server: &RabbitMq, namespace: &str) -> Arc<AmqpQueue> {
    let settings = AmqpSettings::default();
    Arc::new(AmqpQueue::connect(&server.url(), namespace, settings).await.unwrap())
}

async fn set(server: &RabbitMq, pattern: &str, definition: &str) {
    let set = ["set_policy", "other", pattern, definition, "--apply-to", "queues"];
    server.control(&set).await.unwrap();
}

/// Sets an operator policy, which limits what other policies and declarations allow.
async fn set_as_operator(server: &RabbitMq, pattern: &str, definition: &str) {
    let set = ["set_operator_policy", "all", pattern, definition, "--apply-to", "queues"];
    server.control(&set).await.unwrap();
}

async fn clear_as_operator(server: &RabbitMq) {
    server.control(&["clear_operator_policy", "all"]).await.unwrap();
}

async fn clear(server: &RabbitMq) {
    server.control(&["clear_policy", "other"]).await.unwrap();
}

/// Waits until the queue says why nothing should be published.
async fn reason(queue: &AmqpQueue) -> String {
    let mut blocked = queue.blocked();
    let found = timeout(NOTICED, blocked.wait_for(Option::is_some)).await;
    found.expect("noticed in time").unwrap().as_deref().unwrap().to_owned()
}

/// Publishes until the queue refuses one, and returns what it has confirmed.
async fn publish_until_refused(queue: &AmqpQueue, most: usize, what: &str) -> Vec<String> {
    let mut stored = Vec::new();
    for number in 0..most {
        let message = format!("message {number} {}", "x".repeat(1000));
        match queue.publish(Lane::Jobs, payload(&message)).await {
            Ok(()) => stored.push(message),
            Err(QueueError::Refused(_) | QueueError::Unavailable(_)) => return stored,
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("{most} messages were taken: {what}");
}

async fn takes_messages_again(queue: &AmqpQueue) {
    eventually("messages are taken again", Duration::from_secs(180), async || {
        queue.ping().await.map_err(|error| error.to_string())
    })
    .await;
}

/// Every message arrives, however often.
async fn all_arrive(queue: &AmqpQueue, mut expected: Vec<String>) {
    let mut consumer = queue.consume(Lane::Jobs, 10).await.unwrap();
    while !expected.is_empty() {
        let arrived = next_acked(&mut consumer).await;
        expected.retain(|message| *message != arrived);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_with_a_maximal_length_makes_the_queue_refuse_and_drops_nothing() {
    let server = RabbitMq::start().await.unwrap();
    let refused_by = async |queue: Arc<AmqpQueue>, what: &str| {
        // The server applies it a moment later, and the limit is not exact.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let stored = publish_until_refused(&queue, 500, what).await;
        all_arrive(&queue, stored).await;
        queue.close().await;
    };
    for definition in [
        r#"{"max-length":5}"#,
        r#"{"max-length-bytes":5000}"#,
        r#"{"max-length":5,"overflow":"reject-publish","dead-letter-exchange":"amq.fanout"}"#,
    ] {
        let queue = connect(&server, &namespace()).await;
        set(&server, ".*", definition).await;
        refused_by(queue, &format!("{definition}, set afterwards")).await;
        let queue = connect(&server, &namespace()).await;
        refused_by(queue, &format!("{definition}, set before")).await;
        clear(&server).await;
    }
    let queue = connect(&server, &namespace()).await;
    set_as_operator(&server, ".*", r#"{"max-length":5}"#).await;
    refused_by(queue, "an operator policy").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_drops_the_oldest_messages_is_named() {
    let server = RabbitMq::start().await.unwrap();
    let namespace = namespace();
    let queue = connect(&server, &namespace).await;
    set(&server, "jobs$", r#"{"max-length":5,"overflow":"drop-head"}"#).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let messages: Vec<String> = (0..50).map(|number| format!("message {number}")).collect();
    for message in &messages {
        queue.publish(Lane::Jobs, payload(message)).await.unwrap();
    }
    let reason = reason(&queue).await;
    assert!(reason.contains(&format!("max-length on {namespace}.jobs")), "{reason}");
    clear(&server).await;
    all_arrive(&queue, messages).await;
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_drops_the_oldest_messages_of_all_queues_is_named_before_it_drops_any() {
    let server = RabbitMq::start().await.unwrap();
    set(&server, ".*", r#"{"max-length":3,"overflow":"drop-head"}"#).await;
    let queue = connect(&server, &namespace()).await;
    let found = reason(&queue).await;
    assert!(found.contains("overflow: drop-head with a max-length on"), "{found}");
    assert!(matches!(queue.ping().await, Err(QueueError::Blocked(_))));
    queue.close().await;
    clear(&server).await;

    // One that is set while messages wait drops them immediately.
    let queue = connect(&server, &namespace()).await;
    let messages: Vec<String> = (0..300).map(|number| format!("message {number}")).collect();
    let publish = |message: &String| queue.publish(Lane::Jobs, payload(message));
    for published in join_all(messages.iter().map(publish)).await {
        published.unwrap();
    }
    eventually("the probes are there", DEADLINE, async || {
        let queues = server.control(&["list_queues", "name", "--silent"]).await?;
        if queues.contains("probe.full") { Ok(()) } else { Err(queues) }
    })
    .await;
    set(&server, ".*", r#"{"max-length":5,"overflow":"drop-head"}"#).await;
    let found = reason(&queue).await;
    assert!(found.contains("drop-head"), "{found}");
    clear(&server).await;
    all_arrive(&queue, messages).await;
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_that_an_operator_policy_expires_is_restored_and_the_queue_is_named() {
    let server = RabbitMq::start().await.unwrap();
    let namespace = namespace();
    let queue = connect(&server, &namespace).await;
    let pattern = format!("^{namespace}.dead$");
    set_as_operator(&server, &pattern, r#"{"message-ttl":2000}"#).await;
    queue.publish_dead(Lane::Tasks, payload("a letter"), "it cannot be read").await.unwrap();
    let found = reason(&queue).await;
    assert!(found.contains(&format!("message-ttl on {namespace}.dead")), "{found}");
    clear_as_operator(&server).await;
    eventually("the letter is listed again", DEADLINE, async || {
        let letters = queue.dead(10).await.map_err(|error| error.to_string())?;
        let letter = letters.first().ok_or("none")?;
        assert_eq!((letter.lane, &*letter.reason), (Some(Lane::Tasks), "it cannot be read"));
        assert_eq!(letter.payload, payload("a letter"));
        Ok(())
    })
    .await;
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_expires_queues_is_named_in_time() {
    let server = RabbitMq::start().await.unwrap();
    let queue = connect(&server, &namespace()).await;
    queue.ping().await.unwrap();
    set(&server, ".*", r#"{"expires":20000}"#).await;
    let found = reason(&queue).await;
    assert!(found.contains("expires on"), "{found}");
    assert!(matches!(queue.ping().await, Err(QueueError::Blocked(_))));
    clear(&server).await;
    takes_messages_again(&queue).await;
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_expires_queues_and_was_there_before_is_named_even_if_it_is_for_one_queue() {
    let server = RabbitMq::start().await.unwrap();
    set_as_operator(&server, ".*", r#"{"expires":15000}"#).await;
    let queue = connect(&server, &namespace()).await;
    let found = reason(&queue).await;
    assert!(found.contains("expires on"), "{found}");
    queue.close().await;
    clear_as_operator(&server).await;

    let namespace = namespace();
    set(&server, &format!("^{namespace}.delay.4s$"), r#"{"expires":3000}"#).await;
    let queue = connect(&server, &namespace).await;
    let found = reason(&queue).await;
    assert!(found.contains(&format!("expires on {namespace}.delay.4s")), "{found}");
    clear(&server).await;
    queue.close().await;
}

/// Messages that wait longer than a policy allows: it is named, nothing is lost, and when it is gone
/// all is well.
async fn messages_expire(pattern: &str, named: &str, is_before: bool) {
    let server = RabbitMq::start().await.unwrap();
    let namespace = namespace();
    let pattern = pattern.replace("NAMESPACE", &namespace);
    let definition = r#"{"message-ttl":2000,"dead-letter-exchange":"amq.fanout"}"#;
    if is_before {
        set(&server, &pattern, definition).await;
    }
    let queue = connect(&server, &namespace).await;
    let other = connect(&server, &namespace).await;
    if !is_before {
        set(&server, &pattern, definition).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let messages: Vec<String> = (0..300).map(|number| format!("message {number}")).collect();
    let publish = |message: &String| queue.publish(Lane::Jobs, payload(message));
    for published in join_all(messages.iter().map(publish)).await {
        published.unwrap();
    }
    let reasons = [reason(&queue).await, reason(&other).await];
    assert!(
        reasons
            .iter()
            .any(|reason| reason.contains(&format!("message-ttl on {namespace}.{named}"))),
        "{reasons:?}"
    );
    assert!(matches!(other.ping().await, Err(QueueError::Blocked(_))));
    let command = connect(&server, &namespace).await;
    match command.ping().await {
        Err(QueueError::Blocked(reason)) => assert!(reason.contains("message-ttl"), "{reason}"),
        other => panic!("a program that has just started does not know: {other:?}"),
    }
    clear(&server).await;
    all_arrive(&queue, messages).await;
    takes_messages_again(&queue).await;
    queue.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_expires_messages_is_named_and_what_it_drops_is_restored() {
    messages_expire(".*", "", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_is_one_that_was_there_before_and_expires_those_of_one_lane() {
    messages_expire("^NAMESPACE.jobs$", "jobs", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_policy_nothing_is_noticed_and_the_probes_go_with_their_program() {
    let server = RabbitMq::start().await.unwrap();
    let queue = connect(&server, &namespace()).await;
    let mut blocked = queue.blocked();
    let noticed = timeout(NOTICED + Duration::from_secs(30), blocked.wait_for(Option::is_some));
    assert!(noticed.await.is_err(), "{:?}", queue.blocked().borrow());
    queue.ping().await.unwrap();
    let probes = async || server.control(&["list_queues", "name", "--silent"]).await.unwrap();
    assert!(probes().await.contains("probe"));
    queue.close().await;
    eventually("the probes are gone", DEADLINE, async || match probes().await {
        names if names.contains("probe") => Err(names),
        _ => Ok(()),
    })
    .await;
}

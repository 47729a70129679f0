//! Pushes that the queue refuses, does not confirm or cannot take now, and clients that hang up.

use prometheus_client::registry::Registry;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_refused_batch_answers_all_of_its_pushes_with_an_error_and_the_next_one_is_tried() {
    let queue = ScriptedQueue::new(10, true);
    let publisher = start(&queue, SETTINGS);
    assert_eq!(push(&publisher, 1).await.unwrap(), Err(NotPublished::Refused));
    assert_eq!(push(&publisher, 1).await.unwrap(), Err(NotPublished::Refused));
    assert_eq!(queue.batches(), [1, 1]);
    publisher.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_publish_panics_answers_its_pushes_with_an_error_and_the_next_one_is_tried() {
    let queue = ScriptedQueue::new(0, false);
    queue.confirms.close();
    let publisher = start(&queue, SETTINGS);
    let pushes: Vec<_> = (0..6).map(|_| push(&publisher, 1)).collect();
    for push in pushes {
        assert_eq!(push.await.unwrap(), Err(NotPublished::Refused));
    }
    assert_eq!(queue.batches(), [4, 2]);
    let begun = Instant::now();
    publisher.finish(soon()).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_push_that_cannot_wait_is_refused_at_once() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, PublisherSettings { waiting: 2, ..SETTINGS });
    let _first = push(&publisher, 1);
    until_idle().await;
    let _waiting = [push(&publisher, 1), push(&publisher, 1)];
    until_idle().await;
    assert_eq!(push(&publisher, 1).await.unwrap(), Err(NotPublished::Full));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_never_confirms_does_not_hold_a_push_for_ever() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, SETTINGS);
    let (first, second) = (push(&publisher, 1), push(&publisher, 1));
    assert_eq!(first.await.unwrap(), Err(NotPublished::Late));
    assert_eq!(second.await.unwrap(), Err(NotPublished::Late));
    publisher.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn while_the_queue_is_blocked_every_push_is_refused_at_once_with_the_reason() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, SETTINGS);
    let begun = Instant::now();
    let in_flight = push(&publisher, 1);
    until_idle().await;
    let waiting = push(&publisher, 1);
    until_idle().await;
    assert_eq!(queue.batches(), [1]);
    queue.block(Some("low on memory"));
    let comes_later = push(&publisher, 1);
    for push in [in_flight, waiting, comes_later] {
        assert_eq!(push.await.unwrap(), Err(NotPublished::Blocked("low on memory".into())));
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(queue.batches(), [1], "nothing more was sent");

    queue.block(None);
    queue.confirms.add_permits(1);
    assert_eq!(push(&publisher, 1).await.unwrap(), Ok(()));
    publisher.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn a_metric_says_whether_the_queue_is_blocked() {
    let queue = ScriptedQueue::new(0, false);
    queue.block(Some("low on disk"));
    let metrics = Arc::new(Metrics::default());
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let _publisher = Publisher::new(queue.clone(), SETTINGS, metrics);
    for (reason, value) in [(Some("low on disk"), 1), (None, 0), (Some("low on memory"), 1)] {
        queue.block(reason);
        until_idle().await;
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = format!("push_ingest_queue_blocked {value}\n");
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_push_whose_client_hung_up_is_published_all_the_same() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, SETTINGS);
    let _first = push(&publisher, 1);
    until_idle().await;
    let gone = push(&publisher, 1);
    until_idle().await;
    gone.abort();
    until_idle().await;
    queue.confirms.add_permits(10);
    publisher.finish(soon()).await;
    assert_eq!(queue.batches(), [1, 1]);
}

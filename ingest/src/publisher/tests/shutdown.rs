//! The end of the publisher within its deadline.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_stopping_publisher_finishes_what_waits_and_takes_nothing_new() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, SETTINGS);
    let pushes: Vec<_> = (0..9).map(|_| push(&publisher, 1)).collect();
    until_idle().await;
    let finish = tokio::spawn({
        let publisher = Arc::clone(&publisher);
        async move { publisher.finish(soon()).await }
    });
    until_idle().await;
    assert!(!finish.is_finished());
    let begun = Instant::now();
    queue.confirms.add_permits(10);
    finish.await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO, "it does not wait for its deadline");
    for push in pushes {
        assert_eq!(push.await.unwrap(), Ok(()));
    }
    assert_eq!(push(&publisher, 1).await.unwrap(), Err(NotPublished::Stopping));
}

#[tokio::test(start_paused = true)]
async fn a_stopping_publisher_does_not_wait_for_a_queue_beyond_its_deadline() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, SETTINGS);
    let _stuck = push(&publisher, 1);
    until_idle().await;
    let waiting = push(&publisher, 1);
    until_idle().await;
    let begun = Instant::now();
    publisher.finish(begun + Duration::from_secs(1)).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(waiting.await.unwrap(), Err(NotPublished::Stopping));
}

//! The groups of batch requests.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_pushes_of_one_request_are_in_few_envelopes_and_go_at_once() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, PublisherSettings { window: 4, ..SETTINGS });
    let (request, groups) = push_batch(&publisher, 7);
    until_idle().await;
    assert_eq!(groups, 2);
    assert_eq!(queue.batches(), [4, 3], "the second waits for no confirm of the first");
    assert!(!request.is_finished(), "nothing is answered before its confirm");
    queue.confirms.add_permits(1);
    until_idle().await;
    assert!(!request.is_finished());
    queue.confirms.add_permits(1);
    assert_eq!(request.await.unwrap(), [Ok(()), Ok(())]);
    publisher.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn single_pushes_and_those_of_a_request_share_envelopes_within_their_bounds() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, SETTINGS);
    let first = push(&publisher, 1);
    until_idle().await;
    let before = push(&publisher, 1);
    until_idle().await;
    let (request, _) = push_batch(&publisher, 6);
    until_idle().await;
    let behind = push(&publisher, 1);
    until_idle().await;
    assert_eq!(queue.batches(), [1], "the window is full");
    queue.confirms.add_permits(10);
    assert_eq!(request.await.unwrap(), [Ok(()), Ok(())]);
    for push in [first, before, behind] {
        assert_eq!(push.await.unwrap(), Ok(()));
    }
    assert_eq!(queue.batches(), [1, 4, 4], "one and three, then three and one");
    publisher.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn batch_requests_take_half_of_the_queue_and_the_rest_is_for_single_pushes() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, PublisherSettings { waiting: 8, ..SETTINGS });
    let first = push(&publisher, 1);
    until_idle().await;
    let (request, groups) = push_batch(&publisher, 5);
    until_idle().await;
    assert_eq!((groups, queue.batches()), (2, vec![1]));
    let singles: Vec<_> = (0..5).map(|_| push(&publisher, 1)).collect();
    until_idle().await;
    let one_too_many = push(&publisher, 1);
    assert_eq!(one_too_many.await.unwrap(), Err(NotPublished::Full), "eight wait");
    let (late, _) = push_batch(&publisher, 1);
    assert_eq!(late.await.unwrap(), [Err(NotPublished::Full)]);
    queue.confirms.add_permits(10);
    assert_eq!(request.await.unwrap(), [Ok(()), Err(NotPublished::Full)], "three and no more");
    for push in singles {
        assert_eq!(push.await.unwrap(), Ok(()));
    }
    assert_eq!(first.await.unwrap(), Ok(()));
    publisher.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn every_group_of_a_request_is_answered_whatever_becomes_of_the_queue() {
    let queue = ScriptedQueue::new(10, true);
    let publisher = start(&queue, SETTINGS);
    let refused = vec![Err(NotPublished::Refused); 2];
    assert_eq!(push_batch(&publisher, 5).0.await.unwrap(), refused);
    publisher.finish(soon()).await;
    let stopping = vec![Err(NotPublished::Stopping); 2];
    assert_eq!(push_batch(&publisher, 5).0.await.unwrap(), stopping);

    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, SETTINGS);
    let (waits, _) = push_batch(&publisher, 5);
    until_idle().await;
    queue.block(Some("low on memory"));
    let blocked = vec![Err(NotPublished::Blocked("low on memory".into())); 2];
    assert_eq!(waits.await.unwrap(), blocked);
    assert_eq!(push_batch(&publisher, 5).0.await.unwrap(), blocked);
    assert_eq!(queue.batches(), [3], "nothing more was sent");
}

#[tokio::test(start_paused = true)]
async fn the_pushes_of_a_request_whose_client_hung_up_are_published_all_the_same() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, SETTINGS);
    let (request, _) = push_batch(&publisher, 6);
    until_idle().await;
    request.abort();
    until_idle().await;
    queue.confirms.add_permits(10);
    publisher.finish(soon()).await;
    assert_eq!(queue.batches(), [3, 3]);
}

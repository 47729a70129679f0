//! Tests of which pushes go into one envelope, and when it is sent.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lone_push_goes_at_once_and_the_next_batch_grows_while_the_window_is_full() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, SETTINGS);
    let first = push(&publisher, 1);
    until_idle().await;
    assert_eq!(queue.batches(), [1]);
    let rest: Vec<_> = (0..6).map(|_| push(&publisher, 1)).collect();
    until_idle().await;
    assert_eq!(queue.batches(), [1], "the window is full");
    assert!(!first.is_finished(), "nothing is answered before its confirm");
    queue.confirms.add_permits(10);
    assert_eq!(first.await.unwrap(), Ok(()));
    for push in rest {
        assert_eq!(push.await.unwrap(), Ok(()));
    }
    assert_eq!(queue.batches(), [1, 4, 2], "a batch is bounded by its number of pushes");
    publisher.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_bounded_by_its_bytes_and_a_larger_push_goes_alone() {
    let queue = ScriptedQueue::new(0, false);
    let publisher = start(&queue, SETTINGS);
    let mut pushes = vec![push(&publisher, 1)];
    until_idle().await;
    for bytes in [4_000, 4_000, 4_000, 20_000, 1] {
        pushes.push(push(&publisher, bytes));
        until_idle().await;
    }
    queue.confirms.add_permits(10);
    for push in pushes {
        assert_eq!(push.await.unwrap(), Ok(()));
    }
    assert_eq!(queue.batches(), [1, 2, 1, 1, 1]);
    publisher.finish(soon()).await;
}

//! The publisher against a queue whose confirms the test gives.

mod batch_requests;
mod batches;
mod failures;
mod scripted_queue;
mod shutdown;

use std::time::Duration;

use push_model::{
    envelope::{JobMarks, encode_job},
    hints::Hints,
    ids::MessageId,
    message::{Audience, Payload},
    time::UnixMillis,
};

use self::scripted_queue::ScriptedQueue;
use tokio::task::JoinHandle;

use super::*;
use crate::body::{AppMemory, Purpose, tests::memory};

const SETTINGS: PublisherSettings = PublisherSettings {
    batch_jobs: 4,
    batch_bytes: 10_000,
    window: 1,
    waiting: 100,
    timeout: Duration::from_secs(10),
};

fn start(queue: &Arc<ScriptedQueue>, settings: PublisherSettings) -> Arc<Publisher> {
    Arc::new(Publisher::new(queue.clone(), settings, Arc::default()))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn job(bytes: usize) -> Vec<u8> {
    let payload = Payload {
        message_id: MessageId::issue_named(&"a".parse().unwrap()),
        app_id: "a".parse().unwrap(),
        kind: 2,
        notification: None,
        data: Some([("k".into(), "x".repeat(bytes).into())].into()),
        hints: Hints::default(),
        accepted_at: UnixMillis(0),
        sequence: 0,
        expires_at: UnixMillis(1),
    };
    encode_job(&payload, &Audience::All, JobMarks::default()).unwrap()
}

/// The memory of a request that uses none.
fn no_memory() -> Reservation {
    Reservation::empty(&Arc::new(AppMemory::new(&memory(0, 0))), Purpose::Single)
}

/// Starts a push, and waits for its answer as a request would.
fn push(publisher: &Arc<Publisher>, bytes: usize) -> JoinHandle<Result<(), NotPublished>> {
    let publisher = Arc::clone(publisher);
    let memory = no_memory();
    tokio::spawn(async move { publisher.publish(job(bytes), memory, None, None).await })
}

/// Starts a batch request with so many pushes. Also returns how many groups they are.
fn push_batch(
    publisher: &Arc<Publisher>,
    pushes: usize,
) -> (JoinHandle<Vec<Result<(), NotPublished>>>, usize) {
    let mut builder = publisher.push_groups(pushes, 0);
    for _ in 0..pushes {
        builder.add(&job(1), None);
    }
    let groups: Vec<_> = builder.finish().into_iter().map(|group| (group, no_memory())).collect();
    let (publisher, count) = (Arc::clone(publisher), groups.len());
    (tokio::spawn(async move { publisher.publish_groups(groups, None).await }), count)
}

/// Lets every Tokio task go on until all of them wait.
async fn until_idle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

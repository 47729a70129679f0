//! The publisher against a queue whose confirms the test gives.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use clap::Parser;
use prometheus_client::registry::Registry;
use push_index::{Index, sqlite::SqliteIndex};
use push_model::{
    app::App,
    envelope::encode_job,
    ids::MessageId,
    ledger::Retention,
    message::{Audience, Payload},
    secret::Secret,
    time::UnixMillis,
};
use push_queue::{Consumer, DeadLetter, QueueError, SampleSize};
use push_service::settings::Mistakes;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{RunError, settings::IngestArgs};

/// Keeps what is published; confirms while `confirms` has permits, or refuses everything, or
/// panics once `confirms` is closed. While it is blocked it takes nothing.
#[derive(Debug)]
struct Scripted {
    published: Mutex<Vec<Bytes>>,
    confirms: Semaphore,
    refuses: bool,
    blocked: watch::Sender<Option<Arc<str>>>,
}

impl Scripted {
    fn new(confirms: usize, refuses: bool) -> Arc<Self> {
        let (published, confirms) = (Mutex::default(), Semaphore::new(confirms));
        Arc::new(Self { published, confirms, refuses, blocked: watch::Sender::new(None) })
    }

    fn block(&self, reason: Option<&str>) {
        self.blocked.send_replace(reason.map(Into::into));
    }

    /// How many jobs each message had.
    fn batches(&self) -> Vec<usize> {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.iter().map(|e| push_model::envelope::decode_batch(e).unwrap().len()).collect()
    }
}

#[async_trait]
impl Queue for Scripted {
    async fn publish(&self, lane: Lane, payload: Bytes) -> Result<(), QueueError> {
        assert_eq!(lane, Lane::Jobs);
        if let Some(reason) = &*self.blocked.borrow() {
            return Err(QueueError::Blocked(reason.clone()));
        }
        self.published.lock().unwrap().push(payload);
        self.confirms.acquire().await.unwrap().forget();
        if self.refuses { Err(QueueError::Refused("full".into())) } else { Ok(()) }
    }

    async fn publish_later(&self, _: Lane, _: Bytes, _: Duration) -> Result<(), QueueError> {
        Err(QueueError::Closed)
    }

    async fn consume(&self, _: Lane, _: u16) -> Result<Box<dyn Consumer>, QueueError> {
        Err(QueueError::Closed)
    }

    async fn depth(&self, _: Lane) -> Result<u64, QueueError> {
        Ok(0)
    }

    async fn peek(&self, _: Lane, _: SampleSize) -> Result<Vec<Bytes>, QueueError> {
        Ok(Vec::new())
    }

    async fn publish_dead(&self, _: Lane, _: Bytes, _: &str) -> Result<(), QueueError> {
        Err(QueueError::Closed)
    }

    async fn dead(&self, _: usize) -> Result<Vec<DeadLetter>, QueueError> {
        Ok(Vec::new())
    }

    async fn replay_dead(&self, _: Option<&[String]>) -> Result<u64, QueueError> {
        Ok(0)
    }

    async fn drop_dead(&self, _: Option<&[String]>) -> Result<u64, QueueError> {
        Ok(0)
    }

    fn blocked(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.blocked.subscribe()
    }

    async fn ping(&self) -> Result<(), QueueError> {
        Ok(())
    }

    async fn describe(&self) -> Result<String, QueueError> {
        Ok(String::new())
    }

    async fn close(&self) {}
}

const SETTINGS: PublisherSettings = PublisherSettings {
    batch_jobs: 4,
    batch_bytes: 10_000,
    window: 1,
    waiting: 100,
    timeout: Duration::from_secs(10),
};

fn start(queue: &Arc<Scripted>, settings: PublisherSettings) -> (Arc<Publisher>, PublisherTask) {
    let (publisher, task) = Publisher::start(queue.clone(), settings, Arc::default());
    (Arc::new(publisher), task)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn job(bytes: usize) -> Vec<u8> {
    let payload = Payload {
        message_id: MessageId::issue(&"a".parse().unwrap()),
        app_id: "a".parse().unwrap(),
        kind: 2,
        notification: None,
        data: Some([("k".into(), "x".repeat(bytes).into())].into()),
        accepted_at: UnixMillis(0),
        expires_at: UnixMillis(1),
    };
    encode_job(&payload, &Audience::All, 0, 0).unwrap()
}

/// A push on its way, as a request would wait for it.
fn push(publisher: &Arc<Publisher>, bytes: usize) -> JoinHandle<Result<(), NotPublished>> {
    let publisher = Arc::clone(publisher);
    let memory = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    tokio::spawn(async move { publisher.publish(job(bytes), memory).await })
}

/// A request with so many pushes on its way, and how many bundles they are.
fn push_all(
    publisher: &Arc<Publisher>,
    pushes: usize,
) -> (JoinHandle<Vec<Result<(), NotPublished>>>, usize) {
    let mut bundles = publisher.bundles(pushes, 0);
    for _ in 0..pushes {
        bundles.add(&job(1));
    }
    let bundles: Vec<_> = bundles.finish().into_iter().map(|bundle| (bundle, None)).collect();
    let (publisher, count) = (Arc::clone(publisher), bundles.len());
    (tokio::spawn(async move { publisher.publish_all(bundles).await }), count)
}

/// Lets every task go on until all of them wait.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lone_push_goes_at_once_and_the_next_batch_grows_while_the_window_is_full() {
    let queue = Scripted::new(0, false);
    let (publisher, task) = start(&queue, SETTINGS);
    let first = push(&publisher, 1);
    settle().await;
    assert_eq!(queue.batches(), [1]);
    let rest: Vec<_> = (0..6).map(|_| push(&publisher, 1)).collect();
    settle().await;
    assert_eq!(queue.batches(), [1], "the window is full");
    assert!(!first.is_finished(), "nothing is answered before its confirm");
    queue.confirms.add_permits(10);
    assert_eq!(first.await.unwrap(), Ok(()));
    for push in rest {
        assert_eq!(push.await.unwrap(), Ok(()));
    }
    assert_eq!(queue.batches(), [1, 4, 2], "a batch is bounded by its number of pushes");
    task.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_goes_when_it_is_as_large_as_all_that_waits_for_confirms_or_when_less_does() {
    let queue = Scripted::new(0, false);
    let (publisher, task) =
        start(&queue, PublisherSettings { window: 4, batch_jobs: 100, ..SETTINGS });
    let mut pushes = Vec::new();
    let steps: [&[usize]; 6] = [&[1], &[1, 1], &[1, 1], &[1, 1, 2], &[1, 1, 2], &[1, 1, 2]];
    for batches in steps {
        pushes.push(push(&publisher, 1));
        settle().await;
        assert_eq!(queue.batches(), batches);
    }
    queue.confirms.add_permits(2);
    settle().await;
    assert_eq!(queue.batches(), [1, 1, 2, 2], "two wait, and two are left unconfirmed");
    pushes.push(push(&publisher, 1));
    settle().await;
    assert_eq!(queue.batches(), [1, 1, 2, 2], "four are unconfirmed now");
    queue.confirms.add_permits(10);
    for push in pushes {
        assert_eq!(push.await.unwrap(), Ok(()));
    }
    assert_eq!(queue.batches(), [1, 1, 2, 2, 1]);
    task.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_bounded_by_its_bytes_and_a_larger_push_goes_alone() {
    let queue = Scripted::new(0, false);
    let (publisher, task) = start(&queue, SETTINGS);
    let mut pushes = vec![push(&publisher, 1)];
    settle().await;
    for bytes in [4_000, 4_000, 4_000, 20_000, 1] {
        pushes.push(push(&publisher, bytes));
        settle().await;
    }
    queue.confirms.add_permits(10);
    for push in pushes {
        assert_eq!(push.await.unwrap(), Ok(()));
    }
    assert_eq!(queue.batches(), [1, 2, 1, 1, 1]);
    task.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_batch_answers_all_of_its_pushes_with_an_error_and_the_next_one_is_tried() {
    let queue = Scripted::new(10, true);
    let (publisher, task) = start(&queue, SETTINGS);
    assert_eq!(push(&publisher, 1).await.unwrap(), Err(NotPublished::Refused));
    assert_eq!(push(&publisher, 1).await.unwrap(), Err(NotPublished::Refused));
    assert_eq!(queue.batches(), [1, 1]);
    task.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn a_push_that_cannot_wait_is_refused_at_once() {
    let queue = Scripted::new(0, false);
    let (publisher, _task) = start(&queue, PublisherSettings { waiting: 2, ..SETTINGS });
    let _first = push(&publisher, 1);
    settle().await;
    let _waiting = [push(&publisher, 1), push(&publisher, 1)];
    settle().await;
    assert_eq!(push(&publisher, 1).await.unwrap(), Err(NotPublished::Full));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_never_confirms_does_not_hold_a_push_for_ever() {
    let queue = Scripted::new(0, false);
    let (publisher, task) = start(&queue, SETTINGS);
    let (first, second) = (push(&publisher, 1), push(&publisher, 1));
    assert_eq!(first.await.unwrap(), Err(NotPublished::Late));
    assert_eq!(second.await.unwrap(), Err(NotPublished::Late));
    task.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn while_the_queue_is_blocked_every_push_is_refused_at_once_with_the_reason() {
    let queue = Scripted::new(0, false);
    let (publisher, task) = start(&queue, SETTINGS);
    let begun = Instant::now();
    let in_flight = push(&publisher, 1);
    settle().await;
    let waiting = push(&publisher, 1);
    settle().await;
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
    task.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn a_metric_says_whether_the_queue_is_blocked() {
    let queue = Scripted::new(0, false);
    queue.block(Some("low on disk"));
    let metrics = Arc::new(Metrics::default());
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let (_publisher, _task) = Publisher::start(queue.clone(), SETTINGS, metrics);
    for (reason, value) in [(Some("low on disk"), 1), (None, 0), (Some("low on memory"), 1)] {
        queue.block(reason);
        settle().await;
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = format!("push_ingest_queue_blocked {value}\n");
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_push_whose_client_hung_up_is_published_all_the_same() {
    let queue = Scripted::new(0, false);
    let (publisher, task) = start(&queue, SETTINGS);
    let _first = push(&publisher, 1);
    settle().await;
    let gone = push(&publisher, 1);
    settle().await;
    gone.abort();
    settle().await;
    queue.confirms.add_permits(10);
    task.finish(soon()).await;
    assert_eq!(queue.batches(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_stopping_publisher_finishes_what_waits_and_takes_nothing_new() {
    let queue = Scripted::new(0, false);
    let (publisher, task) = start(&queue, SETTINGS);
    let pushes: Vec<_> = (0..9).map(|_| push(&publisher, 1)).collect();
    settle().await;
    let finish = tokio::spawn(task.finish(soon()));
    settle().await;
    assert!(!finish.is_finished());
    let begun = Instant::now();
    queue.confirms.add_permits(10);
    assert!(finish.await.unwrap());
    assert_eq!(begun.elapsed(), Duration::ZERO, "it does not wait for its deadline");
    for push in pushes {
        assert_eq!(push.await.unwrap(), Ok(()));
    }
    assert_eq!(push(&publisher, 1).await.unwrap(), Err(NotPublished::Stopping));
}

#[tokio::test(start_paused = true)]
async fn a_stopping_publisher_does_not_wait_for_a_queue_beyond_its_deadline() {
    let queue = Scripted::new(0, false);
    let (publisher, task) = start(&queue, SETTINGS);
    let _stuck = push(&publisher, 1);
    settle().await;
    let waiting = push(&publisher, 1);
    settle().await;
    let begun = Instant::now();
    task.finish(begun + Duration::from_secs(1)).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(waiting.await.unwrap(), Err(NotPublished::Stopping));
}

#[tokio::test(start_paused = true)]
async fn the_pushes_of_one_request_are_in_few_envelopes_and_go_at_once() {
    let queue = Scripted::new(0, false);
    let (publisher, task) = start(&queue, PublisherSettings { window: 4, ..SETTINGS });
    let (request, bundles) = push_all(&publisher, 7);
    settle().await;
    assert_eq!(bundles, 2);
    assert_eq!(queue.batches(), [4, 3], "the second waits for no confirm of the first");
    assert!(!request.is_finished(), "nothing is answered before its confirm");
    queue.confirms.add_permits(1);
    settle().await;
    assert!(!request.is_finished());
    queue.confirms.add_permits(1);
    assert_eq!(request.await.unwrap(), [Ok(()), Ok(())]);
    task.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn single_pushes_and_those_of_a_request_share_envelopes_within_their_bounds() {
    let queue = Scripted::new(0, false);
    let (publisher, task) = start(&queue, SETTINGS);
    let first = push(&publisher, 1);
    settle().await;
    let before = push(&publisher, 1);
    settle().await;
    let (request, _) = push_all(&publisher, 6);
    settle().await;
    let behind = push(&publisher, 1);
    settle().await;
    assert_eq!(queue.batches(), [1], "the window is full");
    queue.confirms.add_permits(10);
    assert_eq!(request.await.unwrap(), [Ok(()), Ok(())]);
    for push in [first, before, behind] {
        assert_eq!(push.await.unwrap(), Ok(()));
    }
    assert_eq!(queue.batches(), [1, 4, 4], "one and three, then three and one");
    task.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn requests_with_many_pushes_take_half_of_the_line_and_the_rest_is_for_single_ones() {
    let queue = Scripted::new(0, false);
    let (publisher, task) = start(&queue, PublisherSettings { waiting: 8, ..SETTINGS });
    let first = push(&publisher, 1);
    settle().await;
    let (request, bundles) = push_all(&publisher, 5);
    settle().await;
    assert_eq!((bundles, queue.batches()), (2, vec![1]));
    let singles: Vec<_> = (0..5).map(|_| push(&publisher, 1)).collect();
    settle().await;
    let one_too_many = push(&publisher, 1);
    assert_eq!(one_too_many.await.unwrap(), Err(NotPublished::Full), "eight wait");
    let (late, _) = push_all(&publisher, 1);
    assert_eq!(late.await.unwrap(), [Err(NotPublished::Full)]);
    queue.confirms.add_permits(10);
    assert_eq!(request.await.unwrap(), [Ok(()), Err(NotPublished::Full)], "three and no more");
    for push in singles {
        assert_eq!(push.await.unwrap(), Ok(()));
    }
    assert_eq!(first.await.unwrap(), Ok(()));
    task.finish(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn every_bundle_of_a_request_is_answered_whatever_becomes_of_the_queue() {
    let queue = Scripted::new(10, true);
    let (publisher, task) = start(&queue, SETTINGS);
    let refused = vec![Err(NotPublished::Refused); 2];
    assert_eq!(push_all(&publisher, 5).0.await.unwrap(), refused);
    task.finish(soon()).await;
    let stopping = vec![Err(NotPublished::Stopping); 2];
    assert_eq!(push_all(&publisher, 5).0.await.unwrap(), stopping);

    let queue = Scripted::new(0, false);
    let (publisher, _task) = start(&queue, SETTINGS);
    let (waits, _) = push_all(&publisher, 5);
    settle().await;
    queue.block(Some("low on memory"));
    let blocked = vec![Err(NotPublished::Blocked("low on memory".into())); 2];
    assert_eq!(waits.await.unwrap(), blocked);
    assert_eq!(push_all(&publisher, 5).0.await.unwrap(), blocked);
    assert_eq!(queue.batches(), [3], "nothing more was sent");
}

#[tokio::test(start_paused = true)]
async fn the_pushes_of_a_request_whose_client_hung_up_are_published_all_the_same() {
    let queue = Scripted::new(0, false);
    let (publisher, task) = start(&queue, SETTINGS);
    let (request, _) = push_all(&publisher, 6);
    settle().await;
    request.abort();
    settle().await;
    queue.confirms.add_permits(10);
    task.finish(soon()).await;
    assert_eq!(queue.batches(), [3, 3]);
}

#[tokio::test]
async fn a_publisher_that_fails_ends_the_service_after_everybody_is_answered() {
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: IngestArgs,
    }
    let settings = Cli::parse_from(["ingest"])
        .args
        .check(Some(Retention::all(Duration::from_secs(60))), &mut Mistakes::default())
        .unwrap();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("index");
    let index = SqliteIndex::open(&file, "test", Default::default()).await.unwrap();
    let index: Arc<dyn Index> = Arc::new(index);
    let secret = Secret::generate();
    index.create_app(&App::new("a".parse().unwrap(), &secret, UnixMillis(0))).await.unwrap();
    let queue = Scripted::new(0, false);
    queue.confirms.close();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let running = crate::run(settings, listener, queue, index, CancellationToken::new());
    let running = tokio::spawn(running);

    let body = r#"{"type":1,"time_to_live":60,"condition":{"type":0}}"#;
    let (length, secret) = (body.len(), secret.expose());
    let request = format!(
        "POST /v1/message/push/a HTTP/1.1\r\nhost: a\r\nauthorization: {secret}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(running.await.unwrap(), Err(RunError::Publisher));
}

//! Stopping: what was begun is finished, within the drain deadline.

use std::time::{Duration, Instant};

use push_ingest::RunError;
use tokio::net::TcpStream;

use crate::{
    client::{Connection, Request, VALID},
    service::Service,
};

#[tokio::test]
async fn a_stopping_service_finishes_what_it_began_and_takes_nothing_new() {
    let service = Service::start(&[]).await;
    let push = Request::push(&service, VALID);
    let (mut begun, mut idle) =
        (Connection::open(service.address).await, Connection::open(service.address).await);
    for connection in [&mut begun, &mut idle] {
        connection.send(push.bytes()).await;
        assert_eq!(connection.answer().await.http, 200);
    }
    begun.send(push.head()).await;
    begun.send(&VALID[..10]).await;
    // Answered over another connection: by then the service has read what was sent before.
    assert_eq!(push.send(&service).await.http, 200);

    service.shutdown.cancel();
    assert!(idle.is_ended().await, "an idle connection is ended");
    assert!(TcpStream::connect(service.address).await.is_err(), "nobody listens any more");
    begun.send(&VALID[10..]).await;
    let answer = begun.answer().await;
    assert_eq!(answer.http, 200);
    assert!(begun.is_ended().await);
    let jobs = service.jobs(4).await;
    assert!(jobs.iter().any(|job| job.head.message_id.to_string() == answer.message_id()));
    service.stopped().await.unwrap();
}

#[tokio::test]
async fn what_does_not_end_is_cut_off_at_the_drain_deadline() {
    let service = Service::start(&["--drain-deadline=1s"]).await;
    let push = Request::push(&service, VALID);
    let mut stuck = Connection::open(service.address).await;
    stuck.send(push.head()).await;
    assert_eq!(push.send(&service).await.http, 200);
    let told = Instant::now();
    assert_eq!(service.stop().await, Err(RunError::CutOff { connections: 1 }));
    assert!(told.elapsed() < Duration::from_secs(10), "the body timeout is 15 s");
}

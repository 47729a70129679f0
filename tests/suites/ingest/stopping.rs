//! Stopping: requests that were begun are finished within the drain deadline.

use std::time::{Duration, Instant};

use push_ingest::RunError;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::ingest::{
    support::client::{Connection, Request, VALID},
    support::service::{DEADLINE, Service},
};

/// Duration from which a write counts as waiting for the other side to read.
const STALLED: Duration = Duration::from_secs(1);

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
    assert!(TcpStream::connect(service.address).await.is_err(), "the port is closed");
    begun.send(&VALID[10..]).await;
    let answer = begun.answer().await;
    assert_eq!(answer.http, 200);
    assert!(begun.is_ended().await);
    let jobs = service.jobs(4).await;
    assert!(jobs.iter().any(|job| job.head.message_id.to_string() == answer.message_id()));
    service.stopped().await.unwrap();
}

#[tokio::test]
async fn an_http_2_client_that_answers_nothing_holds_no_stop_up() {
    // The preface and an empty SETTINGS frame (RFC 9113 sections 3.4 and 6.5).
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let service = Service::start(&[]).await;
    let mut silent = TcpStream::connect(service.address).await.unwrap();
    silent.write_all(PREFACE).await.unwrap();
    // The head of the service's own SETTINGS frame: it takes the connection for HTTP/2.
    silent.read_exact(&mut [0; 9]).await.unwrap();
    // It acknowledges neither these nor the PING with which a graceful end begins.
    service.stop().await.expect("no connection is cut off at the drain deadline");
}

#[tokio::test]
async fn a_client_that_reads_late_gets_its_answers_and_holds_a_stopping_service_up_no_longer() {
    let service = Service::start(&["--tune=idle-timeout=1h"]).await;
    let (reader, mut writer) = TcpStream::connect(service.address).await.unwrap().into_split();
    // Until the unread answers fill the buffers of both sockets, and the service can only wait. They
    // are all the same and of no path that is described, so they are counted and not checked.
    let many = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(10_000);
    let mut sent = 0;
    while let Ok(written) = timeout(STALLED, writer.write(&many[sent % many.len()..])).await {
        sent += written.unwrap();
    }
    service.shutdown.cancel();
    let mut lines = BufReader::new(reader).lines();
    let (mut answers, mut closes) = (0, 0);
    while let Some(line) = timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap() {
        answers += usize::from(line.contains("HTTP/1.1 404"));
        closes += usize::from(line == "connection: close");
    }
    assert!(answers > 1000, "{answers} answers to {sent} bytes");
    assert_eq!(closes, 1, "the last answer says that it is the last");
    service.stopped().await.unwrap();
}

#[tokio::test]
async fn clients_that_never_read_their_answers_hold_no_stop_up() {
    let service = Service::start(&["--tune=idle-timeout=1h"]).await;
    let mut deaf = TcpStream::connect(service.address).await.unwrap();
    let many = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(200);
    let _ = timeout(STALLED, deaf.write_all(&many)).await;
    // Until the service can only wait for the client to read.
    tokio::time::sleep(STALLED).await;
    let told = Instant::now();
    service.stop().await.expect("no connection is cut off at the drain deadline");
    let took = told.elapsed();
    assert!(took > STALLED, "after {took:?}: the answers were not waited for");
    drop(deaf);
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

//! The bounds on the data that one client, and all clients together, may make the service hold.

use crate::ingest::{
    support::client::{Answer, Connection, Request, VALID},
    support::service::{DEADLINE, Service},
};

/// A valid push of exactly this many bytes.
fn push_of(bytes: usize) -> String {
    let filler = bytes - VALID.len() - r#","x":"""#.len();
    format!(r#"{},"x":"{}"}}"#, &VALID[..VALID.len() - 1], "x".repeat(filler))
}

#[tokio::test]
async fn a_body_may_be_as_large_as_the_limit_and_one_byte_more_is_413() {
    let service = Service::start(&["--tune=max-body=2KiB"]).await;
    assert_eq!(push_of(2048).len(), 2048);
    let at = Request::push(&service, push_of(2048));
    let past = Request::push(&service, push_of(2049));
    for (request, http, status) in [
        (at.clone(), 200, 200),
        (past.clone(), 413, 21005),
        (at.chunked(100), 200, 200),
        (past.chunked(100), 413, 21005),
    ] {
        let answer = request.send(&service).await;
        assert_eq!((answer.http, answer.status()), (http, status), "{}", answer.text);
        if http == 413 {
            assert_eq!(answer.message(), "Message illegal: the body must be at most 2048 bytes");
        }
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn who_sends_far_more_than_allowed_can_still_read_the_answer() {
    let service = Service::start(&["--tune=max-body=64KiB"]).await;
    let huge = Request::push(&service, vec![b' '; 4_000_000]);
    for request in [huge.clone(), huge.chunked(10_000)] {
        let mut connection = Connection::open(service.address).await;
        // All of it is sent before anything is read.
        connection.send(request.bytes()).await;
        connection.answer().await.expect(413, 21005, "Message illegal: the body must be at most");
        assert!(connection.is_ended().await);
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn size_is_checked_after_the_media_type_and_before_the_content() {
    let service = Service::start(&["--tune=max-body=1KiB"]).await;
    let huge = Request::push(&service, "x".repeat(5000));
    huge.send(&service).await.expect(413, 21005, "Message illegal: the body must be");
    let other = huge.without("Content-Type");
    other.send(&service).await.expect(415, 21005, "Message illegal: Content-Type");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_head_beyond_the_limit_is_431_in_the_documented_shape() {
    let service = Service::start(&["--tune=max-header=4KiB"]).await;
    let push = Request::push(&service, VALID);
    assert_eq!(push.clone().header("X", "x".repeat(3000)).send(&service).await.http, 200);
    let check = |answer: Answer| answer.expect(431, 431, "the request's headers are too large");
    check(push.clone().header("X", "x".repeat(5000)).send(&service).await);
    check(push.clone().header("X", "x".repeat(200_000)).send(&service).await);
    check(push.clone().path(&format!("/{}", "x".repeat(5000))).send(&service).await);
    check(push.clone().path(&format!("/{}", "x".repeat(100_000))).send(&service).await);
    let mut many = push;
    for i in 0..500 {
        many = many.header(&format!("X{i}"), "");
    }
    check(many.send(&service).await);
    service.stop().await.unwrap();
}

const TURNED_AWAY: &str = "push_ingest_turned_away_total";

/// Waits until the metric says that so many connections are open.
async fn are_open(service: &Service, connections: u64) {
    push_tests::eventually("open connections are counted", DEADLINE, async || {
        match service.counter("push_ingest_connections") {
            seen if seen == connections => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await;
}

/// Connections in the middle of a body.
async fn in_use(service: &Service, connections: usize) -> Vec<Connection> {
    let mut in_use = Vec::new();
    for _ in 0..connections {
        let mut connection = Connection::open(service.address).await;
        connection.send(Request::push(service, VALID).head()).await;
        in_use.push(connection);
    }
    in_use
}

/// Connections that are in use, and the refusal of one more. A connection counts as in use for a second
/// while its body does not come, so a machine that is slower than that makes another try.
async fn refused(service: &Service, connections: usize) -> (Vec<Connection>, Answer) {
    push_tests::eventually("a connection is refused", DEADLINE, async || {
        let in_use = in_use(service, connections).await;
        let answer = Request::push(service, VALID).send(service).await;
        if answer.http == 503 { Ok((in_use, answer)) } else { Err(answer.text) }
    })
    .await
}

#[tokio::test]
async fn a_connection_too_many_is_answered_503_while_all_are_in_use() {
    for (flags, why) in [
        (
            ["--max-connections=2", "--max-connections-per-address=9"],
            "try again: the service has no room for more connections",
        ),
        (
            ["--max-connections=9", "--max-connections-per-address=2"],
            "try again: this address has as many connections in use as it may have",
        ),
    ] {
        let service = Service::start(&flags).await;
        assert_eq!(service.counter(TURNED_AWAY), 0);
        let (mut in_use, answer) = refused(&service, 2).await;
        answer.expect(503, 503, why);
        assert!(service.counter(TURNED_AWAY) > 0);
        are_open(&service, 2).await;
        assert!(answer.header("retry-after").is_some());
        for connection in &mut in_use {
            connection.send(VALID).await;
            assert_eq!(connection.answer().await.http, 200, "none was closed for another");
        }
        drop(in_use);
        push_tests::eventually("there is room again", DEADLINE, async || {
            Request::push(&service, VALID).send(&service).await.is(200)
        })
        .await;
        are_open(&service, 0).await;
        service.stop().await.unwrap();
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_for_a_new_one() {
    let service = Service::start(&["--max-connections=2"]).await;
    let push = Request::push(&service, VALID);
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(Connection::open(service.address).await);
    }
    // Half of the two connections are for one address: each took the place of the one before it.
    let mut last = silent.pop().unwrap();
    for mut connection in silent {
        assert!(connection.is_ended().await);
    }
    last.send(push.bytes()).await;
    assert_eq!(last.answer().await.http, 200);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn bodies_share_a_bounded_memory() {
    let flags = [
        "--tune=max-body=64KiB",
        "--max-batch-body=16KiB",
        "--max-batch-lines=16",
        "--max-buffered=64KiB",
    ];
    let service = Service::start(&flags).await;
    let large = push_of(60_000);
    let (begin, end) = large.split_at(55_000);
    let mut slow = Vec::new();
    // Once most of a slow one has arrived, there is no memory for another.
    push_tests::eventually("the memory is full", DEADLINE, async || {
        // A push that is in work meanwhile may leave too little for one of them.
        let mut one = Connection::open(service.address).await;
        one.send(Request::push(&service, &large).head()).await;
        one.send(begin).await;
        slow.push(one);
        let answer = Request::push(&service, push_of(10_000)).send(&service).await;
        if answer.status() == 503 { Ok(()) } else { Err(answer.text) }
    })
    .await;
    assert_eq!(Request::push(&service, VALID).send(&service).await.http, 200, "a small one fits");
    assert_eq!(service.counter("push_ingest_body_memory_limit_bytes"), 64 << 10);
    let mut finished = 0;
    for mut one in slow {
        one.send(end).await;
        finished += u32::from(one.answer().await.http == 200);
    }
    assert!(finished > 0, "what has its memory is finished");
    assert_eq!(Request::push(&service, push_of(10_000)).send(&service).await.http, 200);
    service.stop().await.unwrap();
}

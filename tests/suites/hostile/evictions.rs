//! A service whose connections are all taken, and the fate of those that make room.

use std::{net::Ipv4Addr, time::Duration};

use push_tests::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use crate::hostile::{
    support::{
        client::{Connection, Request, VALID},
        service::{DEADLINE, Service},
    },
    tenants::Neighbour,
};

/// Counts the evicted connections.
const EVICTED: &str = "push_ingest_evicted_total";

/// A connection from this address of the loopback network.
async fn connect(from: [u8; 4], service: &Service) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::from(from), 0).into()).unwrap();
    timeout(DEADLINE, socket.connect(service.address)).await.expect("in time").unwrap()
}

#[tokio::test]
async fn slow_bodies_from_many_addresses_shut_no_other_out() {
    // No body ends by itself while this test lasts.
    let flags = ["--max-connections=40", "--tune=body-timeout=5min", "--tune=min-body-rate=0B"];
    let service = Service::start(&flags).await;
    let neighbour = Neighbour::of(&service).await;
    let mut slow = Vec::new();
    for n in 0..100 {
        let mut attacker = connect([127, 0, 0, 2 + n % 4], &service).await;
        attacker.write_all(&Request::push(&service, VALID).head()).await.unwrap();
        let _ = attacker.write_all(b"{").await;
        slow.push(attacker);
    }
    eventually("the neighbour's push is taken", DEADLINE, async || {
        let mut connection = Connection::open(service.address).await;
        connection.send(neighbour.push(&service, VALID).bytes()).await;
        match connection.try_answer().await {
            Ok(Some(answer)) if answer.http == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    drop(slow);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn clients_that_never_read_their_answers_shut_no_other_out() {
    const ATTACKERS: u8 = 40;
    let ask = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3);
    let service = Service::start(&["--max-connections=40"]).await;
    let deaf = async |n: u8| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, 2 + n % 2), 0).into()).unwrap();
        let mut deaf = timeout(DEADLINE, socket.connect(service.address)).await.unwrap().unwrap();
        // It may have been answered 503 already.
        let _ = deaf.write_all(&ask).await;
        deaf
    };
    let mut attackers = Vec::new();
    for n in 0..ATTACKERS {
        attackers.push(deaf(n).await);
    }
    // A client that takes nothing makes room only after a second, which this test cannot shorten.
    sleep(Duration::from_millis(1500)).await;
    let evicted = service.counter(EVICTED);
    for n in 0..20 {
        // The address of `Connection` is 127.0.0.1.
        let mut connection = Connection::open(service.address).await;
        connection.send(Request::push(&service, VALID).bytes()).await;
        let answer = connection.try_answer().await;
        assert!(matches!(&answer, Ok(Some(answer)) if answer.http == 200), "{n}: {answer:?}");
        drop(connection);
        attackers.push(deaf(n).await);
    }
    assert!(service.counter(EVICTED) > evicted, "the attackers took all room");
    drop(attackers);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_connection_that_makes_room_says_so_over_http_2() {
    let service = Service::start(&["--max-connections=1"]).await;
    let mut first = connect([127, 0, 0, 2], &service).await;
    first.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    // The service's settings, and that it has read the client's.
    let mut received = Vec::new();
    let acknowledged = b"\0\0\0\x04\x01\0\0\0\0";
    while !received.windows(9).any(|frame| frame == acknowledged) {
        let n = timeout(DEADLINE, first.read_buf(&mut received)).await.expect("in time").unwrap();
        assert!(n > 0);
    }
    received.clear();
    eventually("another one is served", DEADLINE, async || {
        let mut connection = Connection::open(service.address).await;
        connection.send(Request::push(&service, VALID).bytes()).await;
        match connection.try_answer().await {
            Ok(Some(answer)) if answer.http == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let ended = timeout(DEADLINE, first.read_to_end(&mut received)).await.expect("it ends");
    ended.unwrap();
    // A frame of type 7, GOAWAY, of stream 0.
    assert_eq!(received.get(3..9), Some(&b"\x07\0\0\0\0\0"[..]), "{received:?}");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_push_over_a_connection_that_makes_room_is_answered_or_was_not_taken() {
    // Each connection that is opened takes the place of another one of the two.
    let service = Service::start(&["--max-connections=4", "--max-connections-per-address=2"]).await;
    let (mut answered, mut met) = (0, 0);
    for round in 0..40 {
        let mut connection = Connection::open(service.address).await;
        connection.send(Request::push(&service, VALID).bytes()).await;
        let first = connection.try_answer().await;
        answered += usize::from(matches!(&first, Ok(Some(answer)) if answer.http == 200));
        // From now on it may be closed; the next push races with that.
        sleep(Duration::from_millis(100)).await;
        let evicted = service.counter(EVICTED);
        let newcomers = async {
            for _ in 0..3 {
                drop(connect([127, 0, 0, 1], &service).await);
            }
        };
        let pushes = async {
            for _ in 0..round % 4 {
                tokio::task::yield_now().await;
            }
            connection.send(Request::push(&service, VALID).bytes()).await;
            connection.try_answer().await
        };
        let (second, ()) = tokio::join!(pushes, newcomers);
        let is_answered = matches!(&second, Ok(Some(answer)) if answer.http == 200);
        answered += usize::from(is_answered);
        met += usize::from(!is_answered && service.counter(EVICTED) > evicted);
    }
    assert!(answered > 0 && met > 0, "{answered} answered, {met} met an eviction");
    let last = service.jobs(answered).await.len();
    assert_eq!(last, answered, "what was stored and not answered would be there besides");
    service.wait_for_depth(0).await;
    service.stop().await.unwrap();
}

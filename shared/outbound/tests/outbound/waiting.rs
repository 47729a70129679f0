//! Requests that wait for a connection, and the bounds of what a process holds.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use push_outbound::{
    CLOSE_WAIT, Exchange, Limits, NotProcessed, Outbound, OutboundSettings, Unanswered,
};
use tokio::{net::TcpListener, task::JoinSet, time::Instant};

use crate::support::{
    all_answered, eventually, insist, keyed, listen, not_processed, outbound, patient, plain, post,
    send, spawn, take, unanswered,
    wire::{Sent, Wire},
};

#[tokio::test]
async fn requests_wait_in_the_order_in_which_they_came_and_one_that_is_given_up_delays_no_other() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let client = plain(&outbound, address);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut requests = JoinSet::new();
    for n in 0..6 {
        let (sender, order) = (client.clone(), Arc::clone(&order));
        requests.spawn(async move {
            let patience = Duration::from_millis(if n % 2 == 0 { 20_000 } else { 200 });
            let sent = sender.send(post("/", ""), Instant::now() + patience).await;
            order.lock().unwrap().push(n);
            sent
        });
        tokio::task::yield_now().await;
    }
    let mut wire = Wire::accept(&listener, Some(1)).await;
    let [id] = take(&mut wire).await;
    let lost = || order.lock().unwrap().len() == 3;
    eventually("those without patience are given up", lost).await;
    wire.answer(id).await;
    for _ in 0..2 {
        let [id] = take(&mut wire).await;
        wire.answer(id).await;
    }
    let results = requests.join_all().await;
    let late = |sent: &&Exchange| matches!(sent, Exchange::NotProcessed(NotProcessed::Late));
    assert_eq!(results.iter().filter(late).count(), 3);
    let order = order.lock().unwrap();
    assert_eq!(order[3..], [0, 2, 4]);
}

#[tokio::test]
async fn origins_and_keys_have_connections_apart_and_the_unused_are_forgotten_first() {
    let (listener, address) = listen().await;
    // A quarter of the connections is the operator's.
    let limits = Limits { connections_per_origin: 1, connections: 8, origins: 3 };
    let outbound = Outbound::new(OutboundSettings { limits, ..patient() }).unwrap();
    let accepted = serve_all(listener);
    for key in ["a", "b", "a", "c", "d", "e", "a", "b"] {
        assert_eq!(insist(&keyed(&outbound, address, key), "/").await.status, 200);
        assert!(outbound.counts().connections <= 2);
    }
    assert!(accepted.load(Ordering::Relaxed) >= 5);
    assert_eq!(outbound.counts().connects_failed, 0);
}

fn serve_all(listener: TcpListener) -> Arc<AtomicUsize> {
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        loop {
            let mut wire = Wire::accept(&listener, None).await;
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move { wire.serve().await });
        }
    });
    accepted
}

#[tokio::test]
async fn only_so_many_requests_wait_and_a_large_request_is_not_sent() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let client = plain(&outbound, address);
    let mut requests = JoinSet::new();
    spawn(&mut requests, &client, 5000);
    let full = |sent: &Exchange| matches!(sent, Exchange::NotProcessed(NotProcessed::Full));
    for _ in 0..(5000 - 4096) {
        assert!(full(&requests.join_next().await.unwrap().unwrap()));
    }
    tokio::spawn(async move { Wire::accept(&listener, None).await.serve().await });
    assert_eq!(all_answered(requests).await, 4096);

    let large = Request::post("/").body(Bytes::from(vec![0; 1024 * 1024 + 1])).unwrap();
    let sent = client.send(large, Instant::now() + Duration::from_secs(5)).await;
    assert_eq!(not_processed(sent), NotProcessed::Unsendable);
}

#[tokio::test]
async fn closing_waits_for_requests_in_flight_and_takes_no_more() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let client = plain(&outbound, address);
    let mut requests = JoinSet::new();
    spawn(&mut requests, &client, 2);
    let mut wire = Wire::accept(&listener, Some(1)).await;
    let [id] = take(&mut wire).await;
    let closing = tokio::spawn(async move { outbound.close().await });
    let waiting = not_processed(requests.join_next().await.unwrap().unwrap());
    assert_eq!(waiting, NotProcessed::Closing);
    assert_eq!(not_processed(send(&client, "/").await), NotProcessed::Closing);
    assert!(!closing.is_finished());
    wire.answer(id).await;
    assert_eq!(all_answered(requests).await, 1);
    assert_eq!(wire.next().await, Sent::End);
    closing.await.unwrap();
}

#[tokio::test]
async fn closing_waits_neither_for_idle_connections_nor_for_connects() {
    let (listener, address) = listen().await;
    let (silent, nowhere) = listen().await;
    let outbound = outbound(1);
    tokio::spawn(async move { Wire::accept(&listener, None).await.serve().await });
    assert_eq!(insist(&plain(&outbound, address), "/").await.status, 200);
    let mut requests = JoinSet::new();
    spawn(&mut requests, &plain(&outbound, nowhere), 1);
    let _connecting = silent.accept().await.unwrap();
    let begun = Instant::now();
    outbound.close().await;
    assert!(begun.elapsed() < CLOSE_WAIT, "{:?}", begun.elapsed());
    let waiting = not_processed(requests.join_next().await.unwrap().unwrap());
    assert_eq!(waiting, NotProcessed::Closing);
}

#[tokio::test]
async fn closing_does_not_wait_for_an_answer_that_never_comes() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let mut requests = JoinSet::new();
    spawn(&mut requests, &plain(&outbound, address), 1);
    let mut wire = Wire::accept(&listener, None).await;
    let [_] = take(&mut wire).await;
    let begun = Instant::now();
    outbound.close().await;
    assert!(begun.elapsed() < CLOSE_WAIT * 3, "{:?}", begun.elapsed());
    let left = unanswered(requests.join_next().await.unwrap().unwrap());
    assert_eq!(left, Unanswered::Lost);
    assert_eq!(outbound.counts().connections, 0);
}

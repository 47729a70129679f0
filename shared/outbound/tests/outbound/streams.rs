//! Streams of HTTP/2: limits that change, refusals, goodbyes.

use std::time::Duration;

use push_outbound::{NotProcessed, Unanswered};
use tokio::{net::TcpStream, task::JoinSet, time::Instant};

use crate::support::{
    all_answered, answered, insist, listen, not_processed, outbound, plain, post, send, spawn,
    take, unanswered,
    wire::{INTERNAL_ERROR, NO_ERROR, REFUSED_STREAM, Sent, Wire},
};

/// Asserts that no further request comes.
async fn nothing_more(wire: &mut Wire<TcpStream>) {
    let more = tokio::time::timeout(Duration::from_millis(100), wire.next()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn no_stream_is_opened_before_the_server_stated_its_limit() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let mut requests = JoinSet::new();
    spawn(&mut requests, &plain(&outbound, address), 2);
    let mut wire = Wire::silent(&listener).await;
    nothing_more(&mut wire).await;
    wire.settings(Some(2)).await;
    for id in take::<2>(&mut wire).await {
        wire.answer(id).await;
    }
    assert_eq!(all_answered(requests).await, 2);
}

#[tokio::test]
async fn a_limit_is_kept_when_the_server_changes_it() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let client = plain(&outbound, address);
    let mut requests = JoinSet::new();
    spawn(&mut requests, &client, 12);
    let mut wire = Wire::accept(&listener, Some(2)).await;
    let first = take::<2>(&mut wire).await;
    nothing_more(&mut wire).await;
    assert_eq!(client.capacity(), 0);

    wire.settings(Some(5)).await;
    let more = take::<3>(&mut wire).await;
    nothing_more(&mut wire).await;

    wire.settings(Some(1)).await;
    for id in first.into_iter().chain(more).take(4) {
        wire.answer(id).await;
        nothing_more(&mut wire).await;
    }
    wire.answer(more[2]).await;
    for _ in 0..7 {
        let [id] = take(&mut wire).await;
        nothing_more(&mut wire).await;
        wire.answer(id).await;
    }
    assert_eq!(all_answered(requests).await, 12);
}

#[tokio::test]
async fn a_server_that_punishes_one_stream_too_many_serves_a_thousand_requests() {
    let (listener, address) = listen().await;
    let outbound = outbound(2);
    let server = tokio::spawn(async move {
        let serve = |mut wire: Wire<_>| async move {
            let mut open = Vec::new();
            let mut served = 0;
            loop {
                // What came together is answered together.
                match tokio::time::timeout(Duration::from_millis(2), wire.next()).await {
                    Ok(Sent::Request(id)) => {
                        open.push(id);
                        assert!(open.len() <= 7, "one stream too many");
                    }
                    Ok(Sent::Ping(payload)) => wire.pong(payload).await,
                    Ok(Sent::Reset(_) | Sent::Room(_)) => {}
                    Ok(Sent::End) => return served,
                    Err(_) => {
                        served += open.len();
                        for id in open.drain(..) {
                            wire.answer(id).await;
                        }
                    }
                }
            }
        };
        let mut serving = JoinSet::new();
        for _ in 0..2 {
            serving.spawn(serve(Wire::accept(&listener, Some(7)).await));
        }
        serving.join_all().await.into_iter().sum::<usize>()
    });
    let client = plain(&outbound, address);
    let mut requests = JoinSet::new();
    spawn(&mut requests, &client, 1000);
    assert_eq!(all_answered(requests).await, 1000);
    outbound.close().await;
    assert_eq!(server.await.unwrap(), 1000);
}

#[tokio::test]
async fn another_connection_is_opened_when_all_streams_are_in_use() {
    let (listener, address) = listen().await;
    let outbound = outbound(2);
    let mut requests = JoinSet::new();
    spawn(&mut requests, &plain(&outbound, address), 5);
    let mut first = Wire::accept(&listener, Some(2)).await;
    let held = take::<2>(&mut first).await;
    let mut second = Wire::accept(&listener, Some(2)).await;
    let also = take::<2>(&mut second).await;
    nothing_more(&mut first).await;
    assert_eq!(outbound.counts().connections, 2);
    first.answer(held[0]).await;
    let [last] = take(&mut first).await;
    for id in [held[1], last] {
        first.answer(id).await;
    }
    for id in also {
        second.answer(id).await;
    }
    assert_eq!(all_answered(requests).await, 5);
}

#[tokio::test]
async fn streams_up_to_the_last_id_of_a_goodbye_finish_and_the_others_were_not_processed() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let client = plain(&outbound, address);
    let mut requests = JoinSet::new();
    spawn(&mut requests, &client, 3);
    let mut wire = Wire::accept(&listener, Some(100)).await;
    let [first, second, _] = take(&mut wire).await;
    wire.goaway(second, NO_ERROR).await;
    let refused = not_processed(requests.join_next().await.unwrap().unwrap());
    assert_eq!(refused, NotProcessed::GoingAway);

    // The next request already goes to a new connection.
    spawn(&mut requests, &client, 1);
    let mut next = Wire::accept(&listener, Some(100)).await;
    let [again] = take(&mut next).await;
    next.answer(again).await;
    wire.answer(first).await;
    wire.answer(second).await;
    assert_eq!(all_answered(requests).await, 3);
    assert_eq!(wire.next().await, Sent::End);
    assert_eq!(outbound.counts().connects_failed, 0);
}

#[tokio::test]
async fn a_refused_stream_was_not_processed_and_lowers_the_number_at_a_time() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let client = plain(&outbound, address);
    let mut requests = JoinSet::new();
    spawn(&mut requests, &client, 4);
    let mut wire = Wire::accept(&listener, Some(100)).await;
    let [a, b, c, d] = take(&mut wire).await;
    wire.reset(d, REFUSED_STREAM).await;
    let refused = not_processed(requests.join_next().await.unwrap().unwrap());
    assert_eq!(refused, NotProcessed::Refused);
    assert_eq!(client.capacity(), 0);
    spawn(&mut requests, &client, 1);
    nothing_more(&mut wire).await;
    wire.answer(a).await;
    let [again] = take(&mut wire).await;
    for id in [b, c, again] {
        wire.answer(id).await;
    }
    assert_eq!(all_answered(requests).await, 4);
}

#[tokio::test]
async fn a_server_that_refuses_requests_at_random_is_asked_again_on_the_same_connection() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let client = plain(&outbound, address);
    let mut requests = JoinSet::new();
    for _ in 0..300 {
        let client = client.clone();
        requests.spawn(async move { insist(&client, "/").await.status });
    }
    // Another connection would not be accepted.
    let mut wire = Wire::accept(&listener, Some(100)).await;
    tokio::spawn(async move {
        let mut begun = 0;
        loop {
            match wire.next().await {
                Sent::Request(id) => {
                    begun += 1;
                    match begun % 3 {
                        0 => wire.reset(id, REFUSED_STREAM).await,
                        _ => wire.answer(id).await,
                    }
                }
                Sent::End => return,
                _ => {}
            }
        }
    });
    let begun = Instant::now();
    assert!(requests.join_all().await.into_iter().all(|status| status == 200));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn another_reset_leaves_it_open_if_the_request_was_processed() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let client = plain(&outbound, address);
    let mut requests = JoinSet::new();
    spawn(&mut requests, &client, 1);
    let mut wire = Wire::accept(&listener, None).await;
    let [id] = take(&mut wire).await;
    wire.reset(id, INTERNAL_ERROR).await;
    let left = unanswered(requests.join_next().await.unwrap().unwrap());
    assert_eq!(left, Unanswered::Reset(INTERNAL_ERROR));
    tokio::spawn(async move { wire.serve().await });
    assert_eq!(answered(send(&client, "/").await).status, 200);
}

#[tokio::test]
async fn a_request_whose_deadline_passes_is_unanswered_and_the_connection_serves_others() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let client = plain(&outbound, address);
    let sender = client.clone();
    let soon = Instant::now() + Duration::from_millis(300);
    let sent = tokio::spawn(async move { sender.send(post("/", ""), soon).await });
    let mut wire = Wire::accept(&listener, Some(1)).await;
    let [id] = take(&mut wire).await;
    assert_eq!(unanswered(sent.await.unwrap()), Unanswered::Late);
    assert_eq!(wire.next().await, Sent::Reset(id));
    let late = tokio::spawn(async move {
        wire.answer(id).await;
        wire.serve().await
    });
    assert_eq!(answered(send(&client, "/").await).status, 200);
    outbound.close().await;
    assert_eq!(late.await.unwrap(), 1);
}

#[tokio::test]
async fn a_connection_that_answers_nothing_is_replaced() {
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let client = plain(&outbound, address);
    let mut sent = JoinSet::new();
    for _ in 0..20 {
        let (client, soon) = (client.clone(), Instant::now() + Duration::from_millis(300));
        sent.spawn(async move { client.send(post("/", ""), soon).await });
    }
    let mut silent = Wire::accept(&listener, None).await;
    let read = tokio::spawn(async move { while silent.next().await != Sent::End {} });
    sent.join_all().await.into_iter().for_each(|sent| _ = unanswered(sent));
    read.await.unwrap();
    tokio::spawn(async move { Wire::accept(&listener, None).await.serve().await });
    assert_eq!(insist(&client, "/").await.status, 200);
}

#[tokio::test]
async fn a_body_without_an_end_is_cut_where_nothing_more_is_kept_and_the_connection_serves_others()
{
    const ROOM: usize = 64 * 1024;
    let (listener, address) = listen().await;
    let outbound = outbound(1);
    let client = plain(&outbound, address);
    let server = tokio::spawn(async move {
        let mut wire = Wire::accept(&listener, Some(1)).await;
        let mut resets = 0;
        loop {
            match wire.next().await {
                Sent::Request(id) => {
                    wire.begin_answer(id).await;
                    for _ in 0..ROOM / 8192 {
                        wire.piece(id, &[b'a'; 8192]).await;
                    }
                    wire.piece(id, b"b").await;
                }
                Sent::Room(id) => panic!("more of the body of {id} is asked for than is kept"),
                Sent::Reset(_) => resets += 1,
                Sent::Ping(_) => {}
                Sent::End => return resets,
            }
        }
    });
    // More in all than the connection's window holds.
    for _ in 0..40 {
        let answer = answered(send(&client, "/").await);
        assert_eq!((answer.status.as_u16(), answer.whole, answer.body.len()), (200, false, ROOM));
    }
    outbound.close().await;
    assert_eq!(server.await.unwrap(), 40);
}

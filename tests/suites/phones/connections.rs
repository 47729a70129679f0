//! Connections whose servers count streams, say goodbye, refuse, cut and fall silent.

use std::time::Duration;

use push_tests::{eventually, phone_server::Reply, stack::DEADLINE};
use tokio::time::Instant;

use super::{World, everyone, one_copy_each};

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_streams_that_changes_during_a_broadcast_is_kept() {
    let world = World::with_fcm(4000).await;
    world.fcm.behave(|wire| (wire.streams, wire.punishes) = (100, true));
    world.fcm.answer(|_, _| Reply::taken().after(Duration::from_millis(50)));
    let _worker = world.worker(&[]).await;
    let id = world.stack.push(&everyone()).await;
    for streams in [10, 60, 1, 100] {
        let sent = world.fcm.record().devices();
        eventually("some more are sent", DEADLINE, async || {
            let now = world.fcm.record().devices();
            if now > sent + 100 || now == 4000 { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
        world.fcm.behave(|wire| wire.streams = streams);
    }
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 4000, "{ledger}");
    assert_eq!(world.fcm.record().punished, 0);
    one_copy_each(&world.fcm.record(), 4000);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_say_goodbye_during_a_broadcast_cost_no_device_and_no_second_copy() {
    let world = World::with_fcm(3000).await;
    world.fcm.behave(|wire| wire.goodbye_after = Some(300));
    let _worker = world.worker(&["--tune", "retry-attempts=1"]).await;
    let begun = Instant::now();
    let ledger = world.broadcast().await;
    assert_eq!(ledger["sent"], 3000, "{ledger}");
    let record = world.fcm.record();
    one_copy_each(&record, 3000);
    assert!(record.connections >= 10, "{} connections", record.connections);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_stream_is_sent_again_at_once_and_uses_up_no_attempt() {
    let world = World::with_fcm(500).await;
    world.fcm.answer(|device, times| match times {
        0 if device.ends_with(['3', '6', '9']) => Reply::refused_stream(),
        _ => Reply::taken(),
    });
    let _worker = world.worker(&["--tune", "retry-attempts=1"]).await;
    let begun = Instant::now();
    let ledger = world.broadcast().await;
    assert_eq!(ledger["sent"], 500, "{ledger}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    one_copy_each(&world.fcm.record(), 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_connections_are_cut_the_ledger_closes_and_no_device_fails() {
    let world = World::with_fcm(40).await;
    for cut in [0, 1, 9, 15, 40, 60, 75, 76, 90, 120, 180, 400, 1000] {
        world.fcm.behave(|wire| wire.cut_after = Some(cut));
        let attempts = world.fcm.record().connections;
        // One for each, because pauses between connects grow.
        let worker = world.worker(&[]).await;
        let id = world.stack.push(&everyone()).await;
        eventually("a connection is cut", DEADLINE, async || {
            match world.fcm.record().connections {
                now if now > attempts => Ok(()),
                now => Err(now.to_string()),
            }
        })
        .await;
        world.fcm.behave(|wire| wire.cut_after = None);
        let ledger = world.stack.closed(&id).await;
        assert_eq!(ledger["sent"], 40, "cut after {cut} bytes: {ledger}\n{}", worker.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_that_was_closed_costs_the_next_push_nothing() {
    let world = World::with_fcm(5).await;
    let _worker = world.worker(&["--tune", "retry-attempts=1"]).await;
    assert_eq!(world.broadcast().await["sent"], 5);
    world.fcm.close_connections();
    let begun = Instant::now();
    let ledger = world.broadcast().await;
    assert_eq!(ledger["sent"], 5, "{ledger}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_before_tls_or_http_holds_up_its_own_devices_alone_and_only_as_long_as_it_lasts()
 {
    let world = World::start().await;
    world.set_all().await;
    world.add_all(50).await;
    world.fcm.behave(|wire| wire.is_black_hole = true);
    world.webpush.behave(|wire| wire.is_black_hole = true);
    let worker = world.worker(&[]).await;
    let id = world.stack.push(&everyone()).await;
    eventually("the others are sent to", DEADLINE, async || {
        let ledger = world.stack.ledger(&id).await;
        if ledger["sent"] == 150 { Ok(()) } else { Err(ledger.to_string()) }
    })
    .await;
    // Every step to a connection ends within 5 s.
    eventually("the black hole is left again", Duration::from_secs(15), async || {
        match (world.fcm.record().connections, world.webpush.record().connections) {
            (2.., 2..) => Ok(()),
            connections => Err(format!("{connections:?}")),
        }
    })
    .await;
    for server in [&world.fcm, &world.webpush] {
        server.behave(|wire| wire.is_black_hole = false);
        server.close_connections();
    }
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 250, "{ledger}");
    let begun = Instant::now();
    assert!(worker.stop().await.success());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stops_soon_although_a_provider_never_answers() {
    let world = World::with_fcm(100).await;
    world.fcm.answer(|_, _| Reply::silence());
    let worker = world.worker(&[]).await;
    let id = world.stack.push(&everyone()).await;
    eventually("it is asked", DEADLINE, async || match world.fcm.record().requests {
        0 => Err("not yet".to_owned()),
        _ => Ok(()),
    })
    .await;
    let begun = Instant::now();
    assert!(worker.stop().await.success());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    world.fcm.answer(|_, _| Reply::taken());
    let _next = world.worker(&[]).await;
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 100, "{ledger}");
}

//! A broadcast to browsers of several push services, of which one is dead.

use push_model::device::{Carrier, TransportKind};
use push_providers::by_kind::stored_token;
use push_tests::{
    eventually,
    phone_server::{Face, PhoneServer},
    stack::DEADLINE,
};
use ring::rand::SystemRandom;

use super::{World, browser, everyone, one_copy_each};

/// More than wait for another try before a partition is read no further.
const DEAD: usize = 3000;
const ALIVE: usize = 500;
const ALL: usize = DEAD + ALIVE;

/// Short pauses before another try, and one partition for each carrier.
const ONE_PARTITION: [&str; 6] =
    ["--tune", "retry-first=200ms", "--tune", "retry-longest=1s", "--partitions", "1"];

/// The carrier of the browsers of this push service.
fn carrier(server: &PhoneServer) -> Carrier {
    let token = browser(&format!("{}/push/0", server.url()));
    let random = SystemRandom::new();
    let stored = stored_token(TransportKind::Webpush, Some(&token), &random).unwrap();
    Carrier::of(TransportKind::Webpush, stored.as_deref())
}

/// Starts a push service whose browsers are in another lane than those of the first one. All are at ports of this
/// machine, so they have the lanes of push services that share them.
async fn in_another_lane(world: &World) -> PhoneServer {
    let certificate = world.authority.local_server();
    loop {
        let server = PhoneServer::start(Face::WebPush, Some(&certificate)).await;
        if carrier(&server) != carrier(&world.webpush) {
            return server;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_of_a_dead_push_service_hold_up_no_browser_of_another_one() {
    let world = World::start().await;
    world.set_webpush().await;
    let alive = in_another_lane(&world).await;
    let (dead_url, alive_url) = (world.webpush.url(), alive.url());
    let is_alive = |n: usize| n.is_multiple_of(ALL / ALIVE);
    let token = |n| {
        let url = if is_alive(n) { &alive_url } else { &dead_url };
        Some(browser(&format!("{url}/push/{n}")))
    };
    world.add("webpush", ALL, token).await;
    world.webpush.kill();
    let mut flags = world.provider_flags();
    flags.extend(ONE_PARTITION.map(str::to_owned));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let _worker = world.stack.worker(&flags).await;
    let id = world.stack.push(&everyone()).await;
    eventually("every browser of the other push service has it", DEADLINE, async || {
        match alive.record().devices() {
            ALIVE => Ok(()),
            devices => Err(format!("{devices} have it")),
        }
    })
    .await;
    let ledger = world.stack.ledger(&id).await;
    assert_eq!(ledger["state"], "sending", "the others wait: {ledger}");
    assert_eq!(world.webpush.record().devices(), 0);
    world.webpush.revive();
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], ALL, "{ledger}");
    one_copy_each(&alive.record(), ALIVE);
    one_copy_each(&world.webpush.record(), DEAD);
}

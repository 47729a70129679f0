//! Machines whose clocks differ by less than the allowance (1 s) behave alike.

use std::time::Duration;

use push_tests::{
    broadcast::everyone,
    clock::WrongClock,
    stack::{APP, Servers, Stack},
};
use serde_json::{Value, json};

/// Broadcasts, each right after the registration of one more device.
const BROADCASTS: u64 = 5;

/// Registers devices through an `ingest` whose clock is ahead, and after each posts a broadcast
/// through the other `ingest`; returns `targeted` of each broadcast.
async fn audiences(ahead: Duration) -> Vec<Value> {
    let clock = WrongClock::compile().unwrap();
    let mut stack = Stack::start(Servers::shared()).await;
    stack.add_ingest().await;
    let mut ingests = stack.take_ingests();
    ingests[0].set_environment(clock.ahead(ahead));
    ingests[0].restart();
    ingests[0].wait_ready().await;
    let _worker = stack.worker(&[]).await;

    let mut targeted = Vec::new();
    for n in 0..BROADCASTS {
        let path = format!("/v1/device/{APP}/device-{n}");
        let device = json!({"transport": "discard"});
        let (status, answer) = stack.call_at(0, "PUT", &path, &[], &device).await;
        assert!(matches!(status, 200 | 201), "{status} {answer}");
        let path = format!("/v1/message/push/{APP}");
        let (status, answer) = stack.call_at(1, "POST", &path, &[], &everyone()).await;
        assert_eq!(status, 200, "{answer}");
        let id = answer["result"]["message_id"].as_str().unwrap();
        targeted.push(stack.closed(id).await["targeted"].clone());
    }
    targeted
}

#[tokio::test]
async fn a_broadcast_reaches_a_device_that_registered_before_it_by_a_clock_that_is_ahead() {
    let all: Vec<u64> = (1..=BROADCASTS).collect();
    assert_eq!(json!(audiences(Duration::from_millis(900)).await), json!(all));
}

#[tokio::test]
async fn a_clock_that_is_ahead_by_more_than_the_allowance_makes_a_registration_a_later_one() {
    let first = &audiences(Duration::from_mins(1)).await[0];
    assert_eq!(*first, json!(0));
}

//! Pushes to users whose devices go to other users meanwhile.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use push_tests::stack::APP;
use serde_json::{Value, json};

use super::{
    in_both_forms,
    service::{Received, Service, devices_of, received},
};

/// The devices that change users.
const MOVING: usize = 1000;

/// The devices that stay with their user.
const STAYING: usize = 20;

/// The devices of a request that changes users.
const AT_ONCE: usize = 20;

/// The time between two pushes.
const PAUSE: Duration = Duration::from_millis(50);

in_both_forms! {
    devices_that_change_users_get_nothing_of_another_user
    a_push_to_users_without_devices_is_told_so_and_ends_with_none_targeted
}

/// A push to the former users (`a`) or to the later ones (`b`).
struct Pushed {
    side: &'static str,
    began: Instant,
    id: String,
}

fn id(device: usize) -> String {
    format!("device-{device:04}")
}

/// The user of a device on one side: a user has some fifty devices.
fn user(side: &str, device: usize) -> String {
    format!("{side}-{}", device % STAYING)
}

fn condition(side: &str) -> Value {
    let users: Vec<String> = (0..STAYING).map(|n| user(side, n)).collect();
    json!({"type": 2, "user_ids": users})
}

/// Registers all devices with their former users.
async fn register(service: &Service) {
    let device = |n| json!({"client_id": id(n), "transport": "webhook", "token": "x", "user_id": user("a", n)});
    let devices: Vec<Value> = (0..STAYING + MOVING).map(device).collect();
    service.import(&devices).await;
}

/// Gives devices to their later users: those behind the ones that stay. Returns when each change was answered.
async fn move_all(service: &Service) -> Vec<Instant> {
    let mut answered = Vec::new();
    for first in (STAYING..STAYING + MOVING).step_by(AT_ONCE) {
        let change = |n| json!({"client_id": id(n), "user_id": user("b", n)});
        let changes: Vec<Value> = (first..first + AT_ONCE).map(change).collect();
        service.patch_many(&changes).await;
        answered.extend([Instant::now(); AT_ONCE]);
    }
    answered
}

async fn push_to_both(service: &Service, pushed: &mut Vec<Pushed>) {
    for side in ["a", "b"] {
        let began = Instant::now();
        let id = service.push(&condition(side)).await;
        pushed.push(Pushed { side, began, id });
    }
}

async fn devices_that_change_users_get_nothing_of_another_user(service: &Service) {
    register(service).await;
    let mut receipts = service.webhook.receipts();
    let has_moved = AtomicBool::new(false);
    let moving = async {
        let moved = move_all(service).await;
        has_moved.store(true, Ordering::Relaxed);
        moved
    };
    let pushing = async {
        let mut pushed = Vec::new();
        while !has_moved.load(Ordering::Relaxed) {
            push_to_both(service, &mut pushed).await;
            tokio::time::sleep(PAUSE).await;
        }
        pushed
    };
    let (moved, mut pushed) = tokio::join!(moving, pushing);
    push_to_both(service, &mut pushed).await;
    for push in &pushed {
        // Before the first device has moved the later users have none.
        if push.side == "a" || push.began >= moved[0] {
            service.closed(&push.id).await;
        }
    }
    let received = received(&mut receipts);
    let wrong = pushed.iter().filter_map(|push| first_wrong(push, &moved, &received));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "of {} pushes: {wrong:?}", pushed.len());
    let copies = received.values().flat_map(|devices| devices.values());
    assert_eq!(copies.copied().max(), Some(1), "no device has a message twice");
    let last = devices_of(&received, &pushed.last().unwrap().id);
    assert_eq!(last.len(), MOVING, "all have their later users in the end");
    let users = service.call("GET", &format!("/v1/user/{APP}/a-0"), &Value::Null).await.1;
    assert_eq!(users["result"]["devices"].as_array().unwrap().len(), 1, "{users}");
}

/// Returns a device that a push reached although it had gone to another user, or did not reach although it
/// was its user's.
fn first_wrong(push: &Pushed, moved: &[Instant], received: &Received) -> Option<String> {
    let reached = devices_of(received, &push.id);
    let staying = (0..STAYING).filter(|n| reached.contains(&id(*n)) != (push.side == "a"));
    let moved = moved.iter().enumerate().filter(|(_, moved)| **moved <= push.began);
    let moving = moved.map(|(n, _)| n + STAYING);
    let moving = moving.filter(|n| reached.contains(&id(*n)) != (push.side == "b"));
    let wrong = staying.chain(moving).next()?;
    Some(format!("{} and the push {} to {}", id(wrong), push.id, push.side))
}

async fn a_push_to_users_without_devices_is_told_so_and_ends_with_none_targeted(service: &Service) {
    let (status, answer) = service.try_push(&json!({"type": 2, "user_ids": ["v", "u"]})).await;
    let told = json!(["condition.user_ids: no device belongs to u, v"]);
    assert_eq!((status, &answer["result"]["warnings"]), (200, &told), "{answer}");
    let report = service.closed(answer["result"]["message_id"].as_str().unwrap()).await;
    let counts = ["targeted", "sent", "pending", "expired", "recalled"];
    assert_eq!(counts.map(|count| report[count].as_u64()), [Some(0); 5], "{report}");
    assert_eq!(report["failed"], json!({}), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_waits_reaches_no_device_that_has_gone_to_another_user_meanwhile() {
    let mut service = Service::without_worker().await;
    register(&service).await;
    let mut receipts = service.webhook.receipts();
    let waiting = service.push(&condition("a")).await;
    move_all(&service).await;
    service.start_worker().await;
    let report = service.closed(&waiting).await;
    assert_eq!(report["sent"], STAYING, "{report}");
    assert_eq!(report["failed"], json!({"reassigned": MOVING}), "{report}");
    let reached = devices_of(&received(&mut receipts), &waiting);
    let staying: BTreeSet<String> = (0..STAYING).map(id).collect();
    assert_eq!(reached, staying);
}

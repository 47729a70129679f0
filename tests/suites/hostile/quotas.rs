//! A tenant that fills the queue, and one that pushes the history of all others out of the ledger: the
//! quotas of messages.

use push_model::{
    app::{App, AppKey},
    ids::MessageId,
    time::UnixMillis,
    usage::{Usage, UsageCounts, UsageHour, UsageKind},
};
use push_tests::{
    eventually,
    stack::{self, Servers, Stack},
};
use serde_json::{Value, json};

use crate::hostile::{
    support::{
        client::{Connection, Request, VALID},
        service::{APP, DEADLINE, Service},
    },
    tenants::Neighbour,
};

const NAMED: &str =
    r#"{"type":2,"time_to_live":60,"condition":{"type":2,"client_ids":["nowhere"]}}"#;

/// Returns what the index says that the app uses.
async fn usage(service: &Service) -> Usage {
    let key = AppKey::first(APP.parse().unwrap());
    Usage::of(&service.index.usage(&key).await.unwrap(), UnixMillis::now())
}

#[tokio::test]
async fn an_app_that_fills_the_queue_is_refused_at_its_quota_and_others_are_served() {
    let service = Service::start(&["--app-max-waiting=3", "--tune=app-fresh=0s"]).await;
    let neighbour = Neighbour::of(&service).await;
    let push = Request::push(&service, NAMED);
    for _ in 0..3 {
        push.send(&service).await.expect(200, 200, "OK");
    }
    let refused = push.send(&service).await;
    refused.expect(429, 429, "the quota max-waiting is used up: this app may have 3 waiting");
    assert!(refused.message().contains("pushctl app set app --max-waiting"), "{refused:?}");
    assert!(refused.header("retry-after").is_some_and(|v| v.parse::<u32>().is_ok()));
    let dry_run = NAMED.replacen('{', r#"{"dry_run":true,"#, 1);
    let dry_run = Request::push(&service, dry_run).send(&service).await;
    dry_run.expect(200, 200, "OK");
    neighbour.push(&service, NAMED).send(&service).await.expect(200, 200, "OK");
    let jobs = service.jobs(4).await;
    assert!(jobs.iter().all(|job| job.counted));

    // A quota of its own counts from now on.
    let raise = |app: &mut App| app.max_waiting = serde_json::from_str("4").unwrap();
    service.change_app(raise).await;
    push.send(&service).await.expect(200, 200, "OK");
    push.send(&service).await.expect(
        429,
        429,
        "the quota max-waiting is used up: this app may have 4 waiting",
    );
    let none = |app: &mut App| app.max_waiting = serde_json::from_str(r#""none""#).unwrap();
    service.change_app(none).await;
    push.send(&service).await.expect(200, 200, "OK");
    let jobs = service.jobs(2).await;
    assert_eq!(jobs.iter().filter(|job| job.counted).count(), 1, "without a quota none counts");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn of_a_batch_request_as_many_pushes_are_taken_as_the_quota_has_room_for() {
    let service = Service::start(&["--app-max-waiting=3"]).await;
    let lines = [NAMED, VALID, "{}", NAMED, NAMED, VALID].join("\n");
    let batch = Request::new("POST", &format!("/v1/message/push/{APP}/batch"), lines)
        .header("Content-Type", "application/x-ndjson")
        .header("Authorization", &service.secret);
    let mut connection = Connection::open(service.address).await;
    connection.send(batch.bytes()).await;
    let answer = connection.raw_answer().await;
    let lines: Vec<Value> =
        answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 200, 21005, 200, 429, 429], "{}", answer.text);
    assert!(lines[5]["message"].as_str().unwrap().contains("quota max-waiting"), "{}", lines[5]);
    eventually("the three are counted", DEADLINE, async || {
        let usage = usage(&service).await;
        if (usage.waiting, usage.entries) == (3, 3) { Ok(()) } else { Err(format!("{usage:?}")) }
    })
    .await;
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_hangs_up_before_its_answer_is_counted() {
    let service = Service::start(&["--app-max-waiting=30"]).await;
    let push = Request::push(&service, NAMED);
    eventually("the quota is used up", DEADLINE, async || {
        let mut hangs_up = Connection::open(service.address).await;
        hangs_up.send(push.bytes()).await;
        drop(hangs_up);
        push.send(&service).await.is(429)
    })
    .await;
    let published = eventually("all are counted", DEADLINE, async || {
        let usage = usage(&service).await;
        if usage.waiting == 30 { Ok(usage.waiting) } else { Err(format!("{usage:?}")) }
    });
    let published = usize::try_from(published.await).unwrap();
    assert_eq!(service.jobs(published).await.len(), published, "and no more were published");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_app_makes_no_more_ledger_entries_than_its_quota_by_pushes_nor_by_recalls() {
    let service = Service::start(&["--app-max-ledger-entries=3"]).await;
    let mut pushed = Vec::new();
    for _ in 0..3 {
        pushed.push(Request::push(&service, NAMED).send(&service).await.message_id().to_owned());
    }
    let refused = Request::push(&service, NAMED).send(&service).await;
    refused.expect(429, 429, "the quota max-ledger-entries is used up: this app may have 3 ledger");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&wait), "{refused:?}");

    // Recalls of messages that have no entry make one each. What was pushed can be recalled.
    let recall = async |id: &str| {
        let path = format!("/v1/message/{APP}/{id}");
        Request::push(&service, "").method("DELETE").path(&path).send(&service).await
    };
    for id in &pushed {
        recall(id).await.expect(200, 200, "OK");
    }
    let invented = MessageId::issue_named(&APP.parse().unwrap()).to_string();
    recall(&invented).await.expect(429, 429, "the quota max-ledger-entries is used up");
    recall(&pushed[0]).await.expect(200, 200, "OK");
    eventually("the recalls are counted", DEADLINE, async || {
        let usage = usage(&service).await;
        if usage.early_recalls == 3 { Ok(()) } else { Err(format!("{usage:?}")) }
    })
    .await;
    service.stop().await.unwrap();
}

/// Returns what `pushctl` shows that the app uses: waiting messages and ledger entries.
async fn shown(stack: &Stack) -> (Value, Value) {
    let shown = stack.pushctl(&["app", "show", stack::APP, "--json"]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    (shown["usage"]["waiting"].clone(), shown["usage"]["ledger_entries"].clone())
}

async fn shows(stack: &Stack, waiting: u64, entries: u64) {
    let what = format!("{waiting} messages wait, {entries} ledger entries count");
    eventually(&what, stack::DEADLINE, async || {
        let shown = shown(stack).await;
        if shown == (json!(waiting), json!(entries)) { Ok(()) } else { Err(format!("{shown:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_workers_close_makes_room_and_every_ingest_knows_what_waits() {
    let mut stack = Stack::start(Servers::shared()).await;
    stack.pushctl(&["app", "set", stack::APP, "--max-waiting", "5"]).await;
    stack.import("{\"client_id\":\"a\",\"transport\":\"discard\"}\n").await;
    let named = json!({"type": 2, "time_to_live": 600,
        "condition": {"type": 2, "client_ids": ["a", "nowhere"]}});
    let all = json!({"type": 2, "time_to_live": 600, "condition": {"type": 0}});
    for body in [&named, &all, &named] {
        stack.push(body).await;
    }
    // The same message twice: it has one ledger entry.
    let path = format!("/v1/message/push/{}", stack::APP);
    let key = [("idempotency-key", "order-1")];
    for _ in 0..2 {
        let (status, answer) = stack.call_at(0, "POST", &path, &key, &named).await;
        assert_eq!(status, 200, "{answer}");
    }
    let (status, answer) = stack.try_push(&named).await;
    assert_eq!(status, 429, "{answer}");
    shows(&stack, 5, 5).await;
    stack.add_ingest().await;
    let (status, answer) = stack.call_at(1, "POST", &path, &[], &named).await;
    assert_eq!(status, 429, "another ingest knows it from its first push on: {answer}");

    let worker = ["--tune", "partition-min-slots=1", "--tune", "closing-check=1s"];
    let worker = stack.worker(&worker).await;
    shows(&stack, 0, 4).await;
    let last = stack.push_until_accepted(&named).await;
    stack.closed(&last).await;
    // What a worker has counted is written before it ends.
    assert!(worker.stop().await.success());
    shows(&stack, 0, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_of_many_partitions_waits_until_all_of_them_have_ended() {
    let stack = Stack::start(Servers::shared()).await;
    stack.pushctl(&["app", "set", stack::APP, "--max-waiting", "1"]).await;
    let devices: String = (0..200)
        .map(|n| format!("{{\"client_id\":\"d{n}\",\"transport\":\"discard\"}}\n"))
        .collect();
    stack.import(&devices).await;
    let all = json!({"type": 2, "time_to_live": 600, "condition": {"type": 0}});
    let flags =
        ["--partitions", "4", "--tune", "partition-min-slots=1", "--tune", "closing-check=1s"];
    let _worker = stack.worker(&flags).await;
    for round in 1..=2 {
        let id = stack.push_until_accepted(&all).await;
        let report = stack.closed(&id).await;
        assert_eq!(report["sent"], 200, "{report}");
        shows(&stack, 0, round).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_are_killed_use_up_no_quota_for_longer_than_minutes() {
    const QUOTA: usize = 20;
    let stack = Stack::start(Servers::shared()).await;
    stack.pushctl(&["app", "set", stack::APP, "--max-waiting", &QUOTA.to_string()]).await;
    stack.import("{\"client_id\":\"a\",\"transport\":\"discard\"}\n").await;
    let push = json!({"type": 2, "time_to_live": 86400,
        "condition": {"type": 2, "client_ids": ["a"]}});
    let mut last = None;
    for kill_after in [0, 50, 100, 200, 300, 400, 600, 800] {
        let worker = stack.worker(&[]).await;
        for _ in 0..4 {
            if let (200, answer) = stack.try_push(&push).await {
                last = answer["result"]["message_id"].as_str().map(str::to_owned);
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(kill_after)).await;
        drop(worker);
    }
    let _worker = stack.worker(&[]).await;
    stack.closed(&last.expect("the first is accepted")).await;
    // Whatever was lost, the whole quota is there again, and no more than that.
    let bound = std::time::Duration::from_secs(180);
    eventually("nothing counts as waiting", bound, async || {
        let tried = stack.try_push(&push).await;
        let shown = shown(&stack).await.0;
        if shown == json!(0) { Ok(()) } else { Err(format!("{shown}, {tried:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_lost_count_is_settled_but_not_while_messages_wait_or_a_worker_has_some() {
    let service = Service::start(&["--app-max-waiting=3", "--tune=app-fresh=0s"]).await;
    let (key, now) = (AppKey::first(APP.parse().unwrap()), UnixMillis::now());
    let hour = UsageHour::of(UsageKind::Named, now);
    let until = UsageCounts::until(now.plus_seconds(86_400));
    let lost = UsageCounts { accepted: 3, ..until };
    let held = UsageCounts::until(now.plus_seconds(75));
    let more = [(hour, lost), (UsageHour::HELD, held)];
    service.index.add_usage(&key, &more, now).await.unwrap();
    let push = Request::push(&service, NAMED);
    let begun = std::time::Instant::now();
    let bound = std::time::Duration::from_secs(240);
    eventually("the app is served again", bound, async || push.send(&service).await.is(200)).await;
    assert!(begun.elapsed().as_secs() >= 75, "a worker had them for so long");
    eventually("their ledger entries count all the same", DEADLINE, async || {
        let usage = usage(&service).await;
        if usage.entries == 4 { Ok(()) } else { Err(format!("{usage:?}")) }
    })
    .await;
    // Two more wait in the queue, for which there is no worker: now they do wait.
    push.send(&service).await.expect(200, 200, "OK");
    push.send(&service).await.expect(200, 200, "OK");
    tokio::time::sleep(std::time::Duration::from_secs(75)).await;
    push.send(&service).await.expect(429, 429, "the quota max-waiting is used up");
    service.stop().await.unwrap();
}

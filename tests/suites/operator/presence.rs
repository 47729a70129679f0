//! The records of running programs in the index.

use std::{sync::Arc, time::Duration};

use push_index::{Index, redis::RedisIndex};
use push_model::components::{Component, ComponentState};
use push_store::redis::RedisSettings;
use push_tests::{
    eventually, redis_url,
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::json;

use super::everyone;

/// Records every 200 ms, which count for 3 s.
const OFTEN: [&str; 2] = ["--tune", "presence-interval=200ms,presence-life=3s"];

/// The life of such a record, and some time to see its end.
const LIFE: Duration = Duration::from_secs(10);

async fn index(stack: &Stack) -> Arc<dyn Index> {
    let settings = RedisSettings::default();
    let index = RedisIndex::connect(&redis_url(), &stack.namespace, settings).await;
    Arc::new(index.unwrap())
}

/// Waits until the listed programs are like this.
async fn until(
    what: &str,
    deadline: Duration,
    index: &dyn Index,
    fits: impl Fn(&[Component]) -> bool,
) {
    eventually(what, deadline, async || {
        let all = index.components().await.map_err(|error| error.to_string())?;
        if fits(&all) { Ok(()) } else { Err(format!("{all:#?}")) }
    })
    .await;
}

fn workers(all: &[Component]) -> Vec<&Component> {
    all.iter().filter(|one| one.kind == "fanout-worker").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_is_soon_not_listed_and_one_that_is_stopped_at_once() {
    let stack = Stack::start(Servers::shared()).await;
    let index = index(&stack).await;
    let mut killed = stack.worker(&OFTEN).await;
    let stopped = stack.worker(&OFTEN).await;
    let address = killed.ops_address();
    until("three programs are listed as ready", DEADLINE, &*index, |all| {
        all.len() == 3 && all.iter().all(|one| one.state == ComponentState::Ready)
    })
    .await;

    assert!(stopped.stop().await.success());
    let left = index.components().await.unwrap();
    let ops: Vec<_> = workers(&left).iter().map(|one| one.listens.get("ops")).collect();
    assert_eq!(ops, [Some(&address)], "{left:#?}");

    killed.process().kill();
    until("the killed worker is not listed", LIFE, &*index, |all| workers(all).is_empty()).await;
    let found = stack.pushctl(&["doctor", "--json"]).await;
    for text in ["no worker runs", "1 ingest ready: "] {
        assert!(found.contains(text), "{text} in {found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_tell_what_they_accepted_refused_sent_and_gave_up() {
    let mut stack = Stack::start(Servers::shared()).await;
    stack.add_ingest_with(&OFTEN).await;
    let index = index(&stack).await;
    let _worker = stack.worker(&OFTEN).await;
    stack.import("{\"client_id\":\"d1\",\"transport\":\"discard\"}\n").await;
    let path = format!("/v1/message/push/{APP}");
    let mut push = everyone(600);
    for condition in [json!({"type": 0}), json!({"type": 2, "client_ids": ["d1", "unknown"]})] {
        push["condition"] = condition;
        let (status, answer) = stack.call_at(1, "POST", &path, &[], &push).await;
        assert_eq!(status, 200, "{answer}");
        stack.closed(answer["result"]["message_id"].as_str().unwrap()).await;
    }
    push["condition"] = json!({"type": 9});
    assert_eq!(stack.call_at(1, "POST", &path, &[], &push).await.0, 400);
    until("the work is told", DEADLINE, &*index, |all| {
        let is_told = |one: &Component| {
            let work = one.ingest.as_ref();
            work.is_some_and(|work| work.accepted == 2 && work.refused == [(21005, 1)].into())
        };
        let work = workers(all).first().and_then(|worker| worker.worker.clone());
        let Some(work) = work else { return false };
        let sent = work.transports.get("discard").map(|of| of.sent);
        let unknown = [("unknown_client".to_owned(), 1)].into();
        all.iter().any(is_told) && sent == Some(2) && work.failed == unknown
    })
    .await;
}

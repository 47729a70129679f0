//! Apps and devices that are removed, and others that take their names.
//!
//! Here: an app is removed and created again under its name, while an `ingest` still has the old app's
//! record in its cache. Nothing of the old app reaches the new one, and the other way round. `interleaving` and
//! `cluster` are about devices.

mod cluster;
mod interleaving;

use push_tests::{
    eventually,
    service::request,
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::{Value, json};

/// Flags of an `ingest` that keeps a record in its cache for the whole test.
const CACHES: [&str; 2] = ["--tune", "app-fresh=5min"];
/// The first `ingest` of the stack, which has no record of the app in its cache.
const FIRST: usize = 0;
/// The `ingest` with the old app's record in its cache.
const SECOND: usize = 1;

/// The `ingest` that is called, and the secret of the call.
type Caller<'a> = (usize, &'a str);

struct Service(Stack);

impl Service {
    async fn call(
        &self,
        (ingest, secret): Caller<'_>,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (u16, Value) {
        let url = format!("{}/v1/{path}", self.0.ingest_url(ingest));
        let headers = [("authorization", secret), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = request(method, &url, &headers, &body).await.unwrap();
        (status, serde_json::from_str(&answer).unwrap())
    }

    async fn register(&self, caller: Caller<'_>, client: &str) -> (u16, Value) {
        let path = format!("device/{APP}/{client}");
        self.call(caller, "PUT", &path, &json!({"transport": "discard", "model": client})).await
    }

    async fn push(&self, caller: Caller<'_>, condition: Value) -> String {
        let body = json!({"type": 2, "time_to_live": 600, "condition": condition});
        let (status, answer) =
            self.call(caller, "POST", &format!("message/push/{APP}"), &body).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["message_id"].as_str().unwrap().to_owned()
    }

    /// The report of a message once it is closed.
    async fn closed(&self, caller: Caller<'_>, id: &str) -> Value {
        eventually(&format!("message {id} is closed"), DEADLINE, async || {
            let path = format!("message/{APP}/{id}");
            let ledger = self.call(caller, "GET", &path, &Value::Null).await.1;
            let ledger = ledger["result"].clone();
            if ledger["state"] == "done" { Ok(ledger) } else { Err(ledger.to_string()) }
        })
        .await
    }

    async fn create(&self) -> String {
        let made = self.0.pushctl(&["app", "create", APP, "--json"]).await;
        serde_json::from_str::<Value>(&made).unwrap()["secret"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_is_removed_and_made_again_shares_nothing_with_the_one_before_it() {
    let mut stack = Stack::start(Servers::shared()).await;
    stack.add_ingest_with(&CACHES).await;
    let old_secret = stack.secret().to_owned();
    let service = Service(stack);
    let (old, everyone) = ((SECOND, old_secret.as_str()), json!({"type": 0}));
    let registered = service.register(old, "old-1").await;
    assert_eq!(registered.0, 200, "{registered:?}");

    service.0.pushctl(&["app", "remove", APP, "--yes"]).await;
    let new_secret = service.create().await;
    let new = (FIRST, new_secret.as_str());
    for client in ["new-1", "new-2"] {
        assert_eq!(service.register(new, client).await.0, 200);
    }
    // Accepted for the old app, because the second ingest has its record in the cache.
    let late = service.push(old, everyone.clone()).await;
    let named = json!({"type": 2, "client_ids": ["old-1", "new-1"]});
    let late_named = service.push(old, named).await;
    let refused = service.register(old, "old-2").await;
    assert_eq!((refused.0, &refused.1["status"]), (401, &json!(21004)), "{refused:?}");
    // The refusal made it read the record again.
    let refused = service.register(old, "old-3").await;
    assert_eq!(refused.0, 401, "{refused:?}");
    assert_eq!(service.register((SECOND, &new_secret), "new-3").await.0, 200);

    let worker = service.0.worker(&[]).await;
    let pushed = service.push(new, everyone).await;
    let ledger = service.closed(new, &pushed).await;
    assert_eq!((&ledger["targeted"], &ledger["sent"]), (&json!(3), &json!(3)), "{ledger}");
    // The messages of the old app reach no device of the new one, and the new app knows nothing of them.
    let unknown = r#"push_worker_devices_total{outcome="failed",reason="unknown_client"}"#;
    eventually("the named devices are unknown", DEADLINE, async || {
        let count = worker.metric(unknown).await;
        if count == 2.0 { Ok(()) } else { Err(count.to_string()) }
    })
    .await;
    let sent = worker.metric(r#"push_worker_devices_total{outcome="sent",reason=""}"#).await;
    assert_eq!(sent, 3.0);
    for message in [&late, &late_named] {
        for method in ["GET", "DELETE"] {
            let path = format!("message/{APP}/{message}");
            let answer = service.call(new, method, &path, &Value::Null).await;
            assert_eq!(answer.0, 404, "{method} {answer:?}");
        }
    }
}

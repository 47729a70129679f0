//! Every line of the log says what it is about.

use push_tests::{
    eventually,
    service::Program,
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::Value;

use super::to_clients;

/// The line with this message, as JSON.
async fn line(program: &Program, message: &str) -> Value {
    eventually(&format!("{message:?} is logged"), DEADLINE, async || {
        let log = program.log();
        let mut lines = log.lines().map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find_map(|line| line.filter(|line| line["message"] == message)).ok_or(log.clone())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_a_worker_says_which_message_of_which_app_it_is_about() {
    const REPEATED: &str = "another copy of this message is the one that is sent";
    let stack = Stack::start(Servers::shared()).await;
    let json = stack.worker(&["--log-format", "json"]).await;
    stack.import_crowd(1, 0).await;
    let twice = async || {
        let path = format!("/v1/message/push/{APP}");
        let key = [("idempotency-key", &*stack.namespace)];
        let body = to_clients(&["crowd-0"]);
        let (status, answer) = stack.call_at(0, "POST", &path, &key, &body).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["message_id"].as_str().unwrap().to_owned()
    };
    let id = twice().await;
    stack.closed(&id).await;
    assert_eq!(twice().await, id);
    let line = line(&json, REPEATED).await;
    assert_eq!(line["span"]["message_id"], id, "{line}");
    assert_eq!(line["span"]["app"], APP, "{line}");
    drop(json);

    let text = stack.worker(&[]).await;
    assert_eq!(twice().await, id);
    eventually("the copy is logged as text", DEADLINE, async || {
        let log = text.log();
        let line = log.lines().find(|line| line.contains(REPEATED)).map(str::to_owned);
        let line = line.ok_or(log)?;
        assert!(line.contains(&format!("message_id={id}")), "{line}");
        assert!(line.contains(&format!("app={APP}")), "{line}");
        Ok::<_, String>(())
    })
    .await;
}

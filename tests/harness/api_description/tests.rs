//! The comparison itself, and the examples of the description.

use serde_json::json;

use super::{description::DOCUMENTS, *};

const PUSH: Exchange<'_> = Exchange {
    method: "POST",
    path: "/v1/message/push/news",
    content_type: Some(JSON),
    body: Some(br#"{"type":1,"time_to_live":60,"condition":{"type":0}}"#),
    status: 400,
    headers: &[],
    answer: r#"{"status":21005,"message":"Message illegal: type is required"}"#,
};

fn check(change: impl FnOnce(&mut Exchange<'_>)) -> Result<(), String> {
    let headers = [("content-type".to_owned(), JSON.to_owned())];
    let mut exchange = Exchange { headers: &headers, ..PUSH };
    change(&mut exchange);
    DESCRIPTION.check(&exchange)
}

/// Returns each described body: its name, and its form and examples for one media type.
fn described_bodies() -> impl Iterator<Item = (String, &'static Value)> {
    DESCRIPTION.operations().flat_map(|operation| {
        let responses = operation["responses"].as_object().unwrap().iter();
        let responses =
            responses.map(|(status, answer)| (status.as_str(), DESCRIPTION.resolved(answer)));
        let bodies = responses.chain([("request", &operation["requestBody"])]);
        bodies.flat_map(move |(what, body)| {
            let contents = body["content"].as_object().into_iter().flatten();
            contents.map(move |(media_type, content)| {
                (format!("{} {what} {media_type}", operation["operationId"]), content)
            })
        })
    })
}

#[test]
fn every_example_is_what_the_description_allows() {
    let mut examples = 0;
    for (what, content) in described_bodies() {
        for (name, example) in content["examples"].as_object().into_iter().flatten() {
            let value = &DESCRIPTION.resolved(example)["value"];
            let result = DESCRIPTION.check_schema_value(&content["schema"], value);
            assert_eq!(result, Ok(()), "{what}: {name}");
            examples += 1;
        }
    }
    assert!(examples > 150, "{examples}");
}

#[test]
fn every_body_of_a_request_and_of_an_answer_has_an_example() {
    let has_one = |content: &Value| {
        let mut examples = content["examples"].as_object().into_iter().flatten();
        examples.any(|(_, example)| DESCRIPTION.resolved(example).get("value").is_some())
    };
    let without = described_bodies().filter(|(_, content)| !has_one(content));
    let without: Vec<String> = without.map(|(what, _)| what).collect();
    assert!(without.is_empty(), "no example: {without:#?}");
}

#[test]
fn each_document_has_the_paths_of_one_kind_of_caller_at_the_address_that_they_call() {
    let documents = DOCUMENTS.map(|(_, text)| serde_json::from_str::<Value>(text).unwrap());
    let [apps, brokers, operations] = &documents;
    let has_only = |document: &Value, prefixes: &[&str]| {
        let mut paths = document["paths"].as_object().unwrap().keys();
        paths.all(|path| prefixes.iter().any(|prefix| path.starts_with(prefix)))
    };
    assert!(has_only(
        apps,
        &["/v1/message/", "/v1/device/", "/v1/user/", "/v1/audience/", "/openapi"]
    ));
    assert!(has_only(brokers, &["/v1/broker/"]));
    assert!(has_only(operations, &["/livez", "/readyz", "/metrics"]));
    assert_eq!((&apps["servers"][0]["url"], &brokers["servers"]), (&json!("/"), &apps["servers"]));
    let address = &operations["servers"][0]["variables"]["operations"]["default"];
    assert_eq!(address, "127.0.0.1:9080");
}

#[test]
fn what_the_description_allows_must_not_be_refused_and_the_other_way_round() {
    assert!(check(|_| ()).unwrap_err().contains("refused for its fields"));
    assert_eq!(check(|push| push.body = Some(b"{}")), Ok(()));
    let served = r#"{"status":200,"message":"OK","result":{"message_id":"01890000-0000-7000-8000-00000000000a"}}"#;
    assert_eq!(check(|push| (push.status, push.answer) = (200, served)), Ok(()));
    let misspelt: &[u8] =
        br#"{"type":1,"time_to_live":60,"condition":{"type":1,"targeting":{"contry":["SG"]}}}"#;
    let wide = check(|push| {
        (push.status, push.answer, push.body) = (200, served, Some(misspelt));
    });
    assert!(wide.unwrap_err().contains("not allowed was served"));
}

#[test]
fn what_has_no_effect_in_a_push_may_hold_anything_and_nothing_else_may() {
    let served = r#"{"status":200,"message":"OK","result":{"message_id":"01890000-0000-7000-8000-00000000000a"}}"#;
    let push = |body: Value| {
        let body = body.to_string().leak().as_bytes();
        check(|push| (push.status, push.answer, push.body) = (200, served, Some(body)))
    };
    let with = |kind: Value, name: &str, condition: Value| {
        push(json!({"type": kind, "time_to_live": 60, "condition": condition, name: {"icon": 5}}))
    };
    assert_eq!(with(json!(1.0), "data", json!({"type": 0, "targeting": "x"})), Ok(()));
    assert_eq!(with(json!(1), "notification", json!({"type": 0, "client_ids": 5})), Ok(()));
    assert!(with(json!(2), "data", json!({"type": 0})).is_err(), "a value of data that is no text");
    assert!(with(json!(2), "x", json!({"type": 1, "targeting": 5})).is_err());
    assert!(with(json!(2), "x", json!({"type": 2, "targeting": {}})).is_err(), "no client_ids");
}

#[test]
fn an_answer_has_a_listed_status_its_form_and_its_headers() {
    let busy = r#"{"status":503,"message":"try again: full"}"#;
    let error = check(|push| (push.status, push.answer) = (503, busy)).unwrap_err();
    assert_eq!(error, "Retry-After is missing");
    let error = check(|push| (push.status, push.answer) = (500, busy)).unwrap_err();
    assert_eq!(error, "status 500 is not listed");
    let bare = r#"{"status":21005}"#;
    assert!(check(|push| push.answer = bare).unwrap_err().contains("message"));
    let error = check(|push| push.headers = &[]).unwrap_err();
    assert!(error.contains("media type"), "{error}");
}

#[test]
fn a_method_that_is_not_listed_is_refused_in_a_form_that_the_path_has() {
    let served = r#"{"status":200,"message":"OK","result":{"message_id":"01890000-0000-7000-8000-00000000000a"}}"#;
    let error = check(|get| (get.method, get.status, get.answer) = ("GET", 200, served));
    assert!(error.unwrap_err().contains("not listed was served"));
    let refused = r#"{"status":405,"message":"this path takes POST"}"#;
    let error = check(|get| (get.method, get.status, get.answer) = ("GET", 405, refused));
    assert_eq!(error.unwrap_err(), "Allow is missing");
    let broker = |answer: &'static str| {
        let path = "/v1/broker/emqx/authenticate";
        check(|get| {
            (get.method, get.path, get.status, get.answer) = ("GET", path, 200, answer);
        })
    };
    assert_eq!(broker(r#"{"result":"deny"}"#), Ok(()));
    assert!(broker(r#"{"result":"allow"}"#).unwrap_err().contains("not listed was served"));
}

#[test]
fn an_answer_of_the_operations_listener_is_held_against_its_description() {
    let readyz = |status: u16, answer: &'static str| {
        check(|get| {
            (get.method, get.path, get.status, get.answer) = ("GET", "/readyz", status, answer);
        })
    };
    let ready = r#"{"status":"ready","ready":true,"since":"2026-01-01T00:00:00.000Z","parts":[]}"#;
    assert_eq!(readyz(200, ready), Ok(()));
    assert_eq!(readyz(500, ready).unwrap_err(), "status 500 is not listed");
    assert!(readyz(200, r#"{"ready":true}"#).unwrap_err().contains("status"));
    assert!(has_path("/metrics?x=1") && !has_path("/elsewhere"));
    let listed = listed_answers();
    assert!(listed.contains(&("getReadiness".to_owned(), 503)), "{listed:?}");
    assert!(!listed.contains(&("getLiveness".to_owned(), 503)), "{listed:?}");
}

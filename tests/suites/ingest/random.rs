//! Random input is answered with a 2xx or 4xx in the documented shape, and the service goes on.

use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseResult, TestRunner},
};
use serde_json::{Map, Number, Value};
use tokio::runtime::Runtime;

use crate::ingest::{
    batch_requests::{Answers, batch_request_of},
    support::client::{Connection, Request, VALID},
    support::service::Service,
};

/// Inputs of one test.
const CASES: u32 = 400;

/// Tries inputs on one service, and checks that a good push still works afterwards.
fn try_many<S: Strategy>(strategy: S, attempt: impl AsyncFn(&Service, S::Value) -> TestCaseResult) {
    let runtime = Runtime::new().unwrap();
    let service =
        runtime.block_on(Service::start(&["--tune=max-body=16KiB", "--tune=idle-timeout=1s"]));
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&strategy, |input| runtime.block_on(attempt(&service, input)))
        .unwrap();
    runtime.block_on(async {
        assert_eq!(Request::push(&service, VALID).send(&service).await.http, 200);
        service.stop().await.unwrap();
    });
}

/// Sends a body; [`crate::ingest::support::client::Answer`] checks the shape of the answer.
async fn push(service: &Service, body: Vec<u8>) -> TestCaseResult {
    let answer = Request::push(service, &body).send(service).await;
    prop_assert!((200..500).contains(&answer.http), "{} to {body:?}", answer.text);
    Ok(())
}

/// The names that have a meaning, and one that has none.
const NAMES: [&str; 29] = [
    "dry_run",
    "type",
    "time_to_live",
    "condition",
    "client_ids",
    "targeting",
    "country",
    "language",
    "brand",
    "model",
    "os_version",
    "app_version",
    "notification",
    "notification_type",
    "title",
    "icon",
    "small_icon_color",
    "open_type",
    "open_content",
    "data",
    "desc",
    "surprise",
    "priority",
    "collapse_key",
    "channel_id",
    "category",
    "image",
    "sound",
    "badge",
];

/// Values that have a meaning, and values that are hard to read.
fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (0u64..4).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|f| Number::from_f64(f).map_or(Value::Null, Value::Number)),
        any::<String>().prop_map(Value::String),
        prop::sample::select(&["CN", "zh-CN", "34", "#00ff00", "1", "2", "", "\u{0}"][..])
            .prop_map(Value::from),
    ]
}

fn json() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 64, 8, |inner| {
        let name = prop_oneof![prop::sample::select(&NAMES[..]).prop_map(str::to_owned), ".{0,8}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::btree_map(name, inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A valid push that uses everything.
fn full() -> Value {
    serde_json::json!({
        "dry_run": false, "type": 1, "time_to_live": 60,
        "condition": {
            "type": 1, "client_ids": ["a", "b"],
            "targeting": {
                "country": ["CN"], "language": ["zh-CN"], "brand": ["x"], "model": ["y"],
                "os_version": ["34"], "app_version": ["1"],
            },
        },
        "notification": {
            "notification_type": 1, "title": "t", "desc": "d", "icon": "i", "button_text": "b",
            "small_icon": "s", "small_icon_color": "#00ff00", "open_type": "1", "open_content": "c",
        },
        "data": {"k": "v"},
        "priority": "high", "collapse_key": "c", "channel_id": "n", "category": "r", "sound": "s",
        "image": "https://cdn.example/a.png", "badge": 3,
    })
}

/// A full push with one value, wherever it is, replaced.
fn nearly_valid() -> impl Strategy<Value = Value> {
    (any::<prop::sample::Index>(), json()).prop_map(|(index, value)| {
        let mut body = full();
        let mut places = Vec::new();
        collect(&body, String::new(), &mut places);
        if let Some(place) = body.pointer_mut(index.get(places.as_slice()).as_str()) {
            *place = value;
        }
        body
    })
}

fn collect(value: &Value, at: String, places: &mut Vec<String>) {
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        _ => Vec::new(),
    };
    for (name, part) in parts {
        collect(part, format!("{at}/{name}"), places);
    }
    places.push(at);
}

#[test]
fn random_json_is_answered_in_the_documented_shape() {
    try_many(json(), async |service, body| push(service, body.to_string().into_bytes()).await);
}

#[test]
fn a_push_with_one_value_replaced_is_answered_in_the_documented_shape() {
    try_many(nearly_valid(), async |service, body| {
        push(service, body.to_string().into_bytes()).await
    });
}

#[test]
fn random_lines_are_each_answered_as_if_they_had_come_alone() {
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    let line = prop_oneof![
        json().prop_map(|line| line.to_string().into_bytes()),
        nearly_valid().prop_map(|line| line.to_string().into_bytes()),
        bytes,
    ];
    try_many(prop::collection::vec(line, 0..6), async |service, lines| {
        let body = lines.join(&b'\n');
        let lines: Vec<&[u8]> = body.split(|b| *b == b'\n').collect();
        let mut connection = Connection::open(service.address).await;
        connection.send(batch_request_of(service, &body).bytes()).await;
        let raw = connection.raw_answer().await;
        let pushes = lines.iter().filter(|line| !line.trim_ascii().is_empty());
        if raw.http != 200 {
            prop_assert_eq!((raw.http, pushes.count()), (400, 0), "{}", raw.text);
            return Ok(());
        }
        let answers = Answers::new(raw.headers, &raw.text);
        prop_assert_eq!(answers.lines.len(), pushes.clone().count());
        for (line, answer) in pushes.zip(&answers.lines) {
            let alone = Request::push(service, line).send(service).await;
            prop_assert_eq!(alone.status(), answer.status(), "{:?}", line);
            prop_assert!(alone.status() == 200 || alone.text == answer.text, "{:?}", line);
        }
        Ok(())
    });
}

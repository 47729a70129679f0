//! Filters reach exactly whom they name, and no one if they name what does not exist.

use push_tests::stack::APP;
use serde_json::{Value, json};

use super::{
    in_both_forms,
    service::{Service, devices_of, received},
};

in_both_forms! {
    a_filter_with_a_name_that_is_not_declared_is_refused_and_reaches_no_one
    samples_of_one_seed_share_no_device_and_leave_none_out
}

fn device(id: &str, more: &Value) -> Value {
    let mut device = json!({"client_id": id, "transport": "webhook", "token": "x"});
    for (name, value) in more.as_object().unwrap() {
        device[name] = value.clone();
    }
    device
}

async fn a_filter_with_a_name_that_is_not_declared_is_refused_and_reaches_no_one(
    service: &Service,
) {
    service
        .import(&[
            device("pro", &json!({"attributes": {"plan": "pro", "level": 3}})),
            device("free", &json!({"attributes": {"plan": "free"}, "topics": ["f1"]})),
            device("none", &json!({})),
        ])
        .await;
    let mut receipts = service.webhook.receipts();
    let pro = json!({"attribute": "plan", "in": ["pro"]});
    let with = |filter: &Value| json!({"type": 1, "targeting": {"filter": filter}});
    for filter in [
        json!({"any": [pro, {"attribute": "plam", "in": ["pro"]}]}),
        json!({"any": [pro, {"not": {"attribute": "levle", "gte": 1}}]}),
        json!({"any": [pro, {"topics": "f1"}]}),
        json!({"any": [pro, {"attribute": "plan", "is": "free"}]}),
        json!({"any": [pro, {"attribute": "plan", "gte": "free"}]}),
        json!({"any": [pro, {"attribute": "level", "in": ["high"]}]}),
        json!({"any": []}),
        json!({"not": {"all": []}}),
        json!({}),
    ] {
        let (status, answer) = service.try_push(&with(&filter)).await;
        assert_eq!((status, &answer["status"]), (400, &json!(21005)), "{filter}: {answer}");
        let question = json!({"condition": with(&filter)});
        let counted = service.call("POST", &format!("/v1/audience/{APP}"), &question).await;
        assert_eq!(counted.0, 400, "{filter}: {counted:?}");
    }
    let mut expected = Vec::new();
    for (filter, devices) in [
        (json!({"any": [pro, {"topic": "f1"}]}), vec!["free", "pro"]),
        (json!({"not": pro}), vec!["free", "none"]),
        (json!({"all": [{"not": pro}, {"attribute": "plan", "in": ["free"]}]}), vec!["free"]),
        (json!({"not": {"attribute": "level", "lt": 3}}), vec!["free", "none", "pro"]),
        (json!({"attribute": "level", "gte": 3, "lt": 3.5}), vec!["pro"]),
        (json!({"any": [{"topic": "f2"}, {"attribute": "level", "gt": 3}]}), vec![]),
    ] {
        let message = service.push(&with(&filter)).await;
        expected.push((filter, devices, message));
    }
    for (filter, devices, message) in &expected {
        let report = service.closed(message).await;
        assert_eq!(report["sent"], devices.len(), "{filter}: {report}");
    }
    let received = received(&mut receipts);
    for (filter, devices, message) in &expected {
        let reached: Vec<String> = devices_of(&received, message).into_iter().collect();
        assert_eq!(&reached, devices, "{filter}");
    }
    let with_devices = expected.iter().filter(|(_, devices, _)| !devices.is_empty());
    assert_eq!(received.len(), with_devices.count(), "what was refused was not sent");
}

async fn samples_of_one_seed_share_no_device_and_leave_none_out(service: &Service) {
    const DEVICES: usize = 500;
    let devices: Vec<Value> = (0..DEVICES)
        .map(|n| device(&format!("device-{n:03}"), &json!({"topics": ["f1"]})))
        .collect();
    service.import(&devices).await;
    let mut receipts = service.webhook.receipts();
    let push = async |from: f64, to: f64, seed: &str| {
        let sample = json!({"from": from, "to": to, "seed": seed});
        let f1 = json!({"filter": {"topic": "f1"}});
        let message = service.push(&json!({"type": 1, "targeting": f1, "sample": sample})).await;
        service.closed(&message).await;
        message
    };
    let tenth = push(0.0, 10.0, "spring").await;
    let rest = push(10.0, 100.0, "spring").await;
    let again = push(0.0, 10.0, "spring").await;
    let other = push(0.0, 10.0, "autumn").await;
    let received = received(&mut receipts);
    let [tenth, rest, again, other] =
        [tenth, rest, again, other].map(|message| devices_of(&received, &message));
    assert!((20..=90).contains(&tenth.len()), "about 50 of 500: {}", tenth.len());
    assert!(tenth.is_disjoint(&rest));
    assert_eq!(tenth.len() + rest.len(), DEVICES);
    assert_eq!(tenth, again, "a seed always makes the same share");
    assert_ne!(tenth, other, "another seed makes another one");
}

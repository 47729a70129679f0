//! The fields outside of the condition and the content, and JSON that cannot be read.

use super::*;

#[test]
fn what_is_required_is_named_when_it_is_missing_or_null() {
    for field in ["type", "time_to_live", "condition", "condition.type"] {
        assert_eq!(problem(read(&with(field, Value::Null))), format!("{field} is required"));
    }
    assert_eq!(problem(read(&json!({}))), "type is required");
}

#[test]
fn numbers_have_their_values_and_no_others() {
    for good in [json!(0), json!(60), json!(u64::MAX)] {
        assert!(read(&with("time_to_live", good.clone())).is_ok(), "{good}");
    }
    let wrong =
        [json!(-1), json!(1.5), json!(-1.0), json!("60"), json!(true), json!([1]), json!({})];
    for field in ["time_to_live", "type", "condition.type", "notification.notification_type"] {
        for value in &wrong {
            let problem = problem(read(&with(field, value.clone())));
            assert!(problem.starts_with(&format!("{field}: ")), "{field} {value}: {problem}");
        }
    }
    for (field, value) in
        [("type", 0), ("type", 3), ("condition.type", 3), ("notification.notification_type", 2)]
    {
        let problem = problem(read(&with(field, json!(value))));
        assert!(problem.starts_with(&format!("{field} must be ")), "{problem}");
    }
}

#[test]
fn a_whole_number_may_have_a_fraction_and_an_exponent() {
    for (number, seconds) in [
        ("60.0", 60),
        ("6e1", 60),
        ("0.6E+2", 60),
        ("6000e-2", 60),
        ("-0", 0),
        ("-0.0", 0),
        ("0e999999999999", 0),
        ("1e19", 10_000_000_000_000_000_000),
        ("9007199254740992.0", 1 << 53),
    ] {
        let body = format!(
            r#"{{"type":1.0,"time_to_live":{number},"condition":{{"type":0e0}},
                "notification":{{"notification_type":3.0,"open_type":20e-1}}}}"#
        );
        let push = read_text(&body).unwrap_or_else(|problem| panic!("{number}: {problem:?}"));
        assert_eq!(push.time_to_live, seconds, "{number}");
    }
}

#[test]
fn a_byte_order_mark_before_the_body_is_skipped() {
    let body = valid().to_string();
    assert_eq!(read_text(&format!("\u{feff}{body}")), read_text(&body));
    for wrong in [format!("\u{feff}\u{feff}{body}"), format!(" \u{feff}{body}")] {
        assert_eq!(problem(read_text(&wrong)), "the body must be a JSON object");
    }
}

#[test]
fn a_number_that_is_too_large_or_not_whole_is_illegal_and_not_rounded() {
    let nines = "9".repeat(400);
    let huge = format!("1e{nines}");
    for number in [
        "18446744073709551616",
        "18446744073709551616.0",
        "1e20",
        "1e400",
        "-1e400",
        "1e-1",
        "0.5",
        "59.999999999999",
        "-1.0",
        "1e-400",
        "60.000000000000000000001",
        "1e99999999999999999999",
        &huge,
        &nines,
    ] {
        let body = format!(r#"{{"type":1,"time_to_live":{number},"condition":{{"type":0}}}}"#);
        let problem = problem(read_text(&body));
        assert!(problem.starts_with("time_to_live: the number "), "{number}: {problem}");
    }
    for field in
        ["type", "condition.type", "notification.notification_type", "notification.open_type"]
    {
        let body = with(field, json!("HERE")).to_string();
        for (number, is) in
            [("1.00000000000000000000001", "has a fraction"), (nines.as_str(), "too large")]
        {
            let problem = problem(read_text(&body.replace("\"HERE\"", number)));
            assert!(problem.contains(field) && problem.contains(is), "{field}: {problem}");
        }
    }
}

#[test]
fn a_misspelt_criterion_is_named_and_an_unknown_field_elsewhere_is_ignored() {
    let spelt = |path: &str| problem(read(&with(path, json!({"contry": ["CN"]}))));
    assert!(spelt("condition.targetting").contains("unknown field `targetting`"));
    let mut body = with("condition.type", json!(1));
    body["condition"]["targeting"] = json!({"contry": ["CN"]});
    let text = problem(read(&body));
    assert!(text.contains("condition.targeting") && text.contains("`contry`"), "{text}");

    assert!(read(&with("unknown", json!([{"deep": {}}]))).is_ok());
    assert!(read(&with("notification.unknown", json!(7))).is_ok());
}

#[test]
fn a_repeated_key_is_illegal() {
    for body in [
        r#"{"type":1,"type":2,"time_to_live":1,"condition":{"type":0}}"#,
        r#"{"type":1,"time_to_live":1,"condition":{"type":0,"type":0}}"#,
        r#"{"type":1,"time_to_live":1,"condition":{"type":1,"targeting":{"brand":["a"],"brand":["b"]}}}"#,
        r#"{"type":1,"time_to_live":1,"condition":{"type":0},"notification":{"title":"a","title":"b"}}"#,
        r#"{"type":2,"time_to_live":1,"condition":{"type":0},"data":{"a":"1","a":"2"}}"#,
    ] {
        let problem = problem(read_text(body));
        assert!(problem.contains("duplicate field") || problem.contains("twice"), "{problem}");
    }
}

#[test]
fn objects_are_objects() {
    for body in ["", " ", "null", "[]", "7", "\"x\"", r#"[false,1,60,{"type":0},null,null]"#] {
        assert_eq!(problem(read_text(body)), "the body must be a JSON object");
    }
    for value in [json!([0]), json!("0"), json!(0), json!(true)] {
        let text = problem(read(&with("condition", value.clone())));
        assert_eq!(text, "condition must be a JSON object");
        let mut body = with("condition.type", json!(1));
        body["condition"]["targeting"] = value.clone();
        assert_eq!(problem(read(&body)), "condition.targeting must be a JSON object");
        let text = problem(read(&with("notification", value.clone())));
        assert_eq!(text, "notification must be a JSON object");
        let mut body = with("type", json!(2));
        body["data"] = value;
        assert_eq!(problem(read(&body)), "data must be a JSON object");
    }
}

#[test]
fn what_is_not_json_is_said_with_its_place() {
    for body in
        ["{", "{\"type\":1,}", "{\"type\":1} x", "{'type':1}", "{\"type\":01}", "{\"a\":\"\u{1}\"}"]
    {
        let text = problem(read_text(body));
        assert!(
            text.starts_with("the body is not valid JSON") && text.contains(" at character "),
            "{text}"
        );
    }
    assert_eq!(
        problem(Push::read(b"{\"a\":\"\xff\"}", rules())),
        "the body is not UTF-8 (at byte 6)"
    );
    let lone_surrogate =
        r#"{"type":1,"time_to_live":1,"condition":{"type":0},"notification":{"title":"\ud800"}}"#;
    assert!(problem(read_text(lone_surrogate)).contains("notification.title"));
}

#[test]
fn deep_nesting_is_answered_and_not_followed() {
    for open in ["[", "{\"a\":"] {
        let deep = open.repeat(100_000);
        let _ = read_text(&deep);
        let body = format!(r#"{{"type":1,"x":{deep}"#);
        assert!(matches!(read_text(&body), Err(Rejection::MessageIllegal(_))));
    }
}

#[test]
fn a_line_has_an_idempotency_key_and_a_body_has_none() {
    let with_key = |key: Value| with("idempotency_key", key).to_string();
    let key = |line: &str| {
        let read = Push::read_line(line.as_bytes(), rules());
        read.map(|(_, key)| key.map(|key| key.to_string()))
    };
    assert_eq!(key(&valid().to_string()), Ok(None));
    assert_eq!(key(&with_key(Value::Null)), Ok(None));
    assert_eq!(key(&with_key(json!("order-17"))), Ok(Some("order-17".into())));
    assert_eq!(key(&with_key(json!("a\"\u{e9}"))), Ok(Some("a\"\u{e9}".into())), "as it was sent");
    let mut unused = with("idempotency_key", json!("order-17"));
    unused["data"] = json!(7);
    assert_eq!(key(&unused.to_string()), Ok(Some("order-17".into())));
    for wrong in [json!(17), json!(["order-17"]), json!({})] {
        let Err(Rejection::MessageIllegal(problem)) = key(&with_key(wrong.clone())) else {
            panic!("{wrong} is not a key");
        };
        assert!(problem.starts_with("idempotency_key: "), "{problem}");
        assert!(Push::read(with_key(wrong).as_bytes(), rules()).is_ok(), "it is an unknown field");
    }
}

#[test]
fn dry_run_is_a_boolean_and_false_by_default() {
    assert!(!read(&valid()).unwrap().dry_run);
    assert!(!read(&with("dry_run", Value::Null)).unwrap().dry_run);
    assert!(read(&with("dry_run", json!(true))).unwrap().dry_run);
    for wrong in [json!(1), json!("true"), json!([])] {
        assert!(problem(read(&with("dry_run", wrong))).starts_with("dry_run: "));
    }
}

#[test]
fn a_huge_time_to_live_expires_at_the_latest_time() {
    let push = read(&with("time_to_live", json!(u64::MAX))).unwrap();
    let (payload, _, _) = push.into_parts(
        MessageId::issue_named(&"a".parse().unwrap()),
        "a".parse().unwrap(),
        UnixMillis(1),
        1_000,
    );
    assert_eq!(payload.expires_at, UnixMillis::MAX);
}

#[test]
fn a_long_error_is_not_sent_back_whole() {
    let mut body = with("type", json!(2));
    body["data"] = json!({"k".repeat(100_000): 1});
    assert!(problem(read(&body)).len() < 400);
}

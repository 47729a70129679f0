//! Hints, which every push may have.

use push_model::hints::Priority;

use super::*;

/// The hints of a push of type 1 and of type 2 with this field; both have the same.
fn hints(field: &str, value: &Value) -> Result<Hints<'static>, Rejection> {
    let mut body = with(field, value.clone());
    let of_notification = read(&body).map(|push| push.hints);
    body["type"] = json!(2);
    assert_eq!(read(&body).map(|push| push.hints), of_notification, "{field}");
    of_notification
}

fn hint_problem(field: &str, value: &Value) -> String {
    match hints(field, value) {
        Err(Rejection::MessageIllegal(problem)) => problem,
        other => panic!("{field} {value}: 21005 expected, not {other:?}"),
    }
}

#[test]
fn the_hints_of_a_push_are_those_of_its_payload() {
    let mut body = valid();
    for (field, value) in [
        ("priority", json!("high")),
        ("collapse_key", json!("score")),
        ("channel_id", json!("news")),
        ("category", json!("REPLY")),
        ("image", json!("https://cdn.example/a.png?b=\u{e9}")),
        ("sound", json!("default")),
        ("badge", json!(3)),
    ] {
        body[field] = value;
    }
    let (payload, _, _) = read(&body).unwrap().into_parts(
        MessageId::issue_named(&"a".parse().unwrap()),
        "a".parse().unwrap(),
        UnixMillis(1),
        1_000,
    );
    let expected = Hints {
        priority: Some(Priority::High),
        collapse_key: Some("score".into()),
        channel_id: Some("news".into()),
        category: Some("REPLY".into()),
        image: Some("https://cdn.example/a.png?b=\u{e9}".into()),
        sound: Some("default".into()),
        badge: Some(3),
    };
    assert_eq!(payload.hints, expected);
    assert_eq!(read(&valid()).unwrap().hints, Hints::default());
}

#[test]
fn a_hint_that_is_null_is_absent() {
    for field in ["priority", "collapse_key", "channel_id", "category", "image", "sound", "badge"] {
        assert_eq!(hints(field, &Value::Null), Ok(Hints::default()), "{field}");
    }
}

#[test]
fn a_hint_of_another_type_is_illegal_and_named() {
    let wrong = [json!(true), json!([]), json!({}), json!({"high": null})];
    for field in ["priority", "collapse_key", "channel_id", "category", "image", "sound", "badge"] {
        let other = if field == "badge" { json!("1") } else { json!(1) };
        for value in wrong.iter().chain([&other]) {
            let problem = hint_problem(field, value);
            assert!(problem.starts_with(&format!("{field}: invalid type")), "{problem}");
        }
    }
}

#[test]
fn a_priority_is_normal_or_high() {
    assert_eq!(hints("priority", &json!("normal")).unwrap().priority, Some(Priority::Normal));
    for wrong in ["", "HIGH", "urgent", "high "] {
        let problem = hint_problem("priority", &json!(wrong));
        assert_eq!(problem, "priority must be normal or high");
    }
}

#[test]
fn a_name_has_a_bounded_length_and_no_control_characters() {
    for (field, most) in
        [("collapse_key", 64), ("channel_id", 256), ("category", 256), ("sound", 256)]
    {
        for good in ["a", "\u{e9} \"x\"", &"x".repeat(most)] {
            assert!(hints(field, &json!(good)).is_ok(), "{field} {good}");
        }
        let too_long_in_bytes = "\u{e9}".repeat(most / 2 + 1);
        for wrong in ["", "a\nb", "\u{0}", "a\u{85}", &"x".repeat(most + 1), &too_long_in_bytes] {
            let problem = hint_problem(field, &json!(wrong));
            let rule = format!("{field} must be 1 to {most} bytes without control characters");
            assert_eq!(problem, rule, "{wrong}");
        }
    }
}

#[test]
fn an_image_is_an_https_url() {
    let longest = format!("https://cdn.example/{}", "a".repeat(2048 - 20));
    for good in ["https://cdn.example/a.png", "HTTPS://[::1]:8443/a?b#c", &longest] {
        assert!(hints("image", &json!(good)).is_ok(), "{good}");
    }
    let too_long = format!("{longest}a");
    for wrong in [
        "",
        "a.png",
        "//cdn.example/a.png",
        "http://cdn.example/a.png",
        "data:image/png;base64,AA==",
        "https:",
        " https://cdn.example/a.png",
        "https://cdn.example/a\n.png",
        &too_long,
    ] {
        let problem = hint_problem("image", &json!(wrong));
        assert_eq!(problem, "image must be an https: URL of at most 2048 bytes", "{wrong}");
    }
}

#[test]
fn a_badge_is_a_whole_number_up_to_a_million() {
    for (number, badge) in [(json!(0), 0), (json!(1.0), 1), (json!(1_000_000), 1_000_000)] {
        assert_eq!(hints("badge", &number).unwrap().badge, Some(badge));
    }
    for wrong in [json!(1_000_001), json!(u64::MAX)] {
        let problem = hint_problem("badge", &wrong);
        assert_eq!(problem, "badge must be a whole number from 0 to 1000000");
    }
    for wrong in [json!(-1), json!(1.5)] {
        assert!(hint_problem("badge", &wrong).starts_with("badge: the number "));
    }
}

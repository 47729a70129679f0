//! Every row of the table of request fields, as a valid push with one thing changed.

use proptest::prelude::*;
use push_model::{attributes::Attribute, message::Audience, targeting::Targeting, text::Literal};
use serde_json::{Value, json};

use super::*;

const RULES: Rules = Rules { max_client_ids: 3 };

/// The push borrows from its body, which therefore stays until the tests end.
fn read(body: &Value) -> Result<Push<'static>, Rejection> {
    read_text(body.to_string().leak())
}

/// Reading everything at once gives what reading no more than what is used gives, and a line of a
/// request with many pushes is what a body is.
fn read_text(body: &str) -> Result<Push<'_>, Rejection> {
    let push = Push::read(body.as_bytes(), RULES);
    assert_eq!(push, Push::read_what_is_used(body, RULES), "{body}");
    let line = Push::read_line(body.as_bytes(), RULES);
    assert_eq!(push, line.map(|(push, _)| push), "{body}");
    push
}

#[test]
fn a_line_has_an_idempotency_key_and_a_body_has_none() {
    let with_key = |key: Value| with("idempotency_key", key).to_string();
    let key = |line: &str| {
        let read = Push::read_line(line.as_bytes(), RULES);
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
        assert!(Push::read(with_key(wrong).as_bytes(), RULES).is_ok(), "it is an unknown field");
    }
}

/// A valid push of type 1 to everyone.
fn valid() -> Value {
    json!({"type": 1, "time_to_live": 60, "condition": {"type": 0}})
}

/// The valid push with one place changed; `path` is `a.b.c`.
fn with(path: &str, value: Value) -> Value {
    let mut body = valid();
    let mut place = &mut body;
    for name in path.split('.') {
        if !place[name].is_object() && !place.is_object() {
            *place = json!({});
        }
        place = &mut place[name];
    }
    *place = value;
    body
}

fn problem(outcome: Result<Push<'_>, Rejection>) -> String {
    match outcome {
        Err(Rejection::MessageIllegal(problem)) => problem,
        other => panic!("21005 expected, not {other:?}"),
    }
}

fn notification(body: Value) -> Notification<'static> {
    match read(&body).unwrap().content {
        Content::Notification(notification) => notification,
        Content::Data(_) => panic!("a notification"),
    }
}

fn says(literal: Option<Literal<'_>>) -> Option<String> {
    literal.map(|literal| literal.text().into_owned())
}

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
        [json!(-1), json!(1.5), json!(1.0), json!("60"), json!(true), json!([1]), json!({})];
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
fn a_number_that_is_too_large_is_illegal_and_not_rounded() {
    for number in ["18446744073709551616", "1e3", "1e400", "-0.0", "9".repeat(400).as_str()] {
        let body = format!(r#"{{"type":1,"time_to_live":{number},"condition":{{"type":0}}}}"#);
        let problem = problem(read_text(&body));
        assert!(problem.contains("time_to_live"), "{number}: {problem}");
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
fn what_is_not_json_is_said_with_line_and_column() {
    for body in
        ["{", "{\"type\":1,}", "{\"type\":1} x", "{'type':1}", "{\"type\":01}", "{\"a\":\"\u{1}\"}"]
    {
        let text = problem(read_text(body));
        assert!(
            text.starts_with("the body is not valid JSON") && text.contains("line 1"),
            "{text}"
        );
    }
    assert_eq!(
        problem(Push::read(b"{\"a\":\"\xff\"}", RULES)),
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
fn targeting_is_normalised_and_a_bad_value_is_named_by_its_place() {
    let targeting = |targeting: Value| {
        let mut body = with("condition.type", json!(1));
        body["condition"]["targeting"] = targeting;
        read(&body)
    };
    let push = targeting(json!({
        "country": ["cn", "CN", "sg"], "language": ["zh_CN", "*"], "brand": [" Xiao Mi"],
        "model": [], "os_version": ["034"], "app_version": null
    }));
    let Audience::Targeting(wanted) = push.unwrap().audience else { panic!("targeting") };
    let list = |a| wanted.wanted(a).iter().map(|value| &**value).collect::<Vec<_>>();
    assert_eq!(list(Attribute::Country), ["CN", "SG"]);
    assert_eq!(list(Attribute::Language), ["*", "zh-cn"]);
    assert_eq!(list(Attribute::Brand), ["XIAOMI"]);
    assert_eq!(list(Attribute::OsVersion), ["34"]);
    assert!(wanted.wanted(Attribute::Model).is_empty());

    assert_eq!(targeting(json!({})).unwrap().audience, Audience::Targeting(Targeting::everyone()));
    assert_eq!(
        problem(targeting(json!({"country": ["CN", "China"]}))),
        "condition.targeting.country[1] must be two letters (ISO 3166-1 alpha-2), like CN"
    );
    for (list, bad) in [
        ("language", json!(["z h"])),
        ("brand", json!([" "])),
        ("model", json!(["a\u{7}"])),
        ("os_version", json!(["14.0"])),
        ("app_version", json!([""])),
        ("model", json!(["x".repeat(129)])),
    ] {
        let text = problem(targeting(json!({list: bad})));
        assert!(text.starts_with(&format!("condition.targeting.{list}[0] must ")), "{text}");
    }
    for wrong in [json!("CN"), json!([1]), json!([null]), json!({"0": "CN"}), json!([["CN"]])] {
        let text = problem(targeting(json!({"country": wrong})));
        assert!(text.starts_with("condition.targeting.country"), "{text}");
    }
}

#[test]
fn client_ids_are_counted_without_repeats() {
    let clients = |ids: Value| {
        let mut body = with("condition.type", json!(2));
        body["condition"]["client_ids"] = ids;
        read(&body)
    };
    let Ok(Push { audience: Audience::Clients(ids), .. }) =
        clients(json!(["b", "a", "b", "c", "a"]))
    else {
        panic!("three clients are allowed")
    };
    assert_eq!(ids.len(), 3);
    assert_eq!(
        clients(json!(["a", "b", "c", "d", "a"])),
        Err(Rejection::TooManyClients { given: 4, limit: 3 })
    );
    let required = "condition.client_ids is required with condition.type 2 (users)";
    assert_eq!(problem(clients(Value::Null)), required);
    assert_eq!(problem(clients(json!([]))), "condition.client_ids must name at least one device");
    for bad in [
        json!(["a", "b c"]),
        json!(["a", ""]),
        json!(["a", 5]),
        json!(["a", null]),
        json!(["a", "x".repeat(129)]),
    ] {
        let text = problem(clients(bad));
        assert!(text.starts_with("condition.client_ids[1]"), "{text}");
    }
    assert!(problem(clients(json!("a"))).starts_with("condition.client_ids"));
}

#[test]
fn what_the_condition_type_does_not_use_has_no_effect() {
    for junk in [json!(5), json!(["", 1]), json!({"contry": 1})] {
        let mut body = valid();
        body["condition"]["client_ids"] = junk.clone();
        body["condition"]["targeting"] = junk.clone();
        assert_eq!(read(&body).unwrap().audience, Audience::All);
        body["notification"] = json!({});
        body["data"] = junk.clone();
        assert!(read(&body).is_ok(), "data of a notification");
        let mut body = with("type", json!(2));
        body["notification"] = junk;
        assert!(read(&body).is_ok(), "a notification of data");
    }
}

#[test]
fn a_notification_field_without_effect_is_accepted_whatever_it_is_and_not_delivered() {
    let given = json!({
        "title": "t", "desc": "", "open_type": "2", "open_content": "https://x",
        "icon": 5, "button_text": [], "small_icon": "s", "small_icon_color": "#00ffAA"
    });
    let system = notification(with("notification", given.clone()));
    assert_eq!(system.notification_type, 1);
    assert_eq!((system.icon, system.button_text), (None, None));
    assert_eq!(says(system.small_icon_color).as_deref(), Some("#00ffAA"));
    assert_eq!((system.open_type, says(system.desc).as_deref()), (Some(2), Some("")));

    let mut given = given;
    given["notification_type"] = json!(3);
    given["icon"] = json!("i");
    given["button_text"] = json!("b");
    given["small_icon_color"] = json!("red");
    let button = notification(with("notification", given));
    assert_eq!(
        (says(button.icon).as_deref(), says(button.button_text).as_deref()),
        (Some("i"), Some("b"))
    );
    assert_eq!((button.small_icon, button.small_icon_color), (None, None));
}

#[test]
fn a_notification_field_with_effect_is_checked() {
    for field in ["title", "desc", "open_content", "small_icon", "small_icon_color"] {
        for wrong in [json!(1), json!([]), json!({}), json!(false)] {
            let text = problem(read(&with(&format!("notification.{field}"), wrong)));
            assert!(text.starts_with(&format!("notification.{field}: ")), "{text}");
        }
        assert!(read(&with(&format!("notification.{field}"), Value::Null)).is_ok());
    }
    for bad in ["", "red", "00ff00", "#00ff0", "#00ff000", "#00ff0g", "#00fé0"] {
        let text = problem(read(&with("notification.small_icon_color", json!(bad))));
        assert_eq!(text, "notification.small_icon_color must be like #RRGGBB");
    }
    for good in [json!(1), json!("1"), json!(2), json!("2"), Value::Null] {
        assert!(read(&with("notification.open_type", good)).is_ok());
    }
    for bad in [json!(0), json!(3), json!("3"), json!(""), json!(1.0), json!(-1), json!(true)] {
        let text = problem(read(&with("notification.open_type", bad)));
        assert!(text.starts_with("notification.open_type: "), "{text}");
    }
}

#[test]
fn data_is_strings_of_at_most_2048_bytes_together() {
    let data = |data: Value| {
        let mut body = with("type", json!(2));
        body["data"] = data;
        read(&body)
    };
    assert!(data(Value::Null).is_ok());
    assert!(data(json!({})).is_ok());
    assert!(data(json!({"k": "v".repeat(2047)})).is_ok());
    assert!(data(json!({"ключ": "é".repeat(1020)})).is_ok(), "8 + 2040 bytes");
    let text = problem(data(json!({"k": "v".repeat(2048)})));
    assert_eq!(text, "data has 2049 bytes of keys and values together, at most 2048 are allowed");
    assert!(problem(data(json!({"ключ": "é".repeat(1021)}))).contains("2050"));
    for wrong in [json!(1), json!(null), json!(true), json!([]), json!({})] {
        let text = problem(data(json!({"ok": "", "key": wrong})));
        assert!(text.starts_with("data.key: "), "{text}");
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
    let (payload, _) = push.into_parts(
        MessageId::issue(&"a".parse().unwrap()),
        "a".parse().unwrap(),
        UnixMillis(1),
    );
    assert_eq!(payload.expires_at, UnixMillis::MAX);
}

#[test]
fn a_long_mistake_is_not_sent_back_whole() {
    let mut body = with("type", json!(2));
    body["data"] = json!({"k".repeat(100_000): 1});
    assert!(problem(read(&body)).len() < 400);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Push::read(&body, RULES);
    }

    #[test]
    fn a_damaged_push_is_read_or_refused(at in 0usize..400, byte: u8) {
        let mut body = with("condition.targeting.country", json!(["CN"]));
        body["condition"]["client_ids"] = json!(["a", "b"]);
        body["notification"] = json!({"title": "t", "open_type": 1, "small_icon_color": "#000000"});
        body["data"] = json!({"k": "v"});
        let mut body = body.to_string().into_bytes();
        let at = at % body.len();
        body[at] = byte;
        match std::str::from_utf8(&body) {
            Ok(text) => drop(read_text(text)),
            Err(_) => prop_assert!(Push::read(&body, RULES).is_err()),
        }
    }
}

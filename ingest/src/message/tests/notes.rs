//! What the sender of a valid push is told.

use super::*;

fn texts(body: &Value) -> Vec<String> {
    read(body).unwrap().notes.into_texts()
}

/// A push without anything to say.
fn plain() -> Value {
    with("notification", json!({ "title": "t" }))
}

#[test]
fn an_ordinary_push_has_nothing_to_be_told() {
    assert_eq!(texts(&plain()), [""; 0]);
    let mut full = plain();
    full["notification"] = json!({
        "notification_type": 3, "title": "t", "desc": "d", "icon": "i", "button_text": "b",
        "open_type": 1, "open_content": "", "small_icon": null
    });
    full["condition"] = json!({ "type": 2, "client_ids": ["a"], "targeting": null });
    full["priority"] = json!("high");
    assert_eq!(texts(&full), [""; 0]);
    let data = json!({ "type": 2, "time_to_live": 1, "condition": { "type": 0 }, "data": {} });
    assert_eq!(texts(&data), [""; 0]);
}

#[test]
fn an_unknown_field_is_named_with_the_nearest_known_one_and_strict_handling_refuses_it() {
    let mut body = plain();
    body["time_to_life"] = json!(1);
    body["notification"]["titel"] = json!("t");
    body["xyzzy"] = json!({ "a": [1] });
    let told = [
        "time_to_life is an unknown field; the nearest one is time_to_live",
        "xyzzy is an unknown field",
        "notification.titel is an unknown field; the nearest one is notification.title",
    ];
    assert_eq!(texts(&body), told);
    let push = read(&body).unwrap();
    let refused = push.notes.refuse_unknown_fields().unwrap_err();
    assert_eq!(refused, Rejection::MessageIllegal(told.join(", and ")));
    assert_eq!(read(&plain()).unwrap().notes.refuse_unknown_fields(), Ok(()));
}

#[test]
fn many_and_long_unknown_fields_make_a_short_answer() {
    let mut body = plain();
    for n in 0..1000 {
        body[format!("{n:0300}\u{1b}")] = json!(n);
    }
    let texts = texts(&body);
    assert_eq!(texts.len(), 6);
    assert_eq!(texts[5], "995 more fields are unknown");
    assert!(texts.iter().all(|text| text.len() < 200), "{texts:?}");
}

#[test]
fn a_field_without_effect_and_a_notification_without_text_are_told_and_not_refused() {
    let told = |path: &str, value: Value| {
        let mut body = plain();
        let mut field = &mut body;
        for name in path.split('.') {
            field = &mut field[name];
        }
        *field = value;
        let push = read(&body).unwrap();
        assert_eq!(push.notes.refuse_unknown_fields(), Ok(()));
        push.notes.into_texts().join("; ")
    };
    assert_eq!(told("data", json!({})), "data has no effect with type 1 (notification)");
    assert_eq!(
        told("notification.icon", json!("i")),
        "notification.icon has no effect with notification_type 1 (system)"
    );
    assert_eq!(
        told("condition.client_ids", json!(["a"])),
        "condition.client_ids has no effect with condition.type 0"
    );
    assert_eq!(
        told("notification", json!({})),
        "the notification has neither title nor desc, so a device has no text to show"
    );
    let mut body = plain();
    body["type"] = json!(2);
    assert_eq!(texts(&body), ["notification has no effect with type 2 (data)"]);
}

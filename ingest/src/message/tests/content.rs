//! Notifications and data.

use push_model::text::Literal;

use super::*;

fn notification(body: Value) -> Notification<'static> {
    match read(&body).unwrap().content {
        Content::Notification(notification, _) => notification,
        Content::Data(_) => panic!("a notification"),
    }
}

fn text_of(literal: Option<Literal<'_>>) -> Option<String> {
    literal.map(|literal| literal.text().into_owned())
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
    assert_eq!(text_of(system.small_icon_color).as_deref(), Some("#00ffAA"));
    assert_eq!((system.open_type, text_of(system.desc).as_deref()), (Some(2), Some("")));

    let mut given = given;
    given["notification_type"] = json!(3);
    given["icon"] = json!("i");
    given["button_text"] = json!("b");
    given["small_icon_color"] = json!("red");
    let button = notification(with("notification", given));
    assert_eq!(
        (text_of(button.icon).as_deref(), text_of(button.button_text).as_deref()),
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
    for good in [json!(1), json!("1"), json!(2), json!("2"), json!(1.0), Value::Null] {
        assert!(read(&with("notification.open_type", good)).is_ok());
    }
    let bad = [json!(0), json!(3), json!("3"), json!(""), json!(1.5), json!("1.0"), json!(-1)];
    for bad in bad.into_iter().chain([json!(true), json!(3.0), json!(1e300)]) {
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

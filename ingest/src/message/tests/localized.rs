//! Texts in several languages.

use super::*;

fn localized(texts: Value) -> Result<Push<'static>, Rejection> {
    read(&with("notification", json!({"title": "Hi", "localized": texts})))
}

fn texts(texts: Value) -> Value {
    match localized(texts).unwrap().content {
        Content::Notification(_, localized) => serde_json::to_value(localized).unwrap(),
        Content::Data(_) => panic!("a notification"),
    }
}

#[test]
fn texts_belong_to_normalised_languages() {
    let read = texts(
        json!({"zh_Hant": {"title": "\u{4f60}"}, "iw": {"title": null, "desc": "x"}, "fr": null}),
    );
    assert_eq!(read, json!({"zh-hant": {"title": "\u{4f60}"}, "he": {"desc": "x"}}));
    assert_eq!(texts(json!({})), Value::Null);
    assert_eq!(texts(Value::Null), Value::Null);
}

#[test]
fn what_is_wrong_with_a_language_is_named() {
    let languages = |count: u8| {
        let tag = |n: u8| format!("x{}{}", char::from(b'a' + n / 26), char::from(b'a' + n % 26));
        let texts = (0..count).map(|n| (tag(n), json!({"title": "t"})));
        Value::Object(texts.collect())
    };
    assert!(localized(languages(32)).is_ok());
    for (texts, told) in [
        (languages(33), " has 33 languages, at most 32 are allowed"),
        (json!([]), " must be a JSON object"),
        (json!({"z h": {"title": "t"}}), ".z h: the language must be a language tag"),
        (json!({"zh": {}}), ".zh must have title, desc or both"),
        (json!({"zh": "t"}), ".zh must be a JSON object"),
        (json!({"zh": {"title": 5}}), ".zh.title: invalid type"),
        (json!({"he": {"title": "t"}, "iw": {"title": "t"}}), ".iw is a language that "),
    ] {
        let problem = problem(localized(texts));
        assert!(problem.starts_with(&format!("notification.localized{told}")), "{problem}");
    }
}

#[test]
fn an_unknown_field_of_a_language_is_told_and_strict_handling_refuses_it() {
    let push = localized(json!({"zh": {"title": "t", "descr": "d"}})).unwrap();
    let told = "notification.localized.zh.descr is an unknown field; the nearest one is \
                notification.localized.zh.desc";
    assert_eq!(push.notes.refuse_unknown_fields(), Err(json::illegal(told)));
    let only = read(&with("notification", json!({"localized": {"zh": {"title": "t"}}}))).unwrap();
    let texts = only.notes.into_texts();
    assert!(
        texts[0].ends_with("of a language that notification.localized lacks has no text to show")
    );
}

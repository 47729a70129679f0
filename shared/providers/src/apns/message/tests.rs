use super::*;
use crate::testing::{MESSAGE_ID, content, payload};

const IDS: &str = r#""message_id":"0192f0c1-2b3a-7c4d-8e5f-60718293a4b5","app_id":"news""#;

fn build(kind: u8, fields: &str) -> Message {
    Message::build(&content(&payload(kind, fields)).payload).unwrap()
}

/// Returns the payload, its push type, its priority and its collapse id.
fn parts(message: &Message) -> (&str, &str, &str, &str) {
    let body = std::str::from_utf8(&message.body).unwrap();
    (body, message.push_type, message.priority, message.collapse_id.to_str().unwrap())
}

#[test]
fn a_notification_becomes_an_alert_with_every_field_that_ios_shows() {
    let message = build(
        1,
        r##""notification":{"notification_type":1,"title":"Ti\"t","desc":"\u00e9\n","small_icon":"bell",
        "small_icon_color":"#FF8800","open_type":2,"open_content":"https://news.example/1"},
        "priority":"normal","collapse_key":"score","channel_id":"sport","category":"MATCH",
        "image":"https://news.example/a.png","sound":"goal.caf","badge":0"##,
    );
    let body = concat!(
        r#"{"aps":{"alert":{"title":"Ti\"t","body":"é\n"},"sound":"goal.caf","badge":0,"category":"MATCH","#,
        r#""mutable-content":1},IDS,"type":1,"sequence":1790000000000001,"notification_type":1,"open_type":2,"#,
        r#""open_content":"https://news.example/1","image":"https://news.example/a.png"}"#,
    );
    assert_eq!(parts(&message), (&*body.replace("IDS", IDS), "alert", "5", "score"));
}

#[test]
fn a_button_notification_has_icon_and_button_for_the_app_and_its_message_id_as_collapse_id() {
    let message = build(
        1,
        r#""notification":{"notification_type":3,"desc":"D","icon":"i.png","button_text":"Go"}"#,
    );
    let body = concat!(
        r#"{"aps":{"alert":{"body":"D"}},IDS,"type":1,"sequence":1790000000000001,"notification_type":3,"#,
        r#""icon":"i.png","button_text":"Go"}"#,
    );
    assert_eq!(parts(&message), (&*body.replace("IDS", IDS), "alert", "10", MESSAGE_ID));
    assert_eq!(message.id, MESSAGE_ID);
}

#[test]
fn a_push_of_type_2_becomes_a_background_push_of_priority_5_whatever_it_asks_for() {
    let message = build(
        2,
        r#""data":{"aps":"1","message_id":"2"},"priority":"high","sound":"a","badge":1,"image":"https://a/""#,
    );
    let body = concat!(
        r#"{"aps":{"content-available":1},IDS,"type":2,"sequence":1790000000000001,"#,
        r#""data":{"aps":"1","message_id":"2"}}"#,
    );
    assert_eq!(parts(&message), (&*body.replace("IDS", IDS), "background", "5", MESSAGE_ID));
}

#[test]
fn a_collapse_key_that_a_header_cannot_carry_is_replaced_by_its_hash() {
    for key in ["score", "a/b:c", &"k".repeat(64)] {
        assert_eq!(collapse_id(key), key);
    }
    let mut hashes: Vec<_> =
        ["", "a b", " a", "é", "a\nb", &"k".repeat(65)].map(collapse_id).into();
    for hash in &hashes {
        assert_eq!(hash.to_str().unwrap().len(), 43);
    }
    hashes.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    hashes.dedup();
    assert_eq!(hashes.len(), 6);
}

#[test]
fn a_message_is_too_large_by_the_bytes_of_its_payload() {
    let fields = |length: usize| format!(r#""data":{{"k":"{}"}}"#, "a".repeat(length));
    let own = build(2, &fields(0)).size();
    assert_eq!(build(2, &fields(LIMIT - own)).size(), LIMIT);
    let payload = payload(2, &fields(LIMIT - own + 7));
    let error = Message::build(&content(&payload).payload).unwrap_err();
    assert_eq!(error.to_string(), "apns carries 4096 bytes, and this is 7 more");
}

use push_model::ids::MessageId;

use super::*;
use crate::{
    Device, Provider as _,
    fcm::Fcm,
    testing::{MESSAGE_ID, RANDOM, bearer, content, delivery, payload, service_account},
};

const TOKEN: &str = "cFyGJqxnT3mVhZ_8-wZ0aB:APA91bHPRgkF3JUikC4ENAHEeMrd41Zxv3hVZjC9KtT8OvPVGJ";
const IDS: &str = r#""message_id":"0192f0c1-2b3a-7c4d-8e5f-60718293a4b5","app_id":"news","sequence":"1790000000000001""#;

/// Returns the body of the request that sends this payload to a device, with so many seconds to live.
fn body(payload: &[u8], token: &str, seconds: u64) -> String {
    let account = Fcm::account(&service_account(&serde_json::json!({})), &*RANDOM).unwrap();
    let message = Fcm::message(&content(payload), Some(&account)).unwrap();
    let token = Fcm::token(token).unwrap();
    let id: MessageId = MESSAGE_ID.parse().unwrap();
    let device = Device { client_id: "c1", token: &token };
    let delivery = delivery(&id, seconds);
    let request =
        Fcm::request(&account, &bearer("Bearer a"), &message, &delivery, &[device]).unwrap();
    String::from_utf8(request.body.to_vec()).unwrap()
}

/// Fills in what the body of every message begins with, and the ids.
fn expected(rest: &str) -> String {
    let begin = format!(r#"{{"message":{{"token":"{TOKEN}","android":{{"ttl":"60s","#);
    format!("{begin}{rest}").replace("IDS", IDS).replace("MESSAGE_ID", MESSAGE_ID)
}

#[test]
fn a_system_notification_has_every_field_that_android_shows() {
    let payload = payload(
        1,
        r##""notification":{"notification_type":1,"title":"Ti\"t","desc":"\u00e9\n","small_icon":"bell",
        "small_icon_color":"#FF8800","open_type":2,"open_content":"https://news.example/1"},
        "priority":"normal","collapse_key":"score","channel_id":"sport","category":"MATCH",
        "image":"https://news.example/a.png","sound":"goal","badge":3"##,
    );
    let golden = concat!(
        r##""priority":"NORMAL","collapse_key":"score","notification":{"icon":"bell","color":"#FF8800","##,
        r#""sound":"goal","tag":"score","click_action":"OPEN_LINK","channel_id":"sport","notification_count":3}},"#,
        r#""notification":{"title":"Ti\"t","body":"é\n","image":"https://news.example/a.png"},"#,
        r#""data":{IDS,"notification_type":"1","open_type":"2","open_content":"https://news.example/1","#,
        r#""category":"MATCH"}}}"#,
    );
    assert_eq!(body(&payload, TOKEN, 60), expected(golden));
}

#[test]
fn a_button_notification_has_icon_and_button_in_data_and_its_message_id_as_tag() {
    let payload = payload(
        1,
        r#""notification":{"notification_type":3,"title":"T","icon":"https://news.example/i.png",
        "button_text":"Go","open_type":1}"#,
    );
    let golden = concat!(
        r#""priority":"HIGH","notification":{"tag":"MESSAGE_ID"}},"notification":{"title":"T"},"#,
        r#""data":{IDS,"notification_type":"3","open_type":"1","icon":"https://news.example/i.png","#,
        r#""button_text":"Go"}}}"#,
    );
    assert_eq!(body(&payload, TOKEN, 60), expected(golden));
}

#[test]
fn a_push_of_type_2_is_data_alone_and_hints_for_notifications_have_no_effect() {
    for (fields, golden) in [
        (
            r#""data":{"a":"1","b":"\u00e9"},"sound":"goal","badge":1,"image":"https://a.example/""#,
            r#""priority":"NORMAL"},"data":{IDS,"a":"1","b":"é"}}}"#,
        ),
        (
            r#""data":{},"priority":"high","collapse_key":"k""#,
            r#""priority":"HIGH","collapse_key":"k"},"data":{IDS}}}"#,
        ),
    ] {
        assert_eq!(body(&payload(2, fields), TOKEN, 60), expected(golden));
    }
}

#[test]
fn a_notification_without_any_text_still_has_a_tag() {
    let payload = payload(1, r#""notification":{"notification_type":1}"#);
    let golden = concat!(
        r#""priority":"HIGH","notification":{"tag":"MESSAGE_ID"}},"#,
        r#""data":{IDS,"notification_type":"1"}}}"#,
    );
    assert_eq!(body(&payload, TOKEN, 60), expected(golden));
}

#[test]
fn the_time_to_live_ends_after_28_days_and_0_is_now_or_never() {
    let payload = payload(2, r#""data":{}"#);
    for (seconds, ttl) in [(0, "0s"), (1, "1s"), (2_419_200, "2419200s"), (u64::MAX, "2419200s")] {
        let body = body(&payload, TOKEN, seconds);
        assert!(body.contains(&format!(r#""ttl":"{ttl}""#)), "{body}");
    }
}

#[test]
fn an_installation_id_is_sent_as_fid() {
    let body = body(&payload(2, r#""data":{}"#), "cFyGJqxnT3mVhZ_8-wZ0aB", 1);
    assert!(
        body.starts_with(r#"{"message":{"fid":"cFyGJqxnT3mVhZ_8-wZ0aB","android":{"#),
        "{body}"
    );
}

#[test]
fn a_name_in_data_that_fcm_or_this_service_uses_is_prefixed_and_stays_the_only_one() {
    let names = [
        "from",
        "message_type",
        "collapse_key",
        "gcm",
        "gcm.n",
        "google",
        "google.c.a",
        "googlex",
        "message_id",
        "app_id",
        "sequence",
        "",
        "data.from",
        "data.data.from",
    ];
    let mut sent: Vec<_> = names.map(unreserved).into();
    for (name, sent) in names.iter().zip(&sent) {
        assert_eq!(*sent, format!("data.{name}"));
    }
    for name in ["a", "type", "From", "data", "fromage", "notification", "é"] {
        assert_eq!(unreserved(name), name);
        sent.push(name.into());
    }
    let count = sent.len();
    sent.sort();
    sent.dedup();
    assert_eq!(sent.len(), count);
}

#[test]
fn a_message_is_too_large_by_the_bytes_of_its_names_and_values() {
    let build = |length: usize| {
        let payload = payload(2, &format!(r#""data":{{"k":"{}"}}"#, "\\u00e9".repeat(length)));
        Message::build(&content(&payload).payload).map(|message| message.size())
    };
    let own = build(0).unwrap();
    assert_eq!(own, "message_idapp_idsequencek".len() + 36 + "news".len() + 16);
    assert_eq!(build((LIMIT - own) / 2).unwrap(), LIMIT - (LIMIT - own) % 2);
    let error = build((LIMIT - own) / 2 + 5).unwrap_err();
    assert_eq!((error.limit, error.size > LIMIT), (LIMIT, true));
    let more = error.size - LIMIT;
    assert_eq!(error.to_string(), format!("fcm carries 4096 bytes, and this is {more} more"));
}

#[test]
fn a_badge_is_never_larger_than_fcm_reads() {
    let payload = payload(1, r#""notification":{"notification_type":1},"badge":4294967295"#);
    assert!(body(&payload, TOKEN, 1).contains(r#""notification_count":2147483647"#));
}

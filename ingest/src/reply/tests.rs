use super::*;

#[test]
fn an_accepted_push_is_answered_in_exactly_the_documented_bytes() {
    let id: MessageId = "01890000-0000-7000-8000-00000000000A".parse().unwrap();
    assert_eq!(
        accepted(id, &[]).body,
        r#"{"status":200,"message":"OK","result":{"message_id":"01890000-0000-7000-8000-00000000000a"}}"#
    );
    let warned = accepted(id, &["one".to_owned(), "a \"two\"".to_owned()]).body;
    assert_eq!(
        warned,
        r#"{"status":200,"message":"OK","result":{"message_id":"01890000-0000-7000-8000-00000000000a","warnings":["one","a \"two\""]}}"#
    );
    let mut lines = Lines::of(2, ());
    lines.accepted(id, &[]);
    lines.accepted(id, &["one".to_owned(), "a \"two\"".to_owned()]);
    let both = [&*accepted(id, &[]).body, b"\n", &*warned, b"\n"].concat();
    assert_eq!(lines.reply().body, both);
}

#[test]
fn an_answer_is_written_whole_with_its_headers_its_date_and_its_length() {
    let rate = RateStatus { limit: 5, remaining: 0, reset: 1, retry_after: 2 };
    let reply = Reply { close: true, ..rejected(&Rejection::TooFrequent(rate)) };
    let (mut date, mut bytes) = (Date::default(), Vec::new());
    assert!(reply.write_http1(&mut date, true, &mut bytes).is_empty());
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut read = httparse::Response::new(&mut headers);
    let head = read.parse(&bytes).unwrap().unwrap();
    assert_eq!((read.code, read.reason), (Some(429), Some("Too Many Requests")));
    assert_eq!(&bytes[head..], &*reply.body);
    let length = reply.body.len().to_string();
    for (name, value) in [
        ("content-type", "application/json"),
        ("content-length", length.as_str()),
        ("date", date.text.as_str()),
        ("connection", "close"),
        ("retry-after", "2"),
        ("ratelimit-limit", "5"),
        ("ratelimit-remaining", "0"),
        ("ratelimit-reset", "1"),
    ] {
        let values: Vec<_> = read.headers.iter().filter(|h| h.name == name).collect();
        assert_eq!(values.len(), 1, "{name}");
        assert_eq!(values[0].value, value.as_bytes(), "{name}");
    }
    let said = httpdate::parse_http_date(&date.text).unwrap();
    assert!(SystemTime::now().duration_since(said).unwrap().as_secs() < 60);
}

#[test]
fn a_long_body_is_not_copied_and_head_gets_none() {
    let (mut date, mut head) = (Date::default(), Vec::new());
    let body = description(Document::Apps).write_http1(&mut date, true, &mut head);
    assert_eq!(body.as_ptr(), description(Document::Apps).body.as_ptr());
    assert!(head.ends_with(format!("{}\r\n\r\n", body.len()).as_bytes()));
    let mut without = Vec::new();
    assert!(description(Document::Apps).write_http1(&mut date, false, &mut without).is_empty());
    let last = |has_body| last_http1(&Rejection::HeadTooLarge, has_body);
    let (last_head, whole) = (last(false), last(true));
    assert!(last_head.ends_with(b"\r\n\r\n") && whole.len() > last_head.len());
}

#[test]
fn what_a_caller_sent_is_escaped_when_it_is_named() {
    let reply = rejected(&Rejection::MessageIllegal("unknown field `\"\n`".into()));
    let json: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(json["status"], 21005);
    assert_eq!(json["message"], "Message illegal: unknown field `\"\n`");
}

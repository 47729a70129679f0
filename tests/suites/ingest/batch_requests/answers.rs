//! The answers to the lines of a request.

use serde_json::json;

use super::{Answers, batch_request, batch_request_of, valid_with};
use crate::ingest::support::{
    client::{Connection, Request, UNUSUAL, VALID},
    service::Service,
};

#[tokio::test]
async fn every_line_is_answered_in_its_place_as_if_it_had_come_alone_and_spoils_no_other() {
    let service = Service::start(&["--max-client-ids=2", "--tune=max-body=1KiB"]).await;
    let users =
        |ids: &str| VALID.replace(r#"{"type":0}"#, &format!(r#"{{"type":2,"client_ids":{ids}}}"#));
    let lines = [
        VALID.to_owned(),
        "not JSON".into(),
        users(r#"["a","b"]"#),
        users(r#"["a","b","c"]"#),
        r#"{"type":1}"#.into(),
        VALID.replace("60", "-1"),
        VALID.replace(r#"{"type":0}"#, r#"{"type":1,"targeting":{"contry":["SG"]}}"#),
        valid_with(r#""data":7"#),
        "[]".into(),
        format!("{VALID}{VALID}"),
        "x".repeat(1025),
        valid_with(r#""unknown":"\u0007""#),
        valid_with(r#""type":3"#),
        VALID.to_owned(),
    ];
    let answers = Answers::to(&service, &batch_request(&service, &lines)).await;
    assert_eq!(answers.lines.len(), lines.len());
    for (line, answer) in lines.iter().zip(&answers.lines) {
        let alone = Request::push(&service, line).send(&service).await;
        assert_eq!(alone.status(), answer.status(), "{line}: {}", answer.text);
        if alone.status() != 200 {
            assert_eq!(alone.text, answer.text, "{line}");
        }
    }
    let statuses = answers.statuses();
    assert_eq!((statuses[1], statuses[3], statuses[10]), (21005, 21006, 21005));
    let good = answers.ids();
    assert_eq!(good.len(), 5);
    let jobs = service.jobs(10).await;
    let ids: Vec<_> = jobs.iter().map(|job| job.head.message_id.to_string()).collect();
    assert_eq!(ids[..5], good, "in the order of the lines");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn the_pushes_of_a_request_are_at_the_broker_by_its_answer_in_few_messages() {
    let service = Service::start(&[]).await;
    for (lines, messages) in [(500, 1), (1000, 2)] {
        let pushes: Vec<_> =
            (0..lines).map(|n| valid_with(&format!(r#""data":{{"n":"{n}"}}"#))).collect();
        let answers = Answers::to(&service, &batch_request(&service, &pushes)).await;
        let ids = answers.ids();
        assert_eq!(ids.len(), lines);
        service.wait_for_depth(messages).await;
        let mut published: Vec<_> =
            service.jobs(lines).await.iter().map(|job| job.head.message_id.to_string()).collect();
        // Two messages of one request may change places on their way.
        published.sort();
        let mut ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
        ids.sort();
        assert_eq!(published, ids);
        ids.dedup();
        assert_eq!(ids.len(), lines, "each has an id of its own");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn blank_lines_are_no_pushes_and_a_request_without_a_push_is_refused() {
    let service = Service::start(&["--max-batch-lines=2"]).await;
    let body = format!("\n\r\n{VALID}\r\n \t\nx\n\n");
    let answers = Answers::to(&service, &batch_request_of(&service, body)).await;
    assert_eq!(answers.statuses(), [200, 21005]);
    let answers = Answers::to(&service, &batch_request_of(&service, VALID)).await;
    assert_eq!(answers.statuses(), [200], "the last line may lack its end");
    for body in ["", "\n", " \r\n\n"] {
        let answer = batch_request_of(&service, body).send(&service).await;
        answer.expect(400, 21005, "Message illegal: the body has no line with a push");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_line_whose_key_was_used_for_another_body_is_refused_alone() {
    let service = Service::start(&[]).await;
    let keyed = |more: &str| valid_with(&format!(r#""idempotency_key":"order-1"{more}"#));
    let other = keyed(r#","unknown":1"#).replacen(r#""time_to_live":"#, r#""time_to_live":1"#, 1);
    let dry = other.replacen('{', r#"{"dry_run":true,"#, 1);
    let lines = [dry, keyed(""), VALID.into(), other.clone(), keyed("")];
    let answers = Answers::to(&service, &batch_request(&service, &lines)).await;
    assert_eq!(answers.statuses(), [200, 200, 200, 422, 200], "a dry run uses no key up");
    let answers = Answers::to(&service, &batch_request(&service, &[other])).await;
    assert_eq!(answers.statuses(), [422]);
    let problem = answers.lines[0].message();
    assert!(problem.starts_with("the Idempotency-Key was used for another body"), "{problem}");
    assert_eq!(service.jobs(3).await.len(), 3);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn the_idempotency_key_of_a_line_does_what_the_header_does() {
    let service = Service::start(&[]).await;
    let keyed = |key: &str| valid_with(&format!(r#""idempotency_key":{}"#, json!(key)));
    let longest = "~".repeat(128);
    let lines = [keyed("order-17"), VALID.into(), keyed("order-17"), keyed(&longest)];
    let answers = Answers::to(&service, &batch_request(&service, &lines)).await;
    let push = Request::push(&service, VALID);
    let by_header = push.clone().header("Idempotency-Key", "order-17").send(&service).await;
    let id = by_header.message_id();
    let ids = answers.ids();
    assert_eq!((ids[0], ids[2]), (id, id));
    let by_header = push.header("Idempotency-Key", &longest).send(&service).await;
    assert_eq!(ids[3], by_header.message_id());
    assert_ne!(ids[1], id);
    let jobs = service.jobs(6).await;
    let of_key = jobs.iter().filter(|job| job.head.message_id.to_string() == id);
    let mut copies: Vec<u64> = of_key.map(|job| job.dedup_nonce).collect();
    copies.sort_unstable();
    copies.dedup();
    assert_eq!(copies.len(), 3, "copies are told apart");

    let bad = ["", "a b", "é", &"x".repeat(129)].map(keyed);
    let number = valid_with(r#""idempotency_key":17"#);
    let none = valid_with(r#""idempotency_key":null"#);
    let lines = [&bad[..], &[number, none]].concat();
    let answers = Answers::to(&service, &batch_request(&service, &lines)).await;
    for answer in &answers.lines[..4] {
        let problem = "Message illegal: idempotency_key must be 1 to 128 visible ASCII characters";
        assert_eq!(answer.message(), problem);
    }
    let number = answers.lines[4].message();
    assert!(number.starts_with("Message illegal: idempotency_key: invalid type"), "{number}");
    assert_eq!(answers.statuses(), [21005, 21005, 21005, 21005, 21005, 200]);

    let header = batch_request(&service, &[VALID]).header("Idempotency-Key", "order-18");
    let answer = header.send(&service).await;
    answer.expect(400, 21005, "Message illegal: the header Idempotency-Key is for a single push");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_dry_run_among_others_is_checked_and_answered_and_not_published() {
    let service = Service::start(&[]).await;
    let dry = valid_with(r#""dry_run":true"#);
    let lines = [dry.clone(), VALID.into(), dry.replace("60", "-1"), dry.clone()];
    let answers = Answers::to(&service, &batch_request(&service, &lines)).await;
    assert_eq!(answers.statuses(), [200, 200, 21005, 200]);
    let only_dry = Answers::to(&service, &batch_request(&service, &[&dry, &dry])).await;
    assert_eq!(only_dry.statuses(), [200, 200]);
    service.wait_for_depth(1).await;
    let jobs = service.jobs(1).await;
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].head.message_id.to_string(), answers.ids()[1]);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn requests_follow_one_another_on_a_connection_of_either_kind() {
    let service = Service::start(&[]).await;
    let many = batch_request(&service, &vec!["x"; 1000]);
    let one = batch_request(&service, &[VALID]);
    for before in [&b""[..], UNUSUAL] {
        let mut connection = Connection::open(service.address).await;
        connection.send(before).await;
        if before == UNUSUAL {
            assert_eq!(connection.answer().await.http, 404);
        }
        for _ in 0..3 {
            connection.send([many.bytes(), one.bytes()].concat()).await;
            assert_eq!(Answers::next(&mut connection).await.statuses(), vec![21005; 1000]);
            assert_eq!(Answers::next(&mut connection).await.statuses(), [200]);
            connection.send(Request::push(&service, VALID).bytes()).await;
            assert_eq!(connection.answer().await.http, 200);
        }
    }
    service.stop().await.unwrap();
}

//! Many pushes in one request: each line is answered as if it had come alone.

use std::time::{Duration, Instant};

use push_queue::Lane;
use push_tests::{amqp_url, eventually, redis_url, servers::RabbitMq};
use serde_json::json;

use crate::{
    client::{Answer, Connection, NOT_PLAIN, Request, VALID},
    service::{APP, DEADLINE, Service},
};

const NDJSON: &str = "application/x-ndjson";

/// A request with these lines.
pub(crate) fn batch(service: &Service, lines: &[impl AsRef<[u8]>]) -> Request {
    let lines: Vec<&[u8]> = lines.iter().map(AsRef::as_ref).collect();
    batch_of(service, [lines.join(&b'\n'), b"\n".to_vec()].concat())
}

/// A request with this body.
pub(crate) fn batch_of(service: &Service, body: impl AsRef<[u8]>) -> Request {
    Request::new("POST", &format!("/v1/message/push/{APP}/batch"), body)
        .header("Content-Type", NDJSON)
        .header("Authorization", &service.secret)
}

/// The answers to the lines of a request.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) lines: Vec<Answer>,
    headers: Vec<(String, String)>,
}

impl Answers {
    pub(crate) async fn to(service: &Service, request: &Request) -> Self {
        let mut connection = Connection::open(service.address).await;
        connection.send(request.bytes()).await;
        Self::next(&mut connection).await
    }

    /// The next answer of a connection, in the documented shape.
    pub(crate) async fn next(connection: &mut Connection) -> Self {
        let raw = connection.raw_answer().await;
        assert_eq!(raw.http, 200, "{}", raw.text);
        Self::new(raw.headers, &raw.text)
    }

    pub(crate) fn new(headers: Vec<(String, String)>, text: &str) -> Self {
        assert!(text.ends_with('\n'), "{text}");
        let line = |line: &str| {
            let http = if line.starts_with(r#"{"status":200,"#) { 200 } else { 400 };
            let headers = vec![("content-type".into(), "application/json".into())];
            Answer::new(http, headers, line.to_owned())
        };
        let answers = Self { lines: text.lines().map(line).collect(), headers };
        assert_eq!(answers.header("content-type"), Some(NDJSON));
        answers
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn statuses(&self) -> Vec<u64> {
        self.lines.iter().map(Answer::status).collect()
    }

    fn ids(&self) -> Vec<&str> {
        let good = self.lines.iter().filter(|line| line.status() == 200);
        good.map(Answer::message_id).collect()
    }
}

/// The smallest push with another field in front.
fn valid_with(field: &str) -> String {
    VALID.replacen('{', &format!("{{{field},"), 1)
}

#[tokio::test]
async fn every_line_is_answered_in_its_place_as_if_it_had_come_alone_and_spoils_no_other() {
    let service = Service::start(&["--max-client-ids=2", "--max-body=1KiB"]).await;
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
    let answers = Answers::to(&service, &batch(&service, &lines)).await;
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
        let answers = Answers::to(&service, &batch(&service, &pushes)).await;
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
    let answers = Answers::to(&service, &batch_of(&service, body)).await;
    assert_eq!(answers.statuses(), [200, 21005]);
    let answers = Answers::to(&service, &batch_of(&service, VALID)).await;
    assert_eq!(answers.statuses(), [200], "the last line may lack its end");
    for body in ["", "\n", " \r\n\n"] {
        let answer = batch_of(&service, body).send(&service).await;
        answer.expect(400, 21005, "Message illegal: the body has no line with a push");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_request_may_have_as_many_lines_and_bytes_as_its_limits_and_one_more_is_413() {
    let flags = ["--max-batch-lines=3", "--max-batch-body=2KiB", "--max-body=1KiB"];
    let service = Service::start(&flags).await;
    let lines = |count: usize| batch(&service, &vec![VALID; count]);
    let bytes = |count: usize| {
        let line = |bytes: usize| format!("{VALID}{}\n", " ".repeat(bytes - VALID.len() - 1));
        batch_of(&service, [line(1024), line(count - 1024)].concat())
    };
    for (good, pushes) in [(lines(3), 3), (bytes(2048), 2)] {
        for request in [good.clone(), good.chunked(100)] {
            assert_eq!(Answers::to(&service, &request).await.statuses(), vec![200; pushes]);
        }
    }
    let what = ["the body must have at most 3 lines", "the body must be at most 2048 bytes"];
    for (bad, what) in [lines(4), bytes(2049)].into_iter().zip(what) {
        for request in [bad.clone(), bad.chunked(100)] {
            let answer = request.send(&service).await;
            answer.expect(413, 21005, &format!("Message illegal: {what}"));
        }
    }
    // A single push has a limit of its own, and so has each line.
    let large = format!("{VALID}{}", " ".repeat(1025 - VALID.len()));
    let at = Answers::to(&service, &batch(&service, &[&large[..1024]])).await;
    assert_eq!(at.statuses(), [200]);
    let answers = Answers::to(&service, &batch(&service, &[VALID, &large])).await;
    assert_eq!(answers.statuses(), [200, 21005]);
    let problem = "Message illegal: the body must be at most 1024 bytes";
    assert_eq!(answers.lines[1].message(), problem);
    assert_eq!(service.jobs(12).await.len(), 12, "nothing of a refused request is published");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn what_concerns_the_whole_request_is_answered_as_for_a_single_push() {
    let service = Service::start(&[]).await;
    let valid = batch(&service, &[VALID]);
    let path = |path: &str| valid.clone().path(path);
    let table = [
        (path("/v1/message/push/app/batch/"), 404, 404, "no such path"),
        (path("/v1/message/push/app/batches"), 404, 404, "no such path"),
        (valid.clone().method("PUT"), 405, 405, "this path takes POST"),
        (path("/v1/message/push//batch"), 400, 21001, "App ID missing: "),
        (path("/v1/message/push/a%20b/batch"), 400, 21002, "App ID illegal: "),
        (valid.clone().without("Authorization"), 401, 21003, "App Secret missing: "),
        (valid.clone().header("Authorization", "wrong"), 401, 21004, "App Secret illegal: "),
        (path("/v1/message/push/absent/batch"), 401, 21004, "App Secret illegal: "),
        (
            valid.clone().without("Content-Type"),
            415,
            21005,
            "Message illegal: Content-Type must be",
        ),
        (
            valid.clone().header("Content-Type", "application/json"),
            415,
            21005,
            "Message illegal: Content-Type must be application/x-ndjson",
        ),
        (valid.clone().header("Content-Encoding", "gzip"), 415, 21005, "Message illegal: Content-"),
    ];
    for (request, http, status, message) in table {
        request.send(&service).await.expect(http, status, message);
    }
    let single = Request::push(&service, VALID).header("Content-Type", NDJSON).send(&service).await;
    single.expect(415, 21005, "Message illegal: Content-Type must be application/json");
    let typed = valid.clone().header("Content-Type", "Application/X-NDJSON; charset=utf-8");
    assert_eq!(Answers::to(&service, &typed).await.statuses(), [200]);

    service.change_app(|app| app.disabled = true).await;
    eventually("the app is disabled", DEADLINE, async || {
        let answer = Request::push(&service, VALID).send(&service).await;
        if answer.status() == 21007 { Ok(()) } else { Err(answer.text) }
    })
    .await;
    let disabled = valid.without("Content-Type").send(&service).await;
    disabled.expect(403, 21007, "App push SDK disabled: ");
    assert_eq!(service.jobs(1).await.len(), 1, "nothing of a refused request is published");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn the_idempotency_key_of_a_line_does_what_the_header_does() {
    let service = Service::start(&[]).await;
    let keyed = |key: &str| valid_with(&format!(r#""idempotency_key":{}"#, json!(key)));
    let longest = "~".repeat(128);
    let lines = [keyed("order-17"), VALID.into(), keyed("order-17"), keyed(&longest)];
    let answers = Answers::to(&service, &batch(&service, &lines)).await;
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
    let mut copies: Vec<u64> = of_key.map(|job| job.copy).collect();
    copies.sort_unstable();
    copies.dedup();
    assert_eq!(copies.len(), 3, "copies are told apart");

    let bad = ["", "a b", "é", &"x".repeat(129)].map(keyed);
    let number = valid_with(r#""idempotency_key":17"#);
    let none = valid_with(r#""idempotency_key":null"#);
    let lines = [&bad[..], &[number, none]].concat();
    let answers = Answers::to(&service, &batch(&service, &lines)).await;
    for answer in &answers.lines[..4] {
        let problem = "Message illegal: idempotency_key must be 1 to 128 visible ASCII characters";
        assert_eq!(answer.message(), problem);
    }
    let number = answers.lines[4].message();
    assert!(number.starts_with("Message illegal: idempotency_key: invalid type"), "{number}");
    assert_eq!(answers.statuses(), [21005, 21005, 21005, 21005, 21005, 200]);

    let header = batch(&service, &[VALID]).header("Idempotency-Key", "order-18");
    let answer = header.send(&service).await;
    answer.expect(400, 21005, "Message illegal: the header Idempotency-Key is for a single push");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_dry_run_among_others_is_checked_and_answered_and_not_published() {
    let service = Service::start(&[]).await;
    let dry = valid_with(r#""dry_run":true"#);
    let lines = [dry.clone(), VALID.into(), dry.replace("60", "-1"), dry.clone()];
    let answers = Answers::to(&service, &batch(&service, &lines)).await;
    assert_eq!(answers.statuses(), [200, 200, 21005, 200]);
    let only_dry = Answers::to(&service, &batch(&service, &[&dry, &dry])).await;
    assert_eq!(only_dry.statuses(), [200, 200]);
    service.wait_for_depth(1).await;
    let jobs = service.jobs(1).await;
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].head.message_id.to_string(), answers.ids()[1]);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn the_rate_limit_of_an_app_counts_lines_and_those_beyond_it_are_told_so() {
    let service = Service::start(&[]).await;
    service.limit_app(5).await;
    let answers = Answers::to(&service, &batch(&service, &[VALID, "x", VALID])).await;
    assert_eq!(answers.statuses(), [200, 21005, 200], "bad ones count, as single ones do");
    assert_eq!(answers.header("ratelimit-limit"), Some("5"));
    assert_eq!(answers.header("ratelimit-remaining"), Some("2"));
    assert_eq!(answers.header("ratelimit-reset"), Some("1"));

    // From an idle limit on, and faster than it gives one back.
    service.limit_app(2).await;
    eventually("the app has its new limit", DEADLINE, async || {
        let request = batch(&service, &[VALID; 5]);
        let raw = {
            let mut connection = Connection::open(service.address).await;
            connection.send(request.bytes()).await;
            connection.raw_answer().await
        };
        if raw.http != 200 {
            return Err(raw.text);
        }
        let answers = Answers::new(raw.headers, &raw.text);
        let limit = answers.header("ratelimit-limit");
        if limit == Some("2") && answers.statuses() == [200, 200, 22001, 22001, 22001] {
            assert_eq!(answers.header("ratelimit-remaining"), Some("0"));
            let message = answers.lines[4].message();
            assert!(message.starts_with("Too frequent: this app may push 2 times"), "{message}");
            return Ok(());
        }
        // The limit has to be idle again before the next try.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Err(raw.text)
    })
    .await;
    // The rate is checked before the media type, as for a single push. The limit gives one push back
    // every half second, so a slow machine uses that up and looks again.
    let answer = eventually("the rate is checked first", DEADLINE, async || {
        let answer = batch_of(&service, "x").without("Content-Type").send(&service).await;
        if answer.http == 429 {
            return Ok(answer);
        }
        Request::push(&service, VALID).send(&service).await;
        Err(answer.text)
    })
    .await;
    answer.expect(429, 22001, "Too frequent: this app may push 2 times a second");
    for name in ["retry-after", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"] {
        assert!(answer.header(name).is_some_and(|v| v.parse::<u32>().is_ok()), "{name}");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn requests_follow_one_another_on_a_connection_of_either_kind() {
    let service = Service::start(&[]).await;
    let many = batch(&service, &vec!["x"; 1000]);
    let one = batch(&service, &[VALID]);
    for before in [&b""[..], NOT_PLAIN] {
        let mut connection = Connection::open(service.address).await;
        connection.send(before).await;
        if before == NOT_PLAIN {
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

#[tokio::test]
async fn lines_that_find_no_place_are_503_and_the_others_are_published() {
    let service = Service::start(&["--publish-waiting=4"]).await;
    let answers = Answers::to(&service, &batch(&service, &["x", VALID, VALID, VALID, "y"])).await;
    assert_eq!(answers.statuses(), [21005, 200, 200, 503, 21005]);
    assert_eq!(answers.lines[3].message(), "try again: the service is full");
    let ids = answers.ids();
    let jobs = service.jobs(2).await;
    assert_eq!(jobs.iter().map(|job| job.head.message_id.to_string()).collect::<Vec<_>>(), ids);
    assert_eq!(service.queue.depth(Lane::Jobs).await.unwrap(), 0);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn while_rabbitmq_takes_nothing_the_whole_request_is_503_at_once_with_the_reason() {
    let mut rabbitmq = RabbitMq::start().await.unwrap();
    let flags = ["--publish-timeout=2s"];
    let service = Service::start_on(&rabbitmq.url(), &redis_url(), &flags).await;
    let dry = valid_with(r#""dry_run":true"#);
    let request = batch(&service, &[VALID, "x", &dry, VALID]);
    let only_dry = batch(&service, &[dry.as_str(), "x"]);
    assert_eq!(Answers::to(&service, &request).await.statuses(), [200, 21005, 200, 200]);

    rabbitmq.control(&["set_vm_memory_high_watermark", "0"]).await.unwrap();
    // The first may be on its way when RabbitMQ tells of it.
    for round in 1..=3 {
        let begun = Instant::now();
        let answer = request.send(&service).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{round}: {:?}", begun.elapsed());
        answer.expect(503, 503, "try again: the queue takes no messages for now: low on memory");
        assert!(answer.header("retry-after").is_some());
    }
    let answers = Answers::to(&service, &only_dry).await;
    assert_eq!(answers.statuses(), [200, 21005], "there is nothing to take");

    rabbitmq.kill();
    eventually("the queue is away", DEADLINE, async || {
        let answer = request.send(&service).await;
        assert_eq!((answer.http, answer.status()), (503, 503), "{}", answer.text);
        assert!(answer.header("retry-after").is_some());
        let away = "try again: the queue has not confirmed the message";
        if answer.message() == away { Ok(()) } else { Err(answer.text) }
    })
    .await;
    rabbitmq.restart().await.unwrap();
    eventually("pushes are taken again, without a restart", 3 * DEADLINE, async || {
        let mut connection = Connection::open(service.address).await;
        connection.send(request.bytes()).await;
        let raw = connection.raw_answer().await;
        if raw.http == 200 { Ok(()) } else { Err(raw.text) }
    })
    .await;
    service.stop().await.unwrap();
}

#[tokio::test]
async fn large_requests_leave_half_of_the_memory_for_bodies_to_single_pushes() {
    let flags = [
        "--max-body=16KiB",
        "--max-batch-body=16KiB",
        "--max-batch-lines=16",
        "--max-buffered=64KiB",
    ];
    let service = Service::start_on(&amqp_url(), &redis_url(), &flags).await;
    let large = format!("{VALID}{}", " ".repeat(16 * 1024 - 1 - VALID.len()));
    let request = batch(&service, &[large.as_str()]);
    assert_eq!(Answers::to(&service, &request).await.statuses(), [200], "it fits alone");

    let mut slow = Connection::open(service.address).await;
    slow.send(request.head()).await;
    eventually("half of the memory is full", DEADLINE, async || {
        let mut connection = Connection::open(service.address).await;
        connection.send(request.bytes()).await;
        let raw = connection.raw_answer().await;
        if raw.http == 503 { Ok(()) } else { Err(raw.text) }
    })
    .await;
    let answer = request.send(&service).await;
    answer.expect(503, 503, "try again: the service is full");
    assert!(answer.header("retry-after").is_some());
    let single = Request::push(&service, &large).send(&service).await;
    assert_eq!(single.http, 200, "a single push finds its memory");
    let small = Answers::to(&service, &batch(&service, &[VALID])).await;
    assert_eq!(small.statuses(), [200], "and so does a small request");

    slow.send(format!("{large}\n")).await;
    assert_eq!(Answers::next(&mut slow).await.statuses(), [200]);
    assert_eq!(Answers::to(&service, &request).await.statuses(), [200]);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_stopping_service_finishes_the_request_that_it_began() {
    let service = Service::start(&[]).await;
    let request = batch(&service, &[VALID, VALID]);
    let mut begun = Connection::open(service.address).await;
    let (first, rest) = (request.head(), request.bytes());
    begun.send(&first).await;
    // Answered over another connection: by then the service has read what was sent before.
    assert_eq!(Request::push(&service, VALID).send(&service).await.http, 200);
    service.shutdown.cancel();
    begun.send(&rest[first.len()..]).await;
    assert_eq!(Answers::next(&mut begun).await.statuses(), [200, 200]);
    assert!(begun.is_ended().await);
    assert_eq!(service.jobs(3).await.len(), 3);
    service.stopped().await.unwrap();
}

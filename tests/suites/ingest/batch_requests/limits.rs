//! Requests that are refused as a whole, limits, and a service that cannot take every line.

use std::time::{Duration, Instant};

use push_queue::Lane;
use push_tests::{amqp_url, eventually, redis_url, servers::RabbitMq};

use super::{Answers, NDJSON, batch_request, batch_request_of, valid_with};
use crate::ingest::support::{
    client::{Connection, Request, VALID},
    service::{DEADLINE, Service},
};

#[tokio::test]
async fn a_request_may_have_as_many_lines_and_bytes_as_its_limits_and_one_more_is_413() {
    let flags = ["--max-batch-lines=3", "--max-batch-body=2KiB", "--tune=max-body=1KiB"];
    let service = Service::start(&flags).await;
    let lines = |count: usize| batch_request(&service, &vec![VALID; count]);
    let bytes = |count: usize| {
        let line = |bytes: usize| format!("{VALID}{}\n", " ".repeat(bytes - VALID.len() - 1));
        batch_request_of(&service, [line(1024), line(count - 1024)].concat())
    };
    for (good, pushes) in [(lines(3), 3), (bytes(2048), 2)] {
        for request in [good.clone(), good.chunked(100)] {
            assert_eq!(Answers::to(&service, &request).await.statuses(), vec![200; pushes]);
        }
    }
    let what = ["the body must have at most 3 pushes", "the body must be at most 2048 bytes"];
    for (bad, what) in [lines(4), bytes(2049)].into_iter().zip(what) {
        for request in [bad.clone(), bad.chunked(100)] {
            let answer = request.send(&service).await;
            answer.expect(413, 21005, &format!("Message illegal: {what}"));
        }
    }
    // A single push has a limit of its own, and so has each line.
    let large = format!("{VALID}{}", " ".repeat(1025 - VALID.len()));
    let at = Answers::to(&service, &batch_request(&service, &[&large[..1024]])).await;
    assert_eq!(at.statuses(), [200]);
    let answers = Answers::to(&service, &batch_request(&service, &[VALID, &large])).await;
    assert_eq!(answers.statuses(), [200, 21005]);
    let problem = "Message illegal: the body must be at most 1024 bytes";
    assert_eq!(answers.lines[1].message(), problem);
    assert_eq!(service.jobs(12).await.len(), 12, "nothing of a refused request is published");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn what_concerns_the_whole_request_is_answered_as_for_a_single_push() {
    let service = Service::start(&[]).await;
    let valid = batch_request(&service, &[VALID]);
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
        Request::push(&service, VALID).send(&service).await.is(403)
    })
    .await;
    let disabled = valid.without("Content-Type").send(&service).await;
    disabled.expect(403, 21007, "App push SDK disabled: ");
    assert_eq!(service.jobs(1).await.len(), 1, "nothing of a refused request is published");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn the_rate_limit_of_an_app_counts_lines_and_those_beyond_it_are_told_so() {
    let service = Service::start(&[]).await;
    service.limit_app(5).await;
    let answers = Answers::to(&service, &batch_request(&service, &[VALID, "x", VALID])).await;
    assert_eq!(answers.statuses(), [200, 21005, 200], "bad ones count, as single ones do");
    assert_eq!(answers.header("ratelimit-limit"), Some("5"));
    assert_eq!(answers.header("ratelimit-remaining"), Some("2"));
    assert_eq!(answers.header("ratelimit-reset"), Some("1"));

    // From an idle limit on, and faster than it gives one back.
    service.limit_app(2).await;
    eventually("the app has its new limit", DEADLINE, async || {
        let request = batch_request(&service, &[VALID; 5]);
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
    // The rate is checked before the media type, as for a single push. The limit gives one push
    // back every half second, so a slow machine uses that up and looks again.
    let answer = eventually("the rate is checked first", DEADLINE, async || {
        let answer = batch_request_of(&service, "x").without("Content-Type").send(&service).await;
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
async fn lines_that_find_no_place_are_503_and_the_others_are_published() {
    let service = Service::start(&["--tune=publish-waiting=4"]).await;
    let answers =
        Answers::to(&service, &batch_request(&service, &["x", VALID, VALID, VALID, "y"])).await;
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
    let flags = ["--tune=publish-timeout=2s"];
    let service = Service::start_on(&rabbitmq.url(), &redis_url(), &flags).await;
    let dry = valid_with(r#""dry_run":true"#);
    let request = batch_request(&service, &[VALID, "x", &dry, VALID]);
    let only_dry = batch_request(&service, &[dry.as_str(), "x"]);
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
        "--tune=max-body=16KiB",
        "--max-batch-body=16KiB",
        "--max-batch-lines=16",
        "--max-buffered=64KiB",
    ];
    let service = Service::start_on(&amqp_url(), &redis_url(), &flags).await;
    let large = format!("{VALID}{}", " ".repeat(16 * 1024 - 1 - VALID.len()));
    let request = batch_request(&service, &[large.as_str()]);
    assert_eq!(Answers::to(&service, &request).await.statuses(), [200], "it fits alone");

    let mut slow = Vec::new();
    let (begin, end) = (request.bytes(), "\n");
    eventually("half of the memory is full", DEADLINE, async || {
        // A request that is in work meanwhile may leave too little for one of them.
        let mut one = Connection::open(service.address).await;
        one.send(&begin[..begin.len() - end.len()]).await;
        slow.push(one);
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
    let small = Answers::to(&service, &batch_request(&service, &[VALID])).await;
    assert_eq!(small.statuses(), [200], "and so does a small request");

    let mut finished = 0;
    for mut one in slow {
        one.send(end).await;
        finished += u32::from(one.raw_answer().await.http == 200);
    }
    assert!(finished > 0, "what has its memory is finished");
    assert_eq!(Answers::to(&service, &request).await.statuses(), [200]);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_stopping_service_finishes_the_request_that_it_began() {
    let service = Service::start(&[]).await;
    let request = batch_request(&service, &[VALID, VALID]);
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

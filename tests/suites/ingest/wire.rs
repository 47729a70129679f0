//! Connections that carry something else than one usual request after the other. Each test runs
//! with the fast path and without it.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
};

use crate::{
    batch_requests::batch_request_of,
    support::{
        client::{Connection, LEFT_TO_HYPER, Request, VALID, ask},
        service::Service,
    },
};

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    Service::on_both_paths(&[], async |service| {
        let mut bytes = Vec::new();
        for i in 0..50 {
            let body = if i % 2 == 0 { VALID.to_owned() } else { format!("{{\"type\":{i}9}}") };
            bytes.extend(Request::push(&service, body).bytes());
        }
        let mut connection = Connection::open(service.address).await;
        connection.send(bytes).await;
        for i in 0..50 {
            let answer = connection.answer().await;
            assert_eq!(answer.http, if i % 2 == 0 { 200 } else { 400 }, "{i}: {}", answer.text);
        }
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_is_not_http_is_answered_400_in_the_documented_shape() {
    Service::on_both_paths(&[], async |service| {
        let garbage: &[&[u8]] = &[
            b"hello\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
            b"GET / HTTP/1.1\r\n\xff\xff: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\0y\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
            // hyper refuses these itself.
            b"GET http:// HTTP/1.1\r\nHost: x\r\n\r\n",
            b"POST http://[ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx",
        ];
        for bytes in garbage {
            let mut connection = Connection::open(service.address).await;
            connection.send(bytes).await;
            let answer = connection.answer().await;
            assert!((400..500).contains(&answer.http), "{bytes:?}: {}", answer.text);
            assert_eq!(u64::from(answer.http), answer.status(), "{bytes:?}");
            assert!(connection.is_ended().await, "{bytes:?}");
        }
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_request_that_two_readers_may_read_differently_is_refused_in_the_same_bytes_on_both_paths()
 {
    let refused = [
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n", "both Content-Length and"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n", "both Content-Length and"),
        ("Transfer-Encoding: chunked, chunked", "0\r\n\r\n", "only be chunked, once"),
        ("Transfer-Encoding: gzip, chunked", "0\r\n\r\n", "only be chunked, once"),
        ("Content-Length: 5\r\nContent-Length: 5", "     ", "one Content-Length header only"),
        ("Content-Length: 18446744073709551615", "", "must be a number of bytes"),
        ("Host: other", "", "one Host header only"),
    ];
    let answers = RefCell::new(Vec::new());
    Service::on_both_paths(&[], async |service| {
        let mut heads: Vec<(String, &str)> = refused
            .iter()
            .map(|(headers, body, why)| {
                let push = "POST /v1/message/push/app HTTP/1.1\r\nHost: push\r\n";
                (format!("{push}{headers}\r\n\r\n{body}"), *why)
            })
            .collect();
        let without_host = "GET / HTTP/1.1\r\n\r\n".to_owned();
        heads.push((without_host, "must have a Host header"));
        heads.push(("GET / HTTP/1.0\r\nHost: a b\r\n\r\n".to_owned(), "a host, with or without"));
        for before in ["", "GET / HTTP/1.1\r\nHost: push\r\n\r\n"] {
            for (request, why) in &heads {
                let mut connection = Connection::open(service.address).await;
                // What comes behind it may be a part of it, and is no request of its own.
                connection
                    .send(format!("{before}{request}GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
                    .await;
                if !before.is_empty() {
                    assert_eq!(connection.answer().await.http, 404);
                }
                let answer = connection.rest().await;
                assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{request}: {answer}");
                assert!(answer.contains(why), "{request}: {answer}");
                assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{request}: {answer}");
                let lines = answer.lines().filter(|line| !line.starts_with("date: "));
                answers.borrow_mut().push(lines.map(str::to_owned).collect::<Vec<_>>());
            }
        }
        service.stop().await.unwrap();
    })
    .await;
    let answers = answers.into_inner();
    let (fast_path, hyper) = answers.split_at(answers.len() / 2);
    assert_eq!(fast_path, hyper);
}

#[tokio::test]
async fn a_part_of_a_head_behind_a_request_has_the_time_of_a_head() {
    Service::on_both_paths(&["--header-timeout=1s", "--idle-timeout=1h"], async |service| {
        let push = Request::push(&service, VALID);
        for before in [push.bytes(), push.clone().chunked(7).bytes()] {
            let mut connection = Connection::open(service.address).await;
            connection.send([&before, &push.head()[..30]].concat()).await;
            assert_eq!(connection.answer().await.http, 200);
            connection.answer().await.expect(408, 408, "the request's headers did not arrive");
            assert!(connection.is_ended().await);
        }
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_last_answer_of_a_connection_says_so_and_that_to_head_has_no_body() {
    Service::on_both_paths(&[], async |service| {
        for (request, is_last, has_body) in [
            ("GET / HTTP/1.0\r\n\r\n", true, true),
            ("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", true, true),
            ("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", true, false),
            ("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", false, false),
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", false, true),
        ] {
            let mut connection = Connection::open(service.address).await;
            connection.send(request).await;
            connection.end().await;
            let answer = connection.rest().await;
            assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
            assert_eq!(answer.contains("\r\nconnection: close\r\n"), is_last, "{answer}");
            assert_eq!(answer.ends_with('}'), has_body, "{answer}");
        }
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn garbage_after_a_good_request_does_not_spoil_its_answer() {
    Service::on_both_paths(&[], async |service| {
        let mut connection = Connection::open(service.address).await;
        connection
            .send([&Request::push(&service, VALID).bytes(), &b"garbage\r\n\r\n"[..]].concat())
            .await;
        assert_eq!(connection.answer().await.http, 200);
        connection.answer().await.expect(400, 400, "the request is not readable");
        assert!(connection.is_ended().await);
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn empty_lines_around_requests_are_nothing_to_answer() {
    Service::on_both_paths(&[], async |service| {
        let push = Request::push(&service, VALID).bytes();
        let mut connection = Connection::open(service.address).await;
        connection.send([b"\r\n", &push[..], b"\r\n\n", &push[..]].concat()).await;
        assert_eq!(connection.answer().await.http, 200);
        assert_eq!(connection.answer().await.http, 200);
        connection.send("\r\n").await;
        connection.end().await;
        assert!(connection.is_ended().await);

        let mut connection = Connection::open(service.address).await;
        connection.send([LEFT_TO_HYPER, b"\r\n\n", &push[..], b"\r\n"].concat()).await;
        connection.end().await;
        assert_eq!(connection.answer().await.http, 404);
        assert_eq!(connection.answer().await.http, 200);
        assert!(connection.is_ended().await);
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_client_that_ends_its_side_still_gets_its_answer() {
    Service::on_both_paths(&[], async |service| {
        let push = Request::push(&service, VALID).bytes();
        let half = [&push[..20], &push[..push.len() - 10]];
        let mut connection = Connection::open(service.address).await;
        connection.send(&push).await;
        connection.end().await;
        assert_eq!(connection.answer().await.http, 200);

        let answers =
            [(400, "the request is not readable"), (21005, "Message illegal: the body ends early")];
        for (part, (status, message)) in half.into_iter().zip(answers) {
            for before in [&b""[..], LEFT_TO_HYPER] {
                let mut connection = Connection::open(service.address).await;
                connection.send([before, part].concat()).await;
                connection.end().await;
                if before == LEFT_TO_HYPER {
                    assert_eq!(connection.answer().await.http, 404);
                }
                let answer = connection.answer().await;
                answer.expect(400, status, message);
                assert_eq!(answer.header("connection"), Some("close"));
                assert!(connection.is_ended().await);
            }
        }
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn slow_and_silent_clients_are_answered_or_ended_and_hold_no_other_client_up() {
    let flags = ["--header-timeout=1s", "--body-timeout=1s", "--idle-timeout=1s"];
    Service::on_both_paths(&flags, async |service| {
        let push = Request::push(&service, VALID);
        let begun = Instant::now();
        let (mut silent, mut head, mut body) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..20 {
            silent.push(Connection::open(service.address).await);
            let mut slow = Connection::open(service.address).await;
            let half = &push.head()[..30];
            let half = match i % 3 {
                0 => half.to_vec(),
                // The time limit also holds for what looks like the beginning of HTTP/2,
                1 => b"PRI * HT".to_vec(),
                // and for a head that comes together with another request.
                _ => [LEFT_TO_HYPER, half].concat(),
            };
            slow.send(half).await;
            head.push((slow, i % 3 == 2));
            let mut slow = Connection::open(service.address).await;
            slow.send(push.head()).await;
            slow.send("{").await;
            body.push(slow);
        }
        assert_eq!(push.send(&service).await.http, 200);
        assert!(begun.elapsed() < Duration::from_secs(5), "a fast client is not held up");
        for mut connection in silent {
            assert!(connection.is_ended().await);
        }
        for (mut connection, behind) in head {
            if behind {
                assert_eq!(connection.answer().await.http, 404);
            }
            connection.answer().await.expect(408, 408, "the request's headers did not arrive");
            assert!(connection.is_ended().await);
        }
        for mut connection in body {
            connection.answer().await.expect(408, 408, "the request's body did not arrive");
            assert!(connection.is_ended().await);
        }
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_head_that_drips_in_is_cut_off_however_often_a_byte_comes() {
    Service::on_both_paths(&["--header-timeout=1s"], async |service| {
        let mut connection = Connection::open(service.address).await;
        let begun = Instant::now();
        connection.send("GET / HTTP/1.1\r\n").await;
        let mut answered = None;
        while answered.is_none() && begun.elapsed() < Duration::from_secs(10) {
            connection.send("X: y\r\n").await;
            // The client's pause between two pieces.
            answered =
                tokio::time::timeout(Duration::from_millis(100), connection.answer()).await.ok();
        }
        answered.expect("an answer").expect(408, 408, "the request's headers did not arrive");
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_idle_connection_is_ended_without_a_word_and_a_used_one_stays() {
    Service::on_both_paths(&["--idle-timeout=3s", "--header-timeout=3s"], async |service| {
        let push = Request::push(&service, VALID).bytes();
        let mut connection = Connection::open(service.address).await;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            connection.send(&push).await;
            assert_eq!(connection.answer().await.http, 200);
            // The client's pause between two requests, far shorter than the idle time.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        assert!(connection.is_ended().await);
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_needs_no_body_leaves_the_connection_usable() {
    Service::on_both_paths(&[], async |service| {
        let device = "/v1/device/app/one";
        let put = Request::push(&service, "{}").method("PUT").path(device);
        assert_eq!(put.send(&service).await.http, 200);
        let large = Request::push(&service, "x".repeat(100_000));
        let get = large.clone().method("GET").path(device);
        let stranger = large.header("Authorization", "wrong");
        for before in [&b""[..], LEFT_TO_HYPER] {
            let mut connection = Connection::open(service.address).await;
            connection.send(before).await;
            if before == LEFT_TO_HYPER {
                assert_eq!(connection.answer().await.http, 404);
            }
            for _ in 0..3 {
                for bytes in [get.bytes(), get.clone().chunked(1000).bytes()] {
                    connection.send(bytes).await;
                    let answer = connection.answer().await;
                    assert_eq!((answer.http, answer.header("connection")), (200, None));
                }
                for bytes in [stranger.bytes(), stranger.clone().chunked(1000).bytes()] {
                    connection.send(bytes).await;
                    let answer = connection.answer().await;
                    answer.expect(401, 21004, "App Secret illegal");
                    assert_eq!(answer.header("connection"), None);
                }
            }
            connection.send(Request::push(&service, VALID).chunked(7).bytes()).await;
            assert_eq!(connection.answer().await.http, 200);
        }
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_needs_no_body_does_not_wait_for_it() {
    // Far longer than this test waits for an answer.
    Service::on_both_paths(&["--body-timeout=5min", "--min-body-rate=0B"], async |service| {
        let push = Request::push(&service, "x".repeat(100_000));
        let mut unsent = Vec::new();
        for (request, http) in [
            (push.clone().header("Authorization", "wrong"), 401),
            (push.clone().without("Authorization"), 401),
            (push.clone().path("/v1/elsewhere"), 404),
            (push.clone().method("PUT"), 405),
            (push.without("Content-Type"), 415),
        ] {
            let (bytes, head) = (request.bytes(), request.head().len());
            let mut connection = Connection::open(service.address).await;
            for sent in [head, head + 7] {
                connection.send(&bytes[..sent]).await;
                let answer = connection.answer().await;
                assert_eq!(answer.http, http);
                // hyper reads no body after the answer.
                if answer.header("connection").is_some() {
                    assert!(connection.is_ended().await);
                    connection = Connection::open(service.address).await;
                } else {
                    connection.send(&bytes[sent..]).await;
                }
            }
            connection.send(Request::push(&service, VALID).bytes()).await;
            assert_eq!(connection.answer().await.http, 200, "a connection is used on");
            for head in [bytes[..head].to_vec(), request.chunked(1000).head()] {
                let mut connection = Connection::open(service.address).await;
                connection.send(head).await;
                assert_eq!(connection.answer().await.http, http);
                unsent.push(connection);
            }
        }
        for mut connection in unsent {
            assert!(connection.is_ended().await, "a body that does not come ends the connection");
        }
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_client_that_asks_before_sending_is_told_to_send_or_why_not() {
    Service::on_both_paths(&[], async |service| {
        let push = Request::push(&service, VALID).header("Expect", "100-continue");
        let mut connection = Connection::open(service.address).await;
        connection.send(push.head()).await;
        connection.send(VALID).await;
        assert_eq!(connection.answer().await.http, 200);

        let mut connection = Connection::open(service.address).await;
        connection.send(push.header("Authorization", "wrong").head()).await;
        connection.answer().await.expect(401, 21004, "App Secret illegal");
        assert!(connection.is_ended().await);
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn old_and_unusual_requests_are_answered() {
    Service::on_both_paths(&[], async |service| {
        ask(service.address, "GET / HTTP/1.0\r\n\r\n").await.expect(404, 404, "no such path");
        ask(service.address, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .expect(404, 404, "no such");
        ask(service.address, "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .expect(404, 404, "no such");
        ask(service.address, "PRI * HTTP/1.1\r\nHost: x\r\n\r\n").await.expect(
            404,
            404,
            "no such path",
        );
        let upgrade = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
        ask(service.address, upgrade).await.expect(404, 404, "no such path");
        let absolute = Request::push(&service, VALID).path("http://push/v1/message/push/app");
        assert_eq!(absolute.send(&service).await.http, 200);
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_broken_chunk_is_answered() {
    Service::on_both_paths(&[], async |service| {
        let head = Request::push(&service, "").chunked(1).head();
        for chunk in [&b"xyz\r\n"[..], b"5\r\nabcdefghi\r\n", b"ffffffffffffffffff\r\n"] {
            let answer = ask(service.address, [&head[..], chunk].concat()).await;
            answer.expect(400, 21005, "Message illegal: the body ends early");
            assert_eq!(answer.header("connection"), Some("close"));
        }
        service.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_for_too_long_gets_no_answer_within_another() {
    Service::on_both_paths(&["--idle-timeout=1s", "--header-timeout=1s"], async |service| {
        let socket = TcpSocket::new_v4().unwrap();
        // Small, so that the service soon has no room for the rest of an answer.
        socket.set_recv_buffer_size(2048).unwrap();
        let mut connection = socket.connect(service.address).await.unwrap();
        let request = batch_request_of(&service, "{}\n".repeat(1000)).bytes();
        let (mut reader, mut writer) = connection.split();
        let many = request.repeat(60);
        let sending = async {
            // The service ends the connection before it has read everything.
            let _ = writer.write_all(&many).await;
            std::future::pending::<()>().await;
        };
        let mut received = Vec::new();
        let reading = async {
            // The client's pause, longer than the service waits for it: the behaviour under test.
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let _ = reader.read_to_end(&mut received).await;
        };
        tokio::select! {
            () = sending => {}
            () = reading => {}
        }
        let text = String::from_utf8_lossy(&received);
        let mut rest = &*text;
        let mut begun = 0;
        while let Some((head, body)) = rest.split_once("\r\n\r\n") {
            assert!(head.starts_with("HTTP/1.1 "), "{head}");
            let length = head.split("content-length: ").nth(1).expect("a length");
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            let body_read = &body[..length.min(body.len())];
            assert!(!body_read.contains("HTTP/1.1"), "an answer within another: {body_read}");
            begun += 1;
            rest = &body[body_read.len()..];
        }
        assert!(begun > 0, "no answer came: {text}");
        service.stop().await.unwrap();
    })
    .await;
}

//! The sender against an HTTP server that gives scripted answers.

use std::{
    io::{BufRead, BufReader, Read},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use push_model::secret::Secret;
use push_operator::server::Server;

use super::{
    super::request::{BatchRequests, Limits},
    *,
};

/// An HTTP status and a body for each request, in their order.
type Script = Vec<(u16, String)>;

/// A running server.
struct Scripted {
    address: String,
    /// The client sends no more.
    is_done: Arc<AtomicBool>,
    serving: JoinHandle<Vec<String>>,
}

impl Scripted {
    /// Ends it; returns the bodies that it was sent.
    fn end(self) -> Vec<String> {
        self.is_done.store(true, Ordering::SeqCst);
        // It may wait for a connection, or have ended.
        let _ = TcpStream::connect(&self.address);
        self.serving.join().unwrap()
    }
}

/// Answers one request for each entry of the script.
fn serve(script: Script) -> Scripted {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let is_done = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_done);
    let serving = thread::spawn(move || {
        let mut bodies = Vec::new();
        for (status, answer) in script {
            let (stream, _) = listener.accept().unwrap();
            if ends.load(Ordering::SeqCst) {
                break;
            }
            let mut stream = BufReader::new(stream);
            let mut length = 0;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                let line = line.trim_end().to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            bodies.push(String::from_utf8(body).unwrap());
            let length = answer.len();
            let head = format!(
                "HTTP/1.1 {status} X\r\nretry-after: 0\r\nconnection: close\r\n\
                 content-length: {length}\r\n\r\n"
            );
            stream.get_mut().write_all([head, answer].concat().as_bytes()).unwrap();
        }
        bodies
    });
    Scripted { address, is_done, serving }
}

fn good(id: &str) -> String {
    format!("{{\"status\":200,\"message\":\"OK\",\"result\":{{\"message_id\":\"{id}\"}}}}\n")
}

fn bad(status: u64) -> String {
    format!("{{\"status\":{status},\"message\":\"because\"}}\n")
}

fn keyed(key: &str) -> String {
    format!("{{\"idempotency_key\":\"{key}\"}}\n")
}

/// Sends one request with these lines. Returns how many were accepted, the numbers of the rejected
/// lines, why it stopped, and the bodies that were sent.
async fn push(lines: &str, script: Script) -> (u64, Vec<u64>, Option<String>, Vec<String>) {
    let server = serve(script);
    let url = format!("http://{}", server.address);
    let app = "a".parse().unwrap();
    let mut sender = Sender {
        client: Client::new(Server::parse(&url).unwrap(), &app, &Secret::generate()),
        bar: ProgressBar::hidden(),
        answers: None,
        pause: Duration::ZERO,
        accepted: 0,
        rejected: NotedLines::default(),
        warned: NotedLines::default(),
    };
    let limits = Limits { lines: 100, body: 10_000 };
    let request = BatchRequests::new(lines.as_bytes(), limits).next().unwrap().unwrap();
    let stopped = sender.send(request).await.unwrap();
    sender.rejected.sort();
    let rejected = sender.rejected.reported.iter().map(|rejected| rejected.line).collect();
    (sender.accepted, rejected, stopped.map(|stopped| stopped.reason), server.end())
}

#[tokio::test]
async fn lines_that_are_503_are_sent_again_only_with_a_key_and_others_are_reported() {
    let lines = [keyed("a"), "{}\n".into(), keyed("b"), "{\"x\":1}\n".into(), keyed("c")].concat();
    let first = [bad(503), bad(503), good("1"), bad(21005), bad(503)].concat();
    let second = [good("2"), bad(503)].concat();
    let script = vec![(200, first), (200, second), (200, good("3"))];
    let (accepted, bad, stopped, sent) = push(&lines, script).await;
    assert_eq!((accepted, bad, stopped), (3, vec![2, 4], None));
    let again = [keyed("a"), keyed("c")].concat();
    assert_eq!(sent, [lines, again, keyed("c")]);
}

#[tokio::test]
async fn a_request_that_is_503_is_sent_again_as_far_as_its_lines_have_keys() {
    let lines = [keyed("a"), "{}\n".into()].concat();
    let script = vec![(503, bad(503)), (503, bad(503)), (200, good("1"))];
    let (accepted, bad_lines, stopped, sent) = push(&lines, script).await;
    assert_eq!((accepted, bad_lines, stopped), (1, vec![2], None));
    assert_eq!(sent, [lines, keyed("a"), keyed("a")]);

    let (accepted, bad_lines, stopped, sent) = push("{}\n{}\n", vec![(503, bad(503))]).await;
    assert_eq!((accepted, bad_lines, sent.len()), (0, vec![], 1));
    assert!(stopped.unwrap().starts_with("refused with 503: because (without an idempotency_key"));
}

#[tokio::test]
async fn lines_beyond_the_rate_limit_or_a_quota_are_sent_again_with_and_without_a_key() {
    let lines = ["{}\n".into(), keyed("b"), "{\"x\":1}\n".into()].concat();
    let first = [good("1"), bad(22001), bad(429)].concat();
    let script = vec![(429, bad(22001)), (200, first), (200, [good("2"), good("3")].concat())];
    let (accepted, bad_lines, stopped, sent) = push(&lines, script).await;
    assert_eq!((accepted, bad_lines, stopped), (3, vec![], None));
    assert_eq!(sent, [lines.clone(), lines, [keyed("b"), "{\"x\":1}\n".into()].concat()]);
}

#[tokio::test]
async fn tries_are_bounded_for_a_line_and_for_a_request() {
    let tries = RETRIES as usize + 1;
    for (http, status) in [(503, 503), (429, 22001), (429, 429)] {
        let lines = vec![(200, bad(status)); tries];
        let (accepted, bad_lines, stopped, _) = push(&keyed("a"), lines).await;
        assert_eq!((accepted, bad_lines, stopped), (0, vec![1], None));
        let requests = vec![(http, bad(status)); tries];
        let (_, bad_lines, stopped, _) = push(&keyed("a"), requests).await;
        assert_eq!(bad_lines, Vec::<u64>::new());
        let given_up = format!("refused with {status}: because (after {tries} tries)");
        assert_eq!(stopped.unwrap(), given_up);
    }
}

#[tokio::test]
async fn a_file_goes_at_the_rate_of_the_app_however_many_tries_that_takes() {
    let lines = RETRIES as usize * 3;
    let script = (1..=lines).rev().map(|left| {
        let answer = [good("1"), bad(22001).repeat(left - 1)].concat();
        (200, answer)
    });
    let (accepted, bad_lines, stopped, sent) = push(&"{}\n".repeat(lines), script.collect()).await;
    assert_eq!((accepted, bad_lines, stopped), (lines as u64, vec![], None));
    assert_eq!(sent.len(), lines);
}

#[tokio::test]
async fn an_accepted_push_begins_the_count_of_tries_anew() {
    let (lines, tries) = (3, RETRIES as usize);
    let script: Script = (1..=lines)
        .rev()
        .flat_map(|left| {
            let none = (200, bad(22001).repeat(left));
            let one = (200, [good("1"), bad(22001).repeat(left - 1)].concat());
            std::iter::repeat_n(none, tries).chain([one])
        })
        .collect();
    let (accepted, bad_lines, stopped, sent) = push(&"{}\n".repeat(lines), script).await;
    assert_eq!((accepted, bad_lines, stopped), (lines as u64, vec![], None));
    assert_eq!(sent.len(), lines * (tries + 1));
}

#[tokio::test]
async fn what_another_try_cannot_help_is_not_tried_again() {
    for (http, status) in [(401, 21004), (413, 21005), (400, 21006)] {
        let (accepted, bad_lines, stopped, _) = push(&keyed("a"), vec![(http, bad(status))]).await;
        assert_eq!((accepted, bad_lines.len()), (0, 0));
        assert_eq!(stopped.unwrap(), format!("refused with {status}: because"));
    }
    let (accepted, _, stopped, sent) = push(&keyed("a"), vec![(307, String::new())]).await;
    assert_eq!((accepted, sent.len()), (0, 1));
    assert!(stopped.unwrap().starts_with("refused with 307: it points to no other URL"));
    let (_, _, stopped, _) = push(&keyed("a"), vec![(200, good("1").repeat(2))]).await;
    assert_eq!(stopped.unwrap(), "2 lines were answered in place of 1");
}

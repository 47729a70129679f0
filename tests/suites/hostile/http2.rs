//! HTTP/2 connections with frames that have no end, with streams that are reset at once, and with
//! bodies that do not come, and an app beside them that does nothing wrong.

use std::{cell::Cell, convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::{channel::mpsc, future::join_all};
use http::Request as HttpRequest;
use http_body_util::StreamBody;
use hyper::{body::Frame, client::conn::http2::SendRequest};
use push_tests::eventually;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
    time::timeout,
};

use crate::hostile::{
    frames::{
        self, ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY,
        HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, field, frame,
    },
    support::{
        client::{Answer, RawAnswer, VALID},
        http2,
        service::{APP, DEADLINE, Service},
    },
    tenants::{Neighbour, push_of},
};

/// Deadline of a push of the neighbour meanwhile.
const A_MOMENT: Duration = Duration::from_secs(5);
/// Connections of one attack at once.
const CONNECTIONS: usize = 4;
/// Frames, or streams, of one connection that has no end of them.
const MANY: usize = 10_000;
/// Bytes that a request which waits for its body takes from its app's share of the memory.
const WHILE_WAITING: u64 = 4096;
/// No connection ends because it lies idle: if it ends, something was refused.
const NEVER_IDLE: [&str; 1] = ["--tune=idle-timeout=10min"];
const BODY_MEMORY: &str = "push_ingest_body_memory_bytes";

/// The head of a push whose body is announced to have 100 bytes.
fn head(service: &Service) -> Vec<u8> {
    let more = [
        ("content-type", "application/json"),
        ("authorization", &service.secret),
        ("content-length", "100"),
    ];
    frames::head("POST", &format!("/v1/message/push/{APP}"), &more)
}

/// The bytes that the service sent over a connection.
#[derive(Debug, Default)]
struct Received {
    /// Frames PING and SETTINGS that acknowledge one of the client.
    acknowledged: usize,
    /// The error code of GOAWAY.
    went_away: Option<[u8; 4]>,
    /// True if the service ended the connection.
    is_ended: bool,
}

impl Received {
    /// Reads one frame.
    async fn read(&mut self, stream: &mut BufReader<OwnedReadHalf>) {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            self.is_ended = true;
            return;
        }
        let [long, high, low, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, long, high, low]) as usize];
        if stream.read_exact(&mut payload).await.is_err() {
            self.is_ended = true;
            return;
        }
        match kind {
            PING | SETTINGS if flags & ACK != 0 => self.acknowledged += 1,
            GOAWAY => self.went_away = payload.get(4..8).map(|code| code.try_into().unwrap()),
            _ => {}
        }
    }

    /// Fails unless the service has ended the connection, because too much came. The end of the
    /// connection may have destroyed what says so.
    fn expect_refusal(&self, what: &str) {
        let says_so = self.went_away.is_none_or(|code| code == ENHANCE_YOUR_CALM);
        assert!(self.is_ended && says_so, "{what}: {self:?}");
    }
}

/// A connection whose frames are written by hand.
struct ByHand {
    to_service: OwnedWriteHalf,
    from_service: BufReader<OwnedReadHalf>,
    received: Received,
}

impl ByHand {
    async fn open(service: &Service) -> Self {
        let stream = TcpStream::connect(service.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (from_service, mut to_service) = stream.into_split();
        let begin = [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat();
        to_service.write_all(&begin).await.unwrap();
        let from_service = BufReader::new(from_service);
        Self { to_service, from_service, received: Received::default() }
    }

    /// Sends these bytes, and reads until so many frames were acknowledged or the service has ended
    /// the connection.
    async fn exchange(&mut self, bytes: &[u8], acknowledged: usize) {
        let Self { to_service, from_service, received } = self;
        // That the service ended the connection meanwhile is seen by the other side.
        let sending = async {
            let _ = to_service.write_all(bytes).await;
        };
        let receiving = async {
            while received.acknowledged < acknowledged && !received.is_ended {
                received.read(from_service).await;
            }
        };
        let exchange = async { tokio::join!(sending, receiving) };
        timeout(DEADLINE, exchange).await.expect("answered or ended in time");
    }
}

/// Sends the same bytes over some connections at once, and returns what came over each until so many
/// frames were acknowledged or the service ended it.
async fn flood(service: &Service, bytes: &[u8], acknowledged: usize) -> Vec<Received> {
    let attack = (0..CONNECTIONS).map(|_| async {
        let mut connection = ByHand::open(service).await;
        connection.exchange(bytes, acknowledged).await;
        connection.received
    });
    join_all(attack).await
}

/// The outcome of an attack, while and after which the neighbour's pushes are answered at once.
async fn beside<T>(neighbour: &Neighbour, service: &Service, attack: impl Future<Output = T>) -> T {
    let is_over = Cell::new(false);
    let attack = async {
        let outcome = attack.await;
        is_over.set(true);
        outcome
    };
    let pushes = async {
        loop {
            let was_over = is_over.get();
            let answer = timeout(A_MOMENT, neighbour.push(service, VALID).send(service)).await;
            let answer = answer.expect("the neighbour is answered in a moment");
            assert_eq!(answer.http, 200, "{}", answer.text);
            if was_over {
                break;
            }
        }
    };
    tokio::join!(attack, pushes).0
}

/// Waits until no request is in work.
async fn wait_for_the_end_of_all(service: &Service) {
    eventually("no request is in work", DEADLINE, async || match service.counter(BODY_MEMORY) {
        0 => Ok(()),
        bytes => Err(format!("{bytes} bytes")),
    })
    .await;
}

#[tokio::test]
async fn frames_without_an_end_are_refused_and_others_are_served() {
    let service = Service::start(&NEVER_IDLE).await;
    let neighbour = Neighbour::of(&service).await;
    let begun = frame(HEADERS, 0, 1, &head(&service));
    let open = frame(HEADERS, END_HEADERS, 1, &head(&service));
    // SETTINGS_INITIAL_WINDOW_SIZE is 1, and then 0.
    let [one, none] = [1, 0].map(|window| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, window]));
    let settings = [one, none].concat();
    let endless = [
        ("empty CONTINUATION", &begun, frame(CONTINUATION, 0, 1, b"")),
        ("CONTINUATION with a field", &begun, frame(CONTINUATION, 0, 1, &field("x", "y"))),
        ("empty DATA", &open, frame(DATA, 0, 1, b"")),
        // The library visits every open stream for each of the next two.
        ("SETTINGS", &open, settings),
        ("GOAWAY", &open, frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0])),
    ];
    for (what, begin, repeated) in endless {
        let bytes = [&begin[..], &repeated.repeat(MANY)].concat();
        for received in beside(&neighbour, &service, flood(&service, &bytes, usize::MAX)).await {
            received.expect_refusal(what);
        }
    }
    // The first SETTINGS of each connection is acknowledged, too.
    let (pings, all) = (frame(PING, 0, 0, b"a flood!").repeat(MANY), MANY + 1);
    for received in beside(&neighbour, &service, flood(&service, &pings, all)).await {
        if received.acknowledged != all {
            received.expect_refusal("PING");
        }
    }
    wait_for_the_end_of_all(&service).await;
    service.stop().await.unwrap();
}

#[tokio::test]
async fn streams_that_are_reset_at_once_are_bounded() {
    let service = Service::start(&NEVER_IDLE).await;
    let neighbour = Neighbour::of(&service).await;
    let head = head(&service);
    let begin = |stream| frame(HEADERS, END_HEADERS, stream, &head);
    let cancel = |stream| frame(RST_STREAM, 0, stream, &CANCEL);
    // A body that ends before its announced length makes the service reset the stream.
    let too_short = |stream| frame(DATA, END_STREAM, stream, b"{");
    let streams = || (0..MANY).map(|n| u32::try_from(2 * n + 1).unwrap());

    let by_client = streams().flat_map(|n| [begin(n), cancel(n)].concat()).collect::<Vec<u8>>();
    let by_service = streams().flat_map(|n| [begin(n), too_short(n)].concat()).collect::<Vec<u8>>();
    for (what, bytes) in [("reset by the client", by_client), ("by the service", by_service)] {
        for received in beside(&neighbour, &service, flood(&service, &bytes, usize::MAX)).await {
            received.expect_refusal(what);
        }
    }
    wait_for_the_end_of_all(&service).await;

    // Those that are in work when they are reset break no rule. Nothing of them stays.
    let rounds = async {
        let mut connection = ByHand::open(&service).await;
        let mut most = 0;
        for (round, stream) in streams().take(1000).enumerate() {
            let bytes = [begin(stream), frame(PING, 0, 0, b"in work?")].concat();
            connection.exchange(&bytes, round + 2).await;
            assert!(!connection.received.is_ended, "after {round}: {:?}", connection.received);
            most = most.max(service.counter(BODY_MEMORY));
            connection.exchange(&cancel(stream), 0).await;
        }
        most
    };
    let most = beside(&neighbour, &service, rounds).await;
    // As many as may be in work over one connection, and what the neighbour has.
    assert!(most <= 257 * WHILE_WAITING, "{most} bytes for requests that were reset");
    wait_for_the_end_of_all(&service).await;
    service.stop().await.unwrap();
}

type Piece = Result<Frame<Bytes>, Infallible>;
/// A body whose pieces come from elsewhere. It ends when their sender is dropped.
type Body = StreamBody<mpsc::Receiver<Piece>>;

fn piece(bytes: &str) -> Piece {
    Ok(Frame::data(Bytes::from(bytes.to_owned())))
}

fn body(begin: &str) -> (mpsc::Sender<Piece>, Body) {
    let (mut sender, receiver) = mpsc::channel(1);
    sender.try_send(piece(begin)).unwrap();
    (sender, StreamBody::new(receiver))
}

/// A push of the service's app whose body is announced to have so many bytes.
fn push(service: &Service, length: usize, body: Body) -> HttpRequest<Body> {
    HttpRequest::post(format!("http://push/v1/message/push/{APP}"))
        .header("content-type", "application/json")
        .header("authorization", &service.secret)
        .header("content-length", length)
        .body(body)
        .unwrap()
}

async fn answer(http2: &SendRequest<Body>, request: HttpRequest<Body>) -> Answer {
    let answer = http2.clone().send_request(request);
    let answer = timeout(DEADLINE, answer).await.expect("an answer, in time").unwrap();
    let RawAnswer { http, headers, text } = http2::whole(answer).await;
    Answer::new(http, headers, text)
}

/// The answer to a push of so many bytes that are all sent.
async fn answer_to_whole(http2: &SendRequest<Body>, service: &Service, length: usize) -> Answer {
    let (_, body) = body(&push_of(length));
    answer(http2, push(service, length, body)).await
}

#[tokio::test]
async fn bodies_that_do_not_come_over_http_2_hold_no_other_app_up() {
    // Far longer than this test waits: the least rate ends them.
    let service = Service::start(&["--tune=body-timeout=5min"]).await;
    let neighbour = Neighbour::of(&service).await;
    let (mut senders, mut slow) = (Vec::new(), JoinSet::new());
    for _ in 0..CONNECTIONS {
        let http2 = http2::connect(service.address).await;
        for _ in 0..25 {
            let (sender, body) = body("{");
            senders.push(sender);
            let (http2, request) = (http2.clone(), push(&service, 512 * 1024, body));
            slow.spawn(async move { answer(&http2, request).await });
        }
    }
    let all = WHILE_WAITING * u64::try_from(slow.len()).unwrap();
    let ended = async {
        eventually("all are in work", DEADLINE, async || match service.counter(BODY_MEMORY) {
            bytes if bytes >= all => Ok(()),
            bytes => Err(format!("{bytes} of {all} bytes")),
        })
        .await;
        slow.join_all().await
    };
    for answer in beside(&neighbour, &service, ended).await {
        let message = "the request's body came with fewer than 1024 bytes a second";
        answer.expect(408, 408, message);
    }
    wait_for_the_end_of_all(&service).await;
    drop(senders);
    service.stop().await.unwrap();

    an_app_fills_its_share().await;
}

/// An app has as many bytes in work over HTTP/2 as it may.
async fn an_app_fills_its_share() {
    let service = Service::start(&[
        "--tune=body-timeout=5min",
        "--tune=min-body-rate=0B",
        "--tune=max-body=64KiB",
        "--max-batch-body=8KiB",
        "--max-batch-lines=8",
        "--max-buffered=256KiB",
    ])
    .await;
    let neighbour = Neighbour::of(&service).await;
    let http2 = http2::connect(service.address).await;
    let large = push_of(60_000);
    let (begin, end) = large.split_at(59_000);
    let mut waiting = Vec::new();
    let refused = eventually("the app's share is full", DEADLINE, async || {
        // A push that is in work meanwhile may leave too little for one of them.
        let (sender, body) = body(begin);
        let (sending, request) = (http2.clone(), push(&service, large.len(), body));
        waiting.push((sender, tokio::spawn(async move { answer(&sending, request).await })));
        let answer = answer_to_whole(&http2, &service, 20_000).await;
        if answer.http == 200 { Err(answer.text) } else { Ok(answer) }
    })
    .await;
    refused.expect(503, 503, "try again: the service is full for this app");
    assert!(refused.header("retry-after").is_some());
    let of_neighbour = neighbour.push(&service, push_of(30_000));
    for _ in 0..2 {
        let other = timeout(A_MOMENT, of_neighbour.send(&service)).await;
        let other = other.expect("the neighbour is answered in a moment");
        assert_eq!(other.http, 200, "{}", other.text);
    }
    let mut finished = 0;
    for (mut sender, answer) in waiting {
        // One that was refused takes no more.
        let _ = sender.try_send(piece(end));
        drop(sender);
        finished += u32::from(answer.await.unwrap().http == 200);
    }
    assert!(finished > 0, "what has its memory is finished");
    let again = answer_to_whole(&http2, &service, large.len()).await;
    assert_eq!(again.http, 200, "and then it has its share again: {}", again.text);
    service.stop().await.unwrap();
}

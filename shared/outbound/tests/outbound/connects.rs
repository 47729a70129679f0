//! Connects that fail, hang, or lead to connections that end soon.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use push_outbound::{
    Exchange, Limits, NotProcessed, Outbound, OutboundSettings, Step, StepTimes, Why,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    time::{Instant, timeout},
};

use crate::support::{
    Names, SHORT, allowing, answered, eventually, insist, keyed_tenant, listen, not_processed,
    patient, plain, send, settings, tenant,
    tls::Certificates,
    unanswered, unreachable,
    wire::{ENHANCE_YOUR_CALM, NO_ERROR, Sent, Wire},
};

/// Most that a test allows a bound of [`SHORT`] to take on a machine that is busy.
const GENEROUS: Duration = Duration::from_secs(10);

async fn within_bounds<T>(work: impl Future<Output = T>) -> T {
    timeout(GENEROUS, work).await.expect("a documented bound does not hold")
}

#[tokio::test]
async fn a_refused_connect_is_told_immediately_and_the_next_requests_say_when_it_is_tried_again() {
    let (listener, address) = listen().await;
    drop(listener);
    let outbound = Outbound::new(patient()).unwrap();
    let client = plain(&outbound, address);
    for _ in 0..10 {
        match not_processed(send(&client, "/").await) {
            NotProcessed::Unreachable { error, again_in } => {
                assert_eq!(error.step, Step::Connect);
                let text = "the host cannot be reached: the connection was refused";
                assert_eq!(error.to_string(), text);
                assert!(again_in <= Duration::from_millis(500), "{again_in:?}");
            }
            why => panic!("{why:?}"),
        }
    }
    assert_eq!(client.capacity(), 0);
    assert_eq!(outbound.counts().connects_failed, 1);
}

#[tokio::test]
async fn a_black_hole_in_tcp_costs_the_time_of_a_connect() {
    // A listener whose backlog is full answers nothing.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(stream) = timeout(SHORT, TcpStream::connect(address)).await {
        held.push(stream.unwrap());
    }
    let outbound = Outbound::new(settings()).unwrap();
    let sent = within_bounds(send(&plain(&outbound, address), "/")).await;
    assert_eq!(unreachable(sent), (Step::Connect, Why::Late(SHORT)));
}

#[tokio::test]
async fn a_black_hole_in_tls_costs_the_time_of_a_handshake() {
    let (_listener, address) = listen().await;
    let certificates = Certificates::of(&["a.example"]);
    let outbound = Outbound::new(OutboundSettings {
        permission: allowing("127.0.0.0/8").permission,
        authorities: Some(certificates.authority.clone()),
        ..settings()
    })
    .unwrap();
    let sent = within_bounds(send(&tenant(&outbound, &format!("https://{address}/")), "/")).await;
    assert_eq!(unreachable(sent), (Step::Tls, Why::Late(SHORT)));
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_costs_the_time_of_its_first_word() {
    let (listener, address) = listen().await;
    let outbound = Outbound::new(settings()).unwrap();
    let sent = within_bounds(send(&plain(&outbound, address), "/")).await;
    assert_eq!(unreachable(sent), (Step::Http, Why::Late(SHORT)));
    drop(listener);
}

#[tokio::test]
async fn a_resolver_that_hangs_costs_the_time_of_a_lookup() {
    let outbound = Outbound::new(settings()).unwrap();
    let sent = within_bounds(send(&tenant(&outbound, "https://hangs.example/"), "/")).await;
    assert_eq!(unreachable(sent), (Step::Resolve, Why::Late(SHORT)));
    let sent = within_bounds(send(&tenant(&outbound, "https://nowhere.example/"), "/")).await;
    assert_eq!(unreachable(sent), (Step::Resolve, Why::NoAddress));
}

#[tokio::test]
async fn tenants_whose_servers_hang_leave_connections_to_the_operator() {
    let hanging = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let hangs = SocketAddr::from(([127, 0, 0, 1], hanging.local_addr().unwrap().port()));
    let (listener, address) = listen().await;
    tokio::spawn(async move { Wire::accept(&listener, None).await.serve().await });
    let certificates = Certificates::of(&["a.example"]);
    let outbound = Outbound::new(OutboundSettings {
        authorities: Some(certificates.authority.clone()),
        limits: Limits { connections: 4, ..Limits::default() },
        ..allowing("127.0.0.0/8")
    })
    .unwrap();
    for n in 2..10 {
        let url = format!("https://127.0.0.{n}:{}/", hangs.port());
        let client = keyed_tenant(&outbound, &url, &n.to_string());
        tokio::spawn(async move { send(&client, "/").await });
        let client = tenant(&outbound, &format!("https://{hangs}/{n}"));
        tokio::spawn(async move { send(&client, "/").await });
    }
    eventually("tenants have all that they may", || outbound.counts().connections == 3).await;
    assert_eq!(answered(send(&plain(&outbound, address), "/").await).status, 200);
    assert_eq!(outbound.counts().connections, 4);
}

#[tokio::test]
async fn a_tenant_whose_servers_hang_leaves_connections_to_other_tenants() {
    let hanging = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let hangs = hanging.local_addr().unwrap().port();
    let certificates = Certificates::of(&["127.0.0.1"]);
    let served = certificates.serve("127.0.0.1:0", &[b"h2"]).await.address;
    let outbound = Outbound::new(OutboundSettings {
        authorities: Some(certificates.authority.clone()),
        limits: Limits { connections: 16, ..Limits::default() },
        ..allowing("127.0.0.0/8")
    })
    .unwrap();
    for n in 2..40 {
        let client = keyed_tenant(&outbound, &format!("https://127.0.0.{n}:{hangs}/"), "greedy");
        tokio::spawn(async move { send(&client, "/").await });
    }
    eventually("it has half of what tenants have", || outbound.counts().connections == 6).await;
    let other = keyed_tenant(&outbound, &format!("https://{served}/"), "other");
    assert_eq!(answered(send(&other, "/").await).status, 307);
}

#[tokio::test]
async fn a_server_without_http2_is_no_server_for_prior_knowledge() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut read = [0; 24];
        stream.read_exact(&mut read).await.unwrap();
        let answer = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    });
    let outbound = Outbound::new(patient()).unwrap();
    let sent = send(&plain(&outbound, address), "/").await;
    assert_eq!(unreachable(sent), (Step::Http, Why::Protocol));
}

#[tokio::test]
async fn a_dead_address_delays_a_connect_only_briefly() {
    let (listener, address) = listen().await;
    tokio::spawn(async move { Wire::accept(&listener, None).await.serve().await });
    // Nothing listens on the other addresses.
    let names = Names::of(&[("provider.example", &[&["::1", "127.0.0.3", "127.0.0.1"]])]);
    let outbound = Outbound::new(OutboundSettings { resolver: names, ..settings() }).unwrap();
    let url = format!("http://provider.example:{}", address.port());
    let origin = push_outbound::Origin::parse(&url, push_outbound::Owner::Operator).unwrap();
    let client = outbound.origin(origin, Default::default());
    assert_eq!(answered(send(&client, "/").await).status, 200);
}

/// Sends for some time, holding requests as long as the client says, and gives the number of
/// connections that the server saw.
async fn connections_in(span: Duration, goodbye: u32) -> usize {
    let (listener, address) = listen().await;
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let mut wire = Wire::accept(&listener, None).await;
            count.fetch_add(1, Ordering::Relaxed);
            wire.goaway(0, goodbye).await;
        }
    });
    let outbound = Outbound::new(patient()).unwrap();
    let client = plain(&outbound, address);
    let end = Instant::now() + span;
    while Instant::now() < end {
        match send(&client, "/").await {
            Exchange::NotProcessed(NotProcessed::Unreachable { again_in, .. }) => {
                tokio::time::sleep(again_in).await;
            }
            sent => drop(not_processed(sent)),
        }
    }
    connections.load(Ordering::Relaxed)
}

#[tokio::test]
async fn connections_that_end_before_an_answer_cause_no_storm_of_connects() {
    // Pauses of 0.5, 1 and 2 seconds.
    let connections = async |goodbye| connections_in(Duration::from_secs(3), goodbye).await;
    let (told, untold) = tokio::join!(connections(ENHANCE_YOUR_CALM), connections(NO_ERROR));
    assert!((2..=4).contains(&told) && (2..=4).contains(&untold), "{told} and {untold}");
}

#[tokio::test]
async fn a_push_after_an_idle_connection_was_closed_succeeds_without_an_error() {
    let (listener, address) = listen().await;
    let outbound = Outbound::new(patient()).unwrap();
    let client = plain(&outbound, address);
    for goodbye in ["said", "unsaid", "cut off"] {
        for _ in 0..5 {
            let sender = client.clone();
            let sent = tokio::spawn(async move { send(&sender, "/").await });
            let mut wire = Wire::accept(&listener, None).await;
            let id = wire.request().await;
            wire.answer(id).await;
            answered(sent.await.unwrap());
            match goodbye {
                "said" => {
                    wire.goaway(id, NO_ERROR).await;
                    assert_eq!(wire.next().await, Sent::End);
                }
                "unsaid" => drop(wire),
                _ => wire.cut_off(),
            }
            eventually("the end is noticed", || outbound.counts().connections == 0).await;
        }
    }
    assert_eq!(outbound.counts().connects_failed, 0);
}

#[tokio::test]
async fn a_connection_that_breaks_under_requests_leaves_them_open_and_is_replaced() {
    let (listener, address) = listen().await;
    let outbound = Outbound::new(patient()).unwrap();
    let client = plain(&outbound, address);
    let mut sent = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let client = client.clone();
        sent.spawn(async move { send(&client, "/").await });
    }
    let mut wire = Wire::accept(&listener, None).await;
    for _ in 0..10 {
        wire.request().await;
    }
    drop(wire);
    sent.join_all().await.into_iter().for_each(|sent| _ = unanswered(sent));
    tokio::spawn(async move { Wire::accept(&listener, None).await.serve().await });
    assert_eq!(insist(&client, "/").await.status, 200);
}

/// The clock is the test's own, and goes on whenever all tasks wait.
#[tokio::test(start_paused = true)]
async fn a_connection_that_answers_pings_gets_few_and_one_that_does_not_is_given_up() {
    let (listener, address) = listen().await;
    let times = StepTimes { connect: GENEROUS * 100, http: GENEROUS * 100, ..StepTimes::default() };
    let outbound = Outbound::new(OutboundSettings { times, ..patient() }).unwrap();
    let client = plain(&outbound, address);
    let begin = Instant::now();
    let sent = tokio::spawn(async move {
        client.send(crate::support::post("/", ""), begin + Duration::from_secs(110)).await
    });
    let mut wire = Wire::accept(&listener, None).await;
    wire.request().await;
    // After 5, 10 and 20 seconds.
    for _ in 0..3 {
        match wire.next().await {
            Sent::Ping(payload) => wire.pong(payload).await,
            sent => panic!("{sent:?}"),
        }
    }
    // After 40 seconds, and 5 for its answer.
    assert!(matches!(wire.next().await, Sent::Ping(_)));
    assert_eq!(wire.next().await, Sent::End);
    let took = begin.elapsed().as_secs();
    assert!((80..90).contains(&took), "{took} s");
    unanswered(sent.await.unwrap());
}

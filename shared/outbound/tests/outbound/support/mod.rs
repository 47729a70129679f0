//! An outbound with names of the test's own, and what its requests came to.

pub(crate) mod tls;
pub(crate) mod wire;

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::Request;
use push_outbound::{
    Answer, Client, Exchange, Limits, NotProcessed, Origin, Outbound, OutboundSettings, Owner,
    Permission, PoolKey, Resolve, Step, StepTimes, Unanswered, Unreachable, Why,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

use self::wire::Wire;

/// Deadline of any wait in these tests.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The time for each step to a connection where a test waits for it to pass.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

/// Names and the addresses that each lookup finds, one after the other; the last is found again.
#[derive(Debug, Default)]
pub(crate) struct Names {
    found: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    lookups: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn of(names: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let addresses = |found: &[&str]| found.iter().map(|text| text.parse().unwrap()).collect();
        let lookups = |found: &[&[&str]]| found.iter().map(|found| addresses(found)).collect();
        let found = names.iter().map(|(name, found)| ((*name).to_owned(), lookups(found)));
        Arc::new(Self { found: Mutex::new(found.collect()), lookups: Mutex::default() })
    }

    pub(crate) fn lookups(&self) -> Vec<String> {
        self.lookups.lock().unwrap().clone()
    }
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.lookups.lock().unwrap().push(name.to_owned());
        if name.starts_with("hangs") {
            std::future::pending::<()>().await;
        }
        let mut found = self.found.lock().unwrap();
        let found = found.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        let next = if found.len() > 1 { found.pop_front() } else { found.front().cloned() };
        next.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Settings without jitter, whose steps have a short time.
pub(crate) fn settings() -> OutboundSettings {
    let times = StepTimes { resolve: SHORT, connect: SHORT, proxy: SHORT, tls: SHORT, http: SHORT };
    OutboundSettings { times, ..patient() }
}

/// Settings without jitter.
pub(crate) fn patient() -> OutboundSettings {
    OutboundSettings { resolver: Names::of(&[]), ..OutboundSettings::new(Arc::new(|| 0.0)) }
}

pub(crate) fn allowing(networks: &str) -> OutboundSettings {
    OutboundSettings { permission: Permission::parse(networks).unwrap(), ..patient() }
}

/// A client of the operator's own server without TLS.
pub(crate) fn plain(outbound: &Outbound, address: SocketAddr) -> Client {
    keyed(outbound, address, "")
}

/// The same with connections of its own.
pub(crate) fn keyed(outbound: &Outbound, address: SocketAddr, key: &str) -> Client {
    let origin = Origin::parse(&format!("http://{address}"), Owner::Operator).unwrap();
    outbound.origin(origin, PoolKey(key.to_owned()))
}

/// A client of a server that a tenant chose.
pub(crate) fn tenant(outbound: &Outbound, url: &str) -> Client {
    keyed_tenant(outbound, url, "")
}

/// The same with connections of its own.
pub(crate) fn keyed_tenant(outbound: &Outbound, url: &str, key: &str) -> Client {
    outbound.origin(Origin::parse(url, Owner::Tenant).unwrap(), PoolKey(key.to_owned()))
}

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub(crate) fn post(path: &str, body: &str) -> Request<Bytes> {
    Request::post(path).body(Bytes::from(body.to_owned())).unwrap()
}

/// Sends with a deadline that is not meant to pass.
pub(crate) async fn send(client: &Client, path: &str) -> Exchange {
    client.send(post(path, "body"), Instant::now() + DEADLINE).await
}

/// Sends until the answer comes, as often as the request was certainly not processed.
pub(crate) async fn insist(client: &Client, path: &str) -> Answer {
    let deadline = Instant::now() + DEADLINE;
    loop {
        assert!(Instant::now() < deadline, "not answered in time");
        match send(client, path).await {
            Exchange::NotProcessed(NotProcessed::Unreachable { again_in, .. }) => {
                tokio::time::sleep(again_in).await;
            }
            Exchange::NotProcessed(_) => {}
            exchange => return answered(exchange),
        }
    }
}

#[track_caller]
pub(crate) fn answered(exchange: Exchange) -> Answer {
    match exchange {
        Exchange::Answered(answer) => answer,
        exchange => panic!("not answered: {exchange:?}"),
    }
}

#[track_caller]
pub(crate) fn not_processed(exchange: Exchange) -> NotProcessed {
    match exchange {
        Exchange::NotProcessed(why) => why,
        exchange => panic!("it may have been processed: {exchange:?}"),
    }
}

#[track_caller]
pub(crate) fn unanswered(exchange: Exchange) -> Unanswered {
    match exchange {
        Exchange::Unanswered(why) => why,
        exchange => panic!("not left unanswered: {exchange:?}"),
    }
}

/// The step that failed, and why.
#[track_caller]
pub(crate) fn unreachable(exchange: Exchange) -> (Step, Why) {
    match not_processed(exchange) {
        NotProcessed::Unreachable { error, .. } => {
            let Unreachable { step, why } = &*error;
            (*step, why.clone())
        }
        why => panic!("another reason: {why:?}"),
    }
}

/// Waits until the condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An outbound with so many connections to an origin.
pub(crate) fn outbound(connections_per_origin: usize) -> Arc<Outbound> {
    let limits = Limits { connections_per_origin, ..Limits::default() };
    Outbound::new(OutboundSettings { limits, ..patient() }).unwrap()
}

/// Begins so many requests.
pub(crate) fn spawn(requests: &mut JoinSet<Exchange>, client: &Client, number: usize) {
    for _ in 0..number {
        let client = client.clone();
        requests.spawn(async move { send(&client, "/").await });
    }
}

/// Waits until all requests were answered, and gives their number.
pub(crate) async fn all_answered(requests: JoinSet<Exchange>) -> usize {
    requests.join_all().await.into_iter().map(answered).count()
}

/// Takes so many requests, none of which is answered yet.
pub(crate) async fn take<const N: usize>(wire: &mut Wire<TcpStream>) -> [u32; N] {
    let mut taken = [0; N];
    for id in &mut taken {
        *id = wire.request().await;
    }
    taken
}

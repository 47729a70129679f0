//! Servers that play FCM with its service of access tokens, APNs, a Web Push service and a webhook
//! receiver, as a test tells them to.
//!
//! All are one server with HTTP/2, with or without TLS, which counts what each device was sent. A [`Face`]
//! knows the form of one provider, a [`Reply`] is what a device's request gets, and a [`Wire`] says how
//! connections misbehave. Servers of tenants may also have HTTP/1.1 alone, in some [`Manner`].

#![allow(clippy::expect_used, reason = "a test ends where its servers cannot be started")]

mod face;
mod http1;
mod listen;
mod record;
mod relay;
mod reply;
mod serve;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tokio::{
    net::TcpListener,
    sync::{
        mpsc::{self, error::TrySendError},
        watch,
    },
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

pub use self::{
    face::{Face, apns_error, fcm_error, fcm_field_error},
    http1::Manner,
    listen::acceptor,
    record::{Receipt, Record},
    reply::Reply,
};
use crate::{certificates::Certificate, free_port, ports::Port};

/// The most receipts that a test has not read.
const RECEIPTS: usize = 1_000_000;

/// What a device's request gets: by the device and the number of its earlier requests.
type Script = Arc<dyn Fn(&str, u32) -> Reply + Send + Sync>;

/// How connections behave.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// The most streams at a time that the server states.
    pub streams: u32,
    /// A connection with one stream too many is ended with GOAWAY.
    pub punishes: bool,
    /// After so many requests a connection says goodbye: later ones on it are not begun.
    pub goodbye_after: Option<u32>,
    /// A connection is cut after it has sent so many bytes.
    pub cut_after: Option<u64>,
    /// Connections are accepted, and nothing is read from or written to any.
    pub is_black_hole: bool,
    /// A connection that ends here is reset, and what it has sent last may be lost. For those that are accepted
    /// from now on.
    pub resets: bool,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            streams: 1000,
            punishes: false,
            goodbye_after: None,
            cut_after: None,
            is_black_hole: false,
            resets: false,
        }
    }
}

/// A server that listens on a free port of loopback until it is dropped.
pub struct PhoneServer {
    port: Port,
    has_tls: bool,
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

/// What all connections share.
struct Shared {
    face: Face,
    /// HTTP/1.1 instead of HTTP/2.
    http1: Option<Manner>,
    wire: watch::Sender<Wire>,
    script: Mutex<Script>,
    record: Mutex<Record>,
    /// The number of times that the test closed all connections.
    closings: watch::Sender<u64>,
    /// The connections that are open then are cut after they have sent so many more bytes.
    cuts: watch::Sender<u64>,
    /// True while nothing listens on the port.
    is_down: watch::Sender<bool>,
    receipts: Mutex<Option<mpsc::Sender<Receipt>>>,
}

impl PhoneServer {
    /// Starts one that takes everything, within the runtime of the test: with TLS if there is a
    /// certificate, else in cleartext with prior knowledge.
    ///
    /// # Panics
    /// If there is no free port, or the certificate cannot be used.
    pub async fn start(face: Face, certificate: Option<&Certificate>) -> Self {
        let tls = certificate.map(|certificate| acceptor(certificate, &[b"h2"]));
        Self::start_with(face, tls, None).await
    }

    /// Starts one that takes everything, with TLS and HTTP/1.1 alone.
    ///
    /// # Panics
    /// If there is no free port, or the certificate cannot be used.
    pub async fn start_http1(face: Face, certificate: &Certificate, manner: Manner) -> Self {
        let alpn: &[&[u8]] = if manner == Manner::Kept { &[b"http/1.1"] } else { &[] };
        Self::start_with(face, Some(acceptor(certificate, alpn)), Some(manner)).await
    }

    async fn start_with(face: Face, tls: Option<TlsAcceptor>, http1: Option<Manner>) -> Self {
        let port = free_port().expect("a free port");
        let script: Script = Arc::new(|_, _| Reply::taken());
        let shared = Arc::new(Shared {
            face,
            http1,
            wire: watch::Sender::new(Wire::default()),
            script: Mutex::new(script),
            record: Mutex::default(),
            closings: watch::Sender::new(0),
            cuts: watch::Sender::new(u64::MAX),
            is_down: watch::Sender::new(false),
            receipts: Mutex::default(),
        });
        let has_tls = tls.is_some();
        let listener = TcpListener::bind(port.address()).await.expect("a reserved port");
        let listening = listen::listen(listener, tls, shared.clone());
        Self { port, has_tls, shared, _task: AbortOnDropHandle::new(tokio::spawn(listening)) }
    }

    /// `http://127.0.0.1:port` or `https://127.0.0.1:port`
    pub fn url(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.port.address())
    }

    /// Answers so from now on: by the device and the number of its earlier requests.
    pub fn answer(&self, script: impl Fn(&str, u32) -> Reply + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(script);
    }

    /// Answers so until the flag that is returned is cleared, and then takes everything.
    pub fn while_set(&self, reply: Reply) -> Arc<AtomicBool> {
        let is_set = Arc::new(AtomicBool::new(true));
        let flag = is_set.clone();
        self.answer(
            move |_, _| {
                if flag.load(Ordering::Relaxed) { reply.clone() } else { Reply::taken() }
            },
        );
        is_set
    }

    /// Changes how connections behave, those that are open included.
    pub fn behave(&self, change: impl FnOnce(&mut Wire)) {
        self.shared.wire.send_modify(change);
    }

    /// Ends all connections, and listens no more until [`revive`](Self::revive).
    pub fn kill(&self) {
        self.shared.is_down.send_replace(true);
    }

    /// Listens again.
    pub fn revive(&self) {
        self.shared.is_down.send_replace(false);
    }

    /// Cuts each connection that is open now after it has sent so many more bytes, or none if there are none
    /// until the next call.
    pub fn cut_open_connections(&self, after: Option<u64>) {
        self.shared.cuts.send_replace(after.unwrap_or(u64::MAX));
    }

    /// Returns where each message that a device's provider takes from now on is reported.
    pub fn receipts(&self) -> mpsc::Receiver<Receipt> {
        let (sender, receiver) = mpsc::channel(RECEIPTS);
        *self.shared.receipts.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    /// Closes all connections.
    pub fn close_connections(&self) {
        self.shared.closings.send_modify(|closings| *closings += 1);
    }

    /// Returns what arrived so far.
    pub fn record(&self) -> Record {
        self.shared.record().clone()
    }

    /// Forgets what arrived.
    pub fn forget(&self) {
        *self.shared.record() = Record::default();
    }
}

impl Shared {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wire(&self) -> Wire {
        *self.wire.borrow()
    }

    /// Waits while the server is a black hole.
    async fn answers(&self) {
        // The sender lives as long as this.
        let _ = self.wire.subscribe().wait_for(|wire| !wire.is_black_hole).await;
    }

    /// Reports that a device's message was taken.
    fn report(&self, device: &str, body: &Bytes) {
        let receipts = self.receipts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(receipts) = &*receipts {
            let receipt = Receipt { device: device.to_owned(), body: body.clone() };
            let sent = receipts.try_send(receipt);
            // A test that has stopped reading wants no more of them.
            assert!(!matches!(sent, Err(TrySendError::Full(_))), "a test is behind by {RECEIPTS}");
        }
    }

    fn script(&self) -> Script {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for PhoneServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhoneServer").field("url", &self.url()).finish_non_exhaustive()
    }
}

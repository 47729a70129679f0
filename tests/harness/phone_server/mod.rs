//! Servers that play FCM with its service of access tokens, APNs, a Web Push service and a webhook
//! receiver, as a test tells them to.
//!
//! All are one server with HTTP/2, with or without TLS, which counts what each device was sent. A [`Face`]
//! knows the form of one provider, a [`Reply`] is what a device's request gets, and a [`Wire`] says how
//! connections misbehave. Servers of tenants may also have HTTP/1.1 alone, in some [`Manner`].

#![allow(clippy::expect_used, reason = "a test ends where its servers cannot be started")]

mod face;
mod http1;
mod record;
mod relay;
mod reply;
mod serve;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};
use tokio_util::task::AbortOnDropHandle;

pub use self::{
    face::{Face, apns_error, fcm_error, fcm_field_error},
    http1::Manner,
    record::Record,
    reply::Reply,
};
use crate::certificates::Certificate;

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
    /// Connections are accepted, and nothing is read from them.
    pub is_black_hole: bool,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            streams: 1000,
            punishes: false,
            goodbye_after: None,
            cut_after: None,
            is_black_hole: false,
        }
    }
}

/// A server that listens on a free port of loopback until it is dropped.
pub struct PhoneServer {
    address: SocketAddr,
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
}

impl PhoneServer {
    /// Starts one that takes everything, within the runtime of the test: with TLS if there is a
    /// certificate, else in cleartext with prior knowledge.
    ///
    /// # Panics
    /// If there is no free port, or the certificate cannot be used.
    pub async fn start(face: Face, certificate: Option<&Certificate>) -> Self {
        Self::start_with(face, certificate.map(|certificate| acceptor(certificate, &[b"h2"])), None)
            .await
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
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the address of a bound port");
        let script: Script = Arc::new(|_, _| Reply::taken());
        let shared = Arc::new(Shared {
            face,
            http1,
            wire: watch::Sender::new(Wire::default()),
            script: Mutex::new(script),
            record: Mutex::default(),
            closings: watch::Sender::new(0),
        });
        let has_tls = tls.is_some();
        let task = AbortOnDropHandle::new(tokio::spawn(accept(listener, tls, shared.clone())));
        Self { address, has_tls, shared, _task: task }
    }

    /// `http://127.0.0.1:port` or `https://127.0.0.1:port`
    pub fn url(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
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

    fn script(&self) -> Script {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for PhoneServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhoneServer").field("url", &self.url()).finish_non_exhaustive()
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let _ = stream.set_nodelay(true);
                shared.record().connections += 1;
                let (tls, shared) = (tls.clone(), shared.clone());
                connections.spawn(async move {
                    let mut closings = shared.closings.subscribe();
                    let serve = async {
                        if shared.wire().is_black_hole {
                            std::future::pending::<()>().await;
                        }
                        match tls {
                            None => relay::relay(stream, &shared).await,
                            Some(tls) => match tls.accept(stream).await {
                                Ok(stream) => match shared.http1 {
                                    None => relay::relay(stream, &shared).await,
                                    Some(manner) => {
                                        let _ = http1::serve(stream, manner, &shared).await;
                                    }
                                },
                                Err(_) => shared.record().failed_handshakes += 1,
                            },
                        }
                    };
                    tokio::select! {
                        () = serve => {}
                        _ = closings.changed() => {}
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Accepts TLS with this certificate, for the protocols of this list.
///
/// # Panics
/// If the certificate cannot be used.
pub fn acceptor(certificate: &Certificate, alpn: &[&[u8]]) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(&certificate.certificate).expect("a certificate");
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(&certificate.key).expect("a key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate and its key");
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

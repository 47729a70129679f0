//! A server that plays FCM or a Web Push service and does as little as possible: it reads a request, finds
//! the device and answers.
//!
//! The scripted servers of the tests look at every frame and record every request, which takes them longer
//! than a worker needs to send it.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use push_tests::{
    certificates::Certificate,
    phone_server::{acceptor, fcm_error},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::mpsc,
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

/// The number of the device whose requests are reported.
pub(crate) const WATCHED: usize = 9_999_999_999;
/// The beginning of a request to FCM, up to the token.
pub(crate) const BEFORE_TOKEN: &str = r#"{"message":{"token":""#;
/// The digits of a device's number, with which its token begins and its endpoint ends.
const DIGITS: usize = 10;
/// The length of the tokens that Google gives out.
const TOKEN_LEN: usize = 163;
/// The path of endpoints, up to the number.
const ENDPOINTS: &str = "/push/";
/// As long as FCM's.
const ANSWER: &[u8] =
    br#"{"name":"projects/project/messages/0:1700000000000000%0123456789abcdef"}"#;

/// The registration token of a device.
pub(crate) fn fcm_token(number: usize) -> String {
    format!("{:x<TOKEN_LEN$}", format!("{number:0DIGITS$}:APA91b"))
}

/// The provider that a server plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plays {
    Fcm,
    WebPush,
}

/// The most requests for the watched device that wait to be looked at: it is sent one at a time.
const WATCHED_WAITING: usize = 64;

/// A request for the watched device.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) body: Bytes,
}

/// A server that listens on a free port of loopback until it is dropped.
pub(crate) struct PhoneProvider {
    address: SocketAddr,
    has_tls: bool,
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

/// What all connections share.
struct Shared {
    plays: Plays,
    /// The most requests at a time on a new connection.
    streams: AtomicU32,
    /// One device in this many is never answered; 0 means none.
    silent_every: AtomicU32,
    taken: AtomicU64,
    refused: AtomicU64,
    minute: Mutex<Option<Minute>>,
    /// The body of the last request in a thousand.
    body: Mutex<Bytes>,
    watched: Mutex<Option<mpsc::Sender<Arrival>>>,
}

/// The requests of the last sixty seconds, of which there may be so many.
struct Minute {
    most: u64,
    begun: Instant,
    /// By second, and the second that each entry belongs to.
    seconds: [(u64, u64); 60],
}

impl PhoneProvider {
    /// Starts one, with TLS if there is a certificate, else in cleartext with prior knowledge.
    pub(crate) async fn start(
        plays: Plays,
        certificate: Option<&Certificate>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            plays,
            streams: 1000.into(),
            silent_every: 0.into(),
            taken: 0.into(),
            refused: 0.into(),
            minute: Mutex::default(),
            body: Mutex::default(),
            watched: Mutex::default(),
        });
        let (tls, of_task) =
            (certificate.map(|certificate| acceptor(certificate, &[b"h2"])), shared.clone());
        let has_tls = tls.is_some();
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let _ = stream.set_nodelay(true);
                let (tls, shared) = (tls.clone(), of_task.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, shared).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, shared).await,
                            Err(error) => eprintln!("TLS with a phone provider: {error}"),
                        },
                    }
                });
            }
        });
        Ok(Self { address, has_tls, shared, _task: AbortOnDropHandle::new(task) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The endpoint of a browser.
    pub(crate) fn endpoint(&self, number: usize) -> String {
        format!("{}{ENDPOINTS}{number:0DIGITS$}", self.url())
    }

    /// Allows so many requests at a time on each connection that is opened from now on.
    pub(crate) fn allow_streams(&self, streams: u32) {
        self.shared.streams.store(streams, Ordering::Relaxed);
    }

    /// Never answers one device in this many; 0 means that all are answered.
    pub(crate) fn silence_one_in(&self, devices: u32) {
        self.shared.silent_every.store(devices, Ordering::Relaxed);
    }

    /// Answers 429 to what exceeds so many requests in any sixty seconds.
    pub(crate) fn allow_a_minute(&self, most: u64) {
        let minute = Minute { most, begun: Instant::now(), seconds: [(0, 0); 60] };
        *lock(&self.shared.minute) = Some(minute);
    }

    /// The requests that were taken, and those that were answered 429.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.shared.taken), read(&self.shared.refused))
    }

    /// A body that it was sent.
    pub(crate) fn body(&self) -> Bytes {
        lock(&self.shared.body).clone()
    }

    /// Reports the requests for the watched device from now on.
    pub(crate) fn watch(&self) -> mpsc::Receiver<Arrival> {
        let (sender, receiver) = mpsc::channel(WATCHED_WAITING);
        *lock(&self.shared.watched) = Some(sender);
        receiver
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, shared: Arc<Shared>) {
    let streams = shared.streams.load(Ordering::Relaxed);
    let answer = service_fn(move |request| answer(request, shared.clone()));
    // An error is the end of the connection.
    let _ = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(streams)
        .serve_connection(TokioIo::new(io), answer)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = match shared.plays {
        Plays::Fcm => body.get(BEFORE_TOKEN.len()..),
        Plays::WebPush => head.uri.path().as_bytes().get(ENDPOINTS.len()..),
    };
    let digits = text.and_then(|text| text.get(..DIGITS)).unwrap_or_default();
    let number: Option<usize> = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    let Some(number) = number else { return Ok(status(StatusCode::BAD_REQUEST, "")) };
    let every = shared.silent_every.load(Ordering::Relaxed) as usize;
    if every > 0 && number.is_multiple_of(every) && number != WATCHED {
        std::future::pending::<()>().await;
    }
    if let Some(minute) = &mut *lock(&shared.minute)
        && !minute.take(Instant::now())
    {
        shared.refused.fetch_add(1, Ordering::Relaxed);
        let error = fcm_error(429, "QUOTA_EXCEEDED");
        return Ok(status(StatusCode::TOO_MANY_REQUESTS, error));
    }
    let taken = shared.taken.fetch_add(1, Ordering::Relaxed);
    if number == WATCHED
        && let Some(watched) = &*lock(&shared.watched)
    {
        let _ = watched.try_send(Arrival { at: Instant::now(), body: body.clone() });
    }
    if taken.is_multiple_of(1000) {
        *lock(&shared.body) = body;
    }
    Ok(match shared.plays {
        Plays::Fcm => status(StatusCode::OK, Bytes::from_static(ANSWER)),
        Plays::WebPush => status(StatusCode::CREATED, ""),
    })
}

fn status(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}

impl Minute {
    fn take(&mut self, now: Instant) -> bool {
        let second = now.duration_since(self.begun).as_secs();
        let sum = |(_, of): &&(u64, u64)| *of + 60 > second;
        let used: u64 = self.seconds.iter().filter(sum).map(|(count, _)| count).sum();
        if used >= self.most {
            return false;
        }
        if let Some(entry) = self.seconds.get_mut((second % 60) as usize) {
            if entry.1 != second {
                *entry = (0, second);
            }
            entry.0 += 1;
        }
        true
    }
}

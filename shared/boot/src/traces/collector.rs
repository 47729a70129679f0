//! The connection to the collector: HTTP/1.1, kept open from one request to the next.

use std::{fmt, io, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use push_tls::client::ClientTls;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_util::task::AbortOnDropHandle;

/// The longest answer that is read, in bytes: it says at most which spans were refused, and why.
const MAX_ANSWER: usize = 64 * 1024;

/// The collector of spans. `Display` leaves out path and headers, which may hold a token.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
    /// None: unencrypted.
    pub(super) tls: Option<ClientTls>,
    pub(super) path_and_query: String,
    /// Headers of every request, besides those of HTTP and OTLP.
    pub(super) headers: HeaderMap,
}

/// The reasons why spans were not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectorError {
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("the connection failed")]
    Connection(#[source] hyper::Error),
    #[error("no request can be made for it")]
    Request(#[source] http::Error),
    #[error("its answer cannot be read")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("it did not answer within {0:?}")]
    Late(Duration),
    #[error("it refused {rejected} span(s): {why}")]
    Rejected { rejected: u64, why: String },
}

/// A collector, and the connection to it.
pub(super) struct Collector {
    endpoint: Endpoint,
    connection: Option<Connection>,
}

/// An open connection. Its task ends with it: over TLS a collector that reads nothing would hold up an
/// orderly end for as long as it likes, and each request that was given up would cost a socket.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _task: AbortOnDropHandle<()>,
}

impl Collector {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, connection: None }
    }

    /// Sends a request of OTLP, and gives the body of its answer.
    ///
    /// # Errors
    /// If the collector did not take it. The caller bounds the time.
    pub(super) async fn send(&mut self, body: Bytes) -> Result<Bytes, CollectorError> {
        // While this future may be dropped, there is no connection: another request must not follow
        // one without its answer.
        if let Some(mut open) = self.connection.take() {
            match self.exchange(&mut open, body.clone()).await {
                // The collector has closed the connection since the last request.
                Err(CollectorError::Connection(_)) => {}
                answered => {
                    self.connection = Some(open);
                    return answered;
                }
            }
        }
        let mut fresh = self.endpoint.connect().await?;
        let answer = self.exchange(&mut fresh, body).await?;
        self.connection = Some(fresh);
        Ok(answer)
    }

    async fn exchange(
        &self,
        Connection { sender, .. }: &mut Connection,
        body: Bytes,
    ) -> Result<Bytes, CollectorError> {
        let request = self.endpoint.request(body).map_err(CollectorError::Request)?;
        sender.ready().await.map_err(CollectorError::Connection)?;
        let answer = sender.send_request(request).await.map_err(CollectorError::Connection)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(CollectorError::Answer)?.to_bytes();
        if status.is_success() { Ok(body) } else { Err(CollectorError::Status(status)) }
    }
}

impl Endpoint {
    async fn connect(&self) -> Result<Connection, CollectorError> {
        let tcp = TcpStream::connect((&*self.host, self.port)).await;
        let tcp = tcp.map_err(CollectorError::Connect)?;
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(tcp),
            Some(tls) => {
                Box::new(tls.connect(&self.host, tcp).await.map_err(CollectorError::Connect)?)
            }
        };
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(CollectorError::Connection)?;
        // The sender is told how it ends.
        let task = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
        Ok(Connection { sender, _task: task })
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.path_and_query)
            .header(header::HOST, self.authority())
            .header(header::USER_AGENT, concat!("push-service/", env!("CARGO_PKG_VERSION")))
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(body))?;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }

    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.endpoint, f)
    }
}

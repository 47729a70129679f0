//! The HTTP server of the operations paths.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::{encoding::text, registry::Registry};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::{
    connections::Connections,
    readiness::{CachedProbe, Probe},
};

/// How long a connection may take to send a request's head, which also bounds how long it may idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed accept (no file descriptors left) before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

struct Operations {
    registry: Arc<Registry>,
    probe: CachedProbe,
}

/// Serves the operations paths until `shutdown`; then open connections are closed.
///
/// - `/livez`: 200 while the process answers at all;
/// - `/readyz`: 200 or 503, with the text that [`Probe::probe`] gives;
/// - `/metrics`: everything in `registry`, as OpenMetrics text.
pub async fn serve(
    listener: TcpListener,
    registry: Arc<Registry>,
    probe: Arc<dyn Probe>,
    shutdown: CancellationToken,
) {
    let operations = Arc::new(Operations { registry, probe: CachedProbe::new(probe) });
    let accept = async {
        // They end with this future.
        let mut connections = Connections::default();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    connections.make_room().await;
                    let in_work = Arc::new(AtomicBool::new(false));
                    let served = connection(stream, Arc::clone(&operations), Arc::clone(&in_work));
                    connections.spawn(in_work, served);
                }
                Err(error) => {
                    tracing::warn!(%error, "the operations listener cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    shutdown.run_until_cancelled(accept).await;
}

async fn connection(stream: TcpStream, operations: Arc<Operations>, in_work: Arc<AtomicBool>) {
    let service = service_fn(|request: Request<Incoming>| {
        in_work.store(true, Ordering::Relaxed);
        let (operations, in_work) = (Arc::clone(&operations), Arc::clone(&in_work));
        async move {
            let answer = operations.answer(&request).await;
            in_work.store(false, Ordering::Relaxed);
            Ok::<_, Infallible>(answer)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "an operations connection ended early");
    }
}

impl Operations {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET only\n");
        }
        match request.uri().path() {
            "/livez" => plain(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" => {
                let readiness = self.probe.readiness().await;
                let status =
                    if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                plain(status, TEXT, readiness.detail)
            }
            "/metrics" => self.metrics(),
            _ => plain(StatusCode::NOT_FOUND, TEXT, "try /livez, /readyz or /metrics\n"),
        }
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        let mut out = String::new();
        match text::encode(&mut out, &self.registry) {
            Ok(()) => plain(StatusCode::OK, OPENMETRICS, out),
            Err(error) => {
                tracing::warn!(%error, "the metrics cannot be written");
                plain(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the metrics cannot be written\n")
            }
        }
    }
}

fn plain(
    status: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use async_trait::async_trait;
    use prometheus_client::metrics::counter::Counter;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::Notify,
        task::JoinHandle,
        time::Instant,
    };

    use super::*;
    use crate::operations::readiness::Readiness;

    struct NotReady;

    #[async_trait]
    impl Probe for NotReady {
        async fn probe(&self) -> Readiness {
            Readiness { ready: false, detail: "queue: away\n".into() }
        }
    }

    /// A running operations listener.
    struct Running {
        address: SocketAddr,
        shutdown: CancellationToken,
        server: JoinHandle<()>,
    }

    impl Running {
        async fn start(probe: Arc<dyn Probe>) -> Self {
            let mut registry = Registry::default();
            let pushes = Counter::<u64>::default();
            registry.register("pushes", "Accepted pushes", pushes.clone());
            pushes.inc();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let shutdown = CancellationToken::new();
            let server = serve(listener, Arc::new(registry), probe, shutdown.clone());
            Self { address, shutdown, server: tokio::spawn(server) }
        }

        /// Sends a request over a connection of its own.
        async fn ask(&self, path: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            stream
        }

        async fn get(&self, path: &str) -> String {
            read(self.ask(path).await).await
        }

        async fn idle(&self, connections: usize) -> Vec<TcpStream> {
            let mut idle = Vec::new();
            for _ in 0..connections {
                idle.push(TcpStream::connect(self.address).await.unwrap());
            }
            idle
        }

        async fn stop(self) {
            self.shutdown.cancel();
            self.server.await.unwrap();
        }
    }

    async fn read(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn get(path: &str) -> String {
        let running = Running::start(Arc::new(NotReady)).await;
        let answer = running.get(path).await;
        running.stop().await;
        answer
    }

    #[tokio::test]
    async fn a_service_that_lives_without_its_servers_is_alive_and_not_ready() {
        assert!(get("/livez").await.starts_with("HTTP/1.1 200"));
        let ready = get("/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 503") && ready.ends_with("queue: away\n"), "{ready}");
    }

    #[tokio::test]
    async fn connections_that_lie_idle_keep_no_other_from_its_answer() {
        let running = Running::start(Arc::new(NotReady)).await;
        let idle = running.idle(200).await;
        let asked = Instant::now();
        for path in ["/livez", "/metrics", "/readyz"] {
            assert!(running.get(path).await.starts_with("HTTP/1.1 "), "{path}");
        }
        assert!(asked.elapsed() < HEAD_TIMEOUT / 2, "the idle connections did not have to end");
        drop(idle);
        running.stop().await;
    }

    /// A probe that ends when it is told to.
    #[derive(Default)]
    struct Waiting {
        begun: Notify,
        end: Notify,
    }

    #[async_trait]
    impl Probe for Waiting {
        async fn probe(&self) -> Readiness {
            self.begun.notify_one();
            self.end.notified().await;
            Readiness { ready: true, detail: "queue: ok\n".into() }
        }
    }

    #[tokio::test]
    async fn a_request_in_work_is_answered_however_many_connections_come_after_it() {
        let probe = Arc::new(Waiting::default());
        let running = Running::start(probe.clone()).await;
        let asked = running.ask("/readyz").await;
        probe.begun.notified().await;
        let idle = running.idle(200).await;
        assert!(running.get("/livez").await.starts_with("HTTP/1.1 200"));
        probe.end.notify_one();
        let answer = read(asked).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("queue: ok\n"), "{answer}");
        drop(idle);
        running.stop().await;
    }

    #[tokio::test]
    async fn metrics_are_open_metrics_text() {
        let metrics = get("/metrics").await;
        assert!(metrics.contains("pushes_total 1") && metrics.ends_with("# EOF\n"), "{metrics}");
    }
}

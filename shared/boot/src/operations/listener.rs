//! The HTTP server of the operations paths.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    answers::Answers,
    connections::{Asked, Connections},
};
use crate::health::Health;

/// The time that a connection has to send the head of its request; an idle one is closed after it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest life of a connection. Each serves one request, so the client has the rest of this time
/// after the head to read the answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause after a failed accept (no file descriptors left) before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The running operations listener. It serves from before the program opens its servers until after
/// the last work is done, and ends when it is dropped.
#[derive(Debug)]
pub struct Operations {
    answers: Arc<Answers>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Operations {
    /// Serves the operations paths from now on:
    /// - `/livez`: 200 while the process answers at all;
    /// - `/readyz`: 200 or 503, with the state of every part as JSON;
    /// - `/metrics`: what [`Operations::publish`] was given, as OpenMetrics text.
    ///
    /// Must be called within a Tokio runtime.
    pub fn start(listener: TcpListener, health: Health) -> Self {
        let answers = Arc::new(Answers { registry: OnceLock::new(), health });
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, Arc::clone(&answers), stop.clone()));
        Self { answers, stop, serving }
    }

    /// Serves these metrics. Only the first call counts.
    pub fn publish(&self, registry: Registry) {
        let _ = self.answers.registry.set(registry);
    }

    /// Closes the listener and its connections.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.serving).await {
            tracing::error!(
                runbook = "the-log-tells-of-a-fault",
                %error,
                "the operations listener failed"
            );
        }
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(listener: TcpListener, answers: Arc<Answers>, stop: CancellationToken) {
    let accept = async {
        // They end with this future.
        let mut connections = Connections::default();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let answers = Arc::clone(&answers);
                    connections.serve(|asked| async {
                        let served = connection(stream, answers, asked);
                        if tokio::time::timeout(CONNECTION_TIMEOUT, served).await.is_err() {
                            tracing::debug!("an operations connection took too long");
                        }
                    });
                    // A request that has come with its connection is read before the next one is accepted.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    tracing::warn!(
                        runbook = "open-files-run-low",
                        %error,
                        "the operations listener cannot accept"
                    );
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    stop.run_until_cancelled(accept).await;
}

async fn connection(stream: TcpStream, answers: Arc<Answers>, asked: Asked) {
    let service = service_fn(|request: Request<Incoming>| {
        asked.set();
        std::future::ready(Ok::<_, Infallible>(answers.answer(&request)))
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .half_close(true)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "an operations connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use prometheus_client::metrics::counter::Counter;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::Instant,
    };

    use super::*;
    use crate::health::{HealthSettings, Need, PartState};

    const SETTINGS: HealthSettings = HealthSettings {
        interval: Duration::from_millis(10),
        timeout: Duration::from_secs(2),
        max_age: Duration::from_secs(15),
        start_deadline: Duration::ZERO,
    };

    /// A running operations listener of a program whose queue is in this state.
    struct Running {
        address: SocketAddr,
        operations: Operations,
    }

    impl Running {
        async fn start(queue: PartState) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let health = Health::starting(SETTINGS, CancellationToken::new());
            health.watch("queue", Need::Required, move || std::future::ready(queue.clone()));
            let operations = Operations::start(listener, health.clone());
            health.complete();
            Self { address, operations }
        }

        fn publish(&self) {
            self.publish_with("Accepted pushes");
        }

        /// Its metrics are more than sockets keep in their buffers.
        fn publish_much(&self) {
            self.publish_with(&"much ".repeat(1 << 20));
        }

        fn publish_with(&self, help: &str) {
            let mut registry = Registry::default();
            let pushes = Counter::<u64>::default();
            registry.register("pushes", help, pushes.clone());
            pushes.inc();
            self.operations.publish(registry);
        }

        async fn send(&self, method: &str, path: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            stream
        }

        async fn ask(&self, path: &str) -> TcpStream {
            self.send("GET", path).await
        }

        async fn get(&self, path: &str) -> String {
            whole(self.ask(path).await).await
        }

        async fn idle(&self, connections: usize) -> Vec<TcpStream> {
            let mut idle = Vec::new();
            for _ in 0..connections {
                idle.push(TcpStream::connect(self.address).await.unwrap());
            }
            idle
        }
    }

    /// Everything that comes until the listener ends the connection.
    async fn whole(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn another_method_is_refused_and_told_which_there_are() {
        let running = Running::start(PartState::Ok).await;
        for path in ["/livez", "/readyz", "/metrics"] {
            let refused = whole(running.send("POST", path).await).await;
            assert!(refused.starts_with("HTTP/1.1 405 "), "{path}: {refused}");
            assert!(refused.contains("allow: GET, HEAD\r\n"), "{path}: {refused}");
        }
        let head = whole(running.send("HEAD", "/livez").await).await;
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
        running.operations.stop().await;
    }

    #[tokio::test]
    async fn a_service_that_lives_without_its_servers_is_alive_and_not_ready() {
        let running = Running::start(PartState::Failed("away".to_owned())).await;
        assert!(running.get("/livez").await.starts_with("HTTP/1.1 200"));
        let ready = running.get("/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
        assert!(ready.contains("content-type: application/json"), "{ready}");
        running.operations.stop().await;
        assert!(TcpStream::connect(running.address).await.is_err(), "the listener is closed");
    }

    #[tokio::test]
    async fn connections_that_lie_idle_keep_no_other_from_its_answer() {
        let running = Running::start(PartState::Ok).await;
        running.publish();
        let mut idle = running.idle(200).await;
        let asked = Instant::now();
        for path in ["/livez", "/metrics", "/readyz"] {
            assert!(running.get(path).await.starts_with("HTTP/1.1 "), "{path}");
        }
        let oldest = idle[0].read(&mut [0]).await;
        assert!(matches!(oldest, Ok(0) | Err(_)), "it is closed for a newer one");
        assert!(asked.elapsed() < HEAD_TIMEOUT / 2, "no connection had to end by itself");
        drop(idle);
        running.operations.stop().await;
    }

    #[tokio::test]
    async fn connections_that_lie_idle_end_no_answer_that_is_still_being_read() {
        let running = Running::start(PartState::Ok).await;
        running.publish_much();
        let mut slow = running.ask("/metrics").await;
        let first = slow.read_u8().await.unwrap();
        let idle = running.idle(200).await;
        // They were all accepted before it.
        assert!(running.get("/livez").await.starts_with("HTTP/1.1 200"));
        let mut answer = vec![first];
        slow.read_to_end(&mut answer).await.unwrap();
        assert!(answer.ends_with(b"# EOF\n"), "{} bytes", answer.len());
        drop(idle);
        running.operations.stop().await;
    }

    #[tokio::test]
    async fn clients_that_read_slowly_leave_room_for_a_probe_that_takes_its_time() {
        let running = Running::start(PartState::Ok).await;
        running.publish_much();
        let mut slow = Vec::new();
        for _ in 0..100 {
            let mut stream = running.ask("/metrics").await;
            if stream.read_u8().await.is_ok() {
                slow.push(stream);
            }
        }
        let mut probe = running.idle(1).await.remove(0);
        assert!(running.get("/livez").await.starts_with("HTTP/1.1 200"), "it was accepted later");
        probe.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        running.operations.stop().await;
    }

    #[tokio::test]
    async fn an_answer_that_its_client_does_not_read_ends() {
        let running = Running::start(PartState::Ok).await;
        running.publish_much();
        let mut slow = running.ask("/metrics").await;
        slow.read_u8().await.unwrap();
        // From here on, time passes whenever nothing else happens.
        tokio::time::pause();
        tokio::time::sleep(CONNECTION_TIMEOUT).await;
        let mut answer = Vec::new();
        let read = slow.read_to_end(&mut answer).await;
        assert!(read.is_err() || !answer.ends_with(b"# EOF\n"), "{} bytes", answer.len());
        running.operations.stop().await;
    }

    #[tokio::test]
    async fn metrics_are_open_metrics_text_from_when_the_program_has_them() {
        let running = Running::start(PartState::Ok).await;
        assert!(running.get("/metrics").await.starts_with("HTTP/1.1 503"));
        running.publish();
        let metrics = running.get("/metrics").await;
        assert!(metrics.contains("pushes_total 1") && metrics.ends_with("# EOF\n"), "{metrics}");
        running.operations.stop().await;
    }
}

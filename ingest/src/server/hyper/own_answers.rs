//! Keeps back what hyper answers by itself over HTTP/1.
//!
//! hyper itself answers a head that it cannot read, with a status and no body. The contract
//! promises a body, so that answer must not reach the client: [`Filter`] drops it, hyper then
//! returns an error that says what was wrong with the head, and `close` sends our answer to that.
//!
//! What hyper writes by itself is recognised by when it is written, never by its bytes. At any time
//! hyper is either within an exchange, from a request that it hands to our service until our answer
//! is flushed, or between two. What it writes between two is not ours. Within an exchange
//! everything passes, also a `100 Continue`.
//!
//! One write never holds an answer of ours and one of hyper's. hyper reads the next head after it
//! has flushed the answer, or after it has read the end of a body that was answered early. The
//! second does not happen here: the handlers answer after they have read the whole body, or close
//! the connection with the answer. The tests send garbage behind good requests, through pipes of
//! several sizes.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// No request is in work, and all answers are written.
const BETWEEN: u8 = 0;
/// A request was handed to our service.
const ASKED: u8 = 1;
/// hyper holds all of our answer, and has not written all of it.
const ANSWERED: u8 = 2;

/// Where a connection is, in the sequence of its requests and answers. It has one at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct Exchange(Arc<AtomicU8>);

impl Exchange {
    /// Begins with a request that hyper hands to our service.
    pub(super) fn begin(&self) {
        self.enter(ASKED);
    }

    /// The body of our answer.
    pub(super) fn answer(&self, body: Full<Bytes>) -> AnswerBody {
        AnswerBody { body, exchange: self.clone() }
    }

    /// Whether all answers are written, so that what is sent next is an answer of its own.
    pub(super) fn is_between(&self) -> bool {
        self.is(BETWEEN)
    }

    /// hyper has written all that it holds.
    fn flushed(&self) {
        if self.is(ANSWERED) {
            self.enter(BETWEEN);
        }
    }

    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::Relaxed) == state
    }

    fn enter(&self, state: u8) {
        self.0.store(state, Ordering::Relaxed);
    }
}

/// The body of an answer of ours. hyper drops it as soon as it holds all of the answer.
#[derive(Debug)]
pub(super) struct AnswerBody {
    body: Full<Bytes>,
    exchange: Exchange,
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.exchange.enter(ANSWERED);
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = <Full<Bytes> as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream over which only our own answers go.
#[derive(Debug)]
pub(super) struct Filter<S> {
    stream: S,
    exchange: Exchange,
    has_dropped: bool,
}

impl<S> Filter<S> {
    pub(super) fn new(stream: S, exchange: Exchange) -> Self {
        Self { stream, exchange, has_dropped: false }
    }

    /// The stream, and whether hyper answered by itself.
    pub(super) fn into_stream(self) -> (S, bool) {
        (self.stream, self.has_dropped)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Filter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Filter<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.exchange.is(BETWEEN) {
            self.has_dropped = true;
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    /// hyper flushes the stream after it has written all that it holds.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.exchange.flushed();
        Poll::Ready(Ok(()))
    }

    /// Leaves the stream open, because the client may still have to get an answer.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, convert::Infallible};

    use http::Response;
    use http_body_util::BodyExt;
    use hyper::{body::Incoming, server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// What the client of a connection receives, whether hyper answered by itself, and its error.
    /// A pipe holds `pipe` bytes at once.
    async fn receives(sent: &[u8], pipe: usize) -> (String, bool, Option<hyper::Error>) {
        let exchange = Exchange::default();
        let served = Cell::new(0);
        let service = service_fn(|request: http::Request<Incoming>| {
            exchange.begin();
            served.set(served.get() + 1);
            let text = format!("answer {}", served.get());
            let exchange = &exchange;
            async move {
                // Read to its end, as the handlers do.
                let _ = request.into_body().collect().await;
                Ok::<_, Infallible>(Response::new(exchange.answer(Full::from(text))))
            }
        });
        let (client, server) = tokio::io::duplex(pipe);
        let (mut reader, mut writer) = tokio::io::split(client);
        let mut connection = http1::Builder::new()
            .half_close(true)
            .serve_connection(TokioIo::new(Filter::new(server, exchange.clone())), service);
        let serve = async {
            let error = (&mut connection).await.err();
            // The server's end is dropped, so that the client sees the end.
            let (_, has_dropped) = connection.into_parts().io.into_inner().into_stream();
            (error, has_dropped)
        };
        let send = async {
            let _ = writer.write_all(sent).await;
            let _ = writer.shutdown().await;
        };
        let mut received = String::new();
        let ((error, has_dropped), (), read) =
            tokio::join!(serve, send, reader.read_to_string(&mut received));
        read.unwrap();
        (received, has_dropped, error)
    }

    const PIPES: [usize; 6] = [1, 2, 7, 100, 1000, 1_000_000];

    #[tokio::test]
    async fn our_answers_reach_the_client_whole_and_an_answer_of_hyper_does_not() {
        let good = "POST /p HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        for pipe in PIPES {
            for count in 0..4 {
                let sent = [&good.repeat(count), "garbage\r\n\r\n"].concat();
                let (received, has_dropped, error) = receives(sent.as_bytes(), pipe).await;
                assert!(has_dropped, "{pipe}");
                assert!(error.is_some_and(|error| error.is_parse()), "{pipe}");
                assert_eq!(received.matches("HTTP/1.1 ").count(), count, "{pipe}: {received}");
                assert_eq!(received.matches("HTTP/1.1 200 OK\r\n").count(), count, "{received}");
                for answer in 1..=count {
                    assert!(received.contains(&format!("\r\n\r\nanswer {answer}")), "{received}");
                }
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_dropped_where_hyper_answers_nothing_by_itself() {
        let chunked = "POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let expects = "POST /p HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc";
        let head = "HEAD /p HTTP/1.1\r\n\r\n";
        let close = "GET /p HTTP/1.1\r\nConnection: close\r\n\r\n";
        for pipe in PIPES {
            let sent = [chunked, expects, head, chunked, close].concat();
            let (received, has_dropped, error) = receives(sent.as_bytes(), pipe).await;
            assert!(!has_dropped && error.is_none(), "{pipe}: {error:?}");
            assert_eq!(received.matches("HTTP/1.1 100 Continue\r\n").count(), 1, "{received}");
            assert_eq!(received.matches("HTTP/1.1 200 OK\r\n").count(), 5, "{received}");
            assert!(received.ends_with("answer 5"), "{received}");
        }
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_is_told_from_one_that_is_broken() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(70_000));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(200));
        for sent in [long, many] {
            let (received, has_dropped, error) = receives(sent.as_bytes(), 1000).await;
            assert_eq!((received.as_str(), has_dropped), ("", true));
            assert!(error.is_some_and(|error| error.is_parse_too_large()));
        }
    }
}

//! One HTTP/1 request: hyper reads it, the handlers answer it, and the connection writes the answer.
//!
//! hyper would write the answer, too, and go on to the next request, whose head it would read by
//! rules that are not strict enough for us. So it gets no answer: once there is one, which is after
//! the whole body was read, or the connection is to end, hyper is taken apart, and what it has read
//! beyond the request is given back.
//!
//! What hyper writes by itself before it hands over the request refuses a head that it cannot read,
//! in a form that is not ours, and is dropped. What it writes later is `100 Continue`.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    io, mem,
    pin::Pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::Response;
use http_body_util::Empty;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{answer::answer, replay::Replay};
use crate::{
    client::Peer,
    handlers::Handlers,
    rejection::Rejection,
    reply::Reply,
    server::{activity::RequestGuard, close::End},
    settings::HttpSettings,
};

/// hyper does not accept a smaller read buffer.
const MIN_READ_BUFFER: usize = 8192;
/// What hyper writes to a client that asks whether it may send the body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Answers the request whose whole head `received` begins with. What is left there afterwards is
/// what came behind the request.
///
/// # Errors
/// How the connection is to be closed if there is no answer.
pub(in crate::server) async fn answer_http1<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: &mut S,
    received: &mut BytesMut,
    handlers: &Handlers,
    peer: &Peer,
    http: &HttpSettings,
    in_work: &RequestGuard,
) -> Result<Reply, End> {
    let (is_handed_over, reply) = (AtomicBool::new(false), Mutex::new(None));
    let service = service_fn(|request| {
        let (is_handed_over, reply) = (&is_handed_over, &reply);
        async move {
            is_handed_over.store(true, Ordering::Relaxed);
            let answer = answer(handlers, peer, request, http.max_body, in_work).await;
            *reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
            pending::<Result<Response<Empty<Bytes>>, Infallible>>().await
        }
    });
    let replay = Replay::new(stream, mem::take(received));
    let io = OnlyContinue { stream: replay, is_handed_over: &is_handed_over, written: 0 };
    let mut serving = http1::Builder::new()
        // A client that sends its request and closes its side still wants the answer.
        .half_close(true)
        .max_header_size(http.max_header)
        .max_buf_size(http.max_header.max(MIN_READ_BUFFER))
        .serve_connection(TokioIo::new(io), service);
    let result = poll_fn(|cx| {
        let served = Pin::new(&mut serving).poll(cx);
        match reply.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(reply) => Poll::Ready(Ok(reply)),
            None => served.map(Err),
        }
    })
    .await;
    let parts = serving.into_parts();
    let OnlyContinue { stream: replay, written, .. } = parts.io.into_inner();
    *received = parts.read_buf.into();
    received.extend_from_slice(&replay.rest());
    match result {
        // An answer would reach the client as a part of what hyper has begun to write.
        Ok(_) if !written.is_multiple_of(CONTINUE.len()) => Err(End::Silent),
        Ok(reply) => Ok(reply),
        Err(Ok(())) => Err(End::Graceful),
        Err(Err(error)) if error.is_parse_too_large() => {
            Err(End::AfterReply(Rejection::HeadTooLarge))
        }
        Err(Err(error)) if error.is_parse() || error.is_incomplete_message() => {
            Err(End::AfterReply(Rejection::NotHttp))
        }
        Err(Err(error)) => {
            tracing::debug!(peer = %peer.address(), %error, "a connection ended early");
            Err(End::Graceful)
        }
    }
}

/// A stream to which hyper writes only after it has handed over the request.
#[derive(Debug)]
struct OnlyContinue<'a, S> {
    stream: S,
    is_handed_over: &'a AtomicBool,
    /// How many bytes hyper has written since.
    written: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for OnlyContinue<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for OnlyContinue<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.is_handed_over.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(buf.len()));
        }
        let n = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.written += n;
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Leaves the stream open, because the client may still have to get an answer.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

//! The bytes of a connection on their way to and from hyper.
//!
//! Three small things happen here:
//! - what was received before hyper took over is read again;
//! - what is received is noted for the time-outs ([`Activity`]);
//! - hyper answers what it cannot read as HTTP/1 by itself, with a status and no body. The
//!   contract promises a body, so that answer is replaced. It can be recognised: each of our own
//!   answers has a body, hyper's says `content-length: 0`, and it is the last one that hyper
//!   writes. With vectored writing off, hyper hands over whole answers in one piece.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::activity::Activity;
use crate::{rejection::Rejection, reply};

/// What an HTTP/2 connection with prior knowledge begins with (RFC 9113 section 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How much is read at once to recognise it, in bytes.
const FIRST_PIECE: usize = 4096;

/// Reads, into what is `received`, until it is clear whether this is HTTP/2.
pub(super) async fn is_http2<S: AsyncRead + Unpin>(
    stream: &mut S,
    received: &mut BytesMut,
    activity: &Activity,
) -> io::Result<bool> {
    while received.len() < H2_PREFACE.len() && H2_PREFACE.starts_with(received) {
        received.reserve(FIRST_PIECE);
        if stream.read_buf(received).await? == 0 {
            break;
        }
        activity.received();
    }
    Ok(received.starts_with(H2_PREFACE))
}

/// How many of these bytes are empty lines at the beginning. Some clients end a body with one
/// that belongs to nothing (RFC 9112 section 2.2).
pub(super) fn empty_lines(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let [b'\n', after @ ..] | [b'\r', b'\n', after @ ..] = rest {
        rest = after;
    }
    bytes.len() - rest.len()
}

/// A stream with something received before in front, and hyper's own answers replaced.
#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    /// What is to be read again.
    received: BytesMut,
    activity: Arc<Activity>,
    /// What is written instead of hyper's answer, and how much of it is.
    instead: Option<(Vec<u8>, usize)>,
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S, received: BytesMut, activity: Arc<Activity>) -> Self {
        Self { stream, received, activity, instead: None }
    }

    /// The stream, and whether hyper's own answer went over it.
    pub(super) fn into_stream(self) -> (S, bool) {
        (self.stream, self.instead.is_some())
    }
}

impl<S: AsyncWrite + Unpin> Wire<S> {
    fn poll_write_instead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((bytes, written)) = &mut self.instead
            && *written < bytes.len()
        {
            let n = ready!(Pin::new(&mut self.stream).poll_write(cx, &bytes[*written..]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += n;
        }
        Poll::Ready(Ok(()))
    }
}

/// What to write instead, if these bytes end with an answer of hyper's own.
fn instead_of(bytes: &[u8]) -> Option<Vec<u8>> {
    const VERSION: &[u8] = b"HTTP/1.";
    if !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let start = bytes.windows(VERSION.len()).rposition(|window| window == VERSION)?;
    let (before, answer) = bytes.split_at(start);
    let answer = std::str::from_utf8(answer).ok()?;
    if !answer.contains("\r\ncontent-length: 0\r\n") {
        return None;
    }
    let rejection = match answer.split(' ').nth(1)? {
        "414" | "431" => Rejection::HeadTooLarge,
        _ => Rejection::NotHttp,
    };
    Some([before, &reply::last_http1(&rejection)].concat())
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.received.is_empty() {
            let n = this.received.len().min(buf.remaining());
            buf.put_slice(&this.received.split_to(n));
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            this.activity.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.instead.is_none() {
            match instead_of(buf) {
                Some(instead) => self.instead = Some((instead, 0)),
                None => return Pin::new(&mut self.stream).poll_write(cx, buf),
            }
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_instead(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_instead(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

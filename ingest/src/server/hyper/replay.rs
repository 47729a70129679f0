//! The stream that hyper reads from and writes to.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that begins with what was read from it before.
#[derive(Debug)]
pub(super) struct Replay<S> {
    stream: S,
    /// What was read before and is to be read again.
    received: BytesMut,
}

impl<S> Replay<S> {
    pub(super) fn new(stream: S, received: BytesMut) -> Self {
        Self { stream, received }
    }

    /// What was read before and was not read again.
    pub(super) fn rest(self) -> BytesMut {
        self.received
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Replay<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.received.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let n = self.received.len().min(buf.remaining());
        buf.put_slice(&self.received.split_to(n));
        Poll::Ready(Ok(()))
    }
}

/// Writes go straight to the stream, one piece at a time: answers are small, and hyper joins an
/// answer's head and body if it cannot write them as two.
impl<S: AsyncWrite + Unpin> AsyncWrite for Replay<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

//! The stream that hyper reads from and writes to.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::server::activity::Activity;

/// A stream that begins with what was read from it before, and whose reads are noted for the time
/// limits.
#[derive(Debug)]
pub(super) struct Replay<S> {
    stream: S,
    /// What was read before and is to be read again.
    received: BytesMut,
    activity: Arc<Activity>,
}

impl<S> Replay<S> {
    pub(super) fn new(stream: S, received: BytesMut, activity: Arc<Activity>) -> Self {
        Self { stream, received, activity }
    }

    pub(super) fn into_stream(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Replay<S> {
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

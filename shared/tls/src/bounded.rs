//! A stream from which a handshake may read a bounded number of bytes.
//!
//! Rustls keeps up to 64 KiB of a handshake message that is not complete, for a client that has proved nothing.
//! Without client certificates a handshake has a few KiB.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most that is read of a client until its hello is complete, in bytes; the read that reaches it may end
/// beyond it.
const HELLO_BYTES: usize = 16 * 1024;

/// The most that is read after the hello until the handshake is complete, in bytes. Clients send data in the
/// same segment as the end of their handshake, and rustls ends the handshake only when it has decrypted a
/// whole record of it: up to 16 KiB and 256 bytes (RFC 8446, section 5.2).
const REST_BYTES: usize = 24 * 1024;

/// The stream below a TLS connection.
#[derive(Debug)]
pub struct BoundedStream<S> {
    stream: S,
    /// The bytes that may still be read. `None` after the handshake.
    allowed: Option<usize>,
}

impl<S> BoundedStream<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, allowed: Some(HELLO_BYTES) }
    }

    /// Allows for the rest of the handshake, because the hello is complete.
    pub(crate) fn greeted(&mut self) {
        self.allowed = Some(REST_BYTES);
    }

    /// Ends the bound, because the handshake is complete.
    pub(crate) fn release(&mut self) {
        self.allowed = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(allowed) = &mut this.allowed else {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        };
        if *allowed == 0 {
            let text = "the client sent more than a TLS handshake has";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        *allowed = allowed.saturating_sub(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

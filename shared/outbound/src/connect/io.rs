//! The byte stream of a connection, which counts what passes.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream of any kind: TCP, a proxy's tunnel, TLS over either.
pub(crate) trait Bytewise: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytewise for T {}

/// What passed on a connection.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    read: AtomicU64,
    writes: AtomicU64,
}

impl Traffic {
    /// The bytes that were read.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Acquire)
    }

    /// The times that a write was begun. A request that was handed to a connection is certainly not
    /// sent as long as this number stays. Attempts are counted, not bytes, because a write that
    /// failed may have sent some.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    fn write_begins(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }
}

/// A stream with its traffic.
pub(crate) struct Counted {
    io: Box<dyn Bytewise>,
    traffic: Arc<Traffic>,
}

impl Counted {
    pub(crate) fn new(io: impl Bytewise + 'static) -> Self {
        Self { io: Box::new(io), traffic: Arc::default() }
    }

    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let read = buf.filled().len().saturating_sub(before);
        self.traffic.read.fetch_add(read as u64, Ordering::AcqRel);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.traffic.write_begins();
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.traffic.write_begins();
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("traffic", &self.traffic).finish_non_exhaustive()
    }
}

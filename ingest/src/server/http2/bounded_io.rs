//! The bytes of an HTTP/2 connection, within bounds that h2 does not have.
//!
//! - Header blocks reach h2 whole and few at a time (`head_blocks`). One that has begun has the time of a
//!   head, and what has come of it counts against the share of its address.
//! - Frames that make h2 visit every open stream come no faster than `visits` allows.
//! - A client that reads nothing for [`UNREAD_TIME`] while something is to be sent is gone: the answers
//!   and the acknowledgements that wait for it would be held for as long as it stays connected.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};
use tokio_util::io::poll_read_buf;

use super::{
    head_blocks::{HeadBlocks, TooLarge},
    visits::Visits,
};
use crate::{
    metrics::{Http2Refusal, Metrics},
    server::admission::AddressShare,
};

/// How long a client may read nothing of what is to be sent.
const UNREAD_TIME: Duration = Duration::from_secs(10);
/// How much is read at once, in bytes.
const READ: usize = 16 * 1024;

/// A stream whose reads and writes are bounded.
pub(super) struct BoundedIo<S> {
    stream: S,
    /// What was received and not handed on.
    received: BytesMut,
    /// How many bytes of it were looked at, and how many of those can be handed on.
    scanned: usize,
    whole: usize,
    blocks: HeadBlocks,
    visits: Visits,
    held: HeldBytes,
    head_time: Duration,
    /// Runs while a block is not whole.
    head_timer: Option<Pin<Box<Sleep>>>,
    /// Runs while the client does not read.
    unread_timer: Option<Pin<Box<Sleep>>>,
    metrics: Arc<Metrics>,
}

/// The bytes of a block that is not whole, counted for the address.
struct HeldBytes {
    share: Arc<AddressShare>,
    bytes: usize,
}

impl HeldBytes {
    /// Returns false if the address holds too much.
    fn grow_to(&mut self, bytes: usize) -> bool {
        let is_held = bytes <= self.bytes || self.share.hold(bytes - self.bytes);
        if is_held {
            self.bytes = self.bytes.max(bytes);
        }
        is_held
    }

    fn clear(&mut self) {
        self.share.release(self.bytes);
        self.bytes = 0;
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<S> BoundedIo<S> {
    /// Of a connection whose first bytes were `received` already. A block may have `max_block` bytes and
    /// take `head_time`.
    pub(super) fn new(
        stream: S,
        received: BytesMut,
        (max_block, head_time): (usize, Duration),
        share: Arc<AddressShare>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            stream,
            received,
            scanned: 0,
            whole: 0,
            blocks: HeadBlocks::new(max_block),
            visits: Visits::new(Instant::now()),
            held: HeldBytes { share, bytes: 0 },
            head_time,
            head_timer: None,
            unread_timer: None,
            metrics,
        }
    }

    /// Ends the connection.
    fn refuse(&self, why: Http2Refusal) -> io::Error {
        self.metrics.http2_refused(why);
        io::Error::new(io::ErrorKind::QuotaExceeded, why.text())
    }

    /// Looks at what was received and was not looked at.
    fn scan(&mut self) -> io::Result<()> {
        let scanned = self.blocks.scan(&self.received[self.scanned..]).map_err(|too_large| {
            self.refuse(match too_large {
                TooLarge::Head => Http2Refusal::HeadSize,
                TooLarge::Trailers => Http2Refusal::Trailers,
            })
        })?;
        if scanned.visits > 0 && !self.visits.take(scanned.visits, Instant::now()) {
            return Err(self.refuse(Http2Refusal::Visits));
        }
        if scanned.whole > 0 {
            self.whole = self.scanned + scanned.whole;
        }
        self.scanned += scanned.read;
        if !self.blocks.is_open() {
            self.held.clear();
            self.head_timer = None;
        } else if !self.held.grow_to(self.received.len() - self.whole) {
            return Err(self.refuse(Http2Refusal::HeadMemory));
        }
        Ok(())
    }

    /// Hands on what can be.
    fn hand_on(&mut self, buf: &mut ReadBuf<'_>) {
        let n = self.whole.min(buf.remaining());
        buf.put_slice(&self.received[..n]);
        self.received.advance(n);
        self.scanned -= n;
        self.whole -= n;
    }

    /// Notes what became of a write.
    fn wrote<T>(
        &mut self,
        cx: &mut Context<'_>,
        wrote: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.unread_timer = None;
            return wrote;
        }
        let timer = self.unread_timer.get_or_insert_with(|| Box::pin(sleep(UNREAD_TIME)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(self.refuse(Http2Refusal::Unread)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.whole > 0 {
                this.hand_on(buf);
                return Poll::Ready(Ok(()));
            }
            if this.blocks.is_turn_over() {
                // Not ready, although there is more: so h2 gives out the requests that it has.
                this.blocks.begin_turn();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if this.scanned < this.received.len() {
                this.scan()?;
                continue;
            }
            this.received.reserve(READ);
            match poll_read_buf(Pin::new(&mut this.stream), cx, &mut this.received) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    this.blocks.begin_turn();
                    if this.received.is_empty() {
                        // A connection that waits holds no buffer.
                        this.received = BytesMut::new();
                    }
                    if this.blocks.is_open() {
                        let head_time = this.head_time;
                        let timer =
                            this.head_timer.get_or_insert_with(|| Box::pin(sleep(head_time)));
                        ready!(timer.as_mut().poll(cx));
                        return Poll::Ready(Err(this.refuse(Http2Refusal::HeadTime)));
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedIo<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let wrote = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.wrote(cx, wrote)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.wrote(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.wrote(cx, shut)
    }
}

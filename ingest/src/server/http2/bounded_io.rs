//! The bytes of an HTTP/2 connection, within bounds that h2 does not have.
//!
//! - Header blocks reach h2 whole and few at a time (`head_blocks`). A block that has begun has the time of a
//!   head, and its bytes so far count against the share of its address.
//! - Frames that make h2 visit every open stream come no faster than `visits` allows.
//! - A client that reads nothing for [`UNREAD_TIME`] while something is to be sent is gone: the answers
//!   and the acknowledgements that wait for it would be held for as long as it stays connected.

use std::{
    io,
    mem::MaybeUninit,
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

use super::{
    head_blocks::{HeadBlocks, TooLarge},
    visits::Visits,
};
use crate::{
    metrics::{Http2Refusal, Metrics},
    server::admission::AddressShare,
};

/// The longest time for which a client may read nothing although bytes wait for it.
const UNREAD_TIME: Duration = Duration::from_secs(10);
/// The size of one read, in bytes.
const READ: usize = 16 * 1024;

/// A stream whose reads and writes are bounded.
pub(super) struct BoundedIo<S> {
    stream: S,
    /// Bytes that were received and not handed on.
    received: BytesMut,
    /// Set once some of it was handed on, whose room is still held in front of the rest.
    has_gap: bool,
    /// The number of its bytes that were looked at, and of those that can be handed on.
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

/// The memory of a block that is not whole, counted for the address.
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
    /// Wraps a connection whose first bytes were `received` already. A block may have `max_block` bytes and
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
            has_gap: true,
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
            // A block that is open now began after that, and has a time of its own.
            self.held.clear();
            self.head_timer = None;
        }
        self.scanned += scanned.read;
        Ok(())
    }

    /// Reads more.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        S: AsyncRead + Unpin,
    {
        let mut room = [MaybeUninit::uninit(); READ];
        let mut read = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        self.received.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Keeps only the received bytes that it must, and counts them if they are a part of a block.
    fn wait(&mut self) -> io::Result<()> {
        if self.has_gap {
            self.received = BytesMut::from(&self.received[..]);
            self.has_gap = false;
        }
        if self.blocks.is_open() && !self.held.grow_to(self.received.capacity()) {
            return Err(self.refuse(Http2Refusal::HeadMemory));
        }
        Ok(())
    }

    /// Hands on what can be.
    fn hand_on(&mut self, buf: &mut ReadBuf<'_>) {
        let n = self.whole.min(buf.remaining());
        buf.put_slice(&self.received[..n]);
        self.received.advance(n);
        self.has_gap = true;
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
            match this.poll_receive(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    this.blocks.begin_turn();
                    this.wait()?;
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

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        task::JoinHandle,
        time::advance,
    };

    use super::*;

    const HEAD_TIME: Duration = Duration::from_secs(10);
    const PREFACE: [u8; 24] = [0; 24];
    /// The number of bytes of a head that are sent first.
    const BEGINNING: usize = 20;

    /// A frame HEADERS that is a whole head.
    fn head(payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        [&length[1..], &[1, 4, 0, 0, 0, 1], &vec![b'x'; payload]].concat()
    }

    /// A client, and what is handed on of what it sends.
    fn connection() -> (DuplexStream, BoundedIo<DuplexStream>) {
        let (client, service) = duplex(1 << 20);
        let share = Arc::new(AddressShare::new(1));
        let metrics = Arc::new(Metrics::default());
        let bounds = (1 << 16, HEAD_TIME);
        (client, BoundedIo::new(service, BytesMut::new(), bounds, share, metrics))
    }

    fn read(mut io: BoundedIo<DuplexStream>) -> JoinHandle<io::Result<usize>> {
        tokio::spawn(async move { io.read_to_end(&mut Vec::new()).await })
    }

    #[tokio::test(start_paused = true)]
    async fn each_head_has_its_own_time_although_it_begins_as_the_last_one_ends() {
        let (mut client, io) = connection();
        let reading = read(io);
        let head = head(100);
        client.write_all(&[&PREFACE, &head[..BEGINNING]].concat()).await.unwrap();
        let [rest, beginning] = [&head[BEGINNING..], &head[..BEGINNING]];
        for _ in 0..5 {
            advance(HEAD_TIME - Duration::from_secs(1)).await;
            client.write_all(&[rest, beginning].concat()).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert!(!reading.is_finished(), "each head came in time");
        advance(HEAD_TIME).await;
        let error = reading.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), Http2Refusal::HeadTime.text());
    }

    #[tokio::test]
    async fn what_a_head_that_is_not_whole_holds_is_what_is_counted_for_it() {
        let (mut client, mut io) = connection();
        let large = head(60_000);
        // On another stream, since a second head on the same one would be trailers.
        let mut next = large[..BEGINNING].to_vec();
        next[8] = 3;
        client.write_all(&[&PREFACE, &large[..], &next[..]].concat()).await.unwrap();
        let mut whole = vec![0; PREFACE.len() + large.len()];
        io.read_exact(&mut whole).await.unwrap();
        // The first read ends the turn of the large head, and the second one waits.
        for _ in 0..2 {
            let mut more = [0; 1];
            let pending = std::future::poll_fn(|cx| {
                let mut more = ReadBuf::new(&mut more);
                Poll::Ready(Pin::new(&mut io).poll_read(cx, &mut more).is_pending())
            });
            assert!(pending.await);
        }
        let held = io.received.try_reclaim(1024);
        assert!(!held, "the room of the first head is free");
        assert!((BEGINNING..1024).contains(&io.held.bytes), "{}", io.held.bytes);
    }
}

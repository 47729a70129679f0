//! The body of a request on the fast path: what came with the head, then what the stream brings.

use std::{
    io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use tokio_util::io::poll_read_buf;

use crate::server::stream::Stream;

/// How much is read at once at most, in bytes.
const MAX_READ: usize = 64 * 1024;
/// How much is read at once of a body of which less has arrived so far: nothing is allocated for
/// what is only announced.
const FIRST_READ: usize = 4096;

/// A body of known length. Nothing is read beyond its end, where the next request begins.
#[derive(Debug)]
pub(super) struct SizedBody<'a> {
    arrived: &'a [u8],
    /// How many bytes are still to come over the stream.
    to_come: u64,
    /// How many bytes have come, with the head and over the stream.
    came: usize,
    stream: &'a mut Stream,
    buffer: BytesMut,
}

impl<'a> SizedBody<'a> {
    /// A body of `length` bytes, of which `received` is the beginning or more than all.
    pub(super) fn new(received: &'a [u8], length: u64, stream: &'a mut Stream) -> Self {
        let arrived = match usize::try_from(length) {
            Ok(length) if length < received.len() => &received[..length],
            _ => received,
        };
        let to_come = length.saturating_sub(arrived.len() as u64);
        Self { arrived, to_come, came: arrived.len(), stream, buffer: BytesMut::new() }
    }

    /// How many bytes of it came with the head and are not taken yet.
    pub(super) fn arrived(&self) -> usize {
        self.arrived.len()
    }

    /// How many bytes of it are still to come.
    pub(super) fn to_come(&self) -> u64 {
        self.to_come
    }
}

impl Body for SizedBody<'_> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if !this.arrived.is_empty() {
            let arrived = Bytes::copy_from_slice(mem::take(&mut this.arrived));
            return Poll::Ready(Some(Ok(Frame::data(arrived))));
        }
        if this.to_come == 0 {
            return Poll::Ready(None);
        }
        let size = this.came.clamp(FIRST_READ, MAX_READ);
        let size = usize::try_from(this.to_come).map_or(size, |to_come| to_come.min(size));
        // A buffer is used up before another is allocated, or a body that comes byte by byte would
        // hold one for each byte.
        if this.buffer.capacity() == 0 {
            this.buffer.reserve(size);
        }
        let mut buffer = (&mut this.buffer).limit(size);
        let n = ready!(poll_read_buf(Pin::new(&mut *this.stream), cx, &mut buffer))?;
        if n == 0 {
            return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
        }
        this.to_come -= n as u64;
        this.came += n;
        Poll::Ready(Some(Ok(Frame::data(this.buffer.split().freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.arrived.is_empty() && self.to_come == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.arrived.len() as u64 + self.to_come)
    }
}

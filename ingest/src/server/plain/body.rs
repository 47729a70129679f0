//! The body of a plain request: what came with the head, and then what comes over the stream.

use std::{
    io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

/// The largest piece that is read at once, in bytes.
const MAX_PIECE: usize = 64 * 1024;

/// A body of known length. Nothing is read beyond its end.
#[derive(Debug)]
pub(super) struct PlainBody<'a> {
    arrived: &'a [u8],
    /// How many bytes are still to come over the stream.
    to_come: u64,
    stream: &'a mut TcpStream,
    piece: BytesMut,
}

impl<'a> PlainBody<'a> {
    /// A body of `length` bytes, of which `received` is the beginning or more than all.
    pub(super) fn new(received: &'a [u8], length: u64, stream: &'a mut TcpStream) -> Self {
        let arrived = match usize::try_from(length) {
            Ok(length) if length < received.len() => &received[..length],
            _ => received,
        };
        let to_come = length.saturating_sub(arrived.len() as u64);
        Self { arrived, to_come, stream, piece: BytesMut::new() }
    }

    /// How many bytes of it came with the head and were not read since.
    pub(super) fn arrived(&self) -> usize {
        self.arrived.len()
    }
}

impl Body for PlainBody<'_> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if !this.arrived.is_empty() {
            let piece = Bytes::copy_from_slice(mem::take(&mut this.arrived));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if this.to_come == 0 {
            return Poll::Ready(None);
        }
        let size = usize::try_from(this.to_come).map_or(MAX_PIECE, |size| size.min(MAX_PIECE));
        // A body that drips in fills a piece before it gets another.
        if this.piece.capacity() == 0 {
            this.piece.reserve(size);
        }
        let mut piece = (&mut this.piece).limit(size);
        let n = ready!(poll_read_buf(Pin::new(&mut *this.stream), cx, &mut piece))?;
        if n == 0 {
            return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
        }
        this.to_come -= n as u64;
        Poll::Ready(Some(Ok(Frame::data(this.piece.split().freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.arrived.is_empty() && self.to_come == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.arrived.len() as u64 + self.to_come)
    }
}

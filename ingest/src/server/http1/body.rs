//! The body of a request: what came with the head, then what the stream brings.

use std::{
    io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::AsyncWrite;
use tokio_util::io::poll_read_buf;

use super::{
    chunks::{Chunks, Decoded},
    head::Framing,
};
use crate::{body::discard, server::stream::Stream};

/// The size of the largest read, in bytes.
const MAX_READ: usize = 64 * 1024;
/// The size of a read of a body of which less has arrived so far: nothing is allocated for
/// what is only announced.
const FIRST_READ: usize = 4096;
/// The time for the rest of a body whose request was answered without it.
const REST_TIME: Duration = Duration::from_secs(5);
/// The answer to a client that asks for permission to send the body (RFC 9110 section 10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A body that is read from a connection, and nothing beyond its end.
#[derive(Debug)]
pub(super) struct Http1Body<'a> {
    stream: &'a mut Stream,
    /// The bytes of a body of known length that came with its head and are not read yet.
    arrived: &'a [u8],
    /// The number of bytes behind the head that this body has taken.
    taken: usize,
    to_come: ToCome,
    /// The rest of [`CONTINUE`] that is not written yet.
    to_write: Option<&'static [u8]>,
    /// The number of bytes that have come, with the head and over the stream.
    came: usize,
    buffer: BytesMut,
}

/// The part of a body that is still to come over the stream.
#[derive(Debug)]
pub(super) enum ToCome {
    /// So many bytes.
    Sized(u64),
    /// Chunks, of which the buffer may have some.
    Chunked(Chunks),
}

impl<'a> Http1Body<'a> {
    /// The body of a request behind whose head `received` came. The client is asked to send it if it
    /// waits for that.
    pub(super) fn new(
        stream: &'a mut Stream,
        received: &'a [u8],
        framing: Framing,
        expects: bool,
    ) -> Self {
        let (taken, arrived, to_come) = match framing {
            Framing::Sized(length) => {
                let arrived = match usize::try_from(length) {
                    Ok(length) if length < received.len() => &received[..length],
                    _ => received,
                };
                let to_come = length.saturating_sub(arrived.len() as u64);
                (arrived.len(), arrived, ToCome::Sized(to_come))
            }
            Framing::Chunked => (received.len(), &[][..], ToCome::Chunked(Chunks::new(received))),
        };
        let to_write = expects.then_some(CONTINUE);
        let (came, buffer) = (arrived.len(), BytesMut::new());
        Self { stream, arrived, taken, to_come, to_write, came, buffer }
    }

    /// Returns how many of the bytes behind the head it has taken, and what is still to come.
    pub(super) fn into_rest(self) -> (usize, ToCome) {
        (self.taken, self.to_come)
    }

    /// Asks the client for the body if it waits for that, and reads from the stream.
    fn poll_stream(
        stream: &mut Stream,
        to_write: &mut Option<&'static [u8]>,
        buffer: &mut BytesMut,
        size: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        while let Some(rest) = to_write {
            if rest.is_empty() {
                ready!(Pin::new(&mut *stream).poll_flush(cx))?;
                *to_write = None;
            } else {
                match ready!(Pin::new(&mut *stream).poll_write(cx, rest))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    written => *rest = &rest[written..],
                }
            }
        }
        // A buffer is used up before another is allocated, or a body that comes byte by byte would
        // hold one for each byte.
        if buffer.capacity() == buffer.len() {
            buffer.reserve(size);
        }
        let read = ready!(poll_read_buf(Pin::new(stream), cx, &mut buffer.limit(size)))?;
        match read {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            read => Poll::Ready(Ok(read)),
        }
    }
}

impl Body for Http1Body<'_> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Self { stream, arrived, taken: _, to_come, to_write, came, buffer } = self.get_mut();
        if !arrived.is_empty() {
            let data = Bytes::copy_from_slice(mem::take(arrived));
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let size = (*came).clamp(FIRST_READ, MAX_READ);
        match to_come {
            ToCome::Sized(0) => Poll::Ready(None),
            ToCome::Sized(to_come) => {
                let size = usize::try_from(*to_come).map_or(size, |to_come| to_come.min(size));
                let read = ready!(Self::poll_stream(stream, to_write, buffer, size, cx))?;
                *to_come -= read as u64;
                *came += read;
                Poll::Ready(Some(Ok(Frame::data(buffer.split().freeze()))))
            }
            ToCome::Chunked(chunks) => loop {
                match chunks.decode() {
                    Ok(Decoded::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    Ok(Decoded::End) => return Poll::Ready(None),
                    Ok(Decoded::Partial) => {
                        let buffer = &mut chunks.buffer;
                        *came += ready!(Self::poll_stream(stream, to_write, buffer, size, cx))?;
                    }
                    Err(_) => return Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into()))),
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.to_come {
            ToCome::Sized(to_come) => self.arrived.is_empty() && *to_come == 0,
            ToCome::Chunked(chunks) => chunks.is_ended(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.to_come {
            ToCome::Sized(to_come) => SizeHint::with_exact(self.arrived.len() as u64 + to_come),
            ToCome::Chunked(_) => SizeHint::default(),
        }
    }
}

impl ToCome {
    /// Gives back what came behind a chunked body that has ended: it belongs to the next request.
    pub(super) fn give_back(&mut self, received: &mut BytesMut) {
        if let Self::Chunked(chunks) = self
            && chunks.is_ended()
        {
            *received = mem::take(&mut chunks.buffer);
            *self = Self::Sized(0);
        }
    }

    /// Drops what is still to come of a body whose request was answered, so that the connection can
    /// take the next request. Returns false if more than `limit` bytes are to come, or they take too
    /// long: the connection must end.
    pub(super) async fn discard(
        &mut self,
        stream: &mut Stream,
        received: &mut BytesMut,
        limit: usize,
    ) -> bool {
        if matches!(self, Self::Sized(0)) {
            return true;
        }
        let to_come = mem::replace(self, Self::Sized(0));
        let (buffer, to_write) = (BytesMut::new(), None);
        let mut body =
            Http1Body { stream, arrived: &[], taken: 0, to_come, to_write, came: 0, buffer };
        let is_dropped = discard(&mut body, limit, REST_TIME).await;
        *self = body.to_come;
        self.give_back(received);
        is_dropped
    }
}

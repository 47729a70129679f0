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
    chunks::{Chunks, Decoded, NotChunks},
    head::Framing,
};
use crate::{
    body::{BodyError, discard},
    server::stream::Stream,
};

/// The size of the largest read, in bytes.
const MAX_READ: usize = 64 * 1024;
/// The size of a read of a body of which less has arrived so far: nothing is allocated for bytes
/// that are only announced.
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
    /// The number of bytes of the body itself that have come, with the head and over the stream. The framing
    /// around them counts against no memory, so it makes no read larger.
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
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
                    Ok(Decoded::Data(data)) => {
                        *came += data.len();
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                    Ok(Decoded::End) => return Poll::Ready(None),
                    Ok(Decoded::Partial) => {
                        let buffer = &mut chunks.buffer;
                        ready!(Self::poll_stream(stream, to_write, buffer, size, cx))?;
                    }
                    Err(NotChunks) => return Poll::Ready(Some(Err(BodyError::NotChunks))),
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
            // Copied, because an idle connection must not hold the room of a whole body.
            received.extend_from_slice(&chunks.buffer);
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http_body_util::BodyExt as _;
    use tokio::{
        io::AsyncWriteExt as _,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// A client, and the stream on which the service has it.
    async fn connection() -> (TcpStream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, Stream::Clear(listener.accept().await.unwrap().0))
    }

    #[tokio::test]
    async fn what_came_behind_a_large_chunked_body_is_given_back_without_its_room() {
        let (mut client, mut stream) = connection().await;
        let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
        let sent = [chunk.repeat(3), b"0\r\n\r\nGET /".to_vec()].concat();
        let sending = tokio::spawn(async move { client.write_all(&sent).await.map(|()| client) });
        let mut body = Http1Body::new(&mut stream, b"", Framing::Chunked, false);
        let mut data = 0;
        while let Some(frame) = body.frame().await {
            data += frame.unwrap().into_data().unwrap().len();
        }
        assert_eq!(data, 3 * 0x10000);
        let (_, mut to_come) = body.into_rest();
        let mut received = BytesMut::new();
        while received.is_empty() {
            to_come.give_back(&mut received);
            if received.is_empty() {
                stream_read(&mut stream, &mut received).await;
            }
        }
        assert!(b"GET /".starts_with(&received), "{received:?}");
        assert!(!received.try_reclaim(MAX_READ / 4), "it holds the room of the body");
        drop(sending.await.unwrap().unwrap());
    }

    async fn stream_read(stream: &mut Stream, received: &mut BytesMut) {
        let read = poll_fn(|cx| poll_read_buf(Pin::new(&mut *stream), cx, received));
        assert!(read.await.unwrap() > 0);
    }

    #[tokio::test]
    async fn a_body_of_tiny_chunks_holds_no_more_than_a_read_beside_its_data() {
        let (mut client, mut stream) = connection().await;
        let sent = b"0000000000000001\r\nx\r\n".repeat(4000);
        let sending = tokio::spawn(async move { client.write_all(&sent).await.map(|()| client) });
        let mut body = Http1Body::new(&mut stream, b"", Framing::Chunked, false);
        for _ in 0..4000 {
            body.frame().await.unwrap().unwrap();
            let ToCome::Chunked(chunks) = &body.to_come else { panic!("not chunked") };
            let held = chunks.buffer.capacity();
            assert!(held <= 2 * FIRST_READ, "{held} bytes");
        }
        drop(sending.await.unwrap().unwrap());
    }
}

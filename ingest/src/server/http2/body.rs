//! The body of an HTTP/2 request, and what comes after its answer.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::RecvStream;
use hyper::body::{Body, Frame, SizeHint};

/// The body of a stream. Trailers are dropped as they come.
#[derive(Debug)]
pub(super) struct StreamBody {
    stream: RecvStream,
    /// The number of bytes that are still to come, if they were announced. h2 holds the client to that.
    to_come: Option<u64>,
    has_data: bool,
}

impl StreamBody {
    pub(super) fn new(stream: RecvStream, length: Option<u64>) -> Self {
        Self { stream, to_come: length, has_data: true }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = self.get_mut();
        if this.has_data {
            match ready!(this.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // The client may send as much again. It fails only for more than came.
                    let _ = this.stream.flow_control().release_capacity(data.len());
                    let came = data.len() as u64;
                    this.to_come = this.to_come.map(|to_come| to_come.saturating_sub(came));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => this.has_data = false,
            }
        }
        match ready!(this.stream.poll_trailers(cx)) {
            Ok(_) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() {
            return SizeHint::with_exact(0);
        }
        self.to_come.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

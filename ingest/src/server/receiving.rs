//! A request that waits for its body.
//!
//! Until its body is complete, nothing of a request was accepted, so its connection may be closed for another
//! one: clients that send bodies slowly, however many they are, keep no other client out. Only a body that
//! did not come with its head is noted, from its first wait to its end.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body, Frame, SizeHint};

use super::activity::RequestGuard;
use crate::{
    body::BodyError,
    handlers::Handlers,
    head::Head,
    rejection::Rejection,
    reply::{self, Reply},
};

/// The answer over a connection that is being closed for another one.
pub(super) const MAKES_ROOM: Rejection =
    Rejection::Unavailable("the service is full, and this connection makes room for another one");

/// Returns the handlers' answer to a request. Nothing that they do for it is begun before its body is whole
/// and the connection known to stay.
pub(super) async fn answer<B>(
    handlers: &Handlers,
    head: &Head<'_>,
    body: &mut B,
    in_work: &RequestGuard,
) -> Reply
where
    B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    let mut body = Receiving { body, in_work, state: BodyArrival::Arrived };
    let reply = handlers.answer(head, &mut body).await;
    // The handlers saw a body that ends early, which is not the client's mistake here. The answer
    // to an MQTT broker stays as it is: its client may not.
    if body.state == BodyArrival::Evicted && reply.status() == StatusCode::BAD_REQUEST {
        return reply::rejected(&MAKES_ROOM);
    }
    reply
}

/// The body of a request in work.
struct Receiving<'a, B> {
    body: &'a mut B,
    in_work: &'a RequestGuard,
    state: BodyArrival,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyArrival {
    /// All that was asked for has arrived so far.
    Arrived,
    /// It was waited for, and is not complete.
    Waiting,
    /// The connection was closed for another one meanwhile.
    Evicted,
}

impl<B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin> Body for Receiving<'_, B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match Pin::new(&mut *this.body).poll_frame(cx) {
            Poll::Pending => {
                if this.state == BodyArrival::Arrived {
                    this.in_work.begin_receiving();
                    this.state = BodyArrival::Waiting;
                }
                Poll::Pending
            }
            Poll::Ready(frame) => {
                let is_whole = !matches!(frame, Some(Ok(_))) || this.body.is_end_stream();
                if is_whole && this.state == BodyArrival::Waiting {
                    this.state = BodyArrival::Arrived;
                    if !this.in_work.end_receiving() {
                        this.state = BodyArrival::Evicted;
                        return Poll::Ready(Some(Err(BodyError::Broken)));
                    }
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The rest of a body that the answer does not wait for is not noted.
impl<B> Drop for Receiving<'_, B> {
    fn drop(&mut self) {
        if self.state == BodyArrival::Waiting {
            self.in_work.end_receiving();
        }
    }
}

//! Reading a body within the bounds of the settings: the size of one body, how long it may take,
//! and the memory for the bodies of its app and of all requests together.

use bytes::Bytes;
use hyper::body::Body;

use super::context::Handlers;
use crate::{
    apps::CachedApp,
    body::{BodyError, Purpose, RequestBody, Reservation},
    rejection::Rejection,
};

/// A body and the memory that it uses.
pub(super) struct Buffered {
    pub(super) bytes: Bytes,
    pub(super) memory: Reservation,
}

impl Handlers {
    /// Reads a body for this app. `rejection` says how a body that cannot be read is answered,
    /// given the most bytes it may have.
    pub(super) async fn read_body(
        &self,
        app: &CachedApp,
        purpose: Purpose,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
        rejection: fn(BodyError, usize) -> Rejection,
    ) -> Result<Buffered, Rejection> {
        let http = &self.settings.http;
        let limit = match purpose {
            Purpose::Single => http.max_body,
            Purpose::Batch => http.max_batch_body,
        };
        let mut memory = Reservation::empty(&app.memory, purpose);
        let read = body.read(limit, http.body_time(), &mut memory).await;
        let bytes = read.map_err(|no_body| rejection(no_body, limit))?;
        Ok(Buffered { bytes, memory })
    }
}

/// Answers a push whose body of at most `limit` bytes could not be read.
pub(super) fn unread_message(why: BodyError, limit: usize) -> Rejection {
    match why {
        BodyError::TooLarge => Rejection::MessageTooLarge(limit),
        BodyError::Broken => Rejection::MessageIllegal("the body ends early".into()),
        other => unread_body(other, limit),
    }
}

/// Answers another request whose body of at most `limit` bytes could not be read.
pub(super) fn unread_body(why: BodyError, limit: usize) -> Rejection {
    match why {
        BodyError::TooLarge => Rejection::TooLarge(limit),
        BodyError::Late => Rejection::BodyTimeout,
        BodyError::Slow(rate) => Rejection::BodyTooSlow(rate),
        BodyError::Broken => Rejection::Illegal("the body ends early".into()),
        BodyError::NoMemory(full) => full.into(),
    }
}

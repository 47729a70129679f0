//! Reading a body within two bounds: the size of one body, and the memory for the bodies of all
//! requests together. The memory is reserved before the first byte is read.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body;
use tokio::sync::OwnedSemaphorePermit;

use super::context::Handlers;
use crate::{
    body::{BodyError, RequestBody},
    rejection::Rejection,
};

/// A body and its share of the memory for bodies.
pub(super) struct Buffered {
    pub(super) bytes: Bytes,
    pub(super) memory: OwnedSemaphorePermit,
}

impl Handlers {
    /// Reads a body. `rejection` says how a body that cannot be read is answered, given the most
    /// bytes it may have.
    pub(super) async fn read_body(
        &self,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
        rejection: fn(BodyError, usize) -> Rejection,
    ) -> Result<Buffered, Rejection> {
        let http = &self.settings.http;
        let limit = http.max_body;
        let size = body.announced(limit).map_err(|no_body| rejection(no_body, limit))?;
        let memory = self.reserve_memory(size)?;
        let read = body.read(limit, http.body_timeout).await;
        let bytes = read.map_err(|no_body| rejection(no_body, limit))?;
        Ok(Buffered { bytes, memory })
    }

    /// Reads the body of a batch request.
    pub(super) async fn read_batch_request(
        &self,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> Result<Buffered, Rejection> {
        let http = &self.settings.http;
        let limit = http.max_batch_body;
        let size = body.announced(limit).map_err(|no_body| unread_message(no_body, limit))?;
        let memory = self.reserve_batch_request_memory(size)?;
        let read = body.read(limit, http.body_timeout).await;
        let bytes = read.map_err(|no_body| unread_message(no_body, limit))?;
        Ok(Buffered { bytes, memory })
    }

    /// Reserves memory for a batch request, in bytes, if half of the memory is free after that.
    /// The other half is for single pushes.
    pub(super) fn reserve_batch_request_memory(
        &self,
        bytes: usize,
    ) -> Result<OwnedSemaphorePermit, Rejection> {
        let memory = self.reserve_memory(bytes)?;
        // Checked after the reservation: several requests at once that checked before it would
        // all find the half free.
        if self.memory.available_permits() < self.settings.http.max_buffered / 2 {
            return Err(Rejection::Unavailable("the service is full"));
        }
        Ok(memory)
    }

    /// Reserves memory, in bytes.
    fn reserve_memory(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Rejection> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let memory = Arc::clone(&self.memory).try_acquire_many_owned(permits);
        memory.map_err(|_| Rejection::Unavailable("the service is full"))
    }
}

/// Answers a push whose body of at most `limit` bytes could not be read.
pub(super) fn unread_message(why: BodyError, limit: usize) -> Rejection {
    match why {
        BodyError::TooLarge => Rejection::MessageTooLarge(limit),
        BodyError::Late => Rejection::BodyTimeout,
        BodyError::Broken => Rejection::MessageIllegal("the body ends early".into()),
    }
}

/// Answers another request whose body of at most `limit` bytes could not be read.
pub(super) fn unread_body(why: BodyError, limit: usize) -> Rejection {
    match why {
        BodyError::TooLarge => Rejection::TooLarge(limit),
        BodyError::Late => Rejection::BodyTimeout,
        BodyError::Broken => Rejection::Illegal("the body ends early".into()),
    }
}

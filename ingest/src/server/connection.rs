//! What the stages of a connection's life have in common.

use std::{net::IpAddr, sync::Arc};

use bytes::BytesMut;
use tokio::{net::TcpStream, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use super::{activity::Activity, stream::Stream, timeouts::Interruptions};
use crate::{handlers::Handlers, settings::HttpSettings};

/// A connection that is served. Each stage takes the fields apart, so that it can read into one
/// while it borrows from another.
pub(super) struct Connection {
    pub(super) stream: Stream,
    /// The client's address, or that of the proxy in between.
    pub(super) peer: IpAddr,
    /// What was read from the stream and belongs to no request yet.
    pub(super) received: BytesMut,
    /// What the client and the service are doing, for the time limits and the log.
    pub(super) activity: Arc<Activity>,
    /// What answers its requests.
    pub(super) handlers: Arc<Handlers>,
    /// Its limits.
    pub(super) http: Arc<HttpSettings>,
    /// Permits for HTTP/2 requests of all connections, beside the first one of each.
    pub(super) http2_requests: Arc<Semaphore>,
    /// Its time limits and the shutdown of the service.
    pub(super) interruptions: Interruptions,
}

impl Connection {
    /// A connection that was just accepted.
    pub(super) fn new(
        stream: TcpStream,
        peer: IpAddr,
        activity: Arc<Activity>,
        handlers: Arc<Handlers>,
        http: Arc<HttpSettings>,
        http2_requests: Arc<Semaphore>,
        shutdown: CancellationToken,
    ) -> Self {
        let interruptions = Interruptions::new(Arc::clone(&activity), Arc::clone(&http), shutdown);
        Self {
            stream: Stream::Clear(stream),
            peer,
            received: BytesMut::new(),
            activity,
            handlers,
            http,
            http2_requests,
            interruptions,
        }
    }
}

//! The parts that the stages of a connection's life share.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::{
    activity::Activity, admission::AddressShare, http2::RequestPools, stream::Stream,
    timeouts::Interruptions,
};
use crate::{client::Peer, handlers::Handlers, settings::HttpSettings};

/// A connection that is served. Each stage destructures it, to borrow the fields separately.
pub(super) struct Connection {
    pub(super) stream: Stream,
    /// The client, or the proxy in between.
    pub(super) peer: Peer,
    /// The bytes that were read from the stream and belong to no request yet.
    pub(super) received: BytesMut,
    /// The activity of client and service, for the time limits and the log.
    pub(super) activity: Arc<Activity>,
    pub(super) handlers: Arc<Handlers>,
    pub(super) http: Arc<HttpSettings>,
    /// Permits for HTTP/2 requests of all connections, beside the first one of each.
    pub(super) http2_requests: Arc<RequestPools>,
    pub(super) share: Arc<AddressShare>,
    /// Its time limits and the shutdown of the service.
    pub(super) interruptions: Interruptions,
}

impl Connection {
    /// A connection that was just accepted.
    pub(super) fn new(
        stream: TcpStream,
        peer: Peer,
        activity: Arc<Activity>,
        handlers: Arc<Handlers>,
        http: Arc<HttpSettings>,
        (http2_requests, share): (Arc<RequestPools>, Arc<AddressShare>),
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
            share,
            interruptions,
        }
    }
}

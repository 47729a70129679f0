//! HTTP/2 connections.
//!
//! h2 speaks the protocol. The bounds that it lacks are here:
//!
//! - `bounded_io`: the bytes of a connection; `head_blocks`: where heads and trailers are in them;
//!   `visits`: how often a client may make h2 visit all streams
//! - `permits`: how many requests all connections may have in work
//! - `request`: one request, from its head to the end of its stream; `body`: its body
//! - `secret_watch`: how long a connection lasts over which no right secret comes

mod body;
mod bounded_io;
mod head_blocks;
mod permits;
mod request;
mod secret_watch;
mod visits;

use std::{future::poll_fn, pin::pin, sync::Arc};

use h2::server;

pub(super) use self::permits::{RequestPools, unchecked_per_address};
use self::{
    bounded_io::BoundedIo, permits::RequestPermits, request::Requests, secret_watch::SecretWatch,
};
use super::{close::LINGER, connection::Connection, timeouts::Interruption};
use crate::head::OwnedHead;

/// h2's bound on a head, over ours: a head between the two is answered with a body.
const HEAD_FACTOR: usize = 4;
/// The bytes that a client may send ahead of being read, over a connection and over each of its
/// streams.
///
/// They are in no reservation of memory until their handler reads them, and 10,000 connections that
/// use all of it have more than a container of 512 MB. Over HTTP/1 the service reads ahead no more
/// than a head may have (`--tune max-header`), and the rest waits in the kernel. But no handler leaves a
/// body unread for long: a failed login waits 50 ms, a refusal beyond the rate limit 1 s, a question
/// to the index `--tune index-timeout`. So what is held is also bounded by what the network brings in that
/// time.
///
/// Smaller windows would take more than they give:
/// - a body comes no faster than the window of its stream each round trip, and 64 KiB are too few for a
///   batch of 4 MiB to come within `--tune body-timeout` over a round trip of 250 ms;
/// - a connection's window must be larger than a stream's: behind a proxy that sends several apps'
///   requests over one connection, a body that is not read yet would else stop the others;
/// - h2 ends a connection when small DATA frames wait that count, with 256 bytes each, as more than
///   half of its window.
const CONNECTION_WINDOW: u32 = 256 * 1024;
const STREAM_WINDOW: u32 = 128 * 1024;
/// The most streams of a connection that a client may make the service reset.
const RESET_STREAMS: usize = 1024;

/// Serves HTTP/2 until the connection ends, and closes the stream.
pub(super) async fn serve(connection: Connection) {
    let Connection {
        stream,
        peer,
        received,
        activity,
        handlers,
        http,
        http2_requests,
        share,
        mut interruptions,
    } = connection;
    activity.multiplex();
    let metrics = handlers.metrics();
    let max_head = http.max_header * HEAD_FACTOR;
    let bounds = (max_head, http.header_timeout);
    let io = BoundedIo::new(stream, received, bounds, share.clone(), metrics.clone());
    let permits = RequestPermits::new(http2_requests, share);
    let secret_watch = Arc::new(SecretWatch::new(interruptions.stop()));
    let requests = Requests { handlers, activity, permits, secret_watch, metrics };
    let handshake = server::Builder::new()
        .max_concurrent_streams(http.h2_streams)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_window_size(STREAM_WINDOW)
        .max_header_list_size(u32::try_from(max_head).unwrap_or(u32::MAX))
        .max_local_error_reset_streams(Some(RESET_STREAMS))
        .handshake(io);
    let mut serving = match interruptions.run(handshake).await {
        Ok(serving) => serving,
        Err(Interruption::Failed(error)) => {
            tracing::debug!(peer = %peer.address(), %error, "an HTTP/2 connection failed before its first request");
            return;
        }
        Err(Interruption::Shutdown | Interruption::TimedOut(_)) => return,
    };
    let mut is_ending = false;
    loop {
        let next = pin!(async { poll_fn(|cx| serving.poll_accept(cx)).await.transpose() });
        match interruptions.run(next).await {
            Ok(Some((request, respond))) => {
                let head = OwnedHead::of(&request, &peer, http.max_header);
                requests.serve(request, head, respond);
            }
            Ok(None) => return,
            Err(Interruption::Failed(error)) => {
                tracing::debug!(peer = %peer.address(), %error, "an HTTP/2 connection ended early");
                return;
            }
            // The client was told to end the connection, and did not in this time.
            Err(Interruption::TimedOut(_)) if is_ending => return,
            Err(Interruption::Shutdown | Interruption::TimedOut(_)) => {
                is_ending = true;
                serving.graceful_shutdown();
                interruptions.only_idleness(LINGER);
            }
        }
    }
}

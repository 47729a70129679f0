//! HTTP/2 connections.

use std::{pin::pin, sync::Arc, time::Duration};

use http::Response;
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::{answer::answer, permits::RequestPermits, replay::Replay};
use crate::{
    head::Head,
    rejection::Rejection,
    server::{
        close::LINGER, connection::Connection, receiving::MAKES_ROOM, timeouts::Interruption,
    },
};

/// hyper's bound on a head, over ours: a head between the two is answered with a body.
const HEAD_FACTOR: usize = 4;
/// How many bytes a client may send ahead of being read, over a connection and over each of its
/// streams.
///
/// They are in no reservation of memory until their handler reads them, and 10,000 connections that
/// use all of it have more than a container of 512 MB. Over HTTP/1 the service reads ahead no more
/// than a head may have (`--max-header`), and the rest waits in the kernel. But no handler leaves a
/// body unread for long: a failed login waits 50 ms, a refusal beyond the rate limit 1 s, a question
/// to the index `--index-timeout`. So what is held is also bounded by what the network brings in that
/// time.
///
/// Smaller windows would take more than they give:
/// - a body comes no faster than the window of its stream each round trip, and 64 KiB are too few for a
///   batch of 4 MiB to come within `--body-timeout` over a round trip of 250 ms;
/// - a connection's window must be larger than a stream's: behind a proxy that sends several apps'
///   requests over one connection, a body that is not read yet would else stop the others;
/// - h2 ends a connection when small DATA frames wait that count, with 256 bytes each, as more than
///   half of its window.
const CONNECTION_WINDOW: u32 = 256 * 1024;
const STREAM_WINDOW: u32 = 128 * 1024;
/// How long a client may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// What a client is told whose request finds no room among those in work.
const TOO_MANY_REQUESTS: Rejection =
    Rejection::Unavailable("the service has as many HTTP/2 requests in work as it may have");

/// Serves HTTP/2 until the connection ends. hyper closes the stream.
pub(in crate::server) async fn serve_http2(connection: Connection) {
    let Connection {
        stream,
        peer,
        received,
        activity,
        handlers,
        http,
        http2_requests,
        mut interruptions,
    } = connection;
    activity.multiplex();
    let permits = RequestPermits::new(http2_requests);
    let service = {
        let activity = Arc::clone(&activity);
        service_fn(move |request| {
            let handlers = Arc::clone(&handlers);
            let begun = match permits.acquire() {
                Some(permit) => {
                    let begun = activity.begin_request().map(|in_work| (in_work, permit));
                    begun.ok_or(MAKES_ROOM)
                }
                None => Err(TOO_MANY_REQUESTS),
            };
            let begun = begun.map_err(|rejection| (rejection, permits.refuse()));
            async move {
                let (reply, permit) = match begun {
                    // What is left of the body ends with its stream.
                    Ok((in_work, permit)) => {
                        let reply = answer(&handlers, peer, request, None, &in_work).await;
                        (reply, Some(permit))
                    }
                    Err((rejection, permit)) => {
                        let (parts, _) = request.into_parts();
                        (handlers.refuse(&Head::of(&parts, peer), rejection), permit)
                    }
                };
                match permit {
                    Some(permit) => Ok(Response::from(reply.holding(permit))),
                    // hyper resets the stream with this code: no work was done for the request, so
                    // the client may repeat it (RFC 9113 section 8.7).
                    None => Err(h2::Error::from(h2::Reason::REFUSED_STREAM)),
                }
            }
        })
    };
    let max_head = u32::try_from(http.max_header * HEAD_FACTOR).unwrap_or(u32::MAX);
    let mut serving = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(http.idle_timeout)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_concurrent_streams(http.h2_streams)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .max_header_list_size(max_head)
            .serve_connection(TokioIo::new(Replay::new(stream, received)), service)
    );

    let mut is_ending = false;
    loop {
        match interruptions.run(serving.as_mut()).await {
            Ok(()) => return,
            Err(Interruption::Failed(error)) => {
                tracing::debug!(%peer, %error, "an HTTP/2 connection ended early");
                return;
            }
            // The client was told to end the connection, and did not in this time.
            Err(Interruption::TimedOut(_)) if is_ending => return,
            Err(Interruption::Shutdown | Interruption::TimedOut(_)) => {}
        }
        is_ending = true;
        serving.as_mut().graceful_shutdown();
        interruptions.only_idleness(LINGER);
    }
}

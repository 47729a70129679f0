//! HTTP/2 connections.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use http::Response;
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::Instant;

use super::{answer::answer, replay::Replay};
use crate::{
    reply,
    server::{
        close::LINGER, connection::Connection, receiving::MAKES_ROOM, timeouts::Interruption,
    },
};

/// hyper's bound on a head, over ours: a head between the two is answered with a body.
const HEAD_FACTOR: usize = 4;
/// How many bytes a client may send ahead of being read, over a connection and over each of its
/// streams. They are in no reservation of memory until their handler reads them.
const CONNECTION_WINDOW: u32 = 256 * 1024;
const STREAM_WINDOW: u32 = 128 * 1024;
/// How long a client may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves HTTP/2 until the connection ends. hyper closes the stream.
pub(in crate::server) async fn serve_http2(connection: Connection) {
    let Connection { stream, peer, received, activity, handlers, http, mut interruptions } =
        connection;
    activity.multiplex();
    let service = {
        let activity = Arc::clone(&activity);
        service_fn(move |request| {
            let (handlers, in_work) = (Arc::clone(&handlers), activity.begin_request());
            async move {
                let reply = match &in_work {
                    // What is left of the body ends with its stream.
                    Some(in_work) => answer(&handlers, peer, request, None, in_work).await,
                    None => reply::rejected(&MAKES_ROOM),
                };
                drop(in_work);
                Ok::<_, Infallible>(Response::from(reply))
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
        let next_check = match interruptions.run(serving.as_mut()).await {
            Ok(()) => return,
            Err(Interruption::Failed(error)) => {
                tracing::debug!(%peer, %error, "an HTTP/2 connection ended early");
                return;
            }
            Err(Interruption::Shutdown) => Instant::now(),
            // The client was told to end the connection, and did not within another idle time.
            Err(Interruption::TimedOut(_)) if is_ending => return,
            Err(Interruption::TimedOut(_)) => Instant::now() + LINGER,
        };
        is_ending = true;
        serving.as_mut().graceful_shutdown();
        interruptions.only_timeouts(next_check);
    }
}

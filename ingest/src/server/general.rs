//! Connections that hyper serves: HTTP/2, and HTTP/1 in every form but the plain one.

use std::{convert::Infallible, pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{net::TcpStream, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    activity::Activity,
    connection::{End, LINGER},
    interruption::{Interruption, Interruptions},
    wire::{self, Wire},
};
use crate::{calls::Calls, head::Head, rejection::Rejection, settings::HttpSettings};

/// hyper's bound on an HTTP/2 head over ours: what is between is answered with a body.
const H2_HEAD_FACTOR: usize = 4;
/// How long an HTTP/2 client may take to answer a ping.
const H2_PING_TIMEOUT: Duration = Duration::from_secs(20);
/// hyper does not accept a smaller read buffer.
const MIN_READ_BUFFER: usize = 8192;

async fn answer(calls: &Calls, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, mut body) = request.into_parts();
    calls.answer(&Head::from(&parts), &mut body).await.into()
}

/// Serves HTTP/1, beginning with what was `received`; gives the stream back with how it ended.
pub(super) async fn serve_http1(
    stream: TcpStream,
    received: BytesMut,
    calls: &Calls,
    activity: &Arc<Activity>,
    http: &HttpSettings,
    stop: &CancellationToken,
) -> (TcpStream, End) {
    let service = service_fn(|request| {
        let in_work = activity.begin();
        async move {
            let reply = answer(calls, request).await;
            drop(in_work);
            Ok::<_, Infallible>(reply)
        }
    });
    let mut connection = http1::Builder::new()
        // A client that sends its request and closes its side still wants the answer.
        .half_close(true)
        .max_header_size(http.max_header)
        .max_buf_size(http.max_header.max(MIN_READ_BUFFER))
        .writev(false)
        .serve_connection(TokioIo::new(Wire::new(stream, received, Arc::clone(activity))), service);

    let first_look = Instant::now() + http.header_timeout;
    let mut interruptions = Interruptions::new(activity, http, stop, first_look);
    let end = loop {
        match interruptions.or(&mut connection).await {
            Ok(Err(error)) if error.is_incomplete_message() || error.is_parse() => {
                break End::Owed(Rejection::NotHttp);
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection ended early");
                break End::Over;
            }
            Ok(Ok(())) => break End::Over,
            Err(Interruption::Stop) => {
                Pin::new(&mut connection).graceful_shutdown();
                interruptions.go_on(Instant::now());
            }
            Err(Interruption::HeadOverdue) => break End::Owed(Rejection::HeadTimeout),
            Err(Interruption::IdleTooLong) => break End::Idle,
        }
    };
    let parts = connection.into_parts();
    let (stream, answered) = parts.io.into_inner().into_stream();
    // It may have come together with a request that was answered.
    let head_begun = parts.read_buf.len() > wire::empty_lines(&parts.read_buf);
    let end = match end {
        End::Owed(_) if answered || !head_begun => End::Over,
        End::Idle if head_begun => End::Owed(Rejection::HeadTimeout),
        end => end,
    };
    (stream, end)
}

/// Serves HTTP/2, beginning with what was `received`, until the connection ends.
pub(super) async fn serve_http2(
    stream: TcpStream,
    received: BytesMut,
    calls: Arc<Calls>,
    activity: &Arc<Activity>,
    http: &HttpSettings,
    stop: &CancellationToken,
) {
    let service = {
        let activity = Arc::clone(activity);
        service_fn(move |request| {
            let (calls, in_work) = (Arc::clone(&calls), activity.begin());
            async move {
                let reply = answer(&calls, request).await;
                drop(in_work);
                Ok::<_, Infallible>(reply)
            }
        })
    };
    let head = u32::try_from(http.max_header * H2_HEAD_FACTOR).unwrap_or(u32::MAX);
    let mut connection = std::pin::pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(http.idle_timeout)
            .keep_alive_timeout(H2_PING_TIMEOUT)
            .max_concurrent_streams(http.h2_streams)
            .max_header_list_size(head)
            .serve_connection(
                TokioIo::new(Wire::new(stream, received, Arc::clone(activity))),
                service,
            )
    );

    let mut stopping = false;
    let first_look = Instant::now() + http.idle_timeout;
    let mut interruptions = Interruptions::new(activity, http, stop, first_look);
    loop {
        let next_look = match interruptions.or(connection.as_mut()).await {
            Ok(served) => {
                if let Err(error) = served {
                    tracing::debug!(%error, "an HTTP/2 connection ended early");
                }
                return;
            }
            Err(Interruption::Stop) => Instant::now(),
            // Told to go, and did not within another idle time.
            Err(Interruption::HeadOverdue | Interruption::IdleTooLong) if stopping => return,
            Err(Interruption::HeadOverdue | Interruption::IdleTooLong) => Instant::now() + LINGER,
        };
        stopping = true;
        connection.as_mut().graceful_shutdown();
        interruptions.go_on(next_look);
    }
}

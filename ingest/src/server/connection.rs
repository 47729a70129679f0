//! One connection, from its first byte to its orderly end.
//!
//! Nobody is cut off without an answer that is owed: who sends half a head is answered 408, who
//! sends something else than HTTP is answered 400, and after the last answer the connection
//! lingers, because closing a socket with unread bytes destroys the answer on its way.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    activity::Activity,
    interruption::{Interruption, interruption},
    wire::{Opening, Wire},
};
use crate::{calls::Calls, rejection::Rejection, reply, settings::HttpSettings};

/// How long the end of a connection is waited for after the last answer.
const LINGER: Duration = Duration::from_secs(2);
/// How much is read and forgotten meanwhile, in bytes.
const LINGER_BYTES: usize = 16 * 1024 * 1024;
/// The piece in which it is read, in bytes.
const LINGER_PIECE: usize = 16 * 1024;
/// hyper's bound on an HTTP/2 head over ours: what is between is answered with a body.
const H2_HEAD_FACTOR: usize = 4;
/// How long an HTTP/2 client may take to answer a ping.
const H2_PING_TIMEOUT: Duration = Duration::from_secs(20);
/// hyper does not accept a smaller read buffer.
const MIN_READ_BUFFER: usize = 8192;

type Http = TokioIo<Wire<TcpStream>>;

/// How serving ended.
enum End {
    /// In the protocol's own way, or the client is gone.
    Over,
    /// The client waits for this, in HTTP/1.
    Owed(Rejection),
    /// Nobody waits.
    Idle,
}

/// Serves one connection until it ends, or `stop` and what is in work is answered.
pub(super) async fn serve(
    mut stream: TcpStream,
    calls: Arc<Calls>,
    activity: Arc<Activity>,
    http: &HttpSettings,
    stop: &CancellationToken,
) {
    let mut opening = Opening::default();
    let recognise = opening.is_http2(&mut stream, &activity);
    let recognised = tokio::select! {
        recognised = tokio::time::timeout(http.header_timeout, recognise) => recognised,
        () = stop.cancelled() => return,
    };
    match recognised {
        Ok(Ok(true)) => {
            activity.multiplex();
            let io = TokioIo::new(Wire::new(stream, opening, Arc::clone(&activity)));
            serve_http2(io, calls, &activity, http, stop).await;
        }
        Ok(Ok(false)) => {
            let io = TokioIo::new(Wire::new(stream, opening, Arc::clone(&activity)));
            serve_http1(io, calls, &activity, http, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a connection broke before its first request"),
        Err(_) if opening.is_empty() => {}
        Err(_) => linger(stream, Some(&Rejection::HeadTimeout)).await,
    }
}

async fn serve_http1(
    io: Http,
    calls: Arc<Calls>,
    activity: &Arc<Activity>,
    http: &HttpSettings,
    stop: &CancellationToken,
) {
    let service = service_fn(|request| {
        let in_work = activity.begin();
        let calls = &calls;
        async move {
            let reply = calls.answer(request).await;
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
        .serve_connection(io, service);

    let first_look = Instant::now() + http.header_timeout;
    let mut interruptions = FuturesUnordered::new();
    interruptions.push(interruption(activity, http, Some(stop), first_look));
    let end = loop {
        tokio::select! {
            biased;
            served = &mut connection => break match served {
                // Without its body, or in the middle of a head.
                Err(error) if error.is_incomplete_message() && activity.owes_an_answer() => {
                    End::Owed(Rejection::NotHttp)
                }
                Err(error) if error.is_parse() => End::Owed(Rejection::NotHttp),
                Err(error) => {
                    tracing::debug!(%error, "a connection ended early");
                    End::Over
                }
                Ok(()) => End::Over,
            },
            Some(interrupted) = interruptions.next() => match interrupted {
                Interruption::Stop => {
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                    interruptions.push(interruption(activity, http, None, Instant::now()));
                }
                Interruption::HeadOverdue => break End::Owed(Rejection::HeadTimeout),
                Interruption::IdleTooLong => break End::Idle,
            },
        }
    };
    let (stream, answered) = connection.into_parts().io.into_inner().into_stream();
    match end {
        End::Owed(rejection) if !answered => linger(stream, Some(&rejection)).await,
        End::Owed(_) | End::Over => linger(stream, None).await,
        End::Idle => {}
    }
}

async fn serve_http2(
    io: Http,
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
                let reply = calls.answer(request).await;
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
            .serve_connection(io, service)
    );

    let mut stopping = false;
    let first_look = Instant::now() + http.idle_timeout;
    let mut interruptions = FuturesUnordered::new();
    interruptions.push(interruption(activity, http, Some(stop), first_look));
    loop {
        tokio::select! {
            biased;
            served = connection.as_mut() => {
                if let Err(error) = served {
                    tracing::debug!(%error, "an HTTP/2 connection ended early");
                }
                return;
            }
            Some(interrupted) = interruptions.next() => {
                let next_look = match interrupted {
                    Interruption::Stop => Instant::now(),
                    // Told to go, and did not within another idle time.
                    Interruption::HeadOverdue | Interruption::IdleTooLong if stopping => return,
                    Interruption::HeadOverdue | Interruption::IdleTooLong => {
                        Instant::now() + LINGER
                    }
                };
                stopping = true;
                connection.as_mut().graceful_shutdown();
                interruptions.push(interruption(activity, http, None, next_look));
            }
        }
    }
}

/// Sends a last answer, if one is owed, says that nothing more comes, and waits for the client
/// to read it and end its side.
async fn linger(mut stream: TcpStream, last: Option<&Rejection>) {
    let end = async {
        if let Some(rejection) = last {
            stream.write_all(&reply::bare_http1(rejection)).await?;
        }
        stream.shutdown().await?;
        let mut piece = vec![0; LINGER_PIECE];
        let mut forgotten = 0;
        while forgotten < LINGER_BYTES {
            match stream.read(&mut piece).await? {
                0 => break,
                n => forgotten += n,
            }
        }
        io::Result::Ok(())
    };
    // Whoever is still sending after that has had its chance to read.
    let _ = tokio::time::timeout(LINGER, end).await;
}

/// Answers a connection that there is no room for.
pub(super) async fn turn_away(stream: TcpStream) {
    linger(stream, Some(&Rejection::Unavailable("the service has no room for more connections")))
        .await;
}

//! HTTP/1 connections.

use std::{convert::Infallible, pin::Pin, sync::Arc};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::Instant};

use super::{
    answer::answer,
    own_answers::{Exchange, Filter},
    replay::Replay,
};
use crate::{
    rejection::Rejection,
    server::{
        activity::Timeout, close::End, connection::Connection, recognise::empty_lines,
        timeouts::Interruption,
    },
};

/// hyper does not accept a smaller read buffer.
const MIN_READ_BUFFER: usize = 8192;

/// Serves HTTP/1 until nothing more comes. Gives back the stream, and how it is to be closed.
pub(in crate::server) async fn serve_http1(connection: Connection) -> (TcpStream, End) {
    let Connection { stream, received, activity, handlers, http, mut interruptions } = connection;
    let exchange = Exchange::default();
    let service = service_fn(|request| {
        exchange.begin();
        let (in_work, exchange, handlers) = (activity.begin_request(), &exchange, &handlers);
        async move {
            let response = answer(handlers, request).await;
            drop(in_work);
            Ok::<_, Infallible>(response.map(|body| exchange.answer(body)))
        }
    });
    let replay = Replay::new(stream, received, Arc::clone(&activity));
    let mut serving = http1::Builder::new()
        // A client that sends its request and closes its side still wants the answer.
        .half_close(true)
        .max_header_size(http.max_header)
        .max_buf_size(http.max_header.max(MIN_READ_BUFFER))
        .serve_connection(TokioIo::new(Filter::new(replay, exchange.clone())), service);

    // The fast path may have learnt of a shutdown in the middle of a head; hyper has to know, too.
    interruptions.restart();
    let end = loop {
        match interruptions.run(&mut serving).await {
            Ok(()) => break End::Graceful,
            Err(Interruption::Failed(error)) if error.is_parse_too_large() => {
                break End::AfterReply(Rejection::HeadTooLarge);
            }
            Err(Interruption::Failed(error))
                if error.is_parse() || error.is_incomplete_message() =>
            {
                break End::AfterReply(Rejection::NotHttp);
            }
            Err(Interruption::Failed(error)) => {
                tracing::debug!(%error, "a connection ended early");
                break End::Graceful;
            }
            Err(Interruption::Shutdown) => {
                Pin::new(&mut serving).graceful_shutdown();
                interruptions.only_timeouts(Instant::now());
            }
            Err(Interruption::TimedOut(Timeout::Head)) => {
                break End::AfterReply(Rejection::HeadTimeout);
            }
            Err(Interruption::TimedOut(Timeout::Idle)) => break End::Silent,
        }
    };
    let parts = serving.into_parts();
    let (replay, hyper_answered) = parts.io.into_inner().into_stream();
    // A head can have come together with the request before it, which no time limit noticed.
    let head_begun = parts.read_buf.len() > empty_lines(&parts.read_buf);
    let end = match end {
        // hyper still holds a part of an answer, which the client does not read. Whatever is sent
        // now would reach the client as a part of that answer.
        End::AfterReply(_) | End::Silent if !exchange.is_between() => End::Silent,
        End::AfterReply(_) if !head_begun && !hyper_answered => End::Graceful,
        End::Silent if head_begun => End::AfterReply(Rejection::HeadTimeout),
        end => end,
    };
    (replay.into_stream(), end)
}

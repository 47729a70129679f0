//! A connection with HTTP/1.1, for servers without HTTP/2: one request at a time.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};

use super::patience::{at_least_late, by};
use crate::{
    connect::io::Counted,
    error::{Step, Unreachable, Why},
    exchange::{Answer, Body, Failed, HEADER_BYTES, NotProcessed, Unanswered},
};

/// The time without a request after which a connection is closed. Servers close theirs after some
/// seconds, and a request that crosses that would be undecided.
pub(crate) const IDLE_CLOSE: Duration = Duration::from_secs(4);

/// Most headers of an answer.
const HEADERS: usize = 100;

/// The buffer for what is read, in bytes: the headers must fit.
const BUFFER: usize = HEADER_BYTES;

/// The side that sends.
pub(crate) type Sender = http1::SendRequest<Full<Bytes>>;

/// The side that must be polled until it ends.
pub(crate) type Connection = http1::Connection<TokioIo<Counted>, Full<Bytes>>;

/// Begins HTTP/1.1 on a connection.
pub(crate) async fn open(io: Counted) -> Result<(Sender, Connection), Unreachable> {
    let opened = http1::Builder::new()
        .max_buf_size(BUFFER)
        .max_headers(HEADERS)
        .handshake(TokioIo::new(io))
        .await;
    opened.map_err(|_| Step::Http.failed(Why::Protocol))
}

/// Sends a request, whose URI has the origin, and reads the answer.
pub(crate) async fn exchange(
    sender: &mut Sender,
    mut request: Request<Bytes>,
    deadline: Instant,
) -> Result<Answer, Failed> {
    // HTTP/1.1 has the origin in a header, and the path alone in the request line.
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let host = authority.and_then(|host| host.parse().ok()).ok_or(NotProcessed::Unsendable)?;
    request.headers_mut().insert(header::HOST, host);
    let path = request.uri().path_and_query().cloned().ok_or(NotProcessed::Unsendable)?;
    *request.uri_mut() = path.into();

    let ready = timeout_at(deadline, sender.ready()).await.map_err(|_| NotProcessed::Late)?;
    ready.map_err(|_| NotProcessed::Lost)?;
    let sent = by(deadline, sender.try_send_request(request.map(Full::new))).await;
    let answer = sent.ok_or(Unanswered::Late)?.map_err(|error| match error.message() {
        // The request is handed back if none of it was written.
        Some(_) => Failed::from(NotProcessed::Lost),
        None => Failed::from(Unanswered::Lost),
    })?;
    let (parts, mut incoming) = answer.into_parts();
    let deadline = at_least_late(deadline);
    let mut body = Body::default();
    let whole = loop {
        match timeout_at(deadline, incoming.frame()).await {
            Ok(None) => break true,
            Ok(Some(Ok(frame))) => {
                if !frame.data_ref().is_none_or(|piece| body.keep(piece)) {
                    break false;
                }
            }
            Ok(Some(Err(_))) | Err(_) => break false,
        }
    };
    Ok(Answer { status: parts.status, headers: parts.headers, body: body.into_bytes(), whole })
}

//! Requests in the plain form, one after the other, read and answered without hyper.
//!
//! Nearly every producer sends every push in the same form: a short head, a body of known length,
//! over a connection that stays. A general server pays for all that HTTP allows besides, with
//! each request: of a server that only reads such requests, parses their JSON and answers, hyper
//! takes 30 % of the processor's time (measured over 128 connections against a loop like the one
//! below, both under load at once). Only what is certainly plain is read here (see [`look`]); at
//! anything else the connection and what was received go to hyper, which decides what it means.
//!
//! [`look`]: request::look

mod body;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::{
    body::PlainBody,
    request::{Look, look},
};
use super::{
    activity::Activity,
    connection::End,
    interruption::{Interruption, Interruptions},
    wire::empty_lines,
};
use crate::{calls::Calls, rejection::Rejection, reply::Date, settings::HttpSettings};

/// How much is read at once at least, in bytes.
const PIECE: usize = 4096;
/// A head that did not come in so many pieces is left to hyper: here each piece means to begin
/// again.
const HEAD_PIECES: usize = 8;

/// Serves requests, beginning with what was `received`, until the connection ends. None if a
/// request is not plain; it is `received`, as far as it was read.
pub(super) async fn serve(
    stream: &mut TcpStream,
    received: &mut BytesMut,
    calls: &Calls,
    activity: &Arc<Activity>,
    http: &HttpSettings,
    stop: &CancellationToken,
) -> Option<End> {
    let first_look = Instant::now() + http.header_timeout;
    let mut interruptions = Interruptions::new(activity, http, stop, first_look);
    let (mut date, mut answer) = (Date::default(), Vec::new());
    loop {
        let mut pieces = 0;
        let request = loop {
            received.advance(empty_lines(received));
            if !received.is_empty() {
                match look(received, http.max_header) {
                    Look::Plain(request) => break request,
                    Look::Unfinished if pieces < HEAD_PIECES => pieces += 1,
                    Look::Unfinished | Look::Other => {
                        activity.received();
                        return None;
                    }
                }
                activity.received();
            }
            received.reserve(PIECE);
            match interruptions.or(stream.read_buf(received)).await {
                Ok(Ok(0)) if received.is_empty() => return Some(End::Over),
                Ok(Ok(0)) => return Some(End::Owed(Rejection::NotHttp)),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Some(broken(&error)),
                Err(Interruption::Stop) if received.is_empty() => return Some(End::Over),
                Err(Interruption::Stop) => interruptions.go_on(Instant::now()),
                Err(Interruption::HeadOverdue) => return Some(End::Owed(Rejection::HeadTimeout)),
                Err(Interruption::IdleTooLong) => return Some(End::Idle),
            }
        };

        let in_work = activity.begin();
        let mut body = PlainBody::new(&received[request.head_bytes..], request.body_bytes, stream);
        let used = request.head_bytes + body.arrived();
        let mut reply = calls.answer(&request.head, &mut body).await;
        reply.close |= stop.is_cancelled();
        drop(in_work);

        reply.write_http1(&mut date, &mut answer);
        let mut rest = answer.as_slice();
        while !rest.is_empty() {
            match interruptions.or(stream.write(rest)).await {
                Ok(Ok(written)) => rest = &rest[written..],
                Ok(Err(error)) => return Some(broken(&error)),
                Err(Interruption::Stop) => interruptions.go_on(Instant::now()),
                Err(Interruption::HeadOverdue | Interruption::IdleTooLong) => {
                    return Some(End::Idle);
                }
            }
        }
        received.advance(used);
        // An idle connection does not keep the memory of a large answer.
        answer.clear();
        answer.shrink_to(PIECE);
        // The service may have begun to stop while the client took its time to read.
        if reply.close || (received.is_empty() && stop.is_cancelled()) {
            return Some(End::Over);
        }
    }
}

fn broken(error: &std::io::Error) -> End {
    tracing::debug!(%error, "a connection ended early");
    End::Over
}

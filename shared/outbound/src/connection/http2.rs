//! A connection with HTTP/2.
//!
//! It is made of `h2` itself: pings with pauses of our own, the live limit of streams, and the kind
//! of each error are at hand there, and a request costs no task and no queue of its own.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
};

use bytes::Bytes;
use h2::{Ping, PingPong, Reason, client};
use http::Request;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    End,
    liveness::{Liveness, Look},
    member::Member,
    patience::{at_least_late, by},
};
use crate::{
    connect::io::{Counted, Traffic},
    error::{Step, Unreachable, Why},
    exchange::{Answer, BODY_BYTES, Body, Failed, HEADER_BYTES, NotProcessed, Unanswered},
};

/// The bytes that a server may send on a stream in all: a body that is kept, and the byte that shows that it is
/// longer. No room is given back before the stream ends.
const STREAM_WINDOW: u32 = BODY_BYTES as u32 + 1;

/// The bytes of bodies that a connection holds, whatever its server does: those of streams that go on.
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// The streams that are remembered after they were given up. A late answer to a stream that is
/// forgotten counts as an error of the server. The pool retires a connection earlier.
const GIVEN_UP_REMEMBERED: usize = 1024;

/// The time for which they are remembered.
const GIVEN_UP_FOR: std::time::Duration = std::time::Duration::from_secs(60);

/// The side that sends; cheap to clone.
pub(crate) type Sender = client::SendRequest<Bytes>;

/// The side that must be polled until it ends.
pub(crate) type Connection = client::Connection<Counted, Bytes>;

/// Begins HTTP/2, and waits for the server's SETTINGS. Before them, no stream is opened.
pub(crate) async fn open(io: Counted) -> Result<(Sender, Connection), Unreachable> {
    let failed = |_| Step::Http.failed(Why::Protocol);
    let (sender, mut connection) = client::Builder::new()
        .initial_max_send_streams(0)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADER_BYTES as u32)
        .max_concurrent_reset_streams(GIVEN_UP_REMEMBERED)
        .reset_stream_duration(GIVEN_UP_FOR)
        .enable_push(false)
        .handshake::<_, Bytes>(io)
        .await
        .map_err(failed)?;
    poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(Step::Http.failed(Why::Protocol))),
        Poll::Ready(Err(error)) => Poll::Ready(Err(failed(error))),
        Poll::Pending if connection.max_concurrent_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    Ok((sender, connection))
}

/// What happened on a connection that is being driven.
enum Event {
    Ended(End),
    Limit(usize),
    GoingAway(End),
}

/// Drives the connection until it ends.
pub(crate) async fn drive(
    mut connection: Box<Connection>,
    sender: Sender,
    member: &impl Member,
    traffic: &Traffic,
) -> End {
    let mut pings = connection.ping_pong();
    let mut liveness = Liveness::new(Instant::now(), traffic.read());
    let mut limit = connection.max_concurrent_send_streams();
    // Kept only to notice the server's goodbye; the connection ends when no sender is left.
    let mut probe = Some(sender);
    loop {
        let Some(usage) = member.usage() else { return End::Ours };
        if usage.retired {
            probe = None;
        }
        let wait = match liveness.look(Instant::now(), traffic.read(), usage) {
            Look::Wait(wait) => wait,
            Look::Ping => {
                // It fails while the answer to an earlier one is missing: that one is waited for.
                let _ = pings.as_mut().map(|pings| pings.send_ping(Ping::opaque()));
                continue;
            }
            Look::Dead => return End::Broken,
            Look::Idle if usage.retired => return End::Ours,
            Look::Idle => {
                member.retire(End::Ours);
                continue;
            }
        };
        let event = poll_fn(|cx| {
            if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
                return Poll::Ready(Event::Ended(ended.map_or(End::Broken, |()| End::Calm)));
            }
            let goodbye = probe.as_mut().map(|probe| probe.poll_ready(cx));
            if let Some(Poll::Ready(Err(error))) = goodbye {
                return Poll::Ready(Event::GoingAway(manner(&error)));
            }
            match connection.max_concurrent_send_streams() {
                now if now != limit => Poll::Ready(Event::Limit(now)),
                _ => Poll::Pending,
            }
        });
        let wait = pin!(sleep(wait));
        tokio::select! {
            biased;
            () = member.cancelled() => return End::Ours,
            event = event => match event {
                Event::Ended(end) => return end,
                Event::Limit(now) => {
                    limit = now;
                    member.limit(now);
                }
                Event::GoingAway(end) => {
                    probe = None;
                    member.retire(end);
                }
            },
            () = pong(&mut pings) => liveness.answered(Instant::now(), traffic.read()),
            () = member.woken() => {}
            () = wait => {}
        }
    }
}

async fn pong(pings: &mut Option<PingPong>) {
    if let Some(pings) = pings
        && poll_fn(|cx| pings.poll_pong(cx)).await.is_ok()
    {
        return;
    }
    // The connection is ending, which is noticed elsewhere.
    std::future::pending::<()>().await;
}

fn manner(error: &h2::Error) -> End {
    match error.reason() {
        Some(Reason::NO_ERROR) => End::Calm,
        // Its stream ids are used up.
        None if !error.is_io() => End::Ours,
        _ => End::Broken,
    }
}

/// Sends a request, whose URI has the origin, and reads the answer.
pub(crate) async fn exchange(
    sender: &mut Sender,
    request: Request<Bytes>,
    traffic: &Traffic,
    deadline: Instant,
) -> Result<Answer, Failed> {
    let (parts, body) = request.into_parts();
    let writes = traffic.writes();
    let sent = sender.send_request(Request::from_parts(parts, ()), body.is_empty());
    let (response, mut stream) = sent.map_err(|error| unsent(&error))?;
    if !body.is_empty() {
        // It fails if the stream has ended already, and then the response says how.
        let _ = stream.send_data(body, true);
    }
    let response = by(deadline, response).await.ok_or(Unanswered::Late)?;
    let response = response.map_err(|error| fate(&error, traffic.writes() == writes))?;
    let (parts, mut incoming) = response.into_parts();
    let deadline = at_least_late(deadline);
    let mut body = Body::default();
    let whole = loop {
        match timeout_at(deadline, incoming.data()).await {
            Ok(None) => break true,
            Ok(Some(Ok(piece))) => {
                if !body.keep(&piece) {
                    break false;
                }
            }
            Ok(Some(Err(_))) | Err(_) => break false,
        }
    };
    Ok(Answer { status: parts.status, headers: parts.headers, body: body.into_bytes(), whole })
}

/// A request that the connection did not take.
fn unsent(error: &h2::Error) -> Failed {
    let why = match error.reason() {
        Some(_) => NotProcessed::GoingAway,
        None if error.is_io() => NotProcessed::Lost,
        // The fault is in the request.
        None => NotProcessed::Unsendable,
    };
    why.into()
}

/// What is known of a request that ended with this error. `unwritten` says that the connection wrote
/// nothing since it took the request.
fn fate(error: &h2::Error, unwritten: bool) -> Failed {
    // A server's goodbye is the error of those streams only that are above its last id.
    if error.is_remote() && error.is_go_away() {
        return NotProcessed::GoingAway.into();
    }
    let refused = error.is_remote() && error.is_reset();
    if refused && error.reason() == Some(Reason::REFUSED_STREAM) {
        return NotProcessed::Refused.into();
    }
    match error.reason() {
        _ if unwritten => NotProcessed::Lost.into(),
        Some(reason) if error.is_reset() => Unanswered::Reset(reason.into()).into(),
        _ => Unanswered::Lost.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_which_nothing_was_written_is_not_processed_whatever_the_error() {
        for reason in [Reason::INTERNAL_ERROR, Reason::CANCEL, Reason::NO_ERROR] {
            assert_eq!(fate(&reason.into(), true), NotProcessed::Lost.into());
            assert_eq!(fate(&reason.into(), false), Unanswered::Lost.into());
        }
    }
}

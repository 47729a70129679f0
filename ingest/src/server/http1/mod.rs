//! An HTTP/1 connection: one request after the other, until it ends.
//!
//! Each head is read by rules that leave no doubt where its request ends. A request that breaks them is
//! refused before anything else looks at it, and the connection ends, because what follows may be a part
//! of it.
//!
//! A general server pays with each request for all that HTTP allows besides; `docs/contributing/benchmarks.md` has what
//! hyper costs in place of this module.
//!
//! - `head`: what a head says, and which heads are refused
//! - `target`, `host`: which targets and `Host` headers a head may have
//! - `body`, `chunks`: the body, of known length or in chunks

mod body;
mod chunks;
mod head;
mod host;
mod target;
#[cfg(test)]
mod tests;

use std::mem;

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};

use self::{
    body::Http1Body,
    head::{Parsed, parse},
};
use super::{
    activity::Timeout,
    close::{End, LAST_ANSWER},
    connection::Connection,
    receiving::{self, MAKES_ROOM},
    stream::Stream,
    timeouts::Interruption,
};
use crate::{client::Peer, rejection::Rejection, reply::Date};

/// The size of the smallest read, in bytes.
const MIN_READ: usize = 4096;
/// A buffer of this size is not kept while a connection is idle, in bytes.
const MAX_KEPT: usize = 4 * MIN_READ;
/// A head that takes more reads than this is not parsed again until it is whole: a head that comes
/// byte by byte would be parsed once for each byte.
const EARLY_PARSES: usize = 8;

/// Serves requests until the connection ends. Gives back the stream, and how it is to be closed.
pub(super) async fn serve(connection: Connection) -> (Stream, End) {
    let Connection {
        mut stream,
        peer,
        mut received,
        activity,
        handlers,
        http,
        mut interruptions,
        http2_requests: _,
        share: _,
    } = connection;
    let (mut date, mut answer) = (Date::default(), Vec::new());
    let end = 'connection: loop {
        let (mut reads, mut seen, mut empty) = (0, 0, 0);
        let request = loop {
            let skipped = empty_lines(&received);
            received.advance(skipped);
            empty += skipped;
            // Nothing is noted of empty lines, so a client that sends them without a pause would
            // have no time limit.
            if empty > http.max_header {
                break 'connection End::AfterReply(Rejection::HeadTooLarge);
            }
            if !received.is_empty() {
                let is_parsed = reads < EARLY_PARSES
                    || received.len() >= http.max_header
                    || ends_a_head(&received, seen);
                match is_parsed.then(|| parse(&received, http.max_header, &peer)) {
                    Some(Parsed::Request(request)) => break request,
                    Some(Parsed::Refused(why)) => break 'connection refused(why, &received),
                    Some(Parsed::Partial) | None => activity.received(),
                }
                (reads, seen) = (reads + 1, received.len());
            }
            // An idle connection does not keep the room of a large head, or of what came behind a body.
            if received.is_empty() && received.try_reclaim(MAX_KEPT) {
                received = BytesMut::new();
            }
            received.reserve(MIN_READ);
            match interruptions.run(stream.read_buf(&mut received)).await {
                Ok(0) if received.is_empty() => break 'connection End::Graceful,
                Ok(0) => break 'connection refused(Rejection::NotHttp, &received),
                Ok(_) => {}
                Err(Interruption::Failed(error)) => break 'connection failed(&peer, &error),
                Err(Interruption::Shutdown) if received.is_empty() => {
                    break 'connection End::Graceful;
                }
                Err(Interruption::Shutdown) => interruptions.only_timeouts(Instant::now()),
                Err(Interruption::TimedOut(Timeout::Head)) => {
                    break 'connection refused(Rejection::HeadTimeout, &received);
                }
                Err(Interruption::TimedOut(Timeout::Idle)) => break 'connection End::Silent,
            }
        };

        let Some(in_work) = activity.begin_request() else {
            break refused(MAKES_ROOM, &received);
        };
        let (is_last, has_body) = (request.is_last, request.answer_has_body);
        let (head_bytes, after_head) = (request.head_bytes, &received[request.head_bytes..]);
        let expects = request.head.expects;
        let mut body = Http1Body::new(&mut stream, after_head, request.framing, expects);
        let mut reply = receiving::answer(&handlers, &request.head, &mut body, &in_work).await;
        let (taken, mut to_come) = body.into_rest();
        received.advance(head_bytes + taken);
        to_come.give_back(&mut received);
        reply.close |= is_last || interruptions.is_stopping();
        let is_last = reply.close;
        let answering = in_work.answer();

        if interruptions.is_stopping() {
            interruptions.only_last_answers(LAST_ANSWER);
        }
        let long_body = reply.write_http1(&mut date, has_body, &mut answer);
        let (mut rest, mut behind) = (answer.as_slice(), &long_body[..]);
        loop {
            let written = async {
                match rest {
                    // TLS may hold the last bytes back until it is told to send them.
                    [] => stream.flush().await.map(|()| 0),
                    rest => stream.write(rest).await,
                }
            };
            match interruptions.run(written).await {
                Ok(_) if rest.is_empty() => break,
                Ok(written) => {
                    rest = &rest[written..];
                    if rest.is_empty() {
                        rest = mem::take(&mut behind);
                    }
                    if !rest.is_empty() {
                        answering.took_a_part();
                    }
                }
                Err(Interruption::Failed(error)) => break 'connection failed(&peer, &error),
                Err(Interruption::Shutdown) => interruptions.only_last_answers(LAST_ANSWER),
                // The client does not read its answer.
                Err(Interruption::TimedOut(_)) => break 'connection End::Silent,
            }
        }
        drop(answering);
        answer.clear();
        answer.shrink_to(MIN_READ);
        drop((long_body, reply));
        // The service may have begun to stop while the client took its time to read.
        if is_last || (received.is_empty() && interruptions.is_stopping()) {
            break End::Graceful;
        }
        if !to_come.discard(&mut stream, &mut received, http.max_body).await {
            break End::Graceful;
        }
    };
    (stream, end)
}

/// Returns true if the end of a head can be in what came after the first `seen` bytes.
fn ends_a_head(received: &[u8], seen: usize) -> bool {
    let from = seen.saturating_sub(b"\n\r".len());
    received[from..].windows(2).any(|two| two == b"\n\n" || two == b"\n\r")
}

/// Returns the end of a connection after a head that is refused. The answer to HEAD has no body (RFC 9110
/// section 9.3.2).
fn refused(why: Rejection, head: &[u8]) -> End {
    if head.starts_with(b"HEAD ") { End::AfterReplyToHead(why) } else { End::AfterReply(why) }
}

fn failed(peer: &Peer, error: &std::io::Error) -> End {
    tracing::debug!(peer = %peer.address(), %error, "a connection ended early");
    End::Graceful
}

/// Counts the bytes of empty lines at the beginning. Some clients send one after a body,
/// and it belongs to no request (RFC 9112 section 2.2).
fn empty_lines(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let [b'\n', after @ ..] | [b'\r', b'\n', after @ ..] = rest {
        rest = after;
    }
    bytes.len() - rest.len()
}

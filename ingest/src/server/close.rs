//! Closes connections.
//!
//! A client that waits for an answer gets one: 408 if the rest of a head does not come, 400 if
//! what it sent is not HTTP. After the last answer the connection stays open until the client has
//! ended its side too ([`LINGER`]), because closing a socket with unread bytes makes the kernel
//! reset the connection, and a reset destroys an answer that is still on its way.

use std::{io, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::stream::Stream;
use crate::{rejection::Rejection, reply};

/// The time that the client has to make room for the last answer, by reading those before it.
pub(super) const LAST_ANSWER: Duration = Duration::from_secs(10);
/// The time that the client then has to read it and to end its side.
pub(super) const LINGER: Duration = Duration::from_secs(2);
/// The most bytes that are read and dropped meanwhile.
const LINGER_BYTES: usize = 16 * 1024 * 1024;
/// The size of one read of them.
const LINGER_READ: usize = 16 * 1024;

/// The end of a connection's service.
#[derive(Debug)]
pub(super) enum End {
    /// All that was asked is answered, or the client is gone.
    Graceful,
    /// The client waits for this answer, after which nothing more comes.
    AfterReply(Rejection),
    /// It waits for this answer to a request HEAD, without a body.
    AfterReplyToHead(Rejection),
    /// The client waits for nothing, and the connection is closed without an answer.
    Silent,
}

pub(super) async fn close(stream: Stream, end: End) {
    match end {
        End::Graceful => linger(stream, None).await,
        End::AfterReply(rejection) => {
            linger(stream, Some(reply::last_http1(&rejection, true))).await;
        }
        End::AfterReplyToHead(rejection) => {
            linger(stream, Some(reply::last_http1(&rejection, false))).await;
        }
        End::Silent => {}
    }
}

/// Sends the last answer, if there is one, ends this side, and waits for the client to read it and
/// to end its own.
async fn linger(mut stream: Stream, last: Option<Vec<u8>>) {
    let end_own_side = async {
        if let Some(last) = last {
            stream.write_all(&last).await?;
        }
        stream.shutdown().await
    };
    if !matches!(tokio::time::timeout(LAST_ANSWER, end_own_side).await, Ok(Ok(()))) {
        return;
    }
    let read_the_rest = async {
        let mut buffer = vec![0; LINGER_READ];
        let mut dropped = 0;
        while dropped < LINGER_BYTES {
            match stream.read(&mut buffer).await? {
                0 => break,
                n => dropped += n,
            }
        }
        io::Result::Ok(())
    };
    // A client that still sends after that time had its chance to read the answer.
    let _ = tokio::time::timeout(LINGER, read_the_rest).await;
}

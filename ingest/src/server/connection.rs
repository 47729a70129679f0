//! One connection, from its first byte to its orderly end.
//!
//! It begins in the plain form (`plain`), in which nearly every producer sends every request.
//! At the first request that is not plain, hyper takes over for good (`general`).
//!
//! Nobody is cut off without an answer that is owed: who sends half a head is answered 408, who
//! sends something else than HTTP is answered 400, and after the last answer the connection
//! lingers, because closing a socket with unread bytes destroys the answer on its way.

use std::{io, sync::Arc, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

use super::{activity::Activity, general, plain, wire};
use crate::{calls::Calls, rejection::Rejection, reply, settings::HttpSettings};

/// How long the end of a connection is waited for after the last answer.
pub(super) const LINGER: Duration = Duration::from_secs(2);
/// How much is read and forgotten meanwhile, in bytes.
const LINGER_BYTES: usize = 16 * 1024 * 1024;
/// The piece in which it is read, in bytes.
const LINGER_PIECE: usize = 16 * 1024;

/// How serving HTTP/1 ended.
#[derive(Debug)]
pub(super) enum End {
    /// In the protocol's own way, or the client is gone.
    Over,
    /// The client waits for this.
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
    let mut received = BytesMut::new();
    let recognise = wire::is_http2(&mut stream, &mut received, &activity);
    let recognised = tokio::select! {
        recognised = tokio::time::timeout(http.header_timeout, recognise) => recognised,
        () = stop.cancelled() => return,
    };
    let end = match recognised {
        Ok(Ok(true)) => {
            activity.multiplex();
            return general::serve_http2(stream, received, calls, &activity, http, stop).await;
        }
        Ok(Ok(false)) => {
            let plain =
                plain::serve(&mut stream, &mut received, &calls, &activity, http, stop).await;
            match plain {
                Some(end) => end,
                None => {
                    let end;
                    // Boxed: it is rare, and its kilobyte would lie in every connection.
                    (stream, end) = Box::pin(general::serve_http1(
                        stream, received, &calls, &activity, http, stop,
                    ))
                    .await;
                    end
                }
            }
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a connection broke before its first request");
            End::Idle
        }
        Err(_) if received.is_empty() => End::Idle,
        Err(_) => End::Owed(Rejection::HeadTimeout),
    };
    match end {
        End::Over => linger(stream, None).await,
        End::Owed(rejection) => linger(stream, Some(&rejection)).await,
        End::Idle => {}
    }
}

/// Sends a last answer, if one is owed, says that nothing more comes, and waits for the client
/// to read it and end its side.
async fn linger(mut stream: TcpStream, last: Option<&Rejection>) {
    let end = async {
        if let Some(rejection) = last {
            stream.write_all(&reply::last_http1(rejection)).await?;
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

//! Answering requests with HTTP/1.1, in the manners that receivers behind old servers have.

use std::{io, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite,
    AsyncWriteExt as _, BufReader,
};

use super::{
    Shared,
    serve::{note, taken},
};

/// The longest body of a request, in bytes.
const LONGEST_BODY: usize = 1024 * 1024;

/// The manner in which a server with HTTP/1.1 answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Connections are kept, and answers have a length. The server names HTTP/1.1 in ALPN; in all other
    /// manners it knows nothing of ALPN.
    Kept,
    /// Each connection is closed after an answer that says so.
    Closed,
    /// Each connection is closed after an answer that does not say so, and has no length.
    ClosedUnsaid,
    /// Answers come in chunks, with a trailer.
    Chunked,
    /// The answer comes before the body of the request is read.
    Early,
    /// Interim answers come first: 100 and 103.
    Interim,
}

/// Serves a connection until it ends. It takes every request, whatever the script says.
pub(super) async fn serve<S>(stream: S, manner: Manner, shared: &Arc<Shared>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stream = BufReader::new(stream);
    loop {
        let (path, headers) = head(&mut stream).await?;
        let length = headers.get("content-length").and_then(|length| length.to_str().ok());
        let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or_default();
        if manner == Manner::Interim {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n").await?;
        }
        if manner == Manner::Early {
            stream.write_all(&answer(shared.face.taken(1), manner)).await?;
            stream.flush().await?;
        }
        let mut body = vec![0; length.min(LONGEST_BODY)];
        stream.read_exact(&mut body).await?;
        let devices = shared.face.devices(&path, &body);
        let body = Bytes::from(body);
        let (number, replies) = note(shared, &headers, &body, &devices);
        let taken = taken(shared, number, &devices, &replies, &body);
        if manner != Manner::Early {
            stream.write_all(&answer(taken, manner)).await?;
            stream.flush().await?;
        }
        if matches!(manner, Manner::Closed | Manner::ClosedUnsaid) {
            return stream.shutdown().await;
        }
    }
}

/// Reads the head of a request: its path and its headers.
async fn head(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<(String, HeaderMap)> {
    let (mut path, mut headers) = (None, HeaderMap::new());
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        match (&path, line.split_once(": ")) {
            (None, _) => path = Some(line.split(' ').nth(1).unwrap_or_default().to_owned()),
            (Some(path), _) if line.is_empty() => return Ok((path.clone(), headers)),
            (Some(_), Some((name, value))) => {
                let (name, value) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>());
                if let (Ok(name), Ok(value)) = (name, value) {
                    headers.append(name, value);
                }
            }
            (Some(_), None) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn answer((status, body): (u16, String), manner: Manner) -> Vec<u8> {
    let (length, size) = (body.len(), format!("{:x}", body.len()));
    let text = match manner {
        Manner::Closed => format!("connection: close\r\ncontent-length: {length}\r\n\r\n{body}"),
        Manner::ClosedUnsaid => format!("\r\n{body}"),
        Manner::Chunked if body.is_empty() => {
            "transfer-encoding: chunked\r\n\r\n0\r\nx: y\r\n\r\n".to_owned()
        }
        Manner::Chunked => {
            format!("transfer-encoding: chunked\r\n\r\n{size};x=y\r\n{body}\r\n0\r\nx: y\r\n\r\n")
        }
        Manner::Kept | Manner::Early | Manner::Interim => {
            format!("content-length: {length}\r\n\r\n{body}")
        }
    };
    format!("HTTP/1.1 {status} Whatever\r\n{text}").into_bytes()
}

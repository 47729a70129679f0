//! A WebSocket as a stream of bytes: binary messages are read one after the other, and each write is a
//! message. MQTT packets may span messages (MQTT 5, section 6).
//!
//! Every buffer is bounded. The size of a frame is checked before it is read, and a message before it
//! grows. A chunk is taken for writing only when the one before it has left, so that a peer that reads
//! nothing is noticed as over TCP.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use futures::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message, Utf8Bytes,
        error::ProtocolError,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

/// The largest message, in bytes: two of the largest packets that a device may send.
const MESSAGE: usize = 16 * 1024;

/// The bytes that are read at once. Packets of a device that has logged in are smaller, and each
/// connection keeps a buffer of this size.
const READ: usize = 1024;

/// The largest message that is written, in bytes. As much may be encoded ahead of the network.
const CHUNK: usize = 4 * 1024;

/// Room in the buffer for what is written besides a chunk: its header, PONG and CLOSE.
const CONTROL: usize = 1024;

/// The time for writing CLOSE.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The bytes that are read from a peer after CLOSE, until it closes its side.
const LAST_BYTES: usize = 64 * 1024;

/// A WebSocket of a client.
#[derive(Debug)]
pub(super) struct WebSocket<S> {
    frames: WebSocketStream<S>,
    /// The part of a message that is not read yet.
    message: Bytes,
    is_close_sent: bool,
    /// True if CLOSE is written.
    is_closed: bool,
    /// The bytes that may still be read from a peer to which nothing more is said.
    forget: Option<usize>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// Wraps a connection whose handshake is complete.
    pub(super) async fn new(stream: S) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ)
            .write_buffer_size(0)
            .max_write_buffer_size(CHUNK + CONTROL)
            .max_message_size(Some(MESSAGE))
            .max_frame_size(Some(MESSAGE));
        let frames = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        Self { frames, message: Bytes::new(), is_close_sent: false, is_closed: false, forget: None }
    }

    /// Closes a connection that was given up before a login, unless it is closed already.
    pub(super) async fn give_up(&mut self, code: CloseCode) {
        if self.is_closed {
            return;
        }
        if !self.is_close_sent {
            self.queue_close(code);
        }
        self.forget = Some(LAST_BYTES);
        let last = async {
            self.shutdown().await?;
            poll_fn(|cx| self.poll_forget(cx)).await
        };
        // The connection ends either way.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, last).await;
    }

    fn queue_close(&mut self, code: CloseCode) {
        self.is_close_sent = true;
        let close = CloseFrame { code, reason: Utf8Bytes::default() };
        // It fails only if the peer is closing, or reads nothing.
        let _ = Pin::new(&mut self.frames).start_send(Message::Close(Some(close)));
    }

    /// Tells the peer why the connection ends, if the network takes that now, and returns the reason.
    fn fail(&mut self, code: CloseCode, reason: &'static str, cx: &mut Context<'_>) -> io::Error {
        self.forget = Some(LAST_BYTES);
        if !self.is_close_sent {
            self.queue_close(code);
            let _ = Pin::new(&mut self.frames).poll_flush(cx);
        }
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }

    /// Makes an end or an error of what could not be read.
    fn unreadable(&mut self, error: Error, cx: &mut Context<'_>) -> io::Result<()> {
        let (code, reason) = match error {
            Error::Io(error) => return Err(error),
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return Ok(()),
            Error::Capacity(_) => (CloseCode::Size, "a message is too large"),
            Error::Utf8(_) => (CloseCode::Invalid, "a text is not UTF-8"),
            _ => (CloseCode::Protocol, "this is not the WebSocket protocol"),
        };
        Err(self.fail(code, reason, cx))
    }

    /// Reads and forgets the last bytes of a peer, because closing a socket with unread bytes resets the
    /// connection, and the peer could lose CLOSE.
    fn poll_forget(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut forgotten = [0; 4096];
        while let Some(rest) = self.forget.filter(|rest| *rest > 0) {
            let mut bytes = ReadBuf::new(&mut forgotten);
            ready!(Pin::new(self.frames.get_mut()).poll_read(cx, &mut bytes))?;
            let n = bytes.filled().len();
            self.forget = Some(if n == 0 { 0 } else { rest.saturating_sub(n) });
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.forget.is_some() {
            return this.poll_forget(cx);
        }
        while this.message.is_empty() {
            match ready!(Pin::new(&mut this.frames).poll_next(cx)) {
                Some(Ok(Message::Binary(message))) => this.message = message,
                Some(Ok(Message::Text(_))) => {
                    let reason = "a text message, where MQTT has binary ones";
                    return Poll::Ready(Err(this.fail(CloseCode::Unsupported, reason, cx)));
                }
                // These are answered when the next message is read.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(this.unreadable(error, cx)),
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = this.message.len().min(buf.remaining());
        buf.put_slice(&this.message[..n]);
        this.message.advance(n);
        if this.message.is_empty() {
            // An empty part keeps the memory of its message.
            this.message = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_close_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(self.as_mut().poll_flush(cx))?;
        let chunk = &bytes[..bytes.len().min(CHUNK)];
        let message = Message::Binary(Bytes::copy_from_slice(chunk));
        let sent = Pin::new(&mut self.frames).start_send(message);
        Poll::Ready(sent.map(|()| chunk.len()).map_err(unwritten))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.frames).poll_flush(cx).map_err(unwritten)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_close_sent {
            ready!(self.as_mut().poll_flush(cx))?;
            self.queue_close(CloseCode::Normal);
        }
        ready!(self.as_mut().poll_flush(cx))?;
        self.is_closed = true;
        Pin::new(self.frames.get_mut()).poll_shutdown(cx)
    }
}

fn unwritten(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        error => io::Error::new(io::ErrorKind::BrokenPipe, error),
    }
}

#[cfg(test)]
mod tests;

//! Encoded packets on their way to the broker, and the part of them that has left the worker.

use std::io;

use bytes::{Buf as _, BytesMut};
use rmqtt_codec::{
    error::EncodeError,
    v5::{Codec, Packet},
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    time::Instant,
};
use tokio_util::codec::Encoder as _;

/// Encoding pauses while this many bytes wait to be written.
const HIGH_WATER: usize = 64 * 1024;

/// The outgoing half of a session.
#[derive(Debug)]
pub(super) struct Output {
    codec: Codec,
    bytes: BytesMut,
    /// The length of all packets so far, in bytes.
    encoded: u64,
    /// True if something is in `bytes`, or in a buffer of the stream (TLS).
    unwritten: bool,
    last_packet: Instant,
    /// True if a write failed.
    broken: bool,
}

impl Output {
    pub(super) fn new(codec: Codec, now: Instant) -> Self {
        let bytes = BytesMut::with_capacity(HIGH_WATER);
        Self { codec, bytes, encoded: 0, unwritten: false, last_packet: now, broken: false }
    }

    /// Returns true if encoding must pause.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= HIGH_WATER
    }

    /// Returns true if [`Self::put`] has something to do.
    pub(super) fn is_unwritten(&self) -> bool {
        self.unwritten
    }

    /// Returns true if a write failed.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns the time at which the last packet was added.
    pub(super) fn last_packet(&self) -> Instant {
        self.last_packet
    }

    /// Adds a packet. Returns the length of all packets of the session so far, in bytes.
    ///
    /// # Errors
    /// If the packet is larger than the broker takes. Then nothing is added.
    pub(super) fn add(&mut self, packet: Packet, now: Instant) -> Result<u64, EncodeError> {
        let before = self.bytes.len();
        let encoded = self.codec.encode(packet, &mut self.bytes);
        if let Err(error) = encoded {
            self.bytes.truncate(before);
            return Err(error);
        }
        self.encoded += (self.bytes.len() - before) as u64;
        self.unwritten = true;
        self.last_packet = now;
        Ok(self.encoded)
    }

    /// Writes some bytes, or flushes if there are none. Cancel-safe: no byte is lost or repeated if
    /// the future is dropped.
    pub(super) async fn put(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let done = if self.bytes.is_empty() {
            writer.flush().await
        } else {
            match writer.write(&self.bytes).await {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.bytes.advance(written);
                    return Ok(());
                }
                Err(error) => Err(error),
            }
        };
        self.unwritten = false;
        self.broken = done.is_err();
        done
    }

    /// Returns the number of bytes that may have left the worker. After a failed write that is all of them,
    /// because a TLS stream may have sent a part of a write that then failed.
    pub(super) fn written(&self) -> u64 {
        if self.broken { self.encoded } else { self.encoded - self.bytes.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output() -> Output {
        let mut output = Output::new(Codec::default(), Instant::now());
        for _ in 0..2 {
            output.add(Packet::PingRequest, Instant::now()).unwrap();
        }
        output
    }

    #[tokio::test]
    async fn what_is_in_the_buffer_does_not_count_as_written() {
        let mut output = output();
        let (mut near, _far) = tokio::io::duplex(3);
        output.put(&mut near).await.unwrap();
        assert_eq!((output.encoded, output.written()), (4, 3));
        let blocked = tokio::time::timeout(std::time::Duration::ZERO, output.put(&mut near)).await;
        assert!(blocked.is_err());
        assert_eq!(output.written(), 3);
    }

    #[tokio::test]
    async fn after_a_failed_write_everything_may_have_left() {
        let mut output = output();
        let (mut near, far) = tokio::io::duplex(3);
        drop(far);
        output.put(&mut near).await.unwrap_err();
        assert_eq!(output.written(), 4);
    }
}
